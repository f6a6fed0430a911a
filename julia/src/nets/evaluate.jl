# Calls of nets: parameters and inputs in, outputs out.

(net::PaddleNet)(x, ps; kwargs...) = evaluate(net, x, ps, values(kwargs))
(w::PaddleModuleWrapper)(xs...; kwargs...) = evaluate(w.net, arguments_of(w, xs), w.params, values(kwargs))

"""
    arguments_of(wrapper, xs)

What a wrapper that is called on `xs` gives its layer: one tuple is taken apart where `forward` needs two
arguments or more, since chains of Lux and Flux pass those so.
"""
arguments_of(_, xs::Tuple) = xs
arguments_of(w, xs::Tuple{Tuple}) = takes_several(PaddleHandle(w)) ? only(xs) : xs

"Whether a tuple was taken apart, as a `Val`."
is_apart(_, ::Tuple) = Val(false)
is_apart(given, xs::Tuple{Tuple}) = Val(given === only(xs))

PaddleHandle(w::PaddleModuleWrapper) = present(w).net.handle

function takes_several(handle::PaddleHandle)
    handle.several === nothing &&
        (handle.several = crossing(() -> PythonCall.pytruth(object_of(handle).several)))
    return handle.several::Bool
end

inputs(x::AbstractArray) = (x,)
inputs(xs::Tuple) = xs

"""
    derived(make, net, key) -> PaddleNet

A net with the same parameters, of the Python handle `make(handle)`; made once.
"""
function derived(make, net::PaddleNet, key)
    found = get((@atomic net.handle.operators), key, nothing)
    found === nothing || return found::PaddleNet
    return crossing() do
        known = @atomic net.handle.operators
        get(known, key) do
            origin = is_precompiling() ? Derivation(make, net.handle) : nothing
            made = net_of(make(object_of(net.handle)), net.handle.buffers, origin)
            @atomic net.handle.operators = merge(known, Dict{Any,Any}(key => made))
            made
        end
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
            "$(join(unique(net.eltypes), " and ")); pass a named tuple",
        ),
    )
    check_flat(net, ps)
    net.eltype === nothing || check_eltype("the flat parameter vector", eltype(ps), net.eltype)
    return (dense(ps),)
end

function check_flat(net::PaddleNet, ps::AbstractVector)
    eltype(ps) <: AbstractArray && throw(
        ArgumentError(
            "flat parameters are one vector of numbers, got a vector of arrays; give Tuple(ps), or " *
            "reduce(vcat, vec.(ps))",
        ),
    )
    length(ps) == net.nparams || throw(
        DimensionMismatch(
            "the flat parameters have length $(length(ps)), the net needs $(net.nparams), " *
            "those of $(listed(net.names)) in a row, of the sizes $(listed(net.sizes))",
        ),
    )
    return check_names(net.names, ps)
end

"""
    check_names(names, ps)

Refuse a flat vector that names its parts otherwise; plain ones do not.
"""
check_names(_, ::AbstractVector) = nothing

function param_arrays(net::PaddleNet, ps::Union{Tuple,NamedTuple})
    row = params_in_a_row(net, ps)
    check_sizes(net, row)
    for (name, p, T) in zip(net.names, row, net.eltypes)
        check_eltype("parameter $name", eltype(p), T)
    end
    return each(dense_parameter, row)
end

# A broadcast over an array without dimensions gives a number, and so does `fmap(a -> Float64.(a), ps)`.
dense_parameter(p) = dense(p)
dense_parameter(p::Number) = fill(p)

"Parameters as arrays, where some are numbers."
in_filled_arrays(ps::Union{Tuple,NamedTuple}) =
    ps isa Tuple{Vararg{AbstractArray}} ? ps : map(p -> p isa Number ? fill(p) : p, ps)

"Parameters in the order of the net, many in a vector."
params_in_a_row(::PaddleNet, ps::Tuple) = in_arrays(ps)
function params_in_a_row(net::PaddleNet, ps::NamedTuple)
    places = places_of(net.names, ps)
    return length(ps) > MAX_TUPLE_LENGTH ? picked(ps, places) : Tuple(picked(ps, places))
end

"""
    by_position(net, ps)

Parameters as a tuple in the order of the net, or as they are where they have no names.
"""
by_position(::PaddleNet, ps::AbstractVector) = ps
by_position(::PaddleNet, ps::Tuple) = in_filled_arrays(ps)
function by_position(net::PaddleNet, ps::NamedTuple)
    return in_filled_arrays(Tuple(picked(ps, places_of(net.names, ps))))
end

"""
    places_of(names, ps)

Where in a named tuple each name stands, checked. Compiled once for all named tuples.
"""
function places_of(names, @nospecialize(ps::NamedTuple))
    given = Symbol[fieldname(typeof(ps), i) for i in 1:nfields(ps)]
    places = indexin(names, given)
    length(given) == length(names) && !any(isnothing, places) || throw(
        ArgumentError(
            "parameters must have exactly the names $(listed(names)); missing: " *
            "$(listed(setdiff(names, given))), unknown: $(listed(setdiff(given, names)))",
        ),
    )
    return convert(Vector{Int}, places)
end

function check_sizes(net::PaddleNet, ps::Arrays)
    length(ps) == length(net.names) || throw(
        ArgumentError(
            "got $(length(ps)) parameter arrays, the net has $(length(net.names)): " *
            "$(listed(net.names)); give one for each, in that order",
        ),
    )
    for (name, p, dims) in zip(net.names, ps, net.sizes)
        check_size("parameter $name", p, dims)
    end
    return nothing
end

function check_array(what, x, dims::Dims, T::Type)
    check_size(what, x, dims)
    return check_eltype(what, eltype(x), T)
end

