# Fully connected nets lowered, beside the Paddle call, for each of BUILT_IN.

@testset "equal to the Paddle call, $activation" for activation in BUILT_IN
    for (dtype, rtol) in (("float64", 1e-13), ("float32", 1e-5)), layers in (1, 3)
        wrapper = PaddleFCNet(3, 2, layers, 5; dtype, activation, seed = 7)
        net, T = PaddleNet(wrapper), eltype(wrapper.params[1])
        theta = reduce(vcat, vec.(wrapper.params))
        named = NamedTuple{Tuple(net.names)}(wrapper.params)
        for dims in ((3, 4), (3,), (3, 2, 5), (3, 0))
            x = 3 .* randn(Xoshiro(1), T, dims)
            expected = wrapper(x)
            @test same(lower(wrapper)(x), expected; rtol, atol = rtol)
            for ps in (theta, named, wrapper.params)
                @test same(lower(net)(x, ps), expected; rtol, atol = rtol)
            end
        end
    end
end
