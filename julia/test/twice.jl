# Second derivatives, against central differences of first ones.

using ChainRulesCore: rrule, unthunk
using PaddleChainRules:
    PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp, laplacian, paddle, vjp
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("oracle.jl")

function smooth()
    paddle.seed(1)
    return python_module("layers").Smooth().to(dtype = "float64")
end

function perceptron()
    paddle.seed(1)
    return paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 2)).to(dtype = "float64")
end

"Slope of `f` along `v` at `x`, nested alike."
function slope(f, x, v; step = 1e-5)
    moved(t) = nested_map((a, b) -> a .+ t .* b, x, v)
    return (f(moved(step)) - f(moved(-step))) / 2step
end
nested_map(f, x::AbstractArray, v) = f(x, v)
nested_map(f, xs::Union{Tuple,NamedTuple}, vs) = map((x, v) -> nested_map(f, x, v), xs, vs)
inner(a::AbstractArray, b) = sum(a .* b)
inner(::Nothing, _) = 0.0
inner(as, bs) = sum(inner(as[key], bs[key]) for key in keys(bs))
directions(x::AbstractArray) = randn(Xoshiro(length(x)), size(x))
directions(xs) = map(directions, xs)

"All gradients of `f` at nested points against slopes along random directions."
function right(f, points...)
    found = Zygote.gradient(f, points...)
    return all(eachindex(points)) do i
        v = directions(points[i])
        expected = slope(x -> f(Base.setindex(points, x, i)...), points[i], v)
        isapprox(inner(found[i], v), expected; rtol = 1e-6, atol = 1e-8)
    end
end

@testset "a pullback is differentiable: $name" for (name, make, x, kw) in (
    ("recorded", smooth, (image = randn(Xoshiro(1), 6, 5, 2, 4), scale = randn(Xoshiro(2), 1, 4)), (;)),
    ("with a constant keyword", smooth, randn(Xoshiro(1), 6, 5, 2, 4), (; scale = randn(Xoshiro(2), 1, 4))),
    ("closed form", perceptron, randn(Xoshiro(1), 3, 4), (;)),
    ("a tuple", perceptron, (randn(Xoshiro(1), 3, 4),), (;)),
)
    layer = make()
    net, params = PaddleNet(PaddleModuleWrapper(layer)), PaddleModuleWrapper(layer).params
    c = randn(Xoshiro(3), 2, 4)
    @test unchanged(layer) do
        function penalty(x, ps, c)
            x̄, p̄s = vjp(net, x, ps, c; kw...)
            return total(p̄s) + total(x̄)
        end
        total(a::AbstractArray) = sum(sin, a)
        total(::Nothing) = 0.0
        total(parts) = sum(total, values(parts))
        named = NamedTuple{Tuple(net.names)}(params)
        theta = reduce(vcat, vec.(params))
        for ps in (name == "recorded" ? (params, named, theta) : (params,))
            @test right((x, ps, c) -> penalty(x, ps, c), x, ps, c)
        end
        # The same with Zygote within Zygote; then keyword arguments are differentiated too.
        if !isempty(kw)
            f(x, ps, kw) = sum(c .* net(x, ps; kw...))
            @test right((x, ps, kw) -> total(Zygote.gradient(f, x, ps, kw)), x, params, kw)
        end
        value(x, ps) = sum(c .* net(x, ps; kw...))
        if name == "recorded"
            @test right((x, ps) -> total(Zygote.gradient(value, x, ps)), x, params)
            @test right(t -> total(Zygote.gradient(t -> value(x, t), t)), theta)
            @test right(ps -> total(Zygote.gradient(ps -> value(x, ps), ps)), named)
        end
    end
end

@testset "gradient penalties of a wrapper, by Zygote within Zygote" begin
    layer = perceptron()
    w = PaddleModuleWrapper(layer)
    x, ps = randn(Xoshiro(1), 3, 4), w.params
    of(ps) = PaddleModuleWrapper(w.net, ps)
    penalty(x, ps) = sum(abs2, Zygote.gradient(x -> sum(abs2, of(ps)(x)), x)[1])
    @test right(penalty, x, ps)
    by_vjp(x, ps) = sum(abs2, vjp(w.net, x, ps, 2 .* w.net(x, ps))[1])
    @test penalty(x, ps) ≈ by_vjp(x, ps)
    found, expected = Zygote.gradient(penalty, x, ps), Zygote.gradient(by_vjp, x, ps)
    @test found[1] ≈ expected[1] && all(map(≈, found[2], expected[2]))
    wrapper_gradient = Zygote.gradient(w -> sum(abs2, Zygote.gradient(x -> sum(abs2, w(x)), x)[1]), w)[1]
    @test all(map(≈, wrapper_gradient.params, Zygote.gradient(ps -> penalty(x, ps), ps)[1]))
    seeded = PaddleModuleWrapper(smooth())
    image, scale = randn(Xoshiro(1), 6, 5, 2, 4), randn(Xoshiro(2), 1, 4)
    steep(ps, x, scale) =
        sum(abs2, Zygote.gradient(x -> sum(abs2, PaddleModuleWrapper(seeded.net, ps)(x; scale)), x)[1])
    @test right(steep, seeded.params, image, scale)
