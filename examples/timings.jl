# Add Julia's side to timings.py: the same turns in the same process, results as JSON.
#
#     julia --project=$(julia julia/environment.jl | head -1) examples/timings.jl out.json

using ChainRulesCore: rrule
using LinearAlgebra: BLAS
using PaddleChainRules
using PythonCall

BLAS.set_num_threads(1)
pyimport("sys").path.insert(0, @__DIR__)
const timings_py = pyimport("timings")
const CALLS = pyconvert(Int, timings_py.CALLS)

const wrapper = PaddleFCNet(64, 10, 2, 64; activation = "relu", seed = 0)
const theta = reduce(vcat, vec.(wrapper.params))
const net = PaddleNet(wrapper)

forward(x, cotangent) = net(x, theta)
function forward_and_gradients(x, cotangent)
    y, back = rrule(net, x, theta)
    return back(cotangent)
end

function seconds(f, x, cotangent)
    start = time_ns()
    for _ in 1:CALLS
        f(x, cotangent)
    end
    return (time_ns() - start) / 1e9 / CALLS
end

function julia_side(sides, task)
    batch = pyconvert(Int, sides.x.shape[0])
    x, cotangent = rand(Float32, 64, batch), ones(Float32, 10, batch)
    f = pyconvert(String, task) == "forward" ? forward : forward_and_gradients
    return seconds(f, x, cotangent)
end

rows = timings_py.measure(julia_side, "from Julia")
text = pyconvert(String, pyimport("json").dumps(rows))
isempty(ARGS) ? println(pyconvert(String, timings_py.table(rows))) : write(only(ARGS), text)
