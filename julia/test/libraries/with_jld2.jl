# Included by jld2.jl where JLD2 and Lux are there.

using ComponentArrays: ComponentArray
using JLD2: JLD2
using Lux: Lux
using Optimisers: Optimisers
using PaddleChainRules: PaddleModuleWrapper, luxlayer, paddle
using Random: Xoshiro

function normed()
    paddle.seed(1)
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Dropout(0.5))
    return PaddleModuleWrapper(layer)
end

@testset "what is saved is loaded" begin
    model = Lux.Chain(luxlayer(normed()), Lux.Dense(4 => 2))
    ps, st = Lux.setup(Xoshiro(0), model)
    x = randn(Xoshiro(1), Float32, 3, 6)
    y, st = model(x, ps, st)
    opt = Optimisers.setup(Optimisers.Adam(), ps)
    path = joinpath(mktempdir(), "model.jld2")
    JLD2.jldsave(path; ps, st, opt, flat = ComponentArray(ps))
    found = JLD2.load(path)
    @test found["ps"] == ps && found["st"] == st && found["flat"] == ComponentArray(ps)
    @test model(x, found["ps"], found["st"]) == model(x, ps, st) == model(x, found["flat"], st)
    grads = map(p -> map(copy, p), ps)
    @test Optimisers.update(found["opt"], found["ps"], grads)[2] == Optimisers.update(opt, ps, grads)[2]
    wrapper = normed()
    JLD2.jldsave(path; params = wrapper.params)
    @test JLD2.load(path, "params") == wrapper.params
end
