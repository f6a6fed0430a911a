# Modes of wrappers and nets, and the buffers of wrappers.

using Functors: Functors, fmap
using LuxCore: LuxCore
using Optimisers: Optimisers
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using PythonCall
using Random: Random, Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const trainmode, testmode = PaddleChainRules.trainmode, PaddleChainRules.testmode
exact(a, b) = same(a, b; rtol = 1e-12, atol = 1e-13)

function noisy()
    paddle.seed(1)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Tanh(), paddle.nn.Dropout(0.5),
        paddle.nn.Linear(4, 2),
    ).to(dtype = "float64")
    layer[1]._mean.set_value(to_tensor(randn(Xoshiro(5), 4)))
    layer[1]._variance.set_value(to_tensor(1 .+ rand(Xoshiro(6), 4)))
    return layer
end

function quiet_layer()
    layer = noisy()
    layer.eval()
    return layer
end

another(layer) = pyimport("copy").deepcopy(layer)

@testset "a wrapper in the other mode shares parameters" begin
    layer = noisy()
    w, x, c = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)
    oracle = another(layer)
    oracle.eval()
    (expected,), by_param, (by_x,) = native(oracle, (x,), (c,))
    @test unchanged(layer) do
        quiet = testmode(w)
        @test quiet isa typeof(w) && all(map(===, quiet.params, w.params))
        for f in (quiet, testmode(trainmode(w)), testmode(quiet), x -> testmode(PaddleNet(w))(x, w.params))
            @test exact(f(x), expected)
        end
        @test w(x) != w(x) # the one given stays in training
        @test trainmode(quiet)(x) != trainmode(quiet)(x)
        p̄s, x̄ = Zygote.gradient((w, x) -> sum(c .* w(x)), quiet, x)
        @test exact(x̄, by_x) && all(map(exact, p̄s.params, Tuple(by_param)))
        # Where the mode is changed within what is differentiated.
        p̄s, x̄ = Zygote.gradient((w, x) -> sum(c .* testmode(w)(x)), w, x)
        @test exact(x̄, by_x) && all(map(exact, p̄s.params, Tuple(by_param)))
        p̄s = Zygote.gradient(ps -> sum(c .* testmode(PaddleNet(w))(x, ps)), w.params)[1]
        @test all(map(exact, p̄s, Tuple(by_param)))
        y, back = PaddleChainRules.pullback(quiet, x)
        @test exact(back(c)[2], by_x)
        @test PaddleChainRules.initial_state(quiet).training === Val(false)
        frozen = PaddleChainRules.freeze(quiet, "0.*")
        @test exact(frozen(x), expected)
    end
    @test sprint(show, w) == "PaddleModuleWrapper(Sequential, 34 parameters)"
    @test sprint(show, testmode(w)) == "PaddleModuleWrapper(Sequential, 34 parameters, in test mode)"
    @test summary(trainmode(w)) == "PaddleModuleWrapper(Sequential, 34 parameters, in training mode)"
    @test occursin(r"1._mean +4 +Float64 +buffer", sprint(show, MIME"text/plain"(), w))
    chain = PaddleFCNet(3, 2, 2, 4; seed = 1) # has no modes
    @test testmode(chain)(Float32.(x)) == chain(Float32.(x))
end

@testset "all layers change their mode, whatever they had" begin
    layer = noisy()
    layer[3].eval() # the dropout alone
    w, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 6)
    @test w(x) == w(x) != testmode(w)(x)
    @test trainmode(w)(x) != trainmode(w)(x)
    net, st = PaddleNet(w), PaddleChainRules.initial_state(w)
    @test exact(net(x, w.params, st)[1], w(x)) # the state has the mode of the whole
end

@testset "a mode changed in place" begin
    w, x = PaddleModuleWrapper(noisy()), randn(Xoshiro(1), 3, 6)
    expected, other = testmode(w)(x), deepcopy(w)
    PaddleChainRules.set_mode!(w, false)
    @test w(x) == expected && PaddleNet(w)(x, w.params) == expected
    @test other(x) != other(x) && fmap(copy, w)(x) == expected
    PaddleChainRules.set_mode!(w, nothing)
    @test w(x) != w(x)
end

