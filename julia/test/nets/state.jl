# Buffers, seeds and modes, explicit, and as Lux has them.

using ChainRulesCore: NoTangent, rrule, unthunk
using LuxCore: LuxCore
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, luxlayer, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const initial_state = PaddleChainRules.initial_state
exact(a, b) = same(a, b; rtol = 1e-12, atol = 1e-13)

function noisy()
    paddle.seed(1)
    return python_module("layers").Noisy().to(dtype = "float64")
end

"A copy of the layer, whose statistics may move."
another(layer) = pyimport("copy").deepcopy(layer)

@testset "new statistics and drawn numbers are those of native Paddle" begin
    layer = noisy()
    w = PaddleModuleWrapper(layer)
    net, x = PaddleNet(w), randn(Xoshiro(1), 3, 6)
    c = randn(Xoshiro(2), 2, 6)
    st = initial_state(net; seed = 11)
    @test keys(st) == (:buffers, :seed, :training) && st.training === Val(true)
    @test keys(st.buffers) == (Symbol("norm._mean"), Symbol("norm._variance"))
    oracle = another(layer)
    paddle.seed(st.seed)
    (expected,), by_param, (by_x,) = native(oracle, (x,), (c,))
    @test unchanged(layer) do
        y, new = net(x, w.params, st)
        @test exact(y, expected)
        @test exact(new.buffers.var"norm._mean", from_numpy(oracle.norm._mean))
        @test exact(new.buffers.var"norm._variance", from_numpy(oracle.norm._variance))
        @test net(x, w.params, st) == (y, new) # the same state, the same call
        @test st.buffers.var"norm._mean" == zeros(40) && new.seed != st.seed
        paddle.seed(new.seed)
        again = oracle(to_tensor(x))
        y2, new2 = net(x, w.params, new)
        @test exact(y2, from_numpy(again))
        @test exact(new2.buffers.var"norm._mean", from_numpy(oracle.norm._mean))
        @test net(x, w.params; st.seed) == y != net(x, w.params; seed = 12)
        @test net(x, w.params; st.buffers, st.seed) == (y, new.buffers)
        # Forward and pullback draw the same, and the program's own numbers go on.
        paddle.seed(4)
        upcoming = from_numpy(paddle.rand(pylist([3])))
        paddle.seed(4)
        x̄, p̄s = Zygote.gradient((x, ps) -> sum(c .* net(x, ps, st)[1]), x, w.params)
        @test exact(x̄, by_x) && all(map(exact, p̄s, Tuple(by_param)))
        x̄, p̄s = Zygote.gradient((x, ps) -> sum(c .* net(x, ps; seed = 11)), x, w.params)
        @test exact(x̄, by_x) && all(map(exact, p̄s, Tuple(by_param)))
        @test from_numpy(paddle.rand(pylist([3]))) == upcoming
        (y3, new3), back = rrule(net, x, w.params, st)
        @test (y3, new3) == (y, new)
        for _ in 1:2 # also after the graph was let go of
            tangents = back((c, nothing))
            @test exact(unthunk(tangents[2]), by_x)
            p̄s = unthunk(tangents[3])
            @test all(exact(p̄s[i], by_param[i]) for i in eachindex(by_param))
            @test tangents[4] === NoTangent()
        end
        err = @test_throws PyException Zygote.gradient(x -> sum(net(x, w.params, st)[2].buffers[1]), x)
        @test occursin("buffers of a net have no derivative", sprint(showerror, err.value))
    end
end

