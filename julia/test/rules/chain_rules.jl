using ChainRulesCore: AbstractThunk, NoTangent, ProjectTo, Tangent, ZeroTangent, rrule, unthunk, @thunk
using ChainRulesTestUtils: ⊢, test_rrule
using FillArrays: Fill
using FiniteDifferences: central_fdm, grad
using LinearAlgebra: Diagonal
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using PythonCall
using Random: Random, Xoshiro
using Zygote: Zygote

include("../oracle.jl")

# A cotangent for each output that counts, and the same numbers as a loss.
weights(ys; seed = 9) = map(y -> randn(Xoshiro(seed + length(y)), eltype(y), size(y)), ys)

flat(y::AbstractArray) = (y,)
flat(y::Tuple) = mapreduce(flat, (a, b) -> (a..., b...), y)

conv_net() = paddle.nn.Sequential(
    paddle.nn.Conv2D(2, 3, (2, 3), stride = 2, padding = 1), paddle.nn.ReLU(),
    paddle.nn.Flatten(), paddle.nn.Linear(3 * 4 * 3, 5),
)

const LAYERS = [
    ("Sequential", sequential, (randn(Xoshiro(1), Float32, 3, 5),), y -> (y,)),
    ("Sequential, one sample", sequential, (randn(Xoshiro(1), Float32, 3, 1),), y -> (y,)),
    ("Conv2D net", conv_net, (randn(Xoshiro(2), Float32, 5, 6, 2, 4),), y -> (y,)),
    ("LSTM", () -> paddle.nn.LSTM(3, 5), (randn(Xoshiro(3), Float32, 3, 7, 2),),
        y -> (y[0], y[1][0], y[1][1])),
    ("Bilinear", () -> paddle.nn.Bilinear(3, 4, 2),
        (randn(Xoshiro(4), Float32, 3, 6), randn(Xoshiro(5), Float32, 4, 6)), y -> (y,)),
    ("MultiHeadAttention", () -> paddle.nn.MultiHeadAttention(6, 2),
        (randn(Xoshiro(6), Float32, 6, 3, 2),), y -> (y,)),
]

@testset "gradients equal paddle.grad on the untouched layer: $name" for (name, make, xs, pick) in
                                                                         LAYERS
    layer = make()
    before = snapshot(layer)
    wrapper = PaddleModuleWrapper(layer)
    ys = flat(wrapper(xs...))
    cs = weights(ys)
    expected, param_grads, input_grads = native(layer, xs, cs; outputs = pick)
    @test length(ys) == length(expected)
    @test all(map(same, ys, expected))

    loss(m, xs...) = sum(map((y, c) -> sum(y .* c), flat(m(xs...)), cs))
    grads = Zygote.gradient(loss, wrapper, xs...)
    @test length(grads[1].params) == length(param_grads)
    @test all(map(same, grads[1].params, Tuple(param_grads)))
    @test all(map(same, grads[2:end], Tuple(input_grads)))
    @test grads[1].net === nothing

    theta = reduce(vcat, vec.(wrapper.params))
    net = PaddleNet(wrapper)
    inputs = length(xs) == 1 ? only(xs) : xs
    (gtheta,) = Zygote.gradient(theta) do theta
        sum(map((y, c) -> sum(y .* c), flat(net(inputs, theta)), cs))
    end
    @test same(gtheta, reduce(vcat, vec.(param_grads)))
    @test is_unchanged(layer, before)
end

@testset "embedding: gradient of the table, none of the indices" begin
    layer = paddle.nn.Embedding(6, 3)
    wrapper = PaddleModuleWrapper(layer)
    ids = [0 4; 5 1; 4 2]
    c = randn(Xoshiro(1), Float32, 3, 3, 2)
    y, back = rrule(wrapper, ids)
    w̄, x̄ = back(c)
    @test x̄ isa NoTangent
    expected = zeros(Float32, 3, 6)
    for k in CartesianIndices(ids)
        expected[:, ids[k]+1] .+= c[:, k]
    end
    @test same(unthunk(w̄.params)[1], expected)
end

# The rule of a wrapper, as one of its parameters and inputs, which are what can be perturbed.
struct Rewrap
    net::PaddleNet
end
(f::Rewrap)(params, xs...) = PaddleModuleWrapper(f.net, params)(xs...)
function wrapper_rule(f::Rewrap, params, xs...)
    y, back = rrule(PaddleModuleWrapper(f.net, params), xs...)
    return y, function (ȳ)
        w̄, x̄s... = back(ȳ)
        return NoTangent(), unthunk(w̄.params), x̄s...
    end
