# Gradients by Zygote of chains of Linear layers, whose types Julia infers: beside plain Julia, before there is machine code and after.

using ChainRulesCore: NoTangent, Tangent, ZeroTangent, rrule
using FillArrays: Fill
using ForwardDiff: ForwardDiff
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, compile, paddle, testmode, trainmode
using Random: Xoshiro
using Zygote: Zygote

include("../has_code.jl")

chain(x, (w1, b1, w2, b2), f) = w2 * f.(w1 * x .+ b1) .+ b2
flat(ps) = reduce(vcat, vec.(values(ps)))
near(a::AbstractArray, b::AbstractArray) =
    typeof(a) == typeof(b) && size(a) == size(b) && isapprox(a, b; rtol = 64eps(real(eltype(b))), atol = eps(real(eltype(b))))
near(a::Union{Tuple,NamedTuple}, b) = length(a) == length(b) && all(map(near, values(a), values(b)))

gradients(net, x, ps, c) = Zygote.gradient((x, ps) -> sum(c .* net(x, ps)), x, ps)

"A net, its parameters as arrays, and its gradients in plain Julia."
function case(T, activation = "tanh", f = tanh; sizes = (3, 7, 2), seed = 1)
    wrapper = PaddleFCNet(first(sizes), last(sizes), 2, sizes[2]; activation, dtype = lowercase(string(T)), seed)
    expected(x, c, ps = wrapper.params) = Zygote.gradient((x, ps) -> sum(c .* chain(x, ps, f)), x, ps)
    return wrapper, expected
end

@testset "types are inferred by Python's way and by code, $T" for T in (Float32, Float64)
    wrapper, expected = case(T)
    net, ps = PaddleNet(wrapper), wrapper.params
    named = NamedTuple{Tuple(net.names)}(ps)
    turned = NamedTuple{reverse(keys(named))}(named) # which no code takes
    for n in (1, 5), has_code in (false, true)
        has_code && !HAS_CODE && continue
        x, c = randn(Xoshiro(n), T, 3, n), randn(Xoshiro(2), T, 2, n)
        has_code && foreach(p -> compile(net, x, p), (ps, flat(ps), named))
        x̄, p̄s = expected(x, c)
        for (given, p̄) in ((ps, p̄s), (flat(ps), flat(p̄s)), (named, p̄s), (turned, reverse(p̄s)))
            found = @inferred gradients(net, x, given, c)
            @test near(found[1], x̄) && near(found[2], p̄)
            @test (@inferred net(x, given)) isa Matrix{T}
            @test typeof(found[2]) == typeof(given)
        end
        by_wrapper(w, x) = Zygote.gradient((w, x) -> sum(c .* w(x)), w, x)
        found = @inferred by_wrapper(wrapper, x)
        @test near(found[1].params, p̄s) && near(found[2], x̄)
        @test (@inferred wrapper(x)) isa Matrix{T}
        v, cv = x[:, 1], c[:, 1]
        found = @inferred gradients(net, v, ps, cv)
        @test near(found[1], expected(v, cv)[1]) && near(found[2], expected(v, cv)[2])
    end
end

@testset "what is known of a chain is not said of other nets" begin
    wrapper = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Flatten(), paddle.nn.Linear(6, 2)))
    x, c = randn(Xoshiro(1), Float32, 2, 3, 5), randn(Xoshiro(2), Float32, 2, 5)
    w, b = wrapper.params
    @test PaddleNet(wrapper) isa PaddleNet{false}
    found = Zygote.gradient(x -> sum(c .* wrapper(x)), x)[1] # of three dimensions, the value of two
    @test near(found, reshape(w' * c, size(x)))
end

@testset "a mode in which the net is no chain" begin
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Dropout(0.5), paddle.nn.Tanh(), paddle.nn.Linear(4, 2))
    x, c = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 2, 5)
    for start in (layer.eval, layer.train)
        start()
        wrapper = PaddleModuleWrapper(layer)
        quiet = testmode(wrapper)
        x̄, p̄s = Zygote.gradient((x, ps) -> sum(c .* chain(x, ps, tanh)), x, wrapper.params)
        for w in (quiet, testmode(trainmode(quiet)))
            found = Zygote.gradient((w, x) -> sum(c .* w(x)), w, x)
            @test near(found[1].params, p̄s) && near(found[2], x̄)
        end
        noisy = [Zygote.gradient((w, x) -> sum(c .* w(x)), trainmode(wrapper), x) for _ in 1:4]
        @test all(found -> near(found[1].params[4], p̄s[4]), noisy) # the last bias
        @test !allequal(map(found -> found[2], noisy))
    end
end

