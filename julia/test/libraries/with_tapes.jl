# Included by tapes.jl where ReverseDiff and Tracker are there.

using FiniteDiff: FiniteDiff
using ForwardDiff: ForwardDiff
using ReverseDiff: ReverseDiff
using Tracker: Tracker

include("backends.jl")

@testset "$(nameof(typeof(backend)))" for backend in (DI.AutoForwardDiff(), DI.AutoReverseDiff(), DI.AutoTracker())
    check_backend(backend)
end

@testset "differences by FiniteDiff" begin
    _, net, theta, _ = made()
    f(θ) = sum(abs2, net(X, θ))
    @test isapprox(DI.gradient(f, DI.AutoFiniteDiff(), theta), differences(f, theta); rtol = 1e-5)
end

@testset "several results" begin
    f = of_several()
    @test near(DI.gradient(f, DI.AutoReverseDiff(), SEQUENCES), differences(f, SEQUENCES))
    @test_throws "Tracker follows one floating array" DI.gradient(f, DI.AutoTracker(), SEQUENCES)
end

@testset "a tape that is compiled, at other numbers" begin
    _, net, theta, _ = made()
    backend = DI.AutoReverseDiff(; compile = true)
    f(θ) = sum(sin, net(X, θ)) + sum(abs2, net(2 .* X, 2 .* θ))
    prepared = DI.prepare_gradient(f, backend, theta)
    for scale in (1.0, -0.5, 2.0)
        @test near(DI.gradient(f, prepared, backend, scale .* theta), differences(f, scale .* theta))
    end
end

@testset "second derivatives" begin
    w, net, theta, _ = made()
    f(θ) = sum(abs2, net(X, θ)) / 12
    expected = ForwardDiff.hessian(f, theta)
    @test near(ReverseDiff.hessian(f, theta), expected)
    @test near(DI.hessian(f, DI.SecondOrder(DI.AutoForwardDiff(), DI.AutoReverseDiff()), theta), expected)
    @test_throws "Tracker has no second derivatives" Tracker.hessian(f, theta)
end

@testset "mixed precision is refused, and single stays single" begin
    w = PaddleFCNet(3, 2, 2, 4; activation = "tanh", seed = 1)
    x = Float32.(X)
    @test eltype(ReverseDiff.gradient(x -> sum(abs2, w(x)), x)) == Float32
    @test same(Tracker.data(Tracker.gradient(x -> sum(abs2, w(x)), x)[1]), ReverseDiff.gradient(x -> sum(abs2, w(x)), x))
    @test_throws "Float32" ReverseDiff.gradient(x -> sum(abs2, w(x)), X)
end

if Base.identify_package("Lux") !== nothing
    @eval using Lux: Lux, AutoReverseDiff, AutoTracker, AutoZygote, Training
    @eval using Optimisers: Adam, destructure
    @eval using PaddleChainRules: luxlayer
    @eval using Zygote: Zygote

    @testset "Lux's training, $(nameof(typeof(backend)))" for backend in (AutoReverseDiff(), AutoTracker())
        model = Lux.Chain(luxlayer(made()[1]), Lux.Dense(2 => 2, tanh))
        ps, st = map(Lux.f64, Lux.setup(Xoshiro(0), model))
        data = X, C
        state = Training.TrainState(model, ps, st, Adam(0.01))
        found = Training.compute_gradients(backend, Lux.MSELoss(), data, state)[1]
        expected = Training.compute_gradients(AutoZygote(), Lux.MSELoss(), data, state)[1]
        @test near(destructure(found)[1], destructure(expected)[1])
        _, loss, _, state = Training.single_train_step!(backend, Lux.MSELoss(), data, state)
        _, next, _, state = Training.single_train_step!(backend, Lux.MSELoss(), data, state)
        @test next < loss
    end
end
