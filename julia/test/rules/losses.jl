# What stands in losses beside nets: calls of Paddle and of this package, penalties, and Zygote's forward mode.

using ChainRulesCore: ChainRulesCore
using ForwardDiff: ForwardDiff
using Optimisers: Optimisers
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, PaddleNet, freeze, jvp, laplacian, lower, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

paddle.seed(0)
const w = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 2)))
const x, c = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 2, 5)
const PLAIN = Zygote.gradient((w, x) -> sum(c .* w(x)), w, x)
equal(a, b) = a === nothing ? b === nothing : a ≈ b
all_equal(as, bs) = length(as) == length(bs) && all(map(equal, as, bs))

@testset "in a loss: $name" for (name, call) in (
    ("paddle.seed", _ -> paddle.seed(1)),
    ("a layer that is made there", x -> PaddleModuleWrapper(paddle.nn.Linear(3, 2; bias_attr = false); frozen = "weight")(ones(Float32, 3, 1))),
    ("explain", x -> PaddleChainRules.explain(w, x)), ("compile", x -> PaddleChainRules.compile(w, x)),
)
    found = Zygote.gradient((w, x) -> (call(x); sum(c .* w(x))), w, x)
    @test all_equal(found[1].params, PLAIN[1].params) && found[2] ≈ PLAIN[2]
end

@testset "under the lock, by $within" for within in (PaddleChainRules.threaded, PaddleChainRules.crossing)
    found = Zygote.gradient((w, x) -> within(() -> sum(c .* w(2 .* x))), w, x)
    expected = Zygote.gradient((w, x) -> sum(c .* w(2 .* x)), w, x)
    @test all_equal(found[1].params, expected[1].params) && found[2] ≈ expected[2]
    @test Zygote.gradient(x -> (within(() -> sum(w(x))); sum(x)), x)[1] == ones(Float32, 3, 5)
end

@testset "what Python computes has no derivative, and says so" begin
    layer = paddle.nn.Linear(3, 2)
    _, back = ChainRulesCore.rrule(Zygote.ZygoteRuleConfig(), layer, paddle.ones(pylist([1, 3])))
    @test all(t -> t isa ChainRulesCore.NoTangent, back(ChainRulesCore.ZeroTangent()))
    @test_throws "none passes through calls of Python's objects" back(1.0f0)
    @test_throws "forward! writes into an array" Zygote.gradient(x -> sum(PaddleChainRules.forward!(zero(c), w, x)), x)
end

const NORM = PaddleModuleWrapper(
    paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 2)),
)

const PENALISED = (
    ("all", w), ("what is trained", freeze(w, "0.*")), ("a net with buffers", NORM), ("a lowered net", lower(w, x)),
)
const PENALTIES = (
    ("trainables", m -> sum(a -> sum(abs2, a), Optimisers.trainables(m))),
    ("destructure", m -> sum(abs2, Optimisers.destructure(m)[1])),
)

@testset "a penalty of $name by $how, in either order" for (name, net) in PENALISED, (how, penalty) in PENALTIES
    for model in (net, (a = net, b = Float32[]))
        inner(m) = m isa NamedTuple && haskey(m, :a) ? m.a : m
        of_loss = inner(Zygote.gradient(m -> sum(c .* inner(m)(x)), model)[1]).params
        expected = map((ḡ, p) -> ḡ === nothing ? nothing : ḡ .+ 2 .* p, of_loss, net.params)
        first_one = inner(Zygote.gradient(m -> penalty(m) + sum(c .* inner(m)(x)), model)[1])
        last_one = inner(Zygote.gradient(m -> sum(c .* inner(m)(x)) + penalty(m), model)[1])
        @test all_equal(first_one.params, expected) && all_equal(last_one.params, expected)
        alone = inner(Zygote.gradient(penalty, model)[1]).params
        @test all_equal(alone, map((ḡ, p) -> ḡ === nothing ? nothing : 2 .* p, of_loss, net.params))
    end
end

@testset "what is trained comes as before" begin
    part = freeze(NORM, "0.*")
    @test Optimisers.trainables(part) == collect(NORM.params[3:end])
    theta, rebuild = Optimisers.destructure(part)
    @test theta == reduce(vcat, vec.(NORM.params[3:end])) && rebuild(2 .* theta).params[4] == 2 .* NORM.params[4]
    @test rebuild(2 .* theta).params[1] == NORM.params[1]
end

@testset "Zygote.pushforward" begin
    net, ẋ = PaddleNet(w), randn(Xoshiro(3), Float32, 3, 5)
    ṗs = map(p -> randn(Xoshiro(4), Float32, size(p)), w.params)
    step = 1.0f-2
    by_differences(f) = (f(step) .- f(-step)) ./ (2step)
    close(a, b) = same(a, b; rtol = 1e-2, atol = 1e-3)
    @test close(Zygote.pushforward(w, x)(ẋ), by_differences(h -> w(x .+ h .* ẋ)))
    @test close(Zygote.pushforward(x -> w(x; seed = 1), x)(ẋ), by_differences(h -> w(x .+ h .* ẋ)))
    moved(h) = net(x .+ h .* ẋ, map((p, ṗ) -> p .+ h .* ṗ, w.params, ṗs))
    @test close(Zygote.pushforward(net, x, w.params)(ẋ, ṗs), by_differences(moved))
    @test Zygote.pushforward(net, x, w.params)(nothing, nothing) == zero(c)
    @test Zygote.pushforward(x -> laplacian(net, x, w.params), x)(ẋ) ≈
          ForwardDiff.derivative(t -> laplacian(net, x .+ t .* ẋ, w.params), 0.0f0)
end
