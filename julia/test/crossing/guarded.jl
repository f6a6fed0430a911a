# What may not happen: Python entered without its lock, arrays of the caller's changed, null
# pointers followed, gradients of a part that are wrong.

using ChainRulesCore: ChainRulesCore, InplaceableThunk, add!!, rrule, unthunk
using PaddleChainRules:
    PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, freeze, initial_state, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")
include("../process.jl")

@testset "constants, states and attributes on every thread" begin
    code = """
        using PaddleChainRules, PythonCall, Zygote
        paddle.seed(0)
        layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Dropout(0.5), paddle.nn.Linear(4, 2))
        w = PaddleModuleWrapper(layer)
        e = PaddleModuleWrapper(paddle.nn.Embedding(7, 3; sparse = true))
        net, ps = PaddleNet(w), w.params
        x, words = rand(Float32, 3, 5), [1 2; 5 6]
        expected = [w(x; seed = i) for i in 1:10]
        state = PaddleChainRules.initial_state(net; seed = 3)
        y, next = net(x, ps, state)
        table = e(words)
        function task(i)
            k = mod1(i, 10)
            w(x; seed = k) ≈ expected[k] || exit(7)
            net(x, ps, state)[1] ≈ y || exit(8)
            e(words) == table || exit(9)
            paddle.nn
            i % 5 == 0 && Zygote.gradient(w -> sum(abs2, w(x; seed = k)), w)
            i % 10 == 0 && GC.gc(false)
        end
        PaddleChainRules.threaded() do
            Threads.@threads for i in 1:1500
                task(i)
            end
        end
        print("right")
        """
    @test run_julia(code)[1:3] == (0, 0, "right")
end

@testset "nets made while precompiling" begin
    mktempdir() do dir
        mkpath(joinpath(dir, "HoldsNets", "src"))
        write(joinpath(dir, "HoldsNets", "Project.toml"), """
            name = "HoldsNets"
            uuid = "5f0f2f57-3a51-4f0e-8f5c-0d5b9b6d1a11"
            [deps]
            PaddleChainRules = "$(Base.PkgId(PaddleChainRules).uuid)"
            """)
        write(joinpath(dir, "HoldsNets", "src", "HoldsNets.jl"), """
            module HoldsNets
            using PaddleChainRules
            using PaddleChainRules: PythonCall
            paddle.seed(1)
            const chain = PaddleFCNet(3, 2, 2, 4; activation = "tanh", seed = 0)
            const norm = PaddleChainRules.testmode(PaddleModuleWrapper(
                paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 2)),
            ))
            const x = reshape(Float32.(1:12), 3, 4) ./ 10
            const found = (chain(x), norm(x), laplacian(chain, x), PaddleChainRules.pullback(chain, x)[2](ones(Float32, 2, 4)))
            PaddleChainRules.compile(chain, x)
            const own = PaddleModuleWrapper(
                PythonCall.pybuiltins.type("Own", PythonCall.pytuple((paddle.nn.Linear,)), PythonCall.pydict(; __module__ = "own"))(3, 2),
            )
            end
            """)
        code = """
            push!(LOAD_PATH, $(repr(dir)))
            using HoldsNets, PaddleChainRules
            using HoldsNets: chain, norm, x, found
            again() = (chain(x), norm(x), laplacian(chain, x), PaddleChainRules.pullback(chain, x)[2](ones(Float32, 2, 4)))
            close(a, b) = a isa Tuple ? all(map(close, a, b)) : a ≈ b
            close(again(), found) && print("same ")
            before = norm(x)
            PaddleChainRules.initial_state(norm).buffers.var"1._mean" == zeros(4) && print("buffers ")
            getfield(norm, :net).buffers.var"1._mean" .= 1 # which the net reads
            norm(x) != before && print("shared ")
            occursin("are machine code", PaddleChainRules.compile(chain, x)) && close(again()[[1, 3, 4]], found[[1, 3, 4]]) && print("compiled ")
            try
                HoldsNets.own(x)
            catch err
                text = sprint(showerror, err)
                print(occursin("precompiled", text) && occursin("__init__", text) ? "said" : text)
            end
            """
        found = run_julia(code)
        @test found[1:3] == (0, 0, "same buffers shared compiled said")
    end
