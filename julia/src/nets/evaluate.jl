# Calls of nets: parameters and inputs in, outputs out.

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

param_arrays(net::PaddleNet, ps::NamedTuple) = param_arrays(net, in_order(net, ps))

"""
    in_order(net, ps)

Parameters as a tuple in the order of the net, or as they are where they have no names.
"""
in_order(::PaddleNet, ps::Union{Tuple,AbstractVector}) = ps
function in_order(net::PaddleNet, ps::NamedTuple)
    if length(ps) != length(net.names) || !all(in(keys(ps)), net.names)
        throw(
            ArgumentError(
                "parameters must have exactly the names $(net.names); missing: " *
                "$(setdiff(net.names, keys(ps))), unknown: $(setdiff(keys(ps), net.names))",
            ),
        )
    end
    return Tuple(ps[name] for name in net.names)
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
    check_features(net, xs)
    net.features > 0 && check_eltype("the input", eltype(only(xs)), first(net.eltypes))
    return map(dense, xs)
end

function check_features(net::PaddleNet, xs::Tuple)
    if net.features > 0
        length(xs) == 1 ||
            throw(ArgumentError("a fully connected net takes one input, got $(length(xs))"))
        x = only(xs)
        (ndims(x) > 0 && size(x, 1) == net.features) || throw(
            DimensionMismatch(
                "the input has size $(size(x)), the net needs ($(net.features), n): " *
                "$(net.features) features first, the batch last",
            ),
        )
    end
    return nothing
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
    D = dual_type((xs, ps))
    D === nothing || return forward_of_duals(D, net, xs, ps)
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
