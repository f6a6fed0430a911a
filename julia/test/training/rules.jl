using LinearAlgebra: dot, norm
using Optimisers: Optimisers
using PaddleChainRules: PaddleChainRules, TraceError, train!
using Random: Xoshiro

include("../oracle.jl")

const RULES = (
    descent = Optimisers.Descent(0.01), momentum = Optimisers.Momentum(0.01, 0.8),
    nesterov = Optimisers.Nesterov(0.005, 0.9), rmsprop = Optimisers.RMSProp(0.002, 0.95, 1e-6),
    centred = Optimisers.RMSProp(0.002, 0.9, 0.5; centred = true), rprop = Optimisers.Rprop(1e-4),
    adam = Optimisers.Adam(0.003, (0.85, 0.99), 1e-5), lion = Optimisers.Lion(0.0003), radam = Optimisers.RAdam(0.003),
    adamax = Optimisers.AdaMax(0.002), oadam = Optimisers.OAdam(0.001), adagrad = Optimisers.AdaGrad(0.02),
    adadelta = Optimisers.AdaDelta(0.95, 1e-5), amsgrad = Optimisers.AMSGrad(0.002), nadam = Optimisers.NAdam(0.003),
    adamw = Optimisers.AdamW(0.003, (0.9, 0.99), 0.1), uncoupled = Optimisers.AdamW(0.003, (0.9, 0.99), 0.001; couple = false),
    adabelief = Optimisers.AdaBelief(0.002), decayed = Optimisers.OptimiserChain(Optimisers.WeightDecay(0.1), Optimisers.Adam(0.002)),
    signs = Optimisers.OptimiserChain(Optimisers.SignDecay(0.01), Optimisers.Momentum(0.005)),
    clipped = Optimisers.OptimiserChain(Optimisers.ClipGrad(0.4), Optimisers.Adam(0.002)),
    short = Optimisers.OptimiserChain(Optimisers.WeightDecay(0.05), Optimisers.ClipNorm(0.9), Optimisers.Momentum(0.01)),
    shorter = Optimisers.OptimiserChain(Optimisers.ClipNorm(0.8, 1; throw = false), Optimisers.Descent(0.02)),
)

parts(x) = x isa Tuple ? reduce(vcat, map(parts, x); init = Any[]) : Any[x]
parts(::Nothing) = Any[]

start(::Type{T}) where {T} = T.(randn(Xoshiro(1), 2, 3))
const C, D = rand(Xoshiro(3), 2, 3) .+ 0.5, randn(Xoshiro(4), 2, 3)
loss(p, c, d) = sum(c .* p .^ 2) / 2 + sum(d .* sin.(p))
gradient(p, c, d) = c .* p .+ d .* cos.(p)

# Where all is interpreted (see files.jl), 300 take a minute.
const STEPS = Base.JLOptions().compile_enabled == 3 ? 25 : 300

"The steps that `Optimisers.update!` makes of one array."
function by_optimisers(rule, p, steps, c, d)
    state = Optimisers.init(rule, p)
    for _ in 1:steps
        state, change = Optimisers.apply!(rule, state, p, gradient(p, c, d))
        p = p .- change
    end
    return p, state
end

@testset "$STEPS steps of each rule of Optimisers, $T" for (T, names, rtol) in (
    (Float64, keys(RULES), 1e-9), (Float32, (:adam, :nesterov, :adamw, :short), 1e-3),
)
    c, d, rules = T.(C), T.(D), RULES[names]
    ps = map(_ -> start(T), rules)
    state = map(Optimisers.setup, rules, ps)
    losses = train!(ps -> sum(p -> loss(p, c, d), values(ps)), ps, state; steps = STEPS)
    @test length(losses) == STEPS && eltype(losses) == T
    @testset "$name" for name in names
        # A difference of nearly equal numbers, under a root.
        tolerance = name === :centred ? 1e-6 : rtol
        p, own = by_optimisers(rules[name], start(T), STEPS, c, d)
        @test same(ps[name], p; rtol = tolerance, atol = tolerance)
        @test all(ps[name] .!= start(T))
        old, new = parts(own), parts(state[name].state)
        @test all(map((x, y) -> typeof(x) == typeof(y) && same(y, x; rtol = 10tolerance, atol = tolerance), old, new))
    end
end

