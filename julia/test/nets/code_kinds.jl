# Layers of many kinds as machine code that Julia calls, for any number of samples, beside the same through Python.

using ComponentArrays: ComponentVector
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, compile, explain, paddle, pullback
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../has_code.jl")

const FLOATS = (Float64,) # Float32 in code.jl
include("each_form.jl")

const nn = paddle.nn
"By name a layer, and the size of one sample."
const KINDS = (
    "norms" => (() -> nn.Sequential(nn.Linear(3, 16), nn.LayerNorm(16), nn.GELU(), nn.GroupNorm(2, 16), nn.Linear(16, 2)), (3,)),
    "convolutions" => (
        () -> nn.Sequential(
            nn.Conv2D(2, 4, 3; padding = 1), nn.BatchNorm2D(4), nn.ReLU(), nn.MaxPool2D(2), nn.Conv2D(4, 3, 2; stride = 2),
            nn.Flatten(), nn.Linear(3, 2), nn.Softmax(),
        ),
        (5, 6, 2),
    ),
    "attention" => (() -> nn.TransformerEncoderLayer(8, 2, 16; dropout = 0.0), (8, 5)),
    "turned convolutions" => (() -> nn.Sequential(nn.Conv1DTranspose(2, 3, 4; stride = 2), nn.Tanh(), nn.AvgPool1D(2)), (7, 2)),
)

HAS_CODE && @testset "layers of many kinds, any number of samples: $name" for (name, (make, size)) in KINDS
    layer = make()
    layer.eval()
    plain, wrapper = (PaddleModuleWrapper(layer; jit) for jit in (false, true))
    for n in (11, 13) # which are no sizes of the nets
        @test occursin(CODE, compile(wrapper, randn(Xoshiro(0), Float32, size..., n)))
    end
    for n in (4, 3, 2, 6, 3, 17, 1)
        @test n == 1 || occursin(CODE, explain(wrapper, randn(Float32, size..., n)))
        x = randn(Xoshiro(n), Float32, size..., n)
        ȳ = randn(Xoshiro(n + 1), Float32, Base.size(plain(x)))
        for _ in 1:2
            expected, by = Zygote.withgradient((w, x) -> sum(ȳ .* w(x)), plain, x)
            value, found = Zygote.withgradient((w, x) -> sum(ȳ .* w(x)), wrapper, x)
            @test wrapper(x) ≈ plain(x)
            @test value ≈ expected
            @test found[2] ≈ by[2]
            largest = maximum(g -> maximum(abs, g), by[1].params)
            @test all(((a, b),) -> maximum(abs, a .- b) <= 1.0f-5 * largest, zip(found[1].params, by[1].params))
        end
    end
end

HAS_CODE && @testset "recurrent layers, any number of samples: $(kind)" for kind in (:LSTM, :GRU)
    layer = pygetattr(nn, string(kind))(3, 4, 2; direction = "bidirect")
    plain, wrapper = (PaddleModuleWrapper(layer; jit) for jit in (false, true))
    for n in (13, 17)
        @test occursin(CODE, compile(wrapper, randn(Xoshiro(0), Float32, 3, 6, n)))
    end
    last(w, x) = w(x)[2] isa Tuple ? w(x)[2][2] : w(x)[2]
    for n in (5, 2, 13, 1, 40)
        x, ȳ, c = randn(Xoshiro(n), Float32, 3, 6, n), randn(Xoshiro(1), Float32, 8, 6, n), randn(Xoshiro(2), Float32, 4, n, 4)
        for _ in 1:2
            expected, by = Zygote.withgradient((w, x) -> sum(ȳ .* w(x)[1]) + sum(c .* last(w, x)), plain, x)
            value, found = Zygote.withgradient((w, x) -> sum(ȳ .* w(x)[1]) + sum(c .* last(w, x)), wrapper, x)
            @test value ≈ expected
            @test found[2] ≈ by[2]
            @test all(((a, b),) -> isapprox(a, b; rtol = 1e-4), zip(found[1].params, by[1].params))
        end
    end
end

HAS_CODE && @testset "words by their numbers, of which Paddle refuses some" begin
    layer = nn.Sequential(nn.Embedding(11, 6), nn.Flatten(), nn.LayerNorm(24), nn.Tanh(), nn.Linear(24, 3))
    plain, wrapper = (PaddleModuleWrapper(layer; jit) for jit in (false, true))
    words(n, seed = n) = rand(Xoshiro(seed), 0:10, 4, n)
    for n in (13, 17)
        @test occursin(CODE, compile(wrapper, words(n)))
    end
    for n in (5, 2, 13, 1, 40)
        x, ȳ = words(n, n + 1), randn(Xoshiro(n), Float32, 3, n)
        for _ in 1:2
            @test wrapper(x) ≈ plain(x)
            expected = Zygote.gradient(w -> sum(ȳ .* w(x)), plain)[1].params
            found = Zygote.gradient(w -> sum(ȳ .* w(x)), wrapper)[1].params
            @test all(((a, b),) -> isapprox(a, b; rtol = 1e-4), zip(found, expected))
        end
        for bad in (11, -2, typemax(Int), typemin(Int))
            slip = copy(x)
            slip[end] = bad
            for call in (w -> w(slip), w -> Zygote.gradient(w -> sum(w(slip)), w))
                @test_throws "OP(embedding)" call(plain)
                @test_throws "OP(embedding)" call(wrapper)
            end
        end
        @test wrapper(x) ≈ plain(x)
        _, back = Zygote.pullback(w -> w(x), wrapper)
        kept = copy(x)
        x[1] = 99 # after the way there
        n == 1 || @test_throws "out of range on the way back" back(ȳ)
        x .= kept
    end
end

HAS_CODE && @testset "gradients of gradients by Zygote" begin
    @test becomes_code() do net, x, ps
        Zygote.gradient((x, p) -> sum(abs2, Zygote.gradient(x -> sum(abs2, net(x, p)), x)[1]), x, ps)
    end
end