end

@testset "several results, some of which have no derivative" begin
    paddle.seed(3)
    layer = python_module("layers").Several().to(dtype = "float64")
    w, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 5)
    function f(x, ps)
        y = w.net(x, ps)
        return sum(sin, y.hidden[1]) + sum(abs2, y.score)
    end
    @test right((x, ps) -> sum(sin, Zygote.gradient(x -> f(x, ps), x)[1]), x, w.params)
    function by_vjp(x, ps)
        y = w.net(x, ps)
        ȳ = (hidden = (cos.(y.hidden[1]), nothing), score = 2 .* y.score, unused = nothing, word = nothing)
        return sum(sin, vjp(w.net, x, ps, ȳ)[1])
    end
    @test by_vjp(x, w.params) ≈ sum(sin, Zygote.gradient(x -> f(x, w.params), x)[1])
    @test right(by_vjp, x, w.params)
end

@testset "the product with a Hessian" begin
    layer = perceptron()
    net, ps = PaddleNet(PaddleModuleWrapper(layer)), PaddleModuleWrapper(layer).params
    x, v = randn(Xoshiro(1), 3, 4), randn(Xoshiro(4), 3, 4)
    gradient(x) = vjp(net, x, ps, 2 .* net(x, ps))[1] # of sum(abs2, net(x, ps))
    product = Zygote.gradient(x -> sum(v .* gradient(x)), x)[1]
    expected = (gradient(x .+ 1e-5 .* v) .- gradient(x .- 1e-5 .* v)) ./ 2e-5
    @test isapprox(product, expected; rtol = 1e-7)
    err = @test_throws ArgumentError Zygote.gradient(x) do x
        sum(sin, Zygote.gradient(x -> sum(v .* gradient(x)), x)[1])
    end
    @test occursin("end at the second order", err.value.msg)
end

@testset "derivatives by the input, differentiated twice" begin
    wrapper = PaddleFCNet(2, 1, 3, 4; activation = "tanh", dtype = "float64", seed = 1)
    net, ps, x = PaddleNet(wrapper), wrapper.params, randn(Xoshiro(1), 2, 3)
    indices = ((0, 0), (1, 0), (0, 2))
    v = randn(Xoshiro(2), 2, 3)
    function f(x, ps)
        u, u_x, u_yy = derivatives(net, x, ps, indices)
        return sum(sin, u) + sum(sin, u_x .* u_yy) + sum(sin, laplacian(net, x, ps)) +
               sum(sin, derivative(net, x, ps, (1, 1))) + sum(sin, jvp(net, x, ps, v))
    end
    @test right((x, ps) -> sum(sin, Zygote.gradient(x -> f(x, ps), x)[1]), x, ps)
end

@testset "a random net with statistics" begin
    paddle.seed(1)
    layer = python_module("layers").Noisy(; dropout = 0.0).to(dtype = "float64")
    w = PaddleModuleWrapper(layer)
    x, c = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)
    @test unchanged(layer) do
        @test right((x, ps) -> sum(sin, vjp(w.net, x, ps, c; seed = 5)[1]), x, w.params)
    end
end

@testset "where Paddle's kernels end" begin
    net = PaddleNet(PaddleModuleWrapper(paddle.nn.LSTM(3, 4)))
    ps, x = PaddleModuleWrapper(paddle.nn.LSTM(3, 4)).params, randn(Xoshiro(1), Float32, 3, 5, 2)
    ȳ = (ones(Float32, 4, 5, 2), nothing)
    @test size(vjp(net, x, ps, ȳ)[1]) == size(x)
    err = @test_throws PyException Zygote.gradient(x -> sum(vjp(net, x, ps, ȳ)[1]), x)
    @test occursin("NotImplementedError: Paddle can't differentiate rnn once more", sprint(showerror, err.value))
end
