# Failures in the middle of a call leave everything as it was, and nothing behind.

using ChainRulesCore: rrule, unthunk
using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, paddle
using PythonCall
using Random: Xoshiro

isdefined(@__MODULE__, :python_module) || include("oracle.jl")
isdefined(@__MODULE__, :run_julia) || include("process.jl")

allocated() = (GC.gc(); pyimport("gc").collect(); pyconvert(Int, pyimport("paddle_chainrules.bridge.retained_bytes").allocated()))

@testset "a layer that fails: $where" for where in ("forward", "backward", "memory")
    failing = python_module("test_faults").Failing
    failing.where = pybuiltins.None
    layer = failing()
    layer.eval()
    net, x = PaddleModuleWrapper(layer), randn(Xoshiro(1), Float32, 3, 5)
    expected, back = rrule(net, x)
    ȳ = randn(Xoshiro(2), Float32, size(expected))
    x̄ = unthunk(back(ȳ)[2])
    before, kept = python_module("snapshots").snapshot(layer), allocated()
    kinds = Any[]
    for _ in 1:10
        failing.where = where
        try
            _, failed = rrule(net, x)
            unthunk(failed(ȳ)[2])
        catch err
            push!(kinds, err)
        end
        failing.where = pybuiltins.None
    end
    @test length(kinds) == 10 && all(err -> err isa PyException, kinds)
    where == "memory" || @test occursin("in $where", sprint(showerror, kinds[1]))
    empty!(kinds)
    python_module("snapshots").assert_unchanged(layer, before)
    @test PaddleChainRules.DEPTH[] == 0
    y, again = rrule(net, x)
    @test y == expected && unthunk(again(ȳ)[2]) == x̄ == unthunk(back(ȳ)[2])
    again = nothing
    where == "backward" || @test allocated() <= kept + 2^16
end

@testset "refused calls leave nothing lent" begin
    net, x = PaddleFCNet(3, 2, 2, 4), ones(Float32, 3, 2)
    net(x)
    y, back = PaddleChainRules.pullback(net, x)
    kept = allocated()
    for _ in 1:200
        @test_throws DimensionMismatch net(ones(Float32, 4, 2))
        @test_throws ArgumentError net(ones(3, 2))
        @test_throws DimensionMismatch back(ones(Float32, 3, 3))
        @test_throws ArgumentError back(y; into = (nothing, ones(3, 2)))
    end
    @test allocated() == kept && back(y)[2] isa Matrix
end

# Ctrl-C again and again, at any moment, from outside. (Where several come within a third of a second
# Julia forces its way out of whatever is running, as at the prompt.)
const INTERRUPTED = """
    using PaddleChainRules, ChainRulesCore, Zygote
    Base.exit_on_sigint(false)
    nets = (PaddleFCNet(3, 2, 3, 16; dtype = "float64", seed = 1), PaddleModuleWrapper(paddle.nn.LSTM(3, 4)))
    inputs = (rand(3, 5), rand(Float32, 3, 5, 2))
    value(y) = y isa Tuple ? y[1] : y
    loss(net, x) = sum(abs2, value(net(x)))
    expected = map((net, x) -> Zygote.gradient(loss, net, x)[2], nets, inputs)
    function rounds()
        while true
            for (net, x, x̄) in zip(nets, inputs, expected)
                Zygote.gradient(loss, net, x)[2] ≈ x̄ || exit(7)
            end
        end
    end
    function check(count)
        try
            rounds()
        catch err
            err isa InterruptException || rethrow()
        end
        PaddleChainRules.DEPTH[] == 0 || exit(8)
        return count + 1
    end
    function main()
        count = 0
        command = `bash -c "for i in \\\$(seq 1 200); do sleep 0.\\\$((RANDOM % 20 + 40)); kill -INT \$(getpid()) || exit; done"`
        sender = run(command; wait = false)
        while count < 15
            count = check(count)
        end
        kill(sender, Base.SIGKILL)
        try
            sleep(0.2) # one may be under way
        catch err
            err isa InterruptException || rethrow()
        end
        PaddleChainRules.threaded() do
            Threads.@threads for i in 1:100
                for (net, x, x̄) in zip(nets, inputs, expected)
                    Zygote.gradient(loss, net, x)[2] ≈ x̄ || exit(9)
                end
            end
        end
        print(count, " interrupts")
    end
    main()
    """

