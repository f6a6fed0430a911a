# Derivatives inside Zygote's gradient: parameters closed over or passed, nested, flat or in a
# wrapper, against central differences.

using PaddleChainRules:
    PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp, laplacian, paddle, vjp
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

function columns_wrapper()
    paddle.seed(0)
    layer = python_module("layers").Columns().to(dtype = "float64")
    return PaddleModuleWrapper(layer)
end
tanh_wrapper() = PaddleFCNet(3, 1, 2, 4; activation = "tanh", dtype = "float64", seed = 1)

const POINTS = randn(Xoshiro(1), 3, 5)
const ALONG = randn(Xoshiro(2), 3, 5)

# Scalars that each derivative makes of a net at parameters.
const ANY_NET = (
    gradient = (net, ps, x) -> sum(abs2, Zygote.gradient(x -> sum(abs2, net(x, ps)), x)[1]),
    vjp = (net, ps, x) -> begin
        y = net(x, ps)
        x̄, p̄s = vjp(net, x, ps, cos.(y))
        sum(abs2, x̄) + sum(y .^ 3)
    end,
)
const CHAIN = (
    jvp = (net, ps, x) -> sum(abs2, jvp(net, x, ps, ALONG)),
    laplacian = (net, ps, x) -> sum(abs2, laplacian(net, x, ps)),
    derivative = (net, ps, x) -> sum(abs2, derivative(net, x, ps, (1, 0, 1))),
    derivatives = (net, ps, x) -> sum(d -> sum(abs2, d), derivatives(net, x, ps, ((0, 0, 0), (1, 0, 0), (0, 2, 0)))),
)

along(v, a::AbstractArray) = sum(v .* a)
along(_, ::Nothing) = 0.0
along(vs, as) = sum(along(vs[key], as[key]) for key in keys(vs))
moved_by(ps::AbstractArray, v, t) = ps .+ t .* v
moved_by(ps, vs, t) = map((p, v) -> moved_by(p, v, t), ps, vs)
random_along(ps::AbstractArray) = randn(Xoshiro(length(ps)), size(ps))
random_along(ps) = map(random_along, ps)

function agrees(f, at)
    v = random_along(at)
    slope = (f(moved_by(at, v, 1e-5)) - f(moved_by(at, v, -1e-5))) / 2e-5
    return isapprox(along(v, Zygote.gradient(f, at)[1]), slope; rtol = 1e-6, atol = 1e-8)
end

@testset "composed: $name, $what" for (name, make, kinds) in (
        ("tanh", tanh_wrapper, merge(ANY_NET, CHAIN)), ("columns", columns_wrapper, ANY_NET),
    ), (what, f) in pairs(kinds)
    w = make()
    net = w.net
    named = NamedTuple{Tuple(net.names)}(w.params)
    flat = reduce(vcat, map(vec, w.params))
    @test agrees(ps -> f(net, ps, POINTS), named) # closed over by what `f` differentiates
    @test agrees(ps -> f(net, ps, POINTS), flat)
    @test agrees(ps -> f(net, ps, POINTS), w.params)
    @test agrees(x -> f(net, named, x), POINTS)
    box = Ref{Any}()
    @test agrees(flat) do ps
        Zygote.ignore(() -> box[] = nothing)
        held = (; ps)
        f(net, held.ps, POINTS)
    end
    # A wrapper is differentiated by its parameters.
    ∇w = Zygote.gradient(w -> f(w.net, w.params, POINTS), w)[1]
    ∇ps = Zygote.gradient(ps -> f(net, ps, POINTS), w.params)[1]
    @test all(map((a, b) -> (a === nothing && b === nothing) || a ≈ b, ∇w.params, ∇ps))
end
