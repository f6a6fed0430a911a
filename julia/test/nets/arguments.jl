# Nested arguments, keywords, constants and results, by native Paddle's own gradients.

using ChainRulesCore: ChainRulesCore, NoTangent, Tangent, ZeroTangent, rrule, unthunk
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, PaddleNet, lower, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const TANGLED = python_module("layers")

function tangled()
    paddle.seed(1)
    r(seed, size...) = randn(Xoshiro(seed), size...)
    scales = (b = r(2, 1, 5), a = r(3, 4))
    xs = (((r(4, 3, 5), scales), ([0, 4, 2, 2, 1, 3],)), ("plain", 7))
    kw = (gain = r(5, 1, 6), shift = (by = (r(6, 2),),), twice = true)
    return TANGLED.Tangled().to(dtype = "float64"), xs, kw
end

# What native Paddle is asked for, and the same of ours, with random cotangents.
const COTANGENTS = (score = randn(Xoshiro(7), 2, 6), hidden = randn(Xoshiro(8), 4, 5), more = randn(Xoshiro(9), 4, 5))
tensors(y) = (y[0].score, y[1]["hidden"], y[2][1][0])
total(y) = sum(COTANGENTS.score .* y[1].score) + sum(COTANGENTS.hidden .* y[2].hidden) + sum(COTANGENTS.more .* y[3][2][1])
exact(a, b) = same(a, b; rtol = 1e-12, atol = 1e-13)

"Gradients of native Paddle, nested: by parameter, by argument, by keyword argument."
function expected(layer, xs, kw, cotangents = Tuple(COTANGENTS))
    ys, by_param, found = native(layer, xs, cotangents; outputs = tensors, kwargs = kw)
    x, b, a, gain, by = found # tuples, then dicts in the order in which they are given
    return ys, by_param, ((((x, (; b, a)), (nothing,)), (nothing, nothing))), (; gain, shift = (by = (by,),), twice = nothing)
end

function agree(found, wanted)
    wanted === nothing && return found isa Union{Nothing,NoTangent}
    found === nothing && wanted isa AbstractArray && return false
    found === nothing && return all(part -> agree(nothing, part), wanted)
    wanted isa AbstractArray && return exact(unthunk(found), wanted)
    return all(key -> agree(getproperty(found, key), wanted[key]), keys(wanted))
end

@testset "nested arguments and results" begin
    layer, xs, kw = tangled()
    w = PaddleModuleWrapper(layer)
    ys, by_param, by_x, by_kw = expected(layer, xs, kw)
    @test unchanged(layer) do
        y = w(xs...; kw...)
        @test exact(y[1].score, ys[1]) && exact(y[2].hidden, ys[2]) && exact(y[3][2][1], ys[3])
        @test y[1].best isa Vector{Int} && y[1].label == "found"
        @test y[2].count === 2 && y[3][1] === nothing
        ḡ = Zygote.gradient((w, xs, kw) -> total(w(xs...; kw...)), w, xs, kw)
        @test all(map(exact, ḡ[1].params, Tuple(by_param)))
        @test agree(ḡ[2], by_x)
        @test agree(ḡ[3], by_kw) # Zygote has those of keyword arguments too
    end
    net = PaddleNet(w)
    merged = (; pair = xs[1], options = xs[2], kw...)
    theta = reduce(vcat, vec.(w.params))
    for (x, kwargs) in ((xs, kw), (merged, (;)), ((; pair = xs[1], kw...), (; options = xs[2])))
        y, back = PaddleChainRules.pullback(net, x, theta; kwargs...)
        ȳ = ((; score = COTANGENTS.score, best = nothing, label = nothing),
            (; count = nothing, COTANGENTS.hidden), (nothing, (COTANGENTS.more,)))
        x̄, p̄ = back(ȳ)
        @test exact(p̄, reduce(vcat, vec.(by_param)))
        wanted = x isa Tuple ? by_x : NamedTuple(
            key => key === :pair ? by_x[1] : key === :options ? by_x[2] : by_kw[key]
            for key in keys(x)
        )
        @test agree(x̄, wanted)
        ḡ = Zygote.gradient((x, t) -> total(net(x, t; kwargs...)), x, theta)
        @test agree(ḡ[1], wanted)
        @test exact(ḡ[2], reduce(vcat, vec.(by_param)))
        # As a rule, with a Tangent of which most is zero.
        y, back = rrule(net, x, theta; kwargs...)
        _, x̄, p̄ = back(Tangent{typeof(y)}(Tangent{typeof(y[1])}(; COTANGENTS.score), ZeroTangent(), NoTangent()))
        @test x̄ isa Tangent{typeof(x)}
        _, by_param2, by_x2, by_kw2 = expected(layer, xs, kw, (COTANGENTS.score, 0 * COTANGENTS.hidden, 0 * COTANGENTS.more))
        @test exact(unthunk(p̄), reduce(vcat, vec.(by_param2)))
        wanted = x isa Tuple ? by_x2 : NamedTuple(
            key => key === :pair ? by_x2[1] : key === :options ? by_x2[2] : by_kw2[key]
            for key in keys(x)
        )
        @test agree(x̄, wanted)
    end
