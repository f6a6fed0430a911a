"""Functions written for kinds of calls serve these, and no others."""

import numpy as np
import paddle
import pytest

from conftest import loops_on, products_on, programs_on, randn
from paddle_chainrules import (
    CaptureError,
    FCNet,
    grad,
    jit,
    optimizers,
    value_and_grad,
)
from paddle_chainrules.transforms.as_programs import guarded_calls
from paddle_chainrules.transforms.as_programs.guarded_calls import GuardedCalls

pytestmark = [programs_on]


def settled(fn, *args, calls=80):
    """Return a jitted function whose calls like this one enter machine code."""
    compiled = jit(fn)
    for _ in range(calls):
        compiled(*args)
    assert served(compiled, *args)
    return compiled


def served(compiled, *args, **kwargs):
    """Tell whether a function written for such calls serves one."""
    return compiled._guarded.result(args, kwargs) is not None


def check(compiled, fn, *args):
    for _ in range(2):
        found, want = compiled(*args), fn(*args)
        assert found.dtype == want.dtype
        assert found.stop_gradient == want.stop_gradient
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)


def fn(x, y):
    return paddle.tanh(x) * y.sum() + x.shape[0]


def test_calls_of_other_kinds_find_their_own_programs():
    x, y = randn([5, 3]), randn([4])
    compiled = settled(fn, x, y)
    others = [
        (randn([6, 3], seed=1), y),
        (x, randn([2], seed=2)),
        (x.astype("float64"), y.astype("float64")),
        (randn([3, 5]).T, y),
        (y, y),
        (x, x),
        (randn([5, 3, 1]), y),
    ]
    for other in others:
        check(compiled, fn, *other)
        check(compiled, fn, x, y)


def test_more_kinds_than_one_keep_right_answers():
    compiled = settled(fn, randn([5, 3]), randn([4]))
    for n in [2, 3, 4, 5, 6, 7] * 10:
        check(compiled, fn, randn([n, 3], seed=n), randn([4], seed=n))


@loops_on
def test_a_program_for_any_number_of_samples_serves_from_two_on():
    def scaled(x):
        return paddle.tanh(x) * 2.0

    compiled = jit(scaled)
    for k in range(120):
        compiled(randn([3 + k % 5, 4], seed=k))
    assert served(compiled, randn([2, 4]))
    assert not served(compiled, randn([1, 4]))
    program = compiled.program(randn([7, 4]))
    assert program.samples is not None
    assert program.entered(randn([2, 4])) is not None
    assert program.entered(randn([1, 4])) is None
    assert program.entered(randn([0, 4])) is None
    for n in (1, 2, 9):
        check(compiled, scaled, randn([n, 4], seed=n))


def test_orders_of_dicts_count():
    def weighted(tree):
        return sum((k + 1.0) * value for k, value in enumerate(tree.values()))

    a, b = randn([3]), randn([3], seed=1)
    compiled = settled(weighted, {"a": a, "b": b})
    check(compiled, weighted, {"b": b, "a": a})
    check(compiled, weighted, {"a": a, "b": b})


def test_nestings_and_keywords_count():
    def total(tree, **more):
        rows = tree if isinstance(tree, list) else [tree]
        return sum(rows[1:], rows[0]) * 2.0 + sum(more.values(), 0.0)

    a, b = randn([3]), randn([3], seed=1)
    compiled = settled(total, [a, b])
    check(compiled, total, a)
    check(compiled, total, [a])
    check(compiled, total, [b, a])
    found = compiled([a, b], c=a)
    np.testing.assert_allclose(found, total([a, b], c=a), rtol=1e-6)


def test_tensors_that_require_gradients_are_on_the_graph():
    x, y = randn([5, 3]), randn([4])
    compiled = settled(fn, x, y)
    w = randn([5, 3], seed=3)
    w.stop_gradient = False
    check(compiled, fn, w, y)
    cotangent = randn([5, 3], seed=4)
    (compiled(w, y) * cotangent).sum().backward()
    want = cotangent * (1 - paddle.tanh(w.detach()) ** 2) * y.sum()
    np.testing.assert_allclose(w.grad, want, rtol=1e-5, atol=1e-6)
    with paddle.no_grad():
        check(compiled, fn, w, y)
    check(compiled, fn, x, y)


def test_outer_state_counts():
    held = {"scale": 2.0}
    w = randn([3], seed=5)

    def scaled(x):
        return x * held["scale"] + w

    x = randn([5, 3])
    compiled = settled(scaled, x)
    held["scale"] = 3.0
    check(compiled, scaled, x)
    w.set_value(randn([3], seed=6))
    check(compiled, scaled, x)
    w = randn([1], seed=7)
    check(compiled, scaled, x)
    w.stop_gradient = False
    check(compiled, scaled, x)


