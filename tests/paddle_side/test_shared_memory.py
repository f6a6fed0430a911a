"""Questions about memory, of tensors that are not dense too."""

import gc

import paddle

from conftest import assert_same, randn
from paddle_chainrules import stateless, value_and_grad
from paddle_chainrules.paddle_side.shared_memory import has_buffer, share_memory


def test_kinds_of_tensors():
    layer = paddle.nn.Embedding(5, 3, sparse=True)
    layer(paddle.to_tensor([1, 2, 1])).sum().backward()
    rows = layer.weight.grad
    x = randn([3])
    assert rows.is_selected_rows()
    assert not has_buffer(rows)
    assert not share_memory(rows, x)
    assert not share_memory(x, rows)
    assert share_memory(x, x[1:])
    assert not share_memory(x, x.clone())
    assert not has_buffer(paddle.to_tensor([[0, 1]]).to_sparse_coo(1))
    left_out = paddle._C_ops.einsum([x], "i->i")[-1][0]
    assert not share_memory(left_out, x)


def test_gradients_of_a_few_rows_stay_what_they_are():
    """Paddle was asked whether they share memory, which it reads as a dense tensor."""
    layer = paddle.nn.Embedding(5, 3, padding_idx=2, sparse=True)
    net, params, _ = stateless(layer)
    words, c = paddle.to_tensor([[1, 2, 1], [0, 4, 3]]), randn([2, 3, 3])
    expected = paddle.zeros([5, 3])
    for row in range(2):
        for k in range(3):
            if (word := int(words[row, k])) != 2:  # the padding
                expected[word] += c[row, k]
    loss = value_and_grad(lambda p: (net(p, words) * c).sum())
    for _ in range(50):
        _, pullback = net.pullback(params, words)
        assert_same(pullback(c)[0]["weight"], expected, rtol=1e-6)
        assert_same(net.vjp(params, words, c)[0]["weight"], expected, rtol=1e-6)
        assert_same(loss(params)[1]["weight"], expected, rtol=1e-6)
        gc.collect()
