# Dual numbers of ForwardDiff through nets and pullbacks, against plain Julia twins.

using ChainRulesCore: ChainRulesCore, ignore_derivatives, rrule, unthunk
using ComponentArrays: ComponentVector
using ForwardDiff: ForwardDiff, Dual
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, laplacian, paddle, vjp
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

in_type(layer, T) = layer.to(dtype = lowercase(string(T)))

"Three layers with a normalization between, and the same in Julia."
function normed(T = Float64)
    paddle.seed(1)
    parts = paddle.nn.Linear(3, 5), paddle.nn.LayerNorm(5), paddle.nn.Silu(), paddle.nn.Linear(5, 2)
    return PaddleModuleWrapper(in_type(paddle.nn.Sequential(parts...), T))
end
function normed_twin(x, (w, b, scale, shift, v, c))
    z = w * x .+ b
    centred = z .- sum(z; dims = 1) ./ 5
    h = scale .* centred ./ sqrt.(sum(abs2, centred; dims = 1) ./ 5 .+ 1.0f-5) .+ shift
    return v * (h ./ (1 .+ exp.(-h))) .+ c
end

chain(T = Float64) = PaddleFCNet(3, 2, 3, 4; dtype = lowercase(string(T)), activation = "tanh", seed = 2)
chain_twin(x, (a, b, c, d, e, f)) = e * tanh.(c * tanh.(a * x .+ b) .+ d) .+ f

const NETS = (chain = (chain, chain_twin), normed = (normed, normed_twin))

"Equal in size and element type, errors relative to the largest entry."
function close(a, b)
    tolerance = eltype(b) === Float32 ? 1e-5 : 1e-10
    return size(a) == size(b) && eltype(a) == eltype(b) && all(isfinite, b) &&
           maximum(abs, a .- b; init = 0.0) <= tolerance * max(maximum(abs, b; init = 0.0), 1e-2)
end

"The pieces of a flat vector in the sizes of the parameters."
function unflat(theta, ps)
    stops = ignore_derivatives(() -> accumulate(+, collect(map(length, ps))))
    return ntuple(i -> reshape(theta[stops[i]-length(ps[i])+1:stops[i]], size(ps[i])), length(ps))
end

reverse_names(ps::NamedTuple) = NamedTuple{reverse(keys(ps))}(ps)

struct Mark end # of dual numbers made by hand

@testset "derivatives by dual numbers: $name, $T" for (name, (make, twin)) in pairs(NETS), T in (Float64, Float32)
    w = make(T)
    net, ps = PaddleNet(w), w.params
    theta, x, c = reduce(vcat, vec.(ps)), randn(Xoshiro(1), T, 3, 6), randn(Xoshiro(2), T, 2, 6)
    named = NamedTuple{Tuple(net.names)}(ps)
    @test close(ForwardDiff.jacobian(x -> net(x, ps), x), ForwardDiff.jacobian(x -> twin(x, ps), x))
    by_theta(f) = ForwardDiff.jacobian(f, theta, ForwardDiff.JacobianConfig(f, theta, ForwardDiff.Chunk{7}()))
    @test close(by_theta(t -> net(x, t)), by_theta(t -> twin(x, unflat(t, ps))))
    # Of inputs and parameters at once, which come in every form.
    slope(f) = ForwardDiff.derivative(t -> vec(f(t, t .* x .+ t^2)), T(0.7))
    expected = slope((t, x) -> twin(x, map(p -> t .* p, ps)))
    @test close(slope((t, x) -> net(x, map(p -> t .* p, ps))), expected)
    @test close(slope((t, x) -> net((x,), map(p -> t .* p, reverse_names(named)))), expected)
    @test close(slope((t, x) -> net(x, t .* theta)), expected)
    @test close(slope((t, x) -> PaddleModuleWrapper(net, map(p -> t .* p, ps))(x)), expected)
    partly(p, t) = (t .* p[1], p[2:end]...) # others are plain
    @test close(slope((t, x) -> net(x, partly(ps, t))), slope((t, x) -> twin(x, partly(ps, t))))
