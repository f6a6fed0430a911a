# NeuralPDE's own NNODE and `discretize` with a net of Paddle and with the same net in Lux: the same
# parameters, iterations and seed, in turn, one thread; error, and the shortest of three solves.
#
#     julia benchmarks/neuralpde.jl
#
# in an environment that has PaddleChainRules with its Python side, NeuralPDE 5.20, ModelingToolkit,
# Symbolics, DomainSets, SciMLBase, Optimisers, OptimizationOptimisers, OptimizationOptimJL,
# LineSearches, Integrals, QuasiMonteCarlo, Lux, ComponentArrays and Zygote. Prints the table of docs/neuralpde.md.
using ComponentArrays: ComponentArray
using DomainSets: Interval
using Integrals: QuadGKJL
using LinearAlgebra: BLAS, norm
using LineSearches: BackTracking
using Lux: Chain, Dense
using LuxCore: LuxCore
using ModelingToolkit: @named, @parameters, PDESystem
using NeuralPDE: GridTraining, NNODE, PhysicsInformedNN, QuadratureTraining, QuasiRandomTraining, WeightedIntervalTraining, discretize
using Optimisers: Adam
using OptimizationOptimisers: OptimizationOptimisers
using OptimizationOptimJL: BFGS
using PaddleChainRules: PaddleFCNet, exact_derivative, luxlayer, stencil_derivative
using Printf: @sprintf
using Random: Random, Xoshiro
using SciMLBase: ODEProblem, remake, solve
using Symbolics: @variables, Differential
using Zygote: Zygote

const TIMES = 3
const ADAM = Adam(0.01)
const QUASI_NEWTON = BFGS(; linesearch = BackTracking())

"A net of three layers as a layer of ours and in Lux, with the same parameters."
function both(inputs)
    wrapper = PaddleFCNet(inputs, 1, 3, 16; dtype = "float64", activation = "tanh", seed = 1)
    layers = luxlayer(wrapper), Chain(Dense(inputs => 16, tanh), Dense(16 => 16, tanh), Dense(16 => 1))
    theta = reduce(vcat, vec.(wrapper.params))
    return map(layers) do layer
        ps = ComponentArray{Float64}(LuxCore.initialparameters(Xoshiro(0), layer))
        layer, copyto!(ps, theta)
    end
end

"The error that each of some solves comes to, and the shortest of its times; the first one compiles."
function in_turn(solves)
    errors, seconds = zeros(length(solves)), fill(Inf, length(solves))
    for time in 0:TIMES, (k, (run, error)) in enumerate(solves)
        Random.seed!(7)
        taken = @elapsed found = run()
        errors[k] = error(found)
        time > 0 && (seconds[k] = min(seconds[k], taken))
    end
    return [@sprintf("%.1e, %.2f s", pair...) for pair in zip(errors, seconds)]
end

row(cells...) = (println("| ", join(cells, " | "), " |"); flush(stdout))

const ODE = ODEProblem((u, p, t) -> cospi(2t), 0.0, (0.0, 1.0))

function of_ode((layer, ps), strategy, optimizer, iterations)
    alg = NNODE(layer, optimizer, ps; strategy)
    run() = solve(ODE, alg; maxiters = iterations, abstol = 1e-30, saveat = 0.01)
    error(found) = maximum(abs.(only.(found.u) .- sinpi.(2 .* found.t) ./ 2pi))
    return run, error
end

"A system, points of its domain, and its solution there."
function poisson()
    @parameters x y
    @variables u(..)
    xx, yy = Differential(x)^2, Differential(y)^2
    equation = xx(u(x, y)) + yy(u(x, y)) ~ -sin(pi * x) * sin(pi * y)
    edges = [(u(0, y) ~ 0.0), (u(1, y) ~ 0.0), (u(x, 0) ~ 0.0), (u(x, 1) ~ 0.0)]
    square = [x ∈ Interval(0.0, 1.0), y ∈ Interval(0.0, 1.0)]
    @named system = PDESystem(equation, edges, square, [x, y], [u(x, y)])
    points = reduce(hcat, [[a, b] for a in 0:0.05:1 for b in 0:0.05:1])
    return system, points, prod(sinpi, points; dims = 1) ./ 2pi^2
