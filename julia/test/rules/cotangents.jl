# Every kind of cotangent gives the right gradient or an error that says what it must be. The
# table is that of docs/reliability.md, whose rows a test of Python compares with these.

using ChainRulesCore: AbstractZero, NoTangent, Tangent, Thunk, ZeroTangent, @thunk, rrule, unthunk
using FillArrays: Fill, OneElement, Zeros
using LinearAlgebra: Adjoint, Diagonal, Symmetric
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, paddle
using PythonCall: PythonCall, pyimport
using Random: Xoshiro
using SparseArrays: sparse

isdefined(@__MODULE__, :python_module) || include("../oracle.jl")

# A value of size (4, 4) from two nets: a chain of Linear layers, and another.
const SQUARE = (
    closed = PaddleFCNet(3, 4, 2, 5; activation = "tanh", seed = 1),
    recorded = PaddleModuleWrapper(
        paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh(), paddle.nn.Linear(4, 4), paddle.nn.Tanh()),
    ),
)
const ANY = randn(Xoshiro(1), Float32, 4, 4)

# Name in the table, cotangent, and what it is as a dense array.
const RIGHT = (
    ("Array", ANY, ANY),
    ("Fill", Fill(2.0f0, 4, 4), fill(2.0f0, 4, 4)),
    ("Zeros", Zeros{Float32}(4, 4), zeros(Float32, 4, 4)),
    ("OneElement", OneElement(3.0f0, (2, 3), (4, 4)), [i == 2 && j == 3 ? 3.0f0 : 0.0f0 for i in 1:4, j in 1:4]),
    ("SubArray", view(reshape(1:128, 16, 8) .* 1.0f0, 2:4:14, 8:-2:2), (reshape(1:128, 16, 8) .* 1.0f0)[2:4:14, 8:-2:2]),
    ("Adjoint, Transpose", ANY', permutedims(ANY)),
    ("ReshapedArray", reshape(view(vec(ANY), 1:16), 4, 4), ANY),
    ("ReinterpretArray", reinterpret(Float32, reinterpret(UInt32, ANY)), ANY),
    ("PermutedDimsArray", PermutedDimsArray(ANY, (2, 1)), permutedims(ANY)),
    ("Diagonal, Symmetric", Diagonal([1.0f0, 2.0f0, 3.0f0, 4.0f0]), Float32[i == j ? i : 0 for i in 1:4, j in 1:4]),
    ("Diagonal, Symmetric", Symmetric(ANY), Matrix(Symmetric(ANY))),
    ("Float64, integers, Booleans for a Float32 net", Float64.(ANY), ANY),
    ("Float64, integers, Booleans for a Float32 net", fill(2, 4, 4), fill(2.0f0, 4, 4)),
    ("Float64, integers, Booleans for a Float32 net", trues(4, 4), ones(Float32, 4, 4)),
    ("SparseMatrixCSC and its adjoint", sparse([1, 3], [2, 4], [2.0f0, -1.0f0], 4, 4), Float32[0 2 0 0; 0 0 0 0; 0 0 0 -1; 0 0 0 0]),
    ("SparseMatrixCSC and its adjoint", sparse([1, 3], [2, 4], [2.0f0, -1.0f0], 4, 4)', Float32[0 0 0 0; 2 0 0 0; 0 0 0 0; 0 0 -1 0]),
    ("Thunk", Thunk(() -> ANY), ANY),
    ("ZeroTangent, NoTangent, nothing", ZeroTangent(), zeros(Float32, 4, 4)),
    ("ZeroTangent, NoTangent, nothing", NoTangent(), zeros(Float32, 4, 4)),
    ("ZeroTangent, NoTangent, nothing", nothing, zeros(Float32, 4, 4)),
    ("NaN, Inf", [i == j ? NaN32 : Inf32 for i in 1:4, j in 1:4], [i == j ? NaN32 : Inf32 for i in 1:4, j in 1:4]),
)

const WRONG = (
    ("another size", ones(Float32, 4, 3), DimensionMismatch, "the cotangent has size (4, 3), the output (4, 4)"),
    ("another size", ones(Float32, 16), DimensionMismatch, "(16,)"),
    ("a number for an array", 1.0f0, ArgumentError, "must be an array"),
    ("a tuple for an array", (ANY,), ArgumentError, "must be an array"),
    ("complex, objects, strings", complex.(ANY, 1), ArgumentError, "holds ComplexF32, the output Float32"),
    ("complex, objects, strings", Any["a" for _ in 1:4, _ in 1:4], ArgumentError, "holds Any"),
    ("missing", Union{Missing,Float32}[missing for _ in 1:4, _ in 1:4], ArgumentError, "Missing"),
)

function gradients_of(back, ȳ)
    net, x = back(ȳ)
    params = unthunk(net.params)
    return params isa AbstractZero ? ntuple(Returns(params), 4) : map(unthunk, Tuple(params)), unthunk(x)
end
zero_or(x, like) = x isa Union{AbstractZero,Nothing} ? zero(like) : x

@testset "a cotangent of kind $kind, $name" for (name, net) in pairs(SQUARE), (kind, ȳ, dense) in RIGHT
    x = randn(Xoshiro(2), Float32, 3, 4)
    _, back = rrule(net, x)
    p̄s, x̄ = gradients_of(back, ȳ)
    expected_ps, expected = gradients_of(back, dense)
    @test isequal(zero_or(x̄, x), zero_or(expected, x))
    @test all(map((a, b, p) -> isequal(zero_or(a, p), zero_or(b, p)), p̄s, expected_ps, net.params))
    kind == "NaN, Inf" || @test sum(abs, zero_or(x̄, x)) > 0 || iszero(dense)
end

@testset "a cotangent that is refused: $kind" for (kind, ȳ, type, message) in WRONG
    x = randn(Xoshiro(2), Float32, 3, 4)
    for net in SQUARE
        y, back = rrule(net, x)
        @test_throws type gradients_of(back, ȳ)
        @test_throws message gradients_of(back, ȳ)
        @test all(isfinite, last(gradients_of(back, y))) # and the next one is right
    end
end

@testset "cotangents of several results" begin
    layer = python_module("layers").Several()
    net, x = PaddleModuleWrapper(layer), randn(Xoshiro(3), Float32, 3, 5)
    y, back = rrule(net, x)
    T = typeof(y)
    score, hidden = randn(Xoshiro(4), Float32, 2, 5), randn(Xoshiro(5), Float32, 4, 5)
    whole = (; score, unused = zero(y.unused), hidden = (hidden, NoTangent()), word = nothing)
    expected = gradients_of(back, whole)
    same_as(ȳ) = all(map(≈, first(gradients_of(back, ȳ)), first(expected))) && last(gradients_of(back, ȳ)) ≈ last(expected)
    @test same_as((; score, unused = nothing, hidden = (hidden, nothing), word = nothing))
    @test same_as((; score, unused = ZeroTangent(), hidden = (hidden, ZeroTangent()), word = NoTangent()))
    @test same_as(Tangent{T}(; score, hidden = Tangent{typeof(y.hidden)}(hidden, NoTangent())))
    @test same_as(Tangent{T}(; score = @thunk(score), hidden = @thunk((hidden, nothing))))
    @test same_as(Thunk(() -> whole))
    @test same_as((; score = view(score, :, :), unused = Zeros{Float32}(4, 5), hidden = (hidden', nothing)[[1, 2]] |> Tuple |> t -> (permutedims(t[1]), t[2]), word = nothing))

    @test_throws DimensionMismatch back((score,))
    @test_throws DimensionMismatch gradients_of(back, (; score = hidden, unused = nothing, hidden = nothing, word = nothing))
    @test_throws ArgumentError back(score)
    @test_throws ArgumentError back((; score = (score,), unused = nothing, hidden = nothing, word = nothing))
end
