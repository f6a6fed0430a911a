# Julia array <-> paddle.Tensor. The only file that knows DLPack or pointers.

using GPUArraysCore: AnyGPUArray

# The structs of dlpack.h, version 0.8 and before (no version field).
struct DLDevice
    device_type::Cint
    device_id::Cint
end

struct DLDataType
    code::UInt8
    bits::UInt8
    lanes::UInt16
end

struct DLTensor
    data::Ptr{Cvoid}
    device::DLDevice
    ndim::Cint
    dtype::DLDataType
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end

struct DLManagedTensor
    tensor::DLTensor
    manager_ctx::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
end

# The same since version 1.0.
struct DLManagedTensorVersioned
    major::UInt32
    minor::UInt32
    manager_ctx::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
    flags::UInt64
    tensor::DLTensor
end

# `DLPackExchangeAPI` of version 1.3: a framework's own functions, free of Python calls.
struct ExchangeTable
    major::UInt32
    minor::UInt32
    prev::Ptr{Cvoid}
    allocator::Ptr{Cvoid}
    managed_from_object::Ptr{Cvoid}
    object_from_managed::Ptr{Cvoid}
    view_of_object::Ptr{Cvoid}
    current_stream::Ptr{Cvoid}
end

const CPU = DLDevice(1, 0)

# A capsule keeps the pointer to its name: constants, which live as long as the process.
const CAPSULE_NAME = "dltensor"
const TABLE_NAME = "dlpack_exchange_api"

const PyPtr = typeof(PythonCall.getptr(PythonCall.PyNULL))

# Element types that both sides have, with DLPack's type codes.
const ELTYPES = (
    Int8 => DLDataType(0, 8, 1),
    Int16 => DLDataType(0, 16, 1),
    Int32 => DLDataType(0, 32, 1),
    Int64 => DLDataType(0, 64, 1),
    UInt8 => DLDataType(1, 8, 1),
    Float16 => DLDataType(2, 16, 1),
    Float32 => DLDataType(2, 32, 1),
    Float64 => DLDataType(2, 64, 1),
    ComplexF32 => DLDataType(5, 64, 1),
    ComplexF64 => DLDataType(5, 128, 1),
    Bool => DLDataType(6, 8, 1),
)

for (T, code) in ELTYPES
    @eval dlpack_type(::Type{$T}) = $code
end
dlpack_type(::Type{T}) where {T} = throw(
    ArgumentError(
        "arrays of $T have no Paddle counterpart; use one of " *
        "$(join(first.(ELTYPES), ", ")), for example Float32.(x). Numbers that carry " *
        "derivatives (duals, tracked numbers) can't enter Paddle: differentiate through " *
        "the rules, for example with Zygote.",
    ),
)

function julia_type(code::DLDataType)
    for (T, known) in ELTYPES
        known === code && return T
    end
    throw(
        ArgumentError(
            "a tensor of DLPack type (code $(Int(code.code)), $(Int(code.bits)) bits) has no " *
            "Julia counterpart here; convert it in Paddle, for example with " *
            ".astype(\"float32\")",
        ),
    )
end

"""
    dense(x::AbstractArray)

`x` itself where its memory can be shared as it lies, otherwise a dense copy: views,
adjoints, `Fill`s and the like are accepted and copied. Arrays on a device that no loaded
package can share are refused, never silently copied to the host.
"""
dense(x::Array) = x
dense(x::AbstractArray) = convert(Array, x)::Array
dense(x::AnyGPUArray) = throw(
    ArgumentError(
        "an array of type $(typeof(x)) lives on a device that can't be shared with Paddle " *
        "here. Move it to the host with Array(x); a CuArray is shared once CUDA is loaded " *
        "and Paddle is a GPU build.",
    ),
)

device(::Array) = CPU

"""
    address(x)

Where the first element of a dense array lies, in its device's memory.
"""
address(x::Array) = Ptr{Cvoid}(pointer(x))

"""
    in_turn(f, x)

`f()`, in which Paddle works on arrays of the device of `x`, after what Julia has queued there,
and before what Julia will queue. The host queues nothing.
"""
in_turn(f::F, ::Array) where {F} = f()
in_turn(f::F, arrays::Tuple) where {F} = in_turn(f, first(arrays))
in_turn(f::F, ::Tuple{}) where {F} = f()

"""
    check_device(arrays)

Refuse arrays on different devices.
"""
check_device(::Tuple{Vararg{Array}}) = nothing
function check_device(given::Tuple)
    devices = [device(x) for x in given if x isa AbstractArray]
    allequal(devices) || throw(
        ArgumentError(
            "parameters, inputs and cotangents must be on one device, got arrays on " *
            join(unique(devices), " and ") * "; move them, for example with cu(x) or Array(x)",
        ),
    )
    return nothing
