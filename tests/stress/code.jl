# Nets as machine code, called by threads without a lock; nets come and go, batches change, garbage is
# collected. Values and gradients are compared with plain Julia's, Laplacians with the first ones.
#
#     julia -t 4 tests/stress/code.jl [calls]

using PaddleChainRules
using PaddleChainRules: compile, forward!, laplacian, pullback
using Random: Xoshiro
using Zygote: Zygote

include("shared.jl")

const CALLS = isempty(ARGS) ? 10_000_000 : parse(Int, ARGS[1])
const ROUNDS, NETS, BATCHES = 20, 6, (1, 2, 3, 8, 31, 64)
const ACTS = merge(ACTIVATIONS, (silu = x -> x * sigmoid(x),))

struct Batch{T}
    x::Matrix{T}
    ȳ::Matrix{T}
    y::Matrix{T}
    x̄::Matrix{T}
    θ̄::Vector{T}
    Δ::Matrix{T}
end

struct Case{T}
    net::PaddleNet
    θ::Vector{T}
    batches::Vector{Batch{T}}
    curved::Bool # so that its Laplacian is not zero, which is no code
end

flat(ps) = reduce(vcat, vec.(ps))
near(a, b, roundoffs = 2_000) = size(a) == size(b) && maximum(abs, a .- b) <= roundoffs * eps(eltype(b)) * max(1, maximum(abs, b))

function case(rng)
    T, name = rand(rng, (Float32, Float64)), rand(rng, keys(ACTS))
    act, n, m, layers = ACTS[name], rand(rng, 1:6), rand(rng, 1:5), rand(rng, 1:4)
    curved = layers > 1 && name !== :relu
    w = PaddleFCNet(
        n, m, layers, rand(rng, 2:16);
        dtype = lowercase(string(T)), activation = string(name), seed = rand(rng, UInt16),
    )
    net, ps, θ = PaddleNet(w), w.params, flat(w.params)
    batches = map(BATCHES) do count
        x, ȳ = randn(rng, T, n, count), randn(rng, T, m, count)
        y, back = Zygote.pullback((ps, x) -> chain(act, ps, x), ps, x)
        p̄s, x̄ = back(ȳ)
        return Batch{T}(x, ȳ, y, x̄, flat(p̄s), laplacian(net, x, θ))
    end
    said = compile(net, last(batches).x, θ)
    occursin("are machine code", said) || error(said)
    for of in (curved ? (batches[1], batches[end-1], batches[end]) : ()), _ in 1:45 # brings the code home
        near(laplacian(net, of.x, θ), of.Δ) || error("a Laplacian is another than at first")
    end
    return Case{T}(net, θ, collect(batches), curved)
end

"One call of any kind: whether it gives what it should."
function right(rng, (; net, θ, batches, curved)::Case{T}) where {T}
    (; x, ȳ, y, x̄, θ̄, Δ) = rand(rng, batches)
    kind = rand(rng, 1:(curved ? 6 : 5))
    if kind == 1
        found = (net(x, θ),)
        expected = (y,)
    elseif kind == 2
        found, expected = (forward!(similar(y), net, x, θ),), (y,)
    elseif kind == 3
        value, back = pullback(net, x, θ)
        found, expected = (value, back(ȳ)...), (y, x̄, θ̄)
    elseif kind == 4
        total, of_x = ones(T, length(θ)), similar(x)
        pullback(net, x, θ)[2](ȳ; into = (of_x, nothing))
        pullback(net, x, θ)[2](ȳ; into = (nothing, total), accumulate = true)
        found, expected = (of_x, total), (x̄, θ̄ .+ 1)
    elseif kind == 5
        found, expected = Zygote.gradient((x, θ) -> sum(ȳ .* net(x, θ)), x, θ), (x̄, θ̄)
    else
        found, expected = (laplacian(net, x, θ),), (Δ,)
    end
    ok = all(map(near, found, expected))
    foreach(a -> fill!(a, T(NaN)), found) # they are the caller's
    return ok
end

function work(seed, cases, calls)
    rng, wrong = Xoshiro(seed), 0
    for k in 1:calls
        right(rng, rand(rng, cases)) || (wrong += 1)
        k % 10_000 == 0 && GC.gc(false)
        k % 100_000 == 0 && GC.gc()
    end
    return wrong
end

function main()
    threads, wrong, half, begun = Threads.nthreads(), 0, 0.0, time()
    calls = CALLS ÷ ROUNDS ÷ threads
    for turn in 1:ROUNDS
        cases = [case(Xoshiro(1000turn + k)) for k in 1:NETS]
        found = zeros(Int, threads)
        Threads.@threads :static for t in 1:threads
            found[t] = work(100turn + t, cases, calls)
        end
        wrong += sum(found)
        GC.gc()
        turn == ROUNDS ÷ 2 && (half = resident())
        print(stderr, "\r$(turn * threads * calls) calls, $wrong wrong, $(round(Int, resident())) MB ")
    end
    println(
        "\n$(ROUNDS * threads * calls) calls on $threads threads in $(round(Int, time() - begun)) s: $wrong wrong, ",
        "memory grew by $(round(resident() - half; digits = 1)) MB over the second half",
    )
    exit(wrong == 0 ? 0 : 1)
end

main()
