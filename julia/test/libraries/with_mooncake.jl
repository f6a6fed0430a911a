# Included by mooncake.jl where Mooncake is there.

using Mooncake: Mooncake
using PaddleChainRules: laplacian

include("backends.jl")

const BACKEND = DI.AutoMooncake(; config = nothing)

@testset "AutoMooncake" begin
    check_backend(BACKEND)
    f = of_several()
    @test near(DI.gradient(f, BACKEND, SEQUENCES), differences(f, SEQUENCES))
end

@testset "by a wrapper, by keyword, and by Laplacians" begin
    w, net, theta, named = made()
    by_wrapper(w) = sum(abs2, w(X))
    cache = Mooncake.prepare_gradient_cache(by_wrapper, w)
    value, (_, found) = Mooncake.value_and_gradient!!(cache, by_wrapper, w)
    by_theta(θ) = sum(abs2, net(X, θ))
    @test value ≈ by_theta(theta)
    @test near(reduce(vcat, map(vec, found.fields.params)), differences(by_theta, theta))
    f(θ) = sum(abs2, laplacian(net, X, θ))
    @test near(DI.gradient(f, BACKEND, theta), differences(f, theta))
    g(θ) = sum(abs2, net(X, θ; seed = 3))
    @test near(DI.gradient(g, BACKEND, theta), differences(g, theta))
end

@testset "what it refuses" begin
    _, net, theta, _ = made()
    @test_throws "no forward mode of Mooncake" DI.derivative(t -> sum(net(X, t .* theta)), DI.AutoMooncakeForward(), 1.0)
    @test_throws "give the net a plain one" DI.gradient(θ -> sum(net(X, view(θ, :))), BACKEND, theta)
end