end
@testset "dual numbers within dual numbers: $name" for (name, (make, twin)) in pairs(NETS)
    w = make()
    net, ps, x = PaddleNet(w), w.params, randn(Xoshiro(1), 3, 2)
    flat(f) = v -> sum(sin, f(reshape(v, 3, 2) .^ 2, ps))
    @test close(ForwardDiff.hessian(flat(net), vec(x)), ForwardDiff.hessian(flat(twin), vec(x)))
    along(f, t) = sum(sin, f(t .* x .+ t^2, map(p -> t .* p, ps)))
    first_of(f, t) = ForwardDiff.derivative(t -> along(f, t), t)
    second_of(f, t) = ForwardDiff.derivative(t -> first_of(f, t), t)
    found, expected = (ForwardDiff.derivative(t -> second_of(f, t), 0.3) for f in (net, twin))
    @test isapprox(found, expected; rtol = 1e-9)
end

@testset "partials in one pass, as by broadcasts" begin
    duals = Dual{Mark}.(randn(Xoshiro(1), 3, 4), randn(Xoshiro(2), 3, 4), randn(Xoshiro(3), 3, 4))
    nested = Dual{typeof(sin)}.(duals, reverse(duals))
    for x in (duals, view(nested, :, 2:3), nested')
        D = PaddleChainRules.dual_type(x)
        found = PaddleChainRules.partials(D, x)
        each = [PaddleChainRules.partial(D, x, k) for k in 1:PaddleChainRules.partials_count(D)]
        @test found == stack(each)
        whole = PaddleChainRules.joined(D, PaddleChainRules.primal(D, collect(x)), found)
        @test typeof(whole) == typeof(collect(x)) && all(map(===, whole, x))
    end
end

@testset "one crossing for all partials" begin
    w, x = normed(), randn(Xoshiro(1), 3, 4)
    w(x)
    duals = Dual{Mark}.(x, ntuple(k -> randn(Xoshiro(10 + k), 3, 4), 9)...)
    fresh = PaddleModuleWrapper(w.net, map(copy, w.params))
    @test counted(() -> fresh(duals), "paddle_chainrules.bridge:BoundNet.forward") == [1]
    y, step = w(duals), 1e-5
    for k in (1, 9)
        ẋ = ForwardDiff.partials.(Mark, duals, k)
        differences = (w(x .+ step .* ẋ) .- w(x .- step .* ẋ)) ./ 2step
        @test isapprox(ForwardDiff.partials.(Mark, y, k), differences; rtol = 1e-7)
    end
    @test eltype(y) == eltype(duals) && ForwardDiff.value.(y) ≈ w(x)
    none = w(duals[:, 1:0])
    @test size(none) == (2, 0) && eltype(none) == eltype(duals)
end

@testset "gradients of dual numbers: $name" for (name, (make, twin)) in pairs(NETS)
    w = make()
    net, ps = PaddleNet(w), w.params
    theta, x, c = reduce(vcat, vec.(ps)), randn(Xoshiro(1), 3, 4), randn(Xoshiro(2), 2, 4)
    loss(f, x, ps) = sum(sin, c .* f(x, ps)) # whose cotangent depends on the point
    flat_twin(x, t) = twin(x, unflat(t, ps))
    slope(f) = ForwardDiff.derivative(f, 0.6)
    total((x̄, p̄s)) = sum(sin, x̄) + sum(p̄ -> sum(abs2, p̄), p̄s)
    gradients(f, t) = Zygote.gradient((x, ps) -> loss(f, x, ps), t .* x, map(p -> t .* cos.(p), ps))
    expected = slope(t -> total(gradients(twin, t)))
    @test close(slope(t -> total(gradients(net, t))), expected)
    hessian_of(f) = Zygote.hessian(t -> loss(f, x, t), theta)
    @test close(hessian_of(net), hessian_of(flat_twin))
    # Of an outer parameter alone, so that cotangents are dual and primals plain; twice, too.
    scaled(f, a) = total(Zygote.gradient((x, ps) -> a^2 * loss(f, x, ps), x, ps))
    second(f) = ForwardDiff.derivative(a -> ForwardDiff.derivative(a -> scaled(f, a), a), 0.6)
    @test close(slope(a -> scaled(net, a)), slope(a -> scaled(twin, a)))
    @test close(second(net), second(twin))
    # By thunks, by a pullback without rules, and of a wrapper.
    function lazily(t)
        y, back = rrule(net, t .* x, map(p -> t .* cos.(p), ps))
        _, x̄, p̄s = back(c .* cos.(c .* y))
        return total((unthunk(x̄), ChainRulesCore.backing(unthunk(p̄s))))
    end
    @test close(slope(lazily), expected)
    function by_hand(t)
        q = map(p -> t .* cos.(p), ps)
        return total(vjp(net, t .* x, q, c .* cos.(c .* net(t .* x, q))))
    end
    @test close(slope(by_hand), expected)
    of_wrapper(t) = total((
        t .* zero(x), Zygote.gradient(w -> loss((x, _) -> w(x), t .* x, ps), w)[1].params,
    ))
    of_ps(t) = total((t .* zero(x), Zygote.gradient(ps -> loss(twin, t .* x, ps), ps)[1]))
    @test close(slope(of_wrapper), slope(of_ps))
    err = @test_throws ArgumentError slope() do t
        _, back = PaddleChainRules.pullback(net, t .* x, ps)
        back(c; into = (zero(x), nothing))
        t
    end
    @test occursin("not written into", err.value.msg)
end

@testset "above gradients within gradients" begin
    w = normed()
    net, ps, x, c = w.net, w.params, randn(Xoshiro(1), 3, 4), randn(Xoshiro(2), 2, 4)
    penalty(x) = sum(abs2, vjp(net, x, ps, c)[1])
    third(t) = sum(sin, Zygote.gradient(penalty, t .* x)[1])
    apart(h) = (third(0.6 + h) - third(0.6 - h)) / 2h
    expected = (4apart(1e-5) - apart(2e-5)) / 3 # of fourth order in the step
    @test isapprox(ForwardDiff.derivative(third, 0.6), expected; rtol = 1e-8)
end

@testset "nested arguments, keywords, and results without derivatives" begin
    paddle.seed(3)
    several = PaddleModuleWrapper(in_type(python_module("layers").Several(), Float64))
    x = randn(Xoshiro(1), 3, 5)
    y = several(Dual{Mark}.(x, one.(x)))
    plain = several(x)
    @test ForwardDiff.value.(y.score) ≈ plain.score && ForwardDiff.value.(y.hidden[1]) ≈ plain.hidden[1]
    @test y.hidden[2] == plain.hidden[2] && eltype(y.hidden[2]) == Int64 && y.word == "w"
    step = 1e-5
    differences = (several(x .+ step).score .- several(x .- step).score) ./ 2step
    @test isapprox(ForwardDiff.partials.(Mark, y.score, 1), differences; rtol = 1e-7)
    paddle.seed(1)
    smooth = PaddleModuleWrapper(in_type(python_module("layers").Smooth(), Float64))
    image, scale = randn(Xoshiro(1), 6, 5, 2, 4), randn(Xoshiro(2), 1, 4)
    f(t) = sum(sin, smooth(t .* image; scale = t^2 .* scale))
    g(t) = sum(sin, smooth.net((image = t .* image, scale = t^2 .* scale), smooth.params))
    expected = (f(0.7 + step) - f(0.7 - step)) / 2step
    @test isapprox(ForwardDiff.derivative(f, 0.7), expected; rtol = 1e-7)
    @test isapprox(ForwardDiff.derivative(g, 0.7), expected; rtol = 1e-7)
    h(t) = sum(abs2, Zygote.gradient((image, scale) -> sum(sin, smooth(image; scale)), t .* image, t^2 .* scale)[2])
    @test isapprox(ForwardDiff.derivative(h, 0.7), (h(0.7 + step) - h(0.7 - step)) / 2step; rtol = 1e-6)
end

@testset "states come through with values" begin
    paddle.seed(1)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 16), paddle.nn.BatchNorm1D(16), paddle.nn.Dropout(0.5), paddle.nn.Linear(16, 2))
    w = PaddleModuleWrapper(in_type(layer, Float64))
    net, ps, x = PaddleNet(w), w.params, randn(Xoshiro(1), 3, 6)
    st = PaddleChainRules.initial_state(net; seed = 5)
    y, next = net(Dual{Mark}.(x, one.(x)), ps, st)
    plain, after = net(x, ps, st)
    @test ForwardDiff.value.(y) ≈ plain
    @test next.seed == after.seed && keys(next.buffers) == keys(after.buffers)
    @test all(map((a, b) -> eltype(a) == eltype(b) && isapprox(a, b; rtol = 1e-12), next.buffers, after.buffers))
    f(t) = sum(sin, first(net(t .* x, ps, st)))
    step = 1e-5
    @test isapprox(ForwardDiff.derivative(f, 0.7), (f(0.7 + step) - f(0.7 - step)) / 2step; rtol = 1e-6)
    h(t) = sum(abs2, Zygote.gradient(x -> sum(sin, first(net(x, ps, st))), t .* x)[1])
    @test isapprox(ForwardDiff.derivative(h, 0.7), (h(0.7 + step) - h(0.7 - step)) / 2step; rtol = 1e-5)
