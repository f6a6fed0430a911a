using ComponentArrays: ComponentVector
using Optimisers: Optimisers
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, TraceError, derivative,
    derivatives, freeze, jvp, laplacian, paddle, train!
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../has_code.jl")
include("../oracle.jl")
include("../process.jl")

"The same steps by Zygote and Optimisers; the losses."
function by_zygote(loss, ps, state, steps)
    return map(1:steps) do _
        value, (gradient,) = Zygote.withgradient(loss, ps)
        Optimisers.update!(state, ps, gradient)
        value
    end
end

fcnet(T, sizes...) = PaddleFCNet(sizes...; dtype = lowercase(string(T)), activation = "tanh", seed = 3)
flat(wrapper) = reduce(vcat, vec.(wrapper.params))
tolerance(::Type{Float64}) = (rtol = 1e-9, atol = 1e-10)
tolerance(::Type{Float32}) = (rtol = 1e-3, atol = 1e-4)

function burgers(net, theta, x, inner)
    u, u_t, u_x, u_xx = derivatives(net, x, theta, ((0, 0), (0, 1), (1, 0), (2, 0)))
    r = u_t .+ u .* u_x .- eltype(x)(0.01) .* u_xx
    return sum(abs2, r) / length(r) + sum(abs2, net(inner, theta) .- sin.(inner[1:1, :])) / size(inner, 2)
end

@testset "an equation for $steps steps, $T" for (T, steps) in ((Float64, 20), (Float32, 10))
    net, theta = (w = fcnet(T, 2, 1, 3, 7); (PaddleNet(w), flat(w)))
    x, inner = rand(Xoshiro(1), T, 2, 9), rand(Xoshiro(2), T, 2, 5)
    state = Optimisers.setup(Optimisers.Adam(0.01), theta)
    other, other_state = copy(theta), deepcopy(state)
    losses = train!(burgers, net, theta, state, x, inner; steps)
    expected = by_zygote(theta -> burgers(net, theta, x, inner), other, other_state, steps)
    @test eltype(losses) == T && same(losses, expected; tolerance(T)...)
    @test same(theta, other; tolerance(T)...) && losses[end] < losses[1]
    @test state.state[3] == other_state.state[3] && same(state.state[2], other_state.state[2]; tolerance(T)...)
    # The loop goes on with either.
    @test same(
        by_zygote(theta -> burgers(net, theta, x, inner), theta, state, 3),
        train!(burgers, net, other, other_state, x, inner; steps = 3); tolerance(T)...,
    )
end

@testset "a wrapper with frozen parameters, and named ones, $T" for T in (Float64,)
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 8), paddle.nn.Sigmoid(), paddle.nn.LayerNorm(8), paddle.nn.Linear(8, 2))
    T === Float64 && layer.to(dtype = "float64")
    wrapper = freeze(PaddleModuleWrapper(layer), "0.bias")
    x, y = randn(Xoshiro(1), T, 3, 20), randn(Xoshiro(2), T, 2, 20)
    loss(model, x, y) = sum(abs2.(model(x) .- y)) / length(y)
    state = Optimisers.setup(Optimisers.AdamW(0.01), wrapper)
    before, other = deepcopy(wrapper), deepcopy(wrapper)
    losses = train!(loss, wrapper, state, x, y; steps = 10)
    expected = by_zygote(model -> loss(model, x, y), other, Optimisers.setup(Optimisers.AdamW(0.01), other), 10)
    @test same(losses, expected; tolerance(T)...)
    for i in eachindex(wrapper.params)
        @test same(wrapper.params[i], other.params[i]; tolerance(T)...)
        @test (wrapper.params[i] == before.params[i]) == (i == 2)
    end
    # Named parameters, of which Optimisers freezes one, beside one of the loss's own.
    net = PaddleNet(wrapper)
    ps = (net = NamedTuple{Tuple(net.names)}(deepcopy(before.params)), shift = T[0.5, -0.25], unused = T[1, 2, 3])
    shifted(ps) = sum(abs2, net(x .* 2, ps.net) .+ ps.shift .- y) / length(y) + ps.shift[2]
    state = Optimisers.setup(Optimisers.Momentum(0.01), ps)
    Optimisers.freeze!(state.net.var"0.weight")
    other, other_state = deepcopy(ps), deepcopy(state)
    @test same(train!(shifted, ps, state; steps = 10), by_zygote(shifted, other, other_state, 10); tolerance(T)...)
    for name in net.names
        @test same(ps.net[name], other.net[name]; tolerance(T)...)
    end
    @test ps.net.var"0.weight" == before.params[1] && ps.unused == T[1, 2, 3]
    @test same(ps.shift, other.shift; tolerance(T)...) && ps.shift != T[0.5, -0.25]
