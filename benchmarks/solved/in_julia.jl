# A problem trained from Julia: `derivatives` and `train!`, or Lux with nested differentiation in pure Julia.
#
#     julia solved/in_julia.jl PROBLEM SIDE SEED SECONDS FILE
#
# in the folder above, in an environment with PaddleChainRules and its Python side, Lux, Zygote, ForwardDiff
# and Optimisers. Points, clock and error are those of the sides in Python.
using ADTypes: AutoForwardDiff
using ChainRulesCore: ChainRulesCore, ignore_derivatives
using ForwardDiff: ForwardDiff
using Lux: Chain, Dense, Lux
using Optimisers: Optimisers
using PaddleChainRules: PaddleFCNet, PaddleNet, derivatives, train!
using PythonCall: pyconvert, pydict, pyfunc, pyimport
using Random: Xoshiro
using Zygote: Zygote

pyimport("sys").path.insert(0, pwd())

mean2(r) = sum(abs2, r) / length(r)

# Losses: u(x) is the solution at points [2, n], u(x, ((1, 0), (0, 2))) its derivatives by the first coordinate and
# by the second twice.

function burgers(u, parts)
    (inside, _), (sides, _), (start, first) = parts
    v, v_t, v_x, v_xx = u(inside, ((0, 0), (1, 0), (0, 1), (0, 2)))
    ν = 0.01f0 / Float32(π)
    return mean2(v_t .+ v .* v_x .- ν .* v_xx) + mean2(u(sides)) + mean2(u(start) .- first)
end

function klein_gordon(u, parts)
    (inside, source), (sides, at_sides), (start, first), (rest, _) = parts
    v, v_tt, v_xx = u(inside, ((0, 0), (2, 0), (0, 2)))
    at_rest = only(u(rest, ((1, 0),)))
    equation = v_tt .- v_xx .+ v .* v .- source
    return mean2(equation) + mean2(u(sides) .- at_sides) + mean2(u(start) .- first) + mean2(at_rest)
end

function helmholtz(u, parts)
    (inside, source), (sides, _) = parts
    v, v_xx, v_yy = u(inside, ((0, 0), (2, 0), (0, 2)))
    return mean2(v_xx .+ v_yy .+ v .- source) + 100 * mean2(u(sides))
end

function wave(u, parts)
    (inside, _), (sides, _), (start, first), (rest, _) = parts
    v_tt, v_xx = u(inside, ((2, 0), (0, 2)))
    at_rest = only(u(rest, ((1, 0),)))
    return mean2(v_tt .- 4 .* v_xx) + 1000 * mean2(u(sides)) + 1000 * mean2(u(start) .- first) + 10 * mean2(at_rest)
end

const LOSSES = Dict("Burgers" => burgers, "Klein-Gordon" => klein_gordon, "Helmholtz" => helmholtz, "wave" => wave)

"Adam's rate on all sides, 1e-3 / (1 + steps / 5000): the factor of the step that comes."
struct InverseTime <: Optimisers.AbstractRule end
Optimisers.init(::InverseTime, x::AbstractArray) = zeros(Float32, 1)
Optimisers.apply!(::InverseTime, steps, x, dx) = steps .+ 1, dx ./ (1 .+ steps ./ 5000)
const RULE = Optimisers.OptimiserChain(Optimisers.Adam(1.0f-3), InverseTime())

"Points [2, n] and targets [1, n] of each part."
function parts_of(problem, seed)
    array(x) = permutedims(pyconvert(Matrix{Float32}, x))
    drawn = problem.drawn(seed)
    return Tuple((array(points), array(part.equations[0].targets(points))) for (part, points) in zip(problem.parts, drawn))
end

"Weights (out, in) and biases of all layers, as on all sides."
start_of(problem, seed) =
    [(permutedims(pyconvert(Matrix{Float32}, w)), pyconvert(Vector{Float32}, b)) for (w, b) in problem.start(seed)]

