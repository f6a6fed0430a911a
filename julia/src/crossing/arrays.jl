# Julia array <-> paddle.Tensor, on the same memory.

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
            copied = Array(copy_out(T, (n,), view))::Vector{T}
            GC.@preserve copied write_from!(out, start, pointer(copied), n, add)
        else
            write_from!(out, start, Ptr{T}(view.data + view.byte_offset), n, add)
        end
        start + n
    end
end

function write_from!(out::Array{T}, start, source::Ptr{T}, n, add) where {T}
    if add
        @inbounds @simd for i in 1:n
            out[start+i-1] += unsafe_load(source, i)
        end
    else
        GC.@preserve out unsafe_copyto!(pointer(out, start), source, n)
    end
    return nothing
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
        status == 0 || refuse_place(tensor, pending_error())
        return f(view[])
    end
    capsule = try
        call(TO_DLPACK, (tensor,))
    catch cause
        refuse_place(tensor, cause)
    end
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

function pending_error()
    try
        PythonCall.Core.pythrow()
    catch error
        return error
    end
end

"Throw the error, or one that says more where Paddle hands out no tensors of a device: one of a plugin's."
function refuse_place(tensor::PyPtr, cause)
    keep(tensor)
    place = PythonCall.pynew(tensor).place
    PythonCall.pytruth(place.is_custom_place()) || throw(cause)
    throw(
        ArgumentError(
            "a tensor is on $place, a device whose tensors Paddle does not share. Make the net on the CPU, after " *
            "paddle.set_device(\"cpu\"), or move a layer there first with layer.to(\"cpu\")",
        ),
    )
end

function copy_out(::Type{T}, dims::Dims, view::DLTensor) where {T}
    source = Ptr{T}(view.data + view.byte_offset)
    view.device.device_type == CPU.device_type ||
        return copy_from_device(Val(Int(view.device.device_type)), source, dims, view.device)
    out = Array{T}(undef, dims)
    GC.@preserve out unsafe_copyto!(pointer(out), source, length(out))
    return out
end
