# The same call gives the same answer from Julia: the first time and the fortieth, at points where things go wrong.

using PaddleChainRules: PaddleModuleWrapper, paddle
using PythonCall: pydict, pyexec
using Zygote: Zygote

include("../oracle.jl")

python_module("layers") # from which the program below imports
const SPACE = pydict()
pyexec(
    """
    import paddle
    from layers import Square
    from paddle_chainrules import cond

    class Of(paddle.nn.Layer):
        def __init__(self, function):
            super().__init__()
            self.function = function
            self.w = self.create_parameter([2], dtype="float64")
            self.w.set_value(paddle.ones([2], "float64"))
        def forward(self, x):
            return self.function(x * self.w)

    def sum_of_rows(x):
        total = paddle.zeros([1, 2], "float64")
        for row in x:
            total[0] += row * row
        return total

    LAYERS = {
        "a branch beside a root": Of(lambda x: cond(x.sum() > 0, lambda x: x**2, lambda x: paddle.sqrt(-x), x)),
        "the root": Of(lambda x: cond(x.sum() < 0, lambda x: x**2, lambda x: paddle.sqrt(x), x)),
        "a PyLayer": Of(lambda x: x + Square.apply(x)),
        "a root of abs": Of(lambda x: paddle.sqrt(x.abs())),
        "a norm": Of(lambda x: paddle.linalg.norm(0.0 * x, axis=1)),
        "a constant that is written into": Of(sum_of_rows),
    }
    """,
    SPACE,
)
const POINTS = [1.0 2.0 0.0; 2.0 0.0 3.0]
const SLOPES = Dict(
    "a branch beside a root" => 2 .* POINTS,
    "the root" => map(x -> x > 0 ? 0.5 / sqrt(x) : Inf, POINTS),
    "a PyLayer" => 1 .+ 2 .* POINTS,
    "a root of abs" => map(x -> x > 0 ? 0.5 / sqrt(x) : 0.0, POINTS),
    "a norm" => zero(POINTS),
    "a constant that is written into" => 2 .* POINTS,
)

@testset "$name, jit = $jit" for name in sort!(collect(keys(SLOPES))), jit in (false, true)
    net = PaddleModuleWrapper(SPACE["LAYERS"][name]; jit)
    first = net(POINTS)
    for call in 1:40
        value, (slope,) = Zygote.withgradient(x -> sum(net(x)), POINTS)
        call in (1, 2, 4, 33, 40) || continue
        @test isequal(value, sum(first)) || value ≈ sum(first)
        @test all(zip(slope, SLOPES[name])) do (a, b)
            return isequal(a, b) || isapprox(a, b; rtol = 1e-10, atol = 1e-12)
        end
    end
end
