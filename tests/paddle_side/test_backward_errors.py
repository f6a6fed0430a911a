"""Transforms on the way back of a ``PyLayer`` or in a hook: errors, and what works."""

import paddle
import pytest
from paddle import nn
from paddle.autograd import PyLayer

from conftest import assert_same, randn
from paddle_chainrules import (
    grad,
    hessian,
    hvp,
    jacrev,
    jit,
    jvp,
    linearize,
    stateless,
    value_and_grad,
    vjp,
    vmap,
)


def slope_by(inner):
    """``3 x^2`` by an inner derivative."""

    class Cube(PyLayer):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, cotangent):
            (x,) = ctx.saved_tensor()
            return cotangent * inner(x)

    return lambda x: Cube.apply(x * 1.0)


def cube(x):
    return (x**3).sum()


INNER = {
    "grad": grad(cube),
    "value_and_grad": lambda x: value_and_grad(cube)(x)[1],
    "vjp": lambda x: vjp(lambda x: x**3, x)[1](paddle.ones_like(x))[0],
    "jvp": lambda x: jvp(lambda x: x**3, (x,), (paddle.ones_like(x),))[1],
    "linearize": lambda x: linearize(lambda x: x**3, x)[1](paddle.ones_like(x)),
    "hessian": lambda x: hessian(lambda x: (x**4).sum() / 4)(x).sum(0),
    "jacrev": lambda x: jacrev(lambda x: x**3)(x).sum(0),
}


class Of(nn.Layer):
    def __init__(self, function):
        super().__init__()
        self.function, self.w = function, self.create_parameter([4])

    def forward(self, x):
        return self.function(x * self.w)


def by_pullback(function, x, v, **how):
    net, _, _ = stateless(Of(function), **how)
    _, pullback = net.pullback({"w": paddle.ones([4])}, x)
    return pullback(v)[1][0]


OUTER = {
    "vjp": lambda f, x, v: vjp(f, x)[1](v)[0],
    "grad": lambda f, x, v: grad(lambda x: (f(x) * v).sum())(x),
    "value_and_grad": lambda f, x, v: value_and_grad(lambda x: (f(x) * v).sum())(x)[1],
    "jvp": lambda f, x, v: jvp(f, (x,), (v,))[1],
    "pullback": by_pullback,
    "pullback, jit": lambda f, x, v: by_pullback(f, x, v, jit=True),
    "jit": lambda f, x, v: jit(grad(lambda x: (f(x) * v).sum()))(x),
    "vjp of jit": lambda f, x, v: vjp(jit(f), x)[1](v)[0],
    "jacrev": lambda f, x, v: (jacrev(f)(x) * v).sum(1),
    "hvp": lambda f, x, v: hvp(lambda x: f(x).sum(), x, v),
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_a_backward_takes_derivatives(inner, outer):
    """By rules, since Paddle's engine is busy."""
    function = slope_by(INNER[inner])
    x, v = randn([4]), randn([4], seed=1)
    for _ in range(2):
        found = OUTER[outer](function, x, v)
        exact = 6 * x * v if outer == "hvp" else 3 * x * x * v
        assert_same(found, exact, rtol=1e-5, atol=1e-6)
    assert paddle.is_grad_enabled()
    assert_same(grad(cube)(x), 3 * x * x, rtol=1e-6)


@pytest.mark.parametrize("inner", INNER)
def test_a_program_runs_a_backward_without_the_engine(inner):
    function = slope_by(INNER[inner])
    x, v = randn([4]), randn([4], seed=1)
    for _ in range(3):
        found = OUTER["jit"](function, x, v)
        assert_same(found, 3 * x * x * v, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outer", [name for name in OUTER if name != "hvp"])
@pytest.mark.parametrize("inner", ["grad", "jvp", "hessian"])
def test_the_remedy_works(inner, outer):
    function = slope_by(jit(INNER[inner]))
    x, v = randn([4]), randn([4], seed=1)
    for _ in range(3):
        found = OUTER[outer](function, x, v)
        assert_same(found.detach(), 3 * x * x * v, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inner", ["grad", "vjp", "hessian"])
def test_the_remedy_is_differentiated_once_more(inner):
    function = slope_by(jit(INNER[inner]))
    x, v = randn([4], "float64"), randn([4], "float64", 1)
    for _ in range(2):
        found = hvp(lambda x: (function(x) * v).sum(), x, v)
        assert_same(found, 6 * x * v * v, rtol=1e-9)


@pytest.mark.parametrize("outer", ["vjp", "grad", "pullback"])
def test_a_hook_takes_derivatives(outer):
    def function(x):
        y = paddle.sin(x)
        y.register_hook(lambda g: g * grad(cube)(g.detach()))
        return y * 2

    x, v = randn([4]), randn([4], seed=1)
    for _ in range(2):
        found = OUTER[outer](function, x, v)
        assert_same(found, 3 * (2 * v) ** 2 * 2 * v * paddle.cos(x), rtol=1e-5)


WRONG = {
    "a cotangent of another shape": (
        lambda x: vjp(paddle.sin, x)[1](paddle.ones([7]))[0],
        (ValueError, r"^the cotangent has shape \[7\], the output \[4\]"),
    ),
    "an argument that is not there": (
        lambda x: grad(cube, 3)(x),
        (ValueError, "^argnums asks for argument 3"),
    ),
    "what is no program": (
        lambda x: jit(lambda x: x * float(x.sum()), strict=True)(x),
        (Exception, "(?s)^(?!.*OSError|.*GradNode)"),
    ),
}


@pytest.mark.parametrize("outer", ["vjp", "grad", "pullback", "vjp of jit"])
@pytest.mark.parametrize("wrong", WRONG)
def test_other_errors_of_this_package_come_out_whole(wrong, outer):
    inner, (kind, text) = WRONG[wrong]
    x, v = randn([4]), randn([4], seed=1)
    with pytest.raises(kind, match=text) as caught:
        OUTER[outer](slope_by(inner), x, v)
    assert caught.type is not OSError


def test_an_error_that_was_caught_is_not_brought_up():
    """By one that comes later, of somebody else."""

    def inner(x):
        try:
            grad(cube, 3)(x)
        except ValueError:
            raise LookupError("another") from None

    x, v = randn([4]), randn([4], seed=1)
    with pytest.raises(OSError, match="LookupError: another"):
        OUTER["vjp"](slope_by(inner), x, v)

    def instead(x):
        try:
            return grad(cube, 3)(x)
        except ValueError:
            return 3 * x * x

    found = OUTER["vjp"](slope_by(instead), x, v)
    assert_same(found, 3 * x * x * v, rtol=1e-6)


class Nested(PyLayer):
    """The gradient of the cube, by ``paddle.grad`` in the backward pass."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x**3).detach()

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensor()
        with paddle.enable_grad():
            z = x.detach()
            z.stop_gradient = False
            return paddle.grad((z**3).sum(), z)[0] * cotangent


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_paddles_gradient_within_a_backward_pass():
    """Paddle's engine would end the process; rules call the backward on their own."""
    x = randn([4], "float64")
    loss = lambda x: (Nested.apply(x) * x).sum()  # noqa: E731
    batched = lambda x: vmap(grad(loss))(x[None])[0]  # noqa: E731
    for gradient in (grad(loss), jit(grad(loss)), batched):
        assert_same(gradient(x), 4.0 * x**3, rtol=1e-12)
    with pytest.raises(NotImplementedError, match="write the backward in tensor"):
        hvp(loss, x, x)
