# Parameters held constant: left out, or kept and not trained.

using ChainRulesCore: ChainRulesCore, NoTangent, rrule, unthunk
using LuxCore: LuxCore
using Optimisers: Optimisers
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp,
    laplacian, lower, luxlayer, paddle, vjp
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const freeze = PaddleChainRules.freeze

function chain()
    paddle.seed(1)
    return paddle.nn.Sequential(
        paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 2),
    )
end

function convolutions()
    paddle.seed(1)
    return paddle.nn.Sequential(
        paddle.nn.Conv2D(2, 3, 3), paddle.nn.BatchNorm2D(3), paddle.nn.Flatten(), paddle.nn.Linear(12, 2),
    )
end

@testset "frozen and kept: $name" for (name, make, sizes) in (
    ("chain", chain, (3, 6)), ("recorded", convolutions, (4, 4, 2, 6)),
)
    layer, x, c = make(), randn(Xoshiro(1), Float32, sizes...), randn(Xoshiro(2), Float32, 2, 6)
    w = PaddleModuleWrapper(layer)
    names = string.(w.net.names)
    oracle = pyimport("copy").deepcopy(layer)
    _, by_param, (by_x,) = native(oracle, (x,), (c,))
    close(a, b) = same(a, b; rtol = 1e-4, atol = 1e-5)
    @test unchanged(layer) do
        for (given, kept) in (
            ("0.*", .!startswith.(names, "0.")),
            (["*.bias", names[end-1]], .!(endswith.(names, "bias") .| (names .== names[end-1]))),
            ("*", falses(length(names))),
        )
            part = freeze(w, given)
            @test part.params === w.params
            @test occursin("of them frozen", sprint(show, part))
            @test count(==("frozen"), split(sprint(show, MIME("text/plain"), part))) == count(.!kept)
            ḡ, x̄ = Zygote.gradient((w, x) -> sum(c .* w(x)), part, x)
            @test close(x̄, by_x)
            for (i, keep) in enumerate(kept)
                @test keep ? close(ḡ.params[i], by_param[i]) : ḡ === nothing || ḡ.params[i] === nothing
            end
            y, back = rrule(part, x)
            w̄, _ = back(c)
            found = unthunk(w̄.params)
            for (i, keep) in enumerate(kept)
                @test keep ? close(unthunk(found[i]), by_param[i]) : found[i] isa NoTangent
            end
        end
    end
    @test typeof(freeze(freeze(w, "*"), ())) == typeof(w)
    @test sprint(show, freeze(w, ())) == sprint(show, w)
    err = @test_throws PyException freeze(w, "encoder.*")
    @test occursin("freeze names 'encoder.*', but there is no such", sprint(showerror, err.value))
    for given in (:var"0.weight", r"^0\.weight$", (:var"0.weight",), [r"^0\.w"])
        @test typeof(freeze(w, given)) == typeof(freeze(w, "0.weight"))
    end
    by_pattern = PaddleModuleWrapper(layer; frozen = r"^0\.")
    @test by_pattern.net.names == filter(n -> !startswith(string(n), "0."), w.net.names)
    @test_throws "freeze names r\"encoder\", which no parameter matches; there are 0.weight" freeze(w, r"encoder")
    for given in (3, nothing, startswith("0."), ("0.weight", 3))
        @test_throws "freeze takes names of parameters" freeze(w, given)
    end
end

@testset "nets are made and frozen within what is differentiated" begin
    w, x = PaddleModuleWrapper(chain()), randn(Xoshiro(1), Float32, 3, 6)
    part = freeze(w, "0.*")
    expected = Zygote.gradient(w -> sum(abs2, w(x)), part)[1].params
    for loss in (w -> sum(abs2, freeze(w, "0.*")(x)), w -> sum(abs2, freeze(freeze(w, "*"), "0.*")(x)))
        found = Zygote.gradient(loss, w)[1].params
        @test found[1:2] == (nothing, nothing) && all(map(≈, found[3:end], expected[3:end]))
    end
    doubled(w) = sum(abs2, freeze(w, "0.*")(x)) + sum(abs2, w(x))
    both = Zygote.gradient(doubled, w)[1].params
    all_trained = Zygote.gradient(w -> sum(abs2, w(x)), w)[1].params
    @test all(map(≈, both[1:2], all_trained[1:2])) && all(map(≈, both[3:end], 2 .* all_trained[3:end]))
    steep(w) = sum(abs2, Zygote.gradient(x -> sum(abs2, w(x)), x)[1])
    @test all(map(≈, Zygote.gradient(w -> steep(freeze(w, "0.*")), w)[1].params[3:end], Zygote.gradient(steep, part)[1].params[3:end]))
    _, back = rrule(freeze, w, "0.*")
    w̄ = back(ChainRulesCore.Tangent{typeof(part)}(; params = expected))[2]
    @test w̄ isa ChainRulesCore.Tangent{typeof(w)} && w̄.params == expected
    @test back(NoTangent())[2] isa ChainRulesCore.AbstractZero

    layer = chain()
    net = PaddleNet(w)
    function loss(ps, x)
        made = PaddleFCNet(3, 2, 2, 4; seed = 1)
        wrapped = PaddleModuleWrapper(layer; jit = false)
        st = PaddleChainRules.initial_state(net; seed = 1)
        return sum(abs2, first(PaddleNet(wrapped)(x, ps, st))) + sum(made(x)) + sum(wrapped(x))
    end
    fixed = PaddleFCNet(3, 2, 2, 4; seed = 1)
    by_ps, by_x = Zygote.gradient(loss, w.params, x)
    @test all(map(≈, by_ps, all_trained))
    @test by_x ≈ Zygote.gradient(x -> sum(abs2, w(x)) + sum(fixed(x)) + sum(w(x)), x)[1]
    mktempdir() do dir
        path = joinpath(dir, "net.npz")
        PaddleChainRules.save_params(path, w)
        read_in(x) = (PaddleChainRules.save_params(path, w); sum(abs2, PaddleChainRules.load_params(path, w)(x)))
        @test Zygote.gradient(read_in, x)[1] ≈ Zygote.gradient(x -> sum(abs2, w(x)), x)[1]
    end