end

Base.print(io::IO, device::DLDevice) =
    device == CPU ? print(io, "the host") :
    print(io, device.device_type == 2 ? "GPU " : "device ", device.device_id)

# Filled by `start_exchange`; the table is null where the framework exports none.
const TABLE = Ref{ExchangeTable}()
const HAS_TABLE = Ref(false)
const IS_GPU_BUILD = Ref(false)
const FROM_DLPACK = PythonCall.pynew()
const TO_DLPACK = PythonCall.pynew()
const TUPLE = PythonCall.pynew()
const TENSOR = PythonCall.pynew()
const NONE = PythonCall.pynew()
const TRUE = PythonCall.pynew()
const FALSE = PythonCall.pynew()

# The one block that describes an array while it is lent: both structs, shape, strides. It is
# never freed, since Paddle reads the (null) deleter in it when it drops a tensor.
const MAX_DIMS = 64
const BLOCK_HEAD = sizeof(DLManagedTensorVersioned) + sizeof(DLManagedTensor)
const BLOCK = Ref{Ptr{Cvoid}}(C_NULL)

function start_exchange()
    dlpack = pyimport("paddle.utils.dlpack")
    PythonCall.pycopy!(FROM_DLPACK, dlpack.from_dlpack)
    PythonCall.pycopy!(TO_DLPACK, dlpack.to_dlpack)
    PythonCall.pycopy!(TUPLE, PythonCall.pybuiltins.tuple)
    PythonCall.pycopy!(TENSOR, PADDLE.Tensor)
    PythonCall.pycopy!(NONE, PythonCall.pybuiltins.None)
    PythonCall.pycopy!(TRUE, PythonCall.pybuiltins.True)
    PythonCall.pycopy!(FALSE, PythonCall.pybuiltins.False)
    BLOCK[] == C_NULL && (BLOCK[] = Libc.calloc(BLOCK_HEAD + 2MAX_DIMS * sizeof(Int64), 1))
    BLOCK[] == C_NULL && throw(OutOfMemoryError())
    IS_GPU_BUILD[] = PythonCall.pytruth(PADDLE.is_compiled_with_cuda())
    HAS_TABLE[] = load_table!(PADDLE.Tensor)
    return nothing
end

"""
    load_table!(tensor_type) -> Bool

Read the exchange table that a framework's tensor type exports, if it does and it is of a
version that we know.
"""
function load_table!(tensor_type::Py)
    PythonCall.pyhasattr(tensor_type, "__dlpack_c_exchange_api__") || return false
    capsule = tensor_type.__dlpack_c_exchange_api__
    table = ccall(
        PYTHON[].capsule_pointer, Ptr{ExchangeTable}, (PyPtr, Cstring),
        PythonCall.getptr(capsule), TABLE_NAME,
    )
    table == C_NULL && PythonCall.Core.pythrow()
    TABLE[] = unsafe_load(table)
    return TABLE[].major == 1
end

"""
    require_gpu_build()

Refuse GPU arrays where Paddle is built without CUDA: it would take them, and crash later.
"""
require_gpu_build() = IS_GPU_BUILD[] || throw(
    ArgumentError(
        "the Paddle at hand is a build without CUDA and can't work on GPU arrays. Install " *
        "paddlepaddle-gpu in its place, or move the arrays to the host with Array(x).",
    ),
)

"""
    current_stream(device) -> Union{Ptr{Cvoid},Nothing}

The stream on which Paddle computes on a GPU, `nothing` without an exchange table.
"""
function current_stream(device::DLDevice)
    require_gpu_build() # others crash when asked for a stream
    (HAS_TABLE[] && TABLE[].current_stream != C_NULL) || return nothing
    stream = Ref{Ptr{Cvoid}}(C_NULL)
    status = ccall(
        TABLE[].current_stream, Cint, (Cint, Int32, Ref{Ptr{Cvoid}}),
        device.device_type, device.device_id, stream,
    )
    status == 0 || PythonCall.Core.pythrow()
    return stream[]
end

"""
    without_table(f)

Run `f()` on capsules, the way of frameworks that export no exchange table.
"""
function without_table(f)
    had = HAS_TABLE[]
    HAS_TABLE[] = false
    try
        return f()
    finally
        HAS_TABLE[] = had
    end
end

# Raw references: owned ones are released by `drop`, never left to Julia's garbage
# collector, which does not see the memory behind them.
drop(object::PyPtr) = ccall(PYTHON[].decref, Cvoid, (PyPtr,), object)
keep(object::PyPtr) = ccall(PYTHON[].incref, Cvoid, (PyPtr,), object)
none() = PythonCall.getptr(NONE)
boolean(x::Bool) = PythonCall.getptr(x ? TRUE : FALSE)