def test_the_default_dtype_counts():
    def made(x):
        return x * paddle.ones([3])

    x = randn([3], "float64")
    compiled = jit(made)
    for _ in range(80):
        compiled(x)
    paddle.set_default_dtype("float64")
    try:
        check(compiled, made, x)
    finally:
        paddle.set_default_dtype("float32")
    check(compiled, made, x)


def test_arguments_that_are_no_tensors():
    x, y = randn([5, 3]), randn([4])
    compiled = settled(fn, x, y)
    for wrong in (None, 1.0, "word"):
        with pytest.raises((AttributeError, TypeError, ValueError)):
            compiled(x, wrong)
        check(compiled, fn, x, y)


def test_nets_enter_the_programs_of_earlier_calls():
    net = FCNet((3, 5, 2), "tanh")
    params, other = net.init(0), net.init(1)
    for _ in range(80):
        net(params, randn([7, 3])), net.pullback(params, randn([7, 3]))
    x = randn([7, 3], seed=1)
    assert net._programs.values.result(params, (x,), {}) is not None
    assert net._programs.pullbacks.result(params, (x,), {}) is not None
    assert net._programs.values.result(params, (x, x), {}) is None
    assert net._programs.values.result(params, (x,), {"x": x}) is None
    want = _by_hand(other, x)
    np.testing.assert_allclose(net(other, x), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net.pullback(other, x)[0], want, rtol=1e-5, atol=1e-6)
    c = randn([7, 2], seed=8)
    for _ in range(3):
        grads, slope = net.vjp(other, x, c)
        hidden = np.tanh(
            x.numpy() @ other["0.weight"].numpy() + other["0.bias"].numpy()
        )
        below = c.numpy() @ other["1.weight"].numpy().T * (1 - hidden**2)
        expected = {
            "0.weight": x.numpy().T @ below,
            "0.bias": below.sum(0),
            "1.weight": hidden.T @ c.numpy(),
            "1.bias": c.numpy().sum(0),
        }
        for name, value in expected.items():
            np.testing.assert_allclose(grads[name], value, rtol=1e-4, atol=1e-5)
        by_x = below @ other["0.weight"].numpy().T
        np.testing.assert_allclose(slope, by_x, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="cotangent"):
        net.vjp(other, x, randn([7, 3]))
    with pytest.raises(TypeError, match="cotangent"):
        net.vjp(other, x, c.astype("float64"))
    theta = net.flatten(other)
    for _ in range(50):
        np.testing.assert_allclose(net(theta, x), want, rtol=1e-5, atol=1e-6)
    for n in (1, 4, 7):
        x = randn([n, 3], seed=n)
        want = _by_hand(other, x)
        np.testing.assert_allclose(net(other, x), want, rtol=1e-5, atol=1e-6)
    turned = dict(reversed(other.items()))
    np.testing.assert_allclose(net(turned, x), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="features|width|columns|needs"):
        net(other, randn([7, 4]))
    with pytest.raises(TypeError, match="float64"):
        net(other, x.astype("float64"))


def _by_hand(params, x):
    hidden = np.tanh(x.numpy() @ params["0.weight"].numpy() + params["0.bias"].numpy())
    return hidden @ params["1.weight"].numpy() + params["1.bias"].numpy()


@products_on
def test_gradients_of_a_step_follow_its_tensors():
    net = FCNet((3, 5, 1), "tanh")

    def loss(params, x, y):
        return ((net(params, x) - y) ** 2).mean()

    step = jit(value_and_grad(loss))
    for k in range(90):
        params = net.init(k)
        x, y = randn([7, 3], seed=k), randn([7, 1], seed=k + 100)
        value, grads = step(params, x, y)
    assert served(step, params, x, y)
    for k in range(3):
        params = net.init(k)
        x, y = randn([7, 3], seed=k), randn([7, 1], seed=k + 100)
        value, grads = step(params, x, y)
        leaves = [p.clone() for p in params.values()]
        for leaf in leaves:
            leaf.stop_gradient = False
        own = dict(zip(params, leaves, strict=True))
        hidden = paddle.tanh(x @ own["0.weight"] + own["0.bias"])
        native = ((hidden @ own["1.weight"] + own["1.bias"] - y) ** 2).mean()
        native.backward()
        np.testing.assert_allclose(value, native, rtol=1e-5)
        for name, leaf in own.items():
            np.testing.assert_allclose(grads[name], leaf.grad, rtol=1e-4, atol=1e-6)


class Compiled:
    """A program without machine code, or with some."""

    entered = None


def serves(argument, calls):
    """Return a function for one argument, which notes its calls."""

    def call(x):
        calls.append(argument)
        return (x,) if x == argument else None

    return call


