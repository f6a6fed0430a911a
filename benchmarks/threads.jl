# Calls a second of one net, forward and gradients, on one thread of Julia and on several:
#
#     julia --threads=2 --project=$(julia julia/environment.jl | head -1) benchmarks/threads.jl

using PaddleChainRules
using PaddleChainRules: compile, pullback

const SECONDS = haskey(ENV, "QUICK") ? 0.2 : 1.0
const ROUNDS = 5

function calls(net, theta, x, c, seconds)
    count, stop = 0, time_ns() + round(UInt64, 1e9seconds)
    while time_ns() < stop
        pullback(net, x, theta)[2](c)
        count += 1
    end
    return count / seconds
end

function on_threads(threads, given...)
    found = zeros(threads)
    Threads.@threads :static for t in 1:threads
        found[t] = calls(given..., SECONDS)
    end
    return sum(found)
end

println("| samples | threads | calls a second | of one thread |\n|---|---|---|---|")
for n in (1, 64, 256, 1024)
    wrapper = PaddleFCNet(8, 4, 2, 64; activation = "relu", seed = 0)
    net, theta = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
    x, c = rand(Float32, 8, n), rand(Float32, 4, n)
    compile(net, x, theta)
    given = net, theta, x, c
    rounds = [(on_threads(1, given...), on_threads(Threads.nthreads(), given...)) for _ in 1:ROUNDS]
    one, all = maximum(first, rounds), maximum(last, rounds) # in turn, the best of each
    println("| $n | 1 | $(round(Int, one)) | |\n| | $(Threads.nthreads()) | $(round(Int, all)) | $(round(all / one; digits = 2)) |")
end
