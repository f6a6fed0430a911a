# CuArrays on the same memory as Paddle's GPU tensors. Written for users with a GPU; not run
# by the project's own tests, which have none.
module PaddleChainRulesCUDAExt

using CUDA: CUDA, AnyCuArray, CuArray, CuPtr
using PaddleChainRules: PaddleChainRules, DLDevice

const KIND = 2 # kDLCUDA

PaddleChainRules.dense(x::CuArray) = x
PaddleChainRules.dense(x::AnyCuArray) = CuArray(x)

PaddleChainRules.device(x::CuArray) = DLDevice(KIND, CUDA.deviceid(CUDA.device(x)))

# Paddle may read on a stream of its own: everything queued on ours comes first.
PaddleChainRules.synchronize(::CuArray) = CUDA.synchronize()

PaddleChainRules.address(x::CuArray) = reinterpret(Ptr{Cvoid}, pointer(x))

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
    # Paddle may still be writing on a stream of its own.
    CUDA.device_synchronize()
    return copy(unsafe_wrap(CuArray, reinterpret(CuPtr{T}, source), dims))
end

end
