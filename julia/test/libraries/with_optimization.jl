# Included by optimization.jl where Optimization is there.

using ComponentArrays: ComponentArray
using FiniteDifferences: central_fdm, grad
using Optimisers: destructure
using Optimization: AutoForwardDiff, AutoZygote, OptimizationFunction, OptimizationProblem, solve
using OptimizationOptimJL: BFGS, LBFGS
using OptimizationOptimisers: Adam
using PaddleChainRules: PaddleFCNet, PaddleNet
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
