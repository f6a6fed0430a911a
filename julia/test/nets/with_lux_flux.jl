# Included by lux_flux.jl where Lux and Flux are there.

using Adapt: adapt
using Flux: Flux
using Functors: Functors, fmap
using Lux: Lux
using Optimisers: Optimisers
using PaddleChainRules: LayerError, PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, luxlayer, paddle
using PythonCall
using Random: Random, Xoshiro
using Zygote: Zygote

include("../oracle.jl")

exact(a, b) = same(a, b; rtol = 1e-12, atol = 1e-13)

"Linear, BatchNorm, dropout, Linear, with statistics of their own."
function noisy()
    paddle.seed(1)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Tanh(), paddle.nn.Dropout(0.5),
        paddle.nn.Linear(4, 2),
    )
    layer[1]._mean.set_value(to_tensor(randn(Xoshiro(5), Float32, 4)))
    return layer
end

"The layer itself in test mode."
function quiet_twin(layer)
    copied = pyimport("copy").deepcopy(layer)
    copied.eval()
    return copied
end

@testset "Flux.testmode! and trainmode!" begin
    layer = noisy()
    w, x, c = PaddleModuleWrapper(layer), randn(Xoshiro(1), Float32, 3, 6), randn(Xoshiro(2), Float32, 2, 6)
    (expected,), by_param, (by_x,) = native(quiet_twin(layer), (x,), (c,))
    @test Flux.testmode!(w) === w
    @test same(w(x), expected) && same(PaddleNet(w)(x, w.params), expected)
    grads = Flux.gradient((w, x) -> sum(c .* w(x)), w, x)
    @test same(grads[2], by_x) && all(map(same, grads[1].params, Tuple(by_param)))
    Flux.trainmode!(w)
    @test w(x) != w(x)
    inside = Flux.gradient((w, x) -> sum(c .* Flux.testmode!(w)(x)), w, x)
    @test same(inside[2], by_x) && all(map(same, inside[1].params, Tuple(by_param)))
    for mode in (:auto, nothing)
        Flux.testmode!(w, mode)
        @test w(x) != w(x) # as it was wrapped
    end
    Flux.testmode!(w, false)
    @test w(x) != w(x)
    @test_throws ArgumentError Flux.testmode!(w, :off)
    # Within a chain, whose other layers change too.
    chain = Flux.Chain(Flux.Dense(3 => 3), w, Flux.Dropout(0.5))
    Flux.testmode!(chain)
    @test chain(x) == chain(x) && chain[3].active === false && same(w(x), expected)
    Flux.trainmode!(chain)
    @test w(x) != w(x)
    err = @test_throws ArgumentError Flux.testmode!(PaddleNet(w))
    @test occursin("PaddleChainRules.testmode(net)", err.value.msg)
end

@testset "Flux.state and loadmodel!" begin
    layer = noisy()
    w, x = Flux.testmode!(PaddleModuleWrapper(layer)), randn(Xoshiro(1), Float32, 3, 6)
    state = Flux.state(w)
    @test keys(state) == (:params, :buffers) && state.params == w.params
    @test state.buffers.var"1._mean" == from_numpy(layer[1]._mean)
    paddle.seed(9)
    other = Flux.testmode!(PaddleModuleWrapper(paddle.nn.Sequential(
        paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Tanh(), paddle.nn.Dropout(0.5),
        paddle.nn.Linear(4, 2),
    )))
    foreach(_ -> other(x), 1:5)
    chains = map(w -> Flux.Chain(Flux.Scale(3), w), (w, other))
    @test !same(chains[2](x), chains[1](x))
    Flux.loadmodel!(chains[2], Flux.state(chains[1]))
    @test same(chains[2](x), chains[1](x)) && same(chains[2](x), w(x))
    @test occursin("plus 8", sprint(show, MIME"text/plain"(), chains[1]))
end

@testset "f64 and f32, $(nameof(package))" for package in (Flux, Lux)
    layer = noisy()
    layer.eval()
    w, x, c = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 6), randn(Xoshiro(2), 2, 6)
    double = pyimport("copy").deepcopy(layer).to(dtype = "float64")
    (expected,), by_param, (by_x,) = native(double, (x,), (c,))
    for wide in (package.f64(w), fmap(package.f64, w))
        @test exact(wide(x), expected)
        grads = Zygote.gradient((w, x) -> sum(c .* w(x)), wide, x)
        @test exact(grads[2], by_x) && all(map(exact, grads[1].params, Tuple(by_param)))
        @test package.f32(wide)(Float32.(x)) == w(Float32.(x))
    end
    chain = package.f64(Flux.Chain(Flux.Scale(3), w))
    @test exact(chain(x), expected)
    @test eltype(package.f16(w).params[1]) == Float16
    ps, st = map(package.f64, Lux.setup(Xoshiro(1), luxlayer(w)))
    found = Zygote.withgradient((x, ps) -> sum(c .* luxlayer(w)(x, ps, st)[1]), x, ps)
    @test exact(found.grad[1], by_x) && all(map(exact, values(found.grad[2]), Tuple(by_param)))
