# Nets as machine code that Julia calls: against pure Julia, native Paddle, and the same net through Python.

using ComponentArrays: ComponentVector
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, batched_jacobian, compile, derivatives, explain,
    forward!, laplacian, paddle, pullback
using PythonCall
using Random: Random, Xoshiro
using Serialization: deserialize, serialize
using Zygote: Zygote

include("../has_code.jl")
include("../oracle.jl")
include("../process.jl")

const FLOATS = (Float32,) # Float64 in code_kinds.jl
include("each_form.jl")

HAS_CODE && @testset "nothing is written beside the results" begin
    wrapper = PaddleFCNet(3, 2, 3, 7; activation = "silu", seed = 2)
    net, θ = PaddleNet(wrapper), flat(wrapper.params)
    compile(net, rand(Float32, 3, 5), θ)
    for n in (2, 3, 8, 9, 31)
        x, ȳ = randn(Xoshiro(n), Float32, 3, n), randn(Xoshiro(1), Float32, 2, n)
        expected, (x̄, θ̄) = net(x, θ), pullback(net, x, θ)[2](ȳ)
        room = fill(NaN32, 2n + 16)
        y = unsafe_wrap(Array, pointer(room, 9), (2, n))
        GC.@preserve room begin
            @test forward!(y, net, x, θ) === y
            @test y == expected
            @test all(isnan, room[[1:8; end-7:end]])
        end
        rooms = fill(NaN32, 3n + 16), fill(NaN32, length(θ) + 16)
        into = unsafe_wrap(Array, pointer(rooms[1], 9), (3, n)), unsafe_wrap(Array, pointer(rooms[2], 9), length(θ))
        GC.@preserve rooms begin
            pullback(net, x, θ)[2](ȳ; into)
            @test into[1] == x̄ && into[2] == θ̄
            @test all(room -> all(isnan, room[[1:8; end-7:end]]), rooms)
        end
    end
end

HAS_CODE && @testset "the code of derivatives for two numbers of samples serves others: $of" for of in (laplacian, batched_jacobian)
    net = PaddleFCNet(3, 2, 2, 6; activation = "tanh", dtype = "float64", seed = 1)
    slow = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 6), paddle.nn.Tanh(), paddle.nn.Linear(6, 2)); jit = false)
    θ = flat(net.params)
    for (n, calls) in ((5, 3), (9, 45), (14, 45), (300, 45))
        x = randn(Xoshiro(n), 3, n)
        expected = of(slow.net, x, θ)
        @test all(_ -> isapprox(of(net.net, x, θ), expected; rtol = 1e-9), 1:calls)
        n < 9 || @test code_count(net) == 1
    end
end

HAS_CODE && @testset "derivatives by the input: $name" for (name, of) in pairs((
    laplacian = (net, x, ps) -> (laplacian(net, x, ps),),
    derivatives = (net, x, ps) -> derivatives(net, x, ps, ((0, 0, 0), (1, 0, 0), (0, 1, 1))),
    named = (net, x, ps) -> Tuple(derivatives(net, x, ps, (u = (nothing,), u_x = (nothing, 1)))),
    jacobian = (net, x, ps) -> (batched_jacobian(net, x, ps),),
    jvp = (net, x, ps) -> (PaddleChainRules.jvp(net, x, ps, 2 .* x),),
    of_laplacian = (net, x, ps) -> Zygote.gradient((x, p) -> sum(abs2, laplacian(net, x, p)), x, ps),
))
    @test becomes_code(of)
end

HAS_CODE && @testset "several arguments, and others that are no arrays" begin
    space = pydict()
    pyexec(
        """
        import paddle
        class Gated(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.a, self.b = paddle.nn.Linear(3, 4), paddle.nn.Linear(2, 4)
            def forward(self, x, y, scale=None, twice=False):
                z = paddle.tanh(self.a(x)) * paddle.nn.functional.sigmoid(self.b(y))
                if twice:
                    z = z * 2.0
                return {"sum": z.sum(-1, keepdim=True), "all": z}
        made = Gated()
        """,
        space,
    )
    plain, wrapper = (PaddleModuleWrapper(space["made"]; jit) for jit in (false, true))
    x, y = randn(Xoshiro(1), Float32, 3, 6), randn(Xoshiro(2), Float32, 2, 6)
    c = (all = randn(Xoshiro(3), Float32, 4, 6), sum = randn(Xoshiro(4), Float32, 1, 6))
    ways = ((w -> w(x, y)), (w -> w(x, y; twice = true)), (w -> w(x, y; twice = false)))
    for call in ways
        expected, by = Zygote.withgradient(w -> (f = call(w); sum(c.all .* f.all) + sum(c.sum .* f.sum)), plain)
        for _ in 1:45
            value, found = Zygote.withgradient(w -> (f = call(w); sum(c.all .* f.all) + sum(c.sum .* f.sum)), wrapper)
            @test value ≈ expected
            @test all(map(near, found[1].params, by[1].params))
        end
        alone = Zygote.gradient(w -> sum(c.all .* call(w).all), wrapper)[1].params
        @test all(map(isapprox, alone, Zygote.gradient(w -> sum(c.all .* call(w).all), plain)[1].params))
    end
    @test occursin("Gradients are machine code", explain(wrapper.net, (x, y), wrapper.params))
    @test occursin("Gradients are machine code", explain(wrapper.net, (x, y), wrapper.params; twice = true))
