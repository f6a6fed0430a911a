# Constants of every kind on four threads for some minutes: seeds, integers, strings, nothing, Lux
# states, attributes of the module. Each result is compared with the first one.
#
#     julia -t 4 tests/stress/constants.jl [minutes]

using PaddleChainRules, PythonCall, Zygote
using PaddleChainRules: initial_state

include("shared.jl")

const MINUTES = isempty(ARGS) ? 10.0 : parse(Float64, ARGS[1])
const TESTS = normpath(joinpath(@__DIR__, ".."))

paddle.seed(0) # before anything else imports Paddle
pyimport("sys").path.insert(0, TESTS)
const layers = pyimport("layers")
const noisy = PaddleModuleWrapper(layers.Noisy())
const worded = PaddleModuleWrapper(layers.Worded())
const table = PaddleModuleWrapper(paddle.nn.Embedding(7, 3; sparse = true))
const net, ps = PaddleNet(noisy), noisy.params
const x, words = rand(Float32, 3, 5), [1 2; 5 6]
const states = [initial_state(net; seed) for seed in 1:8]
const KINDS = ("sin", :tanh, nothing)

calls(k) = (
    noisy(x; seed = k),
    net(x, ps, states[k])[1],
    worded(x, KINDS[mod1(k, 3)], k; flag = isodd(k)),
    table(words),
    Zygote.gradient(w -> sum(abs2, w(x; seed = k)), noisy)[1].params[1],
    Zygote.gradient(w -> sum(abs2, w(words)), table)[1].params[1],
)
const expected = map(calls, 1:8)
const count, wrong = Threads.Atomic{Int}(0), Threads.Atomic{Int}(0)

function soak(seconds)
    stop = time() + seconds
    PaddleChainRules.threaded() do
        Threads.@threads for thread in 1:Threads.nthreads()
            i = thread
            while time() < stop
                k = mod1(i, 8)
                all(map(isapprox, calls(k), expected[k])) || Threads.atomic_add!(wrong, 1)
                Threads.atomic_add!(count, 6)
                paddle.nn
                i += 1
                i % 10 == 0 && GC.gc(false)
                i % 500 == 0 && GC.gc()
            end
        end
    end
end

soak(60 * MINUTES / 2)
const half = resident()
soak(60 * MINUTES / 2)
println(
    "$(count[]) calls on $(Threads.nthreads()) threads in $MINUTES minutes: $(wrong[]) wrong, ",
    "memory grew by $(round(resident() - half; digits = 1)) MB over the second half",
)
exit(wrong[] == 0 ? 0 : 1)
