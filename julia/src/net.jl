# Nets: a handle on the Python side, parameters on the Julia side.

using ChainRulesCore: ignore_derivatives
using Functors: Functors, @leaf
using Random: Random

"""
    PaddleHandle

The Python side of a net. Opaque: a leaf for Functors, shared and not copied by `deepcopy`.

It remembers the parameter arrays of the last call by identity: those are shared with Paddle
already, and a change in place is seen. The memory is weak, it keeps no array alive.
"""
mutable struct PaddleHandle
    bind_and::Py
    activation::String # of a chain of Linear layers, empty for anything else
    closed::Bool # whether the way back is in closed form, not a recorded graph
    arrays::Vector{WeakRef}
    addresses::Vector{Ptr{Cvoid}}
    flat::Bool
    forward::Py
    pullback::Py
    object::Py # the handle of the Python side
    operators::Dict{Any,Any} # nets of derivatives by the input, made on first use
end

PaddleHandle(handle::Py, activation::AbstractString) = PaddleHandle(
    handle.bind_and, activation, !isempty(activation), WeakRef[], Ptr{Cvoid}[], false,
    PythonCall.pynew(), PythonCall.pynew(), handle, Dict{Any,Any}(),
)

"""
    object_of(handle) -> Py

The handle of the Python side.

Throws an `ErrorException` where the net was made in another process: by a package, as a constant,
while it was precompiled.
"""
function object_of(handle::PaddleHandle)
    PythonCall.pyisnull(handle.object) && error(
        "this net was made while a package was precompiled, and its Python side did not outlive " *
        "that process. Make it when the package is loaded: declare `const net = Ref{PaddleNet}()` " *
        "and set `net[] = ...` in the package's `__init__`",
    )
    return handle.object
end

@leaf PaddleHandle
Base.deepcopy_internal(handle::PaddleHandle, ::IdDict) = handle
Base.show(io::IO, ::PaddleHandle) = print(io, "PaddleHandle(...)")

"""
    is_bound(handle, arrays, flat)

Whether Paddle shares exactly these parameter arrays since an earlier call.
"""
function is_bound(handle::PaddleHandle, arrays::Tuple, flat::Bool)
    PythonCall.pyisnull(handle.forward) && return false
    handle.flat == flat && length(handle.arrays) == length(arrays) || return false
    return all_bound(handle, 1, arrays...)
end

# Unrolled over the tuple, whose arrays differ in type.
all_bound(::PaddleHandle, ::Int) = true
function all_bound(handle::PaddleHandle, i::Int, array, rest...)
    return handle.arrays[i].value === array &&
           handle.addresses[i] == address(array) &&
           all_bound(handle, i + 1, rest...)
end

function bind!(handle::PaddleHandle, arrays::Tuple, flat::Bool, forward::Py, pullback::Py)
    for old in (handle.forward, handle.pullback)
        PythonCall.pyisnull(old) || PythonCall.pydel!(old)
    end
    handle.flat, handle.forward, handle.pullback = flat, forward, pullback
    empty!(handle.arrays)
    empty!(handle.addresses)
    for array in arrays
        push!(handle.arrays, WeakRef(array))
        push!(handle.addresses, address(array))
    end
    return handle
end

"""
    PaddleNet(layer)
    PaddleNet(wrapper::PaddleModuleWrapper)

A net without parameters of its own: `net(x, ps)`.

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

Throws a `DimensionMismatch` for a wrong size, an `ArgumentError` for a wrong name, element
type or kind of array, and Python's own exception for what Paddle refuses.
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

function net_of(handle::Py)
    label, features, activation, params... = split(text(handle.facts), '\x1f')
    shapes = [parse.(Int, split(shape, ','; keepempty = false)) for shape in params[3:3:end]]
    sizes = Dims[Tuple(reverse(shape)) for shape in shapes]
    eltypes = DataType[float_type(dtype) for dtype in params[2:3:end]]
    return PaddleNet(
        PaddleHandle(handle, activation),
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
            "for example layer.astype(\"float32\")",
        ),
    )
end

function Base.show(io::IO, net::PaddleNet)
    return print(io, "PaddleNet(", net.label, ", ", net.nparams, " parameters)")
end

# What the REPL and notebooks show: a line, the formula of a chain of Linear layers, and a table
# with a row for each parameter.
Base.show(io::IO, ::MIME"text/plain", net::PaddleNet) = describe(io, net, net)
function describe(io::IO, shown, net::PaddleNet, flags = nothing)
    show(io, shown)
    net.handle.closed && print(io, "\n  ", formula(net.handle.activation, length(net.names) ÷ 2))
    isempty(net.names) && return nothing
    frozen(i) = flags === nothing || flags[i] ? "" : "frozen"
    rows = map(enumerate(zip(net.names, net.sizes, net.eltypes))) do (i, (name, size, T))
        return "", string(name), join(size, '×'), string(T), frozen(i)
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

"""
    PaddleModuleWrapper(layer; frozen = ())

