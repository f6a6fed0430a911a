using PaddleChainRules: PaddleModuleWrapper, PaddleNet, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const NETS = python_module("real_nets").NETS

@testset "$name" for name in pyconvert(Vector{String}, pylist(NETS))
    paddle.seed(7)
    layer, args = NETS[name]()
    wrapper = PaddleModuleWrapper(layer)
    xs = Tuple(from_numpy(arg) for arg in args)
    before = snapshot(layer)
    y = wrapper(xs...)
    c = randn(Xoshiro(1), Float32, size(y))
    oracle = pyimport("copy").deepcopy(layer) # whose statistics move
    (expected,), by_param, by_input = native(oracle, xs, (c,))
    close(a, b) = same(a, b; rtol = 1e-4, atol = 1e-4 * maximum(abs, b) + 1e-6)
    @test close(y, expected)
    grads = Zygote.gradient((m, xs...) -> sum(c .* m(xs...)), wrapper, xs...)
    @test length(grads[1].params) == length(by_param)
    @test all(map(close, grads[1].params, Tuple(by_param)))
    floating = [g for (g, x) in zip(grads[2:end], xs) if eltype(x) <: AbstractFloat]
    @test length(floating) == length(by_input)
    @test all(map(close, floating, by_input))
    # The stateless form, by the flat parameters.
    theta = reduce(vcat, vec.(wrapper.params))
    net = PaddleNet(wrapper)
    by_theta = Zygote.gradient(t -> sum(c .* net(length(xs) == 1 ? only(xs) : xs, t)), theta)[1]
    @test close(by_theta, reduce(vcat, vec.(by_param)))
    @test is_unchanged(layer, before)
end
