using LinearAlgebra: Diagonal, LowerTriangular, Symmetric, UpperTriangular, dot, norm
using Optimisers: Optimisers
using PaddleChainRules: PaddleChainRules, TraceError, Traced, TracedNumber, crossing, own_tensor, receive,
    traced_array, train!, with_constants
using Random: Xoshiro
using Statistics: mean

include("../oracle.jl")

# What a function gives of traced arrays, as plain arrays and numbers.
plain(x::Traced) = receive(x.tensor)
plain(x::TracedNumber) = only(receive(x.tensor))
plain(x) = x
traced(f, xs...) = crossing() do
    with_constants(Dict()) do
        plain(f(map(x -> traced_array(own_tensor(x)), xs)...))
    end
end

"The derivative of `loss` along a direction."
along(loss, x, v, h = 1e-5) = (loss(x + h * v) - loss(x - h * v)) / 2h

softplus(x) = ifelse(x > 0, x + log1p(exp(-x)), log1p(exp(x)))
sloped(x, s) = max(x, zero(x)) + s * min(x, zero(x))
const X = randn(Xoshiro(1), 3, 4)
const Y, V, W = randn(Xoshiro(2), 3, 4), randn(Xoshiro(3), 3), randn(Xoshiro(4), 4, 5)
const CUBE = randn(Xoshiro(5), 2, 3, 4)

