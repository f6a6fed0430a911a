# Paddle between layers of Julia, and a net that two others share.

using PaddleChainRules: PaddleModuleWrapper, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

exact(a, b) = same(a, b; rtol = 1e-11, atol = 1e-12)

struct Dense{W,B}
    weight::W
    bias::B
end
(d::Dense)(x) = tanh.(d.weight * x .+ d.bias)
Dense(rng, from, to) = Dense(randn(rng, to, from), randn(rng, to))

"The same layer in Paddle."
function in_paddle(d::Dense)
    linear = paddle.nn.Linear(size(d.weight, 2), size(d.weight, 1)).to(dtype = "float64")
    linear.weight.set_value(to_tensor(d.weight))
    linear.bias.set_value(to_tensor(d.bias))
    return paddle.nn.Sequential(linear, paddle.nn.Tanh())
end

@testset "a layer of Paddle between two of Julia" begin
    paddle.seed(1)
    middle = paddle.nn.Sequential(paddle.nn.Linear(4, 6), paddle.nn.LayerNorm(6)).to(dtype = "float64")
    first, last = Dense(Xoshiro(1), 3, 4), Dense(Xoshiro(2), 6, 2)
    x, c = randn(Xoshiro(3), 3, 5), randn(Xoshiro(4), 2, 5)
    model = (; first, middle = PaddleModuleWrapper(middle), last)
    whole = paddle.nn.Sequential(in_paddle(first), middle, in_paddle(last))
    (y,), by_param, (by_x,) = native(whole, (x,), (c,))
    @test unchanged(middle) do
        run(m, x) = m.last(m.middle(m.first(x)))
        @test exact(run(model, x), y)
        ḡ, x̄ = Zygote.gradient((m, x) -> sum(c .* run(m, x)), model, x)
        found = (ḡ.first.weight, ḡ.first.bias, ḡ.middle.params..., ḡ.last.weight, ḡ.last.bias)
        @test length(found) == length(by_param) == 8
        @test all(map(exact, found, Tuple(by_param)))
        @test exact(x̄, by_x)
    end
end

@testset "a net that two others share" begin
    paddle.seed(1)
    make(sizes...) = paddle.nn.Linear(sizes...).to(dtype = "float64")
    encoder = paddle.nn.Sequential(make(3, 4), paddle.nn.Tanh(), make(4, 5)).to(dtype = "float64")
    left, right = make(5, 2), make(5, 3)
    x, a, b = randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6), randn(Xoshiro(3), 3, 6)
    nets = map(PaddleModuleWrapper, (; encoder, left, right))
    function loss(nets)
        code = nets.encoder(x)
        return sum(a .* nets.left(code)) + sum(b .* nets.right(code))
    end
    layers = (encoder, left, right)
    before = map(snapshot, layers)
    ḡ = Zygote.gradient(loss, nets)[1]
    @test all(map(is_unchanged, layers, before))
    _, by_left, _ = native(paddle.nn.Sequential(encoder, left), (x,), (a,))
    _, by_right, _ = native(paddle.nn.Sequential(encoder, right), (x,), (b,))
    @test all(map(exact, ḡ.left.params, Tuple(by_left[5:6])))
    @test all(map(exact, ḡ.right.params, Tuple(by_right[5:6])))
    @test all(map(exact, ḡ.encoder.params, Tuple(by_left[1:4] .+ by_right[1:4])))
end
