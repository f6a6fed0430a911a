"""Embeddings with sparse gradients beside the same in dense arithmetic."""

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import grad, hvp, stateless


class Padded(nn.Layer):
    """A table with padding, that may be used once more."""

    def __init__(self, padding, kind):
        super().__init__()
        self.table, self.kind = self.create_parameter([5, 3]), kind
        self.padding = padding

    def forward(self, index):
        rows = F.embedding(index, self.table, self.padding, sparse=True)
        if self.kind == "tied":
            rows = paddle.tanh(rows) @ self.table.T
        if self.kind == "twice":
            more = F.embedding(index[:1], self.table, self.padding, sparse=True)
            rows = rows * rows + more * more
        return rows


@pytest.mark.parametrize("kind", ["once", "twice", "tied"])
@pytest.mark.parametrize("padding", [None, 0, 1, -1])
@pytest.mark.parametrize("jit", [None, False, True])
def test_the_padding_of_a_sparse_embedding(jit, padding, kind, count_case):
    """Its row has no gradient, at the first call nor at a later one."""
    net, params, _ = stateless(
        Padded(padding, kind), **({} if jit is None else {"jit": jit})
    )
    index = paddle.to_tensor([[1, 2, 2], [4, 0, 1]])
    table = params["table"].astype("float64")
    pad = None if padding is None else padding % 5

    def plain(table):
        kept = paddle.ones([5, 1], table.dtype)
        if pad is not None:
            kept[pad] = 0.0
        rows = (table * kept)[index]
        if kind == "tied":
            return paddle.tanh(rows) @ table.T
        return rows * rows + rows[:1] * rows[:1] if kind == "twice" else rows

    for call in range(6):
        y, back = net.pullback(params, index)
        bar = randn(y.shape, seed=call)
        exact = grad(lambda t, b=bar: (plain(t) * b.astype("float64")).sum())(table)
        exact = exact.astype("float32")
        assert_same(back(bar)[0]["table"], exact, rtol=1e-5, atol=1e-6)
        rows = back(bar, sparse=True)[0]["table"].to_dense()
        assert_same(rows, exact, rtol=1e-5, atol=1e-6)
        count_case("gradients of a sparse embedding with padding")

    def loss(params):
        return (net.forward(params, index) ** 2).sum()

    along = {"table": randn([5, 3], seed=7)}
    found = hvp(loss, params, along)["table"]
    exact = hvp(
        lambda t: (plain(t) ** 2).sum(), table, along["table"].astype(table.dtype)
    )
    assert_same(found, exact.astype("float32"), rtol=1e-4, atol=1e-5)
