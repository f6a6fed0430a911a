using ChainRulesCore: rrule
using FillArrays: Fill
using GPUArraysCore: AbstractGPUArray
using LinearAlgebra: Diagonal
using PaddleChainRules:
    PaddleChainRules, call, dense, drop, lend, receive, receive_as, receive_into!, without_table
using PythonCall

include("../oracle.jl")
include("../needing.jl")

PaddleChainRules.bridge()

"A tensor on the memory of an array, as an object of PythonCall's."
tensor_of(x) = PythonCall.pynew(lend(x))

"Bytes that C's malloc has given out and not got back: glibc's uordblks and hblkhd."
function in_use()
    info = ccall(:mallinfo2, NTuple{10,Csize_t}, ())
    return Int(info[8] + info[5])
end

@testset "Paddle exports the exchange table" begin
    @test PaddleChainRules.HAS_TABLE[]
    without_table() do
        @test !PaddleChainRules.HAS_TABLE[]
    end
    @test PaddleChainRules.HAS_TABLE[]
    @test !PaddleChainRules.load_table!(pybuiltins.int)
end

@testset "another framework's table" begin
    # Nothing in the exchange is Paddle's: whoever exports the table can take its place.
    if pytruth(pyimport("importlib.util").find_spec("torch") == pybuiltins.None)
        skip_test("crossing/dlpack, PyTorch's exchange table", "torch is not installed")
    else
        torch = pyimport("torch")
        try
            @test PaddleChainRules.load_table!(torch.Tensor)
            x = rand(Float32, 3, 4)
            t = tensor_of(x)
            @test pyisinstance(t, torch.Tensor)
            x[2, 3] = 42
            @test pyconvert(Float32, t[2, 1].item()) == 42
            @test receive(t * 2) == 2x
        finally
            PaddleChainRules.load_table!(paddle.Tensor)
        end
        @test pyisinstance(tensor_of([1.0]), paddle.Tensor)
    end
end

# Every test below on both ways: the exchange table, and capsules.
for (way, run) in (("table", f -> f()), ("capsules", without_table))

run() do
@testset "the layout law, $way" begin
    x = reshape(Float32.(1:24), 2, 3, 4)
    t = tensor_of(x)
    @test pyconvert(Vector{Int}, pylist(t.shape)) == [4, 3, 2]
    @test pyconvert(Float32, t[1, 2, 0].item()) == x[1, 3, 2]
    @test same(from_numpy(t), x; rtol = 0, atol = 0)
end

@testset "memory is shared: change one side, read the other, $way" begin
    x = rand(3, 5)
    t = tensor_of(x)
    x[2, 4] = 42.0
    @test pyconvert(Float64, t[3, 1].item()) == 42.0
    t[4, 0] = 7.0
    @test x[1, 5] == 7.0
    @test pyconvert(UInt, t.data_ptr()) == UInt(pointer(x))
end

@testset "both ways for $T, $way" for T in first.(PaddleChainRules.ELTYPES)
    for dims in ((), (1,), (5,), (2, 3), (1, 4, 1, 3), (0,), (3, 0))
        numbers = rand(Xoshiro(1), T === Bool ? (false, true) : 1:100, prod(dims))
        x = reshape(Vector{T}(numbers), dims)
        y = receive(tensor_of(x))
        @test y isa Array{T,length(dims)}
        @test y == x
        @test isempty(x) || pointer(y) != pointer(x)
        z = receive_as(typeof(x), tensor_of(x))
        @test z isa typeof(x) && z == x
    end
end

@testset "the arrays that come out are Julia's own, $way" begin
    t = paddle.arange(6, dtype = "float32").reshape(pylist((2, 3)))
    x = receive(t)
    @test x == Float32[0 3; 1 4; 2 5]
    x[1, 2] = 9
    @test pyconvert(Float32, t[1, 0].item()) == 3
    t = nothing
    GC.gc()
    pyimport("gc").collect()
    @test x == Float32[0 9; 1 4; 2 5]
end

@testset "parts of a vector, $way" begin
    out = zeros(7)
    four, one = [1.0 2.0; 3.0 4.0], [5.0]
    GC.@preserve four one begin
        a, b = tensor_of(four), tensor_of(one)
        next = receive_into!(out, 2, a)
        @test next == 6
        @test receive_into!(out, next, b) == 7
        @test out == [0, 1, 3, 2, 4, 5, 0]
        @test_throws ErrorException receive_into!(out, 6, a)
        @test_throws ErrorException receive_into!(zeros(Float32, 9), 1, a)
        @test_throws ErrorException receive_as(Vector{Float64}, a)
        @test_throws ErrorException receive_as(Matrix{Float32}, a)
    end
end

@testset "nothing is left behind, $way" begin
    x = rand(Float32, 300)
    function cycle(n)
        for _ in 1:n
            tensor = lend(x)
            receive(tensor)
            drop(tensor)
        end
    end
    cycle(1000)
    GC.gc()
    before = in_use()
    cycle(100_000) # a leaked block would make 20 MB
    GC.gc()
    @test in_use() - before < 1_000_000
    # Many on the same memory at once, dropped by the garbage collector.
    for _ in 1:4
        foreach(_ -> tensor_of(x), 1:5_000)
        GC.gc()
    end
    before = in_use()
    for _ in 1:10
        foreach(_ -> tensor_of(x), 1:5_000)
        GC.gc()
    end
    @test in_use() - before < 1_000_000
end