tuple_length(object::PyPtr) = ccall(PYTHON[].tuple_size, Cssize_t, (PyPtr,), object)
tuple_item(object::PyPtr, i) = ccall(PYTHON[].tuple_item, PyPtr, (PyPtr, Cssize_t), object, i)
function owned_item(object::PyPtr, i)
    item = tuple_item(object, i)
    keep(item)
    return PythonCall.pynew(item)
end
is_tuple(object::PyPtr) = is_instance(object, TUPLE)
is_instance(object::PyPtr, type::Py) =
    ccall(PYTHON[].is_instance, Cint, (PyPtr, PyPtr), object, PythonCall.getptr(type)) == 1

"""
    text(string::Py) -> String

A Python string. (The first `pyconvert` of a session compiles for half a second.)
"""
function text(string::Py)
    GC.@preserve string begin
        bytes = ccall(PYTHON[].utf8, Cstring, (PyPtr,), PythonCall.getptr(string))
        bytes == C_NULL && PythonCall.Core.pythrow()
        return unsafe_string(bytes)
    end
end

"""
    call(f, args) -> PyPtr

Call a Python object on a tuple or vector of borrowed references; the result is owned.
Python's error passes as a `PyException`.
"""
function call(f::Py, args::NTuple{N,PyPtr}) where {N}
    block = Ref(args)
    return GC.@preserve block call(f, Ptr{PyPtr}(pointer_from_objref(block)), N)
end
call(f::Py, args::Vector{PyPtr}) = GC.@preserve args call(f, pointer(args), length(args))

@inline function call(f::Py, args::Ptr{PyPtr}, count)
    vectorcall = PYTHON[].vectorcall
    result = GC.@preserve f begin
        object, number = PythonCall.getptr(f), Csize_t(count)
        keep(object) # what Python calls meanwhile may replace it
        found = @gc_safe ccall(
            vectorcall, PyPtr, (PyPtr, Ptr{PyPtr}, Csize_t, Ptr{Cvoid}),
            object, args, number, C_NULL,
        )
        drop(object)
        found
    end
    result == PyPtr(0) && PythonCall.Core.pythrow()
    return result
end

"""
    lend(x) -> PyPtr

A `paddle.Tensor` on the memory of a dense array, as an owned reference.

The layout law: a Julia array of size `(d, n)` IS the Paddle tensor of shape `[n, d]`, the
same bytes with the dimensions reversed. Julia stores the first index contiguously, Paddle
the last, so nothing is permuted. The batch is last in Julia and first in Paddle; a Paddle
`Linear` weight `[in, out]` is a Julia matrix `(out, in)`.

The tensor owns nothing: the caller keeps `x` alive (`GC.@preserve`) for as long as it is used,
and no code runs when Paddle drops it, on whatever thread. (Paddle 3.3 finds deleters by data
pointer and so loses all but one of those of tensors on the same memory.) What describes the
array is one block for all calls: Paddle copies it, and whoever holds Python's lock is alone.
"""
function lend(x::AbstractArray{T,N}) where {T,N}
    code = dlpack_type(T)
    N <= MAX_DIMS || throw(ArgumentError("an array of $N dimensions; at most $MAX_DIMS can be lent"))
    shape = Ptr{Int64}(BLOCK[] + BLOCK_HEAD)
    strides = shape + MAX_DIMS * sizeof(Int64)
    step = 1
    for i in 1:N
        unsafe_store!(shape, size(x, i), N + 1 - i)
        unsafe_store!(strides, step, N + 1 - i)
        step *= size(x, i)
    end
    tensor = DLTensor(address(x), device(x), N, code, shape, strides, 0)
    return HAS_TABLE[] ? lend_by_table(tensor) : lend_by_capsule(tensor)
end

function lend_by_table(tensor::DLTensor)
    managed = DLManagedTensorVersioned(1, 1, C_NULL, C_NULL, 0, tensor)
    unsafe_store!(Ptr{DLManagedTensorVersioned}(BLOCK[]), managed)
    out = Ref(PyPtr(0))
    status = ccall(TABLE[].object_from_managed, Cint, (Ptr{Cvoid}, Ref{PyPtr}), BLOCK[], out)
    status == 0 || PythonCall.Core.pythrow()
    return out[]
end

function lend_by_capsule(tensor::DLTensor)
    # Behind the other struct, whose deleter may still be read: it stays null.
    block = BLOCK[] + sizeof(DLManagedTensorVersioned)
    unsafe_store!(Ptr{DLManagedTensor}(block), DLManagedTensor(tensor, C_NULL, C_NULL))
    capsule = ccall(
        PYTHON[].capsule_new, PyPtr, (Ptr{Cvoid}, Cstring, Ptr{Cvoid}),
        block, CAPSULE_NAME, C_NULL,
    )
    capsule == PyPtr(0) && PythonCall.Core.pythrow()
    try
        return call(FROM_DLPACK, (capsule,))
    finally
        drop(capsule)
    end
