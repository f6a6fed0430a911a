# Second derivatives where Zygote differentiates Zygote's gradients, which takes it minutes to
# compile, in all forms of parameters, against central differences of first ones.

using PaddleChainRules:
    PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp, laplacian, paddle, vjp
using Random: Xoshiro
using Zygote: Zygote

include("slopes.jl")

const IMAGE, SCALE = randn(Xoshiro(1), 6, 5, 2, 4), randn(Xoshiro(2), 1, 4)

@testset "a recorded net, $name" for (name, x, kw) in (
    ("all arguments by position", (image = IMAGE, scale = SCALE), (;)), ("with a keyword", IMAGE, (; scale = SCALE)),
)
    layer = smooth()
    net, params = PaddleNet(PaddleModuleWrapper(layer)), PaddleModuleWrapper(layer).params
    c = randn(Xoshiro(3), 2, 4)
    @test unchanged(layer) do
        named = NamedTuple{Tuple(net.names)}(params)
        theta = reduce(vcat, vec.(params))
        for ps in (isempty(kw) ? (params, named, theta) : (params,))
            @test right((x, ps, c) -> penalty(net, x, ps, c; kw...), x, ps, c)
        end
        # The same with Zygote within Zygote; then keyword arguments are differentiated too.
        if !isempty(kw)
            f(x, ps, kw) = sum(c .* net(x, ps; kw...))
            @test right((x, ps, kw) -> total(Zygote.gradient(f, x, ps, kw)), x, params, kw)
        else
            value(x, ps) = sum(c .* net(x, ps; kw...))
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
