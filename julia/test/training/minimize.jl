# Second-order methods, beside a search written here and solutions that are known.

using PaddleChainRules
using PaddleChainRules: LevenbergMarquardt, SecondOrder, SelfScaledBroyden, minimize
using LinearAlgebra: norm
using Test

wrapper = PaddleFCNet(1, 1, 2, 6; dtype = "float64", activation = "tanh", seed = 1)
net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
x = collect(reshape(range(-1, 1; length = 23), 1, :))
residuals(net, theta, x) = net(x, theta) .- sin.(3 .* x)
loss(net, theta, x) = sum(abs2, residuals(net, theta, x)) / 2

"Gauss and Newton's method with Marquardt's damping, by differences of the residuals."
function by_hand(f, theta, steps)
    jacobian(theta) = reduce(
        hcat,
        (vec(f(theta .+ h .* e) .- f(theta .- h .* e)) ./ 2h for h in (1e-6,) for e in eachcol(one(zeros(length(theta), length(theta))))),
    )
    mu = 1e-2
    for _ in 1:steps
        r, J = vec(f(theta)), jacobian(theta)
        while true
            candidate = theta .- (J' * J + mu * one(J' * J)) \ (J' * r)
            if norm(f(candidate)) < norm(r)
                theta, mu = candidate, mu / 3
                break
            end
            mu *= 2
        end
    end
    return theta
end

@testset "each method goes down, $method" for method in
                                             (:levenberg_marquardt, :gauss_newton, :natural_gradient, :self_scaled_broyden, :bfgs, :lbfgs)
    of = method in (:levenberg_marquardt, :gauss_newton, :natural_gradient) ? residuals : loss
    before, values = copy(theta), Float64[]
    found = minimize(
        of, net, theta, x; method = SecondOrder(method), maxiters = 12,
        callback = (step, value, ps) -> (push!(values, value); @test loss(net, ps, x) ≈ value; false),
    )
    @test theta == before
    @test length(values) == found.steps == 12
    @test issorted(values; rev = true)
    @test found.value ≈ loss(net, found.ps, x) ≈ values[end]
    @test found.value < loss(net, theta, x) / 2
    @test !found.converged && found.reason == "there were 12 steps"
end

@testset "as by hand" begin
    found = minimize(residuals, net, theta, x; method = LevenbergMarquardt(), maxiters = 15)
    expected = by_hand(theta -> residuals(net, theta, x), theta, 15)
    @test found.value < 0.01 * loss(net, theta, x)
    @test found.value < 10 * loss(net, expected, x)
end

@testset "forms of parameters" begin
    curve(ps, t) = ps.a .* exp.(-ps.b[1] .* t) .+ ps.inner.c
    t = collect(0:0.25:2)
    truth = (a = [2.0], b = [0.5], inner = (c = [0.25],))
    y = curve(truth, t)
    given = (a = [1.0], b = [1.0], inner = (c = [0.0],))
    found = minimize((ps, t, y) -> curve(ps, t) .- y, given, t, y; method = LevenbergMarquardt(tolerance_grad = 1e-11))
    @test found.converged && occursin("gradient is zero", found.reason)
    @test found.ps.a ≈ truth.a && found.ps.b ≈ truth.b && isapprox(found.ps.inner.c, truth.inner.c; atol = 1e-8)
    @test keys(found.ps) == keys(given)
    both = minimize((ps, t, y) -> (curve(ps, t) .- y, ps.a .- 2.0), given, t, y; method = LevenbergMarquardt())
    @test both.ps.b ≈ truth.b
    single = minimize(θ -> sum(abs2, θ .- 3.0f0), zeros(Float32, 5))
    @test single.ps isa Vector{Float32} && single.ps ≈ fill(3.0f0, 5)
end

@testset "in the place of a rule" begin
    trained, reports = copy(theta), Int[]
    losses = PaddleChainRules.train!(
        residuals, net, trained, LevenbergMarquardt(), x; steps = 9, every = 4, callback = (step, _, _) -> (push!(reports, step); false),
    )
    found = minimize(residuals, net, theta, x; method = LevenbergMarquardt(), maxiters = 9)
    @test trained == found.ps && length(losses) == 9 && losses[end] ≈ found.value && reports == [4, 8, 9]
    @test length(PaddleChainRules.train!(loss, net, trained, SelfScaledBroyden(), x; steps = 9, callback = (step, _, _) -> step == 2)) == 2
end

@testset "what ends a search" begin
    begun = time()
    timed = minimize(loss, net, theta, x; seconds = 0.5, maxiters = typemax(Int))
    @test timed.reason in ("the time is over", "no step along the direction goes down far enough")
    @test time() - begun < 60
    stopped = minimize(loss, net, theta, x; every = 5, callback = (step, _, _) -> step == 10)
    @test stopped.steps == 10 && stopped.reason == "the callback returned true"
    interrupted = minimize(loss, net, theta, x; callback = (step, _, _) -> step == 3 && throw(InterruptException()))
    @test interrupted.steps == 3 && interrupted.reason == "it was interrupted"
    @test minimize(loss, net, theta, x; maxiters = 0).ps == theta
    @test_throws ErrorException("mine") minimize(loss, net, theta, x; callback = (_, _, _) -> error("mine"))
end

@testset "what is refused" begin
    @test_throws "no second-order method 'newton'" minimize(loss, net, theta, x; method = SecondOrder(:newton))
    @test_throws "has no option dampng" minimize(residuals, net, theta, x; method = LevenbergMarquardt(dampng = 1.0))
    @test_throws "give one floating number" minimize(residuals, net, theta, x)
    @test_throws "finite" minimize(θ -> sum(θ) / 0.0, ones(3))
    @test_throws ArgumentError minimize(loss, net, [1, 2, 3], x)
    @test_throws PaddleChainRules.TraceError minimize(θ -> sum(θ) > 0 ? sum(abs2, θ) : sum(θ), ones(3))
    @test_throws ArgumentError minimize(loss, net, theta, x; maxiters = -1)
end