A `paddle.nn.Layer` with its parameters as Julia arrays, as a callable: `wrapper(x)`.

`wrapper.params` is a tuple of arrays, in the order of `layer.named_parameters()` (what the
layer trains; frozen parameters and running statistics stay as they are now; `frozen` names
more of them, by name or pattern such as `"encoder.*"`, one or several). They are
copies: the layer is never changed. `Zygote.gradient(m -> loss(m, x, y), wrapper)` gives
`grad.params[i]`; Functors, Optimisers and `destructure` see the parameters and nothing
else. Arguments `wrapper(x, y; z)` go to the layer as such, nested or not, as for a
[`PaddleNet`](@ref).

Throws an `ArgumentError` where `layer` is no `paddle.nn.Layer`.

```julia
layer = paddle.nn.Sequential(
    paddle.nn.Linear(3, 16), paddle.nn.Sigmoid(), paddle.nn.Linear(16, 2))
wrapper = PaddleModuleWrapper(layer)
wrapper(rand(Float32, 3, 32)) # 2×32
```
"""
struct PaddleModuleWrapper{P<:Tuple,T}
    net::PaddleNet
    params::P

    # T tells which of them are trained, a flag for each; nothing for all.
    PaddleModuleWrapper(net::PaddleNet, params::P, T = nothing) where {P<:Tuple} =
        new{P,T}(net, params)
end

trained(::PaddleModuleWrapper{P,T}) where {P,T} = T

"The parameters, of which those that are frozen have no derivative."
params_of(w::PaddleModuleWrapper{P,nothing}) where {P} = w.params
params_of(w::PaddleModuleWrapper{P,T}) where {P,T} =
    map((p, trains) -> trains ? p : ignore_derivatives(p), w.params, T)

check_all_trained(w::PaddleModuleWrapper, what) = trained(w) === nothing || throw(
    ArgumentError(
        "$what trains all of its parameters, and this wrapper has frozen ones; use " *
        "freeze(wrapper, ()), or leave them out by PaddleModuleWrapper(layer; frozen = names)",
    ),
)

# What is frozen is a child of its own, so that `Optimisers.trainable` can leave it out.
Functors.functor(::Type{<:PaddleModuleWrapper{P,nothing}}, w) where {P} =
    (; w.params), children -> PaddleModuleWrapper(w.net, children.params)

function Functors.functor(::Type{<:PaddleModuleWrapper{P,T}}, w) where {P,T}
    hasproperty(w, :frozen) && return w, identity # children already, of offsets or gradients
    params = w.params === nothing ? map(Returns(nothing), T) : w.params # a gradient has none
    children = (params = select(params, T), frozen = select(params, map(!, T)))
    function rebuild(children)
        parts = map(Iterators.Stateful, (children.params, children.frozen))
        return PaddleModuleWrapper(w.net, map(t -> popfirst!(parts[t ? 1 : 2]), T), T)
    end
    return children, rebuild
end

select(params, flags::Tuple) = Tuple(params[i] for i in eachindex(flags) if flags[i])

PaddleModuleWrapper(layer; frozen = ()) = crossing() do
    object = Py(layer)
    if !PythonCall.pyisinstance(object, paddle.nn.Layer)
        throw(
            ArgumentError(
                "PaddleModuleWrapper needs a paddle.nn.Layer, got " *
                "$(pytype_name(object)); build one, for example paddle.nn.Linear(3, 2)",
            ),
        )
    end
    return wrapper(BRIDGE.layer(object, python_names("frozen", frozen)))
end

function python_names(what, given)
    names = given isa AbstractString ? (given,) : Tuple(given)
    all(name -> name isa AbstractString, names) || throw(
        ArgumentError("$what takes names of parameters and patterns of them, got $(repr(given))"),
    )
    return pytuple(map(String, names))
end

"""
    PaddleChainRules.freeze(wrapper, names)

