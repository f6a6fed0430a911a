# Arrays of every kind as inputs and parameters: right, or refused by an error that says why.

using ChainRulesCore: rrule, unthunk
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, paddle
using Mmap: Mmap
using Random: AbstractRNG, Xoshiro

include("../needing.jl")

# Of a generator, an element type and a size: an array of that kind, its values random.
plain_of(rng, T, dims) = T <: Integer ? rand(rng, T(0):T(6), dims) : convert(Array{T}, randn(rng, dims))
const KINDS = (
    "Array" => plain_of,
    "view with steps" => (rng, T, dims) -> view(plain_of(rng, T, 3 .* dims .+ 1), (2:3:(3d+1) for d in dims)...),
    "view with negative steps" => (rng, T, dims) -> view(plain_of(rng, T, 2 .* dims), (2d:-2:1 for d in dims)...),
    "view by indices" => (rng, T, dims) -> view(plain_of(rng, T, dims .+ 1), (rand(rng, 1:(d+1), d) for d in dims)...),
    "PermutedDimsArray" => (rng, T, dims) -> PermutedDimsArray(plain_of(rng, T, reverse(dims)), Tuple(length(dims):-1:1)),
    "reshaped view" => (rng, T, dims) -> reshape(view(plain_of(rng, T, prod(dims) + 3), 4:(prod(dims)+3)), dims),
    "reinterpreted" => (rng, T, dims) -> reshape(reinterpret(T, reinterpret(UInt8, vec(plain_of(rng, T, dims)))), dims),
    "unaligned" => function (rng, T, dims)
        bytes = zeros(UInt8, sizeof(T) * prod(dims) + 1)
        unaligned = reinterpret(T, view(bytes, 2:length(bytes)))
        unaligned .= vec(plain_of(rng, T, dims))
        return reshape(unaligned, dims)
    end,
    "read-only memory" => function (rng, T, dims)
        prod(dims) == 0 && return plain_of(rng, T, dims)
        return mktemp() do path, io
            write(io, plain_of(rng, T, dims))
            flush(io)
            open(file -> Mmap.mmap(file, Array{T,length(dims)}, dims), path) # opened for reading
        end
    end,
    "with NaN and Inf" => function (rng, T, dims)
        x = plain_of(rng, T, dims)
        isempty(x) || foreach(i -> x[i] = rand(rng, (NaN, Inf, -Inf)), rand(rng, eachindex(x), 2))
        return x
    end,
    "Union element type" => (rng, T, dims) -> Array{Union{T,Missing}}(plain_of(rng, T, dims)),
)

"A length, often an odd one out."
extent(rng) = rand(rng, (0, 1, 1, 2, 3, 5, 8))

@testset "arrays of kind $kind" for (kind, make) in KINDS
    rng = Xoshiro(hash(kind))
    for T in (Float32, Float64), _ in 1:12
        n = rand(rng, 1:5)
        net = PaddleFCNet(n, 2, 2, 3; dtype = lowercase(string(T)), activation = "tanh", seed = 1)
        lead = ntuple(_ -> extent(rng), rand(rng, 0:3))
        x = make(rng, T, (n, lead...))
        if eltype(x) != T
            @test_throws "Missing" net(x)
            continue
        end
        @test isequal(net(x), net(Array(x)))
        y, back = PaddleChainRules.pullback(net, x)
        p̄s, x̄ = back(y)
        expected = PaddleChainRules.pullback(net, Array(x))[2](y)
        @test size(x̄) == size(x) && isequal(x̄, expected[2]) && isequal(p̄s, expected[1])
        params = map(p -> make(rng, T, size(p)), net.params)
        kind == "with NaN and Inf" || @test net.net(Array(x), params) ≈ net.net(Array(x), map(Array, params))
        theta = make(rng, T, (PaddleNet(net).nparams,))
        # From the fourth call of a kind the net is a program, whose sums may round otherwise.
        foreach(_ -> net.net(x, theta), 1:3)
        @test isequal(net.net(x, theta), net.net(x, Array(theta)))
    end