end

function test_wrapper_rrule(wrapper, xs...)
    return test_rrule(
        Rewrap(wrapper.net) ⊢ NoTangent(), wrapper.params, xs...;
        rrule_f = (config, f, args...) -> wrapper_rule(f, args...), check_inferred = false,
    )
end

reverse_names(nt) = NamedTuple{reverse(keys(nt))}(nt)

@testset "test_rrule, $layers layers, $activation" for layers in (1, 3),
    activation in ("tanh", "gelu", "sin")

    Random.seed!(2)
    wrapper = PaddleFCNet(3, 2, layers, 4; dtype = "float64", activation, seed = 5)
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), 3, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    named = NamedTuple{Tuple(net.names)}(wrapper.params)
    test_rrule(net ⊢ NoTangent(), x, theta; check_inferred = false)
    test_rrule(net ⊢ NoTangent(), x, named; check_inferred = false)
    test_rrule(net ⊢ NoTangent(), x, reverse_names(named); check_inferred = false)
    test_rrule(net ⊢ NoTangent(), x, wrapper.params; check_inferred = false)
    test_rrule(net ⊢ NoTangent(), x[:, 1], theta; check_inferred = false)
    test_wrapper_rrule(wrapper, x)
end

@testset "test_rrule of several inputs" begin
    layer = paddle.nn.Bilinear(3, 4, 2)
    layer.to(dtype = "float64")
    wrapper = PaddleModuleWrapper(layer)
    a, b = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 4, 6)
    test_wrapper_rrule(wrapper, a, b)
    test_rrule(PaddleNet(wrapper) ⊢ NoTangent(), (a, b), wrapper.params; check_inferred = false)
end

@testset "finite differences" begin
    wrapper = PaddleFCNet(3, 2, 3, 4; dtype = "float64", activation = "silu", seed = 5)
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), 3, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    c = randn(Xoshiro(2), 2, 5)
    loss(x, theta) = sum(c .* net(x, theta))
    gx, gtheta = Zygote.gradient(loss, x, theta)
    fx, ftheta = grad(central_fdm(5, 1), loss, x, theta)
    @test same(gx, fx; rtol = 1e-9, atol = 1e-10)
    @test same(gtheta, ftheta; rtol = 1e-9, atol = 1e-10)
end

@testset "a pullback again and again, after everything else is gone" begin
    y, back, x, c = let
        wrapper = PaddleFCNet(3, 2, 3, 4; dtype = "float64", seed = 5)
        x = randn(Xoshiro(1), 3, 5)
        y, back = rrule(wrapper, x)
        y, back, x, randn(Xoshiro(2), 2, 5)
    end
    once, twice = back(c), back(2c)
    GC.gc()
    pyimport("gc").collect()
    x1, x2 = unthunk(once[2]), unthunk(twice[2])
    w1, w2 = unthunk(once[1].params), unthunk(twice[1].params)
    @test all(map((a, b) -> same(b, 2a; rtol = 1e-14), Tuple(w1), Tuple(w2)))
    @test same(x2, 2x1; rtol = 1e-14)
    GC.gc()
    @test unthunk(back(c)[2]) == x1
end

