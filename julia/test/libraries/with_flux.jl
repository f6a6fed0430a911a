# Included by flux.jl where Flux is there.

using FiniteDifferences: central_fdm, grad
using Flux: DataLoader, Flux
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

near(a, b) = same(a, b; rtol = 1e-6, atol = 1e-8)

const X, Y = randn(Xoshiro(1), Float32, 3, 40), randn(Xoshiro(2), Float32, 2, 40)

function made()
    paddle.seed(1)
    layer = paddle.nn.Sequential(paddle.nn.Linear(4, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 4))
    init = Flux.glorot_uniform(Xoshiro(3))
    return Flux.Chain(Flux.Dense(3 => 4, tanh; init), PaddleModuleWrapper(layer), Flux.Dense(4 => 2; init))
end
loss(model, x, y) = Flux.mse(model(x), y)

@testset "gradients in a chain" begin
    chain, x, y = Flux.f64(made()), Float64.(X), Float64.(Y)
    theta, rebuild = Flux.destructure(chain)
    @test length(theta) == 16 + 25 + 24 + 10
    by_chain, by_x = Flux.gradient(loss, chain, x, y)
    @test near(Flux.destructure(by_chain)[1], grad(central_fdm(3, 1; adapt = 0), t -> loss(rebuild(t), x, y), theta)[1])
    @test near(by_x, grad(central_fdm(3, 1; adapt = 0), x -> loss(chain, x, y), x)[1])
    @test near(Flux.gradient(t -> loss(rebuild(t), x, y), theta)[1], Flux.destructure(by_chain)[1])
end

@testset "setup and update! by hand, and train!, over a DataLoader" begin
    by_hand, by_train = made(), made()
    loader() = DataLoader((X, Y); batchsize = 8, shuffle = true, rng = Xoshiro(7))
    before = loss(by_hand, X, Y)
    state, other = Flux.setup(Flux.Adam(0.01), by_hand), Flux.setup(Flux.Adam(0.01), by_train)
    for epoch in 1:8
        for (x, y) in loader()
            grads = Flux.gradient(m -> loss(m, x, y), by_hand)
            Flux.update!(state, by_hand, grads[1])
        end
        Flux.train!(loss, by_train, loader(), other)
    end
    @test loss(by_hand, X, Y) < before
    @test isapprox(Flux.destructure(by_hand)[1], Flux.destructure(by_train)[1]; rtol = 1e-5)
end

@testset "frozen by Flux, and by this package" begin
    chain = made()
    state = Flux.setup(Flux.Descent(0.1), chain)
    Flux.freeze!(state.layers[2])
    kept = deepcopy(chain[2].params)
    Flux.train!(loss, chain, [(X, Y)], state)
    @test chain[2].params == kept && chain[1].weight != made()[1].weight
    half = Flux.Chain(chain[1], PaddleChainRules.freeze(chain[2], "0.*"), chain[3])
    Flux.train!(loss, half, [(X, Y)], Flux.setup(Flux.Descent(0.1), half))
    @test half[2].params[1:2] == kept[1:2] && half[2].params[3] != kept[3]
end

@testset "state and loadmodel!, precision and devices" begin
    chain, other = made(), made()
    Flux.train!(loss, chain, [(X, Y)], Flux.setup(Flux.Descent(0.1), chain))
    @test loss(chain, X, Y) != loss(other, X, Y)
    Flux.loadmodel!(other, Flux.state(chain))
    @test loss(chain, X, Y) == loss(other, X, Y)
    for move in (Flux.cpu, Flux.gpu, Flux.f32) # without a GPU, gpu leaves it
        @test move(chain)(X) ≈ chain(X) # other code may serve a copy
    end
    @test eltype(Flux.f64(chain)(Float64.(X))) == Float64
    # Flux's layers turn inputs to their own precision, with a warning; a wrapper says which differ.
    @test_throws "the input has element type Float64, the net needs Float32" chain[2](rand(4, 2))
end

@testset "value_and_gradient! takes Flux's losses: $name" for (name, loss, target) in (
    ("mse", Flux.mse, :any), ("mae", Flux.mae, :any), ("huber", Flux.huber_loss, :any),
    ("logitcrossentropy", Flux.logitcrossentropy, :one), ("crossentropy", (ŷ, y) -> Flux.crossentropy(Flux.softmax(ŷ), y), :one),
    ("kldivergence", (ŷ, y) -> Flux.kldivergence(Flux.softmax(ŷ), y), :shares),
    ("logitbinarycrossentropy", Flux.logitbinarycrossentropy, :one),
    ("focal", (ŷ, y) -> Flux.focal_loss(Flux.softmax(ŷ), y), :one), ("poisson", (ŷ, y) -> Flux.poisson_loss(exp.(ŷ), y), :any),
    ("logsumexp", (ŷ, y) -> sum(Flux.logsumexp(ŷ; dims = 1) .* y[1:1, :]), :any),
    ("relu, softplus, logsigmoid", (ŷ, y) -> sum(Flux.relu.(ŷ) .+ Flux.softplus.(ŷ) .* y .+ Flux.logsigmoid.(ŷ)), :any),
)
    wrapper = PaddleFCNet(3, 4, 2, 5; activation = "tanh", dtype = "float64", seed = 0)
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    x, drawn = randn(Xoshiro(1), 3, 7), randn(Xoshiro(2), 4, 7)
    y = target === :one ? Float64.(Flux.onehotbatch([1, 2, 3, 4, 1, 2, 3], 1:4)) : target === :shares ? Flux.softmax(drawn) : drawn
    grads = similar(theta)
    value, (expected,) = Zygote.withgradient(theta -> loss(net(x, theta), y), theta)
    @test PaddleChainRules.value_and_gradient!(grads, net, x, theta, loss, y) ≈ value
    @test grads ≈ expected
end

@testset "train! has the slopes of Flux's activations, at zero too: $f" for f in (
    Flux.celu, Flux.elu, Flux.gelu, Flux.NNlib.gelu_erf, Flux.hardswish, Flux.leakyrelu, Flux.lisht, Flux.logcosh, Flux.logsigmoid,
    Flux.mish, Flux.relu, Flux.selu, Flux.sigmoid, Flux.sigmoid_fast, Flux.softplus, Flux.softshrink, Flux.softsign, Flux.swish,
    Flux.tanhshrink, Flux.tanh_fast, Flux.trelu,
)
    start = [-7.0, -1.0, -0.3, 0.0, 0.2, 1.0, 2.5, 8.0]
    moved, weights = copy(start), collect(1.0:8)
    loss(p) = sum(f.(p) .* weights)
    losses = PaddleChainRules.train!(loss, moved, Flux.Optimisers.setup(Flux.Optimisers.Descent(1.0), moved); steps = 1)
    @test only(losses) ≈ loss(start)
    @test start .- moved ≈ only(Zygote.gradient(loss, start)) rtol = 1e-7
end