end

function other_indices()
    net = PaddleFCNet(3, 2, 2, 4; dtype = "float64", activation = "tanh", seed = 1)
    x, c = randn(Xoshiro(1), 3, 5), randn(Xoshiro(2), 2, 5)
    moved, turned = OffsetArray(x, -2, 7), OffsetArray(c, 3, -9)
    @test net(moved) == net(x)
    expected, back = rrule(net, x)
    w̄, x̄ = back(c)
    _, found = rrule(net, moved)
    v̄, moved̄ = found(turned)
    @test unthunk(moved̄) isa OffsetArray && axes(unthunk(moved̄)) == axes(moved)
    @test parent(unthunk(moved̄)) == unthunk(x̄)
    @test all(map(==, map(unthunk, unthunk(v̄.params)), map(unthunk, unthunk(w̄.params))))
    ps = map(p -> OffsetArray(p, ntuple(Returns(4), ndims(p))...), net.params)
    @test net.net(moved, ps) == net(x)
    y, back = PaddleChainRules.pullback(net, moved)
    @test back(turned)[2] == unthunk(x̄)
    buffer = OffsetArray(zeros(3, 5), 1, 1)
    back(turned; into = (nothing, buffer))
    @test parent(buffer) == unthunk(x̄)
end

@testset "arrays with other indices are taken by position" begin
    if Base.find_package("OffsetArrays") === nothing
        skip_test("nets/inputs, other indices", "OffsetArrays not in Julia's environment")
    else
        @eval using OffsetArrays: OffsetArray
        Base.invokelatest(other_indices)
    end
end

@testset "shapes through any layer" begin
    net = PaddleModuleWrapper(paddle.nn.Identity())
    rng = Xoshiro(1)
    for T in first.(PaddleChainRules.ELTYPES), dims in ((), (0,), (1,), (1, 1, 4), (3, 0, 2), (1, 0), (2, 1, 1, 3), (5, 4, 3, 2))
        x = T <: Union{Complex,Bool} ? rand(rng, T, dims) : plain_of(rng, T, dims)
        y = net(x)
        @test y isa Array{T,length(dims)} && size(y) == size(x) && isequal(y, x) && y !== x
    end
    @test net(1:4) == 1:4 && net(trues(3)) == trues(3) && net(1.0:0.5:3.0) == 1.0:0.5:3.0
end

@testset "elements without a counterpart are refused" begin
    net = PaddleModuleWrapper(paddle.nn.Identity())
    for x in (big.([1.0, 2.0]), [1 // 2], UInt16[1], UInt32[1], UInt64[1], Int128[1], ['a'], ["a"], Any[1.0], [nothing], [missing, 1.0], [[1.0]], [(1.0, 2.0)])
        @test_throws "have no Paddle counterpart" net(x)
    end
    small = PaddleFCNet(3, 2, 2, 3)
    @test_throws "convert it with Float32" small(complex.(ones(Float32, 3, 2)))
    @test_throws "convert it with Float32" small(ones(Int, 3, 2))
    @test_throws "Paddle counterpart" small(Any[1.0f0 for _ in 1:3, _ in 1:2])
    @test_throws "at most" net(zeros(ntuple(Returns(1), 65)))
end

@testset "read-only memory as a buffer is an error, not the end" begin
    net, x = PaddleFCNet(3, 2, 2, 3), rand(Float32, 3, 4)
    y, back = PaddleChainRules.pullback(net, x)
    mktemp() do path, io
        write(io, zeros(Float32, 3, 4))
        flush(io)
        buffer = open(file -> Mmap.mmap(file, Matrix{Float32}, (3, 4)), path)
        @test_throws ReadOnlyMemoryError back(y; into = (nothing, buffer))
    end
    @test back(y)[2] isa Matrix{Float32}
end