The same wrapper with some parameters held constant, by name or pattern such as `"encoder.*"`, one
or several; `freeze(wrapper, ())` has none.

They stay in `wrapper.params`, unlike those that `PaddleModuleWrapper(layer; frozen)` leaves out,
so that they may be trained later. Their gradients are `NoTangent()` (`nothing` in Zygote)
and are not computed, and `Optimisers.trainable` leaves them out of `setup`, `update` and
`destructure`.

```julia
layer = paddle.nn.Sequential(
    paddle.nn.Linear(3, 16), paddle.nn.Sigmoid(), paddle.nn.Linear(16, 2))
head_only = PaddleChainRules.freeze(PaddleModuleWrapper(layer), "0.*")
```
"""
freeze(w::PaddleModuleWrapper, names) = crossing() do
    given = pytuple(map(string, w.net.names))
    found = BRIDGE.chosen(given, python_names("freeze", names))
    flags = Tuple(!PythonCall.pytruth(is_frozen) for is_frozen in found)
    return PaddleModuleWrapper(w.net, w.params, all(flags) ? nothing : flags)
end

pytype_name(object::Py) = string(PythonCall.pytype(object).__name__)

function wrapper(made::Py)
    return PaddleModuleWrapper(net_of(made[0]), receive_all(made[1]))
end

function receive_all(tensors::Py)
    arrays = Any[]
    GC.@preserve tensors for i in 1:tuple_length(PythonCall.getptr(tensors))
        push!(arrays, receive(tuple_item(PythonCall.getptr(tensors), i - 1)))
    end
    return Tuple(arrays)
end

"""
    fresh_parameters(net, seed)

Parameters as a [`PaddleFCNet`](@ref) of that seed has them, a tuple; nothing for any other net.
"""
fresh_parameters(net::PaddleNet, seed::Integer) = crossing() do
    made = object_of(net.handle).init(Py(seed))
    return PythonCall.pyis(made, NONE) ? nothing : receive_all(made)
end

PaddleNet(w::PaddleModuleWrapper) = w.net
PaddleNet(layer) = PaddleModuleWrapper(layer).net

function Base.show(io::IO, w::PaddleModuleWrapper)
    print(io, "PaddleModuleWrapper(", w.net.label, ", ", w.net.nparams, " parameters")
    flags = trained(w)
    if flags !== nothing
        count = sum(length, select(w.params, map(!, flags)); init = 0)
        print(io, ", ", count, " of them frozen")
    end
    return print(io, ")")
end
Base.show(io::IO, ::MIME"text/plain", w::PaddleModuleWrapper) = describe(io, w, w.net, trained(w))

"""
    PaddleFCNet(dim_in, dim_out, num_layers, hidden; dtype="float32", activation="sigmoid", seed)

A fully connected net with fresh parameters, as a [`PaddleModuleWrapper`](@ref).

`num_layers` counts the affine maps: 1 goes from input to output directly, `n` has `n - 1`
hidden layers of width `hidden`, each followed by the activation. `activation` is a name
(`"identity"`, `"sigmoid"`, `"tanh"`, `"relu"`, `"gelu"`, `"silu"`, `"softplus"`, `"elu"`,
`"leaky_relu"`, `"sin"`) or a Python callable of a tensor. `dtype` is `"float32"`,
`"float64"` or `"float16"` (which Paddle computes on a GPU only). The parameters depend on
the integer `seed` alone, drawn from Julia's default generator where not given.

