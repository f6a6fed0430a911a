# CuArrays on the same memory as Paddle's GPU tensors: what is CUDA's own. The order of work and all else is
# that of any GPU, in crossing/gpus.jl, which the tests run; this file they can't, since they have no GPU.
module PaddleChainRulesCUDAExt

using CUDA: CUDA, CuArray, CuEvent, CuPtr
using PaddleChainRules: PaddleChainRules, DLDevice, GPU

const KIND = 2 # kDLCUDA

struct CUDADevices <: GPU end

PaddleChainRules.gpu(::CuArray) = CUDADevices()
PaddleChainRules.gpu(::Val{KIND}) = CUDADevices()

PaddleChainRules.device(x::CuArray) = DLDevice(KIND, CUDA.deviceid(CUDA.device(x)))
PaddleChainRules.address(x::CuArray) = reinterpret(Ptr{Cvoid}, pointer(x))

PaddleChainRules.current_id(::CUDADevices) = CUDA.deviceid(CUDA.device())
PaddleChainRules.own_stream(::CUDADevices) =
    reinterpret(Ptr{Cvoid}, Base.unsafe_convert(CUDA.CUstream, CUDA.stream()))

function PaddleChainRules.follow(::CUDADevices, earlier::Ptr{Cvoid}, later::Ptr{Cvoid})
    event = CuEvent(CUDA.EVENT_DISABLE_TIMING)
    CUDA.cuEventRecord(event, reinterpret(CUDA.CUstream, earlier))
    CUDA.cuStreamWaitEvent(reinterpret(CUDA.CUstream, later), event, 0)
    return nothing
end

PaddleChainRules.wait_for_own(::CUDADevices) = CUDA.synchronize()
PaddleChainRules.wait_for_all(::CUDADevices) = CUDA.device_synchronize()

PaddleChainRules.around(::CUDADevices, source::Ptr{T}, dims::Dims) where {T} =
    unsafe_wrap(CuArray, reinterpret(CuPtr{T}, source), dims)

end
