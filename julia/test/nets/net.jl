using FillArrays: Fill
using Functors: Functors
using GPUArraysCore: AbstractGPUArray
using PaddleChainRules: LayerError, PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using PythonCall
using Zygote: Zygote
using Random: Random, Xoshiro

include("../oracle.jl")

@testset "a Sequential built in Julia" begin
    layer = sequential()
    wrapper = PaddleModuleWrapper(layer)
    @test map(size, wrapper.params) == ((16, 3), (16,), (2, 16), (2,))
    x = randn(Xoshiro(1), Float32, 3, 5)
    W1, b1, W2, b2 = wrapper.params
    y = W2 * (1 ./ (1 .+ exp.(-(W1 * x .+ b1)))) .+ b2
    @test same(wrapper(x), y)
    @test same(wrapper(x), from_numpy(layer(to_tensor(x))))
    @test wrapper.net.names == Symbol.(["0.weight", "0.bias", "2.weight", "2.bias"])
end

@testset "parameters are copies" begin
    layer = paddle.nn.Linear(3, 2)
    wrapper = PaddleModuleWrapper(layer)
    before = from_numpy(layer.weight)
    wrapper.params[1][1, 2] = 99
    @test same(from_numpy(layer.weight), before; rtol = 0, atol = 0)
    @test wrapper(Float32[0, 1, 0])[1] ≈ 99 + wrapper.params[2][1]
end

@testset "an update in place is seen at the next call" begin
    wrapper = PaddleFCNet(3, 2, 1, 1; dtype = "float64", seed = 1)
    x = randn(Xoshiro(1), 3, 4)
    y = wrapper(x)
    wrapper.params[2] .+= [1.0, 2.0]
    @test wrapper(x) ≈ y .+ [1.0, 2.0]
end

@testset "PaddleFCNet, $dtype $activation, $n layers" for dtype in ("float32", "float64"),
    activation in ("sigmoid", "tanh", "relu", "sin"), n in (1, 2, 4)

    T = dtype == "float32" ? Float32 : Float64
    wrapper = PaddleFCNet(3, 2, n, 7; dtype, activation, seed = 3)
    @test length(wrapper.params) == 2n
    @test all(p -> eltype(p) == T, wrapper.params)
    f = Dict("sigmoid" => x -> 1 / (1 + exp(-x)), "tanh" => tanh,
        "relu" => x -> max(x, zero(x)), "sin" => sin)[activation]
    x = randn(Xoshiro(2), T, 3, 5)
    h = x
    for i in 1:n
        h = wrapper.params[2i-1] * h .+ wrapper.params[2i]
        i < n && (h = f.(h))
    end
    @test same(wrapper(x), h; rtol = 20eps(T), atol = 20eps(T))
end

@testset "seeds" begin
    a, b = PaddleFCNet(3, 2, 2, 5; seed = 4), PaddleFCNet(3, 2, 2, 5; seed = 4)
    @test a.params == b.params
    Random.seed!(1)
    c = PaddleFCNet(3, 2, 2, 5)
    Random.seed!(1)
    @test PaddleFCNet(3, 2, 2, 5).params == c.params
    @test PaddleFCNet(3, 2, 2, 5).params != c.params
end

@testset "a Python callable is an activation" begin
    square = pyeval("lambda x: x * x", @__MODULE__)
    wrapper = PaddleFCNet(3, 2, 2, 5; dtype = "float64", activation = square)
    W1, b1, W2, b2 = wrapper.params
    x = randn(Xoshiro(2), 3, 4)
    @test wrapper(x) ≈ W2 * (W1 * x .+ b1) .^ 2 .+ b2
end

