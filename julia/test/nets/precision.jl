# Nets follow the element type of their parameters.

using Adapt: Adapt, adapt
using ForwardDiff: ForwardDiff
using Functors: Functors, fmap
using LuxCore: LuxCore
using PaddleChainRules: LayerError, PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, derivatives, jvp, laplacian, lower, luxlayer, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

exact(a, b) = same(a, b; rtol = 1e-12, atol = 1e-13)

# What f64 and f32 of Lux and Flux do.
struct To{T} end
Adapt.adapt_storage(::To{T}, x::AbstractArray{<:AbstractFloat}) where {T} = convert(AbstractArray{T}, x)
to(T, x) = fmap(y -> adapt(To{T}(), y), x)

function layers()
    paddle.seed(2)
    norm = paddle.nn.Sequential(
        paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.GELU(), paddle.nn.Linear(4, 2),
    )
    norm[1]._mean.set_value(to_tensor(randn(Xoshiro(5), Float32, 4)))
    norm.eval()
    return (
        norm, sequential(), paddle.nn.Linear(3, 2), paddle.nn.Bilinear(3, 3, 2),
        paddle.nn.TransformerEncoderLayer(4, 2, 8, dropout = 0.0), paddle.nn.GroupNorm(2, 4),
    )
end
inputs_of(layer, T) =
    pyhasattr(layer, "in2_features") || string(pytype(layer).__name__) == "Bilinear" ?
    (randn(Xoshiro(1), T, 3, 6), randn(Xoshiro(2), T, 3, 6)) :
    string(pytype(layer).__name__) in ("TransformerEncoderLayer", "GroupNorm") ?
    (randn(Xoshiro(1), T, 4, 4, 6),) : (randn(Xoshiro(1), T, 3, 6),)

@testset "a wrapper in double precision, $(pytype(layer).__name__)" for layer in layers()
    w, xs = PaddleModuleWrapper(layer), inputs_of(layer, Float64)
    double = pyimport("copy").deepcopy(layer).to(dtype = "float64")
    ys = from_numpy(double(map(to_tensor, xs)...))
    c = randn(Xoshiro(3), size(ys)...)
    (expected,), by_param, by_x = native(double, xs, (c,))
    @test unchanged(layer) do
        wide = to(Float64, w)
        @test all(p -> eltype(p) == Float64, wide.params) && all(p -> eltype(p) == Float32, w.params)
        for _ in 1:5 # from the fourth call on it is a program
            @test exact(wide(xs...), expected)
            ḡ = Zygote.gradient((w, xs) -> sum(c .* w(xs...)), wide, xs)
            @test all(map(exact, ḡ[1].params, Tuple(by_param)))
            @test all(map(exact, ḡ[2], Tuple(by_x)))
        end
        @test exact(adapt(To{Float64}(), w)(xs...), expected)
        @test w(map(x -> Float32.(x), xs)...) isa Array{Float32} # and the first one is as it was
        narrow = to(Float32, wide)
        @test narrow(map(x -> Float32.(x), xs)...) == w(map(x -> Float32.(x), xs)...)
        err = @test_throws ArgumentError wide(map(x -> Float32.(x), xs)...)
        @test occursin("Float32", err.value.msg) && occursin("Float64", err.value.msg)
        err = @test_throws ArgumentError w(xs...)
        @test occursin("Float32", err.value.msg) && occursin("Float64", err.value.msg)
    end
end

