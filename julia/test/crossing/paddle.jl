using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, paddle
using PythonCall

@testset "the module paddle" begin
    @test pyconvert(String, paddle.__version__) == pyconvert(String, pyimport("paddle").__version__)
    @test PaddleChainRules.Paddle.paddle === paddle
    @test PaddleChainRules.Paddle.PaddleModuleWrapper === PaddleModuleWrapper
    @test occursin("paddle", repr(paddle))
    @test :nn in propertynames(paddle)
    @test pyis(Py(paddle), pyimport("paddle"))
end

@testset "signal handlers are Julia's after the import" begin
    @test PaddleChainRules.julia_handles_segv()
    # The handler and the first word of the mask; the rest of the struct holds padding.
    handlers() = map(s -> PaddleChainRules.sigaction(s)[1:2], PaddleChainRules.SIGNALS)
    saved = handlers()
    # Paddle puts its own back on request: the case that an import makes.
    PaddleChainRules.keep_signal_handlers() do
        ccall(:signal, Ptr{Cvoid}, (Cint, Ptr{Cvoid}), 11, C_NULL)
        @test !PaddleChainRules.julia_handles_segv()
    end
    @test handlers() == saved
    @test PaddleChainRules.julia_handles_segv()
end

include("../process.jl")

const COLLECT = """
    function storm()
        Threads.@threads for i in 1:64
            for k in 1:3000
                v = rand(100)
                k % 500 == 0 && GC.gc(false)
            end
        end
        GC.gc()
    end
    """

@testset "four threads collect garbage after the import" begin
    code = COLLECT * """
        using PaddleChainRules
        wrapper = PaddleFCNet(3, 2, 2, 16; dtype = "float64")
        x = rand(3, 4)
        y = wrapper(x)
        for i in 1:5
            storm()
            wrapper(x) == y || exit(7)
        end
        print("calls and collections passed on ", Threads.nthreads(), " threads")
        """
    code, signal, out, err = run_julia(code)
    @test (code, signal) == (0, 0)
    @test out == "calls and collections passed on 4 threads"
end

@testset "four threads collect garbage while Paddle is imported" begin
    code = """
        using PaddleChainRules
        done = Threads.Atomic{Bool}(false)
        collections = Threads.Atomic{Int}(0)
        tasks = map(1:3) do _
            Threads.@spawn while !done[]
                v = [rand(100) for _ in 1:1000]
                GC.gc(false)
                Threads.atomic_add!(collections, 1)
            end
        end
        wrapper = PaddleFCNet(3, 2, 2, 16; dtype = "float64")
        x = rand(3, 4)
        y = wrapper(x)
        for i in 1:20
            wrapper(x) == y || exit(7)
        end
        done[] = true
        foreach(wait, tasks)
        print(collections[] > 10 ? "passed" : "too few collections")
        """
    code, signal, out, err = run_julia(code)
    @test (code, signal) == (0, 0)
    @test out == "passed"
end

@testset "Paddle imported first, by someone else, is refused with threads" begin
    code = """
        using PythonCall
        GC.enable(false)
        pyimport("paddle")
        using PaddleChainRules
        try
            PaddleFCNet(3, 2, 2, 16)
        catch err
            print(err.msg)
        end
        """
    _, _, out, _ = run_julia(code)
    @test occursin(r"Julia has \d threads", out)
    @test occursin("say `using PaddleChainRules` before that import", out)
    _, _, out, _ = run_julia(code; threads = 1)
    @test out == ""
end

@testset "Paddle imported first, by someone else, after this package: $threads threads" for threads in (1, 4)
    code = COLLECT * """
        using PaddleChainRules, PythonCall
        GC.enable(false)
        pyimport("paddle")
        PaddleChainRules.julia_handles_segv() && exit(6)
        wrapper = PaddleFCNet(3, 2, 2, 16)
        PaddleChainRules.julia_handles_segv() || exit(7)
        GC.enable(true)
        storm()
        print(size(wrapper(rand(Float32, 3, 4))))
        """
    @test run_julia(code; threads)[1:3] == (0, 0, "(2, 4)")
end

@testset "a Python without the packages says what to run" begin
    mktempdir() do dir
        python = PythonCall.python_executable_path()
        run(`$python -m venv --without-pip $dir`)
        code = """
            using PaddleChainRules
            for f in (() -> PaddleFCNet(3, 2, 2, 16), () -> paddle.nn)
                try
                    f()
                catch err
                    println(err.msg)
                end
            end
            """
        env = ("JULIA_PYTHONCALL_EXE" => joinpath(dir, "bin", "python"), "VIRTUAL_ENV" => "/some/venv", "PYTHONPATH" => "")
        _, _, out, err = run_julia(code; env)
        @test count("The Python package `paddle` is missing from", out) == 2
        @test occursin("-m pip install 'paddlepaddle>=3.3.1'", out)
        @test occursin("JULIA_PYTHONCALL_EXE=/some/venv/bin/python", out)
    end
    message = PaddleChainRules.missing_message("paddle_chainrules")
    @test occursin("-m pip install", message)
    @test occursin(PythonCall.python_executable_path(), message)
    message = PaddleChainRules.missing_message("paddle", "/depot/.CondaPkg/bin/python")
    @test occursin("CondaPkg.add_pip(\"paddlepaddle\"; version = \">=3.3.1\")", message)
end
