# A loss and its gradients in one call, against pure Julia with Zygote.

using ComponentArrays: ComponentVector
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, logitcrossentropy, mse, paddle, value_and_gradient!
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../has_code.jl")
include("../oracle.jl")

near(a, b) = size(a) == size(b) && eltype(a) == eltype(b) && maximum(abs, a .- b; init = 0) <= 200eps(eltype(a)) * maximum(abs, b; init = 1)
flat(ps) = reduce(vcat, vec.(ps))
by_hand(x, (W, b, V, c)) = V * tanh.(W * x .+ b) .+ c
parts(a::AbstractArray) = [a]
parts(as) = [as...]
filled(a::AbstractArray) = fill!(similar(a), NaN)
filled(as) = map(filled, as)

huber(ŷ, y, δ) = sum(ifelse.(abs.(ŷ .- y) .< δ, (ŷ .- y) .^ 2 ./ 2, δ .* (abs.(ŷ .- y) .- δ / 2)))
weighted(ŷ, y, w) = sum(w .* abs2.(ŷ .- y)) / size(y, 2)

@testset "values and gradients in every form: $T" for T in (Float32, Float64)
    wrapper = PaddleFCNet(3, 2, 2, 5; activation = "tanh", dtype = lowercase(string(T)), seed = 1)
    net, ps = PaddleNet(wrapper), wrapper.params
    named = NamedTuple{Tuple(net.names)}(ps)
    for n in (1, 4, 7), (loss, data...) in (
        (mse, randn(Xoshiro(2), T, 2, n)),
        (logitcrossentropy, (p = rand(Xoshiro(3), T, 2, n); p ./ sum(p; dims = 1))),
        (weighted, randn(Xoshiro(4), T, 2, n), rand(Xoshiro(5), T, 1, n)),
        ((ŷ, y) -> huber(ŷ, y, T(0.7)), randn(Xoshiro(6), T, 2, n)),
        (ŷ -> sum(abs2, ŷ),),
    )
        x = randn(Xoshiro(n), T, 3, n)
        value, (p̄s,) = Zygote.withgradient(ps -> loss(by_hand(x, ps), data...), ps)
        for given in (flat(ps), ps, named, NamedTuple{reverse(keys(named))}(named), ComponentVector(named), view([flat(ps); zeros(T, 3)], 1:net.nparams))
            grads = filled(given)
            for _ in 1:3
                @test near(value_and_gradient!(grads, net, x, given, loss, data...), value)
                found = given isa AbstractVector ? collect(grads) : given isa NamedTuple ? flat([grads[k] for k in keys(named)]) : flat(grads)
                @test near(found, flat(p̄s))
                foreach(a -> fill!(a, NaN), parts(grads))
            end
        end
        grads = filled(ps)
        @test near(value_and_gradient!(grads, wrapper, x, loss, data...), value)
        @test all(map(near, grads, p̄s))
        some = (nothing, zeros(T, 5), nothing, nothing)
        @test near(value_and_gradient!(some, net, x, ps, loss, data...), value)
        @test near(some[2], p̄s[2])
    end
end

@testset "parameters that the loss does not depend on, several inputs, one sample" begin
    paddle.seed(3)
    two = PaddleModuleWrapper(python_module("layers").Two())
    x, c = randn(Xoshiro(1), Float32, 4, 6), randn(Xoshiro(2), Float32, 2, 6)
    args = (x, [0, 6, 2, 2, 1, 5])
    loss(ŷ, c) = sum(c .* ŷ)
    value, (w̄,) = Zygote.withgradient(w -> loss(w(args...), c), two)
    grads = filled(two.params)
    for _ in 1:2
        @test value_and_gradient!(grads, two, args, loss, c) ≈ value
        @test all(map((a, b) -> isapprox(a, b; rtol = 1e-4, atol = 1e-5), grads, w̄.params))
        foreach(a -> fill!(a, NaN), grads)
    end
    wrapper = PaddleFCNet(3, 2, 2, 5; seed = 1)
    grads = filled(wrapper.params)
    constant(ŷ, y) = sum(abs2, y) + 0 * sum(ŷ)
    @test value_and_gradient!(grads, wrapper, rand(Float32, 3, 4), constant, ones(Float32, 5)) == 5
    @test all(ḡ -> all(iszero, ḡ), grads)
    v = rand(Float32, 3)
    value, (w̄,) = Zygote.withgradient(w -> sum(abs2, w(v)), wrapper)
    @test value_and_gradient!(grads, wrapper, v, ŷ -> sum(abs2, ŷ)) ≈ value
    @test all(map(≈, grads, w̄.params))
end

@testset "nothing is written beside the gradients, and nothing is allocated" begin
    wrapper = PaddleFCNet(3, 2, 3, 7; activation = "silu", seed = 2)
    net, θ, x, y = PaddleNet(wrapper), flat(wrapper.params), randn(Float32, 3, 5), randn(Float32, 2, 5)
    room = fill(NaN32, length(θ) + 16)
    grads = unsafe_wrap(Array, pointer(room, 9), length(θ))
    GC.@preserve room begin
        value_and_gradient!(grads, net, x, θ, mse, y)
        counted(grads, net, x, θ, y) = @allocated value_and_gradient!(grads, net, x, θ, mse, y)
        counted(grads, net, x, θ, y)
        @test minimum(counted(grads, net, x, θ, y) for _ in 1:5) <= 16 broken = !HAS_CODE
        @test all(isnan, room[[1:8; end-7:end]]) && !any(isnan, grads)
    end
