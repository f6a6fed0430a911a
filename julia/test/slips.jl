# Small slips of callers: each is refused with a sentence, and none is ignored.

using ChainRulesCore: rrule
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, batched_jacobian, batched_vjp, derivative,
    derivatives, freeze, initial_state, jvp, laplacian, load_params, lower, paddle, pullback, save_lowered,
    save_params, testmode, trainmode
using Random: Xoshiro

const W = PaddleFCNet(2, 1, 3, 4; seed = 1, activation = "tanh")
const NET, PS = PaddleNet(W), W.params
const NAMED = NamedTuple{Tuple(NET.names)}(PS)
const X = randn(Xoshiro(1), Float32, 2, 3)
const BN = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4)))
const ST, X3 = initial_state(BN; seed = 1), randn(Xoshiro(2), Float32, 3, 5)
const LOWERED, WITH_STATE = lower(W), lower(PaddleNet(BN), X3, ST)
state(; more...) = merge(ST, values(more))

const SLIPS = (
    "dtype" => (() -> PaddleFCNet(2, 1, 2, 4; dtype = Float32), "unsupported dtype Float32"),
    "a width is missing" => (() -> PaddleFCNet(2, 1, 2), "PaddleFCNet(dim_in, dim_out"),
    "a seed" => (() -> PaddleFCNet(2, 1, 2, 4; seed = -1), "from 0 to 2^64 - 1, got -1"),
    "nothing for x" => (() -> W(nothing), "takes one array, got nothing"),
    "a tuple for x" => (() -> W((X,)), "takes one array, got a tuple of 1"),
    "a number for x" => (() -> W(1.0f0), "fill(1.0f0) is one"),
    "a vector of arrays" => (() -> NET(X, collect(PS)), "got a vector of arrays; give Tuple(ps)"),
    "no state" => (() -> NET(X, PS, nothing), "initial_state(net) gives"),
    "a state's seed" => (() -> PaddleNet(BN)(X3, BN.params, state(seed = nothing)), "got nothing"),
    "a state's buffers" => (
        () -> PaddleNet(BN)(X3, BN.params, state(buffers = map(b -> Int.(b), ST.buffers))),
        "buffer 1._mean has element type Int64, the net needs Float32",
    ),
    # Directions: not spread over the columns of a parameter, nor taken by position for names.
    "a direction of a weight" => (
        () -> jvp(NET, X, PS, nothing, (ones(Float32, 4), map(zero, PS[2:end])...)),
        "the direction has size (4,), the array that it is of (4, 2)",
    ),
    "a named direction of a tuple" => (
        () -> jvp(NET, X, PS, nothing, reverse(NAMED)), "its primal a tuple of 6; nest it in the same way",
    ),
    "a misnamed direction" => (
        () -> jvp(NET, X, NAMED, nothing, NamedTuple{(:a, :b, :c, :d, :e, :f)}(PS)), "the names a, b, c",
    ),
    "a direction of integers" => (
        () -> jvp(W, ones(Int, 2, 3), ones(Int, 2, 3)), "an array of Int64 has no direction",
    ),
    "no direction, lowered" => (() -> jvp(LOWERED, X, nothing), "got nothing; give an array"),
    # Derivatives.
    "rows from 1 on" => (() -> derivatives(W, X, (u = (1, 3),)), "its rows, 1 to 2, got (3,)"),
    "rows from 1 on, lowered" => (() -> derivatives(LOWERED, X, (u = (1, 3),)), "its rows, 1 to 2, got (3,)"),
    "rows of the output" => (() -> derivatives(W, X, (u = (2, 1),)), "has 1 rows, got 2"),
    "a Boolean row" => (() -> derivatives(W, X, (u = (1, true),)), "indices from 1 on"),
    "no derivative" => (() -> derivatives(W, X, (;)), "indices from 1 on"),
    "too high an order" => (() -> derivatives(W, X, (u = (1, 1, 1, 1, 1, 1),)), "of order 5, the highest is 4"),
    "one index for several" => (() -> derivatives(W, X, (1, 0)), "such as ((2, 0), (1, 1))"),
    "a net without parameters" => (() -> laplacian(NET, X), "laplacian(net, x, ps) or laplacian(wrapper, x)"),
    "nothing for x, lowered" => (() -> laplacian(LOWERED, nothing), "by one array, got nothing"),
    "a Jacobian of integers" => (() -> batched_jacobian(BN, ones(Int, 3, 5)), "of floating numbers, got a Matrix"),
    "a Jacobian by a tuple" => (() -> batched_jacobian(W, (X,)), "got a tuple of 1"),
    "no samples" => (() -> batched_jacobian(W, X[:, 1:0]), "1 or more, got the sizes (2, 0)"),
    "one sample as a vector" => (() -> batched_jacobian(W, X[:, 1]), "reshape(x, size(x)..., 1)"),
    "other samples" => (() -> batched_vjp(W, X, ones(Float32, 1, 2)), "got the sizes (2, 3), (1, 2)"),
    "other parameters" => (() -> pullback(W, X, PS), "pullback(net, x, ps) or pullback(wrapper, x)"),
    # Lowering, and what was lowered.
    "lowered for another type" => (() -> lower(W, Float64.(X)), "has element type Float64, the net needs Float32"),
    "lowered for another size" => (() -> lower(W, X'), "the input of layer \"0\" (Linear) has size (3, 2), the net needs (2, n)"),
    "lowered for nothing" => (() -> lower(W, nothing), "takes one array, got nothing"),
    "lowered for no samples" => (() -> lower(W, X[:, 1:0]), "got the sizes (2, 0)"),
    "lowered again" => (() -> lower(LOWERED), "got lower(a LoweredModule)"),
    "lowered without a wrapper" => (() -> lower(paddle.nn.Linear(3, 2), X3), "got lower(Python's Linear,"),
    "a number, lowered" => (() -> LOWERED(1.0f0), "fill(1.0f0) is one"),
    "missing, lowered" => (() -> LOWERED(missing), "got a Missing"),
    "nothing, lowered" => (() -> LOWERED(nothing), "for a call with 1 arrays, got 0"),
    "two, lowered" => (() -> LOWERED(X, X), "nested as (_, _), the net was lowered for (_)"),
    "a keyword, lowered" => (() -> LOWERED(X; foo = 1), "nested as (_; foo = _), the net"),
    "no parameters, lowered" => (() -> LOWERED.net(X), "lowered(x, ps), got 1"),
    "nothing for parameters, lowered" => (() -> LOWERED.net(X, nothing), "a flat vector, a named tuple or a tuple"),
    "no state, lowered" => (() -> WITH_STATE(X3, BN.params), "takes one, lowered(x, ps, st)"),
    "an empty state, lowered" => (() -> WITH_STATE(X3, BN.params, (;)), "got a named tuple with the names none"),
    "a state's seed, lowered" => (() -> WITH_STATE(X3, BN.params, state(seed = -1)), "got -1"),
    "a mode of a lowered net" => (() -> testmode(LOWERED), "before it is lowered, got testmode(a LoweredModule)"),
    "freeze a lowered net" => (() -> freeze(LOWERED, "0.*"), "before it is lowered"),
    "save_lowered of a wrapper" => (() -> save_lowered("net.jl", W), "got save_lowered(a String, a PaddleModuleWrapper)"),
    "a path" => (() -> save_params(nothing, W), "got save_params(nothing, a PaddleModuleWrapper)"),
)

@testset "$slip" for (slip, (call, words)) in SLIPS
    err = @test_throws Union{ArgumentError,DimensionMismatch} call()
    message = sprint(showerror, err.value)
    @test occursin(words, message)
    @test length(message) < 500 && !occursin(r"Tuple\{|Vararg|RuntimeGenerated|Symbol\(", message)
end

@testset "what could be taken is taken" begin
    y, ȳ = W(X), ones(Int, 1, 3)
    @test batched_vjp(W, X, ȳ) == batched_vjp(W, X, Float32.(ȳ)) == batched_vjp(W, X, Float64.(ȳ))
    @test jvp(W, X, Float32[1, 0]) == derivative(W, X, (1, 0))
    net, turned = PaddleNet(BN), NamedTuple{(:training, :seed, :buffers)}(ST)
    @test net(X3, BN.params, turned)[1] == net(X3, BN.params, ST)[1]
    @test keys(net(X3, BN.params, turned)[2]) == keys(turned)
end

@testset "parameters from a file leave the mode as it is" begin
    path = joinpath(mktempdir(), "net.npz")
    save_params(path, BN)
    for mode in (testmode, trainmode, identity)
        found, given = load_params(path, mode(BN)), mode(BN)
        @test repr(found) == repr(given) && found(X3) == given(X3)
    end
end

@testset "the samples of all inputs of a lowered net are as many" begin
    distance = PaddleModuleWrapper(paddle.nn.MSELoss(reduction = "none"))
    a, b = randn(Xoshiro(3), Float32, 3, 5), randn(Xoshiro(4), Float32, 3, 5)
    lowered = lower(distance, a, b)
    @test isapprox(lowered(a[:, 1:2], b[:, 1:2]), distance(a[:, 1:2], b[:, 1:2]); rtol = 1e-5)
    @test_throws "1 and 5 samples" lowered(a[:, 1:1], b)
end

@testset "statistics of as many channels as samples" begin
    net, x = PaddleNet(testmode(BN)), randn(Xoshiro(5), Float32, 3, 4)
    st, other = merge(ST, (; training = Val(false))), randn(Xoshiro(6), Float32, 3, 7)
    lowered = lower(net, x, st)
    @test isapprox(lowered(other, BN.params, st)[1], net(other, BN.params, st)[1]; rtol = 1e-5)
end

@testset "one number a channel has no statistics of a batch" begin
    lowered, x = lower(BN, X3), X3[:, 1:1]
    @test_throws "give more samples, or lower the net in test mode" lowered(x)
    @test isapprox(lower(testmode(BN), X3)(x), testmode(BN)(x); rtol = 1e-5)
end

@testset "pullbacks show themselves" begin
    for (back, words) in ((pullback(NET, X, PS)[2], ", back(ȳ; into, accumulate)"), (rrule(W, X)[2], ""))
        @test repr(back) == repr(MIME("text/plain"), back) == "the pullback of $(repr(NET))$words"
    end
end

@testset "lowered nets show themselves" begin
    @test repr(LOWERED) == "Lowered(FCNet(2 => 4 => 4 => 1, tanh, float32), 37 parameters)" == summary(LOWERED)
    @test repr(LOWERED.net) == "Lowered(FCNet(2 => 4 => 4 => 1, tanh, float32))"
    @test repr(WITH_STATE) == "Lowered(Sequential, in training mode, with its state)"
    for lowered in (LOWERED, LOWERED.net, WITH_STATE)
        shown = repr(MIME("text/plain"), lowered)
        @test startswith(shown, repr(lowered) * "\nfunction value(") && endswith(shown, "\nend")
    end
end
