"""vjp and value_and_grad of plain functions, on trees."""

from typing import NamedTuple

import numpy as np
import optree
import paddle
import pytest

from conftest import assert_same, programs_on, randn
from paddle_chainrules import grad, hvp, value_and_grad, vjp


class Point(NamedTuple):
    x: paddle.Tensor
    y: paddle.Tensor


def native_grads(fn, leaves, cotangents):
    """Gradients by paddle.grad on fresh leaves."""
    fresh = [leaf.detach().clone() for leaf in leaves]
    for leaf in fresh:
        leaf.stop_gradient = False
    return paddle.grad(list(fn(*fresh)), fresh, cotangents)


def test_vjp_of_trees():
    a, b, c = (randn([2, 3], "float64", i) for i in range(3))

    def fn(first, second):
        x, y = first["p"], second
        return {"out": x.x * x.y, "rest": [paddle.sin(y), x.y + y]}

    ct = [randn([2, 3], "float64", i) for i in range(3, 6)]
    y, pullback = vjp(fn, {"p": Point(a, b), "note": "kept"}, c)
    assert_same(y, {"out": a * b, "rest": [paddle.sin(c), b + c]})
    grads = pullback({"out": ct[0], "rest": [ct[1], ct[2]]})
    expected = native_grads(
        lambda a, b, c: (a * b, paddle.sin(c), b + c), (a, b, c), ct
    )
    assert_same(
        grads,
        ({"p": Point(expected[0], expected[1]), "note": None}, expected[2]),
        rtol=1e-13,
    )


def test_none_is_a_zero_cotangent():
    a = randn([3], "float64")
    _, pullback = vjp(lambda a: (a * 2, a * 3), a)
    assert_same(
        pullback((None, paddle.ones([3], "float64"))),
        (paddle.full([3], 3.0, "float64"),),
    )
    assert_same(pullback((None, None)), (paddle.zeros_like(a),))


def test_integers_and_other_leaves_get_none():
    a, ids, mask = randn([5]), paddle.to_tensor([1, 3]), paddle.to_tensor([True, False])

    def fn(a, ids, mask, scale):
        return paddle.where(mask, a[ids] * scale, paddle.zeros([2]))

    _, pullback = vjp(fn, a, ids, mask, 2.0)
    grads = pullback(paddle.to_tensor([5.0, 7.0]))
    assert_same(grads[0], paddle.to_tensor([0.0, 10.0, 0.0, 0.0, 0.0]))
    assert grads[1:] == (None, None, None)


def test_one_tensor_twice_is_two_inputs():
    a = randn([3], "float64")
    _, pullback = vjp(lambda x, y: x * x * y, a, a)
    one = paddle.ones([3], "float64")
    assert_same(pullback(one), (2 * a * a, a * a), rtol=1e-14)


def test_an_output_twice_and_an_input_as_output():
    a = randn([3], "float64")
    one, two = paddle.ones([3], "float64"), paddle.full([3], 2.0, "float64")

    def fn(a):
        b = a * 3
        return b, b, a

    y, pullback = vjp(fn, a)
    assert_same(pullback((one, two, one)), (paddle.full([3], 10.0, "float64"),))
    a[0] = 99.0
    assert float(y[2][0]) != 99.0


def test_captured_tensors_are_constants():
    a = randn([3], "float64")
    a.stop_gradient = False
    _, pullback = vjp(lambda x: x * a, a.detach())
    assert_same(pullback(paddle.ones([3], "float64"))[0], a.detach())


def test_the_callers_tensors_stay_as_they_are():
    a = randn([3])
    version = a.inplace_version
    _, pullback = vjp(lambda x: (x * x).sum(), a)
    pullback(paddle.to_tensor(1.0))
    assert a.stop_gradient
    assert a.grad is None
    assert a.inplace_version == version


def test_works_inside_no_grad():
    a = randn([3])
    with paddle.no_grad():
        y, pullback = vjp(lambda x: x * x, a)
        assert_same(pullback(paddle.ones([3]))[0], 2 * a)
        assert not paddle.is_grad_enabled()
    assert y.stop_gradient


def test_aux_is_passed_on():
    a = randn([3], "float64")
    y, pullback, aux = vjp(lambda x: (x * 2, {"sum": x.sum(), "n": 3}), a, has_aux=True)
    assert_same(y, a * 2)
    assert aux["n"] == 3
    assert aux["sum"].stop_gradient
    assert_same(
        pullback(paddle.ones([3], "float64"))[0], paddle.full([3], 2.0, "float64")
    )


def test_control_flow_and_varying_shapes():
    def fn(x):
        total = paddle.zeros([], "float64")
        for row in x:
            total = total + (row**2).sum() if row[0] > 0 else total - row.sum()
        return total

    for n in (1, 4):
        x = randn([n, 3], "float64", n)
        _, pullback = vjp(fn, x)
        (grad,) = pullback(paddle.ones([], "float64"))
        positive = (x[:, :1] > 0).astype("float64")
        assert_same(grad, positive * 2 * x - (1 - positive), rtol=1e-14)


