# Which memory an array has: dense or not, and on which device.

"Arrays of one call: many of them are in a vector, since code for each long tuple compiles for seconds."
const Arrays = Union{Tuple,Vector{Any}}
const MAX_TUPLE_LENGTH = 32

in_arrays(xs::Tuple) = length(xs) > MAX_TUPLE_LENGTH ? picked(xs, 1:length(xs)) : xs

"Those of a tuple or named tuple that stand at these places, by code that is compiled once."
@noinline picked(@nospecialize(xs), places::AbstractVector{Int}) = Any[getfield(xs, i) for i in places]

"`f` of each, in the same form."
each(f::F, xs::Tuple, more...) where {F} = map(f, xs, more...)
each(f::F, xs::Vector{Any}, more...) where {F} = Any[f(items...) for items in zip(xs, more...)]

"Those of two rows in one."
both(xs::Tuple, ys::Tuple) = (xs..., ys...)
both(xs::Arrays, ys::Arrays) = Any[xs..., ys...]

"""
    dense(x::AbstractArray)

`x` itself where its memory can be shared as it lies, otherwise a dense copy: views,
adjoints, `Fill`s and the like are accepted and copied, those of a GPU on their device. Arrays on a
device that no loaded package can share are refused, never silently copied to the host.
"""
dense(x::Array) = x
function dense(x::AbstractArray)
    within = gpu_array(x)
    return within === nothing ? collect(x)::Array : dense_beside(within, x) # by position, whatever the indices
end

"""
    overlap(a, b)

Whether a write into one array may change the other: by the addresses that they span, and where
these have gaps by `Base.mightalias`, for which all reshaped views of an array are one.
"""
function overlap(a::AbstractArray, b::AbstractArray)
    of_a, of_b = gpu_array(a), gpu_array(b)
    if of_a !== nothing && of_b !== nothing # what is around an array of a GPU has no address of its own
        return meet(span(of_a), span(of_b)) && (of_a !== of_b || Base.mightalias(a, b))
    end
    of_a === of_b || return false
    a isa StridedArray && b isa StridedArray || return Base.mightalias(a, b)
    (first_a, last_a), (first_b, last_b) = span(a), span(b)
    meet((first_a, last_a), (first_b, last_b)) || return false
    has_gaps(x, from, to) = to - from > length(x) * sizeof(eltype(x))
    return !(has_gaps(a, first_a, last_a) || has_gaps(b, first_b, last_b)) || Base.mightalias(a, b)
end

overlap(a::AbstractArray, bs::Union{Tuple,NamedTuple}) = any(b -> overlap(a, b), bs)
overlap(_, _) = false # what is no array
meet((first_a, last_a), (first_b, last_b)) = first_a < last_b && first_b < last_a

"The address of the first byte of an array, and that behind its last."
function span(x::StridedArray)
    start = Int(UInt(pointer(x)))
    isempty(x) && return start, start
    reach = strides(x) .* (size(x) .- 1) .* sizeof(eltype(x))
    return start + sum(min.(reach, 0); init = 0), start + sum(max.(reach, 0); init = 0) + sizeof(eltype(x))
end

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
function in_turn(f::F, arrays::Vector{Any}) where {F}
    i = findfirst(x -> !(x isa Constant), arrays)
    return i === nothing ? f() : in_turn(f, arrays[i])
end

"""
    check_device(arrays)

Refuse arrays on different devices.
"""
check_device(::Tuple{Vararg{Array}}) = nothing
function check_device(given::Arrays)
    devices = [device(x) for x in given if x isa AbstractArray]
    allequal(devices) || throw(
        ArgumentError(
            string(
                "parameters, inputs and cotangents must be on one device, got arrays on ",
                sprint(join, unique(devices), " and "), "; move them, for example with cu(x) or Array(x)",
            ),
        ),
    )
    return nothing
end

Base.print(io::IO, device::DLDevice) =
    device == CPU ? print(io, "the host") :
    print(io, device.device_type == 2 ? "GPU " : "device ", device.device_id)
