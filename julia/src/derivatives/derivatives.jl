# Derivatives of nets by their input, for differential equations.

"""
    laplacian(net, x, ps; kwargs...)
    laplacian(wrapper, x; kwargs...)

The sum of the second derivatives of a net by each of its inputs, at every point: `(out, n)` for
`x` of size `(d, n)`.

Exact and in one pass, for any net whose results depend on their own column of the input;
differentiable with respect to `ps` and `x`, in forward mode too. The arguments are those of
`net(x, ps; kwargs...)`; a wrapper may stand for its net. Where `x` is a tuple or a named tuple of
arrays, all of their rows are inputs; keyword arguments are constants.

Throws what `net(x, ps)` throws, and a Python error with a sentence where columns depend on
others (statistics of a batch) or the net has an operator without a rule.

```julia
wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh")
x = rand(2, 100)
loss(w) = sum(abs2, laplacian(w, x) .+ 1)
Zygote.gradient(loss, wrapper)
```
"""
laplacian(net::PaddleNet, x, ps; kw...) = evaluate(applied(net, "laplacian", x), x, ps, values(kw))
laplacian(w::PaddleModuleWrapper, x, ps; kw...) = laplacian(w.net, x, ps; kw...)
laplacian(w::PaddleModuleWrapper, x; kw...) = laplacian(w.net, x, params_of(w); kw...)

"""
    derivative(net, x, ps, multi_index; kwargs...)
    derivative(wrapper, x, multi_index; kwargs...)

One partial derivative of a net of one array by its inputs, at every point: `(2, 0)` is u_xx,
`(1, 1)` is u_xy, for at most four differentiations together.

As [`laplacian`](@ref): exact, `(out, n)` for `x` of size `(d, n)`, differentiable with respect
to `ps` and `x`.

Throws an `ArgumentError` for an order above four or an index that is
negative, and a `DimensionMismatch` for one of another length than the inputs.
"""
derivative(net::PaddleNet, x, ps, multi_index; kw...) =
    evaluate(applied(net, checked_index(net, x, multi_index), x), x, ps, values(kw))
derivative(w::PaddleModuleWrapper, x, ps, multi_index; kw...) =
    derivative(w.net, x, ps, multi_index; kw...)
derivative(w::PaddleModuleWrapper, x, multi_index; kw...) =
    derivative(w.net, x, params_of(w), multi_index; kw...)

"""
    derivatives(net, x, ps, wanted; kwargs...)
    derivatives(wrapper, x, wanted; kwargs...)

Several partial derivatives of a net in one pass and one crossing: all that a differential equation
names. They share what they have in common, and cost little more than the highest of them alone.

`wanted` is a tuple or vector of multi-indices, as for [`derivative`](@ref), which gives a tuple;
the index of zeros is the value, and each may be there once. Or it is a named tuple of names of your
own, which gives a named tuple: of each the output and what it is differentiated by, such as
`(u_xx = (:u, :x, :x),)`. Outputs and inputs are names of a named tuple, or indices from 1 on of a
tuple or of the rows of an array, or both, `(:x, 2)`; `nothing` is the whole of an output that is
one array.

```julia
wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh")
u, u_t, u_x, u_xx = derivatives(wrapper, rand(2, 100), ((0, 0), (0, 1), (1, 0), (2, 0)))
residual = u_t .+ u .* u_x .- 0.01 .* u_xx
found = derivatives(wrapper, rand(2, 100), (u_t = (1, 2), u_xx = (1, 1, 1)))
```
"""
function derivatives(net::PaddleNet, x, ps, wanted; kw...)
    of = applied(net, checked_wanted(net, x, wanted), x)
    return in_order_of(wanted, evaluate(of, x, ps, values(kw)))
end
derivatives(w::PaddleModuleWrapper, x, ps, wanted; kw...) = derivatives(w.net, x, ps, wanted; kw...)
derivatives(w::PaddleModuleWrapper, x, wanted; kw...) =
    derivatives(w.net, x, params_of(w), wanted; kw...)

in_order_of(_, found) = found
in_order_of(wanted::NamedTuple, found::NamedTuple) = NamedTuple{keys(wanted)}(found)

checked_wanted(net::PaddleNet, x, wanted) =
    checked_indices(index -> checked_index(net, x, index), wanted)
function checked_wanted(net::PaddleNet, x, wanted::NamedTuple)
    !isempty(wanted) && all(parts -> parts isa Tuple && !isempty(parts) && all(is_place, parts), wanted) || throw(
        ArgumentError(
            "a derivative by names is a tuple of the output and what it is differentiated by, " *
            "names and indices from 1 on, such as (:u, :x, :x); got $wanted",
        ),
    )
    x isa AbstractArray && foreach(parts -> check_rows(net, x, parts), wanted)
    return wanted
end

"Refuse rows that an array, or the one that a fully connected net gives, has not."
function check_rows(net::PaddleNet, x::AbstractArray, (output, by...)::Tuple)
    length(by) <= MAX_ORDER || throw(
        ArgumentError(
            "$((output, by...)) is of order $(length(by)), the highest is $MAX_ORDER; differentiate a " *
            "lower derivative with respect to x for the order above",
        ),
    )
    all(row -> row in axes(x, 1), by) || throw(
        ArgumentError(
            "a net of one array is differentiated by its rows, 1 to $(size(x, 1)), got $by; give these",
        ),
    )
    rows = net.features > 0 ? first(last(net.sizes)) : typemax(Int)
    output isa Integer && output > rows && throw(
        ArgumentError("the output has $rows rows, got $output; give one of 1 to $rows, or nothing for all"),
    )
    return nothing
end

is_place(part) =
    part isa Union{Symbol,Nothing} || (part isa Integer && !(part isa Bool) && part >= 1)
is_place(part::Tuple{Any,Integer}) = is_place(part[1]) && is_place(part[2])

const MAX_ORDER = 4

function checked_index(net::PaddleNet, x::AbstractArray, multi_index)
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
checked_index(::PaddleNet, x, _) = throw(
    ArgumentError(
        "multi-indices are of one array, got $(kind_of(x)); name derivatives by its parts: " *
        "derivatives(net, x, ps, (u_x = (:u, :x),))",
    ),
)

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
            "what is wanted is a tuple or vector of multi-indices, such as ((2, 0), (1, 1)), or a named " *
            "tuple; got $(repr(multi_indices))",
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
    applied(net, what, x)

A derivative of a net by the input `x`, as a net with the same parameters: `"laplacian"`, a
multi-index, or several derivatives.
"""
function applied(net::PaddleNet, what, x)
    names = x isa NamedTuple ? keys(x) : ()
    return derived(net, (what, names)) do handle
        handle.operator(python_name(what), pytuple(map(string, names)))
    end
end

python_name(what::String) = what
python_name(index::Tuple{Vararg{Int}}) = pytuple(index)
python_name(indices::Tuple) = pytuple(map(pytuple, indices))
function python_name(wanted::NamedTuple)
    each = (string(name) => pytuple(map(python_place, parts)) for (name, parts) in pairs(wanted))
    return PythonCall.pydict(collect(each))
end

python_place(::Nothing) = nothing
python_place(name::Symbol) = string(name)
python_place(index::Integer) = index - 1
python_place(both::Tuple) = pytuple(map(python_place, both))
