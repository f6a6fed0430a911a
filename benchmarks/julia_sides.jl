# Host the benchmark in Julia, so that Julia's sides take turns with Python's in one process:
#
#     julia --project=$(julia julia/environment.jl | head -1) benchmarks/julia_sides.jl out.json [quick]

using ChainRulesCore: rrule, unthunk
using LinearAlgebra: BLAS
using PaddleChainRules
using PaddleChainRules: drop, lend, receive_as, without_table
using PythonCall
using Zygote

const HAS_DLPACK = Base.find_package("DLPack") !== nothing
HAS_DLPACK && @eval import DLPack

# As Zygote calls a rule: for all gradients at once.
const AS_ZYGOTE = Zygote.ZygoteRuleConfig()

BLAS.set_num_threads(1)
pyimport("sys").path.insert(0, @__DIR__)
const program = pyimport("run")

function seconds(f, calls::Int)
    start = time_ns()
    for _ in 1:calls
        f()
    end
    return (time_ns() - start) / 1e9
end

timer(f) = calls -> seconds(f, pyconvert(Int, calls))

"The same net by hand, on matrices: what pure Julia does with Zygote."
pure(ps::Tuple{Any,Any}, x) = ps[1] * x .+ ps[2]
pure(ps::Tuple, x) = pure(ps[3:end], max.(ps[1] * x .+ ps[2], 0.0f0))

"One timer a side for a case of sides.py."
function julia_timers(case, task)
    sizes, batch = pyconvert(Vector{Int}, pylist(case.sizes)), pyconvert(Int, case.batch)
    x = permutedims(pyconvert(Matrix{Float32}, case.x))
    c = ones(Float32, sizes[end], batch)
    wrapper = PaddleFCNet(sizes[1], sizes[end], length(sizes) - 1, sizes[2]; activation = "relu", seed = 0)
    map(size, wrapper.params) == Tuple(Tuple(reverse(pyconvert(Vector{Int}, pylist(p.shape)))) for p in case.params.values()) ||
        error("the sides' nets differ")
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    ps = wrapper.params
    if pyconvert(String, task) == "forward"
        return pydict(Dict(
            "ours, Julia" => timer(() -> net(x, theta)),
            "pure Julia" => timer(() -> pure(ps, x)),
        ))
    end
    return pydict(Dict(
        "ours, Julia" => timer(() -> rrule(AS_ZYGOTE, net, x, theta)[2](c)),
        "ours, thunks" => timer(() -> foreach(unthunk, rrule(net, x, theta)[2](c))),
        "ours, Zygote" => timer(() -> Zygote.gradient((x, t) -> sum(net(x, t)), x, theta)),
        "pure Julia" => timer(() -> Zygote.pullback(pure, ps, x)[2](c)),
    ))
end

"The same for a layer of sides.py, on its own input and cotangent."
function general_timers(layer, x, cotangent, task)
    wrapper = PaddleModuleWrapper(Py(layer))
    # PythonCall hands over arrays of Python's shape.
    x, c = (permutedims(array, ndims(array):-1:1) for array in (x, cotangent))
    if pyconvert(String, task) == "forward"
        return pydict(Dict("ours, Julia" => timer(() -> wrapper(x))))
    end
    return pydict(Dict("ours, Julia" => timer(() -> rrule(AS_ZYGOTE, wrapper, x)[2](c))))
end

logistic(z) = 1 / (1 + exp(-z))

"A net of two hidden layers by hand, from the flat parameters."
function pure_deep(theta, x, h)
    part(at, size...) = reshape(view(theta, at:(at+prod(size)-1)), size...)
    a = logistic.(part(1, h, 2) * x .+ part(2h + 1, h))
    b = logistic.(part(3h + 1, h, h) * a .+ part(3h + h^2 + 1, h))
    return part(4h + h^2 + 1, 1, h) * b .+ part(5h + h^2 + 1, 1)
end