end

@testset "Flux.outputsize" begin
    w = PaddleModuleWrapper(noisy())
    @test Flux.outputsize(w, (3, 7)) == (2, 7)
    @test Flux.outputsize(w, (3,); padbatch = true) == (2, 1)
    conv = PaddleModuleWrapper(paddle.nn.Conv2D(3, 5, 3; stride = 2))
    chain = Flux.Chain(Flux.Conv((3, 3), 1 => 3), conv, Flux.flatten, Flux.Dense(5 * 6 * 7 => 2))
    @test Flux.outputsize(chain[1:2], (17, 15, 1, 4)) == size(chain[1:2](zeros(Float32, 17, 15, 1, 4)))
    @test Flux.outputsize(chain[1:3], (17, 15, 1, 4)) == size(chain[1:3](zeros(Float32, 17, 15, 1, 4)))
    @test Flux.outputsize(Flux.f64(w), (3, 7)) == (2, 7)
    paddle.seed(3)
    drawn = w(ones(Float32, 3, 6))
    paddle.seed(3)
    Flux.outputsize(w, (3, 7))
    @test w(ones(Float32, 3, 6)) == drawn # no numbers were drawn
    @test_throws LayerError Flux.outputsize(w, (4, 7))
end

@testset "devices" begin
    w, x = PaddleModuleWrapper(noisy()), randn(Xoshiro(1), Float32, 3, 6)
    Flux.testmode!(w)
    for move in (Flux.cpu, Lux.cpu_device(), w -> adapt(Array, w), Lux.cpu_device(Float32))
        moved = move(w)
        @test moved isa PaddleModuleWrapper && moved.params == w.params && moved(x) == w(x)
    end
    wide = Lux.cpu_device(Float64)(w)
    @test eltype(wide.params[1]) == Float64
    @test same(Float32.(wide(Float64.(x))), w(x))
    @test Lux.cpu_device()(PaddleNet(w)) === PaddleNet(w)
    ps, st = Lux.setup(Xoshiro(1), luxlayer(w)) .|> Lux.cpu_device()
    @test same(luxlayer(w)(x, ps, st)[1], PaddleModuleWrapper(w.net, values(ps))(x))
end

@testset "Flux.train! and a copy in test mode" begin
    w = PaddleModuleWrapper(noisy())
    x, y = randn(Xoshiro(1), Float32, 3, 20), randn(Xoshiro(2), Float32, 2, 20)
    chain = Flux.Chain(w, Flux.Dense(2 => 2))
    evaluated = Flux.testmode!(deepcopy(chain)) # a copy has a mode of its own
    loss(m, x, y) = sum(abs2, m(x) .- y)
    before = loss(evaluated, x, y)
    opt = Flux.setup(Optimisers.Adam(0.05), chain)
    for _ in 1:60
        Flux.train!(loss, chain, [(x, y)], opt)
    end
    @test chain(x) != chain(x) && evaluated(x) == evaluated(x)
    Flux.loadmodel!(evaluated, Flux.state(chain))
    @test loss(evaluated, x, y) < before
end

@testset "JLArrays" begin
    if Base.identify_package("JLArrays") === nothing
        skip_test("nets/lux_flux, moves to a device", "JLArrays not in Julia's environment")
    else
        JLArrays = Base.require(Base.identify_package("JLArrays"))
        w, x = PaddleModuleWrapper(noisy()), randn(Xoshiro(1), Float32, 3, 6)
        JLArray = JLArrays.JLArray
        there = Base.invokelatest(adapt, JLArray, w)
        @test all(p -> p isa JLArray, there.params) && all(b -> b isa JLArray, Functors.children(there).buffers)
        err = @test_throws ArgumentError Base.invokelatest(there, x)
        @test occursin("lives on a device that can't be shared with Paddle", err.value.msg)
        back = Base.invokelatest(adapt, Array, there)
        @test back.params == w.params && PaddleChainRules.testmode(back)(x) == PaddleChainRules.testmode(w)(x)
    end
end