# Of a matrix of size (3, 4), whose gradient is compared too.
const FUNCTIONS = (
    ("arithmetic", x -> 2 .* x .- Y ./ (x .^ 2 .+ 1) .+ 1 .- (-x)),
    ("powers", x -> x .^ 3 .+ x .^ 4 .- abs.(x) .^ 1.5 .+ 2.0 .^ x .+ (x .^ 2 .+ 1) .^ -1 .+ (x .^ 2 .+ 1) .^ -2 .+ x .^ 1 .+ ℯ .^ x),
    ("powers of each other", x -> abs.(x) .^ Y .+ (Y .^ 2) .^ x),
    ("exponentials", x -> exp.(x) .+ expm1.(x) .+ exp2.(x) .+ exp10.(x)),
    ("logarithms", x -> log.(x .^ 2 .+ 1) .+ log2.(abs.(x)) .+ log10.(abs.(x) .+ 2) .+ log1p.(x .^ 2) .+ sqrt.(abs.(x))),
    ("circular", x -> sin.(x) .* cos.(x) .+ tan.(x ./ 3) .+ sum(sincos.(1.0))),
    ("their inverses", x -> asin.(x ./ 9) .+ acos.(x ./ 8) .+ atan.(x) .+ atan.(x, Y)),
    ("hyperbolic", x -> sinh.(x) .+ cosh.(x) .+ tanh.(x) .+ asinh.(x) .+ acosh.(x .^ 2 .+ 2) .+ atanh.(x ./ 9)),
    ("kinks", x -> abs.(x) .+ sign.(x) .+ max.(x, 0) .- min.(x, Y) .+ clamp.(x, -0.5, 1) .+ floor.(x) .+ ceil.(x)),
    ("choices", x -> ifelse.(x .> 0, x, 2x) .+ ifelse.((x .<= Y) .& .!(x .== 1), 1, x .^ 2) .+ (x .>= 1) .+ (x .< Y) .* x .+ ifelse.((x .> 2) .| (x .!= x), x, 0)),
    ("functions of one's own", x -> softplus.(x) .+ sloped.(x, 0.1) .+ map((a, b) -> a * b + muladd(a, 2, b), x, Y)),
    ("constants of irrational and whole numbers", x -> π .* x .+ 2 .* x .+ x .* (1 // 3) .+ cbrt.(x) .+ sec.(x ./ 9) .+ log.(2, abs.(x)) .+ copysign.(x, Y) .+ abs.(x) .^ π .+ true .* x),
    ("rows and columns", x -> x .* V .+ V .+ x .* (1:4)' .+ reshape(V, 3, 1)),
    ("more dimensions", x -> x .* permutedims(CUBE, (2, 3, 1))),
    ("numbers of the loss", x -> (s = sum(x); x .* s .+ s .* Y .+ s * x .+ x / s .+ s^2)),
    ("sums", x -> sum(x) .+ sum(abs2, x; dims = 1) .+ sum(x; dims = 2) .+ sum(x; dims = (1, 2)) .+ sum(x; dims = 3)),
    ("products", x -> prod(x) .+ prod(x; dims = 1) .+ prod(sin, x; dims = (1, 2)) .+ reduce(*, x)),
    ("largest and least", x -> maximum(x) .+ minimum(x; dims = 2) .+ maximum(abs, x; dims = 1) .+ reduce(max, x)),
    ("a sum of a function", x -> sum(v -> v^2 * sin(v), x) .+ mapreduce(exp, +, x; dims = 1) .+ sum(x; init = 2.0)),
    ("means", x -> mean(x) .+ mean(abs2, x; dims = 1) .+ mean(x; dims = (1, 2)) .* mean(sin, x)),
    ("norms", x -> norm(x) + norm(x, 1) + norm(x, Inf) + norm(x, 3) + dot(x, Y) + dot(Y, x) + dot(x, x)),
    ("matrix products", x -> x * W),
    ("matrix products of both", x -> x' * x .+ transpose(x) * Y),
    ("matrix products from the left", x -> Y' * x .+ W[:, 1:3] * x),
    ("with vectors", x -> x * W[:, 2] .+ (x * x[1, :]) .+ Y * x[2, :] .+ x[:, 1] .* V),
    ("outer products", x -> x[:, 2] * x[1:1, :]),
    ("shapes", x -> reshape(x, 2, :) .+ reshape(vec(permutedims(x)), 2, 6)),
    ("dimensions", x -> permutedims(reshape(x, 3, 2, 2), (3, 1, 2)) .* CUBE[:, :, [1, 3]]),
    ("dropped dimensions", x -> dropdims(sum(x; dims = 1); dims = 1)),
    ("slices", x -> x[2:3, :] .* x[1, 1] .+ x[[3, 1], :] .+ x[end:-2:1, :][1:2, :] .+ x[5]),
    ("views and parts", x -> view(x, :, 2) .+ (@view x[:, end]) .+ x[:, 1] .+ x[[true, false, true], 3][1] .+ x[2:4][2]),
    ("joined", x -> vcat(x, Y, 2x[1:1, :])),
    ("joined the other way", x -> hcat(V, x, x[:, 1], ones(3, 2))),
    ("joined in all ways", x -> cat(x, Y; dims = 3) .+ cat(Y, x; dims = 3)),
    ("joined of many", x -> reduce(vcat, [x[i:i, :] for i in 3:-1:1]) .+ reduce(hcat, [x[:, j] for j in 1:4])),
    ("joined of numbers", x -> vcat(sum(x), x[:, 1], 3.0) .* [x[1, 1], x[2, 2], 1.0, 2.0, sum(x)]),
    ("columns", x -> sum(map(c -> c .* sum(c), eachcol(x)))),
    ("nothing of it", x -> 0 .* x .+ Y),
)

# All in one loss, each of its own copy, with random numbers for cotangents.
const COTANGENTS = [randn(Xoshiro(k), size(f(X))...) for (k, (_, f)) in enumerate(FUNCTIONS)]
const AFTER = [copy(X) for _ in FUNCTIONS]
weighted(k, x) = sum(COTANGENTS[k] .* FUNCTIONS[k][2](x))
const DIRECTIONS = [randn(Xoshiro(100 + k), 3, 4) for k in 1:3]
const VALUE = only(
    train!(
        xs -> sum(weighted(k, x) for (k, x) in enumerate(xs)), AFTER,
        Optimisers.setup(Optimisers.Descent(1.0), AFTER); steps = 1,
    ),
)

@testset "$name" for (k, (name, f)) in enumerate(FUNCTIONS)
    expected = f(X)
    found = traced(f, X)
    @test typeof(found) == typeof(expected) && size(found) == size(expected)
    @test all(isapprox.(found, expected; rtol = 1e-12, atol = 1e-12))
    for v in DIRECTIONS
        @test dot(X - AFTER[k], v) ≈ along(x -> weighted(k, x), X, v) rtol = 1e-6 atol = 1e-6
    end
end

@testset "the loss of all" begin
    @test VALUE ≈ sum(weighted(k, X) for k in eachindex(FUNCTIONS)) rtol = 1e-12
end

@testset "element types are Julia's: $name" for (name, f) in (
    ("numbers of more digits", x -> 0.1 .* x), ("of fewer", x -> 0.1f0 .* x .+ 1), ("halves", x -> x ./ 2 .+ π),
    ("sum", sum), ("masks", x -> x .> 0), ("counts", x -> sum(x .> 0)), ("counts along", x -> sum(x .> 0; dims = 1)),
    ("converted", x -> Float64.(x)), ("by masks", x -> (x .> 0) .* x), ("finite", x -> isfinite.(x) .| isnan.(x) .| isinf.(x)),
    ("with arrays of more digits", x -> x .+ Y), ("joined", x -> vcat(x, Y)), ("products", x -> x * W),
    ("whole numbers", x -> sum(fill(2, 3, 4) .* (x .> 0)) / 2), ("one", x -> x .+ one(eltype(x))),
)
    x = Float32.(X)
    found, expected = traced(f, x), f(x)
    expected isa BitArray && (expected = Array(expected))
    @test typeof(found) == typeof(expected) && size(found) == size(expected)
    @test all(isapprox.(found, expected; rtol = 1e-6, atol = 1e-6))
end

@testset "whole numbers" begin
    n = [1 2 3; 4 5 6]
    for f in (n -> n ./ 2, n -> n .^ 2 .+ n .* n, n -> maximum(n), n -> sum(n; dims = 2), n -> sqrt.(n), n -> -n, n -> n .== 2)
        found, expected = traced(f, n), f(n)
        expected isa BitArray && (expected = Array(expected))
        @test typeof(found) == typeof(expected) && found ≈ expected
    end
end

@testset "refused: $words" for (words, f) in (
    ("iterated", x -> sum([v for v in x])), ("similar", x -> copyto!(similar(x), x)), ("written into", x -> (x[1] = 2; x)),
    ("a condition", x -> sum(x) > 0 ? x : 2x), ("a condition", x -> map(v -> v > 0 ? v : 2v, x)),
    (".=", x -> (y = zeros(3, 4); y .= x; y)), ("needed as Float64", x -> (y = zeros(3); y[1] = sum(x); y)),
    ("calls itself", x -> deg2rad.(x)), ("fma", x -> fma.(x, 2, 3)), ("Int64", x -> Int.(x)), ("has no method", x -> digits.(x)), ("vector is transposed", x -> x[:, 1]'),     ("the function", x -> reduce(hypot, x)), ("indices", x -> x[1, :, 1:1, 1]), ("what is traced", x -> Y[:, 1][sum(x)]),
    ("a traced mask", x -> sum(x[x.>0])), ("a traced mask", x -> Y[x.>0]),
    ("iterated", x -> x == Y), ("iterated", x -> Y == x), ("tuple of 2", x -> sincos.(x)),
    ("gives a String", x -> string.(x .> 0) .* "a"), ("broadcast", x -> x .* ["a"]),
)
    state = Optimisers.setup(Optimisers.Descent(0.1), X)
    err = try
        train!(x -> sum(f(x)), copy(X), state; steps = 2)
    catch err
        err
    end
    @test err isa TraceError
    @test occursin(words, sprint(showerror, err)) && length(err.remedy) > 20 && contains(err.place, r"traced.jl:\d+$")
end

@testset "the derivative of a norm at zero is zero: $p" for p in (1, 2, 3)
    x = zeros(3)
    train!(x -> norm(x .+ 0, p), x, Optimisers.setup(Optimisers.Descent(1.0), x); steps = 1)
    @test x == zeros(3)
end

@testset "products with constants of any kind: $name" for (name, f) in (
    "a view" => x -> x * view(W, :, 2:4), "a view on the left" => x -> view(W', :, 1:3) * x,
    "a view of a transposed one" => x -> x * view(W', 2:5, :)', "a reshaped view" => x -> x * reshape(view(CUBE, :, :, 1:2), 4, 3),
    "a view of a column" => x -> x * view(W, :, 1), "permuted" => x -> x * PermutedDimsArray(W, (1, 2)),
    "a range" => x -> x * (1.0:4.0), "bits" => x -> x * trues(4, 2), "a diagonal" => x -> x * Diagonal([1.0, 2.0, 3.0, 4.0]),
    "a diagonal on the left" => x -> Diagonal(V) * x, "a symmetric one" => x -> Symmetric(W[:, 1:4]) * x',
    "a triangle" => x -> UpperTriangular(W[1:3, 1:3]) * x, "a triangle and a vector" => x -> LowerTriangular(W[1:3, 1:3]) * x[:, 1],
)
    @test traced(f, X) ≈ f(X)
    start, moved = copy(X), copy(X)
    train!(x -> sum(sin, f(x)), moved, Optimisers.setup(Optimisers.Descent(1.0), moved); steps = 1)
    @test sum(V .* (start - moved)) ≈ along(x -> sum(sin, f(x)), X, V .* ones(1, 4)) rtol = 1e-6
end