@testset "PaddleNet takes parameters in every form" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; dtype = "float64", seed = 1)
    net = PaddleNet(wrapper)
    x = randn(Xoshiro(2), 3, 4)
    y = wrapper(x)
    theta = reduce(vcat, vec.(wrapper.params))
    named = NamedTuple{Tuple(net.names)}(wrapper.params)
    for ps in (wrapper.params, named, NamedTuple{reverse(keys(named))}(named), theta,
        view([0; theta], 2:33), map(p -> view(p, axes(p)...), wrapper.params))
        @test same(net(x, ps), y; rtol = 1e-15, atol = 1e-15)
    end
    @test PaddleNet(sequential()) isa PaddleNet
end

@testset "shapes of the input" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; dtype = "float64", seed = 1)
    x = randn(Xoshiro(2), 3, 4, 6)
    y = wrapper(x)
    @test size(y) == (2, 4, 6)
    @test wrapper(x[:, 2, 5]) ≈ y[:, 2, 5]
    @test wrapper(x[:, :, 5]) ≈ y[:, :, 5]
    @test wrapper(x[:, 2:2, 5]) ≈ y[:, 2:2, 5]
    @test size(wrapper(zeros(3, 0))) == (2, 0)
end

@testset "arrays other than plain ones" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; dtype = "float64", seed = 1)
    x = randn(Xoshiro(2), 4, 3)
    for y in (x', view(x', :, 2:3), Fill(0.5, 3, 4), reshape(view(x, :, 1:3), 3, 4),
        PermutedDimsArray(x, (2, 1)))
        @test wrapper(y) == wrapper(Array(y))
    end
end

@testset "several inputs and outputs" begin
    lstm = paddle.nn.LSTM(3, 5)
    wrapper = PaddleModuleWrapper(lstm)
    x = randn(Xoshiro(2), Float32, 3, 7, 2)
    y, (h, c) = wrapper(x)
    found, (fh, fc) = lstm(to_tensor(x))
    @test same(y, from_numpy(found))
    @test same(h, from_numpy(fh))
    @test same(c, from_numpy(fc))

    bilinear = paddle.nn.Bilinear(3, 4, 2)
    wrapper = PaddleModuleWrapper(bilinear)
    a, b = randn(Xoshiro(3), Float32, 3, 6), randn(Xoshiro(4), Float32, 4, 6)
    expected = from_numpy(bilinear(to_tensor(a), to_tensor(b)))
    @test same(wrapper(a, b), expected)
    @test same(wrapper.net((a, b), wrapper.params), expected)

    pyexec(
        """
        import collections, paddle
        Pair = collections.namedtuple("Pair", ["left", "right"])
        class Several(paddle.nn.Layer):
            def forward(self, x):
                return {"z": x, "a": [x * 2, Pair(x + 1, x.sum())]}
        """,
        Main,
    )
    several = PaddleModuleWrapper(pyeval("Several()", Main))
    out = several(Float32[1 2; 3 4])
    @test keys(out) == (:a, :z)
    @test out.z == [1 2; 3 4]
    @test out.a[1] == [2 4; 6 8]
    @test out.a[2].left == [2 3; 4 5]
    @test out.a[2].right == fill(10.0f0)
end

@testset "embedding takes Paddle's own indices" begin
    layer = paddle.nn.Embedding(6, 3)
    wrapper = PaddleModuleWrapper(layer)
    ids = [0 4; 5 1; 2 2]
    @test same(wrapper(ids), wrapper.params[1][:, ids .+ 1]; rtol = 0, atol = 0)
end

@testset "a layer keeps its mode and buffers" begin
    layer = paddle.nn.BatchNorm1D(3)
    layer.eval()
    wrapper = PaddleModuleWrapper(layer)
    @test length(wrapper.params) == 2
    x = randn(Xoshiro(2), Float32, 3, 7)
    @test same(wrapper(x), from_numpy(layer(to_tensor(x))))
end

