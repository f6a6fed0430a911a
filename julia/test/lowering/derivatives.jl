using ForwardDiff: ForwardDiff
using PaddleChainRules:
    PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp, laplacian, lower
using Random: Xoshiro
using SpecialFunctions: SpecialFunctions
using Zygote: Zygote

include("../oracle.jl")

const ACTIVATIONS = ("tanh",)
const HIGH_ORDER = ("modified MLP",)

include("each_activation.jl")

include("each_high_order.jl")

@testset "numbers of other kinds" begin
    wrapper = random_net("tanh", 3)
    lowered, x = lower(wrapper), randn(Xoshiro(1), 3, 4)
    found = laplacian(lowered, big.(x))
    @test eltype(found) == BigFloat && isapprox(Float64.(found), laplacian(wrapper, x))
    # A product of Hessian and vector: dual numbers through the rule.
    theta, v = reduce(vcat, vec.(wrapper.params)), randn(Xoshiro(2), sum(length, wrapper.params))
    g(t) = Zygote.gradient(t -> sum(abs2, laplacian(lowered.net, x, t)), t)[1]
    found = ForwardDiff.derivative(h -> g(theta .+ h .* v), 0.0)
    h = 1e-5
    @test close(found, (g(theta .+ h .* v) .- g(theta .- h .* v)) ./ 2h; tol = 1e-6)
end

@testset "what is refused" begin
    lowered, x = lower(random_net("tanh", 2)), randn(3, 4)
    err = @test_throws ArgumentError derivative(lowered, x, (3, 2, 0))
    @test occursin("the highest is 4", err.value.msg)
    @test_throws DimensionMismatch derivative(lowered, x, (1, 0))
    @test_throws ArgumentError derivatives(lowered, x, ((1, 0, 0), (1, 0, 0)))
    @test_throws DimensionMismatch jvp(lowered, x, randn(2))
    for call in (laplacian, (f, x) -> derivative(f, x, (1, 0, 0)))
        err = @test_throws DimensionMismatch call(lowered, randn(2, 4))
        @test occursin("3 features first", err.value.msg)
    end
end
