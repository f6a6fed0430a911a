# Second derivatives of any net: its pullback, and rules of that.

"""
    vjp(net, x, ps, ȳ; kwargs...) -> x̄, p̄s
    vjp(wrapper, x, ȳ; kwargs...) -> p̄s, x̄

Compute the gradients of `sum(ȳ .* net(x, ps))`, as a function that can be differentiated
again.

Zygote and whatever reads the rules of ChainRules can differentiate it. `Zygote.gradient`
within `Zygote.gradient` does the same. Second derivatives go by Paddle's kernels.

# Arguments

- `net`, `x`, `ps`, `wrapper`, `kwargs`: those of a call `net(x, ps; kwargs...)`.
- `ȳ`: the cotangent, nested as the result of the call.

# Returns

The gradients in the order of the arguments, nested as they are.

# Throws

- Python's `NotImplementedError` with the name of a kernel: Paddle has no second derivative
  there, or a wrong one.

# Examples

```jldoctest
julia> using Zygote

julia> wrapper = PaddleModuleWrapper(paddle.nn.Sequential(
           paddle.nn.Linear(3, 16), paddle.nn.Tanh(), paddle.nn.Linear(16, 1)));

julia> x, ȳ = rand(Float32, 3, 8), ones(Float32, 1, 8);

julia> slope(w) = sum(abs2, vjp(w, x, ȳ)[2]); # a gradient penalty

julia> map(size, Zygote.gradient(slope, wrapper)[1].params[1:2])
((16, 3), (16,))
```
"""
function vjp(net::PaddleNet, x, ps, ȳ; kwargs...)
    _, back = pullback(net, x, ps; kwargs...)
    return back(ȳ)
end
function vjp(w::PaddleModuleWrapper, x, ȳ; kwargs...)
    x̄, p̄s = vjp(w.net, x, params_of(w), ȳ; kwargs...)
    return p̄s, x̄
end

function vjp_rule(how, net::PaddleNet, x, ps, ȳ, kw::NamedTuple)
    _, of = net_rule(how, net, x, ps, kw)
    x̄, _, p̄s = map(plain, tangents(of, ȳ))
    function vjp_pullback(Δ)
        Δx̄, Δp̄s = two_parts(unthunk(Δ))
        ȳ̄, x̿, _, p̿s = second_pullback(of, ȳ, Δx̄, nothing, Δp̄s)
        return NoTangent(), NoTangent(), x̿, p̿s, ȳ̄
    end
    return (x̄, p̄s), vjp_pullback
end

two_parts(Δ::AbstractZero) = Δ, Δ
two_parts(Δ) = content(unthunk(Δ[1])), content(unthunk(Δ[2]))

"A tangent without the wrapping of a tangent of a Tangent, as Zygote within Zygote has it."
content(Δ) = Δ
content(Δ::Union{Tangent,NamedTuple}) =
    propertynames(Δ) == (:backing,) ? content(unthunk(Δ.backing)) : Δ

"A tangent as the arrays it is made of, `nothing` where it is zero."
plain(x̄) = plain(unthunk(x̄), nothing)
plain(x̄::AbstractArray, _) = x̄
plain(::Union{AbstractZero,Nothing}, _) = nothing
plain(x̄::Tangent, _) = map(plain, ChainRulesCore.backing(x̄))

ChainRulesCore.rrule(::typeof(vjp), net::PaddleNet, x, ps, ȳ; kw...) =
    vjp_rule(Lazy(), net, x, ps, ȳ, values(kw))

"""
    second_pullback(pullback, ȳ, Δx̄, Δk̄w, Δp̄s)

The tangents of `ȳ`, `x`, `kw` and `ps` for cotangents of the gradients that a pullback gives.
"""
function second_pullback(of::NetPullback, ȳ, Δx̄, Δk̄w, Δp̄s)
    flat, row = in_a_row(of.net, of.x, of.kw)
    ȳs = collect_cotangents!(Any[], ȳ, of.shape)
    gradients_of = gradients_net(flat, length(row))
    _, back = rule(Eager(), gradients_of, (nothing, row..., ȳs...), of.ps, of.trained)
    by_arguments = (parts_in_a_row(Δx̄, of.x)..., parts_in_a_row(Δk̄w, of.kw)...)
    Δ = (params_parts(Δp̄s, of.ps, of.net)..., by_arguments...)
    (_, found...), p̿s = back(Δ)
    rest = Iterators.Stateful(found)
    x̿, k̿w = nested_tangent(of.x, rest), nested_tangent(of.kw, rest)
    return nested_cotangent(ȳ, of.shape, rest), x̿, k̿w, p̿s
end

part_of(Δ::Union{AbstractZero,Nothing}, _) = nothing
part_of(Δ, key) = content(unthunk(getproperty(content(Δ), key)))

