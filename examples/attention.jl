# A Transformer layer of Paddle between two layers of Julia: digits read row by row. Julia embeds
# the eight rows of a scan, Paddle lets them attend to each other, Julia reads the digit; Zygote
# differentiates through all. The layer's dropout is drawn from the seed in the explicit state.
#
#     julia --project=$(julia julia/environment.jl | head -1) examples/attention.jl
#
# The data are scikit-learn's 1797 real scans; the picture goes to output/attention.png.

using Optimisers
using PaddleChainRules
using PythonCall
using Random
using Zygote

include("digits.jl") # the data, their batches in the last dimension, and the cross entropy

const OUTPUT = joinpath(dirname(@__DIR__), "output")
const WIDTH, EPOCHS, RATE = 24, 15, 3.0f-3

# (pixels of a row, rows, samples): the same bytes as Python's [samples, rows, pixels].
const scans, scans_test = reshape(x, 8, 8, :), reshape(x_test, 8, 8, :)

"An affine map of the first dimension."
dense(ps, x) = reshape(ps.weight * reshape(x, size(x, 1), :), :, size(x)[2:end]...) .+ ps.bias
fresh(rng, to, from) = (; weight = randn(rng, Float32, to, from) ./ sqrt(Float32(from)), bias = zeros(Float32, to))

paddle.seed(0)
const wrapper = PaddleModuleWrapper(
    paddle.nn.TransformerEncoderLayer(WIDTH, 4, 2WIDTH; dropout = 0.1),
)
const attention = PaddleNet(wrapper)

"Logits of a batch, and the state of the next call."
function model(ps, st, x)
    rows = dense(ps.embed, x) .+ ps.place # Julia
    mixed, st = attention(rows, ps.attention, st) # Paddle
    pooled = dropdims(sum(mixed; dims = 2); dims = 2) ./ 8
    return dense(ps.read, pooled), st # Julia
end

function accuracy(ps, st)
    logits, _ = model(ps, merge(st, (; training = Val(false))), scans_test)
    return count([argmax(c) - 1 for c in eachcol(logits)] .== labels_test) / length(labels_test)
end

"The gradient along a random direction of every array against the slope of the loss."
function check_gradient(ps, st, batch)
    loss(ps) = cross_entropy(first(model(ps, st, scans[:, :, batch])), labels[batch])
    gradient = Zygote.gradient(loss, ps)[1]
    flat, rebuild = Optimisers.destructure(ps)
    parts, _ = Optimisers.destructure(gradient)
    v = randn(Xoshiro(1), Float32, length(flat))
    step = 1.0f-3
    slope = (loss(rebuild(flat .+ step .* v)) - loss(rebuild(flat .- step .* v))) / 2step
    @assert isapprox(sum(parts .* v), slope; rtol = 0.02)
end

function train(ps, st)
    rng = Xoshiro(0)
    state = Optimisers.setup(Optimisers.Adam(RATE), ps)
    losses, scores = Float32[], Float64[]
    for _ in tqdm(1:EPOCHS; desc = "Digits", unit = "epoch")
        for batch in Iterators.partition(shuffle(rng, eachindex(labels)), 64)
            (value, st), back = Zygote.pullback(ps) do ps
                logits, next = model(ps, st, scans[:, :, batch])
                return cross_entropy(logits, labels[batch]), next
            end
            state, ps = Optimisers.update!(state, ps, back((1.0f0, nothing))[1])
            push!(losses, value)
        end
        push!(scores, accuracy(ps, st))
    end
    return ps, losses, scores
end

function draw(losses, scores)
    pyimport("matplotlib").use("Agg")
    plt = pyimport("matplotlib.pyplot")
    figure, (left, right) = plt.subplots(1, 2; figsize = (9, 3.2), layout = "constrained")
    left.semilogy(pylist(losses); linewidth = 0.8)
    left.set(; title = "Training loss", xlabel = "batch", ylabel = "cross entropy")
    right.plot(pylist(1:length(scores)), pylist(100 .* scores); marker = "o", markersize = 3)
    right.set(; title = "Digits not seen", xlabel = "epoch", ylabel = "% read rightly")
    foreach(axes -> axes.grid(; alpha = 0.3), (left, right))
    mkpath(OUTPUT)
    figure.savefig(joinpath(OUTPUT, "attention.png"); dpi = 110)
    return plt.close(figure)
end

function read_digits()
    rng = Xoshiro(0)
    ps = (;
        embed = fresh(rng, WIDTH, 8), place = 0.1f0 .* randn(rng, Float32, WIDTH, 8),
        attention = wrapper.params, read = fresh(rng, 10, WIDTH),
    )
    st = PaddleChainRules.initial_state(attention; seed = 0)
    check_gradient(ps, st, 1:64)
    _, losses, scores = train(ps, st)
    draw(losses, scores)
    println("$(round(100scores[end]; digits = 1))% of $(length(labels_test)) digits not seen are read rightly")
    @assert scores[end] > 0.93
    return nothing
end

read_digits()
