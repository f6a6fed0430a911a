include("../process.jl")

const STORM = """
    using PaddleChainRules, ChainRulesCore, Zygote
    wrapper = PaddleFCNet(3, 2, 3, 16; dtype = "float64", activation = "tanh", seed = 1)
    lstm = PaddleModuleWrapper(paddle.nn.LSTM(3, 4))
    x, sequence = rand(3, 5), rand(Float32, 3, 5, 2)
    PaddleChainRules.compile(wrapper, x) # or not, by LOOPS; the bits then stay
    PaddleChainRules.compile(lstm, sequence)
    y, steps = wrapper(x), first(lstm(sequence))
    gradient() = Zygote.gradient((w, x) -> sum(abs2, w(x)), wrapper, x)
    expected = gradient()
    function task(i)
        [rand(100) for _ in 1:50]
        wrapper(x) == y || exit(7)
        i % 3 == 0 && (first(lstm(sequence)) == steps || exit(8))
        i % 2 == 0 && (gradient()[2] == expected[2] || exit(9))
        i % 10 == 0 && GC.gc(false)
        i % 500 == 0 && GC.gc()
    end
    """

const THROUGH_PYTHON = ("PADDLE_CHAINRULES_LOOPS" => "off",)

@testset "every thread calls nets and collects garbage: $threads $env" for (threads, env) in (
    ("1", THROUGH_PYTHON), ("4", THROUGH_PYTHON), ("4,1", THROUGH_PYTHON), ("4", ()),
)
    code = STORM * """
        PaddleChainRules.threaded() do
            Threads.@threads for i in 1:2000
                task(i)
            end
        end
        PaddleChainRules.threaded() do
            foreach(wait, [Threads.@spawn(foreach(task, 1:100)) for _ in 1:20])
        end
        wrapper(x) == y && print("right")
        """
    @test run_julia(code; threads, env)[1:3] == (0, 0, "right")
end

@testset "an exit within threaded ends the process as asked" begin
    code = """
        using PaddleChainRules
        PaddleFCNet(3, 2, 2, 4)
        PaddleChainRules.threaded(() -> exit(7))
        """
    @test run_julia(code)[1:2] == (7, 0)
end

@testset "tasks inside pullbacks of one net, and of one call" begin
    code = STORM * """
        for net in (wrapper, lstm)
            input = net === wrapper ? x : sequence
            value, back = rrule(net, input)
            ȳ = net === wrapper ? y : (steps, nothing)
            expected = map(unthunk, back(ȳ))
            PaddleChainRules.threaded() do
                Threads.@threads for i in 1:400
                    i % 4 == 0 && GC.gc(false)
                    pullback = i % 2 == 0 ? back : last(rrule(net, input))
                    found = map(unthunk, pullback(ȳ))
                    isapprox(found[2], expected[2]; rtol = 1e-6) || exit(7)
                    all(map(isapprox, found[1].params, expected[1].params)) || exit(8)
                end
            end
        end
        print("right")
        """
    @test run_julia(code)[1:3] == (0, 0, "right")
end

@testset "parameters of many threads, one net" begin
    code = STORM * """
        params = [map(p -> p .* k, wrapper.params) for k in 1:8]
        values = [wrapper.net(x, ps) for ps in params]
        PaddleChainRules.threaded() do
            Threads.@threads for i in 1:2000
                k = mod1(i, 8)
                wrapper.net(x, params[k]) == values[k] || exit(7)
            end
        end
        made = Vector{Any}(undef, 8)
        PaddleChainRules.threaded() do
            Threads.@threads for k in 1:8
                made[k] = laplacian(PaddleFCNet(3, 1, 2, 8; dtype = "float64", seed = k), x)
            end
        end
        same = all(1:8) do k
            laplacian(PaddleFCNet(3, 1, 2, 8; dtype = "float64", seed = k), x) == made[k]
        end
        same && print("right")
        """
    @test run_julia(code)[1:3] == (0, 0, "right")
end

@testset "outside of threaded another thread gets an error that names it" begin
    code = """
        using PaddleChainRules
        wrapper = PaddleFCNet(3, 2, 2, 16)
        x = rand(Float32, 3, 4)
        y, back = PaddleChainRules.pullback(wrapper, x)
        attempts = (
            () -> wrapper(x), () -> back(y), () -> PaddleFCNet(3, 2, 2, 16), () -> paddle.nn,
            () -> laplacian(wrapper, x), () -> PaddleChainRules.threaded(() -> 1),
            () -> PaddleChainRules.freeze(wrapper, "0.*"),
        )
        kinds = map(attempts) do attempt
            started = Threads.Atomic{Int}(0)
            tasks = map(1:8) do _
                Threads.@spawn begin
                    Threads.atomic_add!(started, 1)
                    while started[] < 4 # so that each thread has one
                        GC.safepoint()
                    end
                    Threads.threadid() == 1 && return "main"
                    try
                        attempt()
                        "passed"
                    catch err
                        err isa ConcurrencyViolationError || rethrow()
                        occursin("threaded", string(err.msg)) ? "named" : "not named"
                    end
                end
            end
            setdiff(unique(map(fetch, tasks)), ["main"])
        end
        print(join(unique(reduce(vcat, kinds)), " "))
        """
    @test run_julia(code)[1:3] == (0, 0, "named")
end

@testset "a net that calls Julia back" begin
    code = """
        using PaddleChainRules, PythonCall, Test
        inner = PaddleFCNet(3, 2, 2, 16; seed = 1)
        x = rand(Float32, 3, 4)
        y = inner(x)
        layer = paddle.nn.Linear(3, 2)
        seen = Any[]
        # Another net, and a collection, within its own call.
        layer.register_forward_post_hook(pyfunc((_, _, _) -> begin
            GC.gc()
            push!(seen, inner(x))
            push!(seen, try
                PaddleChainRules.threaded(() -> 1)
            catch err
                err.msg
            end)
            return nothing
        end))
        outer = PaddleModuleWrapper(layer)
        outer(x)
        seen[1] == y && occursin("while a net was computing", seen[2]) && print("right")
        """
    @test run_julia(code)[1:3] == (0, 0, "right")
end

@testset "threaded gives the lock back, also after an error" begin
    code = """
        using PaddleChainRules, Test
        wrapper = PaddleFCNet(3, 2, 2, 16)
        x = rand(Float32, 3, 4)
        y = wrapper(x)
        @test_throws "mine" PaddleChainRules.threaded(() -> error("mine"))
        @test wrapper(x) == y
        @test PaddleChainRules.threaded(() -> PaddleChainRules.threaded(() -> wrapper(x))) == y
        @test_throws DimensionMismatch PaddleChainRules.threaded(() -> wrapper(rand(Float32, 4, 4)))
        @test wrapper(x) == y && !current_task().sticky == false
        @test PaddleChainRules.DEPTH[] == 0 && PaddleChainRules.OPEN[] == 0
        print("right")
        """
    @test run_julia(code; threads = 2)[1:3] == (0, 0, "right")
end
