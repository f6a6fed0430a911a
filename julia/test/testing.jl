using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, lower, paddle
using PythonCall
using Random: Xoshiro

include("oracle.jl")

const check_vjp, compare = PaddleChainRules.check_vjp, PaddleChainRules.compare
table(report) = sprint(show, MIME("text/plain"), report)
message(err) = sprint(showerror, err.value)

@testset "$name agrees with native Paddle and differences" for (name, make, args, kwargs, count) in (
    ("a chain", sequential, (randn(Xoshiro(1), Float32, 3, 5),), (;), 6 + 6 + 5),
    ("nested", () -> python_module("layers").Tangled(), (
        ((randn(Xoshiro(1), 3, 5), (b = randn(Xoshiro(2), 1, 5), a = randn(Xoshiro(3), 4))), ([0, 4, 2, 2, 1, 3],)), ("plain", 7),
    ), (gain = randn(Xoshiro(4), 1, 6), shift = (by = (randn(Xoshiro(5), 2),),), twice = true), 2 * 13 + 9),
    ("a random one", () -> python_module("layers").Noisy(), (randn(Xoshiro(1), 3, 6),), (;), 2 * 8 + 7),
    ("an LSTM", () -> paddle.nn.LSTM(3, 4), (randn(Xoshiro(1), 3, 5, 2),), (;), 2 * 8 + 5),
)
    paddle.seed(1)
    layer = make()
    report = nothing
    @test unchanged(layer) do
        report = check_vjp(layer, args...; kwargs...)
    end
    @test report.ok && length(report.rows) == count
    @test Set(row.oracle for row in report.rows) == Set(("native", "differences"))
    lines = split(table(report), '\n')
    @test length(lines) == count + 1 && startswith(lines[1], "type")
end

@testset "a transposed gradient does not pass" begin
    # Square, so that only the values tell.
    layer = paddle.nn.Linear(3, 3)
    right = check_vjp(layer, randn(Xoshiro(1), 3, 4); eltypes = (Float32,))
    scope = pydict()
    pyexec("""
    from paddle_chainrules.transforms.recordings.recording import Recording
    right = Recording.gradients
    def wrong(*args, **kwargs):
        grads = right(*args, **kwargs)
        return [grads[0].T.contiguous(), *grads[1:]]
    Recording.gradients = wrong
    """, scope)
    err = try
        @test_throws AssertionError check_vjp(layer, randn(Xoshiro(1), 3, 4))
    finally
        pyexec("Recording.gradients = right", scope)
    end
    bad = filter(contains("more than"), split(message(err), '\n'))
    @test length(bad) == 3 && all(contains("weight"), bad) # twice native, once differences
    @test check_vjp(layer, randn(Xoshiro(1), 3, 4); eltypes = (Float32,)).rows == right.rows
end

@testset "compare" begin
    w, x = PaddleFCNet(3, 2, 3, 5; activation = "tanh", seed = 1), randn(Xoshiro(1), Float32, 3, 4)
    report = compare(w, lower(w), x)
    @test report.ok && only(report.rows).size == (2, 4)
    @test sprint(show, report) == "Report(1 arrays, all agree)"
    @test compare(x -> x, x -> 1.001f0 .* x, x; tolerance = 0.01).ok
    @test compare(identity, identity, [NaN, Inf, -Inf, 1.0]).ok
    @test compare(x -> (; a = 2x, word = "same"), x -> (; a = x .+ x, word = "same"), x).ok
    seen = Ref(0)
    @test compare(identity, identity, (x, (; x)); move = y -> (seen[] += 1; y)).ok && seen[] == 2
    for (other, part) in (
        (y -> (z = copy(y); z[2, 3] += 1; z), "2, 3"),
        (y -> y', "4×3"),
        (y -> Float64.(y), "Float64"),
        (y -> (y,), "nested"),
        (y -> fill(NaN32, size(y)), "Inf"),
        (y -> "word", "\"word\""),
    )
        err = @test_throws AssertionError compare(identity, other, x)
        @test occursin(part, message(err))
    end
end
