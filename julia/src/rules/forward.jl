# Forward rules: value and derivative of any net along tangents of everything, in one crossing.

"""
    forward_rule(net, x, ps, kw, ẋ, ṗs, k̇w) -> y, ẏ

The value of `net(x, ps; kw...)` and its tangent.
"""
function forward_rule(net::PaddleNet, x, ps, kw::NamedTuple, ẋ, ṗs, k̇w)
    flat, row = in_a_row(net, x, kw)
    ẋs = (tangents_in_a_row(ẋ, x)..., tangents_in_a_row(k̇w, kw)...)
    return tangent_of(pushed_once(flat, row, ps, ẋs, param_tangents(net, ps, ṗs))...)
end

function pushed_once(net::PaddleNet, row, ps, ẋs::Tuple, ṗs::Tuple)
    all(isnothing, (ẋs..., ṗs...)) && return forward(net, row, ps), nothing
    found = pushed(net, row, ps, ẋs, ṗs)
    has_buffers(found) || return found
    ((y, ẏ), buffers) = found
    return (y, buffers), (ẏ, nothing)
end

"The value beside its tangent, of derivatives along one direction."
tangent_of(y, ẏ) = y, tangent(y, ẏ)
tangent(y::AbstractArray, ẏ) =
    !has_derivative(y) ? NoTangent() : ẏ === nothing ? ZeroTangent() : without_last(ẏ)
tangent(ys::Tuple, ẏs) =
    Tangent{typeof(ys)}(map(i -> tangent(ys[i], part_at(ẏs, i)), keyed(ys))...)
tangent(ys::NamedTuple, ẏs) =
    Tangent{typeof(ys)}(; map(key -> tangent(ys[key], part_at(ẏs, key)), keyed(ys))...)
tangent(_, _) = NoTangent()

without_last(ẏ::AbstractArray) = reshape(ẏ, size(ẏ)[1:end-1])
with_last(ẋ::AbstractArray) = reshape(ẋ, size(ẋ)..., 1)

"""
    tangents_in_a_row(ẋ, x)

The tangents of the leaves of `x`, with one dimension more, `nothing` for zero.
"""
tangents_in_a_row(_, ::Constant) = (nothing,)
function tangents_in_a_row(tangent, p::AbstractFloat) # a parameter without dimensions
    ṗ = unthunk(tangent)
    return tangents_in_a_row(ṗ isa Number ? fill(ṗ) : ṗ, fill(p))
end
function tangents_in_a_row(tangent, x::AbstractArray)
    ẋ = content(unthunk(tangent))
    is_zero(ẋ) && return (nothing,)
    has_derivative(x) || return (nothing,)
    size(ẋ) == size(x) ||
        throw(DimensionMismatch("a tangent has size $(size(ẋ)), its primal $(size(x))"))
    T = replace_plain(eltype(ẋ), plain_type(eltype(x)))
    return (with_last(convert(AbstractArray{T}, dense_tangent(ẋ))),)
end
function tangents_in_a_row(tangent, xs::Union{Tuple,NamedTuple})
    ẋs = content(unthunk(tangent))
    part(key) = is_zero(ẋs) ? nothing : tangent_part(ẋs, key, xs, "tangent")
    return Tuple(Iterators.flatten(tangents_in_a_row(part(key), xs[key]) for key in keys(xs)))
end

param_tangents(_, ps::Union{Tuple,AbstractVector}, ṗs) = tangents_in_a_row(ṗs, ps)
function param_tangents(net::PaddleNet, ps::NamedTuple, ṗs)
    found = NamedTuple{keys(ps)}(tangents_in_a_row(ṗs, ps))
    return by_position(net, found)
end

ChainRulesCore.frule((_, ẋ, ṗs)::Tuple{Any,Any,Any}, net::PaddleNet, x::Inputs, ps; kw...) =
    forward_rule(net, x, ps, values(kw), ẋ, ṗs, nothing)

function ChainRulesCore.frule(
    (_, ẋ, ṗs, _)::Tuple{Any,Any,Any,Any}, net::PaddleNet, x::Inputs, ps, st::NamedTuple,
)
    moded, kw = used(net, st)
    found, tangent = forward_rule(moded, x, ps, kw, ẋ, ṗs, nothing)
    y, next = with_state(found, st, kw)
    ẏ = isempty(kw) || tangent isa AbstractZero ? tangent : tangent[1]
    return (y, next), Tangent{typeof((y, next))}(ẏ, NoTangent())
end

function ChainRulesCore.frule(ẇs::Tuple, w::PaddleModuleWrapper, xs...; kw...)
    return wrapper_forward(w, xs, values(kw), first(ẇs), Base.tail(ẇs), nothing)
end

function wrapper_forward(w::PaddleModuleWrapper, xs::Tuple, kw, ẇ, ẋs, k̇w)
    Δ = unthunk(ẇ)
    ṗs = is_zero(Δ) ? nothing : unthunk(Δ.params)
    flags = trained(w)
    if flags !== nothing && !is_zero(ṗs) # what is frozen does not move
        ṗs = ntuple(length(flags)) do i
            flags[i] ? tangent_part(ṗs, i, w.params, "tangent") : nothing
        end
    end
    given = arguments_of(w, xs)
    is_apart(given, xs) isa Val{true} && (ẋs = only(ẋs))
    return forward_rule(w.net, given, w.params, kw, ẋs, ṗs, k̇w)
