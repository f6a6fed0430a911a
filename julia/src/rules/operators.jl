# Reverse rules of derivatives by the input, which are nets too.

function operator_rule(how, net::PaddleNet, x, ps, kw, constants = (), ordered = identity)
    y, pullback = net_rule(how, net, x, ps, values(kw))
    function operator_pullback(ȳ)
        x̄, _, p̄s = tangents(pullback, ȳ)
        return NoTangent(), NoTangent(), x̄, p̄s, map(Returns(NoTangent()), constants)...
    end
    return ordered(y), operator_pullback
end

laplacian_rule(how, net, x, ps; kw...) = operator_rule(how, applied(net, "laplacian", x), x, ps, kw)
derivative_rule(how, net, x, ps, index; kw...) =
    operator_rule(how, applied(net, checked_index(net, x, index), x), x, ps, kw, (index,))
derivatives_rule(how, net, x, ps, wanted; kw...) =
    operator_rule(
        how, applied(net, checked_wanted(net, x, wanted), x), x, ps, kw, (wanted,),
        y -> in_order_of(wanted, y),
    )

ChainRulesCore.rrule(::typeof(laplacian), net::PaddleNet, x, ps; kw...) =
    laplacian_rule(Lazy(), net, x, ps; kw...)
ChainRulesCore.rrule(::typeof(derivative), net::PaddleNet, x, ps, index; kw...) =
    derivative_rule(Lazy(), net, x, ps, index; kw...)
ChainRulesCore.rrule(::typeof(derivatives), net::PaddleNet, x, ps, wanted; kw...) =
    derivatives_rule(Lazy(), net, x, ps, wanted; kw...)

function batched_jacobian_rule(how, net::PaddleNet, x, ps; kw...)
    _, row, of = per_sample(net, "jacobian", x, values(kw))
    y, back, _ = rule(how, of, row, ps)
    function batched_jacobian_pullback(ȳ)
        (x̄, _...), p̄s = back(ȳ)
        return NoTangent(), NoTangent(), x̄, p̄s
    end
    return y, batched_jacobian_pullback
end

ChainRulesCore.rrule(::typeof(batched_jacobian), net::PaddleNet, x, ps; kw...) =
    batched_jacobian_rule(Lazy(), net, x, ps; kw...)

function jvp_rule(how, net::PaddleNet, x, ps, ẋ, ṗs = nothing; kwargs...)
    kw = values(kwargs)
    of, row = pushing_call(net, x, ps, ẋ, ṗs, kw)
    found, back, _ = rule(how, of, row, ps)
    slopes = slope_of(found)
    function jvp_pullback(ȳ)
        Δ = (nothing, with_last_of(slopes, ȳ))
        x̄s, p̄s = back(has_buffers(found) ? (Δ, nothing) : Δ)
        rest = Iterators.Stateful(x̄s)
        x̄ = nested_tangent(x, rest)
        foreach(_ -> popfirst!(rest), leaves(kw))
        v̄ps = direction_tangents(net, ps, ṗs, rest)
        v̄s = ṗs === nothing ? () : (v̄ps,)
        return NoTangent(), NoTangent(), x̄, p̄s, direction_tangent(ẋ, x, rest), v̄s...
    end
    return slopes, jvp_pullback
end

"A cotangent, nested as `y`, with one dimension more."
with_last_of(y::AbstractArray, ȳ) = (Δ = unthunk(ȳ); is_zero(Δ) ? nothing : with_last(dense_tangent(Δ)))
function with_last_of(ys::Union{Tuple,NamedTuple}, ȳ)
    ȳs = unthunk(ȳ)
    is_zero(ȳs) && return nothing
    return map(key -> with_last_of(ys[key], tangent_part(ȳs, key, ys, "cotangent")), keyed(ys))
end
with_last_of(_, _) = nothing

"Of directions in a row, nested as they were given."
direction_tangent(_, ::Constant, _) = NoTangent()
direction_tangent(::Nothing, _, _) = NoTangent()
direction_tangent(::Nothing, ::Constant, _) = NoTangent()
function direction_tangent(v::AbstractArray, x::AbstractArray, row)
    has_derivative(x) || return NoTangent()
    v̄ = unthunk(popfirst!(row))
    v̄ isa AbstractZero && return v̄
    return size(v) == size(x) ? without_last(v̄) : reshape(sum(v̄; dims = 2:ndims(v̄)), size(v))
end
direction_tangent(vs::Tuple, xs::Tuple, row) =
    Tangent{typeof(vs)}(map((v, x) -> direction_tangent(v, x, row), vs, xs)...)
direction_tangent(vs::NamedTuple, xs::NamedTuple, row) =
    Tangent{typeof(vs)}(; map(key -> direction_tangent(vs[key], xs[key], row), keyed(vs))...)

direction_tangents(_, ps, ṗs, row) = direction_tangent(ṗs, ps, row)
function direction_tangents(net::PaddleNet, ps::NamedTuple, ṗs::NamedTuple, row)
    names = Tuple(net.names)
    found = NamedTuple{names}(map(key -> direction_tangent(ṗs[key], ps[key], row), names))
    return Tangent{typeof(ṗs)}(; NamedTuple{keys(ṗs)}(found)...)
end

ChainRulesCore.rrule(::typeof(jvp), net::PaddleNet, x, ps, v...; kw...) =
    jvp_rule(Lazy(), net, x, ps, v...; kw...)

function ChainRulesCore.rrule(::typeof(row_derivative), net::PaddleNet, x, θ, directions, k)
    counts = index_counts(directions, size(x, 1))
    if isempty(counts)
        nothing_, zero_ = NoTangent(), ZeroTangent()
        zero_pullback(_) = (nothing_, nothing_, zero_, zero_, nothing_, nothing_)
        return row_derivative(net, x, θ, directions, k), zero_pullback
    end
    wanted, weights, precision = first.(counts), last.(counts), common_precision(x, θ)
    at = in_precision_of(precision, x), in_precision_of(precision, θ)
    parts, back = ChainRulesCore.rrule(derivatives, net, at..., wanted)
    function row_pullback(ȳ)
        Δ = unthunk(ȳ)
        Δ isa AbstractZero && return (NoTangent(), NoTangent(), Δ, Δ, NoTangent(), NoTangent())
        each = map(parts, weights) do part, w
            part̄ = zero(part)
            part̄[k:k, :] .= w .* Δ
            part̄
        end
        _, _, x̄, θ̄, _ = back(Tangent{typeof(parts)}(each...))
        found = as_primal(precision, x, x̄), as_primal(precision, θ, θ̄)
        return NoTangent(), NoTangent(), found..., NoTangent(), NoTangent()
    end
    return weighted_row(parts, weights, k), row_pullback
end

ChainRulesCore.@non_differentiable net_in(::Any)
ChainRulesCore.@non_differentiable net_for(::Any, ::Any)
