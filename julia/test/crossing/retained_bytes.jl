using ChainRulesCore: rrule, unthunk
using PaddleChainRules: PaddleChainRules, RETAINED_BYTES, RETAINED_LIMIT, NEXT_COLLECTION, PaddleFCNet, PaddleModuleWrapper, paddle
using PythonCall: PythonCall

rss() = 4096 * parse(Int, split(read("/proc/self/statm", String))[2])

collected() = (GC.gc(); PythonCall.GC.gc(); RETAINED_BYTES[])

const HELD_NETS = (
    chain = PaddleFCNet(3, 2, 3, 8; seed = 1),
    recorded = PaddleModuleWrapper(paddle.nn.Sequential(
        (f for _ in 1:10 for f in (paddle.nn.Linear(3, 3), paddle.nn.Hardshrink()))...,
    )),
)
x = rand(Float32, 3, 5)

@noinline function keep_ten(net, x, y)
    before = RETAINED_BYTES[]
    kept = [PaddleChainRules.pullback(net, x)[2] for _ in 1:10]
    counted = RETAINED_BYTES[]
    for back in kept
        back(y; into = (nothing, similar(x)))
    end
    return (counted - before > 10sizeof(x)) + (RETAINED_BYTES[] == counted)
end

@testset "bytes behind pullbacks are counted: $name" for (name, net) in pairs(HELD_NETS)
    before = collected()
    y, back = PaddleChainRules.pullback(net, x)
    @test RETAINED_BYTES[] - before > sizeof(x)
    back(y)
    @test RETAINED_BYTES[] == before # let go of after the last gradient
    p̄s, _ = back(y)
    @test RETAINED_BYTES[] >= before
    @test all(map(isapprox, p̄s, back(y)[1]))

    still = RETAINED_BYTES[]
    @test keep_ten(net, x, y) == 2 # of two parts of a gradient, one is asked for
    @test collected() <= still
end

@testset "dropped pullbacks are collected before they hold too much: $name" for (name, net) in pairs(HELD_NETS)
    each = let before = collected()
        y, back = PaddleChainRules.pullback(net, x)
        RETAINED_BYTES[] - before
    end
    collected()
    most, grown, before = 0, 0, 0
    n = 4 * RETAINED_LIMIT ÷ each
    by_code = name === :chain # after some calls, and then nothing is behind Python's objects
    for i in 1:n
        rrule(net, x)
        most = max(most, RETAINED_BYTES[])
        i == n ÷ 2 && (before = rss())
    end
    @test (by_code ? each : RETAINED_LIMIT ÷ 2) < most <= (by_code ? 100each : RETAINED_LIMIT + each)
    @test rss() - before < 50 * 2^20
    @test NEXT_COLLECTION[] == RETAINED_LIMIT
end

@testset "pullbacks in use raise the limit, and give it back" begin
    net, kept = HELD_NETS.recorded, Any[]
    while RETAINED_BYTES[] < 2RETAINED_LIMIT
        push!(kept, last(rrule(net, x)))
    end
    @test NEXT_COLLECTION[] > RETAINED_LIMIT
    expected = unthunk(first(kept)(x)[2])
    # The way back becomes machine code meanwhile, whose products may be of another library.
    @test all(back -> isapprox(unthunk(back(x)[2]), expected; rtol = 1f-5), kept[2:100:end])
    empty!(kept)
    expected = nothing
    while RETAINED_BYTES[] < NEXT_COLLECTION[]
        rrule(net, x)
    end
    rrule(net, x)
    rrule(net, x)
    @test NEXT_COLLECTION[] == RETAINED_LIMIT
end

@testset "large results that are dropped leave nothing" begin
    net = PaddleFCNet(1, 640, 1, 1)
    x = rand(Float32, 1, 4096) # 10 MB out
    rounds = map(1:10) do _ # 800 MB each
        for _ in 1:40
            net(x)
            rrule(net, x)
        end
        GC.gc()
        rss()
    end
    @test rounds[end] - rounds[2] < 200 * 2^20 # the first ones fill what is kept
end
