# The nets that derivatives.jl leaves.

using ForwardDiff: ForwardDiff
using PaddleChainRules: PaddleFCNet, PaddleModuleWrapper, derivative, jvp, laplacian, lower
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const ACTIVATIONS = ()
const HIGH_ORDER = ("PirateNet", "SIREN")

include("each_activation.jl") # for what is close
include("each_high_order.jl")