end

@testset "functions of nets" begin
    net, theta = (w = fcnet(Float64, 2, 1, 3, 5); (PaddleNet(w), flat(w)))
    x = rand(Xoshiro(1), 2, 6)
    loss(theta) = sum(abs2, laplacian(net, x, theta) .+ derivative(net, x, theta, (1, 1))) +
                  sum(jvp(net, x, theta, [1.0, 2.0])) + sum(sin, derivatives(net, x, theta, (a = (1, 2), b = (1,))).b) +
                  sum(vcat(net(x, theta), net(x[:, 1:6], theta)) .* [1.0, 2.0])
    before = copy(theta)
    # Of the gradient along a direction, since Zygote takes many times as long.
    value = train!(loss, theta, Optimisers.setup(Optimisers.Descent(1.0), theta); steps = 1)
    v, h = randn(Xoshiro(2), length(theta)), 1e-6
    @test value ≈ [loss(before)] rtol = 1e-12
    @test sum(v .* (before - theta)) ≈ (loss(before + h * v) - loss(before - h * v)) / 2h rtol = 1e-6
    # By what the loss computes, which is no parameter.
    inner(theta) = sum(abs2, net(2 .* net(x, theta) .+ x, theta) .- x[1:1, :])
    theta = copy(before)
    @test train!(inner, theta, Optimisers.setup(Optimisers.Descent(1.0), theta); steps = 1) ≈ [inner(before)]
    @test sum(v .* (before - theta)) ≈ (inner(before + h * v) - inner(before - h * v)) / 2h rtol = 1e-6
end

@testset "vectors with names" begin
    net = PaddleNet(fcnet(Float64, 2, 1, 3, 5))
    ps = NamedTuple{Tuple(net.names)}(map(size -> randn(Xoshiro(5), size), Tuple(net.sizes)))
    theta, rule, x = ComponentVector(net = ComponentVector(ps), rate = 0.5, shift = [1.0, 2.0, 3.0]), Optimisers.Descent(0.1), rand(Xoshiro(1), 2, 6)
    loss(net_ps, rate, shift) = sum(abs2, rate .* net(x, net_ps) .- sum(shift)) / 6 + sum(shift .* [1.0, -1.0, 0.5])
    plain = (net = ps, rate = [0.5], shift = [1.0, 2.0, 3.0])
    losses = train!(p -> loss(p.net, p.rate, p.shift), theta, Optimisers.setup(rule, theta); steps = 4)
    expected = train!(p -> loss(p.net, p.rate, p.shift), plain, Optimisers.setup(rule, plain); steps = 4)
    @test same(losses, expected; rtol = 1e-12) && theta isa ComponentVector
    @test same(theta.shift, plain.shift; rtol = 1e-12) && theta.rate ≈ only(plain.rate)
    @test same(collect(theta.net), reduce(vcat, map(vec, values(plain.net))); rtol = 1e-12)
end

quadratic(ps) = sum(abs2, ps.a) + sum(ps.b .^ 4)
start() = (a = randn(Xoshiro(1), 2, 3), b = randn(Xoshiro(2), 4))

