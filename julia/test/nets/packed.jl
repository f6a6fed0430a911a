# Sequences of unequal length as one argument, beside each by itself.

using PaddleChainRules, Zygote
using PaddleChainRules: Packed, pullback
using Random: Xoshiro

const rng = Xoshiro(1)
const sequences = [randn(rng, 3, k) for k in (4, 1, 6)]
const python = PaddleChainRules.paddle # imported so that Julia keeps its handlers of signals
python.seed(0)
near(a, b) = maximum(abs, a - b) <= 1e-12 * maximum(abs, b)

"A layer in double precision."
function doubled(make)
    python.set_default_dtype("float64")
    try
        return PaddleModuleWrapper(make())
    finally
        python.set_default_dtype("float32")
    end
end
alone(x) = reshape(x, 3, :, 1)

@testset "recurrent layers: $kind" for kind in (:GRU, :SimpleRNN)
    w = doubled(() -> getproperty(paddle.nn, kind)(3, 5))
    x, c = Packed(sequences), randn(rng, 5, 11)
    y, h = w(x)
    each = [w(alone(s)) for s in sequences]
    @test y.offsets == [0, 4, 5, 11]
    @test near(y.values, hcat((e[1][:, :, 1] for e in each)...))
    @test near(h, cat((e[2] for e in each)...; dims = 2))
    loss(w, x) = (found = w(x); sum(c .* found[1].values) + sum(abs2, found[2]))
    function by_each(w, xs)
        found = [w(alone(x)) for x in xs]
        y = hcat([f[1][:, :, 1] for f in found]...)
        return sum(c .* y) + sum(f -> sum(abs2, f[2]), found)
    end
    w̄, x̄ = Zygote.gradient(loss, w, x)
    expected, by_parts = Zygote.gradient(by_each, w, sequences)
    @test all(map(near, w̄.params, expected.params))
    @test near(x̄.values, hcat(by_parts...))
    _, back = pullback(PaddleNet(w), x, w.params)
    found, _ = back(((; values = c, offsets = nothing), nothing))
    @test near(found.values, Zygote.gradient(x -> sum(c .* w(x)[1].values), x)[1].values)
end

@testset "words, and what is refused" begin
    words = Packed([[3, 1], [4, 1, 5]])
    @test sprint(show, words) == "Packed(2 sequences of 2 to 3 elements, Int64)"
    @test length(words) == 2
    table = PaddleModuleWrapper(paddle.nn.Embedding(9, 4))
    @test table(words).values == only(table.params)[:, [4, 2, 5, 2, 6]]
    counts = only(Zygote.gradient(w -> sum(w(words).values), table)[1].params)
    @test counts[1, :] == [0, 2, 0, 1, 1, 1, 0, 0, 0]
    @test_throws "offsets rise from 0 to the number of" Packed([1.0 2.0], [0, 3])
    @test_throws "at least one sequence" Packed(Matrix{Float32}[])
    x = Packed([Float32.(s) for s in sequences])
    @test_throws "a Packed has no attribute" PaddleModuleWrapper(paddle.nn.Conv1D(3, 2, 1))(x)
end
