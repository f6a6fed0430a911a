using ChainRulesCore: AbstractThunk, NoTangent, ZeroTangent, frule, rrule, unthunk
using ChainRulesTestUtils: ⊢, test_frule, test_rrule
using FiniteDifferences: central_fdm, grad
using PaddleChainRules:
    PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivative, derivatives, jvp, laplacian, paddle
using PythonCall
using Random: Random, Xoshiro
using Zygote: Zygote

include("../oracle.jl")

# The net by hand, and its partial derivatives by nested finite differences in BigFloat, which
# share nothing with the package.
f64(layer) = (layer.to(dtype = "float64"); layer)

const FUNCTIONS = Dict(
    "tanh" => tanh, "sigmoid" => z -> 1 / (1 + exp(-z)), "sin" => sin,
    "silu" => z -> z / (1 + exp(-z)), "softplus" => z -> log1p(exp(z)), "identity" => identity,
)

function by_hand(ps, activation, x)
    f, layers = FUNCTIONS[activation], length(ps) ÷ 2
    for i in 1:layers
        x = ps[2i-1] * x + ps[2i]
        i < layers && (x = f.(x))
    end
    return x
end

function partial_by_hand(ps, activation, x, index)
    i = findfirst(>(0), index)
    i === nothing && return by_hand(ps, activation, x)
    lower = Base.setindex(index, index[i] - 1, i)
    h = big"1e-12"
    step = [j == i ? h : big(0) for j in eachindex(index)]
    plus = partial_by_hand(ps, activation, x + step, lower)
    return (plus - partial_by_hand(ps, activation, x - step, lower)) / 2h
end

exactly(ps, activation, x, index) =
    reduce(hcat, (partial_by_hand(map(p -> big.(p), ps), activation, big.(c), index) for c in eachcol(x)))

@testset "derivatives equal differences in BigFloat, $activation" for activation in
                                                                      sort!(collect(keys(FUNCTIONS)))
    setprecision(BigFloat, 300) do
        wrapper = PaddleFCNet(2, 3, 3, 4; dtype = "float64", activation, seed = 3)
        x = randn(Xoshiro(1), 2, 5)
        for index in ((0, 0), (1, 0), (0, 2), (1, 1), (2, 1), (2, 2), (0, 4))
            expected = exactly(wrapper.params, activation, x, index)
            found = derivative(wrapper, x, index)
            @test size(found) == (3, 5)
            @test same(found, Float64.(expected); rtol = 1e-12, atol = 1e-12)
        end
        expected = sum(exactly(wrapper.params, activation, x, i) for i in ((2, 0), (0, 2)))
        @test same(laplacian(wrapper, x), Float64.(expected); rtol = 1e-12, atol = 1e-12)
    end
end

@testset "rules, $activation" for activation in ("tanh", "gelu", "sigmoid", "elu")
    Random.seed!(4)
    wrapper = PaddleFCNet(3, 2, 3, 4; dtype = "float64", activation, seed = 5)
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), 3, 4)
    theta = reduce(vcat, vec.(wrapper.params))
    named = NamedTuple{Tuple(net.names)}(wrapper.params)
    for ps in (theta, named, wrapper.params)
        test_rrule(laplacian, net ⊢ NoTangent(), x, ps; check_inferred = false)
        for index in ((1, 0, 1), (0, 2, 0))
            test_rrule(
                derivative, net ⊢ NoTangent(), x, ps, index ⊢ NoTangent(); check_inferred = false,
            )
        end
    end
    test_rrule(laplacian, net ⊢ NoTangent(), x[:, 1], theta; check_inferred = false)
    for indices in (((0, 0, 0), (1, 0, 0), (0, 1, 1), (0, 0, 2)), [(0, 1, 0), (1, 2, 0)], ((1, 0, 0),))
        test_rrule(
            derivatives, net ⊢ NoTangent(), x, theta, indices ⊢ NoTangent(); check_inferred = false,
        )
    end
    _, back = rrule(laplacian, net, x, theta)
    @test back(ones(2, 4))[3] isa AbstractThunk
end

