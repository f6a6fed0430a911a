"""Least squares and natural gradients, beside SciPy, NumPy and closed forms."""

import math

import numpy as np
import paddle
import pytest
from scipy import optimize

from conftest import assert_falls, assert_same
from paddle_chainrules import CaptureError, FCNet, derivatives, grad, jacrev, vmap
from paddle_chainrules.optimizers import (
    gauss_newton,
    levenberg_marquardt,
    natural_gradient,
)
from paddle_chainrules.settings import programs_are_on

METHODS = [levenberg_marquardt, gauss_newton]


def f64(array):
    return paddle.to_tensor(np.asarray(array, "float64"))


def rosenbrock(x):
    return paddle.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def powell(x):
    """Powell's singular function: the Jacobian has rank two at the minimum, zero."""
    return paddle.stack(
        [
            x[0] + 10.0 * x[1],
            math.sqrt(5.0) * (x[2] - x[3]),
            (x[1] - 2.0 * x[2]) ** 2,
            math.sqrt(10.0) * (x[0] - x[3]) ** 2,
        ]
    )


def half_squares(residual):
    return lambda x: 0.5 * (residual(x) ** 2).sum()


def accelerated(*args, **options):
    return levenberg_marquardt(*args, geodesic=True, **options)


def by_metric(residual, params, **options):
    return natural_gradient(half_squares(residual), params, metric=residual, **options)


EVERY = [levenberg_marquardt, accelerated, gauss_newton, by_metric]


@pytest.mark.parametrize("method", EVERY)
def test_a_curved_valley(method):
    start = f64([-1.2, 1.0])
    found = method(rosenbrock, start)
    np.testing.assert_allclose(found.params.numpy(), 1.0, rtol=1e-9)
    assert found.converged
    assert found.grad <= 1e-12
    if method is accelerated:
        assert found.steps < 15 < found.derivatives
    assert start.tolist() == [-1.2, 1.0]


@pytest.mark.parametrize("method", EVERY)
def test_a_singular_minimum(method):
    found = method(powell, f64([3.0, -1.0, 0.0, 1.0]))
    np.testing.assert_allclose(found.params.numpy(), 0.0, atol=1e-3)
    assert found.value < 1e-15


# NIST, Statistical Reference Datasets, nonlinear regression: Misra1a, certified.
MISRA1A = np.array(
    [
        *((77.6, 10.07), (114.9, 14.73), (141.1, 17.94), (190.8, 23.93)),
        *((239.9, 29.61), (289.0, 35.18), (332.8, 40.02), (378.4, 44.82)),
        *((434.8, 50.76), (477.3, 55.05), (536.8, 61.01), (593.1, 66.40)),
        *((689.1, 75.47), (760.0, 81.78)),
    ]
)
CERTIFIED = 2.3894212918e02, 5.5015643181e-04
CERTIFIED_SQUARES = 1.2455138894e-01


FAR, NEARER = (500.0, 1e-4), (250.0, 5e-4)


@pytest.mark.parametrize(
    ("method", "start"),
    [(levenberg_marquardt, FAR), (accelerated, FAR), *((m, NEARER) for m in EVERY[2:])],
)
def test_data_of_nist(method, start):
    x, y = map(f64, MISRA1A.T)
    found = method(
        lambda b: b["one"] * (1.0 - paddle.exp(-b["two"] * x)) - y,
        dict(zip(("one", "two"), map(f64, start), strict=True)),
        steps=200,
        tolerance_change=0.0,
    )
    fitted = [float(found.params[name]) for name in ("one", "two")]
    np.testing.assert_allclose(fitted, CERTIFIED, rtol=1e-8)
    assert 2.0 * found.value == pytest.approx(CERTIFIED_SQUARES, rel=1e-9)


