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
    arrays::Vector{WeakRef}
    addresses::Vector{Ptr{Cvoid}}
    flat::Bool
    forward::Py
    pullback::Py
    object::Py # the handle of the Python side
    @atomic operators::Dict{Any,Any} # nets of derivatives by the input; exchanged, not changed
    buffers::NamedTuple # arrays that the Python side reads for as long as it lives
    codes::Any # its machine code, of the type Codes
end

PaddleHandle(handle::Py, activation::AbstractString, buffers::NamedTuple = (;)) = PaddleHandle(
    handle.bind_and, activation, WeakRef[], Ptr{Cvoid}[], false,
    PythonCall.pynew(), PythonCall.pynew(), handle, Dict{Any,Any}(), buffers, nothing,
)

"Whether the net is a chain of Linear layers with one built-in activation between."
is_chain(handle::PaddleHandle) = !isempty(handle.activation)

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
function is_bound(handle::PaddleHandle, arrays::Arrays, flat::Bool)
    PythonCall.pyisnull(handle.forward) && return false
    handle.flat == flat && length(handle.arrays) == length(arrays) || return false
    return arrays isa Tuple ? all_bound(handle, 1, arrays...) :
           all(i -> all_bound(handle, i, arrays[i]), eachindex(arrays))
end

# Unrolled over the tuple, whose arrays differ in type.
all_bound(::PaddleHandle, ::Int) = true
function all_bound(handle::PaddleHandle, i::Int, array, rest...)
    return handle.arrays[i].value === array &&
           handle.addresses[i] == address(array) &&
           all_bound(handle, i + 1, rest...)
end

function bind!(handle::PaddleHandle, arrays::Arrays, flat::Bool, forward::Py, pullback::Py)
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
