# Included by lux.jl where Lux is there.

using FiniteDifferences: central_fdm, grad
using Lux: AutoForwardDiff, AutoZygote, Lux, StatefulLuxLayer, Training
using Optimisers: Optimisers, destructure
using PaddleChainRules: PaddleFCNet, PaddleModuleWrapper, luxlayer, paddle
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

near(a, b) = same(a, b; rtol = 1e-6, atol = 1e-8)

"A smooth net of Paddle's in double precision, as a layer of Lux."
function smooth(inputs, outputs)
    paddle.seed(1)
    layer = paddle.nn.Sequential(paddle.nn.Linear(inputs, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, outputs))
    return luxlayer(PaddleModuleWrapper(layer.to(dtype = "float64")))
end

"Models that users make of such a layer, from three inputs to two outputs."
models() = (
    chain = Lux.Chain(smooth(3, 4), Lux.Dense(4 => 2, tanh)),
    between = Lux.Chain(Lux.Dense(3 => 4, tanh), smooth(4, 5), Lux.Dense(5 => 2)),
    skip = Lux.Chain(Lux.SkipConnection(smooth(3, 3), +), Lux.Dense(3 => 2)),
    parallel = Lux.Parallel(+, smooth(3, 2), Lux.Dense(3 => 2, tanh)),
    compact = Lux.@compact(core = smooth(3, 2), scale = [0.5, 2.0]) do x
        y = core(x)
        @return scale .* tanh.(y)
    end,
)
prepared(model, seed = 0) = map(Lux.f64, Lux.setup(Xoshiro(seed), model))

"Gradients by input and parameters beside differences."
function agrees(f, x, ps)
    theta, rebuild = destructure(ps)
    by_x, by_ps = Zygote.gradient(f, x, ps)
    return near(by_x, grad(central_fdm(3, 1; adapt = 0), x -> f(x, ps), x)[1]) &&
           near(destructure(by_ps)[1], grad(central_fdm(3, 1; adapt = 0), t -> f(x, rebuild(t)), theta)[1])
end

"The same along a random direction of both, where each value is a derivative itself."
function agrees_along(f, x, ps)
    theta, rebuild = destructure(ps)
    by_x, by_ps = Zygote.gradient(f, x, ps)
    v, w = randn(Xoshiro(8), size(x)), randn(Xoshiro(9), size(theta))
    slope = central_fdm(3, 1; adapt = 0)(h -> f(x .+ h .* v, rebuild(theta .+ h .* w)), 0.0)
    return isapprox(sum(v .* by_x) + sum(w .* destructure(by_ps)[1]), slope; rtol = 1e-6)
end

const X, Y = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)

@testset "gradients: $name" for (name, model) in pairs(models())
    ps, st = prepared(model)
    @test agrees((x, ps) -> sum(abs2, first(model(x, ps, st)) .- Y), X, ps)
end

@testset "derivatives within a loss: $name" for (name, model) in pairs(models())
    ps, st = prepared(model)
    stateful(ps) = StatefulLuxLayer{true}(model, ps, st)
    for (_, inner) in pairs((
        jacobian = (m, x) -> Lux.batched_jacobian(m, AutoForwardDiff(), x),
        vjp = (m, x) -> Lux.vector_jacobian_product(m, AutoZygote(), x, Y),
        gradient = (m, x) -> Zygote.gradient(sum ∘ (y -> y .^ 2) ∘ m, x)[1],
    ))
        @test over_tasks(() -> agrees_along((x, ps) -> (m = stateful(ps); sum(abs2, inner(m, x)) + sum(sin, m(x))), X, ps))
    end
end

@testset "a closure that Lux does not see through" begin
    # Zygote within Zygote, which the net's rules know; those of Lux's own layers do not.
    layer = smooth(3, 2)
    ps, st = prepared(layer)
    inner(x, ps) = Zygote.gradient(x -> sum(abs2, first(layer(x, ps, st))), x)[1]
    @test agrees_along((x, ps) -> sum(abs2, inner(x, ps)), X, ps)
end

