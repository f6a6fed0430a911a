using FiniteDifferences: central_fdm, grad
using ForwardDiff: ForwardDiff
using Functors: fmap
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, laplacian, lower,
    paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const BUILT_IN = ("tanh", "gelu", "leaky_relu")

@testset "functions of other packages" begin
    needed = PaddleChainRules.Operators.needed
    @test needed("t1 = tanh.(p1 * i1)") == Dict()
    @test needed("t1 = gelu.(i1)") == Dict(:SpecialFunctions => (:erf,))
    @test needed("t1 = conv(i1, p1; flipped = true)") == Dict(:NNlib => (:conv,))
end

using SpecialFunctions: SpecialFunctions

include("each_built_in.jl")

@testset "gradients equal those of the rules" begin
    wrapper = PaddleFCNet(3, 2, 3, 5; dtype = "float64", activation = "tanh", seed = 7)
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), 3, 4)
    theta, c = reduce(vcat, vec.(wrapper.params)), randn(Xoshiro(2), 2, 4)
    found = Zygote.gradient((x, t) -> sum(c .* lower(net)(x, t)), x, theta)
    expected = Zygote.gradient((x, t) -> sum(c .* net(x, t)), x, theta)
    @test all(map((a, b) -> same(a, b; rtol = 1e-12, atol = 1e-13), found, expected))
    by_module = Zygote.gradient(m -> sum(c .* m(x)), lower(wrapper))[1]
    @test same(reduce(vcat, vec.(by_module.params)), expected[2]; rtol = 1e-12, atol = 1e-13)
end

@testset "ForwardDiff enters" begin
    wrapper = PaddleFCNet(2, 1, 3, 4; dtype = "float64", activation = "silu", seed = 7)
    f, x = lower(wrapper), randn(Xoshiro(1), 2)
    H = ForwardDiff.hessian(x -> only(f(x)), x)
    @test same([H[1, 1] + H[2, 2]], laplacian(wrapper, x); rtol = 1e-12, atol = 1e-13)
    @test same([H[1, 2]], derivative(wrapper, x, (1, 1)); rtol = 1e-12, atol = 1e-13)
    big_x = big.(x)
    @test f(big_x) ≈ wrapper(x)
end

@testset "parameters are shared, and mapped" begin
    wrapper = PaddleFCNet(3, 2, 2, 4; seed = 7)
    lowered, x = lower(wrapper), randn(Xoshiro(1), Float32, 3, 4)
    wrapper.params[1] .*= 2
    @test same(lowered(x), wrapper(x))
    doubled = fmap(p -> 2p, lowered)
    @test doubled.params == map(p -> 2p, wrapper.params)
    @test same(doubled(x), fmap(p -> 2p, wrapper)(x))
    @test startswith(sprint(show, lowered.net), "Lowered(FCNet(3 => 4 => 2")
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 2))
    @test same(lower(PaddleModuleWrapper(layer))(x), PaddleModuleWrapper(layer)(x))
end

@testset "what takes so many of the samples, which may be all" begin
    space = pydict()
    pyexec(
        """
        import paddle
        class Some(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.linear = paddle.nn.Linear(3, 2)
            def forward(self, x):
                y = self.linear(x)
                return y + y[:8].mean(0)
        made = Some()
        """,
        space,
    )
    wrapper, x = PaddleModuleWrapper(space["made"]; jit = true), randn(Xoshiro(1), Float32, 3, 5)
    lowered = lower(wrapper, x)
    @test same(lowered(x), wrapper(x); rtol = 1.0f-5)
    @test occursin("for 5 samples alone", sprint(show, MIME("text/plain"), lowered.net))
end
