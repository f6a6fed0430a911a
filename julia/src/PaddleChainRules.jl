"""
PaddlePaddle nets as differentiable Julia functions.

A Julia array of size `(d, n)` is the Paddle tensor of shape `[n, d]`, the same bytes: see
[`lend`](@ref PaddleChainRules.lend) for the layout law. [`PaddleModuleWrapper`](@ref) wraps
any `paddle.nn.Layer`, [`PaddleFCNet`](@ref) makes a fully connected net, and
[`PaddleNet`](@ref) is the stateless form `net(x, ps)`.
"""
module PaddleChainRules

include("paddle.jl")
export paddle

include("threads.jl")

include("exchange.jl")

include("held.jl")

include("net.jl")
export PaddleFCNet, PaddleModuleWrapper, PaddleNet

include("nested.jl")

include("state.jl")

include("files.jl")

include("derivatives.jl")
export derivative, derivatives, jvp, laplacian, vjp

include("activations.jl")

include("lower.jl")
export lower

include("carried.jl")

include("neuralpde.jl")
export exact_derivative, stencil_derivative

include("lux.jl")
export luxlayer

include("pullback.jl")

include("rules.jl")

include("twice.jl")

include("testing.jl")

include("precompile.jl")

"""
The names under which scripts of the earlier package find them:
`using PaddleChainRules.Paddle: paddle, PaddleModuleWrapper, PaddleFCNet`.
"""
module Paddle
using ..PaddleChainRules: PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
export PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
end

end
