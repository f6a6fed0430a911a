using FiniteDifferences: FiniteDifferenceMethod
using LuxCore: LuxCore
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleNet, derivative, derivatives, exact_derivative,
    lower, luxlayer, stencil_derivative
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

# As NeuralPDE calls it: u(cord, θ, phi) = phi(cord, θ), and one step per differentiation.
u(cord, θ, phi) = phi(cord, θ)
steps(index, h) = [[Float64(j == i) * h for j in 1:length(index)] for i in 1:length(index) for _ in 1:index[i]]

const WRAPPER = PaddleFCNet(2, 1, 3, 5; dtype = "float64", activation = "tanh", seed = 7)
const NET, X = PaddleNet(WRAPPER), randn(Xoshiro(1), 2, 4)
const THETA = reduce(vcat, vec.(WRAPPER.params))

@testset "derivatives of the shape that NeuralPDE takes, $index" for index in
                                                                  ((1, 0), (0, 2), (1, 1), (2, 1), (4, 0), (2, 2))
    εs = steps(index, 1e-2)
    expected = derivative(NET, X, THETA, index)
    exact = exact_derivative(WRAPPER)
    @test exact(NET, u, X, εs, sum(index), THETA) == expected
    @test exact(NET, u, X, reverse(εs), sum(index), THETA) == expected
    @test same(
        stencil_derivative(NET, u, X, εs, sum(index), THETA), expected; rtol = 1e-2, atol = 1e-2,
    )
    # The stencil converges with the square of its step.
    error(h) = maximum(abs, stencil_derivative(NET, u, X, steps(index, h), sum(index), THETA) - expected)
    @test 3 < error(0.1) / error(0.05) < 5
    for f in (exact, stencil_derivative)
        found = Zygote.gradient(θ -> sum(abs2, f(NET, u, X, εs, sum(index), θ)), THETA)[1]
        @test same(
            found, Zygote.gradient(θ -> sum(abs2, derivative(NET, X, θ, index)), THETA)[1];
            rtol = 5e-2, atol = 5e-2 * maximum(abs, found),
        )
    end
end

@testset "of a lowered net" begin
    for index in ((1, 0), (0, 2), (1, 1))
        found = exact_derivative(lower(WRAPPER))(NET, u, X, steps(index, 1e-2), sum(index), THETA)
        @test same(found, derivative(NET, X, THETA, index); rtol = 1e-12, atol = 1e-13)
    end
end

@testset "of whichever net a system asks for" begin
    exact = exact_derivative()
    for (d, wrapper) in ((1, PaddleFCNet(1, 1, 2, 3; dtype = "float64", seed = 2)), (2, WRAPPER))
        layer = luxlayer(wrapper)
        ps, st = LuxCore.setup(Xoshiro(3), layer)
        x, θ = randn(Xoshiro(4), d, 5), reduce(vcat, vec.(values(ps)))
        index = (2, 0)[1:d]
        phi = (; smodel = LuxCore.StatefulLuxLayer{true}(layer, nothing, st))
        of_net, εs = exact_derivative(wrapper), steps(index, 1e-2)
        for f in (phi, (; lux_model = layer), layer, PaddleNet(wrapper))
            @test exact(f, u, x, εs, 2, θ) == of_net(f, u, x, εs, 2, θ)
        end
        slope(f) = Zygote.gradient(θ -> sum(abs2, f(phi, u, x, εs, 2, θ)), θ)[1]
        @test slope(exact) == slope(of_net)
    end
    @test_throws "layers made by luxlayer" exact(sin, u, X, steps((1, 0), 1e-2), 1, THETA)
end

