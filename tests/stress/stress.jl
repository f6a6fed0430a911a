# Random nets, shapes, element types and call orders from Julia, each result compared with plain
# Julia: `julia [-t N] stress.jl CALLS SEED LOG KINDS`, where KINDS is `few` or `all`. LOG has
# ROWS lines: seconds, calls, bytes resident, in use, held for Julia. At the end it prints calls, wrong
# results and the largest error in units of the roundoff.

using ChainRulesCore: rrule, unthunk
using PaddleChainRules
using PythonCall
using Random
using Zygote: Zygote

const CALLS, SEED, LOG = parse(Int, ARGS[1]), parse(Int, ARGS[2]), ARGS[3]
const ELTYPES = ARGS[4] == "all" ? (Float32, Float64) : (Float64,)
const ROWS = 20
const WARM_UP = 1_000 # calls on one thread first, which compile
const TOLERANCE = 20_000 # of the unit roundoff, relative to the largest entry: norms divide by small numbers
const PYTHON_GC = pyimport("gc")

"Bytes resident and in use by both languages, without garbage and what was given back."
function memory()
    for _ in 1:2 # what one frees is garbage of the other
        GC.gc()
        PaddleChainRules.crossing(() -> (PythonCall.GC.gc(); PYTHON_GC.collect()))
    end
    @ccall malloc_trim(0::Csize_t)::Cint
    rows = map(split, readlines("/proc/self/smaps_rollup")[2:end])
    kB = Dict(row[1] => parse(Int, row[2]) for row in rows)
    resident = 1024 * (kB["Rss:"] - kB["LazyFree:"])
    allocated = @ccall mallinfo2()::NTuple{10,Csize_t} # the fifth: mapped alone; the eighth: within arenas
    return resident, Int(allocated[5] + allocated[8]) + Base.gc_live_bytes()
end

# The nets again, in plain Julia.
include("shared.jl")

function normed(ps, x)
    h = ps[1] * x .+ ps[2]
    centred = h .- sum(h; dims = 1) ./ size(h, 1)
    scale = sqrt.(sum(abs2, centred; dims = 1) ./ size(h, 1) .+ eltype(x)(1.0f-5)) # of single precision in Paddle too
    return ps[5] * (centred ./ scale .* ps[3] .+ ps[4]) .+ ps[6]
end

# (features, steps, samples); Paddle's gates are input, forget, cell, output.
function lstm((wx, wh, bx, bh), x)
    n = size(wh, 1)
    h = c = zeros(eltype(x), n, size(x, 3))
    steps = map(axes(x, 2)) do t
        gates = wx' * x[:, t, :] .+ bx .+ wh' * h .+ bh
        i, f, g, o = (gates[(k*n+1):(k*n+n), :] for k in 0:3)
        c = sigmoid.(f) .* c .+ sigmoid.(i) .* tanh.(g)
        h = sigmoid.(o) .* tanh.(c)
        return reshape(h, n, 1, :)
    end
    return reduce(hcat, steps)
end

struct Case{F,X}
    net::PaddleNet
    params::Tuple
    reference::F # of parameters and input
    input::X # of a random generator and an element type
    output::Function # the part that is compared
end

function cases(rng)
    found = Case[]
    for (name, act) in pairs(ACTIVATIONS), T in ELTYPES
        n, m, layers, width = rand(rng, 1:6), rand(rng, 1:5), rand(rng, 1:4), rand(rng, 2:9)
        w = PaddleFCNet(n, m, layers, width; dtype = lowercase(string(T)), activation = string(name), seed = rand(rng, UInt16))
        push!(found, Case(w.net, w.params, (ps, x) -> chain(act, ps, x), rng -> randn(rng, T, n, rand(rng, 0:40)), identity))
    end
    for T in ELTYPES
        paddle.set_default_dtype(lowercase(string(T)))
        layers = paddle.nn.Linear(5, 7), paddle.nn.LayerNorm(7), paddle.nn.Linear(7, 2)
        w = PaddleModuleWrapper(paddle.nn.Sequential(layers...))
        push!(found, Case(w.net, w.params, normed, rng -> randn(rng, T, 5, rand(rng, 1:20)), identity))
        w = PaddleModuleWrapper(paddle.nn.LSTM(3, 4))
        transposed = (ps, x) -> lstm((ps[1], ps[2], ps[3], ps[4]), x)
        push!(found, Case(w.net, w.params, transposed, rng -> randn(rng, T, 3, rand(rng, 1:5), rand(rng, 1:6)), first))
    end
    return found
