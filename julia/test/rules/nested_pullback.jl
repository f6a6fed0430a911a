# `PaddleChainRules.pullback` within a function that is differentiated: beside plain Julia, and what is refused.

using PaddleChainRules: PaddleChainRules, PaddleFCNet, PaddleModuleWrapper, PaddleNet, compile, paddle, pullback
using Random: Xoshiro
using Zygote: Zygote

include("../has_code.jl")
include("slopes.jl")

chain(x, (w1, b1, w2, b2)) = w2 * tanh.(w1 * x .+ b1) .+ b2
flat(ps) = reduce(vcat, vec.(values(ps)))

"The gradients of `sum(c .* chain(x, ps))` by hand."
function gradients_of_chain(x, (w1, b1, w2, b2), c)
    h = tanh.(w1 * x .+ b1)
    before = (w2' * c) .* (1 .- h .^ 2)
    return w1' * before, (before * x', vec(sum(before; dims = 2)), c * h', vec(sum(c; dims = 2)))
end

of_both(x̄, p̄s) = 2 * total(x̄) + total(p̄s)

const WRAPPER = PaddleFCNet(3, 2, 2, 5; activation = "tanh", dtype = "float64", seed = 1)
const X, C = randn(Xoshiro(1), 3, 4), randn(Xoshiro(2), 2, 4)

@testset "the value and the gradients, differentiated again" for has_code in (false, true)
    net, ps = PaddleNet(WRAPPER), WRAPPER.params
    has_code && HAS_CODE && foreach(p -> compile(net, X, p), (ps, flat(ps)))
    function with_both(x, ps, c)
        y, back = pullback(net, x, ps)
        return sum(cos, y) + of_both(back(c)...)
    end
    by_hand(x, ps, c) = sum(cos, chain(x, ps)) + of_both(gradients_of_chain(x, ps, c)...)
    expected = Zygote.gradient(by_hand, X, ps, C)
    for given in (ps, flat(ps), NamedTuple{Tuple(net.names)}(ps))
        x̄, p̄s, c̄ = Zygote.gradient(with_both, X, given, C)
        @test x̄ ≈ expected[1] && c̄ ≈ expected[3]
        @test flat(given isa Vector ? (p̄s,) : p̄s) ≈ flat(expected[2])
    end
    function with_wrapper(w, x)
        y, back = pullback(w, x)
        p̄s, x̄ = back(C)
        return sum(cos, y) + of_both(x̄, p̄s)
    end
    w̄, x̄ = Zygote.gradient(with_wrapper, WRAPPER, X)
    @test flat(w̄.params) ≈ flat(expected[2]) && x̄ ≈ expected[1]
    slope(ps) = sum(sin, pullback(net, X, ps)[1]) # the value alone
    @test flat(Zygote.gradient(slope, ps)[1]) ≈ flat(Zygote.gradient(ps -> sum(sin, chain(X, ps)), ps)[1])
end

@testset "of a layer that is no chain, with a keyword, beside differences" begin
    layer = smooth()
    net, params = PaddleNet(PaddleModuleWrapper(layer)), PaddleModuleWrapper(layer).params
    image, scale, c = randn(Xoshiro(1), 6, 5, 2, 4), randn(Xoshiro(2), 1, 4), randn(Xoshiro(3), 2, 4)
    @test right(image, params, c) do x, ps, c
        y, back = pullback(net, x, ps; scale)
        return total(y) + of_both(back(c)...)
    end
end

@testset "what has no derivative is refused in words" begin
    net, ps = PaddleNet(WRAPPER), WRAPPER.params
    into(x) = (r = pullback(net, x, ps)[2](C; into = (similar(x), nothing)); sum(r[1]))
    @test_throws "leave into and accumulate out" Zygote.gradient(into, X)
    back = pullback(net, X, ps)[2]
    @test_throws "call PaddleChainRules.pullback within that function" Zygote.gradient(c -> sum(back(c)[1]), C)
    @test_throws "call PaddleChainRules.pullback within that function" Zygote.gradient(c -> sum(back(c; into = (copy(X), nothing))[1]), C)
    third(x) = sum(Zygote.gradient(x -> sum(pullback(net, x, ps)[2](C)[1]), x)[1])
    @test_throws "end at the second order" Zygote.gradient(third, X)
end
