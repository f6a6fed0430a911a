# Included by enzyme.jl where EnzymeCore is there: its rules, called as Enzyme calls them.

using EnzymeCore: Const, Duplicated, EnzymeRules
using PaddleChainRules: PaddleFCNet, PaddleNet

@testset "Enzyme is refused: $name" for (name, net) in (
    (string(nameof(typeof(f))), f) for f in (PaddleFCNet(3, 2, 2, 4), PaddleNet(PaddleFCNet(3, 2, 2, 4)))
)
    x = rand(Float32, 3, 4)
    args = net isa PaddleNet ? (Duplicated(x, zero(x)), Const(rand(Float32, net.nparams))) : (Duplicated(x, zero(x)),)
    wide = ntuple(Returns(false), length(args) + 1)
    reverse = EnzymeRules.RevConfig{true,true,1,wide,false,false}()
    forward = EnzymeRules.FwdConfig{true,true,1,false,false}()
    Y = Duplicated{Matrix{Float32}}
    @test_throws "Enzyme can't differentiate" EnzymeRules.augmented_primal(reverse, Const(net), Y, args...)
    @test_throws "take Zygote" EnzymeRules.reverse(reverse, Const(net), Y, nothing, args...)
    @test_throws "lower(net, x)" EnzymeRules.forward(forward, Const(net), Y, args...)
    types = Tuple{typeof(reverse),Const{typeof(net)},Type{Y},map(typeof, args)...}
    @test EnzymeRules.isapplicable(EnzymeRules.augmented_primal, types)
end
