using Optimisers: Optimisers
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

# Line by line what its README shows; both ways of making the wrapper.
const EARLIER_SCRIPT = """
using PaddleChainRules.Paddle: paddle, PaddleModuleWrapper, PaddleFCNet
using Zygote

dim_ins = 3
hidden_size = 16
dim_outs = 2
batch_size = 32
num_layers = 2

NN = paddle.nn.Sequential(
        paddle.nn.Linear(dim_ins, hidden_size),
        paddle.nn.Sigmoid(),
        paddle.nn.Linear(hidden_size, dim_outs)
    )

jlwrap = PaddleModuleWrapper(NN)
MAKE_ANOTHER

input = rand(Float32, dim_ins, batch_size)

output = jlwrap(input)

target = rand(Float32, dim_outs, batch_size)
loss(m, x, y) = sum(abs2.(m(x) .- y))

# grad of params
grad, = Zygote.gradient(m->loss(m, input, target), jlwrap)
# grad of input
gradx, = Zygote.gradient(x->loss(jlwrap, x, target), input)
"""
const ANOTHER =
    "jlwrap = PaddleFCNet(dim_ins, dim_outs, num_layers, hidden_size; activation=\"sigmoid\")"

"Of names that a script has bound: in a function called after it, since Julia 1.12 has bindings of their time."
function check_script(r)
    @test size(r.output) == (2, 32)
    @test length(r.grad.params) == length(r.jlwrap.params) == 4
    for i in 1:4
        @test size(r.grad.params[i]) == size(r.jlwrap.params[i])
    end
    @test size(r.gradx) == (3, 32)
    W1, b1, W2, b2 = r.jlwrap.params
    expected = Zygote.gradient(r.jlwrap.params, r.input) do (W1, b1, W2, b2), x
        sum(abs2, W2 * (1 ./ (1 .+ exp.(-(W1 * x .+ b1)))) .+ b2 .- r.target)
    end
    @test all(map((a, b) -> same(a, b; rtol = 1e-4), r.grad.params, expected[1]))
    @test same(r.gradx, expected[2]; rtol = 1e-4)
end

@testset "a script of the earlier package runs as it is" begin
    for another in ("", ANOTHER)
        r = Module()
        Base.include_string(r, replace(EARLIER_SCRIPT, "MAKE_ANOTHER" => another))
        Base.invokelatest(check_script, r)
    end
end

@testset "destructure" begin
    wrapper = PaddleFCNet(3, 2, 3, 4; dtype = "float64", seed = 5)
    x, c = randn(Xoshiro(1), 3, 5), randn(Xoshiro(2), 2, 5)
    theta, re = Optimisers.destructure(wrapper)
    @test theta == reduce(vcat, vec.(wrapper.params))
    @test re(theta)(x) == wrapper(x)
    @test re(theta) isa PaddleModuleWrapper
    (g,) = Zygote.gradient(t -> sum(c .* re(t)(x)), theta)
    (g2,) = Zygote.gradient(t -> sum(c .* PaddleNet(wrapper)(x, t)), theta)
    @test same(g, g2; rtol = 1e-13, atol = 1e-14)
end

function fit(update, wrapper, steps)
    x = randn(Xoshiro(1), 2, 16)
    y = sum(sin, x; dims = 1)
    state = Optimisers.setup(Optimisers.Adam(0.05), wrapper)
    loss(m) = sum(abs2, m(x) .- y) / 16
    losses = Float64[]
    for _ in 1:steps
        value, (gradient,) = Zygote.withgradient(loss, wrapper)
        push!(losses, value)
        state, wrapper = update(state, wrapper, gradient)
    end
    return losses, wrapper
end

@testset "Optimisers trains, with update and update!" begin
    first_net = PaddleFCNet(2, 1, 2, 16; dtype = "float64", activation = "tanh", seed = 2)
    before = deepcopy(first_net.params)
    losses, trained = fit(Optimisers.update, first_net, 40)
    @test losses[end] < losses[1] / 20
    @test first_net.params == before
    @test trained.params != before

    second_net = PaddleFCNet(2, 1, 2, 16; dtype = "float64", activation = "tanh", seed = 2)
    in_place, same_net = fit(Optimisers.update!, second_net, 40)
    @test in_place ≈ losses rtol = 1e-10
    @test same_net.params[1] === second_net.params[1]
end

@testset "the losses of paddle.optimizer.SGD on the same parameters" begin
    layer = sequential()
    wrapper = PaddleModuleWrapper(layer)
    x, y = randn(Xoshiro(1), Float32, 3, 20), randn(Xoshiro(2), Float32, 2, 20)
    tx, ty = to_tensor(x), to_tensor(y)
    optimizer = paddle.optimizer.SGD(learning_rate = 0.1, parameters = layer.parameters())
    state = Optimisers.setup(Optimisers.Descent(0.1f0), wrapper)
    for _ in 1:20
        loss = ((layer(tx) - ty)^2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        value, (gradient,) = Zygote.withgradient(m -> sum(abs2, m(x) .- y) / length(y), wrapper)
        @test value ≈ PythonCall.pyconvert(Float32, loss.item()) rtol = 1e-5
        state, wrapper = Optimisers.update!(state, wrapper, gradient)
    end
end
