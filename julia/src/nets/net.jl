# Nets without parameters of their own.

"""
    PaddleNet(layer; jit = nothing)
    PaddleNet(wrapper::PaddleModuleWrapper)

A net without parameters of its own: `net(x, ps)`. `jit` is as for [`PaddleModuleWrapper`](@ref).

`x` is an array with the batch last, of size `(features, batch)` for a fully connected net; a
tuple where the layer takes several arguments, a named tuple where it takes them by keyword.
These may be nested: arguments are arrays, tuples and named tuples (dicts in Python) of
arguments, and integers, Booleans, strings, `nothing` and `Py` objects, which have no gradient.
Keyword arguments of the call go to the layer too, all but `seed`, a whole number that the
random numbers of the layer are drawn from instead of Paddle's own, and `buffers`, see
[`initial_state`](@ref PaddleChainRules.initial_state). `ps` is one of

- a flat vector, the parameters in order, each as `vec` of the Julia array, or a
  `ComponentVector` with the names below in that order;
- a named tuple with the names `net.names`, for example `ps.var"0.weight"`;
- a tuple in that order, such as `wrapper.params`.

The gradient with respect to `ps` has the form of `ps`, that by `x` the form of `x`. Keyword
arguments of the call are held constant, but differentiated by Zygote; a named tuple `x` is
differentiated by everything. Outputs are plain arrays, in tuples and named tuples where the
layer returns several; what is no tensor is passed through.

One sample may come as a vector, several arguments as vectors each, wherever the net takes it
as a batch of one; so may its gradients and derivatives.

Throws a `DimensionMismatch` for a wrong size, an `ArgumentError` for a wrong name, element
type or kind of array, a [`LayerError`](@ref PaddleChainRules.LayerError) for what only a layer
refuses, and Python's own exception for the rest.
"""
struct PaddleNet
    handle::PaddleHandle
    label::String
    names::Vector{Symbol}
    sizes::Vector{Dims}
    eltypes::Vector{DataType}
    eltype::Union{DataType,Nothing} # the one of all; nothing where they differ or are none
    nparams::Int
    features::Int # of the input's first dimension; 0 where only the layer knows
end

@leaf PaddleNet
Base.deepcopy_internal(net::PaddleNet, ::IdDict) = net

function net_of(handle::Py, buffers::NamedTuple = (;), origin = origin_of(handle))
    label, features, activation, params... = split(text(handle.facts), '\x1f')
    shapes = [parse.(Int, split(shape, ','; keepempty = false)) for shape in params[3:3:end]]
    sizes = Dims[Tuple(reverse(shape)) for shape in shapes]
    eltypes = DataType[float_type(dtype) for dtype in params[2:3:end]]
    return PaddleNet(
        PaddleHandle(handle, activation, buffers, origin),
        label,
        Symbol.(params[1:3:end]),
        sizes,
        eltypes,
        length(unique(eltypes)) == 1 ? first(eltypes) : nothing,
        sum(prod, shapes; init = 0),
        parse(Int, features),
    )
end

const FLOATS = Dict("float16" => Float16, "float32" => Float32, "float64" => Float64)

float_type(dtype::AbstractString) = get(FLOATS, dtype) do
    throw(
        ArgumentError(
            "parameters of dtype $dtype have no Julia counterpart here; convert the layer, " *
            "for example layer.to(dtype=\"float32\")",
        ),
    )
end

(net::PaddleNet)(x; kwargs...) = throw(
    ArgumentError(
        "$net holds no parameters: call it as net(x, ps), or net(x, ps, st) with a state; the " *
        "wrapper that it was made of has its own, wrapper(x)",
    ),
)

(net::PaddleNet)(x, ps, st) = throw(
    ArgumentError(
        "a state is the named tuple that PaddleChainRules.initial_state(net) gives, or an empty one, " *
        "got $(kind_of(st)); give one, or call net(x, ps)",
    ),
)

Base.summary(io::IO, net::PaddleNet) = show(io, net)
function Base.show(io::IO, net::PaddleNet)
    return print(io, "PaddleNet(", net.label, ", ", net.nparams, " parameters)")
end

# What the REPL and notebooks show: a line, the formula of a chain of Linear layers, how the net
# runs, and a table with a row for each parameter.
Base.show(io::IO, ::MIME"text/plain", net::PaddleNet) = describe(io, net, net)
function describe(io::IO, shown, net::PaddleNet, flags = nothing, eltypes = net.eltypes, buffers = (;))
    show(io, shown)
    is_chain(net.handle) && print(io, "\n  ", formula(net.handle.activation, length(net.names) ÷ 2))
    if !PythonCall.pyisnull(net.handle.object)
        sentence = crossing(() -> text(net.handle.object.runs))
        isempty(sentence) || print(io, "\n  ", sentence)
    end
    isempty(net.names) && isempty(buffers) && return nothing
    frozen(i) = flags === nothing || flags[i] ? "" : "frozen"
    rows = map(enumerate(zip(net.names, net.sizes, eltypes))) do (i, (name, size, T))
        return "", string(name), join(size, '×'), string(T), frozen(i)
    end
    for (name, buffer) in pairs(buffers)
        push!(rows, ("", string(name), join(size(buffer), '×'), string(eltype(buffer)), "buffer"))
    end
    return print(io, '\n', aligned(rows))
end

"Rows of strings as lines, their cells in columns."
function aligned(rows)
    widths = [maximum(row -> textwidth(row[i]), rows) for i in eachindex(first(rows))]
    return join((rstrip(join(map(rpad, row, widths), "  ")) for row in rows), '\n')
end

formula(activation, n) = "y = " * foldl(1:n; init = "x") do inner, i
    affine = "W$i * $inner .+ b$i"
    i < n ? "$activation.($affine)" : affine
end
