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

program.main(
    pylist(ARGS), julia_timers, general_timers, crossing_timers(), steady, string(VERSION),
)
