# Convolution, pooling and stacks of matrices for lowered nets.
module PaddleChainRulesNNlibExt

using NNlib: NNlib
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

end
