# A problem trained from Julia: `derivatives` and `train!`, or Lux with nested differentiation in pure Julia.
#
#     julia solved/in_julia.jl PROBLEM SIDE SEED SECONDS FILE
#
# in the folder above, in an environment with PaddleChainRules and its Python side, Lux, Zygote and
# Optimisers. Points, clock and error are those of the sides in Python.
using Lux: Chain, Dense, Lux, StatefulLuxLayer
using Optimisers: Optimisers
using PaddleChainRules: PaddleFCNet, PaddleNet, derivatives, train!
using PythonCall: Py, PyArray, pyconvert, pyimport
using Random: Xoshiro
using Zygote: Zygote

pyimport("sys").path.insert(0, pwd())

mean2(r) = sum(abs2, r) / length(r)

# Losses: u(x, (1, 2)) is the solution's derivative by the second coordinate twice, and so on, of points [2, n].

function burgers(u, parts)
    (inside, _), (sides, _), (start, first) = parts
    v, v_t, v_x, v_xx = u(inside, ((0, 0), (1, 0), (0, 1), (0, 2)))
    ν = 0.01f0 / Float32(π)
    return mean2(v_t .+ v .* v_x .- ν .* v_xx) + mean2(u(sides)) + mean2(u(start) .- first)
end

function klein_gordon(u, parts)
    (inside, source), (sides, at_sides), (start, first), (rest, _) = parts
    v, v_tt, v_xx = u(inside, ((0, 0), (2, 0), (0, 2)))
    at_rest, = u(rest, ((1, 0),))
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
    at_rest, = u(rest, ((1, 0),))
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
    return map(zip(problem.parts, drawn)) do (part, points)
        array(points), array(part.equations[0].targets(points))
    end |> Tuple
end

"Steps until the time is over, by `step(count)`, of which `net(points)` gives what there is."
function until_over(step, net, clock)
    points = permutedims(pyconvert(Matrix{Float32}, clock.judge.points))
    look() = (pyimport("numpy").asarray(permutedims(net(points))), Dict{String,Float64}())
    return pyimport("solved.clock").train(clock, count -> (step(pyconvert(Int, count)); count), look)
end

function by_train(problem, seed, clock)
    widths = pyconvert(Vector{Int}, problem.widths())
    wrapper = PaddleFCNet(2, 1, length(widths) - 1, widths[2]; activation = "tanh", seed = pyconvert(Int, seed))
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    parts, loss = parts_of(problem, seed), LOSSES[pyconvert(String, clock.problem)]
    clock.start()
    state = Optimisers.setup(RULE, theta)
    function of_theta(net, theta)
        u(x) = net(x, theta)
        u(x, wanted) = derivatives(net, x, theta, wanted)
        return loss(u, parts)
    end
    until_over(count -> train!(of_theta, net, theta, state; steps = count), x -> net(x, theta), clock)
    return ""
end
