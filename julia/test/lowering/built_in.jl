# The built-in activations that lower.jl leaves.

using PaddleChainRules: PaddleFCNet, PaddleNet, lower
using Random: Xoshiro
using SpecialFunctions: SpecialFunctions

include("../oracle.jl")

const BUILT_IN = ("identity", "sigmoid", "relu", "silu", "softplus", "elu", "sin")

include("each_built_in.jl")