@testset "nets of parameters, as they come: $kind" for (kind, form) in (
    ("a vector", ps -> reduce(vcat, vec.(values(ps)))), ("a tuple", Tuple), ("by name", identity),
)
    w = PaddleFCNet(3, 2, 3, 4; activation = "tanh", seed = 1)
    net, x = PaddleNet(w), randn(Xoshiro(1), 3, 5)
    ps = form(NamedTuple{Tuple(net.names)}(map(p -> Float64.(p), w.params)))
    twin = PaddleNet(PaddleFCNet(3, 2, 3, 4; activation = "tanh", dtype = "float64"))
    losses = (
        (net, x, p) -> sum(abs2, net(x, p)), (net, x, p) -> sum(abs2, laplacian(net, x, p)),
        (net, x, p) -> sum(abs2, derivatives(net, x, p, ((0, 0, 0), (1, 1, 0)))[2]),
        (net, x, p) -> sum(abs2, jvp(net, x, p, x)),
        (net, x, p) -> sum(abs2, PaddleChainRules.vjp(net, x, p, ones(2, 5))[1]),
    )
    arrays(p̄) = p̄ isa AbstractVector ? (p̄,) : values(p̄)
    equal(a, b) = a === nothing ? b === nothing : exact(a, b) # the last bias has no slope
    for loss in losses
        found, expected = (Zygote.withgradient((x, p) -> loss(n, x, p), x, ps) for n in (net, twin))
        @test found.val == expected.val
        @test exact(found.grad[1], expected.grad[1])
        @test all(map(equal, arrays(found.grad[2]), arrays(expected.grad[2])))
    end
    @test repr(PaddleNet(to(Float64, w))) == repr(net)
    @test occursin(r"0.weight +4×3 +Float64", sprint(show, MIME"text/plain"(), to(Float64, w)))
end

@testset "mixed types" begin
    norm = first(layers())
    w, x = PaddleModuleWrapper(norm), randn(Xoshiro(1), 3, 6)
    wide = to(Float64, w)
    for call in (
        () -> PaddleModuleWrapper(w.net, wide.params)(x), () -> PaddleModuleWrapper(wide.net, w.params)(Float32.(x)),
        () -> PaddleNet(w)(x, wide.params),
    )
        err = @test_throws ArgumentError call()
        @test occursin(r"the parameters hold Float(32|64), the buffer 1._mean of the net Float(64|32)", err.value.msg)
    end
    some(T, n) = Base.setindex(w.params, T.(w.params[n]), n)
    err = @test_throws ArgumentError PaddleNet(w)(x, some(Float64, 2))
    @test occursin("0.bias has element type Float64", err.value.msg)
    half = fmap(b -> size(b) == (4,) && b === Functors.children(w).buffers[1] ? Float64.(b) : b, w)
    err = @test_throws ArgumentError half(Float32.(x))
    @test occursin("the buffers of a wrapper hold Float64 and Float32", err.value.msg)
    # One that Paddle's CPU build has no products for, by Paddle's own error.
    @test_throws LayerError to(Float16, PaddleModuleWrapper(paddle.nn.Linear(3, 2)))(Float16.(x))
end