@testset "several tensors at once keep their own shape, $way" begin
    xs = [rand(3, 4), rand(7), rand(2, 1, 5), fill(1.5), rand(0, 6)]
    lent = map(tensor_of, xs)
    @test map(receive, lent) == xs
    deleteat!(xs, 2)
    deleteat!(lent, 2)
    GC.gc()
    @test map(receive, lent) == xs
    err = @test_throws ArgumentError lend(zeros(ntuple(Returns(1), 65)))
    @test occursin("65 dimensions", err.value.msg)
end

end # run
end # way

@testset "Python's errors pass through a call" begin
    len = pybuiltins.len
    for args in ((PythonCall.getptr(Py(3)),), [PythonCall.getptr(Py(3))])
        err = @test_throws PyException call(len, args)
        @test occursin("has no len()", sprint(showerror, err.value))
    end
    @test !pytruth(pyeval("__import__('sys').exc_info()[0] is not None", @__MODULE__))
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

struct DeviceArray{T,N} <: AbstractGPUArray{T,N}
    host::Array{T,N}
end
Base.size(x::DeviceArray) = size(x.host)
Base.getindex(::DeviceArray, i::Int) = error("scalar indexing of a device array")

# What the extension for CUDA says of a CuArray, of an array on the host.
struct OnGPU{T,N} <: AbstractGPUArray{T,N}
    host::Array{T,N}
    id::Int
end
Base.size(x::OnGPU) = size(x.host)
PaddleChainRules.dense(x::OnGPU) = x
PaddleChainRules.device(x::OnGPU) = PaddleChainRules.DLDevice(2, x.id)
PaddleChainRules.address(x::OnGPU) = PaddleChainRules.address(x.host)

@testset "GPU arrays on a build without CUDA" begin
    x = OnGPU(rand(Float32, 3, 4), 3)
    for run in (f -> f(), without_table)
        # Paddle reads the struct it is given: device, address, shape, type.
        t = run(() -> tensor_of(x))
        @test pyconvert(String, pystr(t.place)) == "Place(gpu:3)"
        @test pyconvert(UInt, t.data_ptr()) == UInt(pointer(x.host))
        @test pyconvert(Vector{Int}, pylist(t.shape)) == [4, 3]
        @test pyconvert(Vector{Int}, pylist(t.strides)) == [3, 1]
        @test pyconvert(String, pystr(t.dtype)) == "paddle.float32"
        @test_throws PyException run(() -> receive(t)) # Paddle's own refusal
    end
    for refused in (
        PaddleChainRules.require_gpu_build,
        () -> PaddleChainRules.current_stream(PaddleChainRules.device(x)),
    )
        err = @test_throws ArgumentError refused()
        @test occursin("paddlepaddle-gpu", err.value.msg)
    end
end

@testset "arrays on different devices" begin
    host, a, b = rand(2), OnGPU(rand(2), 0), OnGPU(rand(3), 3)
    check_device = PaddleChainRules.check_device
    @test check_device((host, host)) === check_device((a, a)) === check_device(()) === nothing
    for (arrays, devices) in (((host, b), "the host and GPU 3"), ((a, b), "GPU 0 and GPU 3"))
        err = @test_throws ArgumentError check_device(arrays)
        @test occursin("got arrays on $devices;", err.value.msg)
    end
    wrapper = PaddleChainRules.PaddleFCNet(3, 2, 2, 4; seed = 1)
    x = OnGPU(rand(Float32, 3, 5), 0)
    for refused in (() -> wrapper(x), () -> rrule(wrapper, x))
        err = @test_throws ArgumentError refused()
        @test occursin("got arrays on the host and GPU 0;", err.value.msg)
    end
    _, back = rrule(wrapper, x.host)
    err = @test_throws ArgumentError back(OnGPU(rand(Float32, 2, 5), 0))
    @test occursin("got arrays on the host and GPU 0;", err.value.msg)
end

@testset "device work is put in order round a call" begin
    events = Symbol[]
    PaddleChainRules.in_turn(f, ::OnGPU) = (push!(events, :before); y = f(); push!(events, :after); y)
    x = OnGPU(rand(2), 0)
    @test PaddleChainRules.in_turn(() -> push!(events, :call), (x, x)) === events
    @test events == [:before, :call, :after]
    @test PaddleChainRules.in_turn(() -> 1, (rand(2),)) == PaddleChainRules.in_turn(() -> 1, ()) == 1
end

@testset "refusals" begin
    for T in (UInt16, BigFloat, Rational{Int}, Any)
        err = @test_throws ArgumentError lend(Array{T}(undef, 2))
        @test occursin("arrays of $T have no Paddle counterpart", err.value.msg)
        @test occursin("Float32", err.value.msg)
    end
    device = DeviceArray(rand(Float32, 2, 3))
    part = SubArray(device, (Base.Slice(Base.OneTo(2)), 1:2)) # which view may make otherwise
    for x in (device, part, device')
        err = @test_throws ArgumentError dense(x)
        @test occursin("DeviceArray", err.value.msg)
        @test occursin("Array(x)", err.value.msg)
    end
    bfloat16 = paddle.ones(2).astype("bfloat16")
    err = @test_throws ArgumentError receive(bfloat16)
    @test occursin(".astype(\"float32\")", err.value.msg)
    err = @test_throws ArgumentError PaddleChainRules.copy_from_device(Val(2), C_NULL, (), nothing)
    @test occursin("load CUDA", err.value.msg)
end
