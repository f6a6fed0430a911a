using FFTW: FFTW
using ForwardDiff: ForwardDiff
using Functors: fmap
using NNlib: NNlib
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, PaddleNet, lower, paddle, save_lowered
using PythonCall
using Random: Xoshiro
using SpecialFunctions: SpecialFunctions
using Zygote: Zygote

include("../oracle.jl")
include("../process.jl")

const NETS = python_module("lowered_nets")
const NAMES = pyconvert(Vector{String}, pylist(NETS.NETS))

shapes(name) = [Tuple(reverse(pyconvert(Vector{Int}, shape))) for shape in NETS.NETS[name][1]]
argument(name, T, size, seed = 1) =
    name == "words" ? rand(Xoshiro(seed), 0:8, size) : randn(Xoshiro(seed), T, size)
function arguments(name, T; samples = nothing)
    first_size, rest... = shapes(name)
    n = first_size[end]
    each = map((first_size, rest...)) do size
        size = samples !== nothing && size[end] == n ? (size[1:end-1]..., samples) : size
        argument(name, T, size)
    end
    return each
end
alone(xs) = length(xs) == 1 ? only(xs) : xs

"Relative to the largest entry."
close(found::AbstractArray, expected::AbstractArray; tol) =
    same(found, expected; rtol = tol, atol = tol * maximum(abs, expected; init = 0))
close(found::Tuple, expected::Tuple; tol) = all(map((a, b) -> close(a, b; tol), found, expected))
close(found::NamedTuple{K}, expected::NamedTuple{K}; tol) where {K} =
    close(Tuple(found), Tuple(expected); tol)
close(::Nothing, ::Nothing; tol) = true

"A scalar of all outputs, each entry with a weight of its own."
weighed(y::AbstractArray) = sum(y .* reshape(sin.(1:length(y)), size(y)))
weighed(ys) = sum(weighed, values(ys))

@testset "$name" for name in NAMES
    for (dtype, T, tol) in (("float32", Float32, 2e-5), ("float64", Float64, 1e-12))
        wrapper = PaddleModuleWrapper(NETS.make(name, dtype))
        xs = arguments(name, T)
        lowered = lower(wrapper, xs...)
        @test close(lowered(xs...), wrapper(xs...); tol)
        @test lowered.net.call.samples == 0
        T == Float32 && continue
        for samples in (1, 7)
            more = arguments(name, T; samples)
            @test close(lowered(more...), wrapper(more...); tol)
        end
        # By the rules, on both sides.
        net, x, theta = wrapper.net, alone(xs), reduce(vcat, vec.(wrapper.params))
        found = Zygote.gradient((x, ps) -> weighed(lowered.net(x, ps)), x, theta)
        expected = Zygote.gradient((x, ps) -> weighed(net(x, ps)), x, theta)
        @test close(found[2], expected[2]; tol = 10tol)
        name == "words" || @test close(found[1], expected[1]; tol = 10tol)
    end
end

@testset "any kind of number: $name" for name in ("modified MLP", "random weight factorization", "GRU")
    wrapper = PaddleModuleWrapper(NETS.make(name, "float64"))
    x = only(arguments(name, Float64))
    lowered = lower(wrapper, x)
    y, exact = lowered(x), fmap(p -> big.(p), lowered)(big.(x))
    @test close(map(a -> Float64.(a), y isa Tuple ? y[1] : y), map(a -> Float64.(a), y isa Tuple ? exact[1] : exact); tol = 1e-12)
    v = randn(Xoshiro(2), size(x))
    found = ForwardDiff.derivative(t -> weighed(lowered(x .+ t .* v)), 0.0)
    gradient = Zygote.gradient(x -> weighed(wrapper(x)), x)[1]
    @test isapprox(found, sum(gradient .* v); rtol = 1e-11)
end

@testset "Zygote within Zygote, and through the code alone" begin
    wrapper = PaddleModuleWrapper(NETS.make("random weight factorization", "float64"))
    x = randn(Xoshiro(1), 3, 4)
    lowered = lower(wrapper, x)
    slope(w) = sum(abs2, Zygote.gradient(x -> weighed(w(x)), x)[1])
    found, expected = (Zygote.gradient(slope, w)[1].params for w in (lowered, wrapper))
    @test close(found, expected; tol = 1e-10)
    call = lowered.net.call
    plain(x) = weighed(call.value((x,), wrapper.params, call.constants[1]))
    @test close(Zygote.gradient(plain, x)[1], Zygote.gradient(x -> weighed(wrapper(x)), x)[1]; tol = 1e-11)
end

@testset "nested arguments and results" begin
    wrapper = PaddleModuleWrapper(NETS.Nested())
    x = (randn(Xoshiro(1), Float32, 3, 5), (randn(Xoshiro(2), Float32, 4, 5), randn(Xoshiro(3), Float32, 2)))
    lowered = lower(wrapper, x...)
    @test close(lowered(x...), wrapper(x...); tol = 1e-5)
    @test keys(lowered(x...)) == (:a, :b)
    f(w) = x -> weighed(w(x...).a) + 2 * weighed(w(x...).b)
    found, expected = (Zygote.gradient(f(w), x)[1] for w in (lowered, wrapper))
    @test close(found, expected; tol = 1e-5)