```julia
wrapper = PaddleFCNet(3, 2, 2, 16; activation = "tanh")
wrapper(rand(Float32, 3, 32)) # 2×32
```
"""
function PaddleFCNet(
    dim_in::Integer,
    dim_out::Integer,
    num_layers::Integer,
    hidden::Integer;
    dtype::AbstractString = "float32",
    activation = "sigmoid",
    seed::Integer = rand(Random.default_rng(), UInt32),
)
    num_layers >= 1 || throw(
        ArgumentError("num_layers counts the affine maps and must be at least 1, got $num_layers"),
    )
    for (name, value) in (("dim_in", dim_in), ("dim_out", dim_out), ("hidden", hidden))
        value >= 1 || throw(ArgumentError("$name must be at least 1, got $value"))
    end
    haskey(FLOATS, dtype) || throw(
        ArgumentError("unsupported dtype $(repr(dtype)); use one of $(sort!(collect(keys(FLOATS))))"),
    )
    return crossing() do
        sizes = Int[dim_in; fill(hidden, num_layers - 1); dim_out]
        args = (pytuple(sizes), python_activation(activation), Py(String(dtype)), Py(seed))
        wrapper(BRIDGE.fcnet(args...))
    end
end

function python_activation(name::Union{AbstractString,Symbol})
    known = split(text(BRIDGE.activations()), ',')
    string(name) in known ||
        throw(ArgumentError("unknown activation $(repr(name)); the built-in ones are $known"))
    return Py(string(name))
end
python_activation(f::Py) = f
python_activation(f) = throw(
    ArgumentError(
        "activation must be a name or a Python callable of a tensor, got a $(typeof(f)); " *
        "a Julia function can't run inside Paddle",
    ),
)
(net::PaddleNet)(x, ps; kwargs...) = evaluate(net, x, ps, values(kwargs))
(w::PaddleModuleWrapper)(xs...; kwargs...) = evaluate(w.net, xs, w.params, values(kwargs))

inputs(x::AbstractArray) = (x,)
inputs(xs::Tuple) = xs

"""
    derived(make, net, key) -> PaddleNet

A net with the same parameters, of the Python handle `make(handle)`; made once.
"""
function derived(make, net::PaddleNet, key)
    return crossing() do
        get!(() -> net_of(make(object_of(net.handle))), net.handle.operators, key)
    end::PaddleNet
end

"""
    is_flat(ps)

Whether parameters of this form cross as one vector.
"""
is_flat(::AbstractVector) = true
is_flat(::Union{Tuple,NamedTuple}) = false

"""
    param_arrays(net, ps)

The parameters as dense arrays in forward order, or as the one flat vector, checked.
"""
function param_arrays(net::PaddleNet, ps::AbstractVector)
    (net.eltype === nothing && !isempty(net.eltypes)) && throw(
        ArgumentError(
            "a flat vector needs parameters of one element type, this net has " *
            "$(unique(net.eltypes)); pass a named tuple",
        ),
    )
    length(ps) == net.nparams || throw(
        DimensionMismatch(
            "the flat parameters have length $(length(ps)), the net needs $(net.nparams), " *
            "the sizes $(net.sizes) of $(net.names) in a row",
        ),
    )
    net.eltype === nothing || check_eltype("the flat parameter vector", eltype(ps), net.eltype)
    check_names(net.names, ps)
    return (dense(ps),)
end

"""
    check_names(names, ps)

Refuse a flat vector that names its parts otherwise; plain ones do not.
"""
check_names(_, ::AbstractVector) = nothing

function param_arrays(net::PaddleNet, ps::NamedTuple)
    if length(ps) != length(net.names) || !all(in(keys(ps)), net.names)
        throw(
            ArgumentError(
                "parameters must have exactly the names $(net.names); missing: " *
                "$(setdiff(net.names, keys(ps))), unknown: $(setdiff(keys(ps), net.names))",
            ),
        )
    end
    return param_arrays(net, Tuple(ps[name] for name in net.names))
end

function param_arrays(net::PaddleNet, ps::Tuple)
    length(ps) == length(net.names) || throw(
        ArgumentError(
            "got $(length(ps)) parameter arrays, the net has $(length(net.names)): $(net.names)",
        ),
    )
    for (name, p, dims, T) in zip(net.names, ps, net.sizes, net.eltypes)
        p isa AbstractArray || throw(
            ArgumentError("parameter $name must be an array, got a $(typeof(p))"),
        )
        size(p) == dims || throw(
            DimensionMismatch(
                "parameter $name has size $(size(p)), the net needs $dims; a Paddle weight " *
                "[in, out] is a Julia matrix (out, in)",
            ),
        )
        check_eltype("parameter $name", eltype(p), T)
    end
    return map(dense, ps)
end

function check_eltype(what, found::Type, wanted::Type)
    found == wanted || throw(
        ArgumentError(
            "$what has element type $found, the net needs $wanted; convert it with " *
            "$wanted.(...), or make the net with dtype=\"$(lowercase(string(found)))\"",
        ),
    )
    return nothing
end

"""
    input_arrays(net, xs)

