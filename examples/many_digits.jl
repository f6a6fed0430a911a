# Real digits, trained by as many processes as one starts, with checkpoints:
#
#     export UCX_ERROR_SIGNALS=SIGILL,SIGBUS,SIGFPE    # where MPI stands on UCX
#     mpiexec -n 2 julia --project examples/many_digits.jl
#
# Started again it goes on from its last checkpoint, with the same bits as if it had not been
# interrupted. The arguments may name the file, and how many steps to take.

using MPI
using Optimisers
using PaddleChainRules
using PythonCall
using Random: Xoshiro, randperm
using Serialization: deserialize, serialize
using Zygote: Zygote

MPI.Init()
const comm = MPI.COMM_WORLD
const rank, ranks = MPI.Comm_rank(comm), MPI.Comm_size(comm)
const path = get(ARGS, 1, joinpath("output", "many_digits.jls"))
const steps = parse(Int, get(ARGS, 2, "400"))

pyimport("sys").path.insert(0, @__DIR__)
const data = pyimport("digits").load()
pixels(array) = permutedims(pyconvert(Matrix{Float32}, array))
const x, x_test = pixels(data.x), pixels(data.x_test)
const labels, labels_test = pyconvert.(Vector{Int}, (data.labels, data.labels_test))

const layer = paddle.nn.Sequential(
    paddle.nn.Linear(64, 64), paddle.nn.ReLU(), paddle.nn.Dropout(0.1), paddle.nn.Linear(64, 10),
)
const wrapper = PaddleModuleWrapper(layer; jit = true) # a program from the first call on
const net = PaddleNet(wrapper)

"Mean cross entropy of logits, whose columns are samples."
function cross_entropy(logits, labels)
    shifted = logits .- maximum(logits; dims = 1)
    picked = CartesianIndex.(labels .+ 1, axes(logits, 2))
    return (sum(log.(sum(exp, shifted; dims = 1))) - sum(shifted[picked])) / length(labels)
end

"This rank's part of a batch; parts differ by one at most."
shard(batch) = batch[1+length(batch)*rank÷ranks:length(batch)*(rank+1)÷ranks]

"Write all of it, or nothing; one rank alone does."
function save(state)
    if rank == 0
        mkpath(dirname(path))
        serialize(path * ".part", state)
        mv(path * ".part", path; force = true)
    end
    return MPI.Barrier(comm)
end

"The state that rank 0 has, on all ranks."
function start()
    ps = wrapper.params
    state = (; ps, optimizer = Optimisers.setup(Optimisers.Adam(1.0f-2), ps), step = 0)
    rank == 0 && isfile(path) && (state = deserialize(path))
    # A net's first call runs as Paddle runs it, those after it as a program, which rounds
    # otherwise: with one call ahead, a run that goes on has the bits of one that went through.
    net(x[:, 1:2], ps, PaddleChainRules.initial_state(net))
    return MPI.bcast(state, comm; root = 0)
end

function train(state)
    value = NaN
    for step in state.step+1:steps
        batch = shard(randperm(Xoshiro(step), size(x, 2))[1:101])
        st = PaddleChainRules.initial_state(net; seed = step * ranks + rank) # each its dropout
        value, (gradient,) = rank_average(; weight = length(batch)) do
            Zygote.withgradient(state.ps) do ps
                logits, _ = net(x[:, batch], ps, st)
                cross_entropy(logits, labels[batch])
            end
        end
        optimizer, ps = Optimisers.update(state.optimizer, state.ps, gradient)
        state = (; ps, optimizer, step)
        step % 100 == 0 && save(state)
        rank == 0 && step % 100 == 0 && println("step $step: loss $value")
    end
    return state
end

function main()
    state = train(start())
    logits = PaddleChainRules.testmode(net)(x_test, state.ps)
    guess = [argmax(column) - 1 for column in eachcol(logits)]
    accuracy = count(guess .== labels_test) / length(labels_test)
    rank == 0 && println("$ranks processes, $(round(100accuracy; digits = 1))% of digits not seen")
    @assert steps < 400 || accuracy > 0.95
    return state
end

abspath(PROGRAM_FILE) == @__FILE__() && main()
