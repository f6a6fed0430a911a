"""Hooks of what a program returns: as those of the function's own results."""

import paddle
import pytest

from conftest import assert_same, randn
from paddle_chainrules import cond, jit, stateless, vjp


def assert_close(found, expected):
    assert_same([*found], [*expected], rtol=1e-9, atol=1e-12)


def double(shape, seed=0):
    return randn(shape, "float64", seed)


def pair(x, w):
    return paddle.tanh(x * w), (w.sin() * x).sum(1)


def tripled(grad):
    return 3 * grad


def shifted(grad):
    return grad + 1


def hooked(fn, change, leaves, back):
    """The gradients of a loss of the results, whose hooks ``change`` registers."""
    own = [leaf.detach() for leaf in leaves]
    for x in own:
        x.stop_gradient = False
    results = fn(*own)
    change(*results)
    back(results, own)
    return [x.grad for x in own]


def both(results, own):
    ((results[0] ** 2).sum() + (results[1] ** 3).sum()).backward()


def first_alone(results, own):
    (results[0] ** 2).sum().backward()


def chain(a, b):
    a.register_hook(tripled)
    a.register_hook(lambda grad: None)
    a.register_hook(shifted)


def removed(a, b):
    a.register_hook(tripled)
    a.register_hook(shifted).remove()
    b.register_hook(tripled)


def on_both(a, b):
    a.register_hook(tripled)
    b.register_hook(lambda grad: grad * grad)


def retained(a, b):
    a.register_hook(tripled)
    a.retain_grads()


CHANGES = {
    "one": (lambda a, b: a.register_hook(tripled), both),
    "on both": (on_both, both),
    "a chain": (chain, both),
    "one is removed": (removed, both),
    "of a result that is not used": (lambda a, b: b.register_hook(shifted), both),
    "by nobody's gradient": (lambda a, b: b.register_hook(shifted), first_alone),
    "retained": (retained, both),
}


@pytest.mark.parametrize("name", CHANGES)
def test_hooks_change_gradients(name):
    change, back = CHANGES[name]
    leaves = double([4, 3]), double([3], seed=1)
    run = jit(pair)
    expected = hooked(pair, change, leaves, back)
    plain = hooked(pair, lambda *_: None, leaves, back)
    same = [bool(paddle.allclose(a, b)) for a, b in zip(expected, plain, strict=True)]
    assert all(same) == (back is first_alone)
    for _ in range(5):
        assert_close(hooked(run, change, leaves, back), expected)


def test_a_hook_of_an_earlier_pass_is_forgotten():
    def one(x):
        return paddle.tanh(x * x)

    x = double([5])
    x.stop_gradient = False
    for fn in (one, jit(one), jit(one)):
        y = fn(x)
        handle = y.register_hook(tripled)
        (first,) = paddle.grad(y.sum(), [x], retain_graph=True)
        (again,) = paddle.grad(y.sum(), [x], retain_graph=True)
        stopped = paddle.grad(y.sum(), [y], retain_graph=True)
        assert_close([again], [first])
        assert stopped[0].shape == y.shape
        assert handle.remove()
        (last,) = paddle.grad(y.sum(), [x], retain_graph=True)
        assert_close([3 * last], [first])


def test_within_a_function_that_is_differentiated():
    run = jit(pair)

    def outer(inner):
        def fn(x, w):
            a, b = inner(x, w)
            a.register_hook(tripled)
            return (a * a).sum() + b.sum()

        return fn

    leaves = double([4, 3]), double([3], seed=1)
    _, native = vjp(outer(pair), *leaves)
    expected = native(paddle.ones([], "float64"))
    for _ in range(5):
        _, back = vjp(outer(run), *leaves)
        assert_close([*back(paddle.ones([], "float64"))], [*expected])


def test_nets_on_the_callers_graph():
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Tanh()).to(
        dtype="float64"
    )
    net, params, _ = stateless(layer, jit=True)
    x = double([5, 3])
    x.stop_gradient = False
    y = layer(x)
    y.register_hook(tripled)
    (expected,) = paddle.grad((y**2).sum(), [x])
    for _ in range(5):
        y = net.forward(params, x)
        y.register_hook(tripled)
        (found,) = paddle.grad((y**2).sum(), [x])
        assert_close([found], [expected])


def test_a_choice():
    x = double([5])
    x.stop_gradient = False
    y = paddle.sin(x)
    y.register_hook(tripled)
    (expected,) = paddle.grad((y**2).sum(), [x])
    y = cond(paddle.to_tensor(True), paddle.sin, paddle.cos, x)
    y.register_hook(tripled)
    (found,) = paddle.grad((y**2).sum(), [x])
    assert_close([found], [expected])


REFUSED = {
    "another shape": (lambda grad: grad.sum(), r"of shape \[\]"),
    "another width": (lambda grad: grad[:, :2], r"of shape \[4, 2\]"),
    "no tensor": (lambda grad: 3.0, "returned a float"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_gradient_is_refused(name):
    hook, words = REFUSED[name]
    run = jit(pair)
    for _ in range(3):
        leaves = double([4, 3]), double([3], seed=1)
        for x in leaves:
            x.stop_gradient = False
        a, _ = run(*leaves)
        a.register_hook(hook)
        with pytest.raises((OSError, ValueError, TypeError), match=words):
            (a**2).sum().backward()


def chained(x):
    y = paddle.tanh(x)
    return y, y * x


def test_a_result_that_others_are_computed_of():
    """Natively such a hook sees the gradients of all that come after it."""
    x = double([3])
    x.stop_gradient = False
    for fn in (jit(chained), jit(lambda x: (paddle.tanh(x),) * 2)):
        for _ in range(3):
            a, b = fn(x)
            with pytest.raises(RuntimeError, match="computes other results"):
                a.register_hook(tripled)
    a, b = jit(chained)(x)
    b.register_hook(tripled)
    (found,) = paddle.grad(a.sum() + b.sum(), [x])
    y, z = chained(x)
    z.register_hook(tripled)
    assert_close([found], paddle.grad(y.sum() + z.sum(), [x]))


def test_gradients_of_gradients_are_refused():
    """Natively the hook is called for what Paddle's operators have kept, too."""
    run = jit(pair)
    leaves = double([4, 3]), double([3], seed=1)
    for x in leaves:
        x.stop_gradient = False
    a, b = pair(*leaves)
    a.register_hook(tripled)
    expected = paddle.grad([a.sum(), b.sum()], leaves)
    for _ in range(3):
        a, b = run(*leaves)
        a.register_hook(tripled)
        slopes = paddle.grad([a.sum(), b.sum()], leaves, create_graph=True)
        assert_close(slopes, expected)
        with pytest.raises((OSError, NotImplementedError), match="Remove the hook"):
            (slopes[0] ** 2).sum().backward()
