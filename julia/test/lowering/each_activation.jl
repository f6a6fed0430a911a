const SEVERAL = ((0, 0, 0), (1, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 1), (2, 0, 0))

"A net with parameters that are all different, biases too."
function random_net(activation, layers; dtype = "float64")
    wrapper = PaddleFCNet(3, 2, layers, 5; dtype, activation, seed = 7)
    foreach(p -> p .= randn(Xoshiro(length(p)), eltype(p), size(p)), wrapper.params)
    return wrapper
end

"Relative to the largest entry."
close(found, expected; tol = 1e-12) =
    same(found, expected; rtol = tol, atol = tol * maximum(abs, expected; init = 1))

@testset "the derivatives of the Paddle call, $name" for name in ACTIVATIONS
    for (dtype, tol) in (("float64", 1e-11), ("float32", 1e-4))[1:(name == "tanh" ? 2 : 1)]
        wrapper = random_net(name, 3; dtype)
        lowered, net = lower(wrapper), PaddleNet(wrapper)
        theta = reduce(vcat, vec.(wrapper.params))
        named = NamedTuple{Tuple(net.names)}(wrapper.params)
        for dims in ((3, 4), (3,), (3, 2, 5), (3, 0))
            x = randn(Xoshiro(1), eltype(theta), dims)
            @test close(laplacian(lowered, x), laplacian(wrapper, x); tol)
            for (a, b) in zip(derivatives(lowered, x, SEVERAL), derivatives(wrapper, x, SEVERAL))
                @test close(a, b; tol)
            end
            for ps in (theta, named, wrapper.params)
                @test close(derivative(lowered.net, x, ps, (1, 1, 0)), derivative(net, x, ps, (1, 1, 0)); tol)
            end
        end
        name in ("tanh", "gelu", "elu") || continue
        # Zygote takes our rules on both sides, of Paddle's net by Python.
        x = randn(Xoshiro(1), eltype(theta), 3, 4)
        loss(f, x, ps) = sum(abs2, laplacian(f, x, ps)) / 100 +
                         sum(sum(k .* sin.(d)) for (k, d) in enumerate(derivatives(f, x, ps, SEVERAL)))
        found = Zygote.gradient((x, ps) -> loss(lowered.net, x, ps), x, theta)
        expected = Zygote.gradient((x, ps) -> loss(net, x, ps), x, theta)
        @test all(map((a, b) -> close(a, b; tol = 10tol), found, expected))
    end
end
