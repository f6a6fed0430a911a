# More parameter arrays than are kept in tuples, in every form and by every way.

using ChainRulesCore: NoTangent, Tangent, add!!, rrule, unthunk
using PaddleChainRules: PaddleChainRules, PaddleModuleWrapper, PaddleNet, load_params, paddle, save_params, vjp
using PythonCall: PythonCall
using Random: Xoshiro
using Zygote: Zygote

include("../oracle.jl")

@testset "many parameter arrays, $n" for n in (PaddleChainRules.MAX_TUPLE_LENGTH, PaddleChainRules.MAX_TUPLE_LENGTH + 2)
    paddle.seed(5)
    widths = [3 + i % 3 for i in 0:(n÷2)]
    linears = [paddle.nn.Linear(a, b) for (a, b) in zip(widths, widths[2:end])]
    layer = paddle.nn.Sequential(Iterators.flatten(zip(linears, (paddle.nn.Tanh() for _ in linears)))...).to(dtype = "float64")
    w = PaddleModuleWrapper(layer)
    net, x = PaddleNet(w), randn(Xoshiro(1), 3, 5)
    @test length(w.params) == n
    c = randn(Xoshiro(2), size(w(x)))
    (y,), expected, (by_x,) = native(layer, (x,), (c,))
    close(a, b) = same(a, b; rtol = 1e-9, atol = 1e-12)
    right(found) = length(found) == n && all(map(close, collect(Any, found), expected))
    theta = reduce(vcat, map(vec, collect(w.params)))
    named = NamedTuple{Tuple(reverse(net.names))}(reverse(w.params))
    in_order(nt) = [nt[name] for name in net.names]
    @test close(w(x), y)
    for _ in 1:5 # by the tape, then by a program
        ḡ, x̄ = Zygote.gradient((w, x) -> sum(c .* w(x)), w, x)
        @test right(ḡ.params) && close(x̄, by_x)
        @test right(Zygote.gradient(ps -> sum(c .* net(x, ps)), w.params)[1])
        @test right(in_order(Zygote.gradient(ps -> sum(c .* net(x, ps)), named)[1]))
        @test close(Zygote.gradient(t -> sum(c .* net(x, t)), theta)[1], reduce(vcat, map(vec, expected)))
    end
    w̄, x̄ = rrule(w, x)[2](c)
    @test w̄ isa Tangent{typeof(w)} && close(unthunk(x̄), by_x)
    first_use = map(unthunk, Tuple(w̄.params))
    @test right(first_use)
    foreach(g -> fill!(g, NaN), first_use)
    @test right(map(unthunk, Tuple(w̄.params))) && right(map(unthunk, Tuple(w̄.params)))
    _, back = PaddleChainRules.pullback(net, x, named)
    x̄, p̄s = back(c)
    @test close(x̄, by_x) && keys(p̄s) == keys(named) && right(in_order(p̄s))
    buffers = map(similar, w.params)
    _, back = PaddleChainRules.pullback(w, x)
    for times in (1, 2)
        back(c; into = (buffers, nothing), accumulate = times == 2)
        @test right(map(g -> g ./ times, buffers))
    end
    @test_throws "overlaps another" back(c; into = (Base.setindex(buffers, w.params[2], 2), nothing))
    @test right(vjp(w, x, c)[1])
    total = zero(x)
    @test add!!(total, rrule(w, x)[2](c)[2]) === total && close(total, by_x)
    frozen = PaddleChainRules.freeze(w, r"bias")
    ḡ = Zygote.gradient(w -> sum(c .* w(x)), frozen)[1]
    @test all(i -> isodd(i) ? close(ḡ.params[i], expected[i]) : ḡ.params[i] === nothing, 1:n)
    other = map(p -> 2 .* p, w.params)
    @test net(x, other) != w(x) && close(w(x), y) # bound anew, and again
    w.params[3] .*= 2
    @test !close(w(x), y) # a change in place is seen
    w.params[3] ./= 2
    @test close(w(x), y)
    @test_throws "parameter $(net.names[2]) has size" net(x, Base.setindex(w.params, zeros(9), 2))
    mktempdir() do dir
        path = joinpath(dir, "net.npz")
        save_params(path, w)
        @test load_params(path, w).params == w.params
    end
end
