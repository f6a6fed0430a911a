# Second derivatives, against central differences of first ones; zygote_in_zygote.jl has more.

using PaddleChainRules: PaddleModuleWrapper, PaddleNet, paddle, vjp
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("slopes.jl")

@testset "a pullback is differentiable: $name" for (name, make, x) in (
    ("chain", perceptron, randn(Xoshiro(1), 3, 4)),
    ("a tuple", perceptron, (randn(Xoshiro(1), 3, 4),)),
)
    layer = make()
    net, params = PaddleNet(PaddleModuleWrapper(layer)), PaddleModuleWrapper(layer).params
    c = randn(Xoshiro(3), 2, 4)
    @test unchanged(layer) do
        @test right((x, ps, c) -> penalty(net, x, ps, c), x, params, c)
    end
end

@testset "the product with a Hessian" begin
    layer = perceptron()
    net, ps = PaddleNet(PaddleModuleWrapper(layer)), PaddleModuleWrapper(layer).params
    x, v = randn(Xoshiro(1), 3, 4), randn(Xoshiro(4), 3, 4)
    gradient(x) = vjp(net, x, ps, 2 .* net(x, ps))[1] # of sum(abs2, net(x, ps))
    product = Zygote.gradient(x -> sum(v .* gradient(x)), x)[1]
    expected = (gradient(x .+ 1e-5 .* v) .- gradient(x .- 1e-5 .* v)) ./ 2e-5
    @test isapprox(product, expected; rtol = 1e-7)
    err = @test_throws ArgumentError Zygote.gradient(x) do x
        sum(sin, Zygote.gradient(x -> sum(v .* gradient(x)), x)[1])
    end
    @test occursin("end at the second order", err.value.msg)
end

@testset "a random net with statistics" begin
    paddle.seed(1)
    layer = python_module("layers").Noisy(; dropout = 0.0).to(dtype = "float64")
    w = PaddleModuleWrapper(layer)
    x, c = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)
    @test unchanged(layer) do
        @test right((x, ps) -> sum(sin, vjp(w.net, x, ps, c; seed = 5)[1]), x, w.params)
    end
end

@testset "where Paddle's kernels end, rules go on" begin
    paddle.set_default_dtype("float64")
    layer = paddle.nn.LSTM(3, 4)
    paddle.set_default_dtype("float32")
    w, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 5, 2)
    ȳ = (randn(Xoshiro(2), 4, 5, 2), nothing)
    f(x, ps) = sum(sin, vjp(w.net, x, ps, ȳ)[1])
    @test right(f, x, w.params)
    plain = PaddleModuleWrapper(layer; jit = false)
    @test right((x, ps) -> sum(sin, vjp(plain.net, x, ps, ȳ)[1]), x, plain.params)
end
