# Averages over the shards of all ranks, beside one process with all samples.

using MPI, Optimisers, PaddleChainRules, Zygote
using PythonCall: PythonCall
using Random: Xoshiro

MPI.Init()
const rank, ranks = MPI.Comm_rank(MPI.COMM_WORLD), MPI.Comm_size(MPI.COMM_WORLD)
const n = 37 # in uneven shards
const mine = 1+n*rank÷ranks:n*(rank+1)÷ranks

const lines = String[] # that rank 0 prints of all, so that they are whole

flat(::Nothing) = Float64[]
flat(x::Number) = [Float64(real(x)), Float64(imag(x))]
flat(x::AbstractArray) = reduce(vcat, map(flat, vec(x)); init = Float64[])
flat(x::Union{Tuple,NamedTuple}) = reduce(vcat, map(flat, values(x)); init = Float64[])
flat(x) = flat(Optimisers.trainables(x))

function case(name, loss, given, bound)
    found = rank_average(; weight = length(mine)) do
        Zygote.withgradient(p -> loss(p, mine), given)
    end
    whole = Zygote.withgradient(p -> loss(p, 1:n), given)
    one, all = flat(found), flat(whole)
    @assert length(one) == length(all) > 1
    @assert typeof(found) == typeof(whole)
    difference = maximum(abs, one - all) / maximum(abs, all)
    push!(lines, "case $name $difference $bound")
    return one
end

const rng = Xoshiro(1)
const x, y = randn(rng, 3, n), randn(rng, 2, n)
const chain = PaddleFCNet(3, 2, 2, 16; activation = "tanh", dtype = "float64", seed = 1)
mean_square(found, i) = sum(abs2, found .- y[:, i]) / length(i)

bits = Any[]
push!(bits, case("wrapper", (w, i) -> mean_square(w(x[:, i]), i), chain, 1e-12))
const net, ps = PaddleNet(chain), chain.params
push!(bits, case("tuple", (p, i) -> mean_square(net(x[:, i], p), i), ps, 1e-12))
const θ = reduce(vcat, map(vec, ps))
push!(bits, case("vector", (p, i) -> mean_square(net(x[:, i], p), i), θ, 1e-12))
pde(p, i) = sum(abs2, laplacian(net, x[:, i], p) .+ 1) / length(i)
push!(bits, case("pde", pde, θ, 1e-12))

# BatchNorm in evaluation; in training its statistics are those of each shard.
const python = PythonCall.pyimport("paddle")
python.seed(0)
python.set_default_dtype("float64")
const normed = PaddleModuleWrapper(
    paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.BatchNorm1D(5), paddle.nn.Linear(5, 2)),
)
python.set_default_dtype("float32")
const own, st = rank_average(normed.params), PaddleChainRules.initial_state(normed)
const still, moving = PaddleChainRules.testmode(PaddleNet(normed)), PaddleNet(normed)
push!(bits, case("batchnorm", (p, i) -> mean_square(still(x[:, i], p), i), own, 1e-12))
const shards = [1+n*r÷ranks:n*(r+1)÷ranks for r in 0:ranks-1]
function by_shards(p, i)
    parts = i == mine ? (i,) : shards # one process works on all of them
    return sum(parts) do part
        length(part) / length(i) * mean_square(moving(x[:, part], p, st)[1], part)
    end
end
push!(bits, case("shards", by_shards, own, 1e-12))

# Real digits.
PythonCall.pyimport("sys").path.insert(0, joinpath(@__DIR__, "..", "..", "..", "examples"))
const data = PythonCall.pyimport("digits").load()
const pixels = permutedims(PythonCall.pyconvert(Matrix{Float64}, data.x))[:, 1:n]
const labels = PythonCall.pyconvert(Vector{Int}, data.labels)[1:n]
const classes = PaddleFCNet(64, 10, 2, 64; activation = "relu", dtype = "float64", seed = 2)
function cross_entropy(w, i)
    logits = w(pixels[:, i])
    picked = CartesianIndex.(labels[i] .+ 1, axes(logits, 2))
    return sum(log.(sum(exp, logits; dims = 1))) / length(i) - sum(logits[picked]) / length(i)
end
push!(bits, case("digits", cross_entropy, classes, 1e-12))

mixed = (; a = [1.0, 2.0], b = (3.0f0, nothing), c = Float16[1, 2], d = [1.0 + 2im 3.0])
function of_all(p, i)
    t = sum(x[1, i]) / length(i)
    return t * (sum(p.a) + p.b[1] + sum(p.c) + real(sum(p.d)) + imag(p.d[1]))
end
push!(bits, case("mixed", of_all, mixed, 1e-3))
const each = rank_average([Float64(length(i)) for i in (mine,)]; weight = 1)
push!(lines, "case average $(abs(each[1] - n / ranks)) 1e-12")
push!(lines, "bits $(hash(bits))")
const every = MPI.gather(lines, MPI.COMM_WORLD)
rank == 0 && foreach(println, reduce(vcat, every))
