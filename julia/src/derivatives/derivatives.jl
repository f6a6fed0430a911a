# Derivatives of nets by their input, for differential equations.

"""
    laplacian(net, x, ps)
    laplacian(wrapper, x)

The sum of the second derivatives of a net by each of its inputs, at every point: `(out, n)` for
`x` of size `(d, n)`.

Exact and in one pass, for any net of one array whose results depend on their own column of it;
differentiable with respect to `ps` and `x`. The arguments are those of `net(x, ps)`; a wrapper
may stand for its net.

Throws what `net(x, ps)` throws, and a Python error with a sentence where columns depend on
others (statistics of a batch) or the net has an operator without a rule.

```julia
wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh")
x = rand(2, 100)
loss(w) = sum(abs2, laplacian(w, x) .+ 1)
Zygote.gradient(loss, wrapper)
```
"""
laplacian(net::PaddleNet, x, ps) = applied(net, "laplacian")(x, ps)
laplacian(w::PaddleModuleWrapper, x, ps) = laplacian(w.net, x, ps)
laplacian(w::PaddleModuleWrapper, x) = laplacian(w.net, x, params_of(w))

"""
    derivative(net, x, ps, multi_index)
    derivative(wrapper, x, multi_index)

One partial derivative of a net by its inputs, at every point: `(2, 0)` is u_xx,
`(1, 1)` is u_xy, for at most four differentiations together.

As [`laplacian`](@ref): exact, `(out, n)` for `x` of size `(d, n)`, differentiable with respect
to `ps` and `x`.

Throws an `ArgumentError` for an order above four or an index that is
negative, and a `DimensionMismatch` for one of another length than the inputs.
"""
derivative(net::PaddleNet, x, ps, multi_index) = applied(net, checked_index(net, x, multi_index))(x, ps)
derivative(w::PaddleModuleWrapper, x, ps, multi_index) = derivative(w.net, x, ps, multi_index)
derivative(w::PaddleModuleWrapper, x, multi_index) = derivative(w.net, x, params_of(w), multi_index)

"""
    derivatives(net, x, ps, multi_indices)
    derivatives(wrapper, x, multi_indices)

Several partial derivatives of a net in one pass and one crossing, a tuple: all
that a differential equation names. They share what they have in common, and cost little more
than the highest of them alone.

As [`derivative`](@ref); the index of zeros is the value, and each index may be there once.

```julia
wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh")
u, u_t, u_x, u_xx = derivatives(wrapper, rand(2, 100), ((0, 0), (0, 1), (1, 0), (2, 0)))
residual = u_t .+ u .* u_x .- 0.01 .* u_xx
```
"""
derivatives(net::PaddleNet, x, ps, multi_indices) =
    applied(net, checked_indices(index -> checked_index(net, x, index), multi_indices))(x, ps)
derivatives(w::PaddleModuleWrapper, x, ps, multi_indices) = derivatives(w.net, x, ps, multi_indices)
derivatives(w::PaddleModuleWrapper, x, multi_indices) =
    derivatives(w.net, x, params_of(w), multi_indices)

const MAX_ORDER = 4

function checked_index(net::PaddleNet, x, multi_index)
    features = net.features > 0 ? net.features : size(x, 1)
    index = checked_index(features, multi_index)
    sum(index) <= MAX_ORDER || throw(
        ArgumentError(
            "multi_index $index is of order $(sum(index)), the highest is $MAX_ORDER; " *
            "differentiate a lower derivative with respect to x for the order above",
        ),
    )
    return index
end

checked_index(features::Int, index::CartesianIndex) = checked_index(features, Tuple(index))
function checked_index(features::Int, multi_index)
    is_list = multi_index isa Union{Tuple,AbstractVector,Integer}
    is_list && all(m -> m isa Integer && !(m isa Bool), multi_index) || throw(
        ArgumentError("multi_index must hold integers such as (2, 0), got $(repr(multi_index))"),
    )
    index = Tuple(Int.(Tuple(multi_index)))
    features > 0 && length(index) != features && throw(
        DimensionMismatch(
            "multi_index $index has $(length(index)) entries, the net has $features inputs; " *
            "give one for each",
        ),
    )
    all(>=(0), index) ||
        throw(ArgumentError("the entries of multi_index must not be negative, got $index"))
    return index
end

function checked_indices(check, multi_indices)
    is_list = multi_indices isa Union{Tuple,AbstractVector}
    is_list && all(index -> index isa Union{Tuple,AbstractVector,CartesianIndex}, multi_indices) || throw(
        ArgumentError(
            "multi_indices must hold multi-indices such as (2, 0), got $(repr(multi_indices))",
        ),
    )
    indices = Tuple(map(check, multi_indices))
    isempty(indices) | !allunique(indices) && throw(
        ArgumentError(
            "multi_indices must name one derivative at least, and each once; got $indices",
        ),
    )
    return indices
end

"""
    jvp(net, x, ps, v)
    jvp(wrapper, x, v)

The derivative of a net along `v`, of the size of `x` or one vector for all
points: `(out, n)` for `x` of size `(d, n)`.

As [`laplacian`](@ref): exact, and differentiable with respect to `ps`, `x` and `v`.

Throws a `DimensionMismatch` for a direction of another size.
"""
jvp(net::PaddleNet, x, ps, v) = applied(net, "jvp")(checked_direction(in_precision(net, ps), x, v), ps)
jvp(w::PaddleModuleWrapper, x, ps, v) = jvp(w.net, x, ps, v)
jvp(w::PaddleModuleWrapper, x, v) = jvp(w.net, x, params_of(w), v)

function checked_direction(net::PaddleNet, x, v)
    input_arrays(net, (x,))
    checked_size(x, v)
    check_eltype("the direction", eltype(v), eltype(x))
    return (x, v)
end

function checked_size(x, v)
    size(v) == size(x) || size(v) == (size(x, 1),) || throw(
        DimensionMismatch(
            "the direction has size $(size(v)), x $(size(x)); give one of that size, or " *
            "($(size(x, 1)),) for all points",
        ),
    )
    return v
end

"""
    applied(net, what)

A derivative of a net, as a net with the same parameters: `"laplacian"`, `"jvp"`,
`"pushforward"`, a multi-index, or a tuple of them.
"""
function applied(net::PaddleNet, what)
    return derived(handle -> handle.operator(python_name(what)), net, what)
end

python_name(what::String) = what
python_name(index::Tuple{Vararg{Int}}) = pytuple(index)
python_name(indices::Tuple) = pytuple(map(pytuple, indices))
