using FillArrays: Fill
using GPUArraysCore: AbstractGPUArray
using LinearAlgebra: Diagonal
using PaddleChainRules: PaddleChainRules, dense, share, release!, unshare!, with_shared
using PythonCall

include("oracle.jl")

PaddleChainRules.bridge()
const DLPACK = pyimport("paddle.utils.dlpack")

tensor_of(x) = DLPACK.from_dlpack(share(x))

@testset "the layout law" begin
    x = reshape(Float32.(1:24), 2, 3, 4)
    t = tensor_of(x)
    @test pyconvert(Vector{Int}, pylist(t.shape)) == [4, 3, 2]
    @test pyconvert(Float32, t[1, 2, 0].item()) == x[1, 3, 2]
    @test same(from_numpy(t), x; rtol = 0, atol = 0)
end

@testset "memory is shared: change one side, read the other" begin
    x = rand(3, 5)
    t = tensor_of(x)
    x[2, 4] = 42.0
    @test pyconvert(Float64, t[3, 1].item()) == 42.0
    t[4, 0] = 7.0
    @test x[1, 5] == 7.0
    @test pyconvert(UInt, t.data_ptr()) == UInt(pointer(x))
end

@testset "both ways for $T" for T in first.(PaddleChainRules.ELTYPES)
    for dims in ((), (1,), (5,), (2, 3), (1, 4, 1, 3), (0,), (3, 0))
        numbers = rand(Xoshiro(1), T === Bool ? (false, true) : 1:100, prod(dims))
        x = reshape(Vector{T}(numbers), dims)
        back = unshare!(DLPACK.to_dlpack(tensor_of(x)))
        @test back isa Array{T,length(dims)}
        @test back == x
        @test isempty(x) || pointer(back) != pointer(x)
    end
end

@testset "the arrays that come out are Julia's own" begin
    t = paddle.arange(6, dtype = "float32").reshape(pylist((2, 3)))
    x = unshare!(DLPACK.to_dlpack(t))
    @test x == Float32[0 3; 1 4; 2 5]
    x[1, 2] = 9
    @test pyconvert(Float32, t[1, 0].item()) == 3
    t = nothing
    GC.gc()
    pyimport("gc").collect()
    @test x == Float32[0 9; 1 4; 2 5]
end

@testset "dense" begin
    x = rand(4, 5)
    @test dense(x) === x
    for y in (view(x, 1:2:4, :), x', transpose(x), PermutedDimsArray(x, (2, 1)),
        reshape(view(x, :, 2:3), 8), Fill(2.0, 3, 2), Diagonal([1.0, 2.0]), 1.0:3.0,
        BitMatrix([true false; false true]))
        @test dense(y) isa Array{eltype(y),ndims(y)}
        @test dense(y) == y
    end
end

@testset "capsules that nobody takes leave nothing behind" begin
    x = rand(Float32, 3)
    for _ in 1:1000
        capsule = share(x)
        @test PaddleChainRules.is_unused(capsule)
        release!(capsule)
    end
    @test_throws ErrorException with_shared(_ -> error("inside"), (x, x))
    before = parse(Int, split(read("/proc/self/statm", String))[2])
    for _ in 1:50_000
        release!(share(x))
    end
    after = parse(Int, split(read("/proc/self/statm", String))[2])
    @test (after - before) * 4096 < 4_000_000
end

struct DeviceArray{T,N} <: AbstractGPUArray{T,N}
    host::Array{T,N}
end
Base.size(x::DeviceArray) = size(x.host)
Base.getindex(::DeviceArray, i::Int) = error("scalar indexing of a device array")

@testset "refusals" begin
    for T in (UInt16, BigFloat, Rational{Int}, Any)
        err = @test_throws ArgumentError share(Array{T}(undef, 2))
        @test occursin("arrays of $T have no Paddle counterpart", err.value.msg)
        @test occursin("Float32", err.value.msg)
    end
    device = DeviceArray(rand(Float32, 2, 3))
    for x in (device, view(device, :, 1:2), device')
        err = @test_throws ArgumentError dense(x)
        @test occursin("DeviceArray", err.value.msg)
        @test occursin("Array(x)", err.value.msg)
    end
    bfloat16 = paddle.ones(2).astype("bfloat16")
    err = @test_throws ArgumentError unshare!(DLPACK.to_dlpack(bfloat16))
    @test occursin(".astype(\"float32\")", err.value.msg)
    err = @test_throws ArgumentError PaddleChainRules.copy_from_device(Val(2), C_NULL, (), nothing)
    @test occursin("load CUDA", err.value.msg)
end
