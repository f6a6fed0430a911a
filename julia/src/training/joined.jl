# Arrays of several, of which one or two may be plain.

"The arrays and numbers of a tuple one after another along a dimension."
function joined_along(dims::Int, parts)
    N = max(dims, maximum(part -> part isa Number ? 1 : ndims(part), parts))
    T = mapreduce(plain_eltype, promote_type, parts)
    raised = map(parts) do part
        array = part isa AnyTraced ? part : part isa Number ? fill(part) : part
        tensor = in_type(T, array)
        size_of = part isa Number ? () : size(part)
        length(size_of) == N && return tensor
        PADDLE.reshape(tensor, python_size((size_of..., ntuple(Returns(1), N - length(size_of))...)))
    end
    return traced_array(PADDLE.concat(PythonCall.pylist(collect(raised)); axis = N - dims))
end

# One signature for each of those in Base and SparseArrays that would be as near.
const AnyPart = Union{Number,AbstractVecOrMat{<:Number}}
const Traced2{T<:Real} = Union{Traced{T,1},Traced{T,2}}
const Array2{T<:Real} = Union{Array{T,1},Array{T,2},AbstractGPUArray{T,1},AbstractGPUArray{T,2}}
const PlainNumber = Union{AbstractFloat,Integer,Rational,AbstractIrrational}
const Several2{T} = AbstractVecOrMat{T}

for (f, dims) in ((:vcat, 1), (:hcat, 2))
    @eval begin
        Base.$f(x::Traced2, rest::AnyPart...) = joined_along($dims, (x, rest...))
        Base.$f(x::Traced2, rest::Several2{<:Number}...) = joined_along($dims, (x, rest...))
        Base.$f(x::Traced2{T}, rest::Several2{T}...) where {T<:Real} = joined_along($dims, (x, rest...))
        Base.$f(x::Traced2, y::Several2{<:Number}) = joined_along($dims, (x, y))
        Base.$f(x::Traced2{T}, y::Several2{T}) where {T<:Real} = joined_along($dims, (x, y))
        Base.$f(x::Array2, y::AnyTraced, rest::AnyPart...) = joined_along($dims, (x, y, rest...))
        Base.$f(x::Array2, y::Traced2, rest::Several2{<:Number}...) = joined_along($dims, (x, y, rest...))
        Base.$f(x::Array2{T}, y::Traced2{T}, rest::Several2{T}...) where {T<:Real} = joined_along($dims, (x, y, rest...))
        Base.$f(x::Array2, y::Traced2) = joined_along($dims, (x, y))
        Base.$f(x::Array2{T}, y::Traced2{T}) where {T<:Real} = joined_along($dims, (x, y))
        Base.$f(x::TracedNumber, rest::Number...) = joined_along($dims, (x, rest...))
        Base.$f(x::TracedNumber{T}, rest::TracedNumber{T}...) where {T<:Real} = joined_along($dims, (x, rest...))
        Base.$f(x::PlainNumber, y::TracedNumber, rest::Number...) = joined_along($dims, (x, y, rest...))
        Base.reduce(::typeof($f), xs::AbstractVector{<:Traced}) = joined_along($dims, Tuple(xs))
        Base.reduce(::typeof($f), xs::AbstractVector{<:Traced2}) = joined_along($dims, Tuple(xs))
    end
end
Base.vcat(x::TracedNumber, rest::AnyPart...) = joined_along(1, (x, rest...))
Base.vcat(x::PlainNumber, y::AnyTraced, rest::AnyPart...) = joined_along(1, (x, y, rest...))
Base.hcat(x::TracedNumber, y::Traced2, rest::AnyPart...) = joined_along(2, (x, y, rest...))
Base.hcat(x::PlainNumber, y::Traced2, rest::AnyPart...) = joined_along(2, (x, y, rest...))

Base.cat(x::AnyTraced, rest::Union{AbstractArray,Number}...; dims::Integer) = joined_along(Int(dims), (x, rest...))
Base.cat(x::Union{Array,PlainNumber}, y::AnyTraced, rest::Union{AbstractArray,Number}...; dims::Integer) =
    joined_along(Int(dims), (x, y, rest...))