@testset "Training, $name" for (name, model) in pairs(models())
    ps, st = prepared(model)
    state = Training.TrainState(model, ps, st, Optimisers.Adam(0.05))
    loss(model, ps, st, (x, y)) = (z = model(x, ps, st); (sum(abs2, z[1] .- y), z[2], (;)))
    found, value, _, state = Training.compute_gradients(AutoZygote(), loss, (X, Y), state)
    theta, rebuild = destructure(ps)
    by_hand(t) = loss(model, rebuild(t), st, (X, Y))[1]
    @test value ≈ by_hand(theta)
    @test near(destructure(found)[1], grad(central_fdm(3, 1; adapt = 0), by_hand, theta)[1])
    moved = Training.apply_gradients(state, found)
    updated = Optimisers.update(Optimisers.setup(Optimisers.Adam(0.05), ps), ps, found)[2]
    @test destructure(moved.parameters)[1] == destructure(updated)[1] != theta
    for _ in 1:20
        _, _, _, moved = Training.single_train_step!(AutoZygote(), loss, (X, Y), moved)
    end
    @test moved.step == 21 && loss(model, moved.parameters, moved.states, (X, Y))[1] < value / 2
    @test occursin("TrainState", sprint(show, MIME"text/plain"(), moved))
end

@testset "statistics and seeds move on in training" begin
    paddle.seed(1)
    noisy = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Dropout(0.5))
    model = Lux.Chain(luxlayer(PaddleModuleWrapper(noisy)), Lux.Dense(4 => 2))
    ps, st = Lux.setup(Xoshiro(0), model)
    x, y = Float32.(X), Float32.(Y)
    state = Training.TrainState(model, ps, st, Optimisers.Descent(0.1f0))
    for step in 1:3
        before = state.states.layer_1
        _, _, _, state = Training.single_train_step!(AutoZygote(), Lux.MSELoss(), (x, y), state)
        after = state.states.layer_1
        @test after.seed != before.seed && after.buffers.var"1._mean" != before.buffers.var"1._mean"
    end
    quiet = Lux.testmode(state.states)
    @test model(x, state.parameters, quiet)[1] == model(x, state.parameters, quiet)[1]
    @test model(x, state.parameters, quiet)[2].layer_1.buffers == quiet.layer_1.buffers
end

@testset "inputs of another precision than the parameters: $P, $I" for (P, I) in (
    (Float32, Float64), (Float64, Float32),
)
    paddle.seed(1)
    normed = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 2))
    in_type(T, xs) = T === Float64 ? Lux.f64(xs) : Lux.f32(xs)
    for layer in (luxlayer(PaddleFCNet(3, 2, 2, 5; activation = "tanh")), luxlayer(PaddleModuleWrapper(normed)))
        ps, st = map(s -> in_type(P, s), Lux.setup(Xoshiro(0), layer))
        wide, wide_st = map(Lux.f64, (ps, st))
        x = I.(X)
        y, next = layer(x, ps, st)
        expected, wide_next = layer(Float64.(x), wide, wide_st)
        @test eltype(y) == Float64 == eltype(Lux.Dense(3 => 2)(x, in_type(P, Lux.setup(Xoshiro(0), Lux.Dense(3 => 2))[1]), (;))[1])
        @test y == expected && typeof(next) == typeof(wide_next)  # as statistics of Lux.BatchNorm
        isempty(st) || @test all(map((a, b) -> a ≈ b, next.buffers, wide_next.buffers))
        c = randn(Xoshiro(3), 2, 6)
        found = Zygote.gradient((x, ps) -> sum(c .* first(layer(x, ps, st))), x, ps)
        exact = Zygote.gradient((x, ps) -> sum(c .* first(layer(x, ps, wide_st))), Float64.(x), wide)
        @test same(found[1], I.(exact[1])) && all(map((a, b) -> same(a, P.(b)), found[2], exact[2]))
    end
end

@testset "frozen by Lux" begin
    model = Lux.Chain(Lux.Experimental.freeze(smooth(3, 4), (Symbol("0.weight"), Symbol("2.bias"))), Lux.Dense(4 => 2))
    ps, st = prepared(model)
    @test length(ps.layer_1) == 2
    @test agrees((x, ps) -> sum(abs2, first(model(x, ps, st)) .- Y), X, ps)
end

@testset "f64 and devices" begin
    model = models().between
    ps, st = Lux.setup(Xoshiro(0), model) |> Lux.cpu_device()
    @test eltype(ps.layer_1.weight) == Float32
    wide, wide_st = Lux.f64(ps), Lux.f64(st)
    @test near(model(X, wide, wide_st)[1], first(model(X, Lux.cpu_device(Float64)(ps), wide_st)))
    @test Lux.f32(wide) == Lux.f32(ps)
    @test Lux.gpu_device()(ps) == ps # without a GPU the host
end