@pytest.mark.parametrize("method", [*METHODS, by_metric])
def test_beside_scipy(method):
    """Noisy data, whose residuals at the minimum are not small."""
    rng = np.random.default_rng(1)
    t = np.linspace(0.0, 3.0, 17)
    y = 2.0 * np.exp(-1.3 * t) + 0.5 + 0.1 * rng.normal(size=17)
    start = np.array([1.0, 1.0, 0.0])
    theirs = optimize.least_squares(
        lambda p: p[0] * np.exp(-p[1] * t) + p[2] - y,
        start,
        method="lm",
        **dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15),
    )
    at, data = f64(t), f64(y)
    ours = method(lambda p: p[0] * paddle.exp(-p[1] * at) + p[2] - data, f64(start))
    np.testing.assert_allclose(ours.params.numpy(), theirs.x, rtol=1e-5)
    assert ours.value == pytest.approx(theirs.cost, rel=1e-12)


@pytest.mark.parametrize(
    ("method", "scaled"),
    [(levenberg_marquardt, True), (levenberg_marquardt, False), (gauss_newton, False)],
)
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (150, 70), (70, 150)])
def test_one_step_of_a_linear_problem(method, shape, scaled):
    """Exact, and where there are more parameters than residuals the shortest step, by
    D for the one method where it scales."""
    rng = np.random.default_rng(2)
    matrix, b = rng.normal(size=shape), rng.normal(size=shape[0])
    scale = np.ones(shape[1])
    options = {"iterations": 300, "forcing": 1e-12, "probes": 0}
    if method is levenberg_marquardt:
        options = {"scaled": scaled}
        scale = np.sqrt((matrix**2).sum(0)) if scaled else scale
    A = f64(matrix)
    start = rng.normal(size=shape[1])
    found = method(
        lambda x: (A @ x["all"].flatten() - f64(b)).reshape([1, -1]),
        {"all": f64(start).reshape([1, -1])},
        steps=1,
        damping=0.0,
        **options,
    )
    step = np.linalg.lstsq(matrix / scale, b - matrix @ start, rcond=None)[0] / scale
    np.testing.assert_allclose(
        found.params["all"].numpy().flatten() - start, step, rtol=1e-6, atol=1e-8
    )
    assert found.steps <= 1
    assert found.evaluations == 1 + found.steps


def steps_in_numpy(at, count, mu, geodesic, scaled):
    """Of Rosenbrock's residuals: parameters, damping, how many steps were tried."""
    residual = lambda x: np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])  # noqa: E731
    scale, growth, tried, done = 0.0, 2.0, 0, 0
    while done < count:
        r, J = residual(at), np.array([[-20.0 * at[0], 10.0], [-1.0, 0.0]])
        if growth == 2.0:
            scale = np.maximum(scale, (J**2).sum(0)) if scaled else np.ones(2)
        damped = J.T @ J + mu * np.diag(scale)
        v, a = -np.linalg.solve(damped, J.T @ r), np.zeros(2)
        if geodesic:
            bend = residual(at + v) - 2.0 * r + residual(at - v)  # of a quadratic
            a = -np.linalg.solve(damped, J.T @ bend)
        is_short = a @ (scale * a) <= 0.75**2 * v @ (scale * v)
        tried += is_short
        trial = residual(at + v + a / 2.0)
        gain = (r @ r - trial @ trial) / (v @ (mu * scale * v - J.T @ r))
        if is_short and gain > 0.0:
            at, growth, done = at + v + a / 2.0, 2.0, done + 1
            mu *= max(1.0 / 3.0, 1.0 - (2.0 * min(gain, 2.0) - 1.0) ** 3)
        else:
            mu, growth = mu * growth, 2.0 * growth
    return at, mu, tried


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("geodesic", "count"), [(False, 14), (True, 8)])
def test_steps_by_their_formulas(geodesic, count, scaled):
    """Scale, damping, acceleration and refusals, beside NumPy's."""
    start, options = np.array([-1.2, 1.0]), {"geodesic": geodesic, "scaled": scaled}
    at, mu, tried = steps_in_numpy(start, count, 1e-4, **options)
    found = levenberg_marquardt(
        rosenbrock, f64(start), steps=count, damping=1e-4, **options
    )
    np.testing.assert_allclose(found.params.numpy(), at, rtol=1e-7)
    assert found.damping == pytest.approx(mu, rel=1e-5)
    assert found.evaluations == 1 + tried
    assert geodesic or tried > count + 3  # some were refused, one after another


