"""
PaddlePaddle nets as differentiable Julia functions.

A Julia array of size `(d, n)` is the Paddle tensor of shape `[n, d]`, the same bytes: see
[`lend`](@ref PaddleChainRules.lend) for the layout law. [`PaddleModuleWrapper`](@ref) wraps
any `paddle.nn.Layer`, [`PaddleFCNet`](@ref) makes a fully connected net, and
[`PaddleNet`](@ref) is the stateless form `net(x, ps)`.
"""
module PaddleChainRules

# Tensors, threads and calls between Julia and Python.
include("crossing/paddle.jl")
export paddle
include("crossing/words.jl")
include("crossing/threads.jl")
include("crossing/dlpack.jl")
include("crossing/devices.jl")
include("crossing/refusals.jl")
include("crossing/calls.jl")
include("crossing/arrays.jl")
include("crossing/gpus.jl")
include("crossing/code.jl")
include("crossing/retained_bytes.jl")

# Nets: a handle on the Python side, parameters on the Julia side.
include("nets/handle.jl")
include("nets/net.jl")
include("nets/buffers.jl")
include("nets/wrapper.jl")
include("nets/fcnet.jl")
export PaddleFCNet, PaddleModuleWrapper, PaddleNet
include("nets/codes.jl")
include("nets/by_code.jl")
include("nets/evaluate.jl")
include("nets/nested.jl")
include("nets/compile.jl")
include("nets/sparse.jl")
include("nets/packed.jl")
include("nets/precision.jl")
include("nets/modes.jl")
include("nets/along.jl")
include("nets/promoted.jl")
include("nets/state.jl")
include("nets/files.jl")
include("nets/streams.jl")
include("nets/lux.jl")
export luxlayer

# Derivatives by the input.
include("derivatives/derivatives.jl")
include("derivatives/jvp.jl")
include("derivatives/per_sample.jl")
export derivatives, laplacian

# Nets as plain Julia.
include("lowering/operators.jl")
include("lowering/lowered.jl")
include("lowering/lower.jl")
include("lowering/save.jl")
export lower, save_lowered
include("lowering/derivatives.jl")

include("derivatives/neuralpde.jl")
export PaddleDerivative, exact_derivative, stencil_derivative

# Pullbacks, and rules for ChainRules.
include("rules/reverse.jl")
include("rules/code_call.jl")
include("rules/row_calls.jl")
include("rules/duals.jl")
include("rules/pullback.jl")
include("rules/handed_out.jl")
include("rules/chain_rules.jl")
include("rules/eager.jl")
include("rules/operators.jl")
include("rules/second_derivatives.jl")
include("rules/promoted.jl")
include("rules/lowered.jl")
include("rules/forward.jl")
export vjp

# Training by steps that are traced.
include("training/traced.jl")
include("training/numbers.jl")
include("training/broadcasts.jl")
include("training/arrays.jl")
include("training/joined.jl")
include("training/nets.jl")
include("training/step.jl")
include("training/steps_by_code.jl")
include("training/known_loops.jl")
include("training/train.jl")
include("training/gradients.jl")
include("training/minimize.jl")

# Many processes.
include("ranks.jl")
export rank_average

include("forms.jl")
include("testing.jl")
include("doctor.jl")
include("precompile.jl")

# What is not exported, since other packages export the name or it says little by itself.
@static if VERSION >= v"1.11"
    eval(
        Expr(
            :public, :LayerError, :LevenbergMarquardt, :Minimum, :Packed, :RankError, :Report, :SecondOrder, :SelfScaledBroyden, :TraceError, :batched_jacobian, :batched_vjp, :check_vjp, :compare, :compile, :crossing, :derivative,
            :doctor, :explain, :forward!, :freeze, :initial_state, :jvp, :load_params, :minimize, :pullback, :save_params, :threaded, :train!,
            :value_and_gradient!, :mse, :logitcrossentropy,
        ),
    )
end

"""
The names under which scripts of the earlier package find them:
`using PaddleChainRules.Paddle: paddle, PaddleModuleWrapper, PaddleFCNet`.
"""
module Paddle
using ..PaddleChainRules: PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
export PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
end

end