@testset "reports, and ends between steps" begin
    ps, whole = start(), start()
    rule = Optimisers.Adam(0.01)
    all = train!(quadratic, whole, Optimisers.setup(rule, whole); steps = 60)
    state, seen = Optimisers.setup(rule, ps), []
    losses = train!(quadratic, ps, state; steps = 60, every = 25, callback = (i, loss, ps) -> (push!(seen, (i, loss, copy(ps.a))); nothing))
    @test losses == all && ps == whole
    @test [(i, loss) for (i, loss, _) in seen] == [(i, all[i]) for i in (25, 50, 60)]
    @test seen[end][3] == ps.a && seen[1][3] != ps.a
    # Ended by itself, by an error, and by an interrupt; each goes on from where it was.
    ps, state, losses = start(), nothing, Float64[]
    state = Optimisers.setup(rule, ps)
    append!(losses, train!(quadratic, ps, state; steps = 60, every = 5, callback = (i, _, _) -> i == 20))
    @test length(losses) == 20
    for error in (ErrorException("enough"), InterruptException())
        part = Float64[]
        stop(i, loss, _) = (push!(part, loss); i == 20 && throw(error))
        @test_throws typeof(error) train!(quadratic, ps, state; steps = 60, callback = stop)
        @test length(part) == 20
        append!(losses, part)
    end
    @test same(losses, all; rtol = 1e-12) && same(ps.a, whole.a; rtol = 1e-12) && same(ps.b, whole.b; rtol = 1e-12)
    @test train!(quadratic, ps, state; steps = 0) == Float64[]
end

@testset "without programs" begin
    ps, other, rule = start(), start(), Optimisers.Momentum(0.01)
    switch = pyimport("paddle_chainrules.settings")
    switch._programs = "off"
    losses = try
        train!(quadratic, ps, Optimisers.setup(rule, ps); steps = 30)
    finally
        switch._programs = "on"
    end
    @test same(losses, train!(quadratic, other, Optimisers.setup(rule, other); steps = 30); rtol = 1e-12)
    @test same(ps.a, other.a; rtol = 1e-12) && same(ps.b, other.b; rtol = 1e-12)
end

@testset "a step that is more than one function of machine code" begin
    net, theta = (w = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Hardshrink())); (PaddleNet(w), flat(w)))
    x, other = randn(Xoshiro(1), Float32, 3, 7), copy(theta)
    loss(theta) = sum(abs2, net(x, theta) .- 1)
    rule = Optimisers.Descent(1e-3)
    losses = train!(loss, theta, Optimisers.setup(rule, theta); steps = 30, every = 7, callback = Returns(nothing))
    @test same(losses, by_zygote(loss, other, Optimisers.setup(rule, other), 30); rtol = 1e-4) && same(theta, other; rtol = 1e-4)
end

@testset "refused: $words" for (words, call) in (
    ("is that of another tree", (ps, state) -> train!(quadratic, ps, state.a; steps = 3)),
    ("is that of another tree", (ps, state) -> train!(quadratic, ps.a, state; steps = 3)),
    ("no leaf that is trained", (ps, state) -> (Optimisers.freeze!(state); train!(quadratic, ps, state; steps = 3))),
    ("steps = -1", (ps, state) -> train!(quadratic, ps, state; steps = -1)),
    ("every = 0", (ps, state) -> train!(quadratic, ps, state; steps = 3, every = 0)),
    ("one floating number", (ps, state) -> train!(ps -> ps.a .^ 2, ps, state; steps = 3)),
    ("one floating number", (ps, state) -> train!(ps -> sum(ps.a .> 0), ps, state; steps = 3)),
    ("does not depend on", (ps, state) -> train!(ps -> 3.0, ps, state; steps = 3)),
    ("such as collect(x)", (ps, state) -> (p = view(ps.a, :, 1:2); train!(sum, p, Optimisers.setup(Optimisers.Descent(), p); steps = 3))),
)
    ps = start()
    err = @test_throws ArgumentError call(ps, Optimisers.setup(Optimisers.Adam(), ps))
    @test occursin(words, err.value.msg) && ps == start()
