# The extension for NeuralPDE 7 on a stand-in, which has its names and signatures: the cases are
# those of NeuralPDE's own tests of derivatives.

using ComponentArrays: ComponentVector
using ForwardDiff: ForwardDiff
using LuxCore: LuxCore
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, luxlayer, paddle
using Random: Xoshiro
using Zygote: Zygote

include("../standins/neuralpde.jl")

"The extension's code, which finds the stand-in where it says `using NeuralPDE`."
on_stand_in(x) = x
function on_stand_in(x::Expr)
    x == :(using NeuralPDE: NeuralPDE) && return :(using ..NeuralPDE: NeuralPDE)
    return Expr(x.head, map(on_stand_in, x.args)...)
end
const SOURCE_OF_EXTENSION = joinpath(@__DIR__, "..", "..", "ext", "PaddleChainRulesNeuralPDEExt.jl")
Base.include(on_stand_in, @__MODULE__, SOURCE_OF_EXTENSION)
const Extension = PaddleChainRulesNeuralPDEExt

"What ModelingToolkitNeuralNets calls: a layer of Lux at flat parameters."
struct StatelessApply{L}
    lux_model::L
end

const rng = Xoshiro(1)
const wrapper = PaddleFCNet(2, 3, 3, 5; dtype = "float64", activation = "tanh", seed = 3)
const layer = luxlayer(wrapper)
const f = StatelessApply(layer)
const X = randn(rng, 2, 6)
const parameters, _ = LuxCore.setup(rng, layer)
const θ = collect(ComponentVector(parameters))

"The net in plain Julia, for ForwardDiff."
function plain(x, θ)
    sizes, start, h = ((5, 2), (5, 5), (3, 5)), 0, x
    for (i, (m, n)) in enumerate(sizes)
        W = reshape(θ[start+1:start+m*n], m, n)
        b = θ[start+m*n+1:start+m*n+m]
        start += m * n + m
        h = W * h .+ b
        i < length(sizes) && (h = tanh.(h))
    end
    return h
end

"Along each direction in turn, by nested dual numbers."
along(g, x, ::Tuple{}) = g(x)
function along(g, x, directions)
    e = [i in first(directions) for i in axes(x, 1)]
    return along(z -> ForwardDiff.derivative(t -> g(z .+ t .* e), 0.0), x, Base.tail(directions))
end
exact(X, θ, directions, k) = along(x -> plain(x, θ)[k:k, :], X, reverse(directions))
near(a, b; rtol = 1e-10) = size(a) == size(b) && maximum(abs, a - b) <= rtol * maximum(abs, b)

"A derivative of u as the extension lowers it."
const u = NeuralPDE.Call(:u, [:x, :y])
context(net = f; k = 1, args = [:x, :y]) = NeuralPDE.Context(;
    iv_index = Dict(:x => 1, :y => 2),
    iv_global = Dict(:x => 1, :y => 2),
    networks = Dict(:u => NeuralPDE.TrialNetwork(net, args, k)),
)
lowered(inner, direction, order; ctx = context()) = NeuralPDE.lower_derivative(
    PaddleChainRules.PaddleDerivative(), inner, ctx, zeros(2), direction, order,
)
dx, dy = NeuralPDE.Differential(:x, 1), NeuralPDE.Differential(:y, 1)

@testset "orders one to four, output $k" for k in 1:3
    for (inner, direction, order, rows) in (
        (u, 1, 1, (1,)),
        (u, 2, 1, (2,)),
        (u, 1, 2, (1, 1)),
        (dy(u), 1, 1, (1, 2)),
        (u, 1, 3, (1, 1, 1)),
        (dx(u), 2, 2, (2, 2, 1)),
        (u, 2, 4, (2, 2, 2, 2)),
        (NeuralPDE.Differential(:y, 2)(u), 1, 2, (1, 1, 2, 2)),
    )
        term = lowered(inner, direction, order; ctx = context(; k))
        directions = map(r -> (r,), rows)
        @test term.directions === Extension.Exact{directions}()
        value(X, θ) = NeuralPDE.evaluate(term, X, θ)
        @test near(value(X, θ), exact(X, θ, directions, k))
        length(rows) == 4 && k > 1 && continue # nested five times deep, once is enough
        weights = randn(rng, 1, size(X, 2))
        X̄, θ̄ = Zygote.gradient((X, θ) -> sum(weights .* value(X, θ)), X, θ)
        of_θ(θ) = sum(weights .* exact(X, θ, directions, k))
        of_X(X) = sum(weights .* exact(X, θ, directions, k))
        @test near(θ̄, ForwardDiff.gradient(of_θ, θ); rtol = 1e-9)
        @test near(X̄, ForwardDiff.gradient(of_X, X); rtol = 1e-9)
    end
end