@testset "parameters of another precision, and views" begin
    wrapper, expected = case(Float32)
    net = PaddleNet(wrapper)
    x, c = randn(Xoshiro(1), 3, 5), randn(Xoshiro(2), 2, 5)
    wide = map(p -> Float64.(p), wrapper.params)
    for _ in 1:2
        x̄, p̄s = expected(x, c, wide)
        @test near((@inferred gradients(net, x, wide, c)), (x̄, p̄s))
        @test near((@inferred gradients(net, x, flat(wide), c)), (x̄, flat(p̄s)))
        @test near(gradients(net, view(x, :, 2:4), wide, c[:, 2:4]), expected(x[:, 2:4], c[:, 2:4], wide))
        @test near(gradients(net, x, view([0.0; flat(wide)], 2:length(flat(wide))+1), c), (x̄, flat(p̄s)))
        HAS_CODE && compile(net, x, wide)
    end
    @test_throws ArgumentError gradients(net, x, wrapper.params, c)
    @test_throws ArgumentError gradients(net, [1 2; 3 4; 5 6], wrapper.params, c)
    @test_throws DimensionMismatch gradients(net, x[1:2, :], wide, c)
    @test_throws DimensionMismatch gradients(net, x, flat(wide)[2:end], c)
end

HAS_CODE && @testset "code that is there for one half of a call only" begin
    wrapper, expected = case(Float32, "relu", x -> max(x, 0))
    net, θ = PaddleNet(wrapper), flat(wrapper.params)
    x, c = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 2, 5)
    x̄, p̄s = expected(x, c)
    right((_, x̄_found, p̄_found)) = near(x̄_found, x̄) && near(p̄_found, flat(p̄s))
    config = Zygote.ZygoteRuleConfig(Zygote.Context())
    _, by_python = rrule(config, net, x, θ)
    compile(net, x, θ)
    _, by_code = rrule(config, net, x, θ)
    net.handle.codes = nothing
    GC.gc()
    _, again = rrule(config, net, x, θ)
    @test typeof(by_python) == typeof(by_code) == typeof(again)
    for pullback in (by_python, by_code, again), _ in 1:2
        @test right(pullback(c))
    end
    compile(net, x, θ)
    @test near(gradients(net, [x x], θ, [c c]), ([x̄ x̄], 2 .* flat(p̄s))) # another batch by the same code
end

@testset "cotangents of every kind" begin
    wrapper, expected = case(Float64)
    net, ps = PaddleNet(wrapper), wrapper.params
    x, c, d = randn(Xoshiro(1), 3, 5), randn(Xoshiro(2), 2, 5), randn(Xoshiro(3), 2, 5)
    config = Zygote.ZygoteRuleConfig(Zygote.Context())
    for has_code in (false, true)
        has_code && HAS_CODE && compile(net, x, ps)
        _, pullback = rrule(config, net, x, ps)
        x̄, p̄s = expected(x, c)
        plain((_, x̄, p̄s)) = (x̄, Tuple(p̄s))
        @test plain(pullback(Fill(1.5, 2, 5)))[1] ≈ expected(x, fill(1.5, 2, 5))[1]
        @test near(plain(pullback(Float32.(c)))[1], expected(x, Float64.(Float32.(c)))[1])
        @test near(plain(pullback(view([c; c], 1:2, :))), (x̄, p̄s))
        @test pullback(ZeroTangent()) == (NoTangent(), ZeroTangent(), ZeroTangent())
        slope = ForwardDiff.derivative(t -> plain(pullback(c .+ t .* d))[1], 0.0) # linear in the cotangent
        @test near(slope, expected(x, d)[1])
        @test_throws DimensionMismatch pullback(c[:, 1:3])
        @test_throws "must be an array" pullback(1.0)
    end
end

@testset "dual numbers, outside of a gradient too" begin # Zygote within Zygote: zygote_in_zygote.jl
    wrapper, _ = case(Float64)
    net, ps = PaddleNet(wrapper), wrapper.params
    x, c, v = randn(Xoshiro(1), 3, 5), randn(Xoshiro(2), 2, 5), randn(Xoshiro(3), 3, 5)
    along(f) = ForwardDiff.derivative(t -> sum(c .* f(x .+ t .* v, ps)), 0.0)
    slope(f) = ForwardDiff.derivative(t -> Zygote.gradient(x -> sum(c .* f(x, ps)), x .+ t .* v)[1], 0.0)
    plain(x, ps) = chain(x, ps, tanh)
    for has_code in (false, true)
        has_code && HAS_CODE && compile(net, x, ps)
        @test along(net) ≈ along(plain)
        @test slope(net) ≈ slope(plain)
    end
end