end

@testset "the work is that of what is trained" begin
    w = PaddleModuleWrapper(chain())
    x, c = randn(Xoshiro(1), Float32, 3, 6), randn(Xoshiro(2), Float32, 2, 6)
    function products(w)
        foreach(_ -> rrule(w, x)[2](c), 1:4) # from the fourth call on it is a program
        _, back = rrule(w, x)
        names = operators_run(() -> unthunk(back(c)[1].params))
        return count(==("matmul"), names)
    end
    if programs_are_on()
        @test products(w) == 5
        @test products(freeze(w, "0.*")) == 3
        @test products(freeze(w, ["0.*", "2.*"])) == 1
    end
end

@testset "Optimisers leaves them alone" begin
    layer = chain()
    before, w = snapshot(layer), freeze(PaddleModuleWrapper(layer), "0.*")
    x = randn(Xoshiro(1), Float32, 3, 6)
    theta, rebuild = Optimisers.destructure(w)
    @test theta == reduce(vcat, vec.(w.params[3:end]))
    again = rebuild(2 .* theta)
    @test again.params[1:2] == w.params[1:2] && again.params[3] == 2 .* w.params[3]
    @test typeof(again) == typeof(w)
    by_theta = Zygote.gradient(t -> sum(abs2, rebuild(t)(x)), theta)[1]
    ḡ = Zygote.gradient(w -> sum(abs2, w(x)), w)[1]
    @test by_theta ≈ reduce(vcat, vec.(ḡ.params[3:end]))
    state = Optimisers.setup(Optimisers.Adam(0.1), w)
    state, moved = Optimisers.update(state, w, ḡ)
    @test moved.params[1:2] == w.params[1:2]
    @test all(moved.params[i] != w.params[i] for i in 3:6)
    # A second stage trains all of them, from where the first one ended.
    whole = freeze(moved, ())
    ḡ = Zygote.gradient(w -> sum(abs2, w(x)), whole)[1]
    _, last = Optimisers.update(Optimisers.setup(Optimisers.Descent(0.1f0), whole), whole, ḡ)
    @test all(last.params[i] ≈ whole.params[i] .- 0.1f0 .* ḡ.params[i] for i in 1:6)
    @test is_unchanged(layer, before)
    # `trainable` of a struct of the user's, with a wrapper in it.
    @test Optimisers.trainable(PaddleModuleWrapper(chain())) isa NamedTuple{(:params,)}
end

@testset "frozen ones have no gradient elsewhere either" begin
    w = freeze(PaddleFCNet(2, 1, 2, 4; activation = "tanh", seed = 1), "0.*")
    x = randn(Xoshiro(1), Float32, 2, 3)
    all_trained = freeze(w, ())
    for f in (
        w -> sum(abs2, laplacian(w, x)), w -> sum(abs2, derivative(w, x, (1, 1))),
        w -> sum(abs2, derivatives(w, x, ((0, 0), (2, 0)))[2]), w -> sum(abs2, jvp(w, x, x)),
        w -> sum(abs2, vjp(w, x, ones(Float32, 1, 3))[2]),
    )
        found, expected = Zygote.gradient(f, w)[1].params, Zygote.gradient(f, all_trained)[1].params
        @test found[1:2] == (nothing, nothing)
        @test all(a === b || a ≈ b for (a, b) in zip(found[3:4], expected[3:4]))
        @test f(w) == f(all_trained)
    end
    steep(w) = sum(abs2, Zygote.gradient(x -> sum(abs2, w(x)), x)[1])
    found, expected = Zygote.gradient(steep, w)[1].params, Zygote.gradient(steep, all_trained)[1].params
    @test found[1:2] == (nothing, nothing) && all(map(≈, found[3:4], expected[3:4]))
    y, back = PaddleChainRules.pullback(w, x)
    p̄s, _ = back(y)
    @test p̄s[1:2] == (nothing, nothing) && p̄s[3] isa Matrix
    for what in (lower, luxlayer)
        err = @test_throws ArgumentError what(w)
        @test occursin("this wrapper has frozen ones", err.value.msg)
    end
    err = @test_throws PyException laplacian(w.net, (; x), w.params)
    @test occursin("takes one input x", sprint(showerror, err.value))
end
