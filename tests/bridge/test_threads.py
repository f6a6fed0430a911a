"""Several threads of Python at once, and gradients asked for within gradients."""

import sys
import threading

import numpy as np
import paddle
from paddle import nn

from conftest import assert_same, randn, run_code
from paddle_chainrules import stateless, value_and_grad, vjp
from paddle_chainrules.paddle_side.rules.table import OPERATORS, WITH_OUT


def on_threads(count, work):
    """Run ``work(k)`` on so many threads; raise what one raises."""
    errors = []

    def run(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors, errors


def test_seeds_of_several_threads():
    """The draws of each call are those of its seed, the program's own go on."""
    net, params, _ = stateless(
        nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    )
    x = randn([16, 8])

    def call(seed):
        y, pullback = net.pullback(params, x, seed=seed)
        return [y.numpy(), pullback(paddle.ones_like(y))[1][0].numpy()]

    expected = [call(seed) for seed in range(5)]
    paddle.seed(3)
    own = [paddle.randn([1000]).numpy() for _ in range(200)]

    def work(k):
        for i in range(150):
            for a, b in zip(call((i + k) % 5), expected[(i + k) % 5], strict=True):
                np.testing.assert_allclose(a, b, 1e-4, 1e-5)

    paddle.seed(3)
    for _ in on_threads(3, work):
        for number in own:
            np.testing.assert_array_equal(paddle.randn([1000]).numpy(), number)


def test_gradients_on_several_threads():
    net, params, _ = stateless(
        nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))
    )
    xs = [randn([4, 3], seed=k) for k in range(4)]

    def gradient(k):
        def loss(p):
            _, pullback = vjp(lambda x: net.forward(p, x), xs[k])
            return (pullback(paddle.ones([4, 2]))[0] ** 2).sum()

        y, pullback = net.pullback(params, xs[k])
        return pullback(y), value_and_grad(loss)(params)[1]

    for _ in range(6):  # until they are programs
        expected = [gradient(k) for k in range(4)]

    def work(k):
        for _ in range(40):
            assert_same(gradient(k), expected[k], rtol=1e-4, atol=1e-5)

    for _ in on_threads(4, work):
        assert_same(gradient(0), expected[0], rtol=1e-4, atol=1e-5)


def test_the_operators_are_paddles_own_afterwards():
    """But for a few, which stay and pass on what is no recording's."""
    names = {"conv2d", "pool2d", "huber_loss", "pixel_shuffle", "temporal_shift"}
    assert names.isdisjoint([*OPERATORS, *WITH_OUT])
    ops = {name: getattr(paddle._C_ops, name) for name in names}
    power, layer, x = paddle.Tensor.__pow__, nn.LayerNorm(3), randn([4, 3])
    leaf = x.clone()
    leaf.stop_gradient = False
    value_and_grad(lambda x: value_and_grad(lambda y: (y**3).sum())(x)[1].sum())(x)
    assert {name: getattr(paddle._C_ops, name) for name in ops} == ops
    assert all(type(op).__name__ == "builtin_function_or_method" for op in ops.values())
    assert paddle.Tensor.__pow__ is power
    assert layer(leaf).grad_fn.name() == "LayerNormGradNode"


class Inner(paddle.autograd.PyLayer):
    """The square, with a backward that asks for a gradient itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensor()
        _, pullback = vjp(lambda x: x * x, x.detach())
        return pullback(cotangent)[0]


def test_a_gradient_within_a_gradient():
    x = randn([3])
    _, pullback = vjp(lambda x: Inner.apply(paddle.sin(x)), x)
    for _ in range(3):
        found = pullback(paddle.ones([3]))[0]
        assert_same(found, paddle.sin(2 * x), rtol=1e-5, atol=1e-6)

    def hooked(x):
        y = paddle.sin(x)
        y.register_hook(lambda g: vjp(lambda x: x * 2, g)[1](g)[0])
        return y

    _, pullback = vjp(hooked, x)
    assert_same(pullback(paddle.ones([3]))[0], 2 * paddle.cos(x), rtol=1e-6)
    assert_same(vjp(paddle.sin, x)[1](paddle.ones([3]))[0], paddle.cos(x), rtol=1e-6)


def test_a_gradient_within_paddles_own_backward():
    x = randn([3])
    leaf = x.clone()
    leaf.stop_gradient = False
    for _ in range(3):
        leaf.clear_grad()
        Inner.apply(paddle.sin(leaf)).sum().backward()
        assert_same(leaf.grad, 2 * paddle.sin(x) * paddle.cos(x), rtol=1e-5)


def test_a_hook_of_paddle_grad_itself():
    """Where nothing of this package is entered yet: by rules, not the end."""
    code = """
import paddle
from paddle_chainrules import vjp
x = paddle.ones([3]); x.stop_gradient = False
y = paddle.sin(x)
y.register_hook(lambda g: vjp(lambda x: x * x, g)[1](g)[0])
found = paddle.grad(y.sum(), [x])[0]  # 2 g g, and g is one
print("said" if (found - 2 * paddle.cos(x)).abs().max() < 1e-6 else found)
"""
    done = run_code(code)
    assert (done.returncode, done.stdout.strip()) == (0, "said"), done.stderr[-2000:]


class Outer(nn.Layer):
    """A layer that calls a net of its own."""

    def __init__(self, net, params):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.call = lambda x: net.forward(params, x)

    def forward(self, x):
        return self.call(self.linear(x))


def test_nets_in_nets_on_several_threads_wait_for_no_other():
    inner, inner_params, _ = stateless(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)))
    outer, outer_params, _ = stateless(Outer(inner, inner_params))
    x = paddle.ones([4, 3])

    class Within(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, h):
            return h * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * inner.forward(inner_params, x)

    calls = [
        lambda: outer.forward(outer_params, x, seed=1),
        lambda: inner.forward(inner_params, x, seed=1),
        lambda: value_and_grad(lambda h: Within.apply(h).sum())(x),
    ]

    def work(k):
        for _ in range(200):
            calls[k]()

    for _ in on_threads(3, work):
        pass