@testset "jvp and frule, $name" for (name, make) in [
    ("chain", () -> PaddleFCNet(3, 2, 3, 4; dtype = "float64", activation = "tanh", seed = 5)),
    ("a layer", () -> PaddleModuleWrapper(f64(paddle.nn.Sequential(
        paddle.nn.Linear(3, 4), paddle.nn.Silu(), paddle.nn.Linear(4, 2), paddle.nn.Tanh())))),
]
    Random.seed!(4)
    wrapper = make()
    net, x = PaddleNet(wrapper), randn(Xoshiro(1), 3, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    named = NamedTuple{Tuple(net.names)}(wrapper.params)
    for ps in (theta, named, NamedTuple{reverse(keys(named))}(named), wrapper.params)
        test_frule(net ⊢ NoTangent(), x, ps; check_inferred = false)
    end
    v = randn(Xoshiro(2), 3, 5)
    _, expected = frule((NoTangent(), v, ZeroTangent()), net, x, theta)
    h = 1e-5
    @test same(expected, (wrapper(x + h * v) - wrapper(x - h * v)) / 2h; rtol = 1e-7, atol = 1e-8)
    @test frule((NoTangent(), v), wrapper, x)[2] == expected
    @test_throws DimensionMismatch frule((NoTangent(), v[:, 1:2], ZeroTangent()), net, x, theta)
    err = @test_throws DimensionMismatch frule((NoTangent(), v, wrapper.params[2:end]), net, x, wrapper.params)
    @test occursin("the tangent is a tuple of", err.value.msg)
    isempty(net.handle.activation) && continue
    @test same(jvp(net, x, theta, v), expected; rtol = 1e-12, atol = 1e-13)
    @test same(jvp(wrapper, x, v), expected; rtol = 1e-12, atol = 1e-13)
    same_for_all = jvp(net, x, theta, v[:, 1])
    @test same(same_for_all, jvp(net, x, theta, repeat(v[:, 1], 1, 5)); rtol = 1e-12, atol = 1e-13)
    test_rrule(jvp, net ⊢ NoTangent(), x, theta, v; check_inferred = false)
    test_rrule(jvp, net ⊢ NoTangent(), x, named, v[:, 1]; check_inferred = false)
    found = Zygote.gradient((x, t, v) -> sum(abs2, jvp(net, x, t, v)), x, theta, v)
    _, back = rrule(jvp, net, x, theta, v)
    for (a, b) in zip(found, back(2 .* jvp(net, x, theta, v))[3:end])
        @test same(a, unthunk(b); rtol = 1e-12, atol = 1e-13)
    end
    @test_throws DimensionMismatch jvp(net, x, theta, v[1:2, :])
    @test_throws ArgumentError jvp(net, x, theta, Float32.(v))
end

@testset "several derivatives in one crossing" begin
    wrapper = PaddleFCNet(2, 1, 3, 5; dtype = "float64", activation = "tanh", seed = 5)
    net, x = PaddleNet(wrapper), rand(Xoshiro(1), 2, 6)
    theta = reduce(vcat, vec.(wrapper.params))
    for indices in ([(0, 0), (2, 0), (0, 1)], [(1, 2), (0, 0)], [(0, 1)])
        found = derivatives(net, x, theta, indices)
        @test found isa Tuple && length(found) == length(indices)
        for (value, index) in zip(found, indices)
            @test same(value, derivative(net, x, theta, index); rtol = 1e-12, atol = 1e-13)
        end
        @test found == derivatives(wrapper, x, indices) == derivatives(wrapper, x, theta, indices)
    end
    indices = ((0, 0), (0, 1), (1, 0), (2, 0))
    residual(u, u_t, u_x, u_xx) = sum(abs2, u_t .+ u .* u_x .- 0.1 .* u_xx)
    found = Zygote.gradient((x, t) -> residual(derivatives(net, x, t, indices)...), x, theta)
    expected = Zygote.gradient(x, theta) do x, t
        residual(net(x, t), map(i -> derivative(net, x, t, i), indices[2:4])...)
    end
    @test all(map((a, b) -> same(a, b; rtol = 1e-11, atol = 1e-12), found, expected))
    # Of one output only, which leaves the others without a cotangent.
    one(t) = sum(abs2, derivatives(net, x, t, indices)[3])
    @test same(
        Zygote.gradient(one, theta)[1],
        Zygote.gradient(t -> sum(abs2, derivative(net, x, t, (1, 0))), theta)[1];
        rtol = 1e-11, atol = 1e-12,
    )
    for (wrong, words) in (
        (((1, 0), (1, 0)), "each once"), ((), "one derivative at least"), ((1, 0), "a tuple or vector of multi-indices"),
        (((5, 0),), "highest is 4"),
    )
        err = @test_throws ArgumentError derivatives(net, x, theta, wrong)
        @test occursin(words, err.value.msg)
    end
end

@testset "a loss of a differential equation, through Zygote" begin
    wrapper = PaddleFCNet(2, 1, 3, 5; dtype = "float64", activation = "tanh", seed = 5)
    net, x = PaddleNet(wrapper), rand(Xoshiro(1), 2, 6)
    theta = reduce(vcat, vec.(wrapper.params))
    function residual(f, x, ps)
        u, u_x, u_t = f(x, ps), derivative(f, x, ps, (1, 0)), derivative(f, x, ps, (0, 1))
        return sum(abs2, u_t .+ u .* u_x .- 0.1 .* laplacian(f, x, ps))
    end
    found = Zygote.gradient((x, t) -> residual(net, x, t), x, theta)
    expected = grad(central_fdm(5, 1), (x, t) -> residual(net, x, t), x, theta)
    @test same(found[1], expected[1]; rtol = 1e-8, atol = 1e-9)
    @test same(found[2], expected[2]; rtol = 1e-8, atol = 1e-9)
    # The same by the wrapper, whose parameters are its own.
    loss(w) = sum(abs2, laplacian(w, x)) + sum(abs2, derivative(w, x, (1, 1)))
    by_wrapper = Zygote.gradient(loss, wrapper)[1]
    loss_of(t) = sum(abs2, laplacian(wrapper, x, t)) + sum(abs2, derivative(wrapper, x, t, (1, 1)))
    by_theta = Zygote.gradient(loss_of, theta)[1]
    @test by_wrapper.net === nothing
    @test last(by_wrapper.params) === nothing # a constant beside the derivatives
    parts = map((p̄, p) -> p̄ === nothing ? zero(p) : p̄, by_wrapper.params, wrapper.params)
    @test same(reduce(vcat, vec.(parts)), by_theta; rtol = 1e-13, atol = 1e-13)
end

@testset "any chain, shapes, and parameters changed in place" begin
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 2))
    wrapper = PaddleModuleWrapper(layer)
    for dims in ((3, 4), (3,), (3, 1), (3, 2, 4), (3, 0))
        x = randn(Xoshiro(1), Float32, dims)
        @test size(laplacian(wrapper, x)) == size(derivative(wrapper, x, (1, 1, 0))) == (2, dims[2:end]...)
    end
    x = randn(Xoshiro(1), Float32, 3, 4)
    before = laplacian(wrapper, x)
    wrapper.params[end-1] .*= 2
    @test same(laplacian(wrapper, x), 2before)
    @test same(laplacian(PaddleModuleWrapper(layer), x), before)
