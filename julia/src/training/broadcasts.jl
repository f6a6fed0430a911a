# Broadcasts of traced arrays: a function is called once, with numbers that stand for all elements.

"""
    TracedStyle

Of broadcasts with a traced array or number among their arguments. Julia aligns the first dimensions
of arrays, Paddle the last ones of the reversed shapes: so the two agree.
"""
struct TracedStyle <: Broadcast.BroadcastStyle end

Base.BroadcastStyle(::Type{<:AnyTraced}) = TracedStyle()
Base.BroadcastStyle(::TracedStyle, ::Broadcast.BroadcastStyle) = TracedStyle()
Base.BroadcastStyle(::TracedStyle, ::Broadcast.Unknown) = TracedStyle()
Base.BroadcastStyle(::TracedStyle, ::TracedStyle) = TracedStyle()

function Base.copy(bc::Broadcast.Broadcasted{TracedStyle})
    found, dims = each_element(bc), map(length, axes(bc))
    return dims === () ? found : shaped(found, dims)
end
Base.copyto!(_::AbstractArray, ::Broadcast.Broadcasted{TracedStyle}) = throw(
    TraceError("a traced array was written into an array (.=)", "make a new array, x = y .+ z in place of x .= y .+ z"),
)

each_element(bc::Broadcast.Broadcasted{TracedStyle}) = bc.f(map(element, bc.args)...)

"What stands for an element of an argument."
element(bc::Broadcast.Broadcasted{TracedStyle}) = each_element(bc)
element(bc::Broadcast.Broadcasted) = element(Broadcast.materialize(bc)) # of nothing that is traced
element(x::Traced{T}) where {T} = TracedNumber{T}(x.tensor)
element(x::Ref) = x[]
element(x::AbstractArray{<:Real}) = (tensor = tensor_for(x); TracedNumber{plain_eltype(x)}(tensor))
element(x::Tuple{Any}) = only(x)
element(x::Tuple{Vararg{Real}}) = element(beside((TRAINED[],), collect(x)))
element(x::AbstractArray{<:Any,0}) = only(collect(x))
element(x::AbstractArray{<:Real,0}) = only(collect(x))
element(x::Traced{T,0}) where {T} = TracedNumber{T}(x.tensor)
element(x::AbstractArray) = throw(
    TraceError("an array of $(eltype(x)) is broadcast with a traced one", "broadcast arrays of real numbers"),
)
element(x) = x

"Elements as the array that they are those of."
shaped(x::Real, dims::Dims) = shaped(TracedNumber{typeof(x)}(tensor_for(x)), dims)
function shaped(x::TracedNumber, dims::Dims)
    found = traced_array(x.tensor)
    size(found) == dims && return found
    return traced_array(PADDLE.expand(found.tensor, python_size(dims)))
end
shaped(xs::Tuple, ::Dims) = throw(
    TraceError("a function that is broadcast gives a tuple of $(length(xs))", "broadcast one function for each"),
)
shaped(x, ::Dims) = throw(
    TraceError("a function that is broadcast gives $(kind_of(x))", "have it give a real number for each element"),
)

function Base.map(f, x::Traced, more::AbstractArray...)
    all(y -> size(y) == size(x), more) || throw(
        DimensionMismatch("map of arrays of the sizes $(listed(map(size, (x, more...)))); give arrays of one size"),
    )
    return broadcast(f, x, more...)
end
