# Nets without parameters of their own.

"""
    PaddleNet(layer; jit = nothing)
    PaddleNet(wrapper::PaddleModuleWrapper)

Make a net that holds no parameters: `net(x, ps)`, or `net(x, ps, st)` with an explicit
state.

Gradients have the form of what they are gradients of: that with respect to `ps` the form of
`ps`, that with respect to `x` the form of `x`. Zygote differentiates keyword arguments of a
call, other rules hold them constant; a named tuple `x` is differentiated by everything.

# Arguments

- `layer`, `jit`: as for [`PaddleModuleWrapper`](@ref).
- `x` of a call: an array with the batch last, `(features, batch)` for a fully connected
  net; a tuple if the layer takes several arguments, a named tuple for keyword arguments.
  They nest: arguments are arrays, tuples and named tuples (dicts in Python) of arguments,
  and integers, Booleans, strings, `nothing` and `Py` objects, which have no gradient. One
  sample may come as a vector wherever the net takes it as a batch of one.
- `ps` of a call: a flat vector, the parameters in order, each as `vec` of the Julia array;
  a `ComponentVector` with the names `net.names` in that order; a named tuple with these
  names, such as `ps.var"0.weight"`; or a tuple in that order, such as `wrapper.params`.
- `st` of a call: see [`initial_state`](@ref PaddleChainRules.initial_state).
- `seed` of a call: a whole number, from which the layer's random numbers are drawn instead
  of from Paddle's own generator. All other keyword arguments go to the layer.

# Returns

A call returns plain arrays, in tuples and named tuples if the layer returns several. Values
that are not tensors are passed through.

# Throws

- `DimensionMismatch`: a wrong size.
- `ArgumentError`: a wrong name, element type or kind of array.
- [`LayerError`](@ref PaddleChainRules.LayerError): what only a layer refuses.
- Python's own exception for the rest.

# Examples

```jldoctest
julia> net = PaddleNet(paddle.nn.Linear(3, 2));

julia> Tuple(net.names)
(:weight, :bias)

julia> size(net(rand(Float32, 3, 8), (weight = ones(Float32, 2, 3), bias = zeros(Float32, 2))))
(2, 8)

julia> size(net(rand(Float32, 3, 8), ones(Float32, 8))) # a flat vector
(2, 8)
```
"""
mutable struct PaddleNet{IsChain} # never changed; mutable, so that a closure holds a reference
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

"""
    of_kind(N, net) -> N

The same net under the type `N`: dropout is no part of a chain in one mode and part of it in the other.
"""
of_kind(::Type{N}, net::N) where {N<:PaddleNet} = net
of_kind(::Type{N}, net::PaddleNet) where {N<:PaddleNet} = N(ntuple(i -> getfield(net, i), Val(fieldcount(N)))...)
Base.deepcopy_internal(net::PaddleNet, ::IdDict) = net

function net_of(handle::Py, buffers::NamedTuple = (;), origin = origin_of(handle))
    label, features, activation, params... = split(text(handle.facts), '\x1f')
    shapes = [parse.(Int, split(shape, ','; keepempty = false)) for shape in params[3:3:end]]
    sizes = Dims[Tuple(reverse(shape)) for shape in shapes]
    eltypes = DataType[float_type(dtype) for dtype in params[2:3:end]]
    return PaddleNet{!isempty(activation)}(
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