end

mutable struct Count
    calls::Int
    wrong::Int
    error::Float64
end

function compare!(count::Count, found, expected)
    scale = max(1, maximum(abs, expected; init = 0.0))
    error = maximum(abs, found .- expected; init = 0.0) / scale
    count.error = max(count.error, error / eps(real(eltype(expected))))
    size(found) == size(expected) && error < TOLERANCE * eps(real(eltype(expected))) || (count.wrong += 1)
    return nothing
end

cotangent(case::Case, ȳ) = case.output === first ? (ȳ, nothing) : ȳ

"One random piece of work of a task that owns `kept` and the parameters of its cases."
function step!(count::Count, rng, cases, kept)
    case = rand(rng, cases)
    (; net, params, reference) = case
    x, kind = case.input(rng), rand(rng, 1:8)
    if kind <= 2
        compare!(count, case.output(net(x, params)), reference(params, x))
    elseif kind == 3
        theta = reduce(vcat, vec.(params))
        compare!(count, case.output(net(x, theta)), reference(params, x))
        theta .*= 2 # in place: seen by Paddle
        compare!(count, case.output(net(x, theta)), reference(map(p -> 2p, params), x))
        count.calls += 1
    elseif kind <= 5
        y, back = rrule(net, x, params)
        value = case.output(y)
        ȳ = randn(rng, eltype(value), size(value))
        expected, pull = Zygote.pullback(reference, params, x)
        compare!(count, value, expected)
        p̄s, x̄ = pull(ȳ)
        _, found, found_params = back(cotangent(case, ȳ))
        compare!(count, unthunk(found), x̄)
        if kind == 4
            count.calls += 1
            for (a, b) in zip(unthunk(found_params), p̄s)
                compare!(count, unthunk(a), b)
            end
        end
        push!(kept, (case, back, ȳ, unthunk(found)))
        count.calls += 1
    elseif kind == 6 && !isempty(kept) # again, long after
        of, back, ȳ, x̄ = rand(rng, kept)
        compare!(count, unthunk(back(cotangent(of, ȳ))[2]), x̄)
        length(kept) > 100 && empty!(kept)
    elseif kind == 7
        rrule(net, x, params) # dropped
    else
        for p in params
            p .= clamp.(p .* eltype(p)(1.001), -3, 3)
        end
        filter!(item -> item[1] !== case, kept)
        compare!(count, case.output(net(x, params)), reference(params, x))
    end
    count.calls += 1
    roll = rand(rng)
    roll < 2e-3 && GC.gc(false)
    roll < 1e-4 && (GC.gc(); PaddleChainRules.crossing(() -> PYTHON_GC.collect()))
    return nothing
end

own(case::Case) = Case(case.net, map(copy, case.params), case.reference, case.input, case.output)

function work(count::Count, seed, shared, calls)
    rng, kept, mine = Xoshiro(seed), Any[], map(own, shared)
    while count.calls < calls
        step!(count, rng, mine, kept)
        rand(rng) < 0.02 && yield() # so that `watch` has its turn
    end
    return nothing
end

function watch(counts, stop)
    start, next = time(), 0.0
    open(LOG, "w") do log
        while !stop[]
            sleep(0.05)
            calls = sum(c -> c.calls, counts)
            calls < next && continue
            next += CALLS / ROWS
            println(log, join((round(time() - start; digits = 2), calls, memory()..., PaddleChainRules.RETAINED_BYTES[]), " "))
            flush(log)
        end
    end
    return nothing
end

function main()
    tasks = Threads.nthreads()
    counts, stop = [Count(0, 0, 0.0) for _ in 1:tasks], Threads.Atomic{Bool}(false)
    shared = cases(Xoshiro(SEED))
    work(counts[1], SEED, shared, min(WARM_UP, CALLS ÷ tasks))
    watching = @async watch(counts, stop)
    start = time()
    if tasks == 1
        work(only(counts), SEED + 1, shared, CALLS)
    else
        PaddleChainRules.threaded() do
            foreach(wait, [Threads.@spawn(work(counts[i], SEED + i, shared, CALLS ÷ tasks)) for i in 1:tasks])
        end
    end
    seconds = time() - start
    stop[] = true
    wait(watching)
    println(
        "calls ", sum(c -> c.calls, counts), " wrong ", sum(c -> c.wrong, counts),
        " error ", maximum(c -> c.error, counts), " seconds ", seconds,
    )
    return nothing
end

main()