end

@testset "errors of the loss are the caller's" begin
    ps = start()
    state = Optimisers.setup(Optimisers.Adam(), ps)
    @test_throws KeyError train!(ps -> Dict()[:x], ps, state; steps = 3)
    @test_throws DimensionMismatch train!(ps -> sum(ps.a * ps.b), ps, state; steps = 3)
    @test_throws DimensionMismatch train!(ps -> sum(ps.a .+ ps.b), ps, state; steps = 3)
    @test_throws BoundsError train!(ps -> ps.b[5], ps, state; steps = 3)
    net = PaddleNet(fcnet(Float64, 3, 1, 2, 4))
    @test_throws DimensionMismatch train!(ps -> sum(net(ps.a, ps.b)), ps, state; steps = 3)
    @test_throws UndefKeywordError train!(quadratic, ps, state)
    @test ps == start()
end

# Ctrl-C while steps go on, which would take minutes; then threads that train by turns.
const IN_ITS_OWN = """
    using PaddleChainRules, Optimisers
    Base.exit_on_sigint(false)
    x = rand(Float32, 2, 100)
    loss(w, x) = sum(abs2, laplacian(w, x) .+ 1)
    made(seed) = PaddleFCNet(2, 1, 3, 16; activation = "tanh", seed)
    started(w) = w, Optimisers.setup(Optimisers.AdaGrad(0.01), w)
    train(w, state, steps; options...) = PaddleChainRules.train!(loss, w, state, x; steps, options...)
    w, state = started(made(1))
    train(w, state, 20)
    before = deepcopy(w)
    try
        run(`bash -c "sleep 2; kill -INT \$(getpid())"`; wait = false)
        train(w, state, 20_000_000)
        exit(7)
    catch err
        err isa InterruptException || rethrow()
    end
    w.params[1] != before.params[1] && all(isfinite, w.params[1]) && PaddleChainRules.DEPTH[] == 0 || exit(8)
    train(w, state, 20)[end] < loss(before, x) || exit(9)
    reported(seed) = train(started(made(seed))..., 2000; every = 100, callback = Returns(nothing))
    expected = map(reported, 1:2)
    found = Vector{Any}(undef, 4)
    PaddleChainRules.threaded() do
        Threads.@threads for i in 1:4
            found[i] = reported(mod1(i, 2))
            GC.gc()
        end
    end
    all(i -> found[i] == expected[mod1(i, 2)], 1:4) && print("right")
    """

@testset "Ctrl-C ends a long loop, and what was done stays; threads" begin
    @test run_julia(IN_ITS_OWN)[1:3] == (0, 0, "right")
end

factor() = 1.0
const HELD, LIMITS = Ref(1.0), (0.5, 2.0)
setting = 1.0
inside(y) = sum(v -> clamp(v, LIMITS...), y)
pure(net, theta, x, y) = factor() * sum(abs2, net(x, theta) .- y) / length(y) + 0.1 * inside(net(x, theta))
held(net, theta, x, y) = HELD[] * sum(abs2, net(x, theta) .- y)
global_read(net, theta, x, y) = setting * sum(abs2, net(x, theta) .- y)
through(net, theta, x, y) = global_read(net, theta, x, y)
drawn(net, theta, x, y) = rand() * sum(abs2, net(x, theta) .- y)