"The parts of a tangent of arguments, one for each leaf."
parts_in_a_row(Δ, ::AbstractArray) = (content(unthunk(Δ)),)
parts_in_a_row(_, ::Constant) = (nothing,)
function parts_in_a_row(tangent, xs::Union{Tuple,NamedTuple})
    Δ = content(unthunk(tangent))
    return Tuple(Iterators.flatten(parts_in_a_row(part_of(Δ, key), xs[key]) for key in keys(xs)))
end

"""
    params_parts(Δp̄s, ps, net)

Cotangents of the gradients of the parameters, one each, `nothing` for zero.
"""
function params_parts(Δp̄s, ps, net::PaddleNet)
    Δ = content(unthunk(Δp̄s))
    is_zero(Δ) && return map(Returns(nothing), net.names)
    ps isa AbstractVector && return pieces(Δ, net)
    return [part_of(Δ, key) for key in (ps isa Tuple ? keys(ps) : net.names)]
end

"The parts of a flat vector, in the sizes of the parameters."
function pieces(theta::AbstractVector, net::PaddleNet)
    stops = cumsum(map(prod, net.sizes))
    return [
        reshape(theta[stop-prod(size)+1:stop], size) for (stop, size) in zip(stops, net.sizes)
    ]
end

"Tangents of cotangents in a row, nested as the cotangent was given."
nested_cotangent(_, ::Union{Leaf,Passed}, row) = popfirst!(row)
function nested_cotangent(ȳ::Union{Tuple,NamedTuple}, shape::Union{Tuple,NamedTuple}, row)
    found = Dict(key => nested_cotangent(ȳ[key], shape[key], row) for key in keys(shape))
    ȳ isa Tuple && return Tangent{typeof(ȳ)}((found[key] for key in keys(ȳ))...)
    return Tangent{typeof(ȳ)}(; (key => found[key] for key in keys(ȳ))...)
end
# As Zygote within Zygote has it: the tangent of a Tangent, whose missing parts are zero.
function nested_cotangent(ȳ::Tangent, shape::Union{Tuple,NamedTuple}, row)
    parts = ChainRulesCore.backing(ȳ)
    found = Dict(key => nested_cotangent(getproperty(ȳ, key), shape[key], row) for key in keys(shape))
    kept = map(key -> found[key], keys(parts))
    backing = parts isa Tuple ? Tangent{typeof(parts)}(kept...) :
              Tangent{typeof(parts)}(; NamedTuple{keys(parts)}(kept)...)
    return Tangent{typeof(ȳ)}(; backing)
end
function nested_cotangent(::Union{AbstractZero,Nothing}, shape::Union{Tuple,NamedTuple}, row)
    foreach(part -> nested_cotangent(nothing, part, row), values(shape))
    return NoTangent()
end

"""
    tangents_of_both(of, Δ)

The tangents of `x`, `kw` and `ps` for those of a value and its pullback, the tuple `Δ`.
"""
function tangents_of_both(of::NetPullback, Δ)
    Δy, Δof = two_parts(unthunk(Δ))
    first_order = is_zero(Δy) ? (nothing, nothing, nothing) : map(unthunk, tangents(of, Δy))
    return map(together, first_order, (part_of(Δof, :x), part_of(Δof, :kw), part_of(Δof, :ps)))
end

"""
    SlopeBack

What [`pullback`](@ref PaddleChainRules.pullback) gives where it is differentiated: new arrays, no buffers of the caller's.
"""
struct SlopeBack{O,N<:NetPullback}
    ordered::O # from the order of a net's arguments to that of the caller's, and back
    of::N
end

function (back::SlopeBack)(ȳ; into = nothing, accumulate::Bool = false)
    into === nothing && !accumulate || throw(
        ArgumentError(
            "a pullback that is differentiated writes into no arrays, since what they held would be lost; leave into and " *
            "accumulate out, and take the gradients that back(ȳ) returns",
        ),
    )
    x̄, _, p̄s = map(plain, tangents(back.of, ȳ))
    return back.ordered((x̄, p̄s))
end

Base.show(io::IO, back::SlopeBack) = print(io, back.of, ", back(ȳ)")

function slope_back_rule(back::SlopeBack, ȳ; kw...)
    function slope_back_pullback(Δ)
        Δx̄, Δp̄s = back.ordered(two_parts(unthunk(Δ)))
        ȳ̄, x, k̄w, ps = second_pullback(back.of, ȳ, Δx̄, nothing, Δp̄s)
        of = Tangent{typeof(back.of)}(; x, kw = k̄w, ps)
        return Tangent{typeof(back)}(; of), ȳ̄
    end
    return back(ȳ; kw...), slope_back_pullback
end