end

const NU = 0.1

"Burgers' equation, by its solution after Cole and Hopf, Communications on Pure and Applied Mathematics 3, 1950."
function burgers()
    @parameters t x
    @variables u(..)
    dt, dx, dxx = Differential(t), Differential(x), Differential(x)^2
    equation = dt(u(t, x)) + u(t, x) * dx(u(t, x)) - NU * dxx(u(t, x)) ~ 0
    edges = [(u(0, x) ~ -sin(pi * x)), (u(t, -1) ~ 0.0), (u(t, 1) ~ 0.0), (u(t, -1) ~ u(t, 1))]
    domain = [t ∈ Interval(0.0, 1.0), x ∈ Interval(-1.0, 1.0)]
    @named system = PDESystem(equation, edges, domain, [t, x], [u(t, x)])
    points = reduce(hcat, [[a, b] for a in 0:0.1:1 for b in -1:0.05:1])
    return system, points, reduce(hcat, cole_hopf(a, b) for (a, b) in eachcol(points))
end

function cole_hopf(t, x)
    t == 0 && return -sinpi(x)
    steps = range(-8, 8; length = 4001)
    from = x .- steps .* sqrt(4NU * t)
    weights = @. exp(-cospi(from) / (2pi * NU) - steps^2)
    return -sum(sinpi.(from) .* weights) / sum(weights)
end

function of_system((layer, ps), (system, points, exact), strategy, derivative, adam, bfgs)
    Random.seed!(3) # of the points
    pinn = PhysicsInformedNN(layer, strategy; init_params = ps, derivative)
    problem = discretize(system, pinn)
    function run()
        found = solve(problem, ADAM; maxiters = adam)
        return bfgs == 0 ? found : solve(remake(problem; u0 = found.u), QUASI_NEWTON; maxiters = bfgs)
    end
    return run, found -> norm(pinn.phi(points, found.u) .- exact) / norm(exact)
end

BLAS.set_num_threads(1)
row("", "iterations", "luxlayer", "Lux")
row("---", "---", "---", "---")
const GRID, WEIGHTED = GridTraining(0.01), WeightedIntervalTraining([0.3, 0.3, 0.4], 100)
const QUADRATURE = QuadratureTraining(; quadrature_alg = QuadGKJL(), reltol = 1e-3, abstol = 1e-6, maxiters = 50, batch = 100)
for (name, strategy, optimizer, iterations) in (
    ("u' = cos 2πt, NNODE, grid of 0.01", GRID, ADAM, 1000), ("the same", GRID, QUASI_NEWTON, 300),
    ("the same, `WeightedIntervalTraining`, 100 points", WEIGHTED, QUASI_NEWTON, 300),
    ("the same, `QuadratureTraining`, one point a call", QUADRATURE, ADAM, 30),
)
    solves = [of_ode(side, strategy, optimizer, iterations) for side in both(1)]
    row(name, "$iterations of $(nameof(typeof(optimizer)))", in_turn(solves)...)
end

# One set of points for all steps, as quasi-Newton steps need.
const QUASI_RANDOM = QuasiRandomTraining(200; bcs_points = 50, resampling = false, minibatch = 1)
for (name, problem, strategy, adam, bfgs) in (
    ("Poisson in the plane, grid of 0.1", poisson(), GridTraining(0.1), 500, 0),
    ("Burgers, ν = 0.1, `QuasiRandomTraining`, 200 points", burgers(), QUASI_RANDOM, 500, 500),
)
    ours, lux = both(2)
    sides = ((ours, nothing), (lux, nothing), (ours, exact_derivative()), (ours, stencil_derivative))
    solves = [of_system(side, problem, strategy, derivative, adam, bfgs) for (side, derivative) in sides]
    native, theirs, exact, stencil = in_turn(solves)
    steps = bfgs == 0 ? "$adam of Adam" : "$adam of Adam, $bfgs of BFGS"
    row(name, steps, native, theirs)
    row("the same, `exact_derivative()`", steps, exact, "")
    row("the same, `stencil_derivative`", steps, stencil, "")
end
