"""``net.vjp`` of a known call is one program, and equals the pullback."""

import threading

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import FCNet, jvp, stateless
from paddle_chainrules import settings as switch

pytestmark = pytest.mark.skipif(not switch.loops_are_on(), reason="needs machine code")

CALLS = 3 * switch.CALLS_BEFORE_CODE + 40
"""Calls after which one program gives all gradients."""


def known(net, *args):
    """Call vjp until one program serves it; return whether machine code does."""
    for _ in range(CALLS):
        net.vjp(*args)
    params, x, cotangent = args
    args = x if isinstance(x, tuple) else (x,)
    return net._programs.vjps.result(params, args, {}, cotangent) is not None


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6, atol=1e-7)


def flat(grads):
    of_params, of_args = grads
    leaves = of_params.values() if isinstance(of_params, dict) else [of_params]
    args = of_args if isinstance(of_args, tuple) else [of_args]
    return [*leaves, *args]


@pytest.mark.parametrize("as_dict", [True, False])
@pytest.mark.parametrize("rows", [1, 5])
def test_gradients_equal_those_of_the_pullback(rows, as_dict):
    net = FCNet((3, 7, 5, 2), "tanh")
    params = net.init(0) if as_dict else net.spec.flatten(net.init(0))
    x, c = randn([rows, 3]), randn([rows, 2], seed=1)
    assert known(net, params, x, c)
    other, d = randn([rows, 3], seed=2), randn([rows, 2], seed=3)
    back = net.pullback(params, other)[1]
    same(flat(net.vjp(params, other, d)), flat(back(d)))
    same(flat(net.vjp(params, other, d)), flat(back(d)))


def test_gradients_equal_differences():
    net = FCNet((3, 4, 2), "tanh", "float64")
    params = net.init(0)
    x, c = randn([5, 3], "float64"), randn([5, 2], "float64", seed=1)
    assert known(net, params, x, c)
    grads, grad_x = net.vjp(params, x, c)

    def loss(given, x):
        return float((net(given, x) * c).sum())

    for name, value in [*params.items(), ("x", x)]:
        found = grad_x if name == "x" else grads[name]
        for at in np.ndindex(*value.shape):
            step = np.zeros(value.shape)
            step[at] = 1e-6
            up, down = value + paddle.to_tensor(step), value - paddle.to_tensor(step)
            ends = [
                loss(params, v) if name == "x" else loss({**params, name: v}, x)
                for v in (up, down)
            ]
            wanted = (ends[0] - ends[1]) / 2e-6
            assert float(found[at]) == pytest.approx(wanted, rel=1e-6, abs=1e-8)


def test_other_numbers_of_samples_are_served():
    net = FCNet((3, 7, 2), "relu")
    params = net.init(0)
    for rows in (4, 6, 5):
        known(net, params, randn([rows, 3]), randn([rows, 2], seed=1))
    for rows in (1, 2, 4, 5, 6, 9):
        x, c = randn([rows, 3], seed=rows), randn([rows, 2], seed=9)
        wanted = flat(net.pullback(params, x)[1](c))
        same(flat(net.vjp(params, x, c)), wanted)
        known(net, params, x, c)
        same(flat(net.vjp(params, x, c)), wanted)


@pytest.mark.parametrize(
    "cotangent", [randn([4, 3]), randn([5, 2], "float64"), "text", None, randn([2])]
)
def test_a_wrong_cotangent_meets_the_same_error_as_before(cotangent):
    net, fresh = FCNet((3, 7, 2), "tanh"), FCNet((3, 7, 2), "tanh")
    params, x = net.init(0), randn([5, 3])
    known(net, params, x, randn([5, 2]))

    def said(net):
        try:
            return flat(net.vjp(params, x, cotangent))
        except Exception as error:
            return type(error), str(error)

    found, wanted = said(net), said(fresh)
    if isinstance(wanted, tuple):
        assert found == wanted
    else:
        for one, other in zip(found, wanted, strict=True):
            assert (one is None) == (other is None)


def test_a_parameter_of_another_shape_is_refused():
    net = FCNet((3, 7, 2), "tanh")
    params, x, c = net.init(0), randn([5, 3]), randn([5, 2])
    known(net, params, x, c)
    with pytest.raises(ValueError, match="bias"):
        net.vjp({**params, "1.bias": randn([1])}, x, c)


def test_a_cotangent_on_the_graph_has_a_gradient():
    net = FCNet((3, 7, 2), "tanh")
    params, x, c = net.init(0), randn([5, 3]), randn([5, 2])
    known(net, params, x, c)
    c.stop_gradient = False
    grad_x = net.vjp(params, x, c)[1]
    (second,) = paddle.grad([grad_x.sum()], [c])
    _, tangent = jvp(lambda x: net(params, x), (x,), (paddle.ones_like(x),))
    np.testing.assert_allclose(second.numpy(), tangent.numpy(), rtol=1e-5, atol=1e-6)


def test_one_tensor_may_be_argument_and_cotangent():
    net = FCNet((3, 7, 3), "tanh")
    params, x = net.init(0), randn([5, 3])
    known(net, params, randn([5, 3], seed=1), randn([5, 3], seed=2))
    wanted = flat(net.pullback(params, x)[1](paddle.assign(x)))
    same(flat(net.vjp(params, x, x)), wanted)


def test_results_have_memory_of_their_own():
    net = FCNet((3, 7, 2), "tanh")
    params, x, c = net.init(0), randn([5, 3]), randn([5, 2])
    known(net, params, x, c)
    first, second = flat(net.vjp(params, x, c)), flat(net.vjp(params, x, c))
    before = [t.numpy().copy() for t in second]
    for tensor in first:
        tensor.fill_(1e30)
    for tensor, value in zip(second, before, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), value)
    second[0].fill_(0.0)
    for tensor, value in zip(second[1:], before[1:], strict=True):
        np.testing.assert_array_equal(tensor.numpy(), value)


def test_dropout_draws_as_the_pullback_does():
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 50), paddle.nn.Dropout(0.5), paddle.nn.Linear(50, 2)
    )
    net, params, _ = stateless(layer)
    x, c = randn([5, 3]), randn([5, 2])
    for _ in range(CALLS):
        net.vjp(params, x, c)
    for seed in range(3):
        paddle.seed(seed)
        found = flat(net.vjp(params, x, c))
        after = paddle.rand([2]).numpy()
        paddle.seed(seed)
        same(found, flat(net.pullback(params, x)[1](c)))
        np.testing.assert_array_equal(paddle.rand([2]).numpy(), after)


def test_threads_get_their_own_gradients():
    net = FCNet((3, 7, 2), "tanh")
    params = net.init(0)
    given = [(randn([5, 3], seed=k), randn([5, 2], seed=10 + k)) for k in range(4)]
    wanted = [flat(net.pullback(params, x)[1](c)) for x, c in given]
    wrong = []

    def run(k):
        for _ in range(CALLS):
            found = flat(net.vjp(params, *given[k]))
            for one, other in zip(found, wanted[k], strict=True):
                if not np.allclose(one.numpy(), other.numpy(), 1e-5, 1e-6):
                    wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