@testset "a parameter and a buffer without dimensions" begin
    scope = pydict()
    pyexec("""
    import paddle

    class Scaled(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.k = self.create_parameter([], default_initializer=paddle.nn.initializer.Constant(2.0))
            self.linear = paddle.nn.Linear(3, 2)
            self.register_buffer("shift", paddle.to_tensor(0.5))

        def forward(self, x):
            return self.linear(x) * self.k + self.shift
    """, scope)
    w, x = PaddleModuleWrapper(scope["Scaled"]()), randn(Xoshiro(1), 3, 6)
    wide = fmap(a -> Float64.(a), w) # which gives numbers for the two
    @test wide.params[1] == fill(2.0) && Functors.children(wide).buffers.shift == fill(0.5)
    k, W, b = ps = map(p -> Float64.(p), w.params) # with a number
    @test k isa Float64
    plain(x, (k, W, b)) = (W * x .+ b) .* k .+ 0.5
    @test exact(wide(x), plain(x, ps))
    net, c = PaddleNet(wide), randn(Xoshiro(2), 2, 6)
    expected = Zygote.gradient(ps -> sum(c .* plain(x, ps)), ps)[1]
    found = Zygote.gradient(w -> sum(c .* w(x)), wide)[1].params
    @test found[1] isa Array{Float64,0} && found[1][] ≈ expected[1] && all(map(exact, found[2:3], expected[2:3]))
    for given in (ps, NamedTuple{Tuple(net.names)}(ps))
        @test exact(net(x, given), plain(x, ps))
        found = Zygote.gradient(p -> sum(c .* net(x, p)), given)[1]
        @test found[1] isa Float64 && found[1] ≈ expected[1] && all(map(exact, values(found)[2:3], expected[2:3]))
        y, back = PaddleChainRules.pullback(net, x, given)
        @test back(c)[2][1] ≈ expected[1]
        ṗs = map((p, i) -> i == 1 ? 1.0 : zero(p), given, typeof(given) <: Tuple ? (1, 2, 3) : NamedTuple{keys(given)}((1, 2, 3)))
        @test sum(c .* jvp(net, x, given, nothing, ṗs)) ≈ expected[1]
    end
    @test ForwardDiff.derivative(t -> sum(c .* net(x, (t, W, b))), k) ≈ expected[1]
    @test exact(lower(net, x)(x, ps), plain(x, ps)) && exact(fmap(a -> 1 .* a, lower(wide, x))(x), plain(x, ps))
    err = @test_throws ArgumentError net(x, (k, 1.0, b))
    @test occursin("parameter linear.weight must be an array of size (2, 3), got a Float64", err.value.msg)
end

@testset "a net is lowered in the precision of its input" begin
    w, x = PaddleFCNet(3, 2, 2, 4; activation = "tanh", seed = 1), randn(Xoshiro(1), 3, 6)
    wide = to(Float64, w)
    for (net, ps) in ((PaddleNet(w), wide.params), (PaddleNet(wide), wide.params))
        @test exact(lower(net, x)(x, ps), wide(x))
    end
    @test lower(PaddleNet(wide), Float32.(x))(Float32.(x), w.params) ≈ w(Float32.(x))
    moving = to(Float64, PaddleModuleWrapper(first(layers())))
    st = to(Float64, PaddleChainRules.initial_state(moving; seed = 1))
    @test exact(lower(PaddleNet(moving), x, st)(x, moving.params, st)[1], moving(x))
end

@testset "states" begin
    norm = first(layers())
    double = pyimport("copy").deepcopy(norm).to(dtype = "float64")
    double.train()
    layer, x = luxlayer(PaddleModuleWrapper(norm)), randn(Xoshiro(1), 3, 6)
    c = randn(Xoshiro(3), 2, 6)
    ps, st = map(part -> to(Float64, part), LuxCore.setup(Xoshiro(1), layer))
    st = LuxCore.trainmode(st)
    @test eltype(st.buffers.var"1._mean") == Float64
    (expected,), by_param, (by_x,) = native(double, (x,), (c,))
    y, next = layer(x, ps, st)
    @test exact(y, expected)
    @test exact(next.buffers.var"1._mean", from_numpy(double[1]._mean))
    x̄, p̄s = Zygote.gradient((x, ps) -> sum(c .* layer(x, ps, st)[1]), x, ps)
    @test exact(x̄, by_x) && all(map(exact, values(p̄s), Tuple(by_param)))
    @test layer(x, ps, to(Float32, st))[1] isa Matrix{Float64} # as a layer of Lux
    drawn = luxlayer(to(Float64, PaddleFCNet(3, 2, 2, 4; seed = 1)))
    @test eltype(LuxCore.initialparameters(Xoshiro(1), drawn)[1]) == Float64
    # A net without parameters, whose buffers tell.
    plain = PaddleModuleWrapper(paddle.nn.BatchNorm1D(3, weight_attr = false, bias_attr = false))
    wide = to(Float64, plain)
    @test wide(x) isa Matrix{Float64}
    y, next = PaddleNet(plain)(x, (), to(Float64, PaddleChainRules.initial_state(plain)))
    @test y == wide(x) && eltype(next.buffers[1]) == Float64
end
