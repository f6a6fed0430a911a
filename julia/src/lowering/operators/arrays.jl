# Functions of whole arrays.

mean(x; dims = ntuple(identity, ndims(x))) = sum(x; dims) ./ prod(map(d -> size(x, d), dims))

function softmax(x, dim)
    powers = exp.(x .- maximum(x; dims = dim))
    return powers ./ sum(powers; dims = dim)
end
log_softmax(x, dim) = x .- logsumexp(x, dim)
function logsumexp(x, dims)
    most = maximum(x; dims)
    return most .+ log.(sum(exp.(x .- most); dims))
end

"Columns of a table by integers from 0 on; zeros for `padding`."
embedding(table, index) = table[:, places(table, index)]
embedding(table, index, padding) =
    table[:, places(table, index)] .* reshape(index .!= padding, 1, size(index)...)

"Which columns integers from 0 on stand for."
function places(table, index)
    rows = size(table, 2)
    all(i -> 0 <= i < rows, index) || throw(
        ArgumentError(
            "an embedding of $rows rows takes Paddle's integers from 0 to $(rows - 1), got " *
            "$(minimum(index)) to $(maximum(index)); clamp them, or make the table larger",
        ),
    )
    return index .+ 1
end

"An array of this size with another one at some place, and one number everywhere else."
function placed(part, size, place, around = zero(eltype(part)))
    whole = fill!(similar(part, size), around)
    whole[place...] = part
    return whole
end

"Slices added up where an index along a dimension has them."
function added_at(slices, index, ::Val{dim}, length) where {dim}
    dims = ntuple(d -> d == dim ? length : size(slices, d), ndims(slices))
    whole = fill!(similar(slices, dims), zero(eltype(slices)))
    for (k, i) in enumerate(index)
        selectdim(whole, dim, i) .+= selectdim(slices, dim, k)
    end
    return whole
end