end

"""
    receive(tensor::PyPtr) -> Array

A copy of a contiguous tensor, as an array of Julia's own; the reference stays the caller's.

A copy whatever the size. To wrap large results instead, with a finalizer for their owner, was
tried and measured (2026-11-20, two cores of an AMD EPYC): calls with results of 4 to 64 MiB
took 1.1 to 1.6 times as long, since Paddle then computes into fresh pages every time instead of
the block just freed, and only those of about 1 MiB gained, 5 to 10 %. Besides, Julia's garbage
collector sees a copy, and no later change by a layer shows in it.
"""
receive(tensor::Union{Py,PyPtr}) = viewed(tensor) do view
    T = julia_type(view.dtype)
    dims = ntuple(i -> Int(unsafe_load(view.shape, view.ndim + 1 - i)), Int(view.ndim))
    return copy_out(T, dims, view)
end

"""
    receive_as(Array{T,N}, tensor::PyPtr) -> Array{T,N}

As [`receive`](@ref), where the type is known and so need not be looked up.
"""
function receive_as(::Type{Array{T,N}}, tensor::Union{Py,PyPtr}) where {T,N}
    return viewed(tensor) do view
        (view.dtype === dlpack_type(T) && view.ndim == N) ||
            error("expected a tensor for an Array{$T,$N}, got $(view.dtype), $(view.ndim)-d")
        dims = ntuple(i -> Int(unsafe_load(view.shape, N + 1 - i)), Val(N))
        copy_out(T, dims, view)
    end::Array{T,N}
end

"""
    receive_into!(out::Array, start, tensor::PyPtr, add = false) -> next

Copy a contiguous tensor to `out[start:next-1]`, or add it; one of a device by way of a copy.
"""
function receive_into!(out::Array{T}, start::Int, tensor::Union{Py,PyPtr}, add::Bool = false) where {T}
    return viewed(tensor) do view
        n = 1
        for i in 1:Int(view.ndim)
            n *= Int(unsafe_load(view.shape, i))
        end
        view.dtype === dlpack_type(T) && start + n - 1 <= length(out) ||
            error("a tensor of $n elements does not fit at $start of $(length(out))")
        if view.device.device_type != CPU.device_type
            found = vec(Array(copy_out(T, (n,), view)))
            target = @view out[start:start+n-1]
            add ? (target .+= found) : (target .= found)
            return start + n
        end
        source = Ptr{T}(view.data + view.byte_offset)
        if add
            @inbounds @simd for i in 1:n
                out[start+i-1] += unsafe_load(source, i)
            end
        else
            GC.@preserve out unsafe_copyto!(pointer(out, start), source, n)
        end
        start + n
    end
end

"""
    viewed(f, tensor::PyPtr)

`f(view)` with the tensor's `DLTensor`, which is valid until `f` returns.
"""
viewed(f::F, tensor::Py) where {F} =
    GC.@preserve tensor viewed(f, PythonCall.getptr(tensor))
function viewed(f::F, tensor::PyPtr) where {F}
    if HAS_TABLE[]
        view = Ref{DLTensor}()
        status =
            ccall(TABLE[].view_of_object, Cint, (PyPtr, Ref{DLTensor}), tensor, view)
        status == 0 || PythonCall.Core.pythrow()
        return f(view[])
    end
    capsule = call(TO_DLPACK, (tensor,))
    try
        managed = ccall(
            PYTHON[].capsule_pointer, Ptr{DLManagedTensor}, (PyPtr, Cstring),
            capsule, CAPSULE_NAME,
        )
        managed == C_NULL && PythonCall.Core.pythrow()
        return f(unsafe_load(managed).tensor)
    finally
        drop(capsule)
    end
end

function copy_out(::Type{T}, dims::Dims, view::DLTensor) where {T}
    source = Ptr{T}(view.data + view.byte_offset)
    view.device.device_type == CPU.device_type ||
        return copy_from_device(Val(Int(view.device.device_type)), source, dims, view.device)
    out = Array{T}(undef, dims)
    GC.@preserve out unsafe_copyto!(pointer(out), source, length(out))
    return out
end

copy_from_device(::Val{kind}, source, dims, device) where {kind} = throw(
    ArgumentError(
        "a tensor on a device of DLPack kind $kind came back from Paddle, and no loaded " *
        "package can hold it; for a GPU, load CUDA, or move the net to the CPU with " *
        "paddle.device.set_device(\"cpu\") before making it",
    ),
)
