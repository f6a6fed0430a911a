"""Programs of any number of samples of functions that make constants as large."""

import paddle
import pytest

from conftest import native, randn
from paddle_chainrules import settings as switch
from paddle_chainrules import stateless
from paddle_chainrules.programs import capture
from paddle_chainrules.programs.sizes.any_size import infer_samples
from programs.fenced import assert_near

nn = paddle.nn
LAYERS = {
    "LSTM, both ways": (lambda: nn.LSTM(3, 4, 2, direction="bidirect"), [6, 3]),
    "GRU": (lambda: nn.GRU(3, 4), [6, 3]),
    "SimpleRNN": (lambda: nn.SimpleRNN(3, 4, 2), [6, 3]),
    "activations": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU6(), nn.Hardswish(), nn.SELU()),
        [3],
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_any_number_of_samples(name, monkeypatch):
    """The first states of a recurrent layer are a number for each sample."""
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    paddle.seed(0)
    make, shape = LAYERS[name]
    layer = make()
    net, params, _ = stateless(layer, jit=True)
    for n in (5, 7, 2, 9, 11, 5):
        for k in range(3):
            x = randn([n, *shape], seed=n + k)
            y, back = net.pullback(params, x)
            c = paddle.utils.map_structure(lambda y: randn(y.shape, seed=3), y)
            expected, (by_name, (by_x,)) = native(layer, (x,), c)
            grads, (slope,) = back(c)
            found = zip(
                *(paddle.utils.flatten(part) for part in (y, net(params, x), expected)),
                strict=True,
            )
            for a, b, right in found:
                assert_near(a, right)
                assert_near(b, right)
            assert_near(slope, by_x, 5_000)
            for key, g in by_name.items():
                assert_near(grads[key], g, 5_000)
    (cache,) = net._programs._caches.values()
    assert len(cache.entries) == 4, "of the first size, and of all others"


def programs(fn, *sizes):
    found = [capture(lambda leaves: [fn(*leaves)], [randn([n, 3])]) for n in sizes]
    return [(one, one.with_expanded_scalars()) for one in found]


def test_what_the_function_makes_is_expanded():
    (one, own), (other, its) = programs(
        lambda x: x * 2.0 + paddle.full([x.shape[0], 1], 0.5), 7, 8
    )
    assert infer_samples(one.program, 7, other.program, 8) is None
    samples = infer_samples(own.program, 7, its.program, 8)
    assert samples is not None
    assert samples.varying == {7}
    x = randn([7, 3])
    assert_near(own.program(x)[0], one.program(x)[0])


def test_what_may_change_is_not():
    """A weight that is zero so far, and numbers that differ."""
    bias, ramp = paddle.zeros([7, 1]), paddle.arange(3.0)
    ((one, own),) = programs(lambda x: x * 2.0 + bias + ramp * 1.0, 7)
    assert own.program.ops == one.program.ops
    x = randn([7, 3])
    paddle.assign(paddle.ones([7, 1]), bias)
    assert_near(own.program(x)[0], x * 2.0 + 1.0 + ramp)
