# Machine code called again and again: by threads without a lock, and into an array of the caller's without any new one.

using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleNet, compile, forward!, pullback
using PythonCall: pyconvert

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
    @test_throws "pullback(net, x, ps)" pullback(3)
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
