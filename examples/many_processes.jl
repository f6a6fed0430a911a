# A Poisson equation whose points are shared out among processes, by MPI and Lux:
#
#     export UCX_ERROR_SIGNALS=SIGILL,SIGBUS,SIGFPE    # where MPI stands on UCX
#     mpiexec -n 2 julia --project examples/many_processes.jl
#
# -Δu = 2π² sin πx sin πy on the unit square, u = 0 on its boundary. The parameters are one
# vector, so that their gradient is averaged in one round.

using Lux: Lux, DistributedUtils, MPIBackend
using MPI
using Optimisers
using PaddleChainRules
using PythonCall: PythonCall
using Random: Xoshiro
using Zygote: Zygote

DistributedUtils.initialize(MPIBackend)
const backend = DistributedUtils.get_distributed_backend(MPIBackend)
const rank, size_ = DistributedUtils.local_rank(backend), DistributedUtils.total_workers(backend)

const wrapper = PaddleFCNet(2, 1, 3, 16; activation = "tanh", dtype = "float64", seed = 1)
const net = PaddleNet(wrapper)

source(x) = 2π^2 .* sinpi.(x[1:1, :]) .* sinpi.(x[2:2, :])
const points = rand(Xoshiro(1), 2, 501)
const edge = let s = rand(Xoshiro(2), 25)'
    hcat([s; zero(s)], [s; one.(s)], [zero(s); s], [one.(s); s])
end

"This rank's columns; numbers of them differ by one at most."
shard(x) = x[:, 1+size(x, 2)*rank÷size_:size(x, 2)*(rank+1)÷size_]
const mine, mine_of_edge = shard(points), shard(edge)

# Sums over this rank's points, over the mean number of points of a rank: so that the
# average over ranks is the mean over all points, however many each has.
mean_of(residuals, all) = sum(abs2, residuals) * size_ / size(all, 2)
loss(θ, x, e) =
    mean_of(laplacian(net, x, θ) .+ source(x), points) + 100mean_of(net(e, θ), edge)

function train(θ, steps)
    rule = DistributedUtils.DistributedOptimizer(backend, Optimisers.Adam(0.01))
    state, value = Optimisers.setup(rule, θ), Inf
    for step in 1:steps
        value, (gradient,) = Zygote.withgradient(θ -> loss(θ, mine, mine_of_edge), θ)
        state, θ = Optimisers.update(state, θ, gradient)
        step % 500 == 0 && Optimisers.adjust!(state, 0.01 * 0.3^(step ÷ 500))
    end
    return θ, value
end

function main()
    start = reduce(vcat, map(vec, wrapper.params)) .* (rank + 1) # other on each rank
    θ = DistributedUtils.synchronize!!(backend, start; root = 0)
    # The average of the gradients is that of one process with all points.
    gradient = Zygote.gradient(θ -> loss(θ, mine, mine_of_edge), θ)[1]
    DistributedUtils.allreduce!(backend, gradient, DistributedUtils.avg)
    whole = Zygote.gradient(θ -> loss(θ, points, edge) / size_, θ)[1]
    difference = maximum(abs, gradient - whole) / maximum(abs, whole)
    @assert difference < 1e-12
    θ, _ = train(θ, 2000)
    grid = [[x, y] for x in 0:0.05:1 for y in 0:0.05:1]
    x = reduce(hcat, grid)
    error_ = maximum(abs, net(x, θ) .- sinpi.(x[1:1, :]) .* sinpi.(x[2:2, :]))
    rank == 0 && println(
        "$size_ processes: gradients differ by $difference from one's, u by $error_",
    )
    @assert error_ < 0.02
    return nothing
end

main()
