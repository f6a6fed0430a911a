# Derivatives along directions, and numbers that carry them.

"""
    pushed(net, xs, ps, ẋs, ṗs)

The pair of value and derivatives of a net along some directions at once, in one crossing, for
inputs and parameters in a row. Tangents have one dimension more than what they are of, the last,
and are `nothing` for zero; so have the derivatives, which are nested as the value. With new
buffers among the results the pair of that pair and of these.
"""
function pushed(net::PaddleNet, xs::Tuple, ps, ẋs::Tuple, ṗs::Tuple)
    of, row = pushing(net, xs, ps, ẋs, ṗs)
    return forward(of, row, ps)
end

"""
    pushing(net, xs, ps, ẋs, ṗs) -> net, inputs

The net of which that is the value, with the same parameters, and what it takes.
"""
function pushing(net::PaddleNet, xs::Tuple, ps, ẋs::Tuple, ṗs::Tuple)
    check_features(net, xs)
    moved, flat = map(!isnothing, (ṗs..., ẋs...)), is_flat(ps)
    found = derived(net, (:jvp, length(xs), moved, flat)) do handle
        handle.jvp(length(xs), pytuple(moved), flat)
    end
    return found, (xs..., filter(!isnothing, (ṗs..., ẋs...))...)
end

has_buffers((y, ẏ)) = y isa Tuple && ẏ isa NamedTuple # which are nested alike without

# Dual numbers of ForwardDiff; all that knows them is in the extension. Their partials are what
# `pushed` gives, and where values are such numbers again, so are partials.

"""
    dual_type(x) -> Union{Type,Nothing}

The outermost type of dual numbers among the arrays of `x`; `nothing` where there is none.
"""
dual_type(::Type) = nothing
dual_type(x::Union{AbstractArray,Number}) = dual_type(eltype(x))
dual_type(_) = nothing
dual_type(xs::Union{Tuple,NamedTuple}) =
    length(xs) > MAX_TUPLE_LENGTH ? dual_type(picked(xs, 1:length(xs))) : outermost(map(dual_type, values(xs))...)
function dual_type(xs::Vector{Any})
    found = nothing
    for x in xs # the usual ones without a look-up
        x isa Union{Nothing,Array{Float32},Array{Float64}} || (found = outermost(found, dual_type(x)))
    end
    return found
end

outermost() = nothing
outermost(D) = D
outermost(::Nothing, D) = D
outermost(D, ::Nothing) = D
outermost(::Nothing, ::Nothing) = nothing
outermost(::Type{D}, ::Type{E}) where {D,E} = promote_type(D, E)
outermost(D, E, rest...) = outermost(outermost(D, E), rest...)

"The type of the numbers that carry no derivatives."
plain_type(T::Type) = T

"`T` for the plain numbers in a type of dual numbers."
replace_plain(::Type, T::Type) = T

"""
    primal(D, x)
    partial(D, x, k)
    partials(D, x)

Of an array its values, its partials, and all of these along one more dimension, the last, by the
outermost dual numbers `D`; the array itself and `nothing` where it has none of them.
"""
primal(_, x) = x
primal(D, xs::Union{Tuple,NamedTuple}) = map(x -> primal(D, x), xs)
partial(_, x, _) = nothing
partials(D, x) = stacked_parts([partial(D, x, k) for k in 1:partials_count(D)])

function partials_count end

"Arrays nested alike as one with a dimension more, `nothing` where all are."
stacked_parts(parts::Vector) = all(isnothing, parts) ? nothing : stack(parts)
stacked_parts(parts::Vector{<:Tuple}) =
    ntuple(i -> stacked_parts([part[i] for part in parts]), length(first(parts)))

"""
    joined(D, y, ẏ)

Dual numbers of values and of partials as `partials` gives them, nested alike. What is no floating
array stays as it is.
"""
joined(D, ys::Union{Tuple,NamedTuple}, ẏs) =
    map(key -> joined(D, ys[key], part_at(ẏs, key)), keyed(ys))
joined(_, y, _) = y

keyed(xs::Tuple) = ntuple(identity, length(xs))
keyed(xs::NamedTuple) = NamedTuple{keys(xs)}(keys(xs))
part_at(::Nothing, _) = nothing
part_at(xs, key) = xs[key]

function forward_of_duals(::Type{D}, net::PaddleNet, xs::Tuple, ps) where {D}
    row = by_position(net, ps)
    ṗs = is_flat(row) ? (partials(D, row),) : map(p -> partials(D, p), row)
    ẋs = map(x -> partials(D, x), xs)
    found = pushed(net, primal(D, xs), primal(D, row), ẋs, ṗs)
    has_buffers(found) || return joined(D, found...)
    pair, buffers = found
    return joined(D, pair...), buffers
end
