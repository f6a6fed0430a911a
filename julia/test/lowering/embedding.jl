# Embeddings in lowered nets: Paddle's integers, and those that are none of the table's.

using PaddleChainRules: PaddleModuleWrapper, lower, paddle
using PythonCall
using Random: Xoshiro
using Zygote: Zygote

@testset "embedding, padding $padding" for padding in (nothing, 2)
    layer = paddle.nn.Sequential(
        paddle.nn.Embedding(7, 5; padding_idx = padding), paddle.nn.Tanh()
    )
    w, ids = PaddleModuleWrapper(layer), rand(Xoshiro(1), 0:6, 3, 4)
    net = lower(w, ids)
    @test net(ids) ≈ w(ids)
    c = randn(Xoshiro(2), Float32, 5, 3, 4)
    found = only(Zygote.gradient(net -> sum(net(ids) .* c), net))
    expected = only(Zygote.gradient(w -> sum(w(ids) .* c), w))
    @test found.params[1] ≈ expected.params[1]
    for (wrong, told) in ((-1, "-1 to 5"), (7, "0 to 7"))
        some = copy(ids)
        some[1:4] .= (0, 5, wrong, 3)
        some[5:end] .= 3
        @test_throws "takes Paddle's integers from 0 to 6, got $told; clamp them" net(some)
        @test_throws "takes Paddle's integers" Zygote.gradient(net -> sum(net(some)), net)
    end
end