end

"Random arguments: arrays of different sizes, constants, and tuples and named tuples of them."
function grown(rng, depth)
    kind = rand(rng, depth > 0 ? (1:8) : (1:6))
    kind <= 2 && return randn(rng, rand(rng, 2:6), rand(rng, 1:3))
    kind <= 6 && return (rand(rng, 1:9, rand(rng, 1:4)), nothing, :word, true)[kind-2]
    n = rand(rng, 0:3)
    parts = ntuple(_ -> grown(rng, depth - 1), n)
    return kind == 7 ? parts : NamedTuple{(:z, :a, :b)[1:n]}(parts)
end

is_floating(x) = x isa AbstractArray{<:AbstractFloat}
flat(x, x̄) = is_floating(x) ? Any[x̄ isa Union{Nothing,NoTangent} ? nothing : unthunk(x̄)] : Any[]
flat(xs::Union{Tuple,NamedTuple}, x̄s) = reduce(
    vcat, (flat(xs[key], x̄s isa Union{Nothing,NoTangent} ? nothing : getproperty(x̄s, key)) for key in keys(xs));
    init = Any[],
)
flat(xs) = flat(xs, xs)

@testset "any nesting, $seed" for seed in 1:16
    rng = Xoshiro(seed)
    layer = TANGLED.Mirror().to(dtype = "float64")
    xs = ntuple(_ -> grown(rng, 2), rand(rng, 1:3))
    n = rand(rng, 0:2)
    kw = NamedTuple{(:y, :x)[1:n]}(ntuple(_ -> grown(rng, 1), n))
    isempty(flat((xs, kw))) && continue
    w = PaddleModuleWrapper(layer)
    y = w(xs...; kw...)
    cotangent(y) = is_floating(y) ? randn(rng, size(y)) : nothing
    cotangent(ys::Union{Tuple,NamedTuple}) = map(cotangent, ys)
    ȳ = cotangent(y)
    cs = Tuple(filter(!isnothing, flat(y, ȳ)))
    leaves = pyimport("optree").tree_leaves
    tensors(y) = Tuple(leaf for leaf in leaves(y) if pytruth(TANGLED.is_floating(leaf)))
    ys, by_param, found = native(layer, xs, cs; outputs = tensors, kwargs = kw)
    @test all(map(exact, flat(y), collect(ys)))
    @test unchanged(layer) do
        _, back = rrule(w, xs...; kw...)
        w̄, x̄s... = back(ȳ)
        gradients = flat(xs, Tangent{typeof(xs)}(x̄s...))
        close(a, b) = same(a, b; rtol = 1e-10, atol = 1e-11)
        @test all(map(close, map(unthunk, Tuple(unthunk(w̄.params))), Tuple(by_param)))
        @test all(map(close, gradients, found[eachindex(gradients)]))
        if seed <= 4
            total(y, ȳ) = is_floating(y) ? sum(y .* ȳ) : 0.0
            total(ys::NamedTuple, ȳs) = total(Tuple(ys), Tuple(ȳs))
            total(::Tuple{}, _) = 0.0
            total(ys::Tuple, ȳs) = total(first(ys), first(ȳs)) + total(Base.tail(ys), Base.tail(ȳs))
            ḡ = Zygote.gradient((xs, kw) -> total(w(xs...; kw...), ȳ), xs, kw)
            @test all(map(close, [flat(xs, ḡ[1]); flat(kw, ḡ[2])], found))
        end
    end