def test_functions_are_written_for_the_third_call_of_a_kind_and_not_without_end():
    guarded, written, compiled = GuardedCalls(), [], Compiled()

    def write():
        written.append(1)
        return serves(len(written), [])

    for k in range(3 * guarded_calls.MAX_WRITTEN + 30):
        guarded.note(compiled, write)
        assert len(written) == min((k + 1) // 3, guarded_calls.MAX_WRITTEN)


def test_kinds_without_a_function_leave_others_theirs():
    guarded, compiled, tried = GuardedCalls(), Compiled(), []
    for _ in range(3):  # in step with the count
        guarded.note(compiled, lambda: serves(1, []))
        guarded.note(compiled, lambda: serves(2, []))
        guarded.note(compiled, lambda: tried.append(1))
    assert guarded.result(1) == (1,)
    for _ in range(guarded_calls.MAX_FAILED + 30):
        guarded.note(compiled, lambda: tried.append(1))
    assert len(tried) == guarded_calls.MAX_FAILED


def test_the_function_that_served_last_is_tried_first_and_the_last_is_dropped():
    guarded, calls = GuardedCalls(), []
    for k in range(guarded_calls.MAX_KINDS + 1):
        guarded.add(Compiled(), serves(k, calls))
    assert guarded.result(0) is None
    assert calls == [*range(guarded_calls.MAX_KINDS, 0, -1)]
    assert guarded.result(1) == (1,)
    calls.clear()
    assert guarded.result(1) == (1,)
    assert calls == [1]


def test_machine_code_takes_the_place_of_the_functions_before_it():
    guarded, calls, compiled, other = GuardedCalls(), [], Compiled(), Compiled()
    for k, program in ((1, compiled), (2, other), (3, compiled)):
        guarded.add(program, serves(k, calls))
    assert [guarded.result(k) for k in (1, 2, 3)] == [(1,), (2,), (3,)]
    compiled.entered = print
    guarded.add(compiled, serves(4, calls))
    assert [guarded.result(k) for k in (1, 2, 3, 4)] == [None, (2,), None, (4,)]


def test_steps_with_optimizer_states_are_served():
    net = FCNet((3, 7, 2), "tanh")
    adam = optimizers.adam(1e-2)
    x, y = randn([5, 3]), randn([5, 2], seed=1)

    def step(params, state, x, y):
        loss, grads = value_and_grad(lambda p: ((net(p, x) - y) ** 2).mean())(params)
        updates, state = adam.update(grads, state, params)
        return optimizers.apply_updates(params, updates), state, loss

    params = net.init(0)
    compiled = settled(step, params, adam.init(params), x, y)
    ours = theirs = (params, adam.init(params))
    for _ in range(5):
        assert served(compiled, *ours, x, y)
        *ours, loss = compiled(*ours, x, y)
        *theirs, want = step(*theirs, x, y)
        np.testing.assert_allclose(loss, want, rtol=1e-5)
        for name in params:
            np.testing.assert_allclose(ours[0][name], theirs[0][name], rtol=1e-4)
            np.testing.assert_allclose(
                ours[1].second[name], theirs[1].second[name], rtol=1e-4
            )
        assert ours[1].largest == theirs[1].largest
        assert type(ours[1]) is type(theirs[1])


def test_numbers_flags_and_words_beside_tensors_count():
    def powers(x, y, *, power, negative, kind):
        found = paddle.tanh(x) ** power * y.sum()
        found = paddle.exp(found) if kind == "exp" else found
        return -found if negative else found

    x, y = randn([5, 3]), randn([4])
    given = {"power": 2, "negative": False, "kind": "exp"}
    compiled = jit(powers)
    for _ in range(80):
        compiled(x, y, **given)
    assert served(compiled, x, y, **given)
    for name, value in (("power", 3), ("power", 2.0), ("negative", True), ("kind", "")):
        for now in (given | {name: value}, given):
            for _ in range(2):
                found, want = compiled(x, y, **now), powers(x, y, **now)
                np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-6)