@testset "modes" begin
    layer = noisy()
    w = PaddleModuleWrapper(layer)
    net, x, c = PaddleNet(w), randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)
    st = merge(initial_state(net; seed = 5), (; training = Val(false)))
    oracle = another(layer)
    oracle.eval()
    paddle.seed(5)
    (expected,), by_param, (by_x,) = native(oracle, (x,), (c,))
    @test unchanged(layer) do
        y, new = net(x, w.params, st)
        @test exact(y, expected)
        @test new.buffers == st.buffers && new.training === Val(false)
        x̄, p̄s = Zygote.gradient((x, ps) -> sum(c .* net(x, ps, st)[1]), x, w.params)
        @test exact(x̄, by_x) && all(map(exact, p̄s, Tuple(by_param)))
    end
    # One that is a chain where dropout does nothing.
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Dropout(0.5), paddle.nn.Linear(4, 2))
    w = PaddleModuleWrapper(layer)
    net, x = PaddleNet(w), randn(Xoshiro(1), Float32, 3, 6)
    st = initial_state(net; seed = 3)
    y, st2 = net(x, w.params, st)
    @test st2.seed != st.seed && y == net(x, w.params; st.seed)
    quiet, _ = net(x, w.params, merge(st, (; training = Val(false))))
    layer.eval()
    @test same(quiet, from_numpy(layer(to_tensor(x))))
    grad(st) = Zygote.gradient(x -> sum(abs2, net(x, w.params, st)[1]), x)[1]
    expected = native(layer, (x,), (2 .* quiet,))[3][1]
    @test same(grad(merge(st, (; training = Val(false)))), expected)
end

@testset "Lux's states" begin
    layer = noisy()
    before = snapshot(layer)
    w = PaddleModuleWrapper(layer)
    lux = luxlayer(w)
    ps, st = LuxCore.setup(Xoshiro(3), lux)
    @test st == initial_state(PaddleNet(w); st.seed)
    @test LuxCore.statelength(lux) == 80 + 2
    drawn = LuxCore.initialstates(Xoshiro(3), lux)
    @test drawn == LuxCore.initialstates(Xoshiro(3), lux) != LuxCore.initialstates(Xoshiro(4), lux)
    x = randn(Xoshiro(1), 3, 6)
    y, new = lux(x, ps, st)
    @test (y, new) == PaddleNet(w)(x, w.params, st)
    test = LuxCore.testmode(new)
    @test test.training === Val(false) && test.buffers == new.buffers
    y, same_statistics = lux(x, ps, test)
    @test same_statistics.buffers == test.buffers
    @test LuxCore.trainmode(test).training === Val(true)
    # Statistics move as native Paddle's do over some steps, with gradients between.
    oracle = another(layer)
    for i in 1:3
        batch = randn(Xoshiro(i), 3, 6)
        paddle.seed(st.seed)
        expected = oracle(to_tensor(batch))
        (y, st), back = Zygote.pullback(ps -> lux(batch, ps, st), ps)
        @test exact(y, from_numpy(expected))
        @test only(back((y, nothing))) isa NamedTuple
    end
    @test exact(st.buffers.var"norm._variance", from_numpy(oracle.norm._variance))
    @test is_unchanged(layer, before)
    fc = luxlayer(PaddleFCNet(3, 2, 2, 4; seed = 1))
    @test LuxCore.initialstates(Xoshiro(1), fc) === NamedTuple()
    ps, st = LuxCore.setup(Xoshiro(3), fc)
    @test fc(randn(Float32, 3, 5), ps, st)[2] === NamedTuple()
end

@testset "bad states" begin
    w = PaddleModuleWrapper(noisy())
    net, x = PaddleNet(w), randn(Xoshiro(1), 3, 6)
    st = initial_state(net)
    call(changes) = net(x, w.params, merge(st, changes))
    mean(n) = NamedTuple((Symbol("norm._mean") => zeros(n),))
    for (call, kind, part) in (
        (() -> net(x, w.params, (; seed = 3)), ArgumentError, "the names buffers, seed and training"),
        (() -> call((; training = true)), ArgumentError, "Val(true) or Val(false)"),
        (() -> call((; buffers = mean(40))), ArgumentError, "got a named tuple with the names norm._mean"),
        (() -> call((; buffers = merge(st.buffers, mean(4)))), DimensionMismatch, "buffer norm._mean has size (4,), the net needs (40,); give one"),
        (() -> call((; buffers = map(b -> Float32.(b), st.buffers))), ArgumentError, "has element type Float32, the net needs Float64"),
        (() -> call((; buffers = nothing)), ArgumentError, "got nothing"),
        (() -> net(x, w.params; seed = -1), PyException, "at least 0"),
        (() -> net(x, w.params; seed = "3"), PyException, "seed must be an int"),
    )
        err = @test_throws kind call()
        @test occursin(part, sprint(showerror, err.value))
    end
end