end

@testset "one call, one set of random numbers" begin
    # Value and gradient of one call see the same mask, and what is drawn later is other.
    paddle.seed(1)
    w = PaddleModuleWrapper(in_type(paddle.nn.Sequential(paddle.nn.Linear(3, 40), paddle.nn.Dropout(0.5)), Float64))
    net, ps, x = PaddleNet(w), w.params, ones(3, 4)
    d = Dual{Mark}.(x, one.(x))
    for _ in 1:3
        y, back = Zygote.pullback(ps -> net(d, ps), ps)
        bias = back(one.(y))[1][2] # counts what was kept, twice
        @test ForwardDiff.value.(bias) == vec(2 .* sum(!iszero, ForwardDiff.value.(y); dims = 2))
    end
end

@testset "flat vectors with names" begin
    w = chain()
    net, x, theta = PaddleNet(w), randn(Xoshiro(1), 3, 4), reduce(vcat, vec.(w.params))
    named = ComponentVector{Float64}(NamedTuple{Tuple(net.names)}(w.params))
    f(t) = sum(sin, Zygote.gradient(t -> sum(sin, net(x, t)), t)[1]) + sum(sin, net(x, t))
    slope(theta) = ForwardDiff.derivative(t -> f(t .* theta), 0.6)
    @test close(slope(named), slope(theta))
end

@testset "derivatives by the input" begin
    w = chain()
    net, ps, x = PaddleNet(w), w.params, randn(Xoshiro(1), 3, 4)
    for f in (x -> laplacian(net, x, ps), x -> derivative(net, x, ps, (1, 1, 0)))
        step, v = 1e-5, randn(Xoshiro(2), 3, 4)
        expected = (f(x .+ step .* v) .- f(x .- step .* v)) ./ 2step
        @test isapprox(ForwardDiff.derivative(t -> f(x .+ t .* v), 0.0), expected; rtol = 1e-7)
    end
end

@testset "what is wrong is said of the caller's arrays" begin
    w = chain()
    net, d = PaddleNet(w), Dual{Mark}.(randn(4, 2), 1.0)
    @test_throws DimensionMismatch w(d)
    @test_throws DimensionMismatch net(d[1:3, :], randn(3))
    @test_throws ArgumentError net(d[1:3, :], (; a = 1))
    err = @test_throws ArgumentError w(Dual{Mark}.(randn(Float32, 3, 2), 1.0f0))
    @test occursin("Float32, the net needs Float64", err.value.msg)
end
