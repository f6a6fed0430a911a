"""What a gradient is computed of keeps its bytes, whatever shares memory with it."""

import itertools

import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import jit as as_jit
from paddle_chainrules import stateless, value_and_grad, vjp


def bytes_of(*tensors):
    return [t.numpy().tobytes() for t in tensors]


VIEWS = {
    "itself": lambda x: x,
    "rows": lambda x: x[1:],
    "in a row": lambda x: x.flatten(),
    "another shape": lambda x: x.reshape([2, -1]),
    "an axis more": lambda x: x.unsqueeze(0),
}


@pytest.mark.parametrize("of", ["input", "hidden"])
@pytest.mark.parametrize("jit", [None, False, True])
def test_cotangents_of_results_that_share_memory(jit, of, count_case):
    """Two results that are views of one tensor; gradients are added at it."""

    class Gives(nn.Layer):
        def __init__(self, views):
            super().__init__()
            self.scale, self.views = self.create_parameter([1]), views

        def forward(self, x):
            given = x * self.scale if of == "hidden" else x
            return [VIEWS[name](given) for name in self.views]

    def gradient(back, bars):
        (by_name, by_arg), held = back(bars), bytes_of(*bars)
        assert held == kept
        return [by_name["scale"], *by_arg]

    for views in itertools.permutations(VIEWS, 2):
        net, params, _ = stateless(
            Gives(views), **({} if jit is None else {"jit": jit})
        )
        for call in range(2 if jit else 5):
            x = randn([4, 3], "float32", call)
            y, back = net.pullback(params, x)
            bars = [randn(t.shape, seed=10 * call + i) for i, t in enumerate(y)]
            kept = bytes_of(*bars)
            found = [gradient(back, bars) for _ in range(2)]
            assert_same(found[0], found[1], rtol=1e-5, atol=1e-6)
            zeros = [paddle.zeros_like(bar) for bar in bars]
            kept = bytes_of(bars[0], zeros[1])
            first = gradient(back, [bars[0], zeros[1]])
            kept = bytes_of(zeros[0], bars[1])
            second = gradient(back, [zeros[0], bars[1]])
            for whole, *parts in zip(found[0], first, second, strict=True):
                given = [part for part in parts if part is not None]
                if whole is None:
                    assert not given
                    continue
                assert_same(whole, sum(given), rtol=1e-5, atol=1e-6)
            count_case("cotangents of results that share memory")


@pytest.mark.parametrize("jit", [False, True])
def test_a_backward_that_gives_a_tensor_that_it_keeps(jit):
    """Paddle adds other gradients to it, in its memory."""
    kept = randn([4, 3], seed=1)
    before = bytes_of(kept)

    class Product(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            return (x * kept).sum()

        @staticmethod
        def backward(ctx, cotangent):
            return kept

    def first(x):
        return Product.apply(x) + (x * x).sum()

    def last(x):
        return (x * x).sum() + Product.apply(x)

    def twice(x):
        return Product.apply(x) + (x * x).sum() + Product.apply(2 * x)

    for fn, slope in ((first, 1), (last, 1), (twice, 3)):
        gradient = value_and_grad(as_jit(fn) if jit else fn)
        for call in range(3):
            x = randn([4, 3], seed=call)
            expected = slope * kept + 2 * x
            assert_same(gradient(x)[1], expected, rtol=1e-6, atol=1e-6)
            assert bytes_of(kept) == before
            _, back = vjp(fn, x)
            assert_same(back(paddle.ones([]))[0], expected, rtol=1e-6, atol=1e-6)
            assert bytes_of(kept) == before
