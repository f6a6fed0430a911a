using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleNet, derivative, derivatives, laplacian, lower
using Random: Xoshiro
using SpecialFunctions: SpecialFunctions
using Zygote: Zygote

include("../oracle.jl")

const ACTIVATIONS = setdiff(PaddleChainRules.crossing(PaddleChainRules.activations), ("tanh",)) # see derivatives.jl

include("each_activation.jl")