def test_programs_of_several_parts_are_found_by_shapes():
    kernel = randn([4, 2, 3, 3])

    def convolved(tree, scale):
        found = paddle.nn.functional.conv2d(tree["image"], kernel) * scale
        return paddle.sort(found.flatten()) + paddle.tanh(found.flatten())

    def tree(*shape, dtype="float32"):
        return {"image": randn([*shape], dtype, seed=sum(shape))}

    compiled, scale = jit(convolved), randn([1])
    for _ in range(40):
        compiled(tree(3, 2, 5, 6), scale)
    assert served(compiled, tree(3, 2, 5, 6), scale)
    assert not served(compiled, tree(2, 2, 5, 6), scale)
    for shape in [(3, 2, 5, 6), (2, 2, 5, 6), (3, 2, 7, 4), (3, 2, 6, 5)] * 3:
        check(compiled, convolved, tree(*shape), scale)
    with pytest.raises(ValueError, match="float64"):
        compiled(tree(3, 2, 5, 6, dtype="float64"), scale)
    required = tree(3, 2, 5, 6)
    required["image"].stop_gradient = False
    check(compiled, convolved, required, scale)
    (found,) = paddle.grad(compiled(required, scale).sum(), required["image"])
    (want,) = paddle.grad(convolved(required, scale).sum(), required["image"])
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_programs_that_draw_go_on_drawing():
    def dropped(x):
        return paddle.nn.functional.dropout(x, 0.5) * 2.0

    x, compiled = randn([20, 30]), jit(dropped)
    for _ in range(40):
        compiled(x)
    assert served(compiled, x)
    paddle.seed(7)
    found = [compiled(x).numpy() for _ in range(4)]
    paddle.seed(7)
    want = [dropped(x).numpy() for _ in range(4)]
    np.testing.assert_array_equal(found, want)
    assert (found[0] != found[1]).any()


def test_numbers_that_are_inputs_are_served():
    def scaled(x, lr, n):
        return paddle.tanh(x) * lr + n, lr * 2.0

    compiled, x = jit(scaled), randn([5, 3])
    for k in range(80):
        compiled(x, 0.5 + k, 2 + k)
    assert served(compiled, x, 7.25, 3)
    values = [(0.5, 3), (float("inf"), 3), (-0.0, -4), (0.5, 2**31 - 1), (0.5, 2**33)]
    values += [(0.5, 2**63), (3, 2), (0.5, 2.0), (0.5, True), (np.float64(0.5), 2)]
    values += [(np.float32(0.5), 2), (0.5, np.int64(2)), (0.5, np.int32(2))]
    for lr, n in values * 2:
        for _ in range(2):
            found, want = compiled(x, lr, n), scaled(x, lr, n)
            np.testing.assert_array_equal(found[0].numpy(), want[0].numpy())
            assert found[1] == want[1]


def test_numbers_by_which_is_divided_raise_as_python():
    compiled, x = jit(lambda x, n: x * (1.0 / n)), randn([3])
    for k in range(60):
        compiled(x, 1.0 + k)
    with pytest.raises(ZeroDivisionError):
        compiled(x, 0.0)


def test_static_arguments_are_served_and_told_apart():
    def powers(x, power, *, kind, y=None):
        found = paddle.tanh(x) ** power if kind == "tanh" else x * power
        return found if y is None else found + y

    compiled = jit(powers, static_argnums=1, static_argnames="kind")
    x, y = randn([5, 3]), randn([5, 3], seed=1)
    for _ in range(80):
        compiled(x, 2, kind="tanh")
        compiled(x, 3, y=y, kind="other")
    assert served(compiled, x, 2, kind="tanh")
    assert served(compiled, x, 3, y=y, kind="other")
    assert not served(compiled, x, 2.0, kind="tanh")
    assert not served(compiled, x, True, kind="tanh")
    assert not served(compiled, x, 2, kind="other")
    for power in (2, 3, 2.0, 1, True):
        for kind in ("tanh", "other"):
            for more in ({}, {"y": y}):
                for _ in range(2):
                    found = compiled(x, power, kind=kind, **more)
                    want = powers(x, power, kind=kind, **more)
                    np.testing.assert_allclose(found.numpy(), want.numpy(), 1e-5, 1e-6)
    found = compiled(x, power=2, kind="tanh")
    np.testing.assert_allclose(found.numpy(), paddle.tanh(x).numpy() ** 2, 1e-5, 1e-6)


def test_state_of_static_functions_counts():
    scale = 2.0

    def factor(x):
        return x * scale

    compiled, x = jit(lambda fn, x: fn(x) + 1.0, static_argnums=0), randn([3])
    for scale in [2.0] * 40 + [3.0, 2.0, 5.0] * 3:
        np.testing.assert_allclose(compiled(factor, x).numpy(), x.numpy() * scale + 1)


def test_tensors_given_twice_are_two_kinds():
    compiled = jit(lambda x, y, n: x * 2.0 + y * n)
    x, y = randn([3]), randn([3], seed=1)
    for k in range(60):
        a, b = (x, x) if k % 3 == 2 else (x, y)
        want = a.numpy() * 2 + b.numpy() * (k % 5)
        np.testing.assert_allclose(compiled(a, b, float(k % 5)).numpy(), want, 1e-5)


def test_static_graphs_of_paddle_are_told_so():
    slope = grad(lambda x: (x**3).sum())
    for _ in range(50):
        slope(randn([3]))
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()):
            x = paddle.static.data("x", [3], "float32")
            with pytest.raises(CaptureError, match="static graph"):
                slope(x)
    finally:
        paddle.disable_static()