end

@testset "what was given beside arrays is the same, or refused" begin
    wrapper = PaddleModuleWrapper(NETS.Scaled())
    x, y = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 3, 5)
    lowered = lower(wrapper, x, 2; shift = y)
    @test close(lowered(x, 2; shift = y), wrapper(x, 2; shift = y); tol = 1e-5)
    @test_throws "no arrays are" lowered(x, 3; shift = y)
    @test_throws "nested as" lowered(x, 2)
    @test_throws "nested as" lowered(x)
    @test close(lowered((x, 2); shift = y), wrapper((x, 2); shift = y); tol = 1e-5) # taken apart, as by the wrapper
    @test_throws "nested as" lowered((x,), 2; shift = y)
end

@testset "statistics in and out, $mode" for mode in (Val(true), Val(false))
    paddle.seed(3)
    layer = paddle.nn.Sequential(
        paddle.nn.Conv2D(2, 4, 3; bias_attr = false), paddle.nn.BatchNorm2D(4), paddle.nn.ReLU(), paddle.nn.Flatten(), paddle.nn.Linear(36, 3),
    )
    net, ps = PaddleNet(layer), PaddleModuleWrapper(layer).params
    x = randn(Xoshiro(1), Float32, 5, 5, 2, 3)
    st = merge(PaddleChainRules.initial_state(net; seed = 1), (; training = mode))
    lowered = lower(net, x, st)
    (y, next), (ȳ, expected) = lowered(x, ps, st), net(x, ps, st)
    @test close(y, ȳ; tol = 2e-5) && close(next.buffers, expected.buffers; tol = 2e-5)
    @test next.seed == expected.seed && next.training == expected.training
    other = merge(st, (; training = mode === Val(true) ? Val(false) : Val(true)))
    @test_throws "lower it with this state" lowered(x, ps, other)
    # In another order, and refused where one is of another size.
    @test first(lowered(x, ps, merge(st, (; buffers = reverse(st.buffers))))) == y
    @test_throws "buffer 1._mean has size" lowered(x, ps, merge(st, (; buffers = map(b -> b[1:2], st.buffers))))
    grads(f) = Zygote.gradient((x, ps) -> weighed(first(f(x, ps, st))), x, ps)
    @test close(grads(lowered), grads(net); tol = 2e-4)
end

@testset "parameters are checked as the net's" begin
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.Tanh(), paddle.nn.Linear(5, 2))
    wrapper = PaddleModuleWrapper(layer)
    lowered, ps, x = lower(wrapper.net), wrapper.params, ones(Float32, 3, 4)
    theta = reduce(vcat, vec.(ps))
    @test_throws ArgumentError lowered(x, ps[1:2])
    @test_throws ArgumentError lowered(x, (a = ps[1], b = ps[2], c = ps[3], d = ps[4]))
    for wrong in ((ps[3], ps[2], ps[1], ps[4]), [theta; 1], theta[1:end-1])
        @test_throws DimensionMismatch lowered(x, wrong)
    end
    err = @test_throws DimensionMismatch lowered(ones(Float32, 2, 4), ps)
    @test occursin("(3, n)", err.value.msg)
end

@testset "what can't be lowered, by name and place" begin
    err = @test_throws "dropout" lower(PaddleModuleWrapper(paddle.nn.Dropout(0.5)), ones(Float32, 3, 4))
    @test occursin("in Julia", sprint(showerror, err.value))
    err = @test_throws ArgumentError lower(PaddleModuleWrapper(paddle.nn.LayerNorm(2)))
    @test occursin("lower(net, x)", err.value.msg)
end

@testset "files that need no Paddle: $name" for (name, T, tol, make, x) in (
    ("encoder", Float64, 1e-12, () -> NETS.make("Transformer encoder", "float64"), randn(Xoshiro(1), 8, 5, 3)),
    ("resnet", Float32, 1e-5, () -> (paddle.seed(1); paddle.vision.models.resnet18(; num_classes = 5).eval()), randn(Xoshiro(1), Float32, 32, 32, 3, 2)),
)
    wrapper, folder = PaddleModuleWrapper(make()), mktempdir()
    path = joinpath(folder, "saved $name.jl")
    @test save_lowered(path, lower(wrapper, x)) == path
    write(joinpath(folder, "x"), x)
    code = """
    include(raw"$path")
    x = reshape(collect(reinterpret($T, read(raw"$(joinpath(folder, "x"))"))), $(size(x)))
    names = string.(keys(Base.loaded_modules))
    any(n -> occursin("PythonCall", n) || occursin("PaddleChainRules", n), names) && error("Python")
    write(raw"$(joinpath(folder, "y"))", Saved$(uppercasefirst(name)).net(x))
    """
    status, _, _, errors = run_julia(code; threads = 1)
    @test status == 0 || error(errors)
    y = wrapper(x)
    found = reshape(collect(reinterpret(T, read(joinpath(folder, "y")))), size(y))
    @test close(found, y; tol)
end
