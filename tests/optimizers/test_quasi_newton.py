"""L-BFGS and BFGS find minima that are known, and say what they have done."""

import math

import numpy as np
import paddle
import pytest

from conftest import assert_falls, randn
from paddle_chainrules import FCNet, derivatives, jit
from paddle_chainrules.optimizers import bfgs, lbfgs
from paddle_chainrules.optimizers.second_order import inverse_hessians, quasi_newton
from paddle_chainrules.optimizers.second_order.inverse_hessians import DenseInverse
from paddle_chainrules.optimizers.second_order.quasi_newton import UPDATES


def rosenbrock(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("n", [2, 5, 20])
def test_a_curved_valley(n):
    start = paddle.full([n], -0.5, "float64")
    found = lbfgs(rosenbrock, start, steps=300, tolerance_change=0.0)
    np.testing.assert_allclose(found.params.numpy(), 1.0, atol=1e-6)
    assert found.converged
    assert found.grad <= 1e-7
    assert found.evaluations < 3 * found.steps
    assert float(start[0]) == -0.5


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_a_curved_valley_by_a_matrix(update, n):
    start = paddle.full([n], -0.5, "float64")
    fn = rosenbrock if n > 1 else lambda x: ((x - 1.0) ** 4 + (x - 1.0) ** 2).sum()
    found = bfgs(fn, start, update=update, steps=600, tolerance_change=0.0)
    np.testing.assert_allclose(found.params.numpy(), 1.0, atol=1e-6)
    assert found.converged
    assert found.evaluations < 3 * found.steps
    assert float(start[0]) == -0.5


def updated(hessian, step, change, update):
    """Of Al-Baali's (1998) formula for the Hessian itself, not its inverse."""
    n, along, bent = len(step), step @ change, step @ hessian @ step
    b, h = bent / along, change @ np.linalg.solve(hessian, change) / along
    a = h * b - 1.0
    theta, tau = 0.0, 1.0
    if update != "bfgs":
        tau = min(1.0, along / bent)
    if update == "ssbroyden":
        rho = min(1.0, h * (1.0 - np.sqrt(a / (1.0 + a))))
        theta = max((rho - 1.0) / a, min(1.0 / rho, 1.0 / b - 1.0))
        sigma = 1.0 + theta * a
        mean = sigma ** (-1.0 / (n - 1))
        tau = tau * min(mean, 1.0 / theta) if theta > 0 else min(tau * mean, sigma)
    w = np.sqrt(bent) * (change / along - hessian @ step / bent)
    left = hessian - np.outer(hessian @ step, hessian @ step) / bent
    return tau * (left + theta * np.outer(w, w)) + np.outer(change, change) / along


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("large", [3, 2000])
@pytest.mark.parametrize(("size", "largest"), [(0.03, 1e6), (1.0, 1.5), (30.0, 1e6)])
def test_the_matrix_is_the_inverse_of_the_papers(
    monkeypatch, update, size, largest, large
):
    """Also: positive definite, and each change's product is its step."""
    monkeypatch.setattr(inverse_hessians, "MAX_FACTOR", largest)
    monkeypatch.setattr(inverse_hessians, "LARGE_MATRIX_ROWS", large)
    rng = np.random.default_rng(int(100 * size))
    n = 6
    matrix, hessian = DenseInverse(update), None
    root = rng.normal(size=(n, n))
    curved = size * (root @ root.T + np.eye(n))  # of a function that is a quadratic
    for _ in range(40):  # beside the matrix, and within
        step = rng.normal(size=n)
        change = curved @ step * rng.uniform(0.5, 2.0)
        curvature = step @ step if hessian is None else step @ hessian @ step
        before = paddle.to_tensor(rng.normal(size=n))
        after = before + paddle.to_tensor(change)
        matrix.learn(paddle.to_tensor(step), before, after, curvature)
        inverse = np.stack(
            [matrix(paddle.to_tensor(row)).numpy() for row in np.eye(n)], 1
        )
        product = matrix(after).numpy()
        np.testing.assert_allclose(product, inverse @ after.numpy(), rtol=1e-9)
        if hessian is not None:
            hessian = updated(hessian, step, change, update)
            np.testing.assert_allclose(inverse @ hessian, np.eye(n), atol=1e-8)
        hessian = np.linalg.inv(inverse)
        np.testing.assert_allclose(inverse @ change, step, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(inverse, inverse.T, rtol=1e-9, atol=1e-10)
        assert np.linalg.eigvalsh(inverse).min() > 0


def test_what_can_not_be_a_hessian_is_not_learnt():
    matrix = DenseInverse("ssbroyden")
    step = paddle.to_tensor([1.0, 2.0, 3.0], "float64")
    zero = paddle.zeros_like(step)
    matrix.learn(step, zero, -step, 1.0)
    matrix.learn(step, zero, step * float("nan"), 1.0)
    assert matrix.empty
    matrix.learn(step, zero, 2.0 * step, 14.0)
    np.testing.assert_allclose(matrix(step).numpy(), 0.5 * step.numpy())
    matrix.forget()
    assert matrix(step) is step


@pytest.mark.parametrize("method", [lbfgs, bfgs])
def test_a_search_that_rounding_ends_begins_anew_once(monkeypatch, method):
    """Values of float32 near a minimum are stairs: at last along the gradient."""
    asked, evaluate = [], quasi_newton._QuasiNewtonSearch._evaluate

    def noted(search, at):
        asked.append(at.numpy())
        return evaluate(search, at)

    monkeypatch.setattr(quasi_newton._QuasiNewtonSearch, "_evaluate", noted)
    found = method(
        lambda x: (x**4).sum() + 1.0,
        paddle.to_tensor([0.3, -0.7, 1.1]),
        steps=200,
        tolerance_grad=0.0,
        tolerance_change=0.0,
    )
    assert found.value == 1.0
    assert found.reason == "no step along the direction goes down far enough"
    at = found.params.numpy()
    steps, slope = [each - at for each in asked[-8:]], 4.0 * at**3
    longest = max(steps, key=lambda step: np.abs(step).max())
    unit = lambda x: x / np.linalg.norm(x)  # noqa: E731
    np.testing.assert_allclose(unit(longest), -unit(slope), atol=1e-3)


@pytest.mark.parametrize("method", [lbfgs, *UPDATES])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_infinite_slope_on_the_way(method, dtype):
    """At x = 1, where the first step goes."""
    search = lbfgs if method is lbfgs else lambda *args: bfgs(*args, update=method)
    found = search(
        lambda x: ((x - 2.0) ** 2).sum() - (1.0 - x * x).sqrt().sum(),
        paddle.to_tensor([0.5], dtype),
    )
    # 2 (x - 2) + x / sqrt(1 - x^2) = 0
    assert found.params.item() == pytest.approx(0.909030, abs=2e-4)


@pytest.mark.parametrize("update", UPDATES)
def test_a_hessian_that_numbers_can_hardly_tell_from_singular(update):
    for dtype, start in (("float64", [1.0, 2.0]), ("float32", [30.0, 30.01])):
        scale = paddle.to_tensor([1.0, 1e16], dtype)
        bowl = lambda x, scale=scale: (0.5 * scale * x * x).sum()  # noqa: E731
        start = paddle.to_tensor(start, dtype)
        found = bfgs(bowl, start, update=update)
        assert found.value <= float(bowl(start))


@pytest.mark.parametrize("method", [lbfgs, bfgs])
def test_a_step_has_no_more_evaluations_than_it_may(method):
    for most in (1, 2, 3, 25):
        counts = []

        def noted(x, counts=counts):
            counts[-1:] = [counts[-1] + 1] if counts else [1]
            return (x - paddle.log(x)).sum()

        start = paddle.to_tensor([30.0, 30.01], "float64")
        before = 1
        for steps in range(1, 12):  # one step more each time
            found = method(noted, start, steps=steps, evaluations=most)
            assert found.evaluations - before <= most
            before = found.evaluations


def test_reports_have_the_callers_mode_of_gradients():
    modes = []
    tell = lambda *_: modes.append(paddle.is_grad_enabled())  # noqa: E731
    start = paddle.full([2], -0.5, "float64")
    lbfgs(rosenbrock, start, steps=2, on_step=tell)
    with paddle.no_grad():
        bfgs(rosenbrock, start, steps=2, on_step=tell)
    assert modes == [True, True, False, False]


def test_a_quadratic():
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.normal(size=(12, 12)))
    matrix = paddle.to_tensor(q @ np.diag(np.logspace(0, 2, 12)) @ q.T)
    b = paddle.to_tensor(rng.normal(size=12))
    found = lbfgs(
        lambda x: 0.5 * (x * (matrix @ x)).sum() - (b * x).sum(),
        paddle.zeros([12], "float64"),
        memory=12,
        tolerance_change=0.0,
    )
    expected = np.linalg.solve(matrix.numpy(), b.numpy())
    np.testing.assert_allclose(found.params.numpy(), expected, rtol=1e-5, atol=1e-9)
    assert found.steps < 60


@pytest.mark.filterwarnings("ignore:To copy construct")
def test_beside_paddles():
    """From the same start to the same minimum, in no more calls of the function."""
    start = randn([8], "float64")
    ours = lbfgs(rosenbrock, start, steps=500, tolerance_change=0.0, memory=100)
    leaf = start.clone()
    leaf.stop_gradient = False
    calls = []
    theirs = paddle.optimizer.LBFGS(
        max_iter=500,
        tolerance_change=1e-300,
        line_search_fn="strong_wolfe",
        parameters=[leaf],
    )

    def closure():
        theirs.clear_grad()
        loss = rosenbrock(leaf)
        loss.backward()
        calls.append(float(loss))
        return loss

    theirs.step(closure)
    assert ours.value <= max(min(calls), 1e-14)
    assert ours.evaluations <= 1.5 * len(calls)


@pytest.mark.parametrize("method", [lbfgs, bfgs])
def test_a_net_for_an_equation(method):
    """u'' = -sin(x) with u(0) = u(pi) = 0: u = sin(x)."""
    net = FCNet((1, 12, 1), "tanh", dtype="float64")
    x = paddle.linspace(0.0, math.pi, 24, "float64").reshape([24, 1])

    def loss(params):
        u, slope2 = derivatives(net, params, x, [(0,), (2,)])
        ends = u[0] ** 2 + u[-1] ** 2
        return ((slope2 + x.sin()) ** 2).mean() + ends.sum()

    values = []
    found = method(
        loss, net.init(0), steps=200, on_step=lambda k, p, value: values.append(value)
    )
    assert len(values) == found.steps
    assert_falls(values)
    assert found.value < 2e-5
    np.testing.assert_allclose(net(found.params, x).numpy(), x.sin().numpy(), atol=2e-3)


def test_where_the_function_is_no_number():
    """A step that goes there is too long."""
    found = lbfgs(
        lambda x: (x - paddle.log(x)).sum(), paddle.full([3], 0.01, "float64")
    )
    np.testing.assert_allclose(found.params.numpy(), 1.0, atol=1e-5)


def test_nested_parameters_in_float32():
    target = randn([3, 2])
    found = lbfgs(
        lambda p: ((p["a"] - target) ** 2).sum() + (p["b"][0] - 2.0) ** 2,
        {"a": paddle.zeros([3, 2]), "b": [paddle.zeros([])]},
        tolerance_change=0.0,
    )
    np.testing.assert_allclose(found.params["a"].numpy(), target.numpy(), atol=1e-5)
    assert float(found.params["b"][0]) == pytest.approx(2.0, abs=1e-5)


def test_what_ends_a_search():
    bowl = lambda x: ((x - 3.0) ** 2).sum()  # noqa: E731
    x = paddle.zeros([2])
    few = lbfgs(rosenbrock, x, steps=3)
    assert (few.steps, few.converged, few.reason) == (3, False, "there were 3 steps")
    there = lbfgs(bowl, paddle.full([2], 3.0))
    assert (there.steps, there.converged, there.evaluations) == (0, True, 1)
    none = lbfgs(lambda x: -paddle.abs(x).sum() * 0.0 + x.sum() * 0.0, x)
    assert none.converged
    constant = lbfgs(lambda _: paddle.ones([]), x)
    assert (constant.steps, constant.converged) == (0, True)
    assert lbfgs(lambda x: bowl(x).reshape([1]), x).converged

    def stop(count, *_):
        if count == 2:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        lbfgs(rosenbrock, x, on_step=stop)


def test_who_watches_does_not_write_into_parameters():
    x = paddle.to_tensor([-1.2, 1.0], "float64")
    with pytest.raises(ValueError, match="write into clones of them"):
        lbfgs(rosenbrock, x, on_step=lambda k, params, value: params.fill_(5.0))


@pytest.mark.parametrize("method", [lbfgs, bfgs])
def test_a_search_goes_on_with_what_was_learnt(method):
    start = paddle.to_tensor([-1.2, 1.0], "float64")
    ends = {"tolerance_grad": 1e-12, "tolerance_change": 0.0}

    def stop(count, *_):
        if count == 6:
            raise StopIteration

    whole = method(rosenbrock, start, steps=20, **ends)
    part = method(rosenbrock, start, steps=20, on_step=stop, **ends)
    assert (part.steps, part.converged) == (6, False)
    assert part.reason == "on_step raised StopIteration"
    assert "inverse" not in repr(part)
    anew = method(rosenbrock, part.params, steps=14, **ends)
    rest = method(rosenbrock, part.params, steps=14, inverse=part.inverse, **ends)
    np.testing.assert_allclose(rest.params.numpy(), whole.params.numpy(), rtol=1e-9)
    assert rest.value < anew.value
    with pytest.raises(ValueError, match="3 parameters and what was learnt of 2"):
        method(
            lambda x: (x**2).sum(), paddle.ones([3], "float64"), inverse=part.inverse
        )
    with pytest.raises(TypeError, match=r"is given float; give found\.inverse"):
        method(rosenbrock, start, inverse=1.0)


@pytest.mark.parametrize("method", [lbfgs, bfgs])
def test_a_second_search_of_a_function_under_jit_captures_nothing(method):
    calls = []
    scale = paddle.to_tensor([1.0, 4.0], "float64")

    @jit
    def bowl(params):
        calls.append(1)
        return (scale * (params["x"] - 3.0) ** 2).sum() + (params["y"] ** 2).sum()

    params = {"x": paddle.zeros([2], "float64"), "y": paddle.ones([3], "float64")}
    first = method(bowl, params)
    count = len(calls)
    paddle.assign(paddle.to_tensor([2.0, 9.0], "float64"), scale)  # read anew
    again = method(bowl, params)
    assert len(calls) == count
    for found in first, again:
        np.testing.assert_allclose(found.params["x"].numpy(), 3.0, atol=1e-6)
    assert again.evaluations != first.evaluations or again.steps != first.steps
    method(bowl, {"x": params["x"], "y": paddle.ones([2], "float64")})
    assert len(calls) > count
