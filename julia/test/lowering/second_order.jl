using ChainRulesCore: NoTangent, ZeroTangent, rrule
using ChainRulesTestUtils: ⊢, test_rrule
using ForwardDiff: ForwardDiff
using PaddleChainRules:
    PaddleChainRules, Activation, PaddleFCNet, PaddleNet, derivative, derivatives, laplacian, lower
using Random: Random, Xoshiro
using SpecialFunctions: SpecialFunctions
using Zygote: Zygote

include("../oracle.jl")

const ACTIVATIONS =
    ("identity", "sigmoid", "tanh", "relu", "gelu", "silu", "softplus", "elu", "leaky_relu", "sin")
const SEVERAL = ((0, 0, 0), (1, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 1), (2, 0, 0))

slope(f) = z -> ForwardDiff.derivative(f, z)

@testset "derivatives of $name equal ForwardDiff's" for name in ACTIVATIONS
    f = Activation(name)
    for z in (-6.1, -1.3, -0.2, 0.4, 2.7, 5.9)
        found = PaddleChainRules.slopes(f, z, f(z))
        for (value, g) in zip(found, (slope(f), slope(slope(f)), slope(slope(slope(f)))))
            @test isapprox(value, g(z); rtol = 1e-12, atol = 1e-14)
        end
    end
end

"A net with parameters that are all different, biases too."
function random_net(activation, layers; dtype = "float64")
    wrapper = PaddleFCNet(3, 2, layers, 5; dtype, activation, seed = 7)
    foreach(p -> p .= randn(Xoshiro(length(p)), eltype(p), size(p)), wrapper.params)
    return wrapper
end

@testset "lowered, the derivatives of the Paddle call, $name" for name in ACTIVATIONS
    for (dtype, tol) in (("float64", 1e-12), ("float32", 1e-4)), layers in (1, 2, 4)
        wrapper = random_net(name, layers; dtype)
        lowered, net = lower(wrapper), PaddleNet(wrapper)
        scale = layers == 4 ? 1000 : 10 # of the largest entries
        close(a, b) = same(a, b; rtol = tol, atol = scale * tol)
        theta = reduce(vcat, vec.(wrapper.params))
        named = NamedTuple{Tuple(net.names)}(wrapper.params)
        for dims in ((3, 4), (3,), (3, 2, 5), (3, 0))
            x = randn(Xoshiro(1), eltype(theta), dims)
            @test close(laplacian(lowered, x), laplacian(wrapper, x))
            @test all(map(close, derivatives(lowered, x, SEVERAL), derivatives(wrapper, x, SEVERAL)))
            for ps in (theta, named, wrapper.params)
                found = derivative(lower(net), x, ps, (1, 1, 0))
                @test close(found, derivative(net, x, ps, (1, 1, 0)))
            end
        end
        # Zygote takes our rules on both sides, of Paddle's net by Python.
        x = randn(Xoshiro(1), eltype(theta), 3, 4)
        loss(f, x, ps) = sum(abs2, laplacian(f, x, ps)) / 100 +
                         sum(sum(k .* sin.(d)) for (k, d) in enumerate(derivatives(f, x, ps, SEVERAL)))
        found = Zygote.gradient((x, ps) -> loss(lower(net), x, ps), x, theta)
        expected = Zygote.gradient((x, ps) -> loss(net, x, ps), x, theta)
        largest = maximum(a -> maximum(abs, a), expected)
        @test all(map((a, b) -> same(a, b; rtol = 10tol, atol = 100tol * largest), found, expected))
    end
end

