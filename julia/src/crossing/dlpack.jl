# The structs and tables of DLPack, and what Paddle exports of them.

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
        "derivatives or stand for a computation can't enter Paddle: differentiate by ForwardDiff, " *
        "ReverseDiff, Tracker, or the rules, for example with Zygote; a compiler such as Reactant " *
        "takes lower(net, x), which is plain Julia.",
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