"""
One step of a Poisson problem: Laplacian inside, values on the boundary, gradient of the loss by
the parameters. And the error of the differences' Laplacian, relative to its largest entry.
"""
function poisson_timers(case)
    h = pyconvert(Int, case.width)
    x, edges, f = (permutedims(pyconvert(Matrix{Float64}, a)) for a in (case.x, case.edges, case.source))
    wrapper = PaddleFCNet(2, 1, 3, h; dtype = "float64", activation = "sigmoid", seed = 0)
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    step = 1e-4
    along = ([[step, 0.0], [step, 0.0]], [[0.0, step], [0.0, step]])
    mean_square(r) = sum(abs2, r) / length(r)
    u(cord, t, phi) = phi(cord, t)
    by_stencil(t) = sum(stencil_derivative(net, u, x, εs, 2, t) for εs in along)
    function by_hand(t)
        ex, ey = along[1][1], along[2][1]
        around = pure_deep(t, x .+ ex, h) .+ pure_deep(t, x .- ex, h) .+
                 pure_deep(t, x .+ ey, h) .+ pure_deep(t, x .- ey, h)
        return (around .- 4 .* pure_deep(t, x, h)) ./ step^2
    end
    gradient(inside, net) = timer() do
        Zygote.gradient(t -> mean_square(inside(t) .- f) + mean_square(net(edges, t)), theta)
    end
    exact = laplacian(net, x, theta)
    error = maximum(abs, by_hand(theta) - exact) / maximum(abs, exact)
    lowered = lower(net)
    timers = pydict(Dict(
        "ours, Laplacian, Julia" => gradient(t -> laplacian(net, x, t), net),
        "ours, lowered, Julia" => gradient(t -> laplacian(lowered, x, t), lowered),
        "ours, stencil, Julia" => gradient(by_stencil, net),
        "pure Julia, differences" => gradient(by_hand, (x, t) -> pure_deep(t, x, h)),
    ))
    return timers, error
end

resident() = parse(Int, match(r"VmRSS:\s+(\d+)", read("/proc/self/status", String))[1]) / 1024

"""
Microseconds of single calls of net 8-64-4 at batch 64, and megabytes that the process grows by
over many more, once it has grown to its working size.
"""
function steady(timed, grown)
    timed, grown = pyconvert(Int, timed), pyconvert(Int, grown)
    wrapper = PaddleFCNet(8, 4, 2, 64; activation = "relu", seed = 0)
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    x, c = randn(Float32, 8, 64), randn(Float32, 4, 64)
    calls = (
        "forward" => () -> net(x, theta),
        "rrule and pullback" => () -> rrule(AS_ZYGOTE, net, x, theta)[2](c),
        "Zygote" => () -> Zygote.gradient((x, t) -> sum(net(x, t)), x, theta),
    )
    return pydict(Dict(name => steady(f, timed, grown) for (name, f) in calls))
end

function steady(f::Function, timed::Int, grown::Int)
    seconds(f, grown ÷ 2)
    before = resident()
    seconds(f, grown)
    growth = resident() - before
    us = [1e6 * seconds(f, 1) for _ in 1:timed]
    return pydict(Dict("min" => minimum(us), "mean" => sum(us) / timed, "growth" => growth))
end

"Microseconds for one tensor each way, by every way there is."
function crossing_timers()
    PaddleChainRules.bridge()
    x = rand(Float32, 8, 64)
    tensor = lend(x)
    object = PythonCall.pynew(lend(x))
    there() = drop(lend(x))
    here() = receive_as(Matrix{Float32}, tensor)
    timers = Dict{String,Any}(
        "Julia to Paddle, C table" => timer(there),
        "Paddle to Julia, C table" => timer(here),
        "Julia to Paddle, capsule" => calls -> without_table(() -> timer(there)(calls)),
        "Paddle to Julia, capsule" => calls -> without_table(() -> timer(here)(calls)),
    )
    if HAS_DLPACK
        dlpack = pyimport("paddle.utils.dlpack")
        from = dlpack.from_dlpack
        timers["Julia to Paddle, DLPack.jl"] = timer(() -> DLPack.share(x, from))
        timers["Paddle to Julia, DLPack.jl"] = timer(() -> DLPack.from_dlpack(object))
    end
    return pydict(timers)
end

const SIDES = pydict(Dict(
    "report" => julia_timers,
    "general" => general_timers,
    "crossing" => crossing_timers,
    "steady" => steady,
    "poisson" => poisson_timers,
    "collect" => GC.gc,
))

program.main(pylist(ARGS), SIDES, string(VERSION))