@testset "rules of lowered nets, $name" for name in ("tanh", "gelu", "elu")
    Random.seed!(4)
    wrapper = random_net(name, 3)
    net, lowered, x = PaddleNet(wrapper), lower(PaddleNet(wrapper)), randn(Xoshiro(1), 3, 4)
    theta = reduce(vcat, vec.(wrapper.params))
    named = NamedTuple{Tuple(net.names)}(wrapper.params)
    reversed = NamedTuple{reverse(keys(named))}(named)
    for ps in (theta, named, reversed, wrapper.params)
        test_rrule(laplacian, lowered ⊢ NoTangent(), x, ps; check_inferred = false)
        for index in ((0, 0, 0), (1, 0, 0), (0, 2, 0), (1, 0, 1))
            test_rrule(
                derivative, lowered ⊢ NoTangent(), x, ps, index ⊢ NoTangent(); check_inferred = false,
            )
        end
        test_rrule(
            derivatives, lowered ⊢ NoTangent(), x, ps, SEVERAL ⊢ NoTangent(); check_inferred = false,
        )
    end
    test_rrule(laplacian, lowered ⊢ NoTangent(), x[:, 1], theta; check_inferred = false)
    # Where only one output of several counts, the others' cotangents are zero.
    _, back = rrule(derivatives, lowered, x, theta, SEVERAL)
    c = randn(Xoshiro(2), 2, 4)
    alone = rrule(derivative, lowered, x, theta, SEVERAL[5])[2](c)
    zero_but = ntuple(i -> i == 5 ? c : ZeroTangent(), 6)
    for (a, b) in zip(back(zero_but)[3:4], alone[3:4])
        @test same(a, b; rtol = 1e-12, atol = 1e-12)
    end
    @test !any(any.(!iszero, back(ZeroTangent())[3:4]))
end

@testset "many points go in blocks" begin
    wrapper = random_net("tanh", 3)
    net, x = lower(PaddleNet(wrapper)), randn(Xoshiro(1), 3, 20_001)
    @test length(PaddleChainRules.blocks(PaddleChainRules.layers(net, wrapper.params), x)) == 4
    theta, c = reduce(vcat, vec.(wrapper.params)), randn(Xoshiro(2), 2, 20_001)
    few = [i:min(i + 999, 20_001) for i in 1:1000:20_001]
    parts(x, t, c) = sum(c .* laplacian(net, x, t) .+ derivative(net, x, t, (1, 0, 0)))
    found = Zygote.gradient(x -> parts(x, theta, c), x)[1]
    expected = reduce(hcat, [Zygote.gradient(x -> parts(x, theta, c[:, r]), x[:, r])[1] for r in few])
    @test same(found, expected; rtol = 1e-11, atol = 1e-11)
    found = Zygote.gradient(t -> parts(x, t, c), theta)[1]
    expected = sum(Zygote.gradient(t -> parts(x[:, r], t, c[:, r]), theta)[1] for r in few)
    @test same(found, expected; rtol = 1e-9, atol = 1e-9 * maximum(abs, expected))
    @test same(laplacian(net, x, theta)[:, few[9]], laplacian(net, x[:, few[9]], theta); rtol = 1e-11, atol = 1e-11)
end

@testset "numbers of other kinds" begin
    wrapper = random_net("tanh", 3)
    lowered, x = lower(wrapper), randn(Xoshiro(1), 3, 4)
    found = laplacian(lowered, big.(x))
    @test eltype(found) == BigFloat && isapprox(Float64.(found), laplacian(wrapper, x))
    # A product of Hessian and vector: dual numbers through the rule.
    theta, v = reduce(vcat, vec.(wrapper.params)), randn(Xoshiro(2), sum(length, wrapper.params))
    g(t) = Zygote.gradient(t -> sum(abs2, laplacian(lowered.net, x, t)), t)[1]
    found = ForwardDiff.derivative(h -> g(theta .+ h .* v), 0.0)
    h = 1e-5
    @test same(found, (g(theta .+ h .* v) .- g(theta .- h .* v)) ./ 2h; rtol = 1e-6, atol = 1e-5 * maximum(abs, found))
end

@testset "what a lowered net refuses" begin
    lowered, x = lower(random_net("tanh", 2)), randn(3, 4)
    err = @test_throws ArgumentError derivative(lowered, x, (2, 1, 0))
    @test occursin("of a lowered net the highest is 2", err.value.msg)
    @test_throws DimensionMismatch derivative(lowered, x, (1, 0))
    @test_throws ArgumentError derivatives(lowered, x, ((1, 0, 0), (1, 0, 0)))
    for call in (laplacian, (f, x) -> derivative(f, x, (1, 0, 0)))
        err = @test_throws DimensionMismatch call(lowered, randn(2, 4))
        @test occursin("3 features first", err.value.msg)
    end
end
