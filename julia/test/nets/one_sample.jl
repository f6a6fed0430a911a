# One sample as vectors, wherever a net takes it as a batch of one.

using PaddleChainRules:
    PaddleChainRules, PaddleModuleWrapper, PaddleNet, derivative, derivatives, initial_state, jvp,
    laplacian, lower, paddle, pullback, testmode, vjp
using ForwardDiff: ForwardDiff
using PythonCall: PyException, pyexec
using Random: Xoshiro
using Zygote: Zygote

const nn = paddle.nn
column(x) = reshape(x, :, 1)
near(a, b) = size(a) == size(b) && isapprox(a, b; rtol = 1e-10, atol = 1e-12)

function doubled(layer)
    w = PaddleModuleWrapper(layer)
    params = map(p -> 0.3 .* randn(Xoshiro(length(p)), size(p)...), w.params)
    net = PaddleNet(testmode(w))
    return net, params
end

rows() = pyexec(
    @NamedTuple{Rows},
    """
    import paddle
    class Rows(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = paddle.nn.Linear(3, 4)
        def forward(self, x, y):
            n, _ = x.shape
            return {"z": self.inner(x), "w": (y * n, x.sum())}
    """,
    @__MODULE__,
).Rows()

paddle.set_default_dtype("float64")
const NETS = (
    "LayerNorm" => doubled(nn.LayerNorm(3)),
    "LayerNorm within" => doubled(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2))),
    "BatchNorm" => doubled(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1D(5), nn.Tanh(), nn.Linear(5, 2))),
    "Linear, which takes vectors" => doubled(nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2))),
)
const OF_TWO = doubled(rows())
paddle.set_default_dtype("float32")
const X = randn(Xoshiro(1), 3)

@testset "value and gradients: $name" for (name, (net, ps)) in NETS
    theta = reduce(vcat, vec.(ps))
    for given in (ps, theta), _ in 1:4 # before it is a program, and then
        y, batch = net(X, given), net(column(X), given)
        @test y isa Vector{Float64} && near(column(y), batch)
        c = randn(Xoshiro(2), size(y))
        x̄, p̄s = vjp(net, X, given, c)
        x̄s, p̄s_batch = vjp(net, column(X), given, column(c))
        @test near(column(x̄), x̄s) && all(map(near, p̄s, p̄s_batch))
        loss(x, ps) = sum(abs2, net(x, ps))
        found, expected = Zygote.gradient(loss, X, given), Zygote.gradient(loss, column(X), given)
        @test near(column(found[1]), expected[1]) && all(map(near, found[2], expected[2]))
        into = (zero(X), nothing)
        pullback(net, X, given)[2](c; into)
        @test near(column(into[1]), x̄s)
    end
end

@testset "derivatives: $name" for (name, (net, ps)) in NETS
    v = randn(Xoshiro(3), 3)
    @test near(column(jvp(net, X, ps, v)), jvp(net, column(X), ps, column(v)))
    @test near(column(laplacian(net, X, ps)), laplacian(net, column(X), ps))
    @test near(column(derivative(net, X, ps, (1, 1, 0))), derivative(net, column(X), ps, (1, 1, 0)))
    indices = ((0, 0, 0), (2, 0, 0), (0, 1, 1))
    for (found, expected) in zip(derivatives(net, X, ps, indices), derivatives(net, column(X), ps, indices))
        @test near(column(found), expected)
    end
    jacobian(x) = ForwardDiff.jacobian(x -> vec(net(x, ps)), x)
    @test near(jacobian(X), jacobian(column(X)))
    slope(x) = sum(abs2, laplacian(net, x, ps))
    @test near(column(Zygote.gradient(slope, X)[1]), Zygote.gradient(slope, column(X))[1])
end

@testset "with a state" begin
    net, ps = last(NETS[3])
    for training in (false, true)
        st = merge(initial_state(net; seed = 1), (; training = Val(training), buffers = map(b -> Float64.(b), initial_state(net).buffers)))
        (y, next), (batch, after) = net(X, ps, st), net(column(X), ps, st)
        @test near(column(y), batch) && all(map(near, next.buffers, after.buffers))
    end
end

@testset "several arguments" begin
    net, ps = OF_TWO
    y = randn(Xoshiro(4), 2)
    expected = net((column(X), column(y)), ps)
    for found in (net((X, y), ps), net((; x = X, y), ps))
        @test near(column(found.z), expected.z) && near(column(found.w[1]), expected.w[1])
        @test near(found.w[2], expected.w[2])
    end
    found = Zygote.gradient((x, y) -> sum(abs2, net((x, y), ps).w[1]), X, y)
    batch = Zygote.gradient((x, y) -> sum(abs2, net((x, y), ps).w[1]), column(X), column(y))
    @test found[1] === nothing ? batch[1] === nothing : near(column(found[1]), batch[1])
    @test near(column(found[2]), batch[2])
    @test_throws PyException net((X, column(y)), ps) # not all are vectors
end

@testset "the error is that of the vector" begin
    net, ps = last(NETS[2])
    @test_throws "got an array of size (4,), it needs (3,)" net(randn(4), ps)
end

@testset "lowered" begin
    paddle.seed(2)
    wrapper = PaddleModuleWrapper(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2)))
    x = Float32.(X)
    for lowered in (lower(wrapper, x), lower(wrapper, randn(Xoshiro(5), Float32, 3, 4)))
        @test isapprox(lowered(x), wrapper(x); rtol = 1e-4)
        found, expected = (Zygote.gradient((w, x) -> sum(abs2, w(x)), w, x) for w in (lowered, wrapper))
        @test isapprox(found[2], expected[2]; rtol = 1e-3)
        @test all(map((a, b) -> isapprox(a, b; rtol = 1e-3), found[1].params, expected[1].params))
        @test isapprox(laplacian(lowered, x), laplacian(wrapper, x); rtol = 1e-3)
        @test isapprox(jvp(lowered, x, x), jvp(wrapper, x, x); rtol = 1e-3)
    end
    @test_throws DimensionMismatch lower(wrapper, randn(Float32, 3, 4))(randn(Float32, 4))
end