struct Weight end
(::Weight)(v) = HELD[] * v
Base.:*(::Weight, v::Number) = HELD[] * v
by_held(v) = HELD[] * v
const WEIGHT, COMPOSED, CHOSEN, FACTOR = Weight(), by_held ∘ sum, (by_held, abs2), [2.0]
const FIXED = Base.Fix1(*, FACTOR)
misfit(net, theta, x, y) = sum(abs2, net(x, theta) .- y)
"Losses that read what may change by way of a constant."
const INDIRECT = (
    (net, theta, x, y) -> WEIGHT(misfit(net, theta, x, y)),
    (net, theta, x, y) -> Weight()(misfit(net, theta, x, y)),
    (net, theta, x, y) -> WEIGHT * misfit(net, theta, x, y),
    (net, theta, x, y) -> COMPOSED(abs2.(net(x, theta) .- y)),
    (net, theta, x, y) -> CHOSEN[1](misfit(net, theta, x, y)),
    let fs = (; by_held)
        (net, theta, x, y) -> fs.by_held(misfit(net, theta, x, y))
    end,
    (net, theta, x, y) -> sum(FIXED(net(x, theta)) .- y) + misfit(net, theta, x, y),
    (net, theta, x, y) -> sum(map(f -> f(misfit(net, theta, x, y)), (by_held,))),
    (net, theta, x, y) -> task_local_storage(:held) * misfit(net, theta, x, y),
)

@testset "a loss that reads what may change indirectly is traced again" begin
    net, theta = (w = fcnet(Float64, 2, 1, 3, 5); (PaddleNet(w), flat(w)))
    x, y = randn(Xoshiro(1), 2, 6), randn(Xoshiro(2), 1, 6)
    function agrees(loss, data...)
        (ps, other) = copy(theta), copy(theta)
        state, other_state = Optimisers.setup(Optimisers.Adam(0.01), ps), Optimisers.setup(Optimisers.Adam(0.01), other)
        losses = train!(loss, net, ps, state, x, y, data...; steps = 5)
        expected = by_zygote(theta -> loss(net, theta, x, y, data...), other, other_state, 5)
        return same(losses, expected; tolerance(Float64)...) && same(ps, other; tolerance(Float64)...)
    end
    by_data(net, theta, x, y, f) = f(misfit(net, theta, x, y))
    for (loss, data...) in (map(tuple, INDIRECT)..., (by_data, by_held), (by_data, WEIGHT)), value in (1.0, 2.0)
        HELD[] = value
        FACTOR .= value
        task_local_storage(:held, value)
        @test agrees(loss, data...)
    end
end