end

@testset "any net of one array" begin
    paddle.set_default_dtype("float64")
    parts = paddle.nn.Linear(2, 5), paddle.nn.LayerNorm(5), paddle.nn.Silu(), paddle.nn.Linear(5, 3)
    normed = PaddleModuleWrapper(paddle.nn.Sequential(parts...))
    paddle.set_default_dtype("float32")
    own = PaddleFCNet(2, 1, 2, 4; dtype = "float64", activation = paddle.tanh, seed = 1)
    x, e = randn(Xoshiro(2), 2, 7), [1e-3, 0]
    for w in (normed, own)
        differences = (w(x .+ e) .- 2 .* w(x) .+ w(x .- e)) ./ 1e-6
        u_xx = derivative(w, x, (2, 0))
        @test same(u_xx, differences; rtol = 1e-4, atol = 1e-5)
        @test same(laplacian(w, x), u_xx .+ derivative(w, x, (0, 2)); rtol = 1e-12, atol = 1e-12)
        net, theta = PaddleNet(w), reduce(vcat, vec.(w.params))
        loss(x, t) = sum(abs2, laplacian(net, x, t)) + sum(jvp(net, x, t, [1.0, 2.0]))
        found = Zygote.gradient(loss, x, theta)
        expected = grad(central_fdm(5, 1), loss, x, theta)
        @test same(found[1], expected[1]; rtol = 1e-7, atol = 1e-7)
        @test same(found[2], expected[2]; rtol = 1e-7, atol = 1e-7)
    end
end

@testset "refusals" begin
    wrapper = PaddleFCNet(2, 1, 2, 4; seed = 1)
    x = rand(Float32, 2, 3)
    for (index, kind, words) in (
        ((1,), DimensionMismatch, "has 1 entries, the net has 2"),
        ((1, 0, 0), DimensionMismatch, "has 3 entries, the net has 2"),
        ((3, 2), ArgumentError, "order 5, the highest is 4"),
        ((-1, 1), ArgumentError, "must not be negative"),
        ((0.5, 1), ArgumentError, "must hold integers"),
        ((true, false), ArgumentError, "must hold integers"),
        ("xy", ArgumentError, "must hold integers"),
    )
        err = @test_throws kind derivative(wrapper, x, index)
        @test occursin(words, err.value.msg)
    end
    batch = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(2, 3), paddle.nn.BatchNorm1D(3)))
    err = @test_throws PyException laplacian(batch, x)
    @test occursin("depends on other rows", sprint(showerror, err.value))
    @test_throws DimensionMismatch laplacian(wrapper, rand(Float32, 3, 3))
    @test_throws ArgumentError laplacian(wrapper, rand(2, 3))
end
