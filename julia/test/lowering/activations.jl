using PaddleChainRules: PaddleFCNet, PaddleNet, derivative, derivatives, laplacian, lower
using Random: Xoshiro
using SpecialFunctions: SpecialFunctions
using Zygote: Zygote

include("../oracle.jl")

const ACTIVATIONS = ("identity", "sigmoid", "relu", "gelu", "silu", "softplus", "elu", "leaky_relu", "sin")

include("each_activation.jl")
