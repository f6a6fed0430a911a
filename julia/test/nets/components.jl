using ComponentArrays: ComponentVector, getdata
using ForwardDiff: ForwardDiff
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleNet, derivatives, laplacian, lower
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

@testset "parameters as a ComponentVector, $kind" for (kind, of) in (("Paddle", identity), ("lowered", lower))
    wrapper = PaddleFCNet(3, 2, 3, 5; dtype = "float64", activation = "tanh", seed = 7)
    net, x = of(PaddleNet(wrapper)), randn(Xoshiro(1), 3, 4)
    named = NamedTuple{Tuple(PaddleNet(wrapper).names)}(wrapper.params)
    ps, theta = ComponentVector(named), reduce(vcat, vec.(wrapper.params))
    @test getdata(ps) == theta
    losses = (
        (x, p) -> sum(abs2, net(x, p)),
        (x, p) -> sum(abs2, laplacian(net, x, p)),
        (x, p) -> sum(sum.(derivatives(net, x, p, ((0, 1, 0), (1, 0, 1))))),
    )
    for loss in losses
        @test loss(x, ps) == loss(x, theta)
        x̄, p̄ = Zygote.gradient(loss, x, ps)
        expected = Zygote.gradient(loss, x, theta)
        @test p̄ isa ComponentVector && keys(p̄) == keys(named)
        @test same(x̄, expected[1]; rtol = 1e-12, atol = 1e-13)
        @test same(collect(p̄), expected[2]; rtol = 1e-12, atol = 1e-13)
        @test same(p̄.var"1.weight", Zygote.gradient(loss, x, named)[2].var"1.weight"; rtol = 1e-12, atol = 1e-13)
    end
    @test PaddleChainRules.dense(ps) === getdata(ps) # shared, not copied
    slopes = ForwardDiff.gradient(p -> sum(abs2, net(x, p)), ps)
    @test same(collect(slopes), Zygote.gradient(losses[1], x, theta)[2]; rtol = 1e-12, atol = 1e-13)
    # A part of a larger one, as Lux and NeuralPDE hand it over.
    both = ComponentVector(; u = named, v = map(p -> 2p, named))
    loss(b) = losses[2](x, b.u) + 3losses[1](x, b.v)
    found = Zygote.gradient(loss, both)[1]
    @test same(collect(found.u), Zygote.gradient(losses[2], x, theta)[2]; rtol = 1e-12, atol = 1e-13)
    @test same(collect(found.v), 3Zygote.gradient(losses[1], x, 2theta)[2]; rtol = 1e-12, atol = 1e-13)
    # Names in another order would silently be other parameters.
    reversed = ComponentVector(NamedTuple{reverse(keys(named))}(named))
    for call in (() -> net(x, reversed), () -> laplacian(net, x, reversed))
        err = @test_throws ArgumentError call()
        @test occursin("in that order", err.value.msg)
    end
end
