# What a wrapper's layer holds but does not train, as Julia arrays that both sides read.

using Adapt: Adapt

"""
    shared_buffers(handle) -> NamedTuple

Arrays in place of the buffers of a new handle, which reads them from now on: a change in place is
seen, as it is of parameters.
"""
function shared_buffers(handle::Py)
    found = handle.buffers()
    names = split(text(found[0]), '\x1f'; keepempty = false)
    isempty(names) && return (;)
    buffers = NamedTuple{Tuple(Symbol.(names))}(receive_all(found[1]))
    drop(call_with(handle.share_buffers, (), Tuple(buffers)))
    return buffers
end

"""
    call_with(f, objects, arrays) -> PyPtr

Call a Python object on others and on arrays that are lent; the result is owned.
"""
function call_with(f::Py, objects::Tuple, arrays::Tuple)
    args = PyPtr[PythonCall.getptr(object) for object in objects]
    GC.@preserve objects arrays try
        foreach(array -> push!(args, lend(array)), arrays)
        return call(f, args)
    finally
        foreach(drop, @view args[length(objects)+1:end])
    end
end

"""
    MutableState(net, buffers, training = nothing)

What of a wrapper may change in place: its buffers, and its mode, that of the layer where
`training` is nothing; and the nets that have them.
"""
mutable struct MutableState{N<:PaddleNet}
    net::N # on the buffers as they were seen last
    buffers::Any # a named tuple of arrays, or of what Functors has made of them
    training::Union{Bool,Nothing}
    moded::Union{N,Nothing} # `net` in that mode, once it was asked for
end

MutableState(net::PaddleNet, buffers, training = nothing) = MutableState(net, buffers, training, nothing)
MutableState(net::PaddleNet) = MutableState(net, net.handle.buffers)

"""
    present_net(present::MutableState{N}) -> N

The net in that mode, on those buffers. Copies of buffers, such as an optimizer makes, need no net
of their own for as long as they are equal.
"""
function present_net(present::MutableState)
    if !holds(present.net.handle.buffers, present.buffers)
        present.net, present.moded = with_buffers(present.net, present.buffers), nothing
    end
    found = present.moded
    found === nothing || return found
    return present.moded = in_mode(present.net, present.training)
end

holds(own::NamedTuple, given) = own === given || all(map(is_equal, values(own), values(given)))
is_equal(a, b) = a === b || (typeof(a) === typeof(b) && isequal(a, b))

"""
    with_buffers(net::N, buffers) -> N

The net on other buffers, which it shares; in their precision where that is another.

Throws an `ArgumentError` for what is no array, or of mixed or other element types.
"""
function with_buffers(net::N, buffers) where {N<:PaddleNet}
    own = net.handle.buffers
    for (name, old, new) in zip(keys(own), own, buffers)
        new isa AbstractArray && (eltype(new) == eltype(old) || all(is_float, (old, new))) || throw(
            ArgumentError(
                "buffer $name must be an array of $(eltype(old)), got $(kind_of(new)); fmap over a " *
                "wrapper must give arrays",
            ),
        )
        size(new) == size(old) || throw(
            DimensionMismatch("buffer $name has size $(size(new)), the net needs $(size(old))"),
        )
    end
    T = other_precision(net, "the buffers of a wrapper", buffers)
    arrays = map(dense, buffers)
    return crossing() do
        in_turn(values(arrays)) do
            make = object_of(net.handle).with_buffers
            made = call_with(make, (T === nothing ? NONE : Py(dtype_name(T)),), values(arrays))
            of_kind(N, net_of(PythonCall.pynew(made), arrays))
        end
    end::N
end