@testset "one crossing a call, whatever the net" begin
    # Python's profiler sees every call; those without a caller come from Julia.
    pyexec(
        """
        import sys
        entered = []
        def watch(frame, event, arg):
            if event == "call" and frame.f_back is None:
                entered.append(frame.f_code.co_name)
        def start():
            entered.clear()
            sys.setprofile(watch)
        def stop():
            sys.setprofile(None)
            return [name for name in entered if name != "stop"]
        """,
        Main,
    )
    start, stop = pyeval("start", Main), pyeval("stop", Main)
    # To close a generator that somebody left unfinished looks like a call: what earlier tests have left goes first.
    GC.gc()
    PythonCall.GC.gc()
    pyimport("gc").collect()
    for layers in (1, 2, 9)
        wrapper = PaddleFCNet(3, 2, layers, 4; seed = 1)
        theta = reduce(vcat, vec.(wrapper.params))
        x = rand(Float32, 3, 5)
        # New parameters and known ones; then as they change in place, and as others come.
        named = NamedTuple{Tuple(wrapper.net.names)}(wrapper.params)
        for ps in (theta, theta, wrapper.params, named, theta)
            start()
            wrapper.net(x, ps)
            @test length(pyconvert(Vector{String}, stop())) == 1
        end
        for ps in (copy(theta), deepcopy(wrapper.params))
            start()
            y, reverse = PaddleChainRules.reversible(wrapper.net, (x,), ps)
            @test length(pyconvert(Vector{String}, stop())) == 1
            start()
            PaddleChainRules.gradients(reverse, PaddleChainRules.cotangents(reverse, y))
            @test pyconvert(Vector{String}, stop()) == ["backward"]
            start()
            Zygote.gradient((x, ps) -> sum(wrapper.net(x, ps)), x, ps)
            @test pyconvert(Vector{String}, stop())[2:end] == ["backward"]
        end
    end
end

@testset "parameters are found again by identity" begin
    wrapper = PaddleFCNet(3, 2, 3, 4; dtype = "float64", seed = 1)
    net, x = wrapper.net, randn(Xoshiro(1), 3, 5)
    theta = reduce(vcat, vec.(wrapper.params))
    y = net(x, theta)
    forward = pyint(pyimport("builtins").id(net.handle.forward))
    @test net(x, theta) == y
    @test pytruth(pyimport("builtins").id(net.handle.forward) == forward)
    theta .*= 2 # seen, though the array is the same
    @test net(x, theta) == net(x, copy(theta)) != y
    theta[3] = 7
    @test net(x, theta) == net(x, copy(theta))
    resized = copy(theta)
    net(x, resized)
    append!(resized, zeros(10^6)) # moves to other memory
    resize!(resized, length(theta))
    resized .= 0
    @test net(x, resized) == zeros(2, 5)
    view_of = view(theta, :)
    y = net(x, view_of)
    theta .= 0 # a view is copied at every call, so that its changes are seen too
    @test net(x, view_of) == zeros(2, 5) != y
    for _ in 1:200 # arrays that come and go may lie at the address of an earlier one
        fresh = randn(length(theta))
        a, b, c = net(x, fresh), net(x, fresh), net(x, copy(fresh))
        @test a ≈ b ≈ c
        rand() < 0.2 && GC.gc(false)
    end
end

@testset "Functors, deepcopy and printing leave the handle alone" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; seed = 1)
    x = rand(Float32, 3, 4)
    doubled = Functors.fmap(p -> p isa AbstractArray ? 2p : error("met $(typeof(p))"), wrapper)
    @test doubled isa PaddleModuleWrapper
    @test doubled.params == map(p -> 2p, wrapper.params)
    @test doubled.net.handle === wrapper.net.handle
    @test only(Functors.fleaves(wrapper.net)) === wrapper.net
    copied = deepcopy(wrapper)
    @test copied.net === wrapper.net
    copied.params[1] .= 0
    @test wrapper.params[1] != copied.params[1]
    @test copied(x) != wrapper(x)
    @test repr(wrapper) == "PaddleModuleWrapper(FCNet(3 => 5 => 2, sigmoid, float32), 32 parameters)"
    @test repr(wrapper.net) == "PaddleNet(FCNet(3 => 5 => 2, sigmoid, float32), 32 parameters)"
    @test repr(wrapper.net.handle) == "PaddleHandle(...)"
    @test repr(PaddleModuleWrapper(sequential())) == "PaddleModuleWrapper(Sequential, 98 parameters)"
