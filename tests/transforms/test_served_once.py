"""``backward`` for the second time through a program: an error, and no crash."""

import gc

import paddle
import pytest

from conftest import assert_same, randn, run_code
from paddle_chainrules import jit, stateless

BEGUN = """
import paddle
from paddle_chainrules import hvp, jit, stateless, vjp

x = paddle.to_tensor([[0.3, -0.7]], stop_gradient=False)
f = jit(lambda x: paddle.tanh(x) * x)
net, params, _ = stateless(paddle.nn.Linear(2, 3), jit=True)
for _ in range(4):
    net.forward(params, x.detach())

def again(call):
    try:
        call()
    except (RuntimeError, OSError) as error:
        print("said" if "has been through a program" in str(error) else error)
"""

TWICE = {
    "retained": """
y = f(x).sum()
y.backward(retain_graph=True)
again(y.backward)
""",
    "within operators": """
y = paddle.exp(f(paddle.sin(x))).sum()
y.backward(retain_graph=True)
again(lambda: y.backward(retain_graph=True))
""",
    "by another loss": """
h = f(x)
(h * h).sum().backward(retain_graph=True)
again(h.sum().backward)
""",
    "many": """
h = f(x)
losses = [h.sum() * k for k in range(40)]
losses[0].backward(retain_graph=True)
for k in range(30):
    f(x).sum().backward()
again(losses[1].backward)
""",
    "a net": """
y = net.forward(params, x).sum()
y.backward(retain_graph=True)
again(lambda: paddle.autograd.backward([y], retain_graph=True))
""",
    "not retained": """
y = net.forward(params, x)
y.sum().backward()
again(lambda: y.sum().backward())
""",
    "after paddle.grad": """
y = f(x).sum()
for _ in range(2):
    paddle.grad(y, [x], retain_graph=True)
y.backward(retain_graph=True)
again(y.backward)
""",
    "by paddle.grad": """
y = f(x).sum()
y.backward(retain_graph=True)
again(lambda: paddle.grad(y, x))
""",
    "by paddle.grad, of a net": """
y = net.forward(params, x)
y.sum().backward()
again(lambda: paddle.grad([paddle.exp(y), y * y], [x], retain_graph=True))
""",
    "by paddle.grad, from within a capture": """
y = f(x).sum()
y.backward(retain_graph=True)
again(lambda: jit(lambda y: paddle.grad(y, x)[0])(y))
""",
    "by a transform of what holds it": """
y = f(x).sum()
y.backward(retain_graph=True)
again(lambda: vjp(lambda t: t * y, x)[1](x))
""",
    "the other of two results": """
first, second = jit(lambda x: (paddle.tanh(x), x * x))(x)
first.sum().backward(retain_graph=True)
again(second.sum().backward)
""",
    "a derivative": """
y = f(x).sum()
(g,) = paddle.grad(y, [x], create_graph=True)
(g * g).sum().backward(retain_graph=True)
again((g * g).sum().backward)
""",
}


def test_an_error_and_no_crash(count_case):
    code = BEGUN + "".join(TWICE.values()) + "print('alive')"
    done = run_code(code)
    assert done.stdout.split() == ["said"] * len(TWICE) + ["alive"], done.stderr
    for _ in TWICE:
        count_case("second times through programs")


def test_what_is_served_goes_on():
    fn = jit(lambda x, w: paddle.tanh(x * w).sum())
    x, w = randn([4, 3]), randn([3], seed=1)
    w.stop_gradient = False
    kept = []
    for step in range(5):
        loss = fn(x + step, w)
        first = paddle.grad(loss, [w], retain_graph=True)
        second = paddle.grad(loss, [w], retain_graph=True)
        assert_same(first, second)
        loss.backward()
        kept.append(loss)  # a graph that has been gone through is still there
        assert_same(w.grad, first[0], rtol=1e-6)
        w.clear_gradient()
    net, params, _ = stateless(paddle.nn.Linear(3, 2), jit=True)
    for p in params.values():
        p.stop_gradient = False
    for _ in range(4):
        net.forward(params, x).sum().backward()
    for loss in kept:
        with pytest.raises(OSError, match="has been through a program"):
            loss.backward()


@pytest.mark.parametrize("calls", [1, 3, 40])
@pytest.mark.parametrize("of_leaf", [True, False])
def test_gradients_by_results_of_a_program(of_leaf, calls):
    """Paddle fails at one of several results, and gives two results one gradient."""
    two = lambda a, b: (a * b, (a + b).sum(0))  # noqa: E731
    compiled = jit(two)
    x, c = randn([4, 3], seed=1), randn([3], seed=2)
    x.stop_gradient = False
    for _ in range(calls):
        u, v = compiled(x if of_leaf else paddle.sin(x), paddle.exp(x))
    w, z = compiled(u, u * v)
    loss = (w * z * c).sum() + (u * u).sum()
    by_w, by_z = z * c, (w * c).sum(0)
    by_u = 2 * u + by_w * 2 * u * v + by_z * (1 + v)
    by_v = (by_w * u * u + by_z * u).sum(0)
    expected = {"w": by_w.expand(w.shape), "z": by_z, "u": by_u, "v": by_v}
    given = {"w": w, "z": z, "u": u, "v": v}
    for asked in ("w", "z", "v", "u", "wz", "uv", "zu", "vwuz"):
        tensors = [given[name] for name in asked]
        for again in (False, True):
            found = paddle.grad(loss, tensors, retain_graph=True, create_graph=again)
            for name, g in zip(asked, found, strict=True):
                assert_same(g, expected[name], rtol=1e-5)
    (found,) = paddle.grad(loss, v)
    assert_same(found, by_v, rtol=1e-5)
    *_, own = paddle.grad(loss, [z, x])
    loss.backward()
    assert_same(own, x.grad)


def test_copies_of_nodes_that_paddle_keeps_after_an_error():
    """Paddle lets go of them without Python's lock, at its next gradient."""
    for _ in range(3):
        w = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
        out = jit(lambda a: (a**3).sum())(w)
        with paddle.no_grad():
            w.add_(paddle.to_tensor([5.0, 5.0]))
        with pytest.raises(OSError, match="modified by an inplace"):
            paddle.grad(out, w, create_graph=True)
        del out, w
        gc.collect()
        x = randn([3])
        x.stop_gradient = False
        jit(lambda a: a * a)(x).sum().backward()
        assert_same(x.grad, 2 * x)