def test_derivatives_of_derivatives_by_nesting():
    x = randn([4], "float64")

    def slope(x):
        _, pullback = vjp(lambda x: paddle.sin(x) * x, x)
        return pullback(paddle.ones([4], "float64"))[0]

    _, pullback = vjp(slope, x)
    (second,) = pullback(paddle.ones([4], "float64"))
    assert_same(second, 2 * paddle.cos(x) - x * paddle.sin(x), rtol=1e-12, atol=1e-13)


def test_wrt_positions():
    a, b = randn([3], "float64"), randn([3], "float64", 1)
    _, pullback = vjp(lambda a, b: a * b, a, b)
    one = paddle.ones([3], "float64")
    assert_same(pullback(one, wrt=[1]), (None, a))


def test_value_and_grad():
    w = {"a": randn([3], "float64"), "b": randn([], "float64", 1)}
    x = randn([3], "float64", 2)

    def loss(w, x, *, power=2):
        return ((w["a"] * x + w["b"]) ** power).sum()

    value, grad = value_and_grad(loss)(w, x)
    residual = w["a"] * x + w["b"]
    assert_same(value, (residual**2).sum(), rtol=1e-14)
    assert_same(grad, {"a": 2 * residual * x, "b": (2 * residual).sum()}, rtol=1e-13)
    assert w["a"].grad is None

    value, grads = value_and_grad(loss, argnums=(1, 0))(w, x, power=3)
    assert_same(grads[0], 3 * residual**2 * w["a"], rtol=1e-13)
    assert_same(grads[1]["a"], 3 * residual**2 * x, rtol=1e-13)

    (value, aux), grad = value_and_grad(lambda w, x: (loss(w, x), "aux"), has_aux=True)(
        w, x
    )
    assert aux == "aux"
    assert_same(grad["a"], 2 * residual * x, rtol=1e-13)


def test_what_a_later_call_depends_on_reaches_the_value():
    """An argument that is not differentiated, a closure, an object, a global list."""
    x, one = paddle.to_tensor([1.0, 2.0]), paddle.ones([2])
    caught, held = [one], Held()
    held.weight = one
    functions = {
        "argument": (value_and_grad(lambda x, w: (x * w).sum()), None),
        "list": (value_and_grad(lambda x: (x * caught[0]).sum()), caught),
        "object": (value_and_grad(held.loss), held),
    }
    for where, place in functions.values():
        args = (one,) if place is None else ()
        where(x, *args)
        w = paddle.to_tensor([3.0, 4.0], stop_gradient=False)
        if place is caught:
            caught[0] = w
        elif place is held:
            held.weight = w
        value, _ = where(x, *((w,) if place is None else ()))
        (value + (w * w).sum()).backward()
        assert w.grad.tolist() == [7.0, 10.0]


class Held:
    def loss(self, x):
        return (x * self.weight).sum()


def test_what_lies_deeper_than_is_looked_is_known_from_the_first_call():
    held = weight = paddle.to_tensor([3.0, 4.0], stop_gradient=False)
    for _ in range(12):
        held = [held]

    def loss(x):
        found = held
        while isinstance(found, list):
            (found,) = found
        return (x * found).sum()

    x, call = paddle.to_tensor([1.0, 2.0]), value_and_grad(loss)
    for count in range(1, 4):
        call(x)[0].backward()
        assert weight.grad.tolist() == [count, 2.0 * count]


def test_an_argument_asked_for_twice():
    x = paddle.to_tensor([1.0, 2.0])
    _, (one, other) = value_and_grad(lambda x: (x * x).sum(), (0, 0))(x)
    assert one.tolist() == other.tolist() == [2.0, 4.0]
    assert value_and_grad(lambda x: (x * x).sum(), np.int64(0))(x)[1].tolist() == [2, 4]


def test_a_tensor_of_somebody_elses_is_not_handed_out():
    c = paddle.ones([3])
    y, _ = vjp(lambda x: c, randn([3]))
    y.zero_()
    assert c.tolist() == [1.0, 1.0, 1.0]


def test_a_quotient_within_derivatives_is_the_quotient():
    q, seen = paddle.to_tensor([49.0], dtype="float64"), []

    def outer(b):
        seen.append(vjp(lambda a: paddle.floor(a / b), q)[0].detach().item())
        return b.sum()

    value_and_grad(outer)(q)
    assert seen == [1.0]


@programs_on
def test_a_gradient_that_fails_leaves_gradients_on():
    x = randn([3, 4], "float64")
    for derivative in (grad, lambda fn: lambda x: hvp(fn, x, x)):
        with pytest.raises(NotImplementedError, match="nextafter"):
            derivative(lambda x: (paddle.nextafter(x, x + 1) ** 2).sum())(x)
        assert paddle.is_grad_enabled()
        assert_same(derivative(lambda x: (x**2).sum())(x), 2 * x)


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (-1, 6.0),
        (np.int64(0), 9.0),
        ([-1, 0], (6.0, 9.0)),
        (np.array([0, 1]), (9.0, 6.0)),
        (range(2), (9.0, 6.0)),
        ((1, -1), (6.0, 6.0)),
    ],
)
def test_argnums(argnums, expected):
    a, b = paddle.ones([1]), paddle.full([1], 3.0)
    found = value_and_grad(lambda a, b: (a * b * b).sum(), argnums)(a, b)[1]
    assert optree.tree_map(lambda g: g.item(), found) == expected
