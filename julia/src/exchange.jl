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

const CPU = DLDevice(1, 0)

# A capsule keeps the pointer to its name: a constant, which lives as long as the process.
const CAPSULE_NAME = "dltensor"

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
    synchronize(x)

Wait until the device of `x` has written it; the host needs no waiting.
"""
synchronize(::Array) = nothing

"""
    share(x) -> Py

`x` as a DLPack capsule on the same memory, which `release!` must be called on.

The layout law: a Julia array of size `(d, n)` IS the Paddle tensor of shape `[n, d]`, the
same bytes with the dimensions reversed. Julia stores the first index contiguously, Paddle
the last, so nothing is permuted. The batch is last in Julia and first in Paddle; a Paddle
`Linear` weight `[in, out]` is a Julia matrix `(out, in)`.

One block from C's `malloc` holds the struct with its shape, and its deleter is C's `free`:
no Julia code runs when Paddle drops the tensor, on whatever thread. The caller keeps `x`
alive (`GC.@preserve`) for as long as the tensor is used.
"""
function share(x::AbstractArray{T,N}) where {T,N}
    code = dlpack_type(T)
    synchronize(x)
    block = Libc.malloc(sizeof(DLManagedTensor) + N * sizeof(Int64))
    block == C_NULL && throw(OutOfMemoryError())
    shape = Ptr{Int64}(block + sizeof(DLManagedTensor))
    for i in 1:N
        unsafe_store!(shape, size(x, N + 1 - i), i)
    end
    tensor = DLTensor(address(x), device(x), N, code, shape, C_NULL, 0)
    managed = DLManagedTensor(tensor, block, cglobal(:free))
    unsafe_store!(Ptr{DLManagedTensor}(block), managed)
    capsule = ccall(
        PYTHON[].capsule_new, PyPtr, (Ptr{Cvoid}, Cstring, Ptr{Cvoid}),
        block, CAPSULE_NAME, C_NULL,
    )
    if capsule == PyPtr(0)
        Libc.free(block)
        throw(OutOfMemoryError())
    end
    return PythonCall.pynew(capsule)
end

is_unused(capsule::Py) =
    ccall(
        PYTHON[].capsule_valid, Cint, (PyPtr, Cstring),
        PythonCall.getptr(capsule), CAPSULE_NAME,
    ) == 1

managed_pointer(capsule::Py) = Ptr{DLManagedTensor}(
    ccall(
        PYTHON[].capsule_pointer, Ptr{Cvoid}, (PyPtr, Cstring),
        PythonCall.getptr(capsule), CAPSULE_NAME,
    ),
)

"""
    release!(capsule)

Drop a capsule of [`share`](@ref), and its block where nobody took it over.
"""
function release!(capsule::Py)
    is_unused(capsule) && Libc.free(managed_pointer(capsule))
    PythonCall.pydel!(capsule)
    return nothing
end

"""
    with_shared(f, arrays)

`f(capsules)` with the arrays as capsules, in memory that stays valid until `f` returns.
"""
function with_shared(f, arrays)
    capsules = Py[]
    GC.@preserve arrays try
        for x in arrays
            push!(capsules, share(x))
        end
        return f(capsules)
    finally
        foreach(release!, capsules)
    end
end

"""
    unshare!(capsule) -> Array

A copy of a tensor that came as a capsule, which is dropped with the tensor's memory.
"""
function unshare!(capsule::Py)
    pointer = managed_pointer(capsule)
    pointer == C_NULL && error("expected an unused DLPack capsule, got $capsule")
    tensor = unsafe_load(pointer).tensor
    dims = ntuple(i -> Int(unsafe_load(tensor.shape, tensor.ndim + 1 - i)), tensor.ndim)
    out = copy_out(julia_type(tensor.dtype), dims, tensor)
    PythonCall.pydel!(capsule)
    return out
end

function copy_out(::Type{T}, dims::Dims, tensor::DLTensor) where {T}
    source = Ptr{T}(tensor.data + tensor.byte_offset)
    tensor.device.device_type == CPU.device_type ||
        return copy_from_device(Val(Int(tensor.device.device_type)), source, dims, tensor.device)
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
