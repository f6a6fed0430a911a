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
    origin::Any # what the Python side is made of, where a package that is precompiled makes it
    several::Union{Nothing,Bool} # whether the layer needs several arguments, once that was asked
end

PaddleHandle(handle::Py, activation::AbstractString, buffers::NamedTuple = (;), origin = origin_of(handle)) = PaddleHandle(
    handle.bind_and, activation, WeakRef[], Ptr{Cvoid}[], false,
    PythonCall.pynew(), PythonCall.pynew(), handle, Dict{Any,Any}(), buffers, nothing, origin, nothing,
)

"Whether the net is a chain of Linear layers with one built-in activation between."
is_chain(handle::PaddleHandle) = !isempty(handle.activation)

"""
    object_of(handle) -> Py

The handle of the Python side. That of a net that a package has made while it was precompiled, as a
constant, is made again at the first use.

Throws an `ErrorException` where such a net has code that is not Paddle's, which is not kept.
"""
function object_of(handle::PaddleHandle)
    PythonCall.pyisnull(handle.object) && revive!(handle)
    return handle.object
end

is_precompiling() = ccall(:jl_generating_output, Cint, ()) == 1

"""
    Derivation(make, of)

A net that was made of another one by `make(handle)`.
"""
struct Derivation
    make::Any
    of::PaddleHandle
end

"""
    origin_of(handle::Py)

While a package is precompiled, what a net is made of, by which `revive!` makes its Python side again: its description and
the arrays in it, or Python's reason why there is none. Nothing at any other time. Within a crossing.
"""
function origin_of(handle::Py)
    is_precompiling() || return nothing
    try
        made = BRIDGE.described(handle)
        return text(made[0]), receive_all(made[1])
    catch err
        err isa PyException || rethrow()
        return string(err.v)
    end
end

function revive!(handle::PaddleHandle)
    origin = handle.origin
    origin isa Union{Derivation,Tuple} || error(
        "this net was made while a package was precompiled, and its Python side did not outlive that process" *
        (origin isa String ? ": $origin. " : ". ") *
        "Make it when the package is loaded: declare `const net = Ref{PaddleNet}()` and set `net[] = ...` in the " *
        "package's `__init__`",
    )
    crossing() do
        PythonCall.pyisnull(handle.object) || return nothing # another thread was first
        made = origin isa Derivation ? origin.make(object_of(origin.of)) : described_net(origin...)
        if origin isa Tuple && !isempty(handle.buffers)
            drop(call_with(made.share_buffers, (), Tuple(handle.buffers)))
        end
        handle.bind_and, handle.object = made.bind_and, made
        return nothing
    end
    return handle
end

"The Python side of a description and its arrays, which it copies. Within a crossing."
function described_net(description::String, arrays::Tuple)
    return GC.@preserve arrays begin
        tensors = pytuple([PythonCall.pynew(lend(x)) for x in arrays])
        BRIDGE.of_description(Py(description), tensors)
    end
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
