using ComponentArrays: ComponentVector
using ForwardDiff: ForwardDiff
using PaddleChainRules: PaddleFCNet, PaddleModuleWrapper, derivative, laplacian, luxlayer, paddle
using PythonCall
using Random: Random, Xoshiro
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
    value(z) = sum(layer(z, ps, st)[1])
    @test Zygote.hessian(value, [1, -2]) == Zygote.hessian(value, [1.0, -2.0])
    # In the type of the parameters, where that is not the net's.
    wide = luxlayer(PaddleFCNet(2, 1, 2, 3; seed = 4))
    @test wide(x, ps, st)[1] == layer(x, ps, st)[1]
end

"Value and gradients of a layer by input and parameters."
function value_and_gradients(layer, x, ps, st)
    loss(x, ps) = sum(abs2, layer(x, ps, st)[1])
    return layer(x, ps, st)[1], Zygote.gradient(loss, x, ps)...
end

@testset "of two floating types the wider, parameters $kind" for (kind, form) in (
    ("by name", identity), ("as a ComponentVector", ComponentVector), ("as a vector", ps -> collect(ComponentVector(ps))),
)
    layer = luxlayer(PaddleFCNet(2, 3, 3, 4; activation = "tanh", seed = 4))
    drawn, st = LuxCore.setup(Xoshiro(2), layer)
    ps, wide, x = form(drawn), form(map(p -> Float64.(p), drawn)), randn(Xoshiro(1), 2, 5)
    numbers(p) = p isa NamedTuple ? collect(ComponentVector(p)) : collect(p)
    y, x̄, p̄ = value_and_gradients(layer, x, ps, st)
    expected = value_and_gradients(layer, x, wide, st)
    @test y isa Matrix{Float64} && y == expected[1]
    @test x̄ == expected[2] && typeof(p̄) == typeof(ps)
    @test numbers(p̄) == Float32.(numbers(expected[3]))
    y, x̄, p̄ = value_and_gradients(layer, Float32.(x), wide, st)
    expected = value_and_gradients(layer, Float64.(Float32.(x)), wide, st)
    @test y == expected[1] && numbers(p̄) == numbers(expected[3])
    @test x̄ == Float32.(expected[2]) && x̄ isa Matrix{Float32}
    of(x, ps) = ForwardDiff.jacobian(z -> layer(z, ps, st)[1], x)
    @test of(x, ps) == of(x, wide)
    @test of(Float32.(x), wide) == of(Float64.(Float32.(x)), wide)
    kind == "as a vector" && @test ForwardDiff.gradient(p -> sum(layer(x, p, st)[1]), ps) isa Vector{Float64}
    @test_throws "BigFloat" layer(big.(x), ps, st)
end

@testset "with buffers the widest of all" begin
    layer = luxlayer(PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4))))
    ps, st = LuxCore.setup(Xoshiro(2), layer)
    double(xs) = map(x -> x isa AbstractArray ? Float64.(x) : x, xs)
    wide, x = merge(st, (; buffers = double(st.buffers))), randn(Xoshiro(1), 3, 5)
    expected, next = layer(x, double(ps), wide)
    for (x, ps, st) in ((x, ps, st), (x, double(ps), st), (x, ps, wide))
        y, found = layer(x, ps, st)
        @test y == layer(Float64.(x), double(ps), wide)[1] && found == next
    end
end

@testset "a chain of Linear layers takes nothing from the generator for its state" begin
    chain = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 2))
    drawing = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Dropout(0.5))
    after(layer) = (Random.seed!(5); LuxCore.initialstates(Random.default_rng(), layer); rand())
    first_number = (Random.seed!(5); rand())
    @test after(luxlayer(PaddleFCNet(3, 2, 2, 4))) == first_number
    @test after(luxlayer(PaddleModuleWrapper(chain))) == first_number
    @test after(luxlayer(PaddleModuleWrapper(drawing))) != first_number
end