@testset "a loop is traced once, and again where anything may differ" begin
    net, theta = (w = fcnet(Float64, 2, 1, 3, 5); (PaddleNet(w), flat(w)))
    x, y = randn(Xoshiro(1), 2, 6), randn(Xoshiro(2), 1, 6)
    traces(f) = only(counted(f, "paddle_chainrules.bridge.training:Training.__init__"))
    start(rule) = (ps = copy(theta); (ps, Optimisers.setup(rule, ps)))
    "Whether the same losses come as by Zygote, and whether the loss was traced."
    function run(loss, rule, data...; steps = 20)
        (ps, state), (other, other_state), losses = start(rule), start(rule), Ref{Any}()
        count = traces(() -> losses[] = train!(loss, net, ps, state, data...; steps))
        expected = by_zygote(theta -> loss(net, theta, data...), other, other_state, steps)
        return same(losses[], expected; tolerance(Float64)...) && same(ps, other; tolerance(Float64)...), count
    end
    adam = Optimisers.Adam(0.01)
    known = HAS_CODE ? 0 : 1
    @test run(pure, adam, x, y) == (true, 1)
    @test run(pure, adam, x, y) == (true, known)
    @test run(pure, adam, x, y; steps = 3) == (true, known)
    @test run(pure, adam, copy(x), y) == (true, known) # equal data
    @test run(pure, adam, x, y .+ 1) == (true, 1)
    y[2] += 1 # in place
    @test run(pure, adam, x, y) == (true, 1)
    @test run(pure, Optimisers.Adam(0.02), x, y) == (true, known) # the rate is a number of the step
    @test run(pure, Optimisers.Adam(0.01, (0.8, 0.99)), x, y) == (true, 1)
    @test run(pure, Optimisers.OptimiserChain(Optimisers.ClipGrad(0.1), adam), x, y) == (true, 1)
    @test run(pure, Optimisers.OptimiserChain(Optimisers.ClipGrad(0.1), adam), x, y) == (true, known)
    for scale in (1.0, 2.0, 2.0) # captured numbers are part of a loss, and captured arrays may change
        captured(net, theta, x, y) = scale * sum(abs2, net(x, theta) .- y)
        run(captured, adam, x, y)[1] || @test false
    end
    weights = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]
    weighted(net, theta, x, y) = sum(weights' .* abs2.(net(x, theta) .- y))
    @test run(weighted, adam, x, y) == (true, 1)
    weights[1] = 5
    @test run(weighted, adam, x, y) == (true, 1)
    for loss in (held, global_read, through)
        @test run(loss, adam, x, y) == (true, 1)
        HELD[] += 1
        global setting += 1
        @test run(loss, adam, x, y) == (true, 1)
    end
    first_losses = train!(drawn, net, start(adam)[1], start(adam)[2], x, y; steps = 2)
    @test first_losses[1] != train!(drawn, net, start(adam)[1], start(adam)[2], x, y; steps = 2)[1]
    @test run(pure, adam, x, y)[1]
    @eval factor() = 3.0
    @test Base.invokelatest(run, pure, adam, x, y) == (true, 1)
    # A schedule of rates is one trace, also of a loss that may change.
    (ps, state), (other, other_state) = start(adam), start(adam)
    rate(step) = 0.01 / step
    global_loss(net, theta, x, y) = setting * pure(net, theta, x, y)
    schedule(step, _, _) = (Optimisers.adjust!(state, rate(step)); false)
    count = traces(() -> train!(global_loss, net, ps, state, x, y; steps = 6, callback = schedule))
    for step in 1:6
        by_zygote(theta -> global_loss(net, theta, x, y), other, other_state, 1)
        Optimisers.adjust!(other_state, rate(step))
    end
    @test same(ps, other; tolerance(Float64)...) && count == (HAS_CODE ? 1 : 6)
    # Reports, ends and errors as those of a loop that was traced.
    seen, (ps, state), (other, other_state) = [], start(adam), start(adam)
    train!(pure, net, other, other_state, x, y; steps = 7)
    losses = train!(pure, net, ps, state, x, y; steps = 50, every = 7, callback = (i, loss, ps) -> (push!(seen, (i, loss, copy(ps))); true))
    @test length(losses) == 7 && only(seen) == (7, losses[7], ps) && ps == other && state.state[3] == other_state.state[3]
    @test_throws "stop" train!(pure, net, ps, state, x, y; steps = 5, callback = (_...) -> error("stop"))
end

@testset "a callback changes what the next steps begin with: $name, every $every" for every in (1, 2, 3), (name, change) in (
    "a rate" => (step, p, state) -> step in (2, 3) && Optimisers.adjust!(state, 0.01),
    "parameters" => (step, p, state) -> step < 4 && (p.a .*= 2),
    "a frozen part" => (step, p, state) -> step < 4 && Optimisers.freeze!(state.b),
    "momentum" => (step, p, state) -> step == 6 && (state.a.state[1] .= 0),
)
    loss(p) = sum(abs2, p.a) + sum(p.b .^ 4) + sum(p.a)
    start() = (p = (a = [1.0, 2.0], b = [0.5, -1.0, 0.25]); (p, Optimisers.setup(Optimisers.Adam(0.1), p)))
    (p, state), seen = start(), Int[]
    losses = train!(loss, p, state; steps = 7, every, callback = (step, _, p) -> (push!(seen, step); change(step, p, state); false))
    q, other = start()
    expected = map(1:7) do step
        value, (grads,) = Zygote.withgradient(loss, q)
        Optimisers.update!(other, q, grads)
        step % every == 0 && change(step, q, other)
        value
    end
    @test seen == [every:every:7; 7 % every == 0 ? Int[] : 7]
    @test losses ≈ expected && p.a ≈ q.a && p.b ≈ q.b
    @test state.a.rule == other.a.rule && state.b.frozen == other.b.frozen && state.a.state[1] ≈ other.a.state[1]
end
