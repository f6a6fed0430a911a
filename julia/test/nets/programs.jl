# Nets that run as programs, beside the same nets as Paddle runs them.

using ChainRulesCore: rrule, unthunk
using LuxCore: LuxCore
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, PaddleNet, luxlayer, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const nn = paddle.nn

"A class of layers whose forward is Python's own code."
function scaled_layer()
    space = pydict()
    pyexec(
        """
        import paddle
        class Scaled(paddle.nn.Layer):
            def __init__(self):
                super().__init__()
                self.linear = paddle.nn.Linear(3, 5)
                self.norm = paddle.nn.LayerNorm(5)
            def forward(self, x):
                y = self.norm(paddle.sin(self.linear(x)))
                y[0] = y[0] * 2.0
                return y * 0.5
        made = Scaled()
        """,
        space,
    )
    return space["made"]
end

shown(net) = sprint(show, MIME"text/plain"(), net)

const LAYERS = [
    "layers of Paddle's" =>
        () -> nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 4)),
    "a class" => scaled_layer,
    "another activation" => () -> nn.Sequential(nn.Linear(3, 4), nn.Hardswish(), nn.Linear(4, 2)),
]

@testset "as programs: $name" for (name, make) in LAYERS
    layer = make()
    plain, program = PaddleModuleWrapper(layer; jit = false), PaddleModuleWrapper(layer; jit = true)
    why_not = programs_are_on() ? "It runs as Paddle runs it." : "since programs are off"
    @test occursin(why_not, shown(plain))
    for batch in (2, 7)
        x = randn(Xoshiro(batch), Float32, 3, batch)
        y = plain(x)
        c = randn(Xoshiro(1), Float32, size(y))
        close(a, b) = isapprox(a, b; rtol = 1e-5, atol = 1e-5 * maximum(abs, b))
        expected, back = rrule(plain, x)
        by = map(unthunk, back(c))
        for _ in 1:3
            @test close(program(x), y)
            found, again = rrule(program, x)
            @test close(found, expected)
            m̄, x̄ = map(unthunk, again(c))
            @test close(x̄, by[2])
            @test all(map((a, b) -> close(unthunk(a), unthunk(b)), m̄.params, by[1].params))
            grads = Zygote.gradient((m, x) -> sum(c .* m(x)), program, x)
            @test close(grads[2], by[2])
        end
        theta = reduce(vcat, vec.(program.params))
        net = PaddleNet(program)
        by_theta = Zygote.gradient(t -> sum(c .* net(x, t)), theta)[1]
        @test close(by_theta, reduce(vcat, map(vec ∘ unthunk, by[1].params)))
    end
    @test occursin(programs_are_on() ? "It runs as a program" : "since programs are off", shown(program))
end

@testset "unasked, and only what is Paddle's" begin
    wrapper = PaddleModuleWrapper(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)))
    x = randn(Xoshiro(0), Float32, 3, 4)
    if programs_are_on()
        @test occursin("after 3 calls of a kind", shown(wrapper))
        for _ in 1:6
            rrule(wrapper, x)
        end
        @test occursin("It runs as a program", shown(wrapper))
        @test occursin("not all of its layers are Paddle's own", shown(PaddleModuleWrapper(scaled_layer())))
    end
end

@testset "statistics and seeds" begin
    layer = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1D(5), nn.Dropout(0.5))
    nets = [PaddleNet(layer; jit) for jit in (false, true)]
    theta = reduce(vcat, vec.(PaddleModuleWrapper(layer).params))
    x = randn(Xoshiro(2), Float32, 3, 6)
    for _ in 1:3
        (y, st), (z, st2) = map(nets) do net
            net(x, theta, PaddleChainRules.initial_state(net; seed = 4))
        end
        @test y ≈ z
        @test all(map(≈, values(st.buffers), values(st2.buffers)))
        by = map(nets) do net
            Zygote.gradient(t -> sum(abs2, net(x, t; seed = 3)), theta)[1]
        end
        @test by[1] ≈ by[2] rtol = 1e-4
    end
end

@testset "layers of Lux" begin
    layer = luxlayer(PaddleModuleWrapper(scaled_layer(); jit = true))
    ps, st = LuxCore.setup(Xoshiro(0), layer)
    x = randn(Xoshiro(0), Float32, 3, 4)
    results = [first(layer(x, ps, st)) for _ in 1:4]
    @test all(y -> y ≈ first(results), results)
end