end

# With tangents of keyword arguments.
function ChainRulesCore.frule(
    (_, k̇w, _, ẋ, ṗs)::Tuple{Any,Any,Any,Any,Any}, ::typeof(Core.kwcall), kw::NamedTuple,
    net::PaddleNet, x::Inputs, ps,
)
    return forward_rule(net, x, ps, kw, ẋ, ṗs, k̇w)
end

function ChainRulesCore.frule(
    Δ::Tuple, ::typeof(Core.kwcall), kw::NamedTuple, w::PaddleModuleWrapper, xs...,
)
    return wrapper_forward(w, xs, kw, Δ[3], Δ[4:end], Δ[2])
end

# Derivatives by the input are nets too.
ChainRulesCore.frule((_, _, ẋ, ṗs)::Tuple, ::typeof(laplacian), net::PaddleNet, x, ps; kw...) =
    forward_rule(applied(net, "laplacian", x), x, ps, values(kw), ẋ, ṗs, nothing)
function ChainRulesCore.frule(
    (_, _, ẋ, ṗs)::Tuple, ::typeof(derivative), net::PaddleNet, x, ps, index; kw...,
)
    of = applied(net, checked_index(net, x, index), x)
    return forward_rule(of, x, ps, values(kw), ẋ, ṗs, nothing)
end

function ChainRulesCore.frule(
    (_, _, ẋ, ṗs)::Tuple, ::typeof(derivatives), net::PaddleNet, x, ps, wanted; kw...,
)
    of = applied(net, checked_wanted(net, x, wanted), x)
    found = forward_rule(of, x, ps, values(kw), ẋ, ṗs, nothing)
    wanted isa NamedTuple || return found
    y, ẏ = in_order_of(wanted, found[1]), ChainRulesCore.backing(found[2])
    return y, Tangent{typeof(y)}(; in_order_of(wanted, ẏ)...)
end

function ChainRulesCore.frule(
    (_, _, ẋ, ṗs, v̇s...)::Tuple, ::typeof(jvp), net::PaddleNet, x, ps, v, vps = nothing; kw...,
)
    of, row = pushing_call(net, x, ps, v, vps, values(kw))
    # The directions among the arguments come after `x` and `kw`, those of the parameters first.
    in_row(along_ps, along_x) =
        (param_tangents(net, ps, along_ps)..., tangents_in_a_row(along_x, x)...)
    v̇ps = length(v̇s) > 1 ? v̇s[2] : nothing
    turns = zip(
        in_row(whole(ps, v̇ps), whole(x, v̇s[1])), in_row(direction(ps, vps), direction(x, spread(x, v))),
    )
    moved = Tuple(t === nothing ? t : with_last(t) for (t, d) in turns if d !== nothing)
    still = map(Returns(nothing), leaves(values(kw)))
    directions = (tangents_in_a_row(ẋ, x)..., still..., moved...)
    found, slopes = pushed_once(of, row, ps, directions, param_tangents(net, ps, ṗs))
    y = slope_of(found)
    slopes === nothing && return y, ZeroTangent()
    return y, plain_tangent(y, each_array(without_last, slope_of(slopes)))
end

"A tangent of a direction, as large as what that is of."
whole(x, v̇) = (Δ = unthunk(v̇); is_zero(Δ) ? nothing : direction(x, spread(x, Δ)))

function ChainRulesCore.frule(
    (_, _, ẋ, ṗs, ȳ̇)::Tuple, ::typeof(vjp), net::PaddleNet, x, ps, ȳ; kw...,
)
    flat, row = in_a_row(net, x, values(kw))
    n, shape = length(leaves(x)), outline(forward(flat, row, ps))
    ȳs = collect_cotangents!(Any[], ȳ, shape)
    of = gradients_net(flat, length(row))
    moves = tangents_in_a_row(ẋ, x)
    still = map(Returns(nothing), row[n+1:end])
    turns = map(t -> t === nothing ? nothing : with_last(t), collect_cotangents!(Any[], ȳ̇, shape))
    args, directions = (nothing, row..., ȳs...), (nothing, moves..., still..., turns...)
    found, slopes = pushed_once(of, args, ps, directions, param_tangents(net, ps, ṗs))
    y = nested_gradients(net, x, ps, found)
    slopes === nothing && return y, ZeroTangent()
    ẏ = nested_gradients(net, x, ps, map(s -> s === nothing ? s : without_last(s), slopes))
    return y, plain_tangent(y, ẏ)
end

"The tangent of what is nested so; zero where there is none."
plain_tangent(y::AbstractArray, ẏ) = ẏ === nothing ? ZeroTangent() : ẏ
plain_tangent(ys::Tuple, ẏs) =
    Tangent{typeof(ys)}(map(i -> plain_tangent(ys[i], part_at(ẏs, i)), keyed(ys))...)
plain_tangent(ys::NamedTuple, ẏs) =
    Tangent{typeof(ys)}(; map(key -> plain_tangent(ys[key], part_at(ẏs, key)), keyed(ys))...)
plain_tangent(_, _) = NoTangent()
