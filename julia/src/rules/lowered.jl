# Rules of lowered nets: gradients by the code that was written for them.

function ChainRulesCore.rrule(
    ::typeof(run_lowered), call::LoweredCall{V,T}, inputs::Tuple, ps::Tuple,
) where {V,T<:Operators.RuntimeGeneratedFunction}
    y, row, saved = call.there(inputs, ps, call.constants[2])
    function run_lowered_pullback(ȳ)
        cotangents = cotangents_of(ȳ, y, row)
        found = call.back(saved, cotangents, call.constants[3])
        grads = map((x, x̄) -> array_tangent(ProjectTo(x), x̄), (inputs..., ps...), found)
        n = length(inputs)
        return NoTangent(), NoTangent(), Tangent{typeof(inputs)}(grads[1:n]...),
        Tangent{typeof(ps)}(grads[n+1:end]...)
    end
    return y, run_lowered_pullback
end

"Cotangents of the arrays of a row, which are among those of `y`; zeros for none."
cotangents_of(ȳ, y::AbstractArray, row::Tuple{Any}) = (as_cotangent(unthunk(ȳ), y),)
cotangents_of(ȳ, y, row::Tuple) = map(part -> as_cotangent(cotangent_of(ȳ, y, part), part), row)

cotangent_of(ȳ, y, part) = y === part ? unthunk(ȳ) : nothing
function cotangent_of(ȳ, ys::Union{Tuple,NamedTuple}, part)
    Δ = unthunk(ȳ)
    is_zero(Δ) && return nothing
    for key in keys(ys)
        found = cotangent_of(tangent_part(Δ, key, ys, "cotangent"), ys[key], part)
        found === nothing || return found
    end
    return nothing
end

as_cotangent(ȳ::StridedArray, _) = ȳ
as_cotangent(ȳ::AbstractArray, _) = dense_tangent(ȳ)
as_cotangent(::Any, y) = zero(y)

# Of a flat vector at once: views within it would each make a vector of zeros.
function ChainRulesCore.rrule(::typeof(in_order), net::PaddleNet, theta::AbstractVector)
    project = ProjectTo(theta)
    in_order_pullback(p̄s) =
        (NoTangent(), NoTangent(), array_tangent(project, in_one(net, plain_parts(net, p̄s))))
    return in_order(net, theta), in_order_pullback
end
function ChainRulesCore.rrule(::typeof(in_order), net::PaddleNet, ps::NamedTuple)
    project = params_projector(ps, net.names)
    in_order_pullback(p̄s) = (NoTangent(), NoTangent(), project(plain_parts(net, p̄s)))
    return in_order(net, ps), in_order_pullback
end

"The parts of a tangent of parameters in order, `nothing` for zero."
function plain_parts(net::PaddleNet, p̄s)
    grads = unthunk(p̄s)
    is_zero(grads) && return map(Returns(nothing), Tuple(net.names))
    return map(g -> (Δ = unthunk(g); is_zero(Δ) ? nothing : Δ), Tuple(grads))
end

# What decides which code runs has no derivative.
ChainRulesCore.@non_differentiable check_inputs(::Any, ::Any)
ChainRulesCore.@non_differentiable lowered(::Any, ::Any, ::Any, ::Any)
ChainRulesCore.@non_differentiable sample_input(::Any)
ChainRulesCore.@non_differentiable sample_params(::Any, ::Any)
ChainRulesCore.@non_differentiable check_nesting(::Any, ::Any)
ChainRulesCore.@non_differentiable takes_columns(::Any, ::Any)
ChainRulesCore.@non_differentiable nesting(::Any, ::Any)
ChainRulesCore.@non_differentiable check_state(::Any, ::Any)
ChainRulesCore.@non_differentiable check_sizes(::Any, ::Any)
ChainRulesCore.@non_differentiable derived_call(::Any, ::Any, ::Any)

# Of what writes into an array of its own.
ChainRulesCore.rrule(::typeof(Base.Broadcast.broadcasted), ::typeof(Operators.fuse), x) =
    x, ȳ -> (NoTangent(), NoTangent(), ȳ)
# As Zygote has it for tanh: by the value, without dual numbers.
function ChainRulesCore.rrule(::typeof(Base.Broadcast.broadcasted), ::typeof(Operators.tanh_fast), x::Array)
    y = Operators.tanh_fast.(x)
    return y, ȳ -> (NoTangent(), NoTangent(), Operators.tanh_grad.(y, unthunk(ȳ)))
end
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