@testset "buffers are arrays of the wrapper" begin
    layer = quiet_layer()
    w, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 6)
    children = Functors.children(w)
    @test keys(children) == (:params, :buffers)
    @test keys(children.buffers) == (Symbol("1._mean"), Symbol("1._variance"))
    mean = children.buffers.var"1._mean"
    @test mean == from_numpy(layer[1]._mean)
    oracle = another(layer)
    oracle[1]._mean.set_value(to_tensor(mean .+ 3))
    before, expected = from_numpy(layer(to_tensor(x))), from_numpy(oracle(to_tensor(x)))
    copied, mapped = deepcopy(w), fmap(copy, w)
    foreach(_ -> w(x), 1:5) # from the fourth call on it is a program
    @test exact(w(x), before) && exact(copied(x), before)
    @test unchanged(layer) do
        mean .+= 3 # seen, by programs too
        @test exact(w(x), expected)
        @test exact(copied(x), before) && exact(mapped(x), before)
        Functors.children(copied).buffers.var"1._mean" .+= 3
        @test exact(copied(x), expected) && exact(mapped(x), before)
    end
    @test PaddleChainRules.initial_state(w).buffers.var"1._mean" == mean
    # Gradients leave them out, and training copies them without a net of its own each time.
    c = randn(Xoshiro(2), 2, 6)
    loss(w) = sum(abs2, w(x) .- c)
    state = Optimisers.setup(Optimisers.Descent(0.01), w)
    state, moved = Optimisers.update(state, w, Zygote.gradient(loss, w)[1])
    @test loss(moved) < loss(w)
    @test moved.net === w.net && Functors.children(moved).buffers.var"1._mean" == mean
    @test keys(Optimisers.trainable(w)) == (:params,)
    theta, re = Optimisers.destructure(w)
    @test length(theta) == sum(length, w.params) && exact(re(theta)(x), w(x))
    by_theta = Zygote.gradient(t -> loss(re(t)), theta)[1]
    @test exact(by_theta, reduce(vcat, map(vec, Zygote.gradient(loss, w)[1].params)))
    half = PaddleChainRules.freeze(w, "0.*")
    @test keys(Functors.children(half)) == (:params, :frozen, :buffers)
    theta, re = Optimisers.destructure(half)
    @test exact(re(theta)(x), w(x))
    state, moved = Optimisers.update(Optimisers.setup(Optimisers.Descent(0.01), half), half, Zygote.gradient(loss, half)[1])
    @test loss(moved) < loss(half) && moved.params[1] == w.params[1]
    err = @test_throws ArgumentError fmap(x -> x isa AbstractArray ? "" : x, w)(x)
    @test occursin("buffer 1._mean must be an array of Float64", err.value.msg)
end

@testset "buffers live as long as what was made of them" begin
    x, c = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)
    _, _, (expected,) = native(quiet_layer(), (x,), (c,))
    function made(change)
        w = change(PaddleModuleWrapper(quiet_layer()))
        return PaddleNet(w), w.params, PaddleChainRules.pullback(w, x)[2]
    end
    for change in (identity, testmode ∘ trainmode, w -> fmap(b -> copy(b) .+ 0, w))
        net, ps, back = made(change)
        for _ in 1:2
            GC.gc()
            foreach(_ -> randn(4), 1:1000)
        end
        @test exact(back(c)[2], expected)
        @test exact(Zygote.gradient(x -> sum(c .* net(x, ps)), x)[1], expected)
    end
end

@testset "a net has no parameters" begin
    w, x = PaddleFCNet(3, 2, 2, 4; seed = 1), rand(Xoshiro(1), Float32, 3, 5)
    err = @test_throws ArgumentError PaddleNet(w)(x)
    @test occursin("net(x, ps)", err.value.msg) && occursin("wrapper(x)", err.value.msg)
    @test_throws ArgumentError Zygote.gradient(x -> sum(PaddleNet(w)(x)), x)
end

@testset "equal is what is identical" begin
    w = PaddleModuleWrapper(noisy())
    @test w == w && hash(w) == hash(w)
    @test w != deepcopy(w) && w.params == deepcopy(w).params
    @test PaddleNet(w) == PaddleNet(w) && hash(PaddleNet(w)) == hash(PaddleNet(w))
    @test PaddleNet(w) != PaddleNet(noisy())
    @test length(Set([w, w, testmode(w)])) == 2
end

@testset "Julia's seed is not Paddle's" begin
    w, x = PaddleModuleWrapper(paddle.nn.Dropout(0.5)), ones(Float32, 20, 5)
    function drawn(seed!)
        seed!()
        return w(x)
    end
    @test drawn(() -> Random.seed!(1)) != drawn(() -> Random.seed!(1))
    @test drawn(() -> paddle.seed(1)) == drawn(() -> paddle.seed(1))
    @test w(x; seed = 3) == w(x; seed = 3) != w(x; seed = 4)
    fresh() = (Random.seed!(7); (PaddleFCNet(3, 2, 2, 4).params, PaddleChainRules.initial_state(w).seed))
    @test fresh() == fresh()
end