@testset "it is that of phi, where another of equal sizes was given" begin
    other = PaddleFCNet(2, 1, 3, 5; dtype = "float64", activation = "sigmoid", seed = 7)
    phi, εs = luxlayer(other), steps((2, 0), 1e-2)
    expected = derivative(PaddleNet(other), X, THETA, (2, 0))
    @test exact_derivative(WRAPPER)(phi, u, X, εs, 2, THETA) == expected
    @test exact_derivative(lower(other))(phi, u, X, εs, 2, THETA) ≈ expected
    @test_throws "what was lowered is" exact_derivative(lower(WRAPPER))(phi, u, X, εs, 2, THETA)
    @test_throws "layers made by luxlayer" exact_derivative(WRAPPER)(x -> x, u, X, εs, 2, THETA)
    # Alike, in another precision, and where nothing is said of phi.
    same_chain = PaddleFCNet(2, 1, 3, 5; activation = "tanh", seed = 1)
    of_tanh = derivative(NET, X, THETA, (2, 0))
    @test exact_derivative(lower(WRAPPER))(luxlayer(same_chain), u, X, εs, 2, THETA) ≈ of_tanh
    @test exact_derivative(NET)(nothing, u, X, εs, 2, THETA) == of_tanh
end

@testset "points and parameters of two floating types, and whole numbers" begin
    exact, εs = exact_derivative(), steps((1, 1), 1e-2)
    layer, narrow = luxlayer(WRAPPER), Float32.(THETA)
    @test exact(layer, u, X, εs, 2, narrow) == exact(layer, u, X, εs, 2, Float64.(narrow))
    @test exact(layer, u, [1 0; -1 2], εs, 2, THETA) == exact(layer, u, [1.0 0; -1 2], εs, 2, THETA)
    slope(θ) = Zygote.gradient(θ -> sum(abs2, exact(layer, u, X, εs, 2, θ)), θ)[1]
    @test slope(narrow) == Float32.(slope(Float64.(narrow)))
end

@testset "one call for all points of a stencil" begin
    calls = Int[]
    counted(cord, θ, phi) = (push!(calls, size(cord, 2)); phi(cord, θ))
    stencil_derivative(NET, counted, X, steps((2, 2), 1e-2), 4, THETA)
    @test calls == [9 * 4]
end

@testset "steps that make no sense" begin
    exact = exact_derivative(NET)
    @test_throws ArgumentError exact(NET, u, X, steps((1, 0), 1e-2), 2, THETA)
    @test_throws ArgumentError exact(NET, u, X, [[1e-2, 1e-2]], 1, THETA)
    @test_throws DimensionMismatch exact(NET, u, X, [[1e-2]], 1, THETA)
    @test_throws ArgumentError stencil_derivative(NET, u, X, steps((5, 0), 1e-2), 5, THETA)
    for f in (exact, stencil_derivative), order in (-1, 3)
        @test_throws "of order $order takes as many steps" f(NET, u, X, steps((2, 0), 1e-2), order, THETA)
    end
end

@testset "order zero, and one point as a vector" begin
    none = Vector{Float64}[]
    @test stencil_derivative(NET, u, X, none, 0, THETA) == u(X, THETA, NET)
    @test exact_derivative(NET)(NET, u, X, none, 0, THETA) ≈ u(X, THETA, NET)
    point = X[:, 2]
    for index in ((1, 0), (0, 2))
        found = stencil_derivative(NET, u, point, steps(index, 1e-3), sum(index), THETA)
        @test size(found) == (1,)
        @test found ≈ stencil_derivative(NET, u, X, steps(index, 1e-3), sum(index), THETA)[:, 2]
    end
    @test derivative(NET, X, THETA, CartesianIndex(1, 1)) == derivative(NET, X, THETA, (1, 1))
    both = derivatives(NET, X, THETA, (CartesianIndex(0, 1), (2, 0)))
    @test all(map(≈, both, derivatives(NET, X, THETA, ((0, 1), (2, 0)))))
    for index in (nothing, :xx, (1.0, 0), "20")
        @test_throws "must hold integers such as (2, 0)" derivative(NET, X, THETA, index)
    end
    for indices in (nothing, 2, (2, 0))
        @test_throws "a tuple or vector of multi-indices" derivatives(NET, X, THETA, indices)
    end
end

@testset "weights of the central differences of order $order" for (order, terms) in pairs(PaddleChainRules.CENTRAL)
    expected = FiniteDifferenceMethod(collect(first.(terms)), order).coefs
    @test collect(last.(terms)) ≈ expected rtol = 1e-12
end
