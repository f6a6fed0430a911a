# Handwritten digits from Julia: the net of digits.py with Zygote and Optimisers, on the same
# data, batches and initial parameters. Run it from the folder of the checkout:
#
#     julia --project=$(julia julia/environment.jl | head -1) examples/digits.jl
#
# With the path of a file as argument, the losses and the accuracy go there as JSON.

using Optimisers
using PaddleChainRules
using PythonCall
using Zygote

pyimport("sys").path.insert(0, @__DIR__)
const digits_py = pyimport("digits")
const tqdm = pyimport("tqdm").tqdm

# numpy is row-major, Julia column-major: the same bytes are a (64, n) matrix here.
function pixels(array)
    x = pyconvert(Matrix{Float32}, array)
    return permutedims(x)
end

const data = digits_py.load()
const x, x_test = pixels(data.x), pixels(data.x_test)
const labels, labels_test = pyconvert.(Vector{Int}, (data.labels, data.labels_test))

"Mean cross entropy of the net's logits, whose columns are samples."
function cross_entropy(logits, labels)
    shifted = logits .- maximum(logits; dims = 1)
    picked = CartesianIndex.(labels .+ 1, axes(logits, 2))
    return sum(log.(sum(exp, shifted; dims = 1))) / length(labels) -
           sum(shifted[picked]) / length(labels)
end

function train(net)
    rate, momentum = pyconvert.(Float32, (digits_py.RATE, digits_py.MOMENTUM))
    state = Optimisers.setup(Optimisers.Momentum(rate, momentum), net)
    losses = Float32[]
    for batch in tqdm(data.batches; desc = "Julia ", unit = "batch", mininterval = 0.5)
        columns = pyconvert(Vector{Int}, batch) .+ 1
        value, (gradient,) = Zygote.withgradient(net) do net
            cross_entropy(net(x[:, columns]), labels[columns])
        end
        state, net = Optimisers.update!(state, net, gradient)
        push!(losses, value)
    end
    return net, losses
end

predict(net, x) = [argmax(column) - 1 for column in eachcol(net(x))]

function main(args)
    first_net = PaddleFCNet(64, 10, 2, 64; activation = "relu", seed = 0)
    net, losses = train(first_net)
    accuracy = count(predict(net, x_test) .== labels_test) / length(labels_test)
    println("first loss $(losses[1]), last $(losses[end])")
    println("accuracy on $(length(labels_test)) digits not seen: $(round(100accuracy; digits = 1))%")
    @assert accuracy > 0.95
    if !isempty(args)
        result = pydict(; losses = pylist(losses), accuracy)
        write(only(args), pyconvert(String, pyimport("json").dumps(result)))
    end
    return nothing
end

abspath(PROGRAM_FILE) == @__FILE__() && main(ARGS)