def test_too_bent_a_step_is_refused():
    """There is less of it, though it would go down."""
    options = {"steps": 1, "damping": 1e-3}
    for slope, below, refused in ((3.0, 0.1, True), (0.1, 0.9, False)):
        residual = lambda x, c=slope, b=below: paddle.exp(c * x) - b  # noqa: E731
        found = levenberg_marquardt(residual, f64([0.0]), geodesic=True, **options)
        straight = levenberg_marquardt(residual, f64([0.0]), **options)
        assert straight.steps == found.steps == 1
        assert (found.derivatives > 3) == refused


NET = FCNet((1, 8, 1), "tanh", dtype="float64")
INSIDE = f64(np.linspace(0.1, 3.0, 20))
ENDS = f64([[0.0], [math.pi]])


def at_a_point(params, x):
    (slope2,) = derivatives(NET, params, x.reshape([1, 1]), [(2,)])
    return (slope2 + x.sin()).sum()


def at_an_end(params, x):
    return 3.0 * NET(params, x).sum()


def equation(params):
    """u'' = -sin(x) with u(0) = u(pi) = 0: u = sin(x)."""
    (slope2,) = derivatives(NET, params, INSIDE.reshape([-1, 1]), [(2,)])
    return {
        "ends": 3.0 * NET(params, ENDS),
        "inside": slope2.flatten() + INSIDE.sin(),
    }


def slopes(params):
    return {
        "ends": vmap(grad(at_an_end), (None, 0))(params, ENDS),
        "inside": vmap(grad(at_a_point), (None, 0))(params, INSIDE),
    }


def squares(params):
    return 0.5 * sum((r**2).sum() for r in equation(params).values())


PINNS = {
    "levenberg_marquardt": lambda p, **o: accelerated(
        equation, p, jacobian=slopes, **o
    ),
    "gauss_newton": lambda p, **o: gauss_newton(equation, p, iterations=15, **o),
    "natural_gradient": lambda p, **o: natural_gradient(
        squares, p, metric=equation, jacobian=slopes, rcond=1e-8, **o
    ),
}


@pytest.mark.parametrize("name", PINNS)
def test_a_net_for_an_equation(name):
    values = []
    found = PINNS[name](
        NET.init(0),
        steps=30 if programs_are_on() else 2,  # where they take a hundred times as long
        on_step=lambda k, p, value: values.append(value),
    )
    assert len(values) == found.steps
    assert_falls(values)
    assert found.value == pytest.approx(values[-1], rel=1e-9)
    assert found.value == pytest.approx(float(squares(found.params)), rel=1e-9)
    if not programs_are_on():
        return
    u = NET(found.params, INSIDE.reshape([-1, 1])).flatten()
    error = 2e-2 if name == "gauss_newton" else 1e-4
    np.testing.assert_allclose(u.numpy(), INSIDE.sin().numpy(), atol=error)


def test_a_given_jacobian_makes_the_same_steps():
    options = {"steps": 3, "damping": 1.0}
    own = levenberg_marquardt(equation, NET.init(0), **options)
    given = levenberg_marquardt(equation, NET.init(0), jacobian=slopes, **options)
    assert_same(given.params, own.params, rtol=1e-8, atol=1e-10)
    assert given.derivatives == own.derivatives == 4


