# A GPU that is pretended: JLArrays are its arrays, and Paddle's exchange table says of what it gives in its turn
# that it lies there, too. Paddle computes on the host.

using PaddleChainRules: DLDevice, DLManagedTensorVersioned, DLTensor, ExchangeTable, GPU, PyPtr

struct Pretended <: GPU end

const KIND, OWN_STREAM, PADDLES_STREAM = 2, Ptr{Cvoid}(11), Ptr{Cvoid}(22)
const SHARED, TURN, CURRENT = Ref(false), Ref(false), Ref(0)
const TABLE = Ref{ExchangeTable}() # Paddle's own
const ORDER, UNORDERED = Tuple{Ptr{Cvoid},Ptr{Cvoid}}[], Ref(0)

PaddleChainRules.gpu(::JLArray) = SHARED[] ? Pretended() : nothing
PaddleChainRules.gpu(::Val{KIND}) = SHARED[] ? Pretended() : nothing
PaddleChainRules.device(x::JLArray) = (PaddleChainRules.dense(x); DLDevice(KIND, 0))
PaddleChainRules.address(x::JLArray) = Ptr{Cvoid}(pointer(x))
PaddleChainRules.current_id(::Pretended) = CURRENT[]
PaddleChainRules.own_stream(::Pretended) = OWN_STREAM
function PaddleChainRules.follow(::Pretended, earlier::Ptr{Cvoid}, later::Ptr{Cvoid})
    TURN[] = later == PADDLES_STREAM
    push!(ORDER, (earlier, later))
    return nothing
end
PaddleChainRules.wait_for_own(::Pretended) = (TURN[] = true; push!(ORDER, (OWN_STREAM, OWN_STREAM)))
PaddleChainRules.wait_for_all(::Pretended) = (TURN[] = false; push!(ORDER, (C_NULL, C_NULL)))
PaddleChainRules.around(::Pretended, source::Ptr, dims::Dims) = JLArray(unsafe_wrap(Array, source, dims))

"Where a struct in memory has its device."
at_device(tensor::Ptr) = Ptr{DLDevice}(tensor + fieldoffset(DLTensor, 2))

function object_from_managed(managed::Ptr{Cvoid}, out::Ptr{PyPtr})::Cint
    place = at_device(managed + fieldoffset(DLManagedTensorVersioned, 6))
    if unsafe_load(place).device_type == KIND
        TURN[] || (UNORDERED[] += 1)
        unsafe_store!(place, PaddleChainRules.CPU)
    end
    return ccall(TABLE[].object_from_managed, Cint, (Ptr{Cvoid}, Ptr{PyPtr}), managed, out)
end

function view_of_object(object::PyPtr, out::Ptr{DLTensor})::Cint
    status = ccall(TABLE[].view_of_object, Cint, (PyPtr, Ptr{DLTensor}), object, out)
    status == 0 && TURN[] && unsafe_store!(at_device(Ptr{Cvoid}(out)), DLDevice(KIND, 0))
    return status
end

function current_stream(::Cint, ::Int32, out::Ptr{Ptr{Cvoid}})::Cint
    unsafe_store!(out, PADDLES_STREAM)
    return 0
end

"`f()`, in which JLArrays can be shared with Paddle."
function shared(f)
    PaddleChainRules.bridge()
    ours, is_gpu_build = PaddleChainRules.TABLE, PaddleChainRules.IS_GPU_BUILD
    TABLE[] = ours[]
    (; major, minor, prev, allocator, managed_from_object) = TABLE[]
    ours[] = ExchangeTable(
        major, minor, prev, allocator, managed_from_object,
        @cfunction(object_from_managed, Cint, (Ptr{Cvoid}, Ptr{PyPtr})),
        @cfunction(view_of_object, Cint, (PyPtr, Ptr{DLTensor})),
        @cfunction(current_stream, Cint, (Cint, Int32, Ptr{Ptr{Cvoid}})),
    )
    was, SHARED[], is_gpu_build[] = is_gpu_build[], true, true
    try
        return f()
    finally
        ours[], SHARED[], is_gpu_build[], TURN[] = TABLE[], false, was, false
    end
end