@testset "thunks compute what they are asked for, $name" for (name, make, dims) in [
    ("chain", () -> PaddleFCNet(3, 2, 3, 4; dtype = "float64", seed = 5), ((3, 5),)),
    ("recorded", () -> PaddleModuleWrapper(sequential()), ((3, 5),)),
    ("two inputs", () -> PaddleModuleWrapper(paddle.nn.Bilinear(3, 4, 2)), ((3, 6), (4, 6))),
]
    wrapper = make()
    net = PaddleNet(wrapper)
    xs = map(dims -> randn(Xoshiro(1), eltype(wrapper.params[1]), dims), dims)
    back() = rrule(wrapper, xs...)[2](ones(eltype(xs[1]), size(wrapper(xs...))))
    w̄, x̄s... = back()
    @test all(x̄ -> x̄ isa AbstractThunk, x̄s)
    # Either order, alone, and again.
    expected_w, expected_x = unthunk(w̄.params), map(unthunk, x̄s)
    w̄, x̄s... = back()
    @test map(unthunk, x̄s) == expected_x
    @test unthunk(w̄.params) == expected_w
    @test unthunk(last(back())) == last(expected_x)
    @test unthunk(first(back()).params) == expected_w
    zygote = Zygote.gradient((w, xs...) -> sum(w(xs...)), wrapper, xs...)
    @test all(map((a, b) -> same(a, b), zygote[1].params, Tuple(expected_w)))
    @test all(map((a, b) -> same(a, b), zygote[2:end], expected_x))

    # What the other side is asked to compute.
    asked = pyeval("[]", Main)
    bound = pyeval(
        """lambda pullback, asked: lambda *args: (lambda made: (
            made[0], lambda *a: asked.append(a[:3]) or made[1](*a)))(pullback(*args))""", Main,
    )
    net.handle.pullback = bound(net.handle.pullback, asked)
    w̄, x̄s... = back()
    @test isempty(asked)
    foreach(unthunk, x̄s)
    @test pyconvert(Vector{Tuple{Bool,Bool,Bool}}, asked) == [(false, true, false)]
    unthunk(w̄.params)
    @test pyconvert(Vector{Tuple{Bool,Bool,Bool}}, asked)[2:end] == [(true, false, true)]
    Zygote.gradient((w, xs...) -> sum(w(xs...)), wrapper, xs...)
    @test pyconvert(Vector{Tuple{Bool,Bool,Bool}}, asked)[3:end] == [(true, true, true)]
end