@testset "several rows along one direction, and none" begin
    jvp(directions) = NeuralPDE.nn_jvp(f, X, θ, Extension.Exact{directions}(), 2)
    for directions in (((1, 2),), ((1, 2), (1,)), ((1, 2), (1, 2)))
        @test near(jvp(directions), exact(X, θ, directions, 2))
        of_θ(θ) = sum(abs2, NeuralPDE.nn_jvp(f, X, θ, Extension.Exact{directions}(), 2))
        found = Zygote.gradient(of_θ, θ)[1]
        @test near(found, ForwardDiff.gradient(θ -> sum(abs2, exact(X, θ, directions, 2)), θ))
    end
    @test jvp(((),)) == zeros(1, 6)
    of_none(θ) = sum(NeuralPDE.nn_jvp(f, X, θ, Extension.Exact{((),)}(), 2))
    @test Zygote.gradient(of_none, θ)[1] in (nothing, zero(θ))
    # u(x, x) goes along both rows, u(1, y) along the row of the number's variable.
    both = lowered(NeuralPDE.Call(:u, [:x, :x]), 1, 2)
    @test both.directions === Extension.Exact{((1, 2), (1, 2))}()
    edge = lowered(NeuralPDE.Call(:u, [1.0, :y]), 1, 1)
    @test edge.directions === Extension.Exact{((1,),)}()
    at_edge = vcat(ones(1, 6), X[2:2, :])
    @test near(NeuralPDE.evaluate(edge, X, θ), exact(at_edge, θ, ((1,),), 1))
end

@testset "zero cotangents, Float32, ComponentVectors and other nets" begin
    term = lowered(u, 1, 2)
    y, back = Zygote.pullback((X, θ) -> NeuralPDE.evaluate(term, X, θ), X, θ)
    @test all(g -> g === nothing || iszero(g), back(zero(y)))
    single = PaddleFCNet(2, 1, 2, 4; activation = "sigmoid", seed = 1)
    at = reduce(vcat, map(vec, single.params))
    mixed, twice = Extension.Exact{((1,), (2,))}(), Extension.Exact{((1,), (1,))}()
    found = NeuralPDE.nn_jvp(StatelessApply(luxlayer(single)), Float32.(X), at, mixed, 1)
    @test found isa Matrix{Float32}
    @test found ≈ PaddleChainRules.derivative(single, Float32.(X), (1, 1))
    named = ComponentVector(parameters)
    @test near(NeuralPDE.evaluate(term, X, named), NeuralPDE.evaluate(term, X, θ))
    squares(p) = sum(abs2, NeuralPDE.evaluate(term, X, p))
    gradient = Zygote.gradient(squares, named)[1]
    @test near(collect(gradient), Zygote.gradient(squares, θ)[1])
    # Any net that derivatives cover, here one with normalization of each sample.
    own = PaddleModuleWrapper(paddle.nn.Sequential(
        paddle.nn.Linear(2, 6), paddle.nn.LayerNorm(6), paddle.nn.Silu(), paddle.nn.Linear(6, 1),
    ))
    x, p = Float32.(X), reduce(vcat, map(vec, own.params))
    found = NeuralPDE.nn_jvp(StatelessApply(luxlayer(own)), x, p, twice, 1)
    @test found ≈ PaddleChainRules.derivative(own, x, (2, 0))
end

@testset "points and parameters of two floating types" begin
    mixed, narrow = Extension.Exact{((1,), (2,))}(), Float32.(θ)
    value(X, θ) = NeuralPDE.nn_jvp(f, X, θ, mixed, 2)
    slopes(X, θ) = Zygote.gradient((X, θ) -> sum(abs2, value(X, θ)), X, θ)
    @test value(X, narrow) == value(X, Float64.(narrow))
    X̄, θ̄ = slopes(X, Float64.(narrow))
    @test slopes(X, narrow) == (X̄, Float32.(θ̄))
end

@testset "terms of a loss, each with its gradient" begin
    # As adaptive losses weigh them.
    inside, edge = lowered(u, 1, 2), lowered(NeuralPDE.Call(:u, [0.0, :y]), 1, 1)
    terms = map(term -> (θ -> sum(abs2, NeuralPDE.evaluate(term, X, θ))), (inside, edge))
    gradients = map(term -> Zygote.gradient(term, θ)[1], terms)
    whole = Zygote.gradient(θ -> 2terms[1](θ) + 3terms[2](θ), θ)[1]
    @test near(whole, 2gradients[1] + 3gradients[2])
end

@testset "what is refused" begin
    @test_throws "a total order of one to four, got 5" lowered(dx(u), 1, 4)
    composed, other = NeuralPDE.Call(:u, [u, :y]), NeuralPDE.Call(:sin, [:x])
    @test_throws "derivatives of dependent variables alone" lowered(other, 1, 1)
    @test_throws "independent variables and numbers" lowered(composed, 1, 1)
    @test_throws "by an independent variable" lowered(NeuralPDE.Differential(:z, 1)(u), 1, 1)
    @test_throws "made by luxlayer(wrapper), got Array" NeuralPDE.nn_jvp(
        [1.0], X, θ, Extension.Exact{((1,),)}(), 1,
    )
    @test_throws "needs NeuralPDE 7 or newer" PaddleChainRules.PaddleDerivative(1)
end

@testset "of symbols it is NeuralPDE's own" begin
    symbols = NeuralPDE.Num.([:x :y; :z :w])
    @test NeuralPDE.nn_jvp(f, symbols, symbols[:, 1], Extension.Exact{((1,),)}(), 1) === :symbolic
    @test NeuralPDE.nn_jvp(f, symbols, θ, Extension.Exact{((1,),)}(), 1) === :symbolic
end
