# A net by each backend of DifferentiationInterface, beside differences.

using DifferentiationInterface: DifferentiationInterface as DI
using FiniteDifferences: central_fdm, grad, jacobian
using Functors: fmap
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using Random: Xoshiro

include("../oracle.jl")

near(a, b) = same(a, b; rtol = 1e-6, atol = 1e-8)
differences(f, x) = grad(central_fdm(3, 1; adapt = 0), f, x)[1]

const X, C = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)

"A wrapper of Paddle's layers, and its parameters as one vector and as a named tuple."
function made()
    paddle.seed(4)
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 2)).to(dtype = "float64")
    w = PaddleModuleWrapper(layer)
    named = NamedTuple{Tuple(w.net.names)}(w.params)
    return w, PaddleNet(w), reduce(vcat, vec.(w.params)), named
end

"What users ask of a backend: gradients by input and parameters, and a Jacobian."
function check_backend(backend)
    w, net, theta, named = made()
    by_x(x) = sum(abs2, C .* w(x)) + sum(x)
    by_theta(θ) = sum(sin, net(X, θ)) + sum(abs2, net(2 .* X, θ))
    rows(θ) = vec(net(X, θ))
    @test near(DI.gradient(by_x, backend, X), differences(by_x, X))
    @test near(DI.gradient(by_theta, backend, theta), differences(by_theta, theta))
    prepared = DI.prepare_gradient(by_theta, backend, theta)
    value, found = DI.value_and_gradient(by_theta, prepared, backend, 2 .* theta)
    @test value ≈ by_theta(2 .* theta) && near(found, differences(by_theta, 2 .* theta))
    @test near(DI.jacobian(rows, backend, theta), jacobian(central_fdm(3, 1; adapt = 0), rows, theta)[1])
    # Both at once, from one vector.
    both(v) = sum(abs2, net(reshape(v[1:18], 3, 6), v[19:end]))
    v = [vec(X); theta]
    @test near(DI.gradient(both, backend, v), differences(both, v))
    # Parameters in their form by name, made of one vector.
    split(θ) = (parts = cumsum([0, length.(values(named))...]);
    NamedTuple{keys(named)}(Tuple(reshape(θ[parts[i]+1:parts[i+1]], size(named[i])) for i in 1:length(named))))
    by_name(θ) = sum(abs2, C .* net(X, split(θ)))
    @test near(DI.gradient(by_name, backend, theta), differences(by_name, theta))
end

"A function of an array by a net with several results."
function of_several()
    paddle.seed(5)
    w = fmap(a -> Float64.(a), PaddleModuleWrapper(paddle.nn.LSTM(3, 4)))
    return x -> (found = w(x); sum(sin, found[1]) + sum(abs2, found[2][1]))
end
const SEQUENCES = randn(Xoshiro(3), 3, 5, 2)
