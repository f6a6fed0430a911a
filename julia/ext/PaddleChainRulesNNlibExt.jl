# Convolution, pooling and stacks of matrices for lowered nets; functions of losses that are traced.
module PaddleChainRulesNNlibExt

using NNlib: NNlib
using PaddleChainRules: PADDLE, PaddleChainRules, Traced, TracedNumber
using PaddleChainRules.Operators: Operators

for name in (:batched_mul, :batched_transpose, :conv, :maxpool, :meanpool)
    @eval Operators.$name(args...; kw...) = NNlib.$name(args...; kw...)
end

function Operators.conv_grad(x, w, ȳ; stride = 1, pad = 0, dilation = 1, groups = 1, flipped)
    how = NNlib.DenseConvDims(
        x, w; stride, padding = pad, dilation, groups, flipkernel = flipped,
    )
    return NNlib.∇conv_data(ȳ, w, how), NNlib.∇conv_filter(x, ȳ, how)
end
Operators.maxpool_grad(ȳ, y, x, window; stride, pad = 0) =
    NNlib.∇maxpool(ȳ, y, x, NNlib.PoolDims(x, window; stride, padding = pad))
Operators.meanpool_grad(ȳ, y, x, window; stride, pad = 0) =
    NNlib.∇meanpool(ȳ, y, x, NNlib.PoolDims(x, window; stride, padding = pad))

# NNlib's own look at values, write in place, or have other slopes at zero once their parts are differentiated.
for (f, name) in ((:relu, :relu), (:σ, :sigmoid), (:sigmoid_fast, :sigmoid), (:gelu_erf, :gelu))
    @eval NNlib.$f(x::TracedNumber{T}) where {T} = TracedNumber{T}(PADDLE.nn.functional.$name(x.tensor))
end
NNlib.softplus(x::TracedNumber) = log1p(exp(-abs(x))) + max(x, zero(x))
NNlib.logsigmoid(x::TracedNumber) = -NNlib.softplus(-x)

function NNlib.softmax(x::Traced; dims = 1)
    powers = exp.(x .- maximum(x; dims))
    return powers ./ sum(powers; dims)
end
NNlib.logsoftmax(x::Traced; dims = 1) = x .- NNlib.logsumexp(x; dims)
function NNlib.logsumexp(x::Traced; dims = :)
    largest = maximum(x; dims)
    return largest .+ log.(sum(exp.(x .- largest); dims))
end

end
