# What a layer refuses: its name and sizes in Julia's terms, and Paddle's own words beneath.

using LuxCore: LuxCore
using PaddleChainRules:
    PaddleChainRules, LayerError, PaddleModuleWrapper, PaddleNet, batched_jacobian, derivative, initial_state,
    jvp, laplacian, lower, luxlayer, paddle, pullback
using PythonCall: PyException, pyexec
using Random: Xoshiro
using Zygote: Zygote

const nn = paddle.nn
wrapped(layers...; options...) = PaddleModuleWrapper(nn.Sequential(layers...); options...)
normed(; options...) = wrapped(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2); options...)
const W = normed()
const X, WRONG = randn(Xoshiro(1), Float32, 3, 5), randn(Xoshiro(2), Float32, 5, 7)
numbers(size...) = randn(Xoshiro(3), Float32, size...)

own_layer() = pyexec(
    @NamedTuple{Own},
    """
    import paddle
    class Own(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = paddle.nn.Linear(3, 4)
            self.table = self.create_parameter([6, 2])
        def forward(self, x, scale=1.0):
            return scale * self.inner(x) @ self.table
    """,
    @__MODULE__,
).Own()

# Of each the name of the layer, and what is said of it.
const SLIPS = (
    "features" => (() -> W(WRONG), "0", "layer \"0\" (Linear) got an array of size (5, 7), it needs (3, n) for n samples"),
    "features of a sample" => (() -> W(WRONG[:, 1]), "0", "got an array of size (5,), it needs (3,)"),
    "features of sequences" => (() -> W(numbers(5, 2, 7)), "0", "got an array of size (5, 2, 7), it needs (3, 2, n)"),
    "turned" => (() -> W(permutedims(X)), "0", "of size (5, 3), it needs (3, n) for n samples; permutedims(x) is so"),
    "integers" => (() -> W(rand(Int, 3, 7)), "0", "got an array of Int64, it needs Float32; convert it, such as Float32.(x)"),
    "Booleans" => (() -> W(X .> 0), "0", "got an array of Bool, it needs Float32"),
    "complex" => (() -> PaddleModuleWrapper(nn.LayerNorm(3))(complex(X)), "", "the layer (LayerNorm) got an array of ComplexF32, it needs Float32; convert it, such as Float32.(real.(x))"),
    "a string" => (() -> W("abc"), "0", "got the string \"abc\", it needs an array of size (3, n)"),
    "nothing" => (() -> W(nothing), "0", "got nothing, it needs an array of size (3, n)"),
    "a number" => (() -> W(3), "0", "got the number 3, it needs an array"),
    "a convolution" => (() -> wrapped(nn.Conv2D(3, 4, 3))(numbers(5, 6, 2, 1)), "0", "(Conv2D) got an array of size (5, 6, 2, 1), it needs (width, height, 3, n)"),
    "channels last" => (() -> wrapped(nn.Conv2D(3, 4, 3; data_format = "NHWC"))(numbers(2, 5, 6, 1)), "0", "it needs (3, width, height, n)"),
    "no samples' axis" => (() -> wrapped(nn.Conv1D(3, 4, 2))(numbers(5, 3)), "0", "got an array of size (5, 3), it needs (width, 3, n)"),
    "sequences" => (() -> PaddleModuleWrapper(nn.LSTM(3, 4))(numbers(5, 6, 2)), "", "the layer (LSTM) got an array of size (5, 6, 2), it needs (3, time, n)"),
    "BatchNorm" => (() -> wrapped(nn.Linear(3, 4), nn.Linear(4, 5), nn.BatchNorm1D(6))(X), "2", "got an array of size (5, 5), it needs (6, n)"),
    "GroupNorm" => (() -> wrapped(nn.GroupNorm(2, 4))(numbers(5, 3, 2)), "0", "it needs (width, 4, n)"),
    "LayerNorm" => (() -> wrapped(nn.LayerNorm((2, 4)))(numbers(4, 3, 5)), "0", "got an array of size (4, 3, 5), it needs (4, 2, n)"),
    "an embedding" => (() -> wrapped(nn.Embedding(5, 4))(X), "0", "got an array of Float32, it takes integers from 0 to 4, such as Int.(x)"),
    "no such row" => (() -> wrapped(nn.Embedding(5, 4))([7]), "0", "it takes integers from 0 to 4"),
    "within others" => (
        () -> PaddleModuleWrapper(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2))(numbers(7, 5, 3)),
        "layers.0.self_attn.q_proj", "(Linear) got an array of size (7, 5, 3), it needs (8, 5, n)",
    ),
    "a layer of one's own" => (() -> PaddleModuleWrapper(own_layer())(X), "", "the layer (Own) failed on an array of size (3, 5)"),
    "by name" => (() -> PaddleNet(own_layer())((; x = WRONG), own_params(); scale = 2), "inner", "got an array of size (5, 7), it needs (3, n)"),
    "two arrays" => (() -> PaddleModuleWrapper(nn.MSELoss())(X, WRONG), "", "failed on an array of size (3, 5) and an array of size (5, 7)"),
    # However it is called.
    "a pullback" => (() -> pullback(W, WRONG), "0", "of size (5, 7), it needs (3, n)"),
    "a gradient" => (() -> Zygote.gradient(w -> sum(w(WRONG)), W), "0", "of size (5, 7), it needs (3, n)"),
    "a Laplacian" => (() -> laplacian(W, WRONG), "0", "of size (5, 7), it needs (3, n)"),
    "a derivative" => (() -> derivative(W, WRONG, (1, 0, 0, 0, 0)), "0", "of size (5, 7), it needs (3, n)"),
    "a direction" => (() -> jvp(W, WRONG, WRONG), "0", "of size (5, 7), it needs (3, n)"),
    "a Jacobian" => (() -> batched_jacobian(W, WRONG), "0", "of size (5, 1), it needs (3, n)"),
    "lowered" => (() -> lower(W, WRONG), "0", "of size (5, 7), it needs (3, n)"),
    "a program" => (() -> (w = normed(; jit = true); w(X); w(X); w(WRONG)), "0", "of size (5, 7), it needs (3, n)"),
    "a state" => (() -> PaddleNet(W)(WRONG, W.params, initial_state(W)), "0", "of size (5, 7), it needs (3, n)"),
    "a layer of Lux" => (() -> (l = luxlayer(W); l(WRONG, LuxCore.setup(Xoshiro(1), l)...)), "0", "of size (5, 7), it needs (3, n)"),
)
own_params() = PaddleModuleWrapper(own_layer()).params

