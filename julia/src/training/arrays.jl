# Reductions, products, shapes and parts of traced arrays.

using LinearAlgebra: LinearAlgebra, Adjoint, Transpose

const Stored{T,N} = Union{Array{T,N},AbstractGPUArray{T,N}}
const LazyTraced = Broadcast.Broadcasted{TracedStyle}

# Reductions.

"Paddle's names of what arrays are reduced by."
reduction(::Union{typeof(+),typeof(Base.add_sum)}) = :sum
reduction(::Union{typeof(*),typeof(Base.mul_prod)}) = :prod
reduction(::typeof(max)) = :max
reduction(::typeof(min)) = :min
reduction(op) = throw(
    TraceError("a traced array is reduced by the function $op", "reduce by +, *, max or min, or broadcast"),
)

function Base.mapreduce(f, op, x::Union{Traced,LazyTraced}; dims = :, init = nothing)
    found = reduced(f, op, x, dims)
    return init === nothing ? found : op.(found, init)
end

function reduced(f, op, x, dims)
    each = f === identity ? Broadcast.materialize(x) : broadcast(f, x)
    each isa Number && return each
    name = reduction(op)
    T = name in (:sum, :prod) ? Base.promote_op(op, eltype(each), eltype(each)) : eltype(each)
    of = getproperty(PADDLE, name)
    dims isa Colon && return TracedNumber{T}(of(in_type(T, each)))
    axes = [ndims(each) - d for d in dims if d <= ndims(each)]
    all(>=(1), dims) || throw(ArgumentError("dimensions are numbered from 1 on, got dims = $dims"))
    isempty(axes) && return traced_array(in_type(T, each))
    if name === :prod # one axis at a time
        found = foldl((t, axis) -> of(t; axis, keepdim = true), axes; init = in_type(T, each))
        return traced_array(found)
    end
    return traced_array(of(in_type(T, each); axis = PythonCall.pylist(axes), keepdim = true))
end
Base.reduce(op, x::Union{Traced,LazyTraced}; options...) = mapreduce(identity, op, x; options...)

# Of Booleans Base counts where it is to sum.
Base.count(x::Traced{Bool}; dims = :, init = 0) = mapreduce(Int, +, x; dims, init)
Base.count(f, x::Traced; dims = :, init = 0) = mapreduce(v -> Int(f(v)), +, x; dims, init)

LinearAlgebra.dot(x::Traced, y::Traced) = sum(same_length(x, y) .* vec(y))
LinearAlgebra.dot(x::Traced, y::Stored) = sum(same_length(x, y) .* vec(y))
LinearAlgebra.dot(x::Stored, y::Traced) = LinearAlgebra.dot(y, x)
function same_length(x, y)
    length(x) == length(y) || throw(
        DimensionMismatch("dot of arrays of $(length(x)) and $(length(y)) elements; give as many in both"),
    )
    return vec(x)
end

LinearAlgebra.dot(x::LazyTraced, y::Union{Traced,Stored}) = LinearAlgebra.dot(Broadcast.materialize(x), y)
LinearAlgebra.dot(x::Union{Traced,Stored,LazyTraced}, y::LazyTraced) = LinearAlgebra.dot(x, Broadcast.materialize(y))

LinearAlgebra.norm(x::LazyTraced, p::Real = 2) = LinearAlgebra.norm(Broadcast.materialize(x), p)
LinearAlgebra.norm(x::Traced, p::Real = 2) =
    p == 2 ? root(sqrt, sum(abs2, x)) : p == 1 ? sum(abs, x) : p == Inf ? maximum(abs, x) :
    root(s -> s^(1 / oftype(float(one(eltype(x))), p)), sum(v -> abs(v)^p, x))

"A root, with the derivative zero at zero, as norms have it."
function root(f, s)
    is_zero = s == 0
    return ifelse(is_zero, zero(s), f(ifelse(is_zero, one(s), s)))
end

# Products: the reversed shapes have the product the other way about.

const StoredMatrix = Stored{<:Any,2}
const Wrapped{N} = Union{SubArray{<:Any,N},Base.ReshapedArray{<:Any,N},PermutedDimsArray{<:Any,N},BitArray{N}}
const Matrix2 = Union{StoredMatrix,Wrapped{2}}
const Plain2 = Union{Matrix2,Adjoint{<:Any,<:Matrix2},Transpose{<:Any,<:Matrix2}}
const Plain1 = Union{Stored{<:Any,1},Wrapped{1},AbstractRange}

function matrix_product(a, b)
    inner = size(a, 2)
    inner == size(b, 1) || throw(
        DimensionMismatch("a product of arrays of the sizes $(size(a)) and $(size(b)); the inner ones must agree"),
    )
    T = promote_type(plain_eltype(a), plain_eltype(b))
    return traced_array(PADDLE.matmul(in_type(T, b), in_type(T, a)))
