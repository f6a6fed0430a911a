# Rules of calls on plain arrays, for callers such as Zygote that want all gradients at once.

"""
    eager_rule(how, net, x, ps) -> y, pullback::NetPullback, or nothing

Call a net by code and return the pullback, which gives all gradients at once; nothing where there is no such code.

A chain of Linear layers has such a rule for all plain arrays of floats, by code or by Paddle. The type of its value is that of its
input and it has every gradient, so Julia infers the types of all that a loss computes from it.
"""
eager_rule(::Lazy, _, _, _) = nothing
function eager_rule(::Eager, net::PaddleNet, x, ps)
    made = code_call(net, inputs(x), ps)
    made === nothing && return nothing
    y, call = made
    return y, eager_pullback(EagerTangents{typeof(call)}(call, x, ps), net, y)
end
# Not inlined, and neither is the pullback: Julia inlines `Zygote.gradient` of a loss only if what it infers of it is short. A call
# of `Zygote.gradient` that is not inlined dispatches at run time, which takes microseconds.
@noinline function eager_rule(
    ::Eager, net::N, x::Union{X,Tuple{X}}, ps::PlainParams{T},
) where {N<:PaddleNet{true},T<:PlainFloat,X<:Array{T}}
    has_many(ps) && return nothing
    xs = inputs(x)
    y, way = @something code_call(net, xs, ps) reversible(net, xs, ps)
    tangents = EagerTangents{CodeCall{N,typeof(params_as_given(ps)),typeof(xs)}}(way, x, ps)
    return y::X, eager_pullback(tangents, net, y::X)
end

has_many(::Vector) = false
has_many(ps::Union{Tuple,NamedTuple}) = length(ps) > MAX_TUPLE_LENGTH

eager_pullback(tangents, net::PaddleNet, y::Array) =
    NetPullback(tangents, net, tangents.x, tangents.ps, (;), Leaf(eltype(y), size(y)), nothing)

"""
    EagerTangents{C}

The tangents of all arguments of a call at once, a call by code of the type `C` or one by Paddle.
"""
struct EagerTangents{C<:CodeCall,X,P}
    call::Union{C,PullbackState}
    x::X
    ps::P
    EagerTangents{C}(call, x::X, ps::P) where {C,X,P} = new{C,X,P}(call, x, ps)
end

@noinline function (of::EagerTangents)(ȳ)
    Δ = unthunk(ȳ)
    call = of.call
    found = call isa CodeCall ? whole_gradients(call, fitting_cotangent(call, Δ)) : nothing
    found === nothing && return in_known_types(of, Δ, Base.inferencebarrier(general_tangents)(of, Δ))
    p̄s, x̄s = found
    return tangent_in_form(of.x, x̄s), NoTangent(), tangent_in_form(of.ps, p̄s)
end

function general_tangents((; call, x, ps)::EagerTangents, Δ)
    reverse = call isa PullbackState ? call : PullbackState(call)
    x̄s, p̄s = rule_back(Eager(), reverse, inputs(x), ps)(Δ)
    return tangent_in_form(x, x̄s), NoTangent(), p̄s
end

# Cotangents of other numbers, such as dual ones, and zeros give tangents of other types.
in_known_types(_, _, found) = found
in_known_types(
    ::EagerTangents{<:CodeCall{<:PaddleNet{true}},X,P}, ::AbstractArray{<:PlainFloat}, found,
) where {X,P} = found::Tuple{tangent_type(X),NoTangent,tangent_type(P)}

tangent_type(::Type{A}) where {A<:Array} = A
tangent_type(::Type{P}) where {P<:Union{Tuple,NamedTuple}} = Tangent{P,P}

tangent_in_form(::Array, row::Tuple) = only(row)
tangent_in_form(::P, row::Tuple) where {P<:Tuple} = Tangent{P}(row...)
function tangent_in_form(::P, row::Tuple) where {K,P<:NamedTuple{K}}
    backing = NamedTuple{K}(row)
    return Tangent{P,typeof(backing)}(backing)
end
