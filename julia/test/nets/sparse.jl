# Sparse matrices as arguments, beside the same as dense arrays.

using ChainRulesCore: ChainRulesCore
using LinearAlgebra: tr
using PaddleChainRules, SparseArrays, Zygote
using PaddleChainRules: jvp, pullback
using Random: Xoshiro

const rng = Xoshiro(1)
const d, n = 7, 5

sparse_of(T, I = Int) = SparseMatrixCSC{T,I}(sprand(rng, d, n, 0.4))
at(x, dense) = [dense[i, j] for (i, j, _) in zip(findnz(x)...)]
near(a, b) = maximum(abs, a - b; init = 0.0) <= 1e-13 * max(1, maximum(abs, b; init = 0.0))

const chain = PaddleFCNet(d, 2, 2, 4; activation = "tanh", dtype = "float64", seed = 1)
const net, ps = PaddleNet(chain), chain.params
const θ = reduce(vcat, map(vec, ps))

@testset "values and gradients, indices of $I" for I in (Int64, Int32)
    for _ in 1:4 # other patterns, and programs after some calls
        x = sparse_of(Float64, I)
        dense, c = Matrix(x), randn(rng, 2, n)
        @test near(chain(x), chain(dense))
        @test near(net(x, ps), net(dense, ps))
        loss(x, ps) = sum(c .* net(x, ps) .^ 2)
        for p in (ps, θ)
            x̄, p̄ = Zygote.gradient(loss, x, p)
            ẋ, ṗ = Zygote.gradient(loss, dense, p)
            @test x̄ isa SparseMatrixCSC{Float64,I} && size(x̄) == size(x)
            @test rowvals(x̄) == rowvals(x) && near(nonzeros(x̄), at(x, ẋ))
            @test p isa Tuple ? all(map(near, p̄, ṗ)) : near(p̄, ṗ)
        end
        w̄ = Zygote.gradient(w -> sum(c .* w(x)), chain)[1]
        expected = Zygote.gradient(w -> sum(c .* w(dense)), chain)[1]
        @test all(map(near, w̄.params, expected.params))
    end
end

@testset "second derivatives, and along directions" begin
    x = sparse_of(Float64)
    dense, there = Matrix(x), Float64.(Matrix(x) .!= 0)
    by_x(ps, x, mask) = sum(abs2, mask .* Zygote.gradient(x -> sum(abs2, net(x, ps)), x)[1])
    function of_values(ps)
        x̄ = Zygote.gradient(x -> sum(abs2, net(x, ps)), x)[1]
        return sum(abs2, nonzeros(x̄))
    end
    found = Zygote.gradient(of_values, ps)[1]
    expected = Zygote.gradient(ps -> by_x(ps, dense, there), ps)[1]
    @test all(map(near, found, expected))
    ẋ = SparseMatrixCSC(d, n, copy(x.colptr), copy(x.rowval), randn(rng, nnz(x)))
    ṗ = map(p -> randn(rng, size(p)...), ps)
    @test near(jvp(net, x, ps, ẋ, ṗ)[2], jvp(net, dense, ps, Matrix(ẋ), ṗ)[2])
end

@testset "gradients into a matrix of one's own" begin
    x, c = sparse_of(Float64), randn(rng, 2, n)
    y, back = pullback(net, x, ps)
    x̄, p̄ = back(c)
    into = copy(x)
    back(c; into = (into, nothing))
    @test into == x̄
    back(c; into = (into, nothing), accumulate = true)
    @test near(nonzeros(into), 2nonzeros(x̄))
    @test_throws "a sparse matrix of its pattern" back(c; into = (zeros(d, n), nothing))
end

@testset "bare patterns, and layers of several arguments" begin
    x = sparse_of(Float32)
    pattern = x .!= 0
    table = PaddleModuleWrapper(paddle.nn.Embedding(d, 3))
    @test table(pattern) ≈ only(table.params) * Matrix{Float32}(pattern)
    @test Zygote.gradient(x -> sum(table(x)), pattern)[1] === nothing
    @test only(Zygote.gradient(w -> sum(w(pattern)), table)[1].params) ≈
          ones(Float32, 3, n) * Matrix{Float32}(pattern)'
    layer = PaddleModuleWrapper(
        paddle.nn.Sequential(
            paddle.nn.Linear(d, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 2),
        ),
    )
    st = PaddleChainRules.initial_state(layer)
    moving, own = PaddleNet(layer), layer.params
    (y, one), (z, other) = moving(x, own, st), moving(Matrix(x), own, st)
    @test y ≈ z
    @test all(map(≈, one.buffers, other.buffers))
    found = Zygote.gradient(p -> sum(abs2, moving(x, p, st)[1][1, :]), own)[1]
    expected = Zygote.gradient(p -> sum(abs2, moving(Matrix(x), p, st)[1][1, :]), own)[1]
    largest = maximum(p -> maximum(abs, p), expected)
    @test all(map((a, b) -> maximum(abs, a - b) <= 1e-5 * largest, found, expected))
end

@testset "a sparse matrix in a loss, $name" for (name, loss) in (
    ("S .* y", (S, y) -> sum(S .* y)), ("y .* S", (S, y) -> sum(y .* S)), ("squares", (S, y) -> sum((S .* y) .^ 2)),
    ("trace", (S, y) -> tr(S' * y)), ("sparse(y)", (S, y) -> sum(abs2, sparse(y))),
    ("sums of columns", (S, y) -> sum(abs2, sum(S .* y; dims = 1))),
)
    x, S = randn(rng, d, n), sprand(rng, 2, n, 0.5)
    W1, b1, W2, b2 = ps
    expected = Zygote.gradient(x -> loss(S, W2 * tanh.(W1 * x .+ b1) .+ b2), x)[1]
    @test near(Zygote.gradient(x -> loss(S, chain(x)), x)[1], expected)
    @test near(Zygote.gradient(x -> loss(S, lower(chain, x)(x)), x)[1], expected)
end

@testset "a sparse tangent of a dense input" begin
    x, ẋ = randn(rng, d, n), sparse_of(Float64)
    _, found = ChainRulesCore.frule((ChainRulesCore.NoTangent(), ẋ), chain, x)
    @test near(found, jvp(chain, x, Matrix(ẋ)))
end

@testset "what is refused" begin
    x = sparse_of(Float64)
    @test_throws "x is CSR" laplacian(chain, x)
    @test_throws "takes dense arrays, got" PaddleChainRules.batched_jacobian(chain, x)
    @test_throws "7 features first" chain(sprand(rng, 6, n, 0.4))
    @test_throws "Float32" chain(Float32.(x))
    @test_throws "csr_product" lower(chain, x)
    @test_throws "was given a CSR" PaddleModuleWrapper(paddle.nn.LayerNorm(d))(Float32.(x))
    stored = SparseMatrixCSC(2, 1, [1, 2], [1], [false])
    @test_throws "stores false" PaddleModuleWrapper(paddle.nn.Embedding(2, 3))(stored)
end