The inputs as dense arrays, checked as far as the net knows them.
"""
function input_arrays(net::PaddleNet, xs::Tuple)
    for x in xs
        x isa AbstractArray || continue # a constant
        dlpack_type(eltype(x)) # refuses here what can't cross, before anything is lent
        if eltype(x) <: AbstractFloat && net.eltype !== nothing
            check_eltype("the input", eltype(x), net.eltype)
        end
    end
    if net.features > 0
        length(xs) == 1 ||
            throw(ArgumentError("a fully connected net takes one input, got $(length(xs))"))
        x = only(xs)
        check_eltype("the input", eltype(x), first(net.eltypes))
        (ndims(x) > 0 && size(x, 1) == net.features) || throw(
            DimensionMismatch(
                "the input has size $(size(x)), the net needs ($(net.features), n): " *
                "$(net.features) features first, the batch last",
            ),
        )
    end
    return map(dense, xs)
end

"""
    enter(net, entry, params, inputs, flat) -> PyPtr

Call `forward` or `pullback` of the Python side on dense arrays, in one crossing; the result
is owned. The caller keeps the arrays alive.
"""
function enter(net::PaddleNet, entry::Symbol, params::Tuple, inputs::Tuple, flat::Bool)
    handle = net.handle
    if is_bound(handle, params, flat)
        lent = map(lend, inputs)
        try
            return call(entry === :forward ? handle.forward : handle.pullback, lent)
        finally
            foreach(drop, lent)
        end
    end
    object_of(handle)
    names = (Py(string(entry)), Py(flat))
    lent = PyPtr[]
    for array in (params..., inputs...)
        push!(lent, lend(array))
    end
    try
        made = GC.@preserve names call(
            handle.bind_and, [map(PythonCall.getptr, names)...; lent],
        )
        bind!(handle, params, flat, owned_item(made, 0), owned_item(made, 1))
        result = tuple_item(made, 2)
        keep(result)
        drop(made)
        return result
    finally
        foreach(drop, lent)
    end
end

function forward(net::PaddleNet, xs::Tuple, ps)
    params, inputs = arrays(net, xs, ps)
    return crossing() do
        GC.@preserve params inputs in_turn((params..., inputs...)) do
            result = enter(net, :forward, params, inputs, is_flat(ps))
            try
                return unpack(net, result, inputs)
            finally
                drop(result)
            end
        end
    end
end

"""
    arrays(net, xs, ps) -> params, inputs

Both as dense arrays on one device, checked.
"""
function arrays(net::PaddleNet, xs::Tuple, ps)
    params, inputs = param_arrays(net, ps), input_arrays(net, xs)
    check_device((params..., inputs...))
    return params, inputs
end

"""
    unpack(net, packed, inputs)

The output of a net as arrays: one tensor, or a tuple `(structure, tensor, ...)` nested as the
structure says. A fully connected net gives the kind of array that it takes.
"""
function unpack(net::PaddleNet, packed::PyPtr, inputs::Tuple)
    if net.features > 0 && only(inputs) isa Array
        A = typeof(only(inputs))
        is_tuple(packed) || return receive_as(A, packed)
        return ntuple(i -> receive_as(A, tuple_item(packed, i)), Int(tuple_length(packed)) - 1)
    end
    is_tuple(packed) || return receive(packed)
    found = Any[receive_any(tuple_item(packed, i)) for i in 1:(tuple_length(packed)-1)]
    return nest(owned_item(packed, 0), found)
end