"What clocks measure: the net's results at their points, as NumPy's array."
function looking(net, clock)
    points = permutedims(pyconvert(Matrix{Float32}, clock.judge.points))
    found(ps) = (pyimport("numpy").asarray(permutedims(net(points, ps))), pydict())
    return ps -> pyfunc(() -> found(ps); name = "look")
end

"Our way: `train!`, which asks the clock after each twenty steps."
function paddle_chain_rules(name, problem, seed, clock)
    widths = pyconvert(Vector{Int}, problem.widths())
    wrapper = PaddleFCNet(2, 1, length(widths) - 1, widths[2]; activation = "tanh", seed)
    net, theta = PaddleNet(wrapper), reduce(vcat, Iterators.flatten(map(layer -> vec.(layer), start_of(problem, seed))))
    parts, look = parts_of(problem, seed), looking(net, clock)
    function loss(net, theta)
        u(x) = net(x, theta)
        u(x, wanted) = derivatives(net, x, theta, wanted)
        return LOSSES[name](u, parts)
    end
    clock.start()
    clock.over(0, look(theta))
    state = Optimisers.setup(RULE, theta)
    over(step, _, theta) = pyconvert(Bool, clock.over(step, look(theta)))
    train!(loss, net, theta, state; steps = 10^8, callback = over, every = 20)
    return nothing
end

"""
    slope(f, index)

The derivative of `f(x, ps)` by rows of x, as such a function: dual numbers, nested, by what
`Lux.jacobian_vector_product` does for a layer, which takes parameters as its last argument.
"""
function slope(f, index)
    directions = [row for (row, order) in enumerate(index) for _ in 1:order]
    jvp = Lux.AutoDiffInternalImpl.jacobian_vector_product_impl
    along(f, row) = (x, ps) -> jvp(f, AutoForwardDiff(), x, ones_in(x, row), ps)
    return foldl(along, directions; init = f)
end
function ones_in(x, row)
    e = zero(x)
    e[row, :] .= 1
    return e
end
ChainRulesCore.@non_differentiable ones_in(::Any, ::Any)

"Lux's way: Zygote over nested dual numbers, a step by `Optimisers.update!`."
function lux(name, problem, seed, clock)
    widths = pyconvert(Vector{Int}, problem.widths())
    hidden = [Dense(a => b, tanh) for (a, b) in zip(widths, widths[2:end-1])]
    layers = Chain(hidden..., Dense(widths[end-1] => widths[end]))
    ps, st = Lux.setup(Xoshiro(seed), layers)
    start = [(; weight, bias) for (weight, bias) in start_of(problem, seed)]
    ps = NamedTuple{keys(ps)}(Tuple(start))
    f(x, ps) = first(Lux.apply(layers, x, ps, st))
    parts, look = parts_of(problem, seed), looking(f, clock)
    function loss(ps)
        u(x) = f(x, ps)
        u(x, wanted) = map(index -> ignore_derivatives(() -> slope(f, index))(x, ps), wanted)
        return LOSSES[name](u, parts)
    end
    clock.start()
    state, steps = Optimisers.setup(RULE, ps), 0
    while !pyconvert(Bool, clock.over(steps, look(ps)))
        gradient = only(Zygote.gradient(loss, ps))
        state, ps = Optimisers.update!(state, ps, gradient)
        steps += 1
    end
    return nothing
end

const SIDES = Dict("Julia: train!" => paddle_chain_rules, "Julia: Lux" => lux)

function main(name, side, seed, seconds, path)
    train(problem, seed, clock) = SIDES[side](name, problem, pyconvert(Int, seed), clock)
    arguments = parse(Int, seed), parse(Float64, seconds), pyimport("pathlib").Path(path)
    pyimport("solved.one").main(name, side, arguments..., pyfunc(train; name = "train"))
end

main(ARGS...)