end

scale = 2.0f0
changing(ŷ, y) = scale_of() * sum(abs2, ŷ .- y)
scale_of() = 2.0f0

@testset "what is refused, with nothing written, and new definitions" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; seed = 1)
    net, ps = PaddleNet(wrapper), wrapper.params
    θ, x, y = flat(ps), randn(Float32, 3, 4), randn(Float32, 2, 4)
    grads, two = fill(NaN32, length(θ)), [θ; θ]
    for round in 1:2 # before there is code, and after
        for (g, x, p, loss, data, kind, words) in (
            (grads[1:end-1], x, θ, mse, (y,), DimensionMismatch, "its gradient"),
            (Float64.(grads), x, θ, mse, (y,), ArgumentError, "its gradient Float32"),
            (θ, x, θ, mse, (y,), ArgumentError, "overlaps"),
            (@view(two[1:end÷2]), x, @view(two[1:end÷2]), mse, (y,), ArgumentError, "overlaps"),
            (@view(two[1:end÷2]), x, θ, mse, (reshape(@view(two[2:length(y)+1]), size(y)),), ArgumentError, "overlaps"),
            (ps, x, θ, mse, (y,), ArgumentError, "into must hold arrays"),
            (grads, x, ps, mse, (y,), ArgumentError, "a tuple of 4"),
            (grads, x[1:2, :], θ, mse, (y,), DimensionMismatch, "3 features"),
            (grads, Float64.(x), θ, mse, (y,), ArgumentError, "Float32"),
            (grads, x, θ[1:end-1], mse, (y,), DimensionMismatch, "flat parameters"),
            (grads, x, θ, ŷ -> sum(abs2, ŷ .- y), (), ArgumentError, "captures y"),
            (grads, x, θ, mse, ("y",), ArgumentError, "arrays of numbers"),
            (grads, x, θ, (ŷ, y) -> ŷ .- y, (y,), ArgumentError, "give one floating number"),
            (grads, x, θ, (ŷ, y) -> 1.0f0, (y,), ArgumentError, "does not depend on"),
            (grads, x, θ, (ŷ, y) -> sum(ŷ) > 0 ? sum(ŷ) : sum(y), (y,), PaddleChainRules.TraceError, "ifelse"),
            (grads, x, θ, mse, (y[:, 1:3],), DimensionMismatch, ""),
        )
            err = @test_throws kind value_and_gradient!(g, net, x, p, loss, data...)
            @test occursin(words, sprint(showerror, err.value))
        end
        @test all(isnan, grads) && two == [θ; θ]
        own = similar(y)
        overlapping = unsafe_wrap(Array, pointer(grads, 1), (2, 4))
        GC.@preserve grads @test_throws "overlaps" value_and_gradient!(grads, net, x, θ, mse, overlapping)
        round == 1 && value_and_gradient!(similar(grads), net, x, θ, mse, y)
    end
    @test value_and_gradient!(grads, net, x, θ, changing, y) ≈ 2 * sum(abs2, net(x, θ) .- y)
    @eval scale_of() = 3.0f0
    @test Base.invokelatest(value_and_gradient!, grads, net, x, θ, changing, y) ≈ 3 * sum(abs2, net(x, θ) .- y)
end

@testset "without code" begin
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Hardshrink(), paddle.nn.Linear(4, 2))
    for wrapper in (PaddleModuleWrapper(layer), PaddleModuleWrapper(layer; jit = false))
        x, y = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 2, 5)
        value, (w̄,) = Zygote.withgradient(w -> mse(w(x), y), wrapper)
        grads = filled(wrapper.params)
        for _ in 1:3
            @test value_and_gradient!(grads, wrapper, x, mse, y) ≈ value
            @test all(map(≈, grads, w̄.params))
            foreach(a -> fill!(a, NaN), grads)
        end
    end
end

HAS_CODE && @testset "on several threads" begin
    wrapper = PaddleFCNet(3, 2, 3, 8; activation = "tanh", seed = 2)
    net, θ = PaddleNet(wrapper), flat(wrapper.params)
    xs, ys = [randn(Xoshiro(k), Float32, 3, 6) for k in 1:8], [randn(Xoshiro(9k), Float32, 2, 6) for k in 1:8]
    expected = [(g = similar(θ); (value_and_gradient!(g, net, x, θ, mse, y), g)) for (x, y) in zip(xs, ys)]
    found = Vector{Any}(undef, 8)
    Threads.@threads for k in 1:8
        g = similar(θ)
        for _ in 1:200
            found[k] = (value_and_gradient!(g, net, xs[k], θ, mse, ys[k]), g)
        end
    end
    @test all(map((a, b) -> a[1] == b[1] && a[2] == b[2], found, expected))
end