end

message(err) = sprint(showerror, err)

struct ElsewhereArray{T,N} <: AbstractGPUArray{T,N}
    host::Array{T,N}
end
Base.size(x::ElsewhereArray) = size(x.host)

@testset "bad input" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; seed = 1)
    net, x = wrapper.net, rand(Float32, 3, 4)
    W1, b1, W2, b2 = wrapper.params
    theta = reduce(vcat, vec.(wrapper.params))
    named = NamedTuple{Tuple(net.names)}(wrapper.params)
    cases = [
        (() -> wrapper(rand(Float32, 4, 3)), DimensionMismatch, ("(4, 3)", "(3, n)")),
        (() -> wrapper(fill(1.0f0)), DimensionMismatch, ("()", "(3, n)")),
        (() -> wrapper(rand(3, 4)), ArgumentError, ("Float64", "convert it with Float32.(...), or the net to Float64")),
        (() -> wrapper([1 2; 3 4; 5 6]), ArgumentError, ("Int64", "convert it with Float32.(...)")),
        (() -> net(x, nothing), ArgumentError, ("a flat vector, a named tuple or a tuple", "got nothing")),
        (() -> net(x, W1), ArgumentError, ("a flat vector, a named tuple or a tuple", "0.weight, 0.bias")),
        (() -> net(x, (nothing, b1, W2, b2)), ArgumentError, ("parameter 0.weight must be an array of size (5, 3), got nothing",)),
        (() -> wrapper(ElsewhereArray(x)), ArgumentError, ("ElsewhereArray", "Array(x)")),
        (() -> PaddleModuleWrapper(paddle.nn.Embedding(6, 3))(UInt16[1 2]), ArgumentError,
            ("UInt16", "no Paddle counterpart")),
        (() -> wrapper(x, x), ArgumentError, ("one input", "2")),
        (() -> wrapper(1.0f0), ArgumentError, ("the number 1.0f0 is no array", "fill(1.0f0)")),
        (() -> net(1.0f0, theta), ArgumentError, ("net takes an array", "Float32")),
        (() -> net((x, Dict(1 => 2)), theta), ArgumentError, ("named tuples", "Dict")),
        (() -> net((; x), theta; x), ArgumentError, ("given twice", "x")),
        (() -> net(x, theta[2:end]), DimensionMismatch, ("length 31", "32", "0.weight, 0.bias, 1.weight, 1.bias in a row, of the sizes (5, 3), (5,), (2, 5), (2,)")),
        (() -> net(x, Float64.(theta)), ArgumentError, ("Float64", "Float32")),
        (() -> net(x, (W1, b1, W2)), ArgumentError, ("3 parameter arrays", "4")),
        (() -> net(x, (W1', b1, W2, b2)), DimensionMismatch, ("0.weight", "(3, 5)", "(5, 3)")),
        (() -> net(x, (Float64.(W1), b1, W2, b2)), ArgumentError, ("0.weight", "Float64")),
        (() -> net(x, Base.structdiff(named, NamedTuple{(Symbol("1.bias"),)})), ArgumentError,
            ("the names 0.weight, 0.bias, 1.weight, 1.bias; missing: 1.bias, unknown: none",)),
        (() -> net(x, merge(named, (gain = b2,))), ArgumentError, ("unknown: gain",)),
        (() -> PaddleFCNet(3, 2, 0, 5), ArgumentError, ("num_layers", "0")),
        (() -> PaddleFCNet(3, 0, 2, 5), ArgumentError, ("dim_out", "0")),
        (() -> PaddleFCNet(3, 2, 2, 5; dtype = "int8"), ArgumentError, ("int8", "float32")),
        (() -> PaddleFCNet(3, 2, 2, 5; activation = "swoosh"), ArgumentError, ("swoosh", "are elu, gelu, identity")),
        (() -> PaddleFCNet(3, 2, 2, 5; activation = tanh), ArgumentError, ("Python callable",)),
        (() -> PaddleModuleWrapper(3), ArgumentError, ("paddle.nn.Layer", "got an Int64")),
        (() -> PaddleModuleWrapper(sin), ArgumentError, ("paddle.nn.Layer", "got the function sin")),
        (() -> PaddleModuleWrapper(paddle.nn.Linear), ArgumentError, ("paddle.nn.Layer", "got Python's type")),
    ]
    for (call, kind, parts) in cases
        err = @test_throws kind call()
        for part in parts
            @test occursin(part, message(err.value))
        end
    end
    @test wrapper(x) isa Matrix{Float32} # and nothing is broken by them
end

@testset "Paddle's own errors are told with their traceback" begin
    conv = PaddleModuleWrapper(paddle.nn.Conv2D(3, 4, 3))
    err = @test_throws LayerError conv(rand(Float32, 5, 5, 2, 1))
    text = sprint(io -> showerror(io, err.value, []))
    @test occursin("ValueError", text)
    @test occursin("Python stacktrace", text)
    @test occursin("paddle_chainrules.nets", text)
end

@testset "frozen parameters" begin
    layer, x = sequential(), randn(Xoshiro(1), Float32, 3, 5)
    c = randn(Xoshiro(2), Float32, 2, 5)
    _, by_param, _ = native(layer, (x,), (c,))
    for (frozen, kept) in (("0.*", [3, 4]), (["*.bias"], [1, 3]), (("2.weight", "0.bias"), [1, 4]), ((), 1:4))
        wrapper = PaddleModuleWrapper(layer; frozen)
        @test length(wrapper.params) == length(kept)
        @test same(wrapper(x), PaddleModuleWrapper(layer)(x))
        _, reverse = PaddleChainRules.reversible(wrapper.net, (x,), wrapper.params)
        grads, _ = PaddleChainRules.gradients(reverse, PaddleChainRules.cotangents(reverse, c))
        @test all(map(same, grads, Tuple(by_param[kept])))
    end
    @test_throws ArgumentError PaddleModuleWrapper(layer; frozen = 1:2)
    err = try PaddleModuleWrapper(layer; frozen = "encoder.*") catch err err end
    @test occursin("there is no such parameter", sprint(showerror, err))
end

@testset "a net shows itself" begin
    wrapper = PaddleFCNet(3, 2, 2, 4; activation = "tanh", seed = 0)
    @test sprint(show, wrapper) == "PaddleModuleWrapper(FCNet(3 => 4 => 2, tanh, float32), 26 parameters)"
    text = sprint(show, MIME"text/plain"(), PaddleNet(wrapper))
    @test split(text, '\n') == [
        "PaddleNet(FCNet(3 => 4 => 2, tanh, float32), 26 parameters)",
        "  y = W2 * tanh.(W1 * x .+ b1) .+ b2",
        "  " * pyconvert(String, PaddleNet(wrapper).handle.object.runs),
        "  0.weight  4×3  Float32",
        "  0.bias    4    Float32",
        "  1.weight  2×4  Float32",
        "  1.bias    2    Float32",
    ]
    @test startswith(sprint(show, MIME"text/plain"(), wrapper), "PaddleModuleWrapper(")
    empty = PaddleModuleWrapper(paddle.nn.ReLU())
    @test startswith(sprint(show, MIME"text/plain"(), empty), "PaddleModuleWrapper(ReLU, 0 parameters)\n  It ")
end