@testset "Ctrl-C interrupts, and leaves nothing halfway" begin
    @test run_julia(INTERRUPTED)[1:3] == (0, 0, "15 interrupts")
end

# Ctrl-C while several tasks call: with Julia alone they end, or go on, and nobody waits for ever.
const INTERRUPTED_TASKS = """
    using PaddleChainRules
    Base.exit_on_sigint(false)
    net = PaddleFCNet(3, 2, 3, 16; dtype = "float64", seed = 1)
    x = rand(3, 5)
    PaddleChainRules.compile(net, x) # or not, by LOOPS; the bits then stay
    y = net(x)
    function work()
        t = time()
        while time() - t < 3
            net(x) == y || exit(7)
        end
    end
    function main()
        for round in 1:3
            tasks = Task[]
            sender = run(`bash -c "sleep 0.\$(4 + round); kill -INT \$(getpid())"`; wait = false)
            try
                PaddleChainRules.threaded() do
                    append!(tasks, [Threads.@spawn(work()) for _ in 1:3])
                    foreach(wait, tasks)
                end
            catch err
                err isa Union{TaskFailedException,InterruptException} || exit(6)
            end
            for task in tasks
                try
                    wait(task) # none waits for ever
                catch err
                    err isa Union{TaskFailedException,InterruptException} || exit(11)
                end
            end
            net(x) == y || exit(8)
            PaddleChainRules.DEPTH[] == 0 && PaddleChainRules.OPEN[] == 0 || exit(9)
        end
        PaddleChainRules.threaded() do
            Threads.@threads for i in 1:100; net(x) == y || exit(10); end
        end
        print("right")
    end
    main()
    """

@testset "Ctrl-C while threads call, and nobody waits for ever: loops $loops" for loops in ("off", "on")
    env = ("PADDLE_CHAINRULES_LOOPS" => loops,)
    @test run_julia(INTERRUPTED_TASKS; env, seconds = 120)[1:3] == (0, 0, "right")
end

# A call of machine code that takes seconds.
const INTERRUPTED_CODE = """
    using PaddleChainRules
    Base.exit_on_sigint(false)
    wrapper = PaddleFCNet(8, 2, 12, 256; activation = "tanh", seed = 1)
    x = rand(Float32, 8, 100_000)
    occursin("are machine code", PaddleChainRules.compile(wrapper, x)) || exit(6)
    expected = wrapper(x)
    y = fill(NaN32, size(expected))
    try
        run(`bash -c "sleep 0.5; kill -INT \$(getpid())"`; wait = false)
        PaddleChainRules.forward!(y, wrapper, x)
        exit(7)
    catch err
        err isa InterruptException || rethrow()
    end
    all(isnan, y) || exit(8) # it was left before its end
    wrapper(x) == expected && print("right")
    """

@testset "Ctrl-C ends a long call of machine code" begin
    @test run_julia(INTERRUPTED_CODE)[1:3] == (0, 0, "right")
end

@testset "a segmentation fault elsewhere is still reported" begin
    code = """
        using PaddleChainRules
        wrapper = PaddleFCNet(3, 2, 2, 16)
        wrapper(rand(Float32, 3, 4))
        unsafe_store!(Ptr{Int}(8), 1) # of somebody else's
        """
    code, signal, out, err = run_julia(code)
    @test signal == 11 || code == 139
    @test occursin("Segmentation fault", err) && occursin("unsafe_store!", err)
end

@testset "handlers of all six signals are Julia's after the import" begin
    code = """
        using PaddleChainRules
        # The handler, and the flags behind the mask of 128 bytes.
        handlers() = map(PaddleChainRules.SIGNALS) do signal
            action = PaddleChainRules.sigaction(signal)
            action[1], action[2], action[18] & 0xfbffffff # all flags but that of the restorer
        end
        before = handlers()
        PaddleFCNet(3, 2, 2, 16)
        print(count(handlers() .== before))
        """
    @test run_julia(code)[1:3] == (0, 0, "6")
end
