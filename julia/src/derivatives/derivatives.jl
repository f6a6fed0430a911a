# Derivatives of nets by their input, for differential equations.

"""
    laplacian(net, x, ps; kwargs...)
    laplacian(wrapper, x; kwargs...)

Compute the sum of a net's second derivatives with respect to each of its inputs, at every
point.

It is exact, in one pass, for any net whose results depend on their own column of the input
only. It can be differentiated with respect to `ps` and `x`, in forward mode too.

# Arguments

- `net`, `x`, `ps`, `kwargs`: those of a call `net(x, ps; kwargs...)`. If `x` is a tuple or
  a named tuple of arrays, all of their rows are inputs. Keyword arguments are constants.
- `wrapper`: a net with its parameters.

# Returns

An array of size `(out, n)` for `x` of size `(d, n)`.

# Throws

What `net(x, ps)` throws, and a Python error with a sentence if columns depend on others
(statistics of a batch) or the net has an operator without a rule.

# Examples

```jldoctest
julia> using Zygote

julia> wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh", seed = 0);

julia> x = rand(2, 100);

julia> size(laplacian(wrapper, x))
(1, 100)

julia> loss(w) = sum(abs2, laplacian(w, x) .+ 1);

julia> map(size, Zygote.gradient(loss, wrapper)[1].params[1:2])
((16, 2), (16,))
```
"""
laplacian(net::PaddleNet, x, ps; kw...) = evaluate(applied(net, "laplacian", x), x, ps, values(kw))
laplacian(w::PaddleModuleWrapper, x, ps; kw...) = laplacian(w.net, x, ps; kw...)
laplacian(w::PaddleModuleWrapper, x; kw...) = laplacian(w.net, x, params_of(w); kw...)

"""
    PaddleChainRules.derivative(net, x, ps, multi_index; kwargs...)
    PaddleChainRules.derivative(wrapper, x, multi_index; kwargs...)

Compute one partial derivative of a net with respect to its inputs, at every point.

It is exact, and can be differentiated with respect to `ps` and `x`, as [`laplacian`](@ref).

# Arguments

- `net`, `x`, `ps`, `wrapper`, `kwargs`: as for [`laplacian`](@ref), of one array `x`.
- `multi_index`: how often to differentiate with respect to each input: `(2, 0)` is u_xx,
  `(1, 1)` is u_xy; at most four differentiations together.

# Returns

An array of size `(out, n)` for `x` of size `(d, n)`.

# Throws

- `ArgumentError`: an order above four, or a negative index.
- `DimensionMismatch`: as many indices as inputs were expected.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh", seed = 0);

julia> x = rand(2, 100);

julia> u_xx = PaddleChainRules.derivative(wrapper, x, (2, 0));

julia> u_yy = PaddleChainRules.derivative(wrapper, x, (0, 2));

julia> u_xx .+ u_yy ≈ laplacian(wrapper, x)
true
```
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

Compute several partial derivatives of a net with respect to its input, in one pass.

They share what they have in common, and cost little more than the highest of them alone.
The whole call enters Python at most once.

# Arguments

- `net`, `x`, `ps`, `wrapper`, `kwargs`: as for [`laplacian`](@ref).
- `wanted`: either a tuple or vector of multi-indices, as for
  [`derivative`](@ref PaddleChainRules.derivative), each at most once, of which zeros stand
  for the value. Or a named tuple of your own names, each an output followed by what it is
  differentiated with respect to, such as `(u_xx = (:u, :x, :x),)`. Outputs and inputs are
  names of a named tuple, indices from 1 of a tuple or of the rows of an array, or both,
  `(:x, 2)`. `nothing` is the whole of an output that is one array.

# Returns

A tuple for multi-indices, a named tuple for names; each entry has the size of its output.

# Examples

```jldoctest
julia> wrapper = PaddleFCNet(2, 1, 3, 16; dtype = "float64", activation = "tanh", seed = 0);

julia> x = rand(2, 100);

julia> u, u_t, u_x, u_xx = derivatives(wrapper, x, ((0, 0), (0, 1), (1, 0), (2, 0)));

julia> residual = u_t .+ u .* u_x .- 0.01 .* u_xx;

julia> size(residual)
(1, 100)

julia> named = derivatives(wrapper, x, (u_t = (1, 2), u_xx = (1, 1, 1)));

julia> named.u_xx ≈ u_xx
true
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
