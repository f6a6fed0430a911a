"""Searches some steps at a time, as Julia takes them."""

import paddle
import pytest

from paddle_chainrules.bridge.minimizing import Minimizing
from paddle_chainrules.optimizers import bfgs, levenberg_marquardt, natural_gradient


def f64(values):
    return paddle.to_tensor(values, "float64")


def residuals(params):
    x, y = params
    return [10.0 * (y - x**2), 1.0 - x]


def squares(params):
    return sum((r**2).sum() for r in residuals(params)) / 2.0


START = f64([-1.2]), f64([1.0])


@pytest.mark.parametrize("parts", [1, 3, 9])
@pytest.mark.parametrize(
    ("method", "fn"),
    [
        ("levenberg_marquardt", residuals),
        ("natural_gradient", residuals),
        ("self_scaled_broyden", squares),
    ],
)
def test_steps_in_parts_are_those_of_one_search(method, fn, parts):
    search = Minimizing(method, fn, START, {})
    for part in range(parts):
        search.advance(9 * (part + 1) // parts, 60.0)
    search.finish()
    options = {"tolerance_grad": 0.0, "tolerance_change": 0.0}
    if method == "levenberg_marquardt":
        found = levenberg_marquardt(fn, START, steps=9, scaled=False, geodesic=True)
    elif method == "natural_gradient":
        found = natural_gradient(squares, START, metric=fn, steps=9)
    else:
        found = bfgs(fn, START, steps=9, **options)
    assert search.steps == found.steps
    assert search.value == pytest.approx(found.value, rel=1e-9, abs=1e-25)
    for got, expected in zip(search.now(), found.params, strict=True):
        assert got.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    grad, evaluations, converged, reason = search.outcome()
    assert (grad, evaluations, converged) == (
        pytest.approx(found.grad, rel=1e-6, abs=1e-20),
        found.evaluations,
        found.converged,
    )
    assert reason in (found.reason, "on_step raised StopIteration")


def test_no_step():
    search = Minimizing("lbfgs", squares, START, {}, 0)
    search.finish()
    assert search.now()[0].tolist() == [-1.2]
    assert search.value == squares(START).item()


def test_time_ends_a_part():
    search = Minimizing("lbfgs", squares, START, {})
    assert not search.advance(1000, 0.0)
    assert search.steps == 1


@pytest.mark.parametrize(
    ("method", "options", "kind", "words"),
    [
        ("newton", {}, ValueError, "no second-order method"),
        ("lbfgs", {"steps": 3}, TypeError, "has no option steps"),
    ],
)
def test_what_is_not_there(method, options, kind, words):
    with pytest.raises(kind, match=words):
        Minimizing(method, squares, START, options)
