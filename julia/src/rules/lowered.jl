# Rules of lowered nets: gradients by the code that was written for them.

function ChainRulesCore.rrule(
    ::typeof(run_lowered), call::LoweredCall{V,T}, inputs::Tuple, ps::Tuple,
) where {V,T<:Operators.RuntimeGeneratedFunction}
    y, row, saved = call.there(inputs, ps, call.constants[2])
    function run_lowered_pullback(ȳ)
        cotangents = in_a_row(unthunk(ȳ), y, row)
        found = call.back(saved, cotangents, call.constants[3])
        grads = map(as_gradient, (inputs..., ps...), found)
        n = length(inputs)
        return NoTangent(), NoTangent(), Tangent{typeof(inputs)}(grads[1:n]...),
        Tangent{typeof(ps)}(grads[n+1:end]...)
    end
    return y, run_lowered_pullback
end

as_gradient(_, ::Nothing) = NoTangent()
as_gradient(::Array{T,N}, found::Array{T,N}) where {T,N} = found
as_gradient(x, found) = ProjectTo(x)(found)

"Cotangents of the arrays of a row, which are among those of `y`."
in_a_row(ȳ, y::AbstractArray, row::Tuple{Any}) = (as_cotangent(ȳ, y),)
in_a_row(ȳ, y, row::Tuple) = map(part -> as_cotangent(cotangent_of(ȳ, y, part), part), row)

cotangent_of(ȳ, y, part) = y === part ? ȳ : nothing
cotangent_of(::Union{Nothing,AbstractZero}, y::Union{Tuple,NamedTuple}, part) = nothing
function cotangent_of(ȳ, y::Union{Tuple,NamedTuple}, part)
    for name in keys(y)
        found = cotangent_of(unthunk(getproperty_or_zero(ȳ, name)), y[name], part)
        found === nothing || return found
    end
    return nothing
end

getproperty_or_zero(ȳ::Tangent, name) = getproperty(ȳ, name)
getproperty_or_zero(ȳ, name) = ȳ[name]

as_cotangent(ȳ::StridedArray, _) = ȳ
as_cotangent(ȳ::AbstractArray, _) = collect(ȳ)
as_cotangent(::Any, y) = zero(y)

# Of a flat vector at once: views within it would each make a vector of zeros.
function ChainRulesCore.rrule(::typeof(in_order), net::PaddleNet, theta::AbstractVector)
    project = ProjectTo(theta)
    function in_order_pullback(p̄s)
        grads = unthunk(p̄s)
        grads isa AbstractZero && return NoTangent(), NoTangent(), ZeroTangent()
        each = map(net.sizes, Tuple(grads)) do size, grad
            grad = unthunk(grad)
            grad isa AbstractZero ? zeros(eltype(theta), prod(size)) : vec(grad)
        end
        return NoTangent(), NoTangent(), project(reduce(vcat, each))
    end
    return in_order(net, theta), in_order_pullback
end

function ChainRulesCore.rrule(::typeof(in_order), net::PaddleNet, ps::P) where {P<:NamedTuple}
    function in_order_pullback(p̄s)
        grads = unthunk(p̄s)
        grads isa AbstractZero && return NoTangent(), NoTangent(), ZeroTangent()
        found = NamedTuple{Tuple(net.names)}(Tuple(grads))
        return NoTangent(), NoTangent(), Tangent{P}(; NamedTuple{keys(ps)}(found)...)
    end
    return in_order(net, ps), in_order_pullback
end

# What decides which code runs has no derivative.
ChainRulesCore.@non_differentiable check_inputs(::Any, ::Any)
ChainRulesCore.@non_differentiable lowered(::Any, ::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable sample_input(::Any)
ChainRulesCore.@non_differentiable sample_like(::Any, ::Any)
ChainRulesCore.@non_differentiable check_sizes(::Any, ::Any)
ChainRulesCore.@non_differentiable derived_call(::Any, ::Any, ::Any)

# Of what writes into an array of its own.
ChainRulesCore.rrule(::typeof(Base.Broadcast.broadcasted), ::typeof(Operators.fuse), x) =
    x, ȳ -> (NoTangent(), NoTangent(), ȳ)
function ChainRulesCore.rrule(::typeof(Operators.placed), part, size, place, around...)
    function placed_pullback(ȳ)
        rest = map(_ -> NoTangent(), around)
        return NoTangent(), collect(view(unthunk(ȳ), place...)), NoTangent(), NoTangent(), rest...
    end
    return Operators.placed(part, size, place, around...), placed_pullback
end
function ChainRulesCore.rrule(::typeof(Operators.added_at), slices, index, dim::Val{D}, length) where {D}
    added_at_pullback(ȳ) =
        (NoTangent(), collect(selectdim(unthunk(ȳ), D, index)), NoTangent(), NoTangent(), NoTangent())
    return Operators.added_at(slices, index, dim, length), added_at_pullback
end