end

HAS_CODE && @testset "what is no code says why" begin
    for (layer, reason) in (paddle.nn.Hardshrink() => "hardshrink", paddle.nn.Dropout(0.5) => "random numbers")
        wrapper = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), layer))
        @test occursin(reason, compile(wrapper, rand(Float32, 3, 5)))
    end
    wrapper = PaddleModuleWrapper(paddle.nn.Linear(3, 4); jit = false)
    @test occursin("through Python", compile(wrapper, rand(Float32, 3, 5)))
end

HAS_CODE && @testset "compile calls with columns of the caller's, and leaves random numbers alone" begin
    layer = paddle.nn.Sequential(paddle.nn.Embedding(6, 3), paddle.nn.Linear(3, 2))
    @test occursin(CODE, compile(PaddleModuleWrapper(layer), rand(Xoshiro(1), 0:5, 4, 8)))
    wrapper = PaddleFCNet(3, 2, 2, 5; seed = 1)
    Random.seed!(1)
    expected = rand()
    Random.seed!(1)
    compile(wrapper, rand(Xoshiro(1), Float32, 3, 4))
    @test rand() == expected
    space = pydict()
    pyexec(
        """
        import paddle
        class Picky(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.linear = paddle.nn.Linear(3, 4)
            def forward(self, x):
                assert x.shape[0] == 8
                return paddle.tanh(self.linear(x))
        made = Picky()
        """,
        space,
    )
    @test occursin(CODE, compile(PaddleModuleWrapper(space["made"]; jit = true), rand(Float32, 3, 8)))
end

HAS_CODE && @testset "kinds of calls by turns have their code each, and their reason" begin
    wrapper = PaddleModuleWrapper(paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 2)))
    x, none = rand(Xoshiro(1), Float32, 3, 5), zeros(Float32, 3, 0)
    for _ in 1:120
        wrapper(x)
        wrapper(none)
    end
    @test occursin("Values are machine code", explain(wrapper, x))
    @test occursin("through Python", explain(wrapper, none))
end

HAS_CODE && @testset "a pullback is not sent" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; seed = 1)
    for _ in 1:2
        _, back = pullback(wrapper, rand(Float32, 3, 4))
        @test_throws "can't go to another process" serialize(IOBuffer(), back)
        compile(wrapper, rand(Float32, 3, 4))
    end
    again = deserialize(seekstart((io = IOBuffer(); serialize(io, wrapper); io)))
    x = rand(Float32, 3, 4)
    @test occursin("too few", explain(again, x)) # its code is made anew
    @test again(x) ≈ wrapper(x)
end

HAS_CODE && @testset "calls go over to code while threads call; where it is off they don't" begin
    code = """
        using PaddleChainRules
        wrapper = PaddleFCNet(3, 2, 3, 8; activation = "tanh", seed = 1)
        x = rand(Float32, 3, 5)
        y = wrapper(x)
        PaddleChainRules.threaded() do
            Threads.@threads for i in 1:400
                isapprox(wrapper(x), y; rtol = 1e-6) || exit(7)
            end
        end
        print(PaddleChainRules.explain(wrapper, x), PaddleChainRules.compile(wrapper, x))
        """
    on, off = (run_julia(code; env = ("PADDLE_CHAINRULES_LOOPS" => loops,)) for loops in ("on", "off"))
    @test on[1:2] == off[1:2] == (0, 0)
    @test startswith(on[3], "Values are machine code, gradients go") && occursin(CODE, on[3])
    @test !occursin(CODE, off[3]) && occursin("PADDLE_CHAINRULES_LOOPS", off[3])
end
