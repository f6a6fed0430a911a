# Included by interface.jl where DifferentiationInterface is there.

using DifferentiationInterface: DifferentiationInterface as DI
using PaddleChainRules: PaddleModuleWrapper, PaddleNet, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

exact(a, b) = same(a, b; rtol = 1e-12, atol = 1e-13)

@testset "DifferentiationInterface" begin
    paddle.seed(4)
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 2)).to(dtype = "float64")
    w, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 6)
    net, theta = PaddleNet(w), reduce(vcat, vec.(w.params))
    c, backend = randn(Xoshiro(2), 2, 6), DI.AutoZygote()
    _, by_param, (by_x,) = native(layer, (x,), (c,))
    flat = reduce(vcat, vec.(by_param))
    @test exact(DI.gradient(x -> sum(c .* w(x)), backend, x), by_x)
    @test exact(DI.gradient(p -> sum(c .* net(x, p)), backend, theta), flat)
    f(p) = sum(c .* net(x, p))
    prepared = DI.prepare_gradient(f, backend, theta)
    @test exact(DI.gradient(f, prepared, backend, 2theta), Zygote.gradient(f, 2theta)[1])
    value, found = DI.value_and_gradient((p, x) -> sum(c .* net(x, p)), backend, theta, DI.Constant(x))
    @test value ≈ sum(c .* w(x)) && exact(found, flat)
    @test exact(only(DI.pullback(p -> net(x, p), backend, theta, (c,))), flat)
    jacobian = DI.jacobian(p -> vec(net(x, p)), backend, theta)
    @test exact(jacobian' * vec(c), flat)
end
