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

start(::Type{T}) where {T} = (a = T.(randn(Xoshiro(1), 2, 3)), b = T.(randn(Xoshiro(2), 5)))
const C, D = rand(Xoshiro(3), 2, 3) .+ 0.5, randn(Xoshiro(4), 5)
loss(p, c, d) = sum(c .* p.a .^ 2) / 2 + sum(d .* sin.(p.b)) + sum(p.a) * p.b[2]
function gradient(p, c, d)
    moved = zero(p.b)
    moved[2] = sum(p.a)
    return (a = c .* p.a .+ p.b[2], b = d .* cos.(p.b) .+ moved)
end

@testset "300 steps of each rule of Optimisers, $T" for (T, rtol) in ((Float64, 1e-9), (Float32, 2e-3))
    c, d = T.(C), T.(D)
    ps = map(_ -> start(T), RULES)
    state = map(Optimisers.setup, RULES, ps)
    losses = train!(ps -> sum(p -> loss(p, c, d), values(ps)), ps, state; steps = 300)
    @test length(losses) == 300 && eltype(losses) == T
    @testset "$name" for name in keys(RULES)
        # A difference of nearly equal numbers, under a root.
        rtol = name === :centred ? 100sqrt(eps(T)) : rtol
        p = start(T)
        own = Optimisers.setup(RULES[name], p)
        for _ in 1:300
            Optimisers.update!(own, p, gradient(p, c, d))
        end
        for key in (:a, :b)
            @test same(ps[name][key], p[key]; rtol, atol = rtol)
            @test ps[name][key] != start(T)[key]
            old, new = (parts(s[key].state) for s in (own, state[name]))
            @test all(map((x, y) -> typeof(x) == typeof(y) && same(y, x; rtol = 10rtol, atol = rtol), old, new))
        end
    end
end
@testset "rules that can't be traced" begin
    ps = start(Float64)
    for rule in (Optimisers.AccumGrad(2), Optimisers.OptimiserChain(Optimisers.AccumGrad(3), Optimisers.Adam()))
        err = @test_throws TraceError train!(loss, ps, Optimisers.setup(rule, ps), C, D; steps = 3)
        @test occursin("condition", sprint(showerror, err.value))
    end
    @test ps == start(Float64)
end

@testset "ClipNorm refuses what is not finite, and a rule of one's own" begin
    ps, rule = start(Float64), Optimisers.OptimiserChain(Optimisers.ClipNorm(1.0), Optimisers.Descent(0.1))
    state = Optimisers.setup(rule, ps)
    ps.a[1, 2] = 1e-9
    steep(p) = sum(sqrt.(abs.(p.a) .- p.a))
    seen = Int[]
    err = @test_throws DomainError train!((p) -> steep(p), ps, state; steps = 40, callback = (i, _, _) -> (push!(seen, i); nothing))
    @test all(isfinite, ps.a) && length(seen) < 40
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
    @test same(p.a, q.a; rtol = 1e-12) && same(p.b, q.b; rtol = 1e-12)
    @test state.a.state[2] === other.a.state[2] === 8
end
