# `Zygote.Params`: arrays found by identity, wherever a net has them.

using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp, laplacian, paddle, vjp
using PythonCall: PythonCall
using Random: Xoshiro
using Zygote: Zygote

const W = PaddleFCNet(2, 1, 3, 4; dtype = "float64", activation = "tanh", seed = 1)
const X = randn(Xoshiro(1), 2, 5)
const ALONG = (sin.(X), map(p -> cos.(p), W.params))
named(ps) = NamedTuple{Tuple(W.net.names)}(ps)

# Of parameters as a tuple and as a wrapper, which ought to be the same.
const LOSSES = (
    "a wrapper" => ((w, ps) -> sum(abs2, w(X))),
    "a wrapper, twice" => ((w, ps) -> sum(w(X) .* w(2 .* X))),
    "a tuple" => ((w, ps) -> sum(abs2, w.net(X, ps))),
    "a named tuple" => ((w, ps) -> sum(abs2, w.net(X, named(ps)))),
    "laplacian" => ((w, ps) -> sum(abs2, laplacian(w, X))),
    "derivative" => ((w, ps) -> sum(abs2, derivative(w, X, (1, 1)))),
    "derivatives" => ((w, ps) -> sum(abs2, derivatives(w, X, ((0, 0), (2, 0)))[2])),
    "jvp" => ((w, ps) -> sum(abs2, jvp(w, X, [1.0, 2.0]))),
    "jvp by parameters" => ((w, ps) -> sum(abs2, jvp(w, X, w.params, ALONG...))),
    "vjp" => ((w, ps) -> sum(abs2, vjp(w, X, ones(1, 5))[2])),
    "Zygote within Zygote" => ((w, ps) -> sum(abs2, Zygote.gradient(x -> sum(abs2, w(x)), X)[1])),
    "a state" => ((w, ps) -> sum(abs2, first(w.net(X, ps, NamedTuple())))),
)

@testset "gradients by implicit parameters: $name" for (name, loss) in LOSSES
    expected = Zygote.gradient(ps -> loss(PaddleModuleWrapper(W.net, ps), ps), W.params)[1]
    found = Zygote.gradient(() -> loss(W, W.params), Zygote.Params(W.params))
    for (p, p̄) in zip(W.params, expected)
        p̄ === nothing ? (@test found[p] === nothing) : (@test found[p] ≈ p̄)
    end
end

@testset "what is among them counts once" begin
    theta = reduce(vcat, map(vec, W.params))
    weight, x = W.params[1], copy(X)
    rest = Base.tail(W.params)
    loss(weight, x, theta) = sum(abs2, W.net(x, (weight, rest...))) + sum(W.net(x, theta))
    expected = Zygote.gradient(loss, weight, x, theta)
    found = Zygote.gradient(() -> loss(weight, x, theta), Zygote.Params([weight, x, theta]))
    @test found[weight] ≈ expected[1] && found[x] ≈ expected[2] && found[theta] ≈ expected[3]
    some = Zygote.gradient(() -> sum(abs2, W(x)), Zygote.Params([W.params[3]]))
    @test some[W.params[3]] ≈ Zygote.gradient(w -> sum(abs2, w(x)), W)[1].params[3]
    @test !haskey(some.grads, weight)
end

@testset "keyword arguments" begin
    attention = PaddleModuleWrapper(paddle.nn.MultiHeadAttention(4, 2))
    q, mask = randn(Xoshiro(1), Float32, 4, 3, 2), randn(Xoshiro(2), Float32, 3, 3, 2, 2)
    loss(w) = sum(abs2, w(q; attn_mask = mask))
    expected = Zygote.gradient(loss, attention)[1].params
    by_mask = Zygote.gradient(mask -> sum(abs2, attention(q; attn_mask = mask)), mask)[1]
    found = Zygote.gradient(() -> loss(attention), Zygote.Params([attention.params..., mask]))
    @test all(map((p, p̄) -> found[p] ≈ p̄, attention.params, expected))
    @test found[mask] ≈ by_mask
end
