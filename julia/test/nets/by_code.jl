# Machine code called again and again: by threads without a lock, and into an array of the caller's without any new one.

using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleNet, compile, forward!, pullback
using PythonCall: pyconvert
using Random: Xoshiro

include("../process.jl")

const HAS_CODE = PaddleChainRules.crossing(() -> pyconvert(Int, PaddleChainRules.BRIDGE.patience())) >= 0

@testset "forward! allocates nothing, and says what it needs" begin
    wrapper = PaddleFCNet(3, 2, 2, 5; seed = 1)
    net, θ, x = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params)), rand(Float32, 3, 4)
    compile(net, x, θ)
    y = similar(x, 2, 4)
    counted(y, net, x, θ) = @allocated forward!(y, net, x, θ)
    counted(y, net, x, θ)
    # Something else in the process may allocate during one of the calls.
    @test minimum(counted(y, net, x, θ) for _ in 1:5) == 0 broken = !HAS_CODE
    @test forward!(zeros(Float32, 2, 4), wrapper, x) == y == net(x, θ)
    @test_throws DimensionMismatch("the array for the value has size (3, 4), the value (2, 4); give one of that") forward!(zeros(Float32, 3, 4), net, x, θ)
    @test_throws ArgumentError forward!(zeros(2, 4), net, x, θ)
    @test_throws "overlaps a parameter or an input" forward!(reshape(view(θ, 1:8), 2, 4), net, x, θ)
    square = PaddleFCNet(3, 3, 2, 4; seed = 3)
    @test_throws "overlaps" forward!(x, square, x)
    wide = [x x]
    @test_throws "overlaps" forward!(view(wide, 1:2, 3:6), net, view(wide, :, 2:5), θ)
    @test_throws "pullback(net, x, ps)" pullback(3)
end

HAS_CODE && @testset "gradients into arrays of the caller's allocate nothing, and bad ones are refused" begin
    wrapper = PaddleFCNet(3, 2, 3, 7; activation = "tanh", seed = 1)
    net, ps = PaddleNet(wrapper), wrapper.params
    θ, x, ȳ = reduce(vcat, vec.(ps)), randn(Xoshiro(1), Float32, 3, 4), randn(Xoshiro(2), Float32, 2, 4)
    compile(net, x, θ)
    for n in 5:20 # more numbers of samples than calls are remembered of
        net(rand(Float32, 3, n), θ), pullback(net, rand(Float32, 3, n), θ)[2](rand(Float32, 2, n))
    end
    counted(back, ȳ, into) = @allocated back(ȳ; into)
    for given in (θ, ps, NamedTuple{Tuple(net.names)}(ps))
        y, back = pullback(net, x, given)
        x̄, p̄s = back(ȳ)
        empty_like(a::Array) = fill!(similar(a), NaN32)
        empty_like(as) = map(empty_like, as)
        parts(a::Array) = [a]
        parts(as) = [as...]
        for wants_x in (true, false), wants_p in (true, false)
            into = (wants_x ? empty_like(x) : nothing, wants_p ? empty_like(given) : nothing)
            @test back(ȳ; into) === into
            @test !wants_x || into[1] == x̄
            @test !wants_p || all(map(==, parts(into[2]), parts(p̄s)))
            @test minimum(counted(back, ȳ, into) for _ in 1:5) == 0
            back(ȳ; into, accumulate = true)
            @test !wants_x || into[1] ≈ 2 .* x̄
            @test !wants_p || all(map((a, b) -> a ≈ 2 .* b, parts(into[2]), parts(p̄s)))
        end
        good = similar(x), empty_like(given)
        kept = deepcopy(good)
        for (into, kind, words) in (
            ((similar(x, 3, 5), good[2]), DimensionMismatch, "its gradient (3, 4)"),
            ((zeros(3, 4), good[2]), ArgumentError, "its gradient Float32"),
            ((x, good[2]), ArgumentError, "overlaps another"),
            ((reshape(view(θ, 1:12), 3, 4), nothing), given === θ ? ArgumentError : Nothing, "overlaps another"),
            ((unsafe_wrap(Array, pointer(parts(good[2])[1]), (3, 4)), good[2]), ArgumentError, "overlaps another"),
            ((good[1], 1.0), ArgumentError, "into"),
        )
            kind === Nothing && continue
            err = @test_throws kind back(ȳ; into)
            @test occursin(words, err.value.msg)
        end
        @test isequal(good, kept)
        @test_throws DimensionMismatch back(ȳ[:, 1:3]; into = good)
        @test_throws "holds ComplexF32" back(ȳ .+ im; into = good)
        @test back(Float64.(ȳ))[1] == x̄
        memory = zeros(Float32, 20) # what is read is written to
        memory[5:12] .= vec(ȳ)
        within = unsafe_wrap(Array, pointer(memory, 5), (2, 4))
        over = unsafe_wrap(Array, pointer(memory, 1), (3, 4))
        GC.@preserve memory back(within; into = (over, nothing))
        @test reshape(memory[1:12], 3, 4) == x̄
    end
    @test_throws DimensionMismatch net(x, θ[1:end-1])
    @test_throws DimensionMismatch pullback(net, x, θ[1:end-1])
    @test_throws DimensionMismatch pullback(net, x[1:2, :], θ)
    @test_throws ArgumentError pullback(net, Float64.(x), θ)
    @test_throws ArgumentError pullback(net, x, Base.setindex(ps, Float64.(ps[2]), 2))
    @test_throws DimensionMismatch pullback(net, x, Base.setindex(ps, ps[4][1:3], 2))
    @test_throws ArgumentError pullback(net, x, ps[1:3])
end

HAS_CODE && @testset "threads call without a lock, nets come and go" begin
    code = """
        using PaddleChainRules, Zygote
        using PaddleChainRules: compile, pullback
        near(a, b) = maximum(abs, a .- b) <= 64eps(Float32) * maximum(abs, b)
        function round(seed)
            wrapper = PaddleFCNet(3, 2, 3, 8; activation = ("tanh", "silu", "relu")[seed], seed)
            net, θ = PaddleNet(wrapper), reduce(vcat, vec.(wrapper.params))
            xs = [rand(Float32, 3, n) for n in (1, 2, 5, 64, 300)]
            cs = [rand(Float32, 2, size(x, 2)) for x in xs]
            expected = [(r = pullback(net, x, θ); (r[1], r[2](c)...)) for (x, c) in zip(xs, cs)]
            compile(net, xs[3], θ)
            Threads.@threads :static for t in 1:Threads.nthreads()
                for k in 1:1000
                    i = mod1(k + t, 5)
                    near(net(xs[i], θ), expected[i][1]) || exit(7)
                    y, back = pullback(net, xs[i], θ)
                    x̄, θ̄ = back(cs[i])
                    near(x̄, expected[i][2]) && near(θ̄, expected[i][3]) || exit(8)
                    foreach(a -> fill!(a, NaN32), (y, x̄, θ̄))
                    k % 10 == 0 && Zygote.gradient(p -> sum(net(xs[i], p)), θ)
                    k % 500 == 0 && GC.gc(k % 1000 == 0)
                end
            end
        end
        foreach(round, [1, 2, 3, 1])
        GC.gc()
        print("right")
        """
    @test run_julia(code)[1:3] == (0, 0, "right")
end
