# Loops of lowered nets, beside Julia's own broadcasts and numbers of 256 bits.

using ForwardDiff: ForwardDiff
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, lower, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

const Operators = PaddleChainRules.Operators

"The largest distance from the exact value, in units in the last place."
function units(f, exact, xs)
    return maximum(xs) do x
        wanted = exact(big(x))
        Float64(abs(f(x) - wanted) / eps(typeof(x)(abs(wanted))))
    end
end
exact_sigmoid(x) = 1 / (1 + exp(-x))

@testset "tanh and sigmoid, $T" for T in (Float32, Float64)
    small = exp.(range(T(-40), T(3); length = 5000))
    xs = vcat(range(T(-25), T(25); length = 5000), small, -small)
    @test units(Operators.tanh_fast, tanh, xs) < 3
    @test units(Operators.sigmoid_fast, exact_sigmoid, xs) < 3
    @test Operators.silu_fast.(xs) ≈ xs .* Operators.sigmoid.(xs)
    for x in T.((Inf, -Inf, 0.0, -0.0, 100, -87, -1000, floatmin(T), nextfloat(zero(T))))
        @test Operators.tanh_fast(x) === tanh(x)
        @test Operators.sigmoid_fast(x) ≈ Operators.sigmoid(x) atol = 2floatmin(T)
    end
    @test isnan(Operators.tanh_fast(T(NaN))) && isnan(Operators.sigmoid_fast(T(NaN)))
    @test all(abs(Operators.tanh_fast(x)) <= 1 for x in xs)
end

@testset "other numbers are as they were" begin
    for x in (big"0.3", Float16(0.3), ForwardDiff.Dual(0.3, 1.0), 0.3 + 0.2im)
        @test Operators.tanh_fast(x) === tanh(x) || Operators.tanh_fast(x) == tanh(x)
    end
    for x in (big"0.3", Float16(0.3), ForwardDiff.Dual(0.3, 1.0))
        @test Operators.sigmoid_fast(x) == Operators.sigmoid(x)
        @test Operators.silu_fast(x) == Operators.silu(x)
    end
end

@testset "arrays of $(sizes)" for sizes in (
    ((5, 7), (5,)), ((5, 7), (5, 7)), ((5, 7), (1,)), ((5, 7), (5, 1)), ((5, 7), (1, 7)), ((1, 7), (1,)),
    ((5, 3, 7), (5,)), ((5, 3, 7), (5, 3)), ((5,), (5,)), ((5,), (5, 7)), ((5,), ()), ((), ()),
    ((0, 7), (0,)), ((5, 0), (5,)), ((5, 1), (5,)), ((1,), (5, 7)),
)
    a, b = randn(Xoshiro(1), sizes[1]), randn(Xoshiro(2), sizes[2])
    f(fuse, a, b) = fuse.(tanh.(a .* b .+ 2) .- (a .+ b) .* b)
    @test f(Operators.fuse, a, b) ≈ f(identity, a, b)
    @test size(f(Operators.fuse, a, b)) == size(f(identity, a, b))
    for (a, b) in ((Float32.(a), b), (big.(a), b), (a, b .+ 1im), (a, round.(Int, b)))
        found, wanted = f(Operators.fuse, a, b), f(identity, a, b)
        @test found ≈ wanted && eltype(found) == eltype(wanted)
    end
end

@testset "views" begin
    a, rows = randn(Xoshiro(1), 5, 7), randn(Xoshiro(2), 5, 9)
    theta = randn(Xoshiro(3), 20)
    for b in (
        view(rows, :, 2:2), view(rows, :, 3), view(rows, :, 2:8), view(rows, 3:3, 2:8),
        view(rows, :, 1:2:14÷2)[:, 1:1], view(theta, 3:7), view(theta, 1:2:9), reshape(view(theta, 1:5), 5, 1),
        transpose(view(theta, 1:7)),
    )
        @test Operators.fuse.(a .* b .+ 1) ≈ a .* b .+ 1
        @test Operators.fuse.(b .- a) ≈ b .- a
    end
    v, w = randn(Xoshiro(4), 5), view(theta, 3:7)
    @test Operators.fuse.(v .* w) ≈ v .* w
    @test_throws DimensionMismatch Operators.fuse.(a .* view(theta, 1:4))
    @test_throws DimensionMismatch Operators.fuse.(a .* v[1:4])
end

# Gradients by the code that was written for them, and by Zygote of the code itself.
@testset "what is repeated rather than kept, $activation" for activation in ("Tanh", "Sigmoid", "Silu")
    act = pygetattr(paddle.nn, activation)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 5), act(), paddle.nn.Linear(5, 4), act(), paddle.nn.Linear(4, 2),
    ).to(; dtype = "float64")
    wrapper, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), 3, 6)
    l = lower(wrapper, x)
    c = randn(Xoshiro(2), 2, 6)
    f(l, x, ps) = sum(c .* PaddleChainRules.laplacian(l, x, ps))
    found = Zygote.gradient((x, ps) -> f(l.net, x, ps), x, l.params)
    call = only(unique(values(l.net.derivatives)))
    @test call.back !== nothing
    plain = Zygote.gradient((x, ps) -> sum(c .* call.value((x,), ps, call.constants[1])), x, l.params)
    @test same(found[1], plain[1]; rtol = 1e-12, atol = 1e-13)
    for (a, b) in zip(found[2], plain[2]) # the last bias has none
        @test (a === nothing) == (b === nothing)
        a === nothing || @test same(a, b; rtol = 1e-12, atol = 1e-13)
    end
end
