@testset "up to the fourth order, and along directions: $name" for name in HIGH_ORDER
    wrapper = PaddleModuleWrapper(python_module("lowered_nets").make(name, "float64"))
    x, v = randn(Xoshiro(1), 3, 4), randn(Xoshiro(2), 3, 4)
    lowered = lower(wrapper, x)
    for index in ((1, 0, 0), (0, 2, 0), (1, 0, 2), (4, 0, 0), (2, 0, 2))
        @test close(derivative(lowered, x, index), derivative(wrapper, x, index); tol = 1e-10)
    end
    @test close(laplacian(lowered, x), laplacian(wrapper, x))
    @test close(laplacian(lowered, x[:, 1:3]), laplacian(wrapper, x[:, 1:3]))
    @test close(jvp(lowered, x, v), jvp(wrapper, x, v))
    @test close(jvp(lowered, x, v[:, 1]), jvp(wrapper, x, v[:, 1]))
    along(t) = lowered(x .+ t .* v)
    @test close(jvp(lowered, x, v), ForwardDiff.derivative(along, 0.0))
    loss(w) = sum(abs2, derivative(w, x, (0, 2, 0)) .+ w(x))
    found, expected = (Zygote.gradient(loss, w)[1] for w in (lowered, wrapper))
    @test all(map((a, b) -> close(a, b; tol = 1e-10), found.params, expected.params))
end