def test_the_direction_of_a_metric():
    """Beside NumPy's least squares, of a metric of rank two and of one with damping."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 2)) @ rng.normal(size=(2, 5))
    c, start = rng.normal(size=5), rng.normal(size=5)
    J = A * np.cos(start)  # of A sin(x)
    gram, slope = J.T @ J, 4.0 * start**3 - c
    loss = lambda x: (x**4).sum() - (f64(c) * x).sum()  # noqa: E731
    metric = lambda x: f64(A) @ paddle.sin(x)  # noqa: E731
    options = {"metric": metric, "steps": 1, "lengths": [1e-3]}
    found = natural_gradient(loss, f64(start), **options)
    direction = np.linalg.lstsq(gram, slope, rcond=1e-10)[0]
    step = start - found.params.numpy()
    np.testing.assert_allclose(step, 1e-3 * direction, rtol=1e-6, atol=1e-12)
    found = natural_gradient(loss, f64(start), damping=0.1, **options)
    direction = np.linalg.solve(gram + 0.1 * np.eye(5), slope)
    step = start - found.params.numpy()
    np.testing.assert_allclose(step, 1e-3 * direction, rtol=1e-9, atol=1e-15)


def test_the_direction_of_a_model():
    """Beside Fisher's matrix, the covariance of the slopes of the log-likelihood."""
    rng = np.random.default_rng(4)
    x, labels = rng.normal(size=(9, 4)), rng.integers(0, 3, 9)
    start = rng.normal(size=(4, 3))
    p = np.exp(x @ start)
    p /= p.sum(1, keepdims=True)
    fisher, slope = np.zeros((12, 12)), np.zeros(12)
    for sample, row, label in zip(x, p, labels, strict=True):
        of_class = [np.outer(sample, np.eye(3)[k] - row).flatten() for k in range(3)]
        slope -= of_class[label] / 9
        fisher += sum(row[k] * np.outer(s, s) for k, s in enumerate(of_class)) / 9
    at, classes = f64(x), paddle.to_tensor(labels)
    for damping in (0.0, 1e-2):
        found = natural_gradient(
            lambda y: paddle.nn.functional.cross_entropy(y["logits"], classes),
            {"weight": f64(start)},
            model=lambda p: {"logits": at @ p["weight"]},
            steps=1,
            lengths=[0.5],
            damping=damping,
        )
        damped = fisher + damping * np.eye(12)
        direction = np.linalg.lstsq(damped, slope, rcond=1e-10)[0]
        step = start.flatten() - found.params["weight"].numpy().flatten()
        np.testing.assert_allclose(step, 0.5 * direction, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("method", EVERY)
def test_where_there_is_no_number(method):
    """Newton's first step from 4 leads to -1.5; it is refused, and a shorter one is
    not."""
    found = method(paddle.log, f64([4.0]))
    np.testing.assert_allclose(found.params.numpy(), 1.0, rtol=1e-9)
    if method in METHODS:
        assert found.evaluations > found.steps + 1


@pytest.mark.parametrize("method", EVERY)
def test_a_jacobian_without_full_rank(method):
    """Parameters on which nothing depends stay, equal ones go together."""
    start = [f64([1.0, 3.0]), f64(5.0)]
    found = method(lambda p: paddle.stack([p[0][0] + p[0][1], p[0].sum() - 4.0]), start)
    assert found.converged
    assert float(found.params[0].sum()) == pytest.approx(2.0, rel=1e-6)
    np.testing.assert_allclose(found.params[0].numpy(), [0.0, 2.0], atol=1e-6)
    assert float(found.params[1]) == 5.0


@pytest.mark.parametrize("method", [*METHODS, by_metric])
def test_float32(method):
    target = paddle.to_tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
    found = method(
        lambda p: paddle.concat([(p["a"] ** 3 - target**3).flatten(), p["b"][0] - 2.0]),
        {"a": target + 0.5, "b": [paddle.zeros([1])]},
    )
    assert found.params["a"].dtype == paddle.float32
    np.testing.assert_allclose(found.params["a"].numpy(), target.numpy(), atol=2e-3)
    np.testing.assert_allclose(found.params["b"][0].numpy(), 2.0, atol=1e-5)


@pytest.mark.parametrize("method", [*METHODS, by_metric])
def test_what_ends_a_search(method):
    x = f64([-1.2, 1.0])
    seen = []
    few = method(rosenbrock, x, steps=3, on_step=lambda *a: seen.append(a))
    assert (few.steps, few.converged, few.reason) == (3, False, "there were 3 steps")
    assert [count for count, *_ in seen] == [1, 2, 3]
    assert few.params.tolist() == seen[-1][1].tolist()
    there = method(rosenbrock, f64([1.0, 1.0]))
    assert (there.steps, there.converged, there.evaluations) == (0, True, 1)
    assert "tolerance_grad" in there.reason
    change = method(rosenbrock, x, tolerance_change=0.99)
    assert (change.steps, change.converged) == (1, True)
    assert change.evaluations == (33 if method is by_metric else 2)
    assert "tolerance_change" in change.reason

    kept = []

    def stop(count, params, value):
        kept.append((params.tolist(), value))
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method(rosenbrock, x, on_step=stop)
    assert kept == [(params.tolist(), value) for _, params, value in seen[:2]]
    value = half_squares(rosenbrock)(f64(kept[-1][0])).item()
    assert kept[-1][1] == pytest.approx(value, rel=1e-12)

    def end(count, params, value):
        if count == 2:
            raise StopIteration

    ended = method(rosenbrock, x, on_step=end)
    assert (ended.steps, ended.converged) == (2, False)
    assert ended.reason == "on_step raised StopIteration"
    assert ended.params.tolist() == kept[-1][0]


@pytest.mark.parametrize("method", METHODS)
def test_what_else_ends_least_squares(method):
    options = dict.fromkeys(("tolerance_grad", "tolerance_change"), 0.0)
    short = method(rosenbrock, f64([-1.2, 1.0]), tolerance_step=0.5, **options)
    assert short.converged
    assert "tolerance_step" in short.reason
    wrong = levenberg_marquardt(
        rosenbrock, f64([0.5, 0.5]), jacobian=lambda x: -jacrev(rosenbrock)(x)
    )
    assert (wrong.steps, wrong.converged) == (0, False)
    assert wrong.reason == "no step goes down, however short"
    again = method(rosenbrock, f64([-1.2, 1.0]), steps=4)
    assert again.damping != 1e-2
    rest = method(rosenbrock, again.params, damping=again.damping)
    assert rest.converged


def test_a_loss_that_curves_down():
    """There is no step where it does, with damping as without."""
    at = f64([1.0, 1.0])
    loss = lambda y: 1.5 * y[0] ** 2 - y[1] ** 2  # noqa: E731
    for damping in (0.0, 0.5):
        options = {"steps": 1, "lengths": [0.25], "damping": damping}
        found = natural_gradient(loss, at, model=lambda x: x + 0.0, **options)
        expected = [1.0 - 0.25 * 3.0 / (3.0 + damping), 1.0]
        np.testing.assert_allclose(found.params.numpy(), expected, rtol=1e-12)


def test_a_loss_without_curvature():
    """Its metric by the outputs is zero, and so is the step."""
    found = natural_gradient(lambda y: y.sum(), f64([1.0, 2.0]), model=paddle.exp)
    assert (found.steps, found.reason) == (0, "no length of the step goes down")


def test_residuals_that_are_no_program():
    def residual(x):
        return x * float(x[0].detach()) - 1.0  # a number of Python's

    start = f64([1.5, 0.5])
    with pytest.raises(CaptureError):
        levenberg_marquardt(residual, start)
    found = levenberg_marquardt(residual, start, steps=1, jacobian=jacrev(residual))
    assert found.value < 0.5 * float((residual(start) ** 2).sum())


def test_a_length_of_which_all_go_up_ends_a_search():
    up = natural_gradient(
        lambda x: paddle.abs(x).sum(), f64([1e-3]), metric=lambda x: x, lengths=[1.0]
    )
    assert (up.steps, up.reason) == (0, "no length of the step goes down")
