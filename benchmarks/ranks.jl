# What ranks of MPI cost: steps of the same number of samples a rank, with and without the
# average, in turn, one thread each; run by ranks.py for each number of ranks. Prints what is
# timed, and milliseconds, minimum and mean.
#
# The net of digits (64-64-10, 64 samples) and a PDE loss (2-64-64-64-1, 1,000 points), float32.

using MPI, PaddleChainRules, Zygote
using Random: Xoshiro

MPI.Init()
const comm = MPI.COMM_WORLD
const rank = MPI.Comm_rank(comm)

"Gradients of a mean square, by the parameters as one vector."
function digits_step()
    wrapper = PaddleFCNet(64, 10, 2, 64; activation = "relu", seed = 0)
    net, θ = PaddleNet(wrapper), reduce(vcat, map(vec, wrapper.params))
    x, y = rand(Xoshiro(rank), Float32, 64, 64), rand(Xoshiro(rank), Float32, 10, 64)
    return () -> Zygote.withgradient(θ -> sum(abs2, net(x, θ) .- y), θ)
end

function pde_step()
    wrapper = PaddleFCNet(2, 1, 4, 64; activation = "tanh", seed = 0)
    net, θ = PaddleNet(wrapper), reduce(vcat, map(vec, wrapper.params))
    x = rand(Xoshiro(rank), Float32, 2, 1000)
    return () -> Zygote.withgradient(θ -> sum(abs2, laplacian(net, x, θ) .+ 1), θ)
end

function milliseconds(f)
    MPI.Barrier(comm)
    return 1e3 * @elapsed f()
end

for (name, make, count) in (("digits", digits_step, 1000), ("PDE", pde_step, 150))
    step = make()
    together() = rank_average(step; weight = 64)
    foreach(_ -> (step(); together()), 1:20)
    times = [(milliseconds(together), milliseconds(step)) for _ in 1:count]
    whole, alone = first.(times), last.(times)
    rank == 0 && println(name, " step", '\t', minimum(whole), '\t', sum(whole) / count)
    rank == 0 && println(name, " alone", '\t', minimum(alone), '\t', sum(alone) / count)
end
const small = zeros(Float32, 1)
const large = zeros(Float32, 1_000_000)
for (name, buffer, count) in (("one number", small, 2000), ("4 MB", large, 100))
    foreach(_ -> MPI.Allreduce!(buffer, +, comm), 1:20)
    times = [milliseconds(() -> MPI.Allreduce!(buffer, +, comm)) for _ in 1:count]
    rank == 0 && println(name, '\t', minimum(times), '\t', sum(times) / count)
end
