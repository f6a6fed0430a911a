# Included by optimization.jl where Optimization is there.

using ComponentArrays: ComponentArray
using FiniteDifferences: central_fdm, grad
using Optimisers: destructure
using Optimization: AutoForwardDiff, AutoZygote, OptimizationFunction, OptimizationProblem, solve
using OptimizationOptimJL: BFGS, LBFGS
using OptimizationOptimisers: Adam
using PaddleChainRules: LevenbergMarquardt, PaddleFCNet, PaddleNet, SecondOrder, SelfScaledBroyden, minimize
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const X = collect(reshape(range(-1, 1; length = 40), 1, 40))
const Y = sin.(3 .* X)

@testset "$form, $(nameof(typeof(rule))), $(nameof(typeof(ad)))" for (form, rule, ad, options) in (
    ("flat", BFGS(), AutoZygote(), (; maxiters = 60)),
    ("ComponentArray", LBFGS(), AutoZygote(), (; maxiters = 60)),
    ("destructure", Adam(0.02), AutoZygote(), (; maxiters = 150)),
    ("flat", BFGS(), AutoForwardDiff(), (; maxiters = 30)),
)
    wrapper = PaddleFCNet(1, 1, 2, 8; activation = "tanh", dtype = "float64", seed = 1)
    net, named = PaddleNet(wrapper), NamedTuple{Tuple(wrapper.net.names)}(wrapper.params)
    theta, rebuild = form == "destructure" ? destructure(wrapper) :
                     form == "flat" ? (reduce(vcat, vec.(wrapper.params)), nothing) : (ComponentArray(named), nothing)
    predicted(θ, x) = form == "destructure" ? rebuild(θ)(x) : net(x, θ)
    loss(θ, (x, y)) = sum(abs2, predicted(θ, x) .- y) / length(y)
    by_net = Zygote.gradient(θ -> loss(θ, (X, Y)), theta)[1]
    @test same(collect(by_net), grad(central_fdm(3, 1; adapt = 0), θ -> loss(θ, (X, Y)), collect(theta))[1]; rtol = 1e-6, atol = 1e-9) ||
          form == "ComponentArray"
    problem = OptimizationProblem(OptimizationFunction(loss, ad), theta, (X, Y))
    found = solve(problem, rule; options...)
    @test typeof(found.u) == typeof(theta) && found.objective ≈ loss(found.u, (X, Y))
    @test found.objective < loss(theta, (X, Y)) / 10
end

@testset "second-order methods" begin
    wrapper = PaddleFCNet(1, 1, 2, 8; activation = "tanh", dtype = "float64", seed = 1)
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    loss(θ, (x, y)) = sum(abs2, net(x, θ) .- y) / length(y)
    problem = OptimizationProblem(OptimizationFunction(loss, AutoZygote()), theta, (X, Y))
    values = Float64[]
    callback(state, value) = (push!(values, value); @test state.objective == value ≈ loss(state.u, (X, Y)); false)
    found = solve(problem, SelfScaledBroyden(); maxiters = 25, callback)
    @test length(values) == found.stats.iterations == 25 && issorted(values; rev = true)
    @test found.objective ≈ loss(found.u, (X, Y)) ≈ values[end]
    @test string(found.retcode) == "MaxIters"
    @test found.u ≈ minimize(θ -> loss(θ, (X, Y)), theta; maxiters = 25).ps
    @testset "of a loss that is not traced" begin
        branching(θ, data) = sum(θ) > -1e9 ? loss(θ, data) : sum(θ)
        other = OptimizationProblem(OptimizationFunction(branching, AutoZygote()), theta, (X, Y))
        by_zygote = solve(other, SelfScaledBroyden(); maxiters = 12)
        traced = solve(problem, SelfScaledBroyden(); maxiters = 12)
        @test by_zygote.u ≈ traced.u rtol = 1e-6
        @test_throws "residuals that can be traced" solve(other, LevenbergMarquardt(); maxiters = 3)
    end
    residuals(θ, (x, y)) = net(x, θ) .- y
    least = solve(OptimizationProblem(OptimizationFunction(residuals, AutoZygote()), theta, (X, Y)), LevenbergMarquardt(); maxiters = 25)
    @test least.objective ≈ sum(abs2, residuals(least.u, (X, Y))) / 2
    @test least.objective / length(Y) < found.objective
    stopped = solve(problem, SecondOrder(:lbfgs); maxiters = 25, callback = (state, _) -> state.iter == 4)
    @test stopped.stats.iterations == 4
    bounded = OptimizationProblem(OptimizationFunction(loss, AutoZygote()), theta, (X, Y); lb = theta .- 1, ub = theta .+ 1)
    @test_throws "bounds" solve(bounded, SelfScaledBroyden(); maxiters = 2)
end