@testset "$slip" for (slip, (call, layer, words)) in SLIPS
    err = @test_throws LayerError call()
    (; message) = err.value
    @test err.value.layer == layer
    @test occursin(words, message) && length(message) < 500
    @test startswith(sprint(showerror, err.value), "LayerError: $message\n\nIn Paddle's words, with sizes in the reverse order:\nPython: ")
end

@testset "Paddle's words and Python's traceback stand beneath" begin
    err = try W(WRONG) catch err err end
    text = sprint(io -> showerror(io, err, []))
    @test occursin("ValueError: (InvalidArgument) In operator matmul", text)
    @test occursin("Python stacktrace", text) && occursin("paddle_chainrules.nets", text)
    @test err.cause isa PyException
end

@testset "a chain of Linear layers, before Paddle is called" begin
    chain = wrapped(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    for (x, kind, words) in (
        (WRONG, DimensionMismatch, "the input of layer \"0\" (Linear) has size (5, 7), the net needs (3, n): 3 features"),
        (rand(Int, 3, 7), ArgumentError, "the input of layer \"0\" (Linear) has element type Int64, the net needs Float32"),
        (complex(X), ArgumentError, "layer \"0\" (Linear) has element type ComplexF32, the net needs Float32"),
        ("abc", ArgumentError, "takes one array, got a String; give the input of layer \"0\" (Linear), of size (3, n)"),
        (nothing, ArgumentError, "takes one array, got nothing; give the input of layer \"0\" (Linear), of size (3, n)"),
    )
        @test_throws kind chain(x)
        @test_throws words chain(x)
    end
end

@testset "what no layer has refused is Python's" begin
    bilinear = PaddleModuleWrapper(nn.Bilinear(3, 4, 2))
    @test_throws PyException bilinear(X) # an argument is missing
    @test_throws PyException W(X; seed = -1)
    depends = wrapped(nn.Linear(3, 4), nn.BatchNorm1D(4))
    @test_throws PyException laplacian(depends, X) # says what to do itself
end

@testset "a net goes on after a refusal" begin
    y = W(X)
    @test_throws LayerError W(WRONG)
    @test W(X) == y
end