end

@testset "integers and Booleans" begin
    paddle.seed(1)
    layer = TANGLED.Masked()
    w = PaddleModuleWrapper(layer)
    x, c = randn(Xoshiro(1), Float32, 4, 5), randn(Xoshiro(2), Float32, 4, 5)
    index, mask = [0, 6, 2, 2, 1], [true, false, true, true, false]
    (expected,), by_param, (by_x,) = native(layer, (x, index, mask), (c,))
    @test unchanged(layer) do
        y, back = rrule(w, x, index, mask)
        @test same(y, expected)
        w̄, x̄, others... = map(unthunk, back(c))
        @test others == (NoTangent(), NoTangent())
        @test same(x̄, by_x) && same(unthunk(w̄.params)[1], only(by_param))
        ḡ = Zygote.gradient((w, x, index, mask) -> sum(c .* w(x, index, mask)), w, x, index, mask)
        @test same(ḡ[2], by_x) && ḡ[3:4] == (nothing, nothing)
    end
end

@testset "into arrays, nested" begin
    layer, xs, kw = tangled()
    w = PaddleModuleWrapper(layer)
    _, by_param, by_x, by_kw = expected(layer, xs, kw)
    before = snapshot(layer)
    _, back = PaddleChainRules.pullback(w, (; pair = xs[1], options = xs[2], kw...))
    ȳ = ((; score = COTANGENTS.score, best = nothing, label = nothing),
        (; count = nothing, COTANGENTS.hidden), (nothing, (COTANGENTS.more,)))
    like(a) = fill(7.0, size(a))
    gain, by, b = like(by_kw.gain), like(by_kw.shift.by[1]), like(by_x[1][1][2].b)
    bias = like(by_param[4])
    none = (pair = nothing, options = nothing, gain = nothing, shift = nothing, twice = nothing)
    into = (
        (nothing, nothing, nothing, bias),
        merge(none, (; gain, shift = (by = (by,),), pair = ((nothing, (; a = nothing, b)), nothing))),
    )
    @test back(ȳ; into) === into
    @test exact(gain, by_kw.gain) && exact(by, by_kw.shift.by[1])
    @test exact(b, by_x[1][1][2].b) && exact(bias, by_param[4])
    back(ȳ; into, accumulate = true)
    @test exact(gain, 2 .* by_kw.gain) && exact(b, 2 .* by_x[1][1][2].b)
    fill!(gain, 7)
    for (wrong, kind, part) in (
        (merge(none, (; gain = gain')), DimensionMismatch, "(6, 1)"),
        (merge(none, (; gain = Float32.(gain))), ArgumentError, "Float32"),
        (merge(none, (; gain, twice = gain)), ArgumentError, "has no gradient"),
        (merge(none, (; gain, pair = gain)), ArgumentError, "a tuple of 2"),
        ((; gain), ArgumentError, "a named tuple with the names pair"),
    )
        err = @test_throws kind back(ȳ; into = (nothing, wrong))
        @test occursin(part, err.value.msg)
    end
    @test all(==(7), gain) # nothing was written
    @test is_unchanged(layer, before)
end

@testset "one crossing, whatever the structure" begin
    layer, xs, kw = tangled()
    calls = counted("paddle_chainrules.bridge:BoundNet.pullback", "paddle_chainrules.bridge:Called.bind") do
        w = PaddleModuleWrapper(layer)
        for _ in 1:3
            Zygote.gradient(w -> total(w(xs...; kw...)), w)
        end
    end
    @test calls == [3, 1]
end

@testset "what has no derivative" begin
    scope = pydict()
    pyexec("""
    import paddle
    class Best(paddle.nn.Layer):
        def forward(self, x):
            return x.argmax(1), "best", {"two": 2.5}
    """, scope)
    layer = scope["Best"]()
    w, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), Float32, 3, 4)
    y = w(x)
    @test y == (vec(map(i -> i[1] - 1, argmax(x; dims = 1))), "best", (two = 2.5,))
    _, back = rrule(w, x)
    err = @test_throws ArgumentError back((ones(4), nothing, nothing))
    @test occursin("nothing that has a derivative", err.value.msg)
    @test back(ZeroTangent())[2] === ZeroTangent()
    opaque = pyeval("lambda x: (x, object())", pydict())
    w = PaddleModuleWrapper(pyeval("type('O', (L,), {'forward': lambda self, x: (x * 2, {3: self})})()", pydict(L = paddle.nn.Layer)))
    y = w(x)
    @test y[1] == 2x && y[2] isa NamedTuple && only(y[2]) isa Py
    @test Zygote.gradient(x -> sum(w(x)[1]), x)[1] == fill(2f0, 3, 4)
end

@testset "bad arguments" begin
    layer, xs, kw = tangled()
    w = PaddleModuleWrapper(layer)
    gain(g) = w(xs...; kw..., gain = g)
    for (call, kind, part) in (
        (() -> gain(2.5), ArgumentError, "fill(2.5)"),
        (() -> gain(Float32.(kw.gain)), ArgumentError, "Float64"),
        (() -> gain([kw.gain]), ArgumentError, "no Paddle counterpart"),
        (() -> w(xs...; kw..., loud = 1), PyException, "unexpected keyword argument 'loud'"),
        (() -> w(kw.gain; kw...), PyException, "missing 1 required positional"),
    )
        err = @test_throws kind call()
        @test occursin(part, sprint(showerror, err.value))
    end
    @test exact(gain(fill(2.0))[1].score, gain(Py(2.0))[1].score)
    by_gain = Zygote.gradient(g -> total(gain(g)), fill(2.0))[1]
    step = (total(gain(fill(2.0 + 1e-6))) - total(gain(fill(2.0 - 1e-6)))) / 2e-6
    @test by_gain isa Array{Float64,0} && isapprox(by_gain[], step; rtol = 1e-7)
end

@testset "several arguments as one tuple, as chains of Lux and Flux pass them" begin
    paddle.seed(1)
    w = PaddleModuleWrapper(TANGLED.Two())
    args, c = (randn(Xoshiro(1), Float32, 4, 5), [0, 3, 2, 6, 1]), randn(Xoshiro(2), Float32, 2, 5)
    @test w(args) == w(args...) == PaddleNet(w)(args, w.params)
    w̄, x̄, _ = Zygote.gradient((w, x, i) -> sum(c .* w(x, i)), w, args...)
    for call in ((w, xs) -> w(xs), (w, xs) -> w(xs; seed = 1))
        found, x̄s = Zygote.gradient((w, xs) -> sum(c .* call(w, xs)), w, args)
        @test all(map(≈, found.params, w̄.params)) && x̄s[1] ≈ x̄ && x̄s[2] === nothing
    end
    _, x̄s = map(unthunk, rrule(w, args)[2](c))
    @test x̄s isa Tangent{typeof(args)} && unthunk(x̄s[1]) ≈ x̄
    _, ẏ = ChainRulesCore.frule((NoTangent(), (args[1], nothing)), w, args)
    @test ẏ ≈ PaddleChainRules.jvp(w, args, (args[1], nothing))
    lowered = lower(w, args)
    @test lowered(args) ≈ lowered(args...) ≈ w(args)
    steep(f) = x -> sum(abs2, Zygote.gradient(x -> sum(c .* f(x)), x)[1])
    @test Zygote.gradient(steep(x -> w((x, args[2]))), args[1])[1] ≈ Zygote.gradient(steep(x -> w(x, args[2])), args[1])[1]

    # What a layer takes as one argument stays one.
    scope = pydict()
    pyexec("""
    import paddle

    class Pair(paddle.nn.Layer):
        def forward(self, pair, factor=2):
            return pair[0] + factor * pair[1]
    """, scope)
    one = PaddleModuleWrapper(scope["Pair"]())
    a, b = randn(Xoshiro(1), Float32, 2, 3), randn(Xoshiro(2), Float32, 2, 3)
    @test one((a, b)) ≈ a .+ 2 .* b
    @test all(Zygote.gradient(pair -> sum(one(pair)), (a, b))[1][2] .≈ 2)
end
