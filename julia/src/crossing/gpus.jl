# Arrays on GPUs, of whatever package: which can be shared, in what order both sides work on them, and what comes
# back. An extension says of its package what `GPU` lists, and nothing more.

using GPUArraysCore: AbstractGPUArray, AbstractGPUArrayStyle
using SparseArrays: AbstractSparseArray, nonzeros

"""
    GPU

A package whose arrays Paddle works on as they lie. Its subtype has methods of

- `gpu(x)` for its arrays, and `gpu(Val(kind))` for the kind of device that DLPack has for them;
- `device(x)` and `address(x)` of its arrays;
- `current_id(gpu)`, the number of the device that Julia works on now;
- `own_stream(gpu)`, the stream that Julia's work is queued on now, as a pointer;
- `follow(gpu, earlier, later)`: what is queued on the stream `later` from now on starts when all on
  `earlier` is done, for which the host does not wait;
- `wait_for_own(gpu)` and `wait_for_all(gpu)`: the host waits for Julia's work, or for all of the device;
- `around(gpu, source, dims)`, an array of that size around memory that it does not own.
"""
abstract type GPU end

gpu(::AbstractGPUArray) = nothing
gpu(::Val) = nothing

function current_id end
function own_stream end
function follow end
function wait_for_own end
function wait_for_all end
function around end

"""
    gpu_array(x)

The array of a GPU that `x` is, or is made around; nothing where it is one of the host.
"""
gpu_array(x::AbstractGPUArray) = x
gpu_array(::Array) = nothing
function gpu_array(x::AbstractArray)
    within = x isa AbstractSparseArray && applicable(nonzeros, x) ? nonzeros(x) : parent(x)
    within === x || return gpu_array(within)
    # Such as one-hot arrays, which show what they hold in broadcasts alone.
    return Broadcast.BroadcastStyle(typeof(x)) isa AbstractGPUArrayStyle ?
           gpu_array(similar(x, eltype(x), map(zero, size(x)))) : nothing
end

function dense(x::AbstractGPUArray)
    gpu(x) === nothing && throw(
        ArgumentError(
            "an array of type $(typeof(x)) lives on a device that can't be shared with Paddle here. Move it to the " *
            "host with Array(x), and a whole wrapper with adapt(Array, wrapper); a CuArray is shared once CUDA is " *
            "loaded and Paddle is a GPU build.",
        ),
    )
    require_gpu_build()
    return x
end

"A dense copy of what is made around an array of a GPU, on the same device."
function dense_beside(within::AbstractGPUArray, x::AbstractArray)
    dense(within)
    x isa AbstractSparseArray && throw(
        ArgumentError(
            "a sparse matrix on a device, $(summary(x)), can't be shared with Paddle; give a SparseMatrixCSC of the " *
            "host, or a dense array of the device",
        ),
    )
    out = similar(within, eltype(x), size(x))
    out .= x
    return out
end

device(x::AbstractGPUArray) = device(dense(x))
device(x::AbstractArray) = (within = gpu_array(x); within === nothing ? CPU : device(within))

function span(x::AbstractGPUArray)
    start = Int(UInt(address(x)))
    return start, start + length(x) * sizeof(eltype(x))
end

"""
    beside(others, x)

A dense array of the host on the device of the first array of a GPU among others; itself where all are on the host.
"""
beside(::Tuple{Vararg{Array}}, x::Array) = x
function beside(others, x::Array)
    for other in others
        within = other isa AbstractArray ? gpu_array(other) : nothing
        within === nothing || return copyto!(similar(within, eltype(x), size(x)), x)
    end
    return x
end

"What an array of a GPU holds, as an array of the host; others as they are."
from_gpu(x::AbstractArray) = gpu_array(x) === nothing ? x : Array(x)

"Zeros of a size and element type beside an array."
zeros_like(x::AbstractArray, T::Type, size::Dims) = fill!(similar(x, T, size), zero(T))

# Without the exchange table nobody tells Paddle's stream, so the host waits.
function paddle_follows(of::GPU, device::DLDevice)
    stream = current_stream(device)
    stream === nothing ? wait_for_own(of) : follow(of, own_stream(of), stream)
    return nothing
end

function julia_follows(of::GPU, device::DLDevice)
    stream = current_stream(device)
    stream === nothing ? wait_for_all(of) : follow(of, stream, own_stream(of))
    return nothing
end

# Streams are those of a device, so what is on another one would not wait.
function check_current(of::GPU, device::DLDevice)
    current = current_id(of)
    device.device_id == current || throw(
        ArgumentError(
            "an array is on $device, and Julia works on GPU $current now; choose one for both, for CUDA with " *
            "CUDA.device!($(device.device_id))",
        ),
    )
    return nothing
end

function in_turn(f::F, x::AbstractGPUArray) where {F}
    of, place = gpu(dense(x)), device(x)
    check_current(of, place)
    paddle_follows(of, place)
    try
        return f()
    finally
        julia_follows(of, place) # before Julia changes or frees what Paddle still reads
    end
end

function copy_from_device(kind::Val{number}, source, dims, device) where {number}
    of = gpu(kind)
    of === nothing && throw(
        ArgumentError(
            "a tensor on a device of DLPack kind $number came back from Paddle, and no loaded " *
            "package can hold it; for a GPU, load CUDA, or move the net to the CPU with " *
            "paddle.device.set_device(\"cpu\") before making it",
        ),
    )
    check_current(of, device)
    julia_follows(of, device)
    out = copy(around(of, source, dims))
    paddle_follows(of, device) # before Paddle uses the memory for something else
    return out
end
