# Sparse matrices as arguments: columns are samples, which are the rows of a CSR in Paddle.

using ChainRulesCore: @thunk, AbstractThunk, unthunk
using SparseArrays: SparseArrays, SparseMatrixCSC, nonzeros, rowvals

"A sparse argument in a layout: its three parts are leaves."
struct SparseLayout
    features::Int
end

"Whether an argument is sparse, or holds one that is."
has_sparse(::Any) = false
has_sparse(::SparseMatrixCSC) = true
has_sparse(xs::Union{Tuple,NamedTuple}) = any(has_sparse, Tuple(xs))

# Paddle counts from zero. A matrix of Booleans is a bare pattern, all of whose entries are one.
function leaves(x::SparseMatrixCSC{T}) where {T}
    bare = T === Bool
    bare && all(nonzeros(x)) || !bare || throw(
        ArgumentError(
            "a sparse matrix of Bool is a bare pattern, got one that stores false; give " *
            "dropzeros(x)",
        ),
    )
    begins, rows = SparseArrays.getcolptr(x), rowvals(x)
    return (begins .- one(eltype(begins)), rows .- one(eltype(rows)), bare ? nothing : nonzeros(x))
end

layout(x::SparseMatrixCSC) = SparseLayout(size(x, 1))
slot(::SparseLayout) = "_"
positions(part::SparseLayout, next) =
    BRIDGE.csr(part.features, [Py(popfirst!(next)) for _ in 1:3]...)

"The same pattern with other values, or what stands for no values."
with_values(x::SparseMatrixCSC, values::AbstractVector) =
    SparseMatrixCSC(size(x)..., SparseArrays.getcolptr(x), rowvals(x), values)
with_values(x::SparseMatrixCSC, values::AbstractThunk) = @thunk(with_values(x, unthunk(values)))
with_values(::SparseMatrixCSC, none) = none

function nested_as(f, x::SparseMatrixCSC, row)
    begins, rows, values = leaves(x)
    f(begins, popfirst!(row)), f(rows, popfirst!(row))
    return with_values(x, f(values, popfirst!(row)))
end

function nested_tangent(x::SparseMatrixCSC, row)
    popfirst!(row), popfirst!(row)
    return with_values(x, popfirst!(row))
end

parts_in_a_row(Δ, x::SparseMatrixCSC) = (nothing, nothing, values_at(content(unthunk(Δ)), x))

function tangents_in_a_row(tangent, x::SparseMatrixCSC)
    ẋ = values_at(content(unthunk(tangent)), x)
    return (nothing, nothing, only(tangents_in_a_row(ẋ, last(leaves(x)))))
end

"What a matrix has at the places of a pattern; `nothing` for zero."
function values_at(Δ, x::SparseMatrixCSC)
    is_zero(Δ) && return nothing
    Δ isa Union{Tangent,NamedTuple} && return part_of(Δ, :nzval) # of nonzeros(x̄)
    size(Δ) == size(x) ||
        throw(DimensionMismatch("a tangent has size $(size(Δ)), its primal $(size(x)); give one of that size"))
    same = Δ isa SparseMatrixCSC && SparseArrays.getcolptr(Δ) == SparseArrays.getcolptr(x) &&
           rowvals(Δ) == rowvals(x)
    same && return nonzeros(Δ)
    rows = rowvals(x)
    return [Δ[rows[k], j] for j in axes(x, 2) for k in SparseArrays.nzrange(x, j)]
end

function input_buffers(given, x::SparseMatrixCSC)
    given === nothing && return (nothing, nothing, nothing)
    given isa SparseMatrixCSC && SparseArrays.getcolptr(given) == SparseArrays.getcolptr(x) &&
        rowvals(given) == rowvals(x) || throw(
        ArgumentError(
            "into for a sparse input must be a sparse matrix of its pattern, got " *
            "$(kind_of(given)); give copy(x)",
        ),
    )
    return (nothing, nothing, nonzeros(given))
end

"Refuse a sparse argument where samples or directions are taken apart."
refuse_sparse(name, x) = has_sparse(x) && throw(
    ArgumentError(
        "$name takes dense arrays, got a sparse matrix, which calls of nets and their gradients " *
        "take; give Array(x)",
    ),
)

# An input that has come this far would be made dense, without a word.
dense(x::SparseMatrixCSC) = throw(
    ArgumentError(
        "a sparse matrix of size $(size(x)) stands where a dense array is needed: nets and their " *
        "gradients take it as input; give Array(x)",
    ),
)

"""
    dense_tangent(x)

A tangent of a dense array, as a dense array. Julia gives sparse ones where a loss has a sparse matrix.
"""
dense_tangent(x::AbstractArray) = dense(x)
dense_tangent(x::SparseMatrixCSC) = Array(x)
