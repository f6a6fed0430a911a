# Normalization, with statistics of what there is or given ones.

along(::Nothing, sizes) = nothing
along(v, sizes) = reshape(v, sizes)

rescaled(y, ::Nothing, ::Nothing) = y
rescaled(y, scale, ::Nothing) = y .* scale
rescaled(y, ::Nothing, bias) = y .+ bias
rescaled(y, scale, bias) = y .* scale .+ bias

"Over the first `N` dimensions."
function layer_norm(x, scale, bias, ε, ::Val{N}) where {N}
    dims, sizes = ntuple(identity, N), ntuple(d -> size(x, d), N)
    centred = x .- mean(x; dims)
    y = centred ./ sqrt.(mean(abs2.(centred); dims) .+ ε)
    return rescaled(y, along(scale, sizes), along(bias, sizes))
end

per_channel(x, channel) = ntuple(d -> d == channel ? size(x, d) : 1, ndims(x))

function batch_norm(x, mean, variance, scale, bias, ε, channel)
    sizes = per_channel(x, channel)
    y = (x .- reshape(mean, sizes)) ./ sqrt.(reshape(variance, sizes) .+ ε)
    return rescaled(y, along(scale, sizes), along(bias, sizes))
end

"The result, and the statistics that come next; Paddle's variance is the biased one."
function batch_norm_trained(x, means, variances, scale, bias, ε, momentum, channel)
    dims = Tuple(filter(!=(channel), 1:ndims(x)))
    # Paddle hands a single number on as it is, where the formula below gives the bias.
    length(x) == size(x, channel) && throw(
        ArgumentError(
            "BatchNorm in training needs more than one number a channel, got an array of size " *
            "$(size(x)); give more samples, or lower the net in test mode",
        ),
    )
    centre = mean(x; dims)
    spread = mean(abs2.(x .- centre); dims)
    y = batch_norm(x, centre, spread, scale, bias, ε, channel)
    return y, moved(means, centre, momentum), moved(variances, spread, momentum)
end

moved(old, new, momentum) = momentum .* old .+ (1 - momentum) .* vec(new)

"Of channels, the last but one dimension, group by group."
function group_norm(x, scale, bias, ε, groups)
    channels, n = size(x, ndims(x) - 1), size(x, ndims(x))
    inner = layer_norm(reshape(x, :, groups, n), nothing, nothing, ε, Val(1))
    sizes = per_channel(x, ndims(x) - 1)
    return rescaled(reshape(inner, size(x)), along(scale, sizes), along(bias, sizes))
end

# Gradients by x, scale and bias; nothing for what there is not.

of_parameter(::Nothing, _, _) = nothing
of_parameter(v, found, dims) = reshape(sum(found; dims), size(v))

function layer_norm_grad(x, scale, bias, ȳ, ε, ::Val{N}) where {N}
    dims, sizes = ntuple(identity, N), ntuple(d -> size(x, d), N)
    centred = x .- mean(x; dims)
    factor = inv.(sqrt.(mean(abs2.(centred); dims) .+ ε))
    unit = centred .* factor
    inner = rescaled(ȳ, along(scale, sizes), nothing)
    x̄ = factor .* (inner .- mean(inner; dims) .- unit .* mean(inner .* unit; dims))
    rest = Tuple(N+1:ndims(x))
    return x̄, of_parameter(scale, ȳ .* unit, rest), of_parameter(bias, ȳ, rest)
end

function batch_norm_grad(x, means, variances, scale, bias, ȳ, ε, channel)
    sizes, dims = per_channel(x, channel), Tuple(filter(!=(channel), 1:ndims(x)))
    given = means !== nothing
    centre = given ? reshape(means, sizes) : mean(x; dims)
    spread = given ? reshape(variances, sizes) : mean(abs2.(x .- centre); dims)
    factor = inv.(sqrt.(spread .+ ε))
    unit = (x .- centre) .* factor
    inner = rescaled(ȳ, along(scale, sizes), nothing)
    x̄ = given ? inner .* factor :
        factor .* (inner .- mean(inner; dims) .- unit .* mean(inner .* unit; dims))
    return x̄, of_parameter(scale, ȳ .* unit, dims), of_parameter(bias, ȳ, dims)
end

function group_norm_grad(x, scale, bias, ȳ, ε, groups)
    channel, n = ndims(x) - 1, size(x, ndims(x))
    sizes, dims = per_channel(x, channel), Tuple(filter(!=(channel), 1:ndims(x)))
    folded(a) = reshape(a, :, groups, n)
    inner = rescaled(ȳ, along(scale, sizes), nothing)
    x̄, _, _ = layer_norm_grad(folded(x), nothing, nothing, folded(inner), ε, Val(1))
    unit = group_norm(x, nothing, nothing, ε, groups)
    return reshape(x̄, size(x)), of_parameter(scale, ȳ .* unit, dims), of_parameter(bias, ȳ, dims)
end