@testset "rates that change on the way, $T" for (T, rtol) in ((Float64, 1e-9), (Float32, 1e-3))
    c, d = T.(C), T.(D)
    ps = map(_ -> start(T), RULES)
    state = map(Optimisers.setup, RULES, ps)
    rate(step) = 0.004 / (1 + step)
    schedule(step, _, _) = (Optimisers.adjust!(state, rate(step)); false)
    train!(ps -> sum(p -> loss(p, c, d), values(ps)), ps, state; steps = 12, every = 4, callback = schedule)
    @testset "$name" for name in keys(RULES)
        p, rule = start(T), RULES[name]
        own = Optimisers.setup(rule, p)
        for step in 1:12
            own, p = Optimisers.update(own, p, gradient(p, c, d))
            step % 4 == 0 && Optimisers.adjust!(own, rate(step))
        end
        tolerance = name === :centred ? 1e-6 : rtol
        @test same(ps[name], p; rtol = tolerance, atol = tolerance)
        @test state[name].rule == own.rule
    end
end

@testset "rules that can't be traced" begin
    ps = start(Float64)
    for rule in (Optimisers.AccumGrad(2), Optimisers.OptimiserChain(Optimisers.AccumGrad(3), Optimisers.Adam()))
        err = @test_throws TraceError train!(loss, ps, Optimisers.setup(rule, ps), C, D; steps = 3)
        said = sprint(showerror, err.value)
        @test occursin("AccumGrad counts its calls", said) && occursin("value_and_gradient!", said)
    end
    @test ps == start(Float64)
end

@testset "ClipNorm refuses what is not finite, and a rule of one's own" begin
    ps, rule = start(Float64), Optimisers.OptimiserChain(Optimisers.ClipNorm(1.0), Optimisers.Descent(0.1))
    state = Optimisers.setup(rule, ps)
    ps[1, 2] = 1e-9
    steep(p) = sum(sqrt.(abs.(p) .- p))
    seen = Int[]
    err = @test_throws DomainError train!((p) -> steep(p), ps, state; steps = 40, callback = (i, _, _) -> (push!(seen, i); nothing))
    @test all(isfinite, ps) && length(seen) < 40
end

struct Halves <: Optimisers.AbstractRule end
Optimisers.init(::Halves, x::AbstractArray) = (zero(x), 1)
Optimisers.apply!(::Halves, (sum, n), x, x̄) = ((sum .+ x̄, n + 1), (sum .+ x̄) ./ (2 * n))

@testset "a rule of one's own" begin
    p, q = start(Float64), start(Float64)
    state, other = Optimisers.setup(Halves(), p), Optimisers.setup(Halves(), q)
    train!(loss, p, state, C, D; steps = 7)
    for _ in 1:7
        Optimisers.update!(other, q, gradient(q, C, D))
    end
    @test same(p, q; rtol = 1e-12) && same(state.state[1], other.state[1]; rtol = 1e-12)
    @test state.state[2] === other.state[2] === 8
end

struct Measured <: Optimisers.AbstractRule end
Optimisers.init(::Measured, _) = nothing
Optimisers.apply!(::Measured, state, x, x̄) = state, x̄ .* (0.5 / (1 + norm(x̄) + dot(x̄, x̄)))

@testset "a rule of one's own behind one that gives what is not computed yet" begin
    rule = Optimisers.OptimiserChain(Optimisers.Adam(0.1), Measured())
    p, q, weights = [1.0, 2.0], [1.0, 2.0], [3.0, -1.0]
    train!(p -> sum(weights .* p .^ 2), p, Optimisers.setup(rule, p); steps = 3)
    state = Optimisers.setup(rule, q)
    foreach(_ -> Optimisers.update!(state, q, 2 .* weights .* q), 1:3)
    @test p ≈ q
end

struct Normalized <: Optimisers.AbstractRule end
Optimisers.init(::Normalized, _) = nothing
Optimisers.apply!(::Normalized, state, x::AbstractArray{T}, x̄) where {T} = state, T(0.01) .* (x̄ ./ sum(abs, x̄))

@testset "a rule that divides by numbers of any size: $size" for size in (
    1.0f-39, 1.0f-30, 1.0f0, 1.0f30, 1.0f38, 1e-310, 1e-280, 1.0, 1e280, 1e307,
)
    T = typeof(size)
    weights = T[1, 2, 3]
    p = copy(weights)
    train!(p -> sum(p .* weights) * (size / 6), p, Optimisers.setup(Normalized(), p); steps = 1)
    @test p ≈ weights .- T(0.01) .* weights ./ 6
end
