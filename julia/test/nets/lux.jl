using PaddleChainRules: PaddleFCNet, PaddleModuleWrapper, derivative, laplacian, luxlayer, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

@testset "without LuxCore a sentence" begin
    err = @test_throws ArgumentError luxlayer(1)
    @test occursin("using LuxCore", err.value.msg)
end

using LuxCore: LuxCore

@testset "with LuxCore it says what it takes" begin
    wrapper = PaddleFCNet(3, 2, 2, 4)
    err = @test_throws ArgumentError luxlayer(wrapper.net)
    @test occursin("luxlayer takes a wrapper", err.value.msg) && !occursin("using LuxCore", err.value.msg)
    @test_throws "Python's Linear" luxlayer(paddle.nn.Linear(3, 2))
end

@testset "a net is a layer of Lux" begin
    wrapper = PaddleFCNet(3, 2, 3, 4; activation = "tanh", seed = 1)
    layer = luxlayer(wrapper)
    @test layer isa LuxCore.AbstractLuxLayer
    @test LuxCore.parameterlength(layer) == sum(length, wrapper.params)
    @test LuxCore.statelength(layer) == 0
    @test sprint(show, layer) == "luxlayer($(wrapper.net))"
    ps, st = LuxCore.setup(Xoshiro(3), layer)
    @test st === NamedTuple()
    @test collect(keys(ps)) == wrapper.net.names
    @test map(size, values(ps)) == map(size, wrapper.params)
    @test LuxCore.initialparameters(Xoshiro(3), layer) == ps
    @test LuxCore.initialparameters(Xoshiro(4), layer) != ps
    x = randn(Xoshiro(1), Float32, 3, 5)
    y, st2 = layer(x, ps, st)
    @test st2 === st
    @test same(y, PaddleModuleWrapper(wrapper.net, values(ps))(x))
    @test LuxCore.apply(layer, x, ps, st) == (y, st)
    gx, gps = Zygote.gradient((x, ps) -> sum(abs2, first(layer(x, ps, st))), x, ps)
    ex, eps = Zygote.gradient((x, ps) -> sum(abs2, wrapper.net(x, ps)), x, ps)
    @test same(gx, ex)
    @test keys(gps) == keys(ps)
    @test all(map(same, values(gps), values(eps)))
    u = laplacian(wrapper.net, x, ps)
    @test same(u, laplacian(PaddleModuleWrapper(wrapper.net, values(ps)), x))
end

@testset "any layer of Paddle starts from its own parameters" begin
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.LayerNorm(4))
    wrapper = PaddleModuleWrapper(layer)
    ps, st = LuxCore.setup(Xoshiro(3), luxlayer(wrapper))
    @test values(ps) == wrapper.params
    @test values(ps)[1] !== wrapper.params[1]
    x = randn(Xoshiro(1), Float32, 3, 5)
    @test same(first(luxlayer(wrapper)(x, ps, st)), wrapper(x))
end

@testset "whole numbers are taken as Lux's Dense takes them" begin
    layer = luxlayer(PaddleFCNet(2, 1, 2, 3; dtype = "float64", seed = 4))
    ps, st = LuxCore.setup(Xoshiro(2), layer)
    x = [0 1 -1; 2 0 1]
    @test layer(x, ps, st)[1] == layer(Float64.(x), ps, st)[1]
    @test Zygote.gradient(ps -> sum(abs2, layer(x, ps, st)[1]), ps)[1] ==
          Zygote.gradient(ps -> sum(abs2, layer(Float64.(x), ps, st)[1]), ps)[1]
    @test_throws "Float32" layer(Float32.(x), ps, st)
end