end

Base.:*(a::Traced{<:Real,2}, b::Traced{<:Real,2}) = matrix_product(a, b)
Base.:*(a::Traced{<:Real,2}, b::Traced{<:Real,1}) = matrix_product(a, b)
Base.:*(a::Traced{<:Real,2}, b::Plain2) = matrix_product(a, b)
Base.:*(a::Traced{<:Real,2}, b::Plain1) = matrix_product(a, b)
Base.:*(a::Plain2, b::Traced{<:Real,2}) = matrix_product(a, b)
Base.:*(a::Plain2, b::Traced{<:Real,1}) = matrix_product(a, b)
Base.:*(a::Traced{<:Real,1}, b::Traced{<:Real,2}) = matrix_product(reshape(a, :, 1), b)
for M in (:Diagonal, :Symmetric, :Hermitian, :UpperTriangular, :LowerTriangular, :UnitUpperTriangular, :UnitLowerTriangular)
    @eval Base.:*(a::Traced{<:Real,2}, b::LinearAlgebra.$M) = matrix_product(a, Matrix(b))
    @eval Base.:*(a::LinearAlgebra.$M, b::Traced{<:Real,2}) = matrix_product(Matrix(a), b)
    @eval Base.:*(a::LinearAlgebra.$M, b::Traced{<:Real,1}) = matrix_product(Matrix(a), b)
end

# Shapes.

function Base.reshape(x::Traced, dims::Dims)
    prod(dims) == length(x) || throw(
        DimensionMismatch("an array of size $(size(x)) can't have the size $dims; give as many elements"),
    )
    return dims == size(x) ? x : traced_array(PADDLE.reshape(x.tensor, python_size(dims)))
end

function Base.permutedims(x::Traced{<:Any,N}, order) where {N}
    isperm(order) && length(order) == N || throw(
        ArgumentError("the order of $N dimensions is a permutation of 1 to $N, got $order"),
    )
    axes = [N - order[N-a] for a in 0:N-1]
    return traced_array(PADDLE.transpose(x.tensor, PythonCall.pylist(axes)))
end
Base.permutedims(x::Traced{<:Any,2}) = permutedims(x, (2, 1))
Base.permutedims(x::Traced{<:Any,1}) = reshape(x, 1, length(x))
for f in (:adjoint, :transpose)
    @eval Base.$f(x::Traced{<:Real,2}) = permutedims(x)
    @eval Base.$f(x::Traced{<:Real,1}) = throw(
        TraceError(
            "a traced vector is transposed", "write sum(x .* y) or dot(x, y) for x' * y, and reshape(x, 1, :) for a row",
        ),
    )
end

# Parts.

function Base.getindex(x::Traced{T,N}, indices...) where {T,N}
    foreach(refuse_traced, indices)
    indices = map(index -> index isa AbstractArray ? from_gpu(index) : index, indices)
    if N > 1 && length(indices) == 1 && !(only(indices) isa Union{CartesianIndex,AbstractArray{Bool}})
        return getindex(vec(x), only(indices))
    end
    given = to_indices(x, indices)
    checkbounds(x, given...)
    length(given) == N || throw(
        TraceError("a traced array of $N dimensions has $(length(given)) indices", "give one for each dimension"),
    )
    tensor = x.tensor
    for (d, index) in enumerate(given)
        index isa Union{Integer,AbstractUnitRange} && continue
        ndims(index) == 1 || throw(
            TraceError("a traced array has an index of $(ndims(index)) dimensions", "index by vectors, and reshape"),
        )
        tensor = PADDLE.index_select(tensor, tensor_for(beside((TRAINED[],), collect(Int64, index) .- 1)); axis = N - d)
    end
    slices = map(reverse(given)) do index
        index isa Integer ? Py(Int(index) - 1) :
        index isa AbstractUnitRange ? PythonCall.pyslice(first(index) - 1, last(index)) : PythonCall.pyslice(nothing)
    end
    all(index -> index isa Base.Slice, given) || (tensor = PythonCall.pygetitem(tensor, pytuple(slices)))
    return all(index -> index isa Integer, given) ? TracedNumber{T}(tensor) : traced_array(tensor)
end
Base.view(x::Traced, indices...) = getindex(x, indices...)

refuse_traced(_) = nothing
refuse_traced(::AnyTraced) = throw(
    TraceError("an array is indexed by what is traced", "index by whole numbers and ranges that the loss does not compute"),
)
refuse_traced(::Traced{Bool}) = throw(
    TraceError(
        "an array is indexed by a traced mask, which gives as many numbers as are true",
        "write x .* mask, and divide sums by sum(mask)",
    ),
)
Base.to_index(x::TracedNumber) = refuse_traced(x)
Base.to_index(x::Traced) = refuse_traced(x)
Base.to_index(x::Traced{Bool}) = refuse_traced(x)