function check_size(what, x, dims::Dims)
    x isa Number && dims == () && return nothing
    x isa AbstractArray || throw(
        ArgumentError("$what must be an array of size $dims, got $(kind_of(x)); give an array of that size"),
    )
    size(x) == dims || throw(
        DimensionMismatch(
            "$what has size $(size(x)), the net needs $dims" *
            (length(dims) == 2 ? "; a Paddle weight [in, out] is a Julia matrix (out, in)" : "; give one of that size"),
        ),
    )
    return nothing
end

param_arrays(net::PaddleNet, ps) = throw(
    ArgumentError(
        "parameters are a flat vector, a named tuple or a tuple of arrays, got $(kind_of(ps)); " *
        "the $(length(net.names)) of this net are $(listed(net.names))",
    ),
)

function check_eltype(what, found::Type, wanted::Type)
    found == wanted && return nothing
    found <: Real && !(found <: Union{AbstractFloat,Integer,Rational,AbstractIrrational}) && dlpack_type(found)
    throw(
        ArgumentError(
            "$what has element type $found, the net needs $wanted; convert it with " *
            "$wanted.(...)" * (found in values(FLOATS) ? ", or the net to $found" : ""),
        ),
    )
end

"""
    input_arrays(net, xs)

The inputs as dense arrays, checked as far as the net knows them.
"""
function input_arrays(net::PaddleNet, xs::Tuple)
    for (i, x) in enumerate(xs)
        x isa AbstractArray || continue # a constant
        dlpack_type(eltype(x)) # refuses here what can't cross, before anything is lent
        if eltype(x) <: AbstractFloat && net.eltype !== nothing && eltype(x) !== net.eltype
            check_eltype(length(xs) == 1 ? "the input" : "array $i of the call", eltype(x), net.eltype)
        end
    end
    check_features(net, xs)
    net.features > 0 && eltype(only(xs)) !== first(net.eltypes) &&
        check_eltype(input_of(net), eltype(only(xs)), first(net.eltypes))
    return map(dense, xs)
end

"What to call the input of a chain of Linear layers."
function input_of(net::PaddleNet)
    name = rsplit(string(first(net.names)), '.'; limit = 2)
    return length(name) == 1 ? "the input" : "the input of layer \"$(first(name))\" (Linear)"
end

function check_features(net::PaddleNet, xs::Tuple)
    if net.features > 0
        length(xs) == 1 ||
            throw(ArgumentError("a fully connected net takes one input, got $(length(xs))"))
        x = only(xs)
        (ndims(x) > 0 && size(x, 1) == net.features) || throw(
            DimensionMismatch(
                "$(input_of(net)) has size $(size(x)), the net needs ($(net.features), n): " *
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
function enter(net::PaddleNet, entry::Symbol, params::Arrays, inputs::Tuple, flat::Bool)
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
    given = PyPtr[PythonCall.getptr(names[1]), PythonCall.getptr(names[2])]
    lent = PyPtr[]
    for array in both(params, inputs)
        push!(lent, lend(array))
    end
    try
        made = GC.@preserve names call(handle.bind_and, append!(given, lent))
        bind!(handle, params, flat, owned_item(made, 0), owned_item(made, 1))
        result = tuple_item(made, 2)
        keep(result)
        drop(made)
        return result
    finally
        foreach(drop, lent)
    end
end

"""
    value_at_once(net, xs, ps)

The value by code, an array of the type of the first input; nothing where there is no such code.
"""
value_at_once(_, _, _) = nothing
function value_at_once(net::PaddleNet, xs::I, ps) where {A<:Array,I<:Tuple{A,Vararg{Array}}}
    found, n = fitting_code((@atomic codes_of(net).values), net, ps, xs)
    found === nothing && return nothing
    code = found.code
    gives_alone(found, A, length(code.outputs)) && !code.may_leave || return nothing
    y = new_array(A, code.outputs[1].layout.size, n)
    write_value!((y,), net, code, n, params_as_given(ps), xs, ps isa Vector)
    return y
end

function forward(given::PaddleNet, xs::Tuple, ps)
    at_once = value_at_once(given, xs, ps)
    at_once === nothing || return at_once
    D = dual_type((xs, ps))
    D === nothing || return Base.inferencebarrier(forward_of_duals)(D, given, xs, ps)
    net, params, inputs = arrays(given, xs, ps)
    flat = is_flat(ps)
    found, n = value_code(net, params, inputs)
    if found !== nothing
        y = or_nothing(value_by_code, found.code, net, found, n, params, inputs, flat)
        y === nothing || return y
    end
    return crossing() do
        GC.@preserve params inputs in_turn(both(params, inputs)) do
            result = enter(net, :forward, params, inputs, flat)
            try
                note_call(net, :value, params, inputs, flat)
                return unpack(net, result, inputs)
            finally
                drop(result)
            end
        end
    end
end

"""
    arrays(net, xs, ps) -> net, params, inputs

Both as dense arrays on one device, checked, and the net in the precision of the parameters.
"""
function arrays(net::PaddleNet, xs::Tuple, ps)
    net = in_precision(net, ps)
    params, inputs = param_arrays(net, ps), input_arrays(net, xs)
    check_device(both(params, inputs))
    return net, params, inputs
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
        found = ntuple(i -> receive_as(A, tuple_item(packed, i)), Int(tuple_length(packed)) - 1)
        structure = owned_item(packed, 0)
        is_named = PythonCall.pyisinstance(structure, PythonCall.pybuiltins.dict)
        return is_named ? nest(structure, Any[found...]) : found
    end
    is_tuple(packed) || return receive(packed)
    found = Any[receive_any(tuple_item(packed, i)) for i in 1:(tuple_length(packed)-1)]
    return nest(owned_item(packed, 0), found)
end