end

"A layer of Python's tests that writes into what it is given."
writer(how) = python_module("layers").Writer(how)

@testset "a layer that writes: $how" for how in ("quietly", "params", "integers", "view")
    paddle.seed(0)
    w = PaddleModuleWrapper(writer(how))
    x, n = rand(Xoshiro(1), Float32, 3, 4), [1, 2]
    before = deepcopy((x, n, w.params))
    first_y = w(x, n)
    for _ in 1:3
        @test w(x, n) ≈ first_y
        y, back = PaddleChainRules.pullback(w, (x, n))
        back(y)
        Zygote.gradient(w -> sum(abs2, w(x, n)), w)
        Zygote.gradient(x -> sum(abs2, w(x, n)), x)
        @test (x, n, w.params) == before
    end
end

@testset "sparse embeddings have dense gradients" begin
    paddle.seed(0)
    sparse = PaddleModuleWrapper(paddle.nn.Embedding(7, 3; sparse = true))
    plain = PaddleModuleWrapper(paddle.nn.Embedding(7, 3))
    words, params = [1 2 2; 5 1 2], sparse.params
    net, other = PaddleNet(sparse), PaddleNet(plain)
    for ps in (params, vec(params[1]), (; weight = params[1]))
        loss(net, ps) = sum(abs2, net(words, ps))
        found = Zygote.gradient(ps -> loss(net, ps), ps)[1]
        expected = Zygote.gradient(ps -> loss(other, ps), ps)[1]
        @test all(map(isapprox, found, expected))
    end
    y, back = PaddleChainRules.pullback(sparse, words)
    into = (map(zero, params), nothing)
    back(y; into, accumulate = true)
    @test into[1][1] ≈ Zygote.gradient(w -> sum(abs2, w(words)) / 2, sparse)[1].params[1]
end

@testset "a norm of which some is frozen: $name" for (name, make, size) in (
    ("GroupNorm", () -> paddle.nn.GroupNorm(2, 4; weight_attr = false, bias_attr = false), (5, 4, 3)),
    ("GroupNorm, scale", () -> paddle.nn.GroupNorm(2, 4), (5, 4, 3)),
    ("LayerNorm", () -> paddle.nn.LayerNorm(5), (5, 4, 3)),
    ("BatchNorm", () -> paddle.nn.BatchNorm1D(4; weight_attr = false, bias_attr = false), (5, 4, 3)),
    ("InstanceNorm", () -> paddle.nn.InstanceNorm1D(4; weight_attr = false, bias_attr = false), (5, 4, 3)),
)
    w = PaddleModuleWrapper(make().to(dtype = "float64"))
    moved = PaddleModuleWrapper(w.net, map(p -> p .+ randn(Xoshiro(3), Base.size(p)), w.params))
    x, ȳ = randn(Xoshiro(1), size), randn(Xoshiro(2), size)
    v = randn(Xoshiro(4), size)
    for kept in (moved, freeze(moved, isempty(moved.params) ? () : "weight"))
        f(x) = sum(ȳ .* kept(x))
        found = sum(v .* Zygote.gradient(f, x)[1])
        @test isapprox(found, (f(x .+ 1e-6 .* v) - f(x .- 1e-6 .* v)) / 2e-6; rtol = 1e-6)
    end
end

@testset "adding to an array of another kind" begin
    w = PaddleFCNet(3, 2, 2, 4; seed = 0)
    x, theta = rand(Float32, 3, 5), reduce(vcat, map(vec, w.params))
    y, back = rrule(w.net, x, theta)
    _, x̄, p̄ = back(ones(Float32, 2, 5))
    for (thunk, primal) in ((x̄, x), (p̄, theta))
        @test thunk isa InplaceableThunk
        grad = unthunk(thunk)
        for start in (ones(Float64, size(primal)), ones(Float32, size(primal)), copy(primal))
            kept = copy(start)
            @test add!!(start, thunk) ≈ kept .+ grad
        end
        @test add!!(primal, thunk) ≈ primal .+ grad # not in place: it is read by the rule
    end
end
