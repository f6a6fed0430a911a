# CuArrays on the same memory as Paddle's GPU tensors. Written for users with a GPU; not run
# by the project's own tests, which have none.
module PaddleChainRulesCUDAExt

using CUDA: CUDA, AnyCuArray, CuArray, CuEvent, CuPtr
using PaddleChainRules: PaddleChainRules, DLDevice, current_stream, require_gpu_build

const KIND = 2 # kDLCUDA

function PaddleChainRules.dense(x::CuArray)
    require_gpu_build()
    return x
end
PaddleChainRules.dense(x::AnyCuArray) = PaddleChainRules.dense(CuArray(x))

PaddleChainRules.device(x::CuArray) = DLDevice(KIND, CUDA.deviceid(CUDA.device(x)))

PaddleChainRules.address(x::CuArray) = reinterpret(Ptr{Cvoid}, pointer(x))

ours() = Base.unsafe_convert(CUDA.CUstream, CUDA.stream())

"""
    order(earlier, later)

What is queued on the stream `later` from now on starts when all on `earlier` is done. The host
does not wait.
"""
function order(earlier::CUDA.CUstream, later::CUDA.CUstream)
    event = CuEvent(CUDA.EVENT_DISABLE_TIMING)
    CUDA.cuEventRecord(event, earlier)
    CUDA.cuStreamWaitEvent(later, event, 0)
    return nothing
end

# Without the exchange table nobody tells Paddle's stream, so the host waits for all of them.
function paddle_follows(device::DLDevice)
    stream = current_stream(device)
    return stream === nothing ? CUDA.synchronize() :
           order(ours(), reinterpret(CUDA.CUstream, stream))
end

function julia_follows(device::DLDevice)
    stream = current_stream(device)
    return stream === nothing ? CUDA.device_synchronize() :
           order(reinterpret(CUDA.CUstream, stream), ours())
end

function PaddleChainRules.in_turn(f, x::CuArray)
    device = PaddleChainRules.device(x)
    paddle_follows(device)
    try
        return f()
    finally
        julia_follows(device) # before Julia changes or frees what Paddle still reads
    end
end

function PaddleChainRules.copy_from_device(
    ::Val{KIND}, source::Ptr{T}, dims::Dims, device::DLDevice,
) where {T}
    current = CUDA.deviceid(CUDA.device())
    device.device_id == current || throw(
        ArgumentError(
            "a tensor on GPU $(device.device_id) came back, and Julia's current device is " *
            "$current; choose one with CUDA.device!($(device.device_id))",
        ),
    )
    julia_follows(device)
    out = copy(unsafe_wrap(CuArray, reinterpret(CuPtr{T}, source), dims))
    paddle_follows(device) # before Paddle uses the memory for something else
    return out
end

end