function pullback_rule(net::PaddleNet, x, ps, kw::NamedTuple)
    y, of = net_rule(Eager(), net, x, ps, kw)
    function pullback_pullback(Δ)
        Δy, Δback = two_parts(unthunk(Δ))
        x̄, _, p̄s = tangents_of_both(of, (Δy, part_of(Δback, :of)))
        return NoTangent(), NoTangent(), x̄, p̄s
    end
    return (y, SlopeBack(identity, of)), pullback_pullback
end

function pullback_rule(w::W, x, kw::NamedTuple) where {W<:PaddleModuleWrapper}
    y, of = net_rule(Eager(), w.net, x, w.params, kw, trained(w))
    function wrapper_pullback_pullback(Δ)
        Δy, Δback = two_parts(unthunk(Δ))
        x̄, _, p̄s = tangents_of_both(of, (Δy, part_of(Δback, :of)))
        return NoTangent(), wrapper_tangent(W, p̄s), x̄
    end
    return (y, SlopeBack(reverse, of)), wrapper_pullback_pullback
end

ChainRulesCore.rrule(::typeof(pullback), net::PaddleNet, x, ps; kw...) =
    pullback_rule(net, x, ps, values(kw))
ChainRulesCore.rrule(::typeof(pullback), w::PaddleModuleWrapper, x; kw...) =
    pullback_rule(w, x, values(kw))
ChainRulesCore.rrule(back::SlopeBack, ȳ; kw...) = slope_back_rule(back, ȳ; kw...)

ChainRulesCore.rrule(::Pullback, ::Any...; kw...) = throw(
    ArgumentError(
        "a pullback that was made outside of the function that is differentiated has no derivative; call " *
        "PaddleChainRules.pullback within that function, or vjp(net, x, ps, ȳ)",
    ),
)

# Automatic differentiation of automatic differentiation: rules of what the rules are made of.

function ChainRulesCore.rrule(::typeof(net_rule), how, net::PaddleNet, x, ps, more...)
    y, of = net_rule(how, net, x, ps, more...)
    function net_rule_pullback(Δ)
        x̄, k̄w, p̄s = tangents_of_both(of, Δ)
        rest = isempty(more) ? () : (k̄w, map(Returns(NoTangent()), Base.tail(more))...)
        return NoTangent(), NoTangent(), NoTangent(), x̄, p̄s, rest...
    end
    return (y, of), net_rule_pullback
end

function tangents_rule(of::NetPullback, ȳ)
    function tangents_pullback(Δ)
        Δ = content(unthunk(Δ))
        is_zero(Δ) && return NoTangent(), ZeroTangent(), ZeroTangent()
        ȳ̄, x, kw, ps = second_pullback(of, ȳ, Δ[1], Δ[2], Δ[3])
        return NoTangent(), Tangent{typeof(of)}(; x, kw, ps), ȳ̄
    end
    return map(unthunk, of.back(ȳ)), tangents_pullback
end

ChainRulesCore.rrule(::typeof(tangents), of::NetPullback, ȳ) = tangents_rule(of, ȳ)

function ChainRulesCore.rrule(::typeof(wrapper_tangent), ::Type{W}, p̄s) where {W}
    wrapper_tangent_pullback(Δ) = NoTangent(), NoTangent(), part_of(unthunk(Δ), :params)
    return wrapper_tangent(W, p̄s), wrapper_tangent_pullback
end

function ChainRulesCore.rrule(::typeof(parts), x̄s, xs)
    parts_pullback(Δ) = NoTangent(), content(unthunk(Δ)), NoTangent()
    return parts(x̄s, xs), parts_pullback
end

"The sum of two tangents, which may be nested and in part zero."
together(a, b) = together(content(unthunk(a)), content(unthunk(b)), nothing)
together(a, b, _) = is_zero(a) ? (is_zero(b) ? ZeroTangent() : b) : is_zero(b) ? a : added(a, b)
added(a::AbstractArray, b::AbstractArray) = a .+ b
function added(a::Tangent{P}, b) where {P}
    found = map(key -> together(getproperty(a, key), part_of(b, key)), propertynames(a))
    return a isa Tangent{P,<:Tuple} ? Tangent{P}(found...) :
           Tangent{P}(; NamedTuple{propertynames(a)}(found)...)
end

# The rules of the second order are not differentiated again.
const SECOND_ORDER = Union{
    typeof(tangents_rule),typeof(vjp_rule),typeof(pullback_rule),typeof(slope_back_rule),typeof(jvp_rule),
    typeof(batched_jacobian_rule),
}
ChainRulesCore.rrule(::SECOND_ORDER, ::Any...; kw...) = throw(
    ArgumentError(
        "derivatives of nets by ChainRules and Zygote end at the second order. ForwardDiff goes " *
        "on from there, `derivatives` has higher ones by the input, and paddle_chainrules in " *
        "Python has no such end",
    ),
)