@testset "dropout falls once, however often its pullback is used" begin
    paddle.seed(3)
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 40), paddle.nn.Dropout(0.5))
    wrapper = PaddleModuleWrapper(layer)
    x, c = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 40, 5)
    for config in ((), (Zygote.ZygoteRuleConfig(),))
        y, back = rrule(config..., wrapper, x)
        dropped = y .== 0
        @test 0.3 < sum(dropped) / length(y) < 0.7
        # By hand: the mask of the output, and 1 / (1 - p) where it is kept.
        masked = 2 .* c .* .!dropped
        for factor in (1, 2, 3)
            w̄, x̄ = back(Float32(factor) .* c)
            GC.gc()
            # Sums whose terms cancel are compared with the largest.
            near(found, expected) = same(found, expected; atol = 1f-5 * maximum(abs, expected))
            @test near(unthunk(x̄), factor .* (wrapper.params[1]' * masked))
            @test near(unthunk(w̄.params)[1], factor .* (masked * x'))
            @test wrapper(x) != y
        end
    end
end

@testset "every use of a thunk gives arrays of its own" begin
    wrapper, x = PaddleModuleWrapper(sequential()), randn(Xoshiro(1), Float32, 3, 5)
    c = randn(Xoshiro(2), Float32, 2, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    _, back = rrule(wrapper, x)
    w̄, x̄ = back(c)
    _, of_theta = rrule(wrapper.net, x, theta)
    theta_bar = of_theta(c)[3]
    for use in (() -> (unthunk(x̄),), () -> map(unthunk, Tuple(w̄.params)), () -> (unthunk(theta_bar),))
        first_use = use()
        kept = map(copy, first_use)
        foreach(a -> fill!(a, NaN), first_use)
        second_use = use()
        @test all(map(same, second_use, kept)) && all(map(!==, first_use, second_use))
        foreach(a -> fill!(a, NaN), second_use)
        @test all(map(same, use(), kept))
    end
    # Of several inputs each has its own, computed for all at once.
    attention = PaddleModuleWrapper(paddle.nn.Bilinear(3, 4, 2))
    u, v = randn(Xoshiro(3), Float32, 3, 5), randn(Xoshiro(4), Float32, 4, 5)
    _, ū, v̄ = rrule(attention, u, v)[2](c)
    kept = map(copy ∘ unthunk, (ū, v̄))
    fill!(unthunk(ū), NaN)
    @test same(unthunk(v̄), kept[2]) && same(unthunk(ū), kept[1]) && same(unthunk(v̄), kept[2])
end

@testset "a pullback shares what it is of until its last use" begin
    wrapper = PaddleModuleWrapper(paddle.nn.Linear(3, 2))
    x, c = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 2, 5)
    given, later = copy(x), randn(Xoshiro(3), Float32, 3, 5)
    wrapper(x) # a first call works on copies
    for _ in 1:6 # by the tape, and from the fourth call on by a program
        _, back = rrule(wrapper, x)
        copyto!(x, later)
        @test same(unthunk(back(c)[1].params)[1], c * later')
        copyto!(x, given)
        w̄, x̄ = rrule(wrapper, x)[2](c)
        weight = unthunk(w̄.params)[1]
        fill!(x, NaN)
        @test same(weight, c * given')
        copyto!(x, given)
        @test same(unthunk(x̄), wrapper.params[1]' * c)
    end
end

@testset "a wrong cotangent is refused before anything is asked for" begin
    _, back = rrule(PaddleFCNet(3, 2, 2, 4; seed = 5), ones(Float32, 3, 2))
    @test_throws DimensionMismatch back(ones(Float32, 3, 2))
end

@testset "parts of a tuple may be missing from the cotangent" begin
    wrapper = PaddleModuleWrapper(paddle.nn.LSTM(3, 5))
    x = randn(Xoshiro(3), Float32, 3, 7, 2)
    (y, (h, c)), back = rrule(wrapper, x)
    k = randn(Xoshiro(4), Float32, size(h))
    whole = unthunk(back((zero(y), (k, zero(c))))[2])
    tangent = Tangent{Any}(ZeroTangent(), Tangent{Any}(k, NoTangent()))
    for ȳ in ((nothing, (k, nothing)), (ZeroTangent(), (k, ZeroTangent())), tangent)
        @test same(unthunk(back(ȳ)[2]), whole)
    end
    none = back((nothing, nothing))
    @test unthunk(none[2]) isa NoTangent
    @test_throws DimensionMismatch back((y,))
end

@testset "a net has no tangent" begin
    net = PaddleNet(sequential())
    @test ProjectTo(net)(1.0) isa NoTangent
    @test ProjectTo(net.handle)(1.0) isa NoTangent
end

@testset "tangents have the kind of their primal" begin
    wrapper = PaddleFCNet(3, 2, 2, 4; dtype = "float64", seed = 5)
    net = PaddleNet(wrapper)
    x = randn(Xoshiro(1), 5, 3)
    theta = reduce(vcat, vec.(wrapper.params))
    gx, gtheta = Zygote.gradient((x, t) -> sum(abs2, net(x, t)), x', view(theta, :))
    expected = Zygote.gradient((x, t) -> sum(abs2, net(x, t)), Array(x'), theta)
    @test gx ≈ expected[1]
    @test gtheta ≈ expected[2]
    D = Diagonal([1.0, 2.0, 3.0])
    @test Zygote.gradient(x -> sum(abs2, net(x, theta)), D)[1] isa Diagonal
end

@testset "a Paddle net between Julia functions" begin
    wrapper = PaddleFCNet(3, 2, 2, 4; dtype = "float64", seed = 5)
    A, B = randn(Xoshiro(1), 3, 4), randn(Xoshiro(2), 2, 2)
    x = randn(Xoshiro(3), 4, 5)
    loss(A, B) = sum(abs2, B * wrapper(tanh.(A * x)))
    found = Zygote.gradient(loss, A, B)
    expected = grad(central_fdm(5, 1), loss, A, B)
    @test same(found[1], expected[1]; rtol = 1e-8, atol = 1e-9)
    @test same(found[2], expected[2]; rtol = 1e-8, atol = 1e-9)
end

@testset "one thunk alone, where Paddle's kernels give only all" begin
    for (make, dims) in (
        (() -> paddle.nn.LayerNorm(3), (3, 5)), (() -> paddle.nn.PReLU(3), (4, 3, 2)),
        (() -> paddle.nn.BatchNorm1D(3), (3, 5)),
    )
        layer = make()
        for p in layer.parameters()
            pytruth(p.stop_gradient) || p.set_value(p * 0.3 + 0.4)
        end
        wrapper, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), Float32, dims)
        net, c = PaddleNet(wrapper), randn(Xoshiro(2), Float32, size(wrapper(x)))
        _, by_param, (by_x,) = native(layer, (x,), (c,))
        _, x̄, p̄ = rrule(net, x, wrapper.params)[2](c)
        @test same(unthunk(x̄), by_x; rtol = 1e-4, atol = 1e-5)
        _, x̄, p̄ = rrule(net, x, wrapper.params)[2](c)
        @test all(map((a, b) -> same(a, b; rtol = 1e-4, atol = 1e-5), Tuple(unthunk(p̄)), Tuple(by_param)))
        if length(wrapper.params) > 1
            _, back = PaddleChainRules.pullback(net, x, wrapper.params)
            buffer = zero(wrapper.params[1])
            back(c; into = (nothing, (buffer, nothing)))
            @test same(buffer, by_param[1]; rtol = 1e-4, atol = 1e-5)
        end
    end
end
