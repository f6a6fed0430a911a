# Which memory an array has: dense or not, and on which device.

using GPUArraysCore: AnyGPUArray

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
