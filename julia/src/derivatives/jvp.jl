# The derivative of a net along a direction, as a function that may be differentiated in its turn.

"""
    PaddleChainRules.jvp(net, x, ps, ẋ, ṗs = nothing; kwargs...)
    PaddleChainRules.jvp(wrapper, x, ẋ; kwargs...)

Compute the derivative of a net along a direction of its input, and of its parameters.

It is exact, in one crossing, for any net, and can be differentiated with respect to `x`,
`ps` and the directions.

# Arguments

- `ẋ`, `ṗs`: directions, nested and named as `x` and `ps`, of the same sizes and element
  types, with `nothing` for zero. Of one array `x` also one vector of length `size(x, 1)`
  for all points. A named tuple `x` has those of keyword arguments.

# Returns

Nested as `net(x, ps; kwargs...)`, with `nothing` for what has no derivative.

# Throws

- `DimensionMismatch`: a direction of another size.
- `ArgumentError`: a direction of another element type, or none at all.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh", seed = 0);

julia> size(PaddleChainRules.jvp(wrapper, rand(2, 100), [1.0, 0.0]))
(1, 100)
```
"""
function jvp(net::PaddleNet, x, ps, ẋ, ṗs = nothing; kwargs...)
    of, row = pushing_call(net, x, ps, ẋ, ṗs, values(kwargs))
    return slope_of(forward(of, row, ps))
end
# Of one array, in steps that may be differentiated any number of times.
function jvp(net::PaddleNet, x::AbstractArray, ps, ẋ::AbstractArray)
    v = direction(x, spread(x, ẋ))
    return slope_of(pushing_array(net, x, ps, v)((x, reshape(v, size(v)..., 1)), ps))
end

pushing_array(net::PaddleNet, x, ps, v) =
    first(pushing(net, (x,), ps, (v,), is_flat(ps) ? (nothing,) : map(Returns(nothing), Tuple(ps))))

jvp(w::PaddleModuleWrapper, x, ẋ; kwargs...) = jvp(w.net, x, params_of(w), ẋ; kwargs...)
jvp(w::PaddleModuleWrapper, x, ps, ẋ, ṗs...; kwargs...) = jvp(w.net, x, ps, ẋ, ṗs...; kwargs...)

"The net of value and derivatives, and what it takes beside parameters."
function pushing_call(net::PaddleNet, x, ps, ẋ, ṗs, kw::NamedTuple)
    flat, row = in_a_row(net, x, kw)
    moves = (tangents_in_a_row(direction(x, spread(x, ẋ)), x)..., map(Returns(nothing), leaves(kw))...)
    turns = param_tangents(net, ps, direction(ps, ṗs))
    all(isnothing, (moves..., turns...)) && throw(
        ArgumentError("jvp needs a direction of x or of the parameters, got nothing for both"),
    )
    return pushing(flat, row, ps, moves, turns)
end

"The derivatives beside the value, along the one direction."
slope_of(found) = each_array(without_last, last(has_buffers(found) ? first(found) : found))

each_array(f, y::AbstractArray) = f(y)
each_array(f, ys::Union{Tuple,NamedTuple}) = map(y -> each_array(f, y), ys)
each_array(_, y) = y

"One vector for all points of an array, as a direction of the array; others as they are."
spread(_, v) = v
function spread(x::AbstractArray, v::AbstractVector)
    ndims(x) > 1 && size(v) == (size(x, 1),) || return v
    check_direction(view(x, :, ntuple(Returns(1), ndims(x) - 1)...), v)
    return v .+ zero.(x)
end

"A direction, checked to be like what it is of."
direction(_, ::Nothing) = nothing
direction(::AbstractFloat, v) = v # of a parameter without dimensions
direction(::AbstractFloat, ::Nothing) = nothing
direction(::Constant, _) = nothing
direction(::Constant, ::Nothing) = nothing
function direction(x::AbstractArray, v::AbstractArray)
    check_direction(x, v)
    return v
end

function check_direction(x, v)
    has_derivative(x) || throw(
        ArgumentError("an array of $(eltype(x)) has no direction; give nothing, or Float32.(...) of it"),
    )
    check_eltype("the direction", plain_type(eltype(v)), plain_type(eltype(x)))
    check_device((x, v))
    size(v) == size(x) || throw(
        DimensionMismatch(
            "the direction has size $(size(v)), the array that it is of $(size(x)); give one of that " *
            "size, or, where x is one array of points, a vector of length size(x, 1) for all of them",
        ),
    )
    return nothing
end
direction(xs::Union{Tuple,NamedTuple}, vs) =
    map(key -> direction(xs[key], tangent_part(vs, key, xs, "direction")), keyed(xs))
direction(xs::Union{Tuple,NamedTuple}, ::Nothing) = nothing
direction(x::AbstractArray, v) = throw(
    ArgumentError("the direction of an array must be an array or nothing, got $(kind_of(v))"),
)
direction(x::AbstractArray, ::Nothing) = nothing
