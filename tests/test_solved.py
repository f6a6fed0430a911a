"""Problems of benchmarks/solved are those that their solutions solve."""

import importlib
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

from paddle_chainrules import jvp

BENCHMARKS = str(Path(__file__).parents[1] / "benchmarks")
COMPUTED = (
    "Allen-Cahn",
    "Korteweg-de Vries",
    "reaction-diffusion",
    "lid-driven cavity",
)


@pytest.fixture(scope="module", autouse=True)
def _benchmarks():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "solved"]:
        del sys.modules[name]


def problems():
    return importlib.import_module("solved.sides").PROBLEMS


def stencil(order, h):
    """Places and weights of a central difference of eighth order and more."""
    places = h * np.arange(-5, 6)
    powers = np.vander(places / h, increasing=True).T
    wanted = np.zeros(11)
    wanted[order] = np.prod(np.arange(1, order + 1, dtype=float))
    return places, np.linalg.solve(powers, wanted) / h**order


def derivative(solution, points, axes, h):
    """Of all outputs at points [n, d], by differences along one axis after another.

    The solution is asked for once, at all points, since some take seconds to compute.
    """
    moves = [(np.zeros(points.shape[1]), 1.0)]
    for axis in dict.fromkeys(axes):
        pairs = [*zip(*stencil(axes.count(axis), h), strict=True)]
        one = np.eye(points.shape[1])[axis]
        moves = [(at + p * one, w * by) for at, by in moves for p, w in pairs if w]
    values = solution(np.concatenate([points + at for at, _ in moves]))
    return np.tensordot(
        [w for _, w in moves], values.reshape(len(moves), len(points), -1), 1
    )


NAMES = (
    *("Poisson, sharp source", "Helmholtz", "Burgers", "convection", "wave"),
    *("Klein-Gordon", "Kovasznay flow", "Euler beam", "biharmonic plate"),
    *("Poisson, 10 dimensions", "heat, inverse"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in COMPUTED),
)


@pytest.mark.parametrize("name", NAMES)
def test_solutions_meet_their_equations(name):
    problem = problems()[name]()
    _, solution = problem.grid()[0], problem.solution
    h = 0.002 if name in ("Poisson, sharp source", "Burgers") else 0.01
    reached = []
    for part, points in zip(problem.parts, problem.drawn(7), strict=True):
        at = points[:40]
        inside = part.name == "inside"
        if inside:  # where differences stay in the domain and away from a shock
            low, high = points.min(0) + 0.06, points.max(0) - 0.06
            kept = ((points > low) & (points < high)).all(1)
            if name == "Burgers":
                kept &= np.abs(points[:, 1]) > 0.3
            at = points[kept][: 6 if name in COMPUTED else 40]
        given = {n: at[:, i : i + 1] for i, n in enumerate(problem.inputs)}
        given |= {n: true for n, (_, true) in problem.learnt.items()}
        for term, (output, *by) in problem.derivatives(part).items():
            axes = tuple(problem.inputs.index(letter) for letter in by)
            i = problem.outputs.index(output)
            if (axes and not inside and name in COMPUTED) or i >= problem.compared:
                continue  # at the rim, and the pressure of a computed flow
            given[term] = derivative(solution, at, axes, h)[:, i : i + 1]
        for each in part.equations:
            if not {*each.terms} <= {*given}:
                continue
            found = each.at(given)
            scale = max(np.abs(given[n]).max() for n in each.terms)
            off = np.abs(found - each.targets(at)).max() / max(scale, 1.0)
            noise = 0.05 if part.name == "data" else 0.0
            assert off < noise + (2e-5 if name not in COMPUTED else 2e-3), (
                part.name,
                off,
            )
            reached.append(part.name)
    assert "inside" in reached


def test_references_change_by_nothing_when_they_are_refined():
    references = importlib.import_module("solved.references")
    t, x = np.repeat([0.25, 1.0], 5), np.tile([-0.9, -0.3, 0.01, 0.2, 0.7], 2)
    nu = 0.01 / np.pi
    fine = references.cole_hopf(t, x, nu)
    np.testing.assert_allclose(references.cole_hopf(t, x, nu, 134), fine, atol=1e-12)
    places = np.stack([t, x], 1)
    coarse = references.korteweg_de_vries(places, 256)
    fine = references.korteweg_de_vries(places, 384)
    np.testing.assert_allclose(coarse, fine, atol=1e-7)
    square = np.stack([t * 0.8, np.abs(x)], 1)
    coarse, fine = references.cavity(square, 20), references.cavity(square, 28)
    np.testing.assert_allclose(coarse, fine, atol=1e-4)


@pytest.mark.slow
def test_the_cavity_carries_its_vorticity():
    solution = importlib.import_module("solved.references").cavity
    at = np.random.default_rng(3).uniform(0.2, 0.8, (7, 2))
    x, y = 0, 1
    d = lambda *axes: derivative(solution, at, axes, 0.035).T  # noqa: E731
    u, v = d()
    w_x, w_y = d(x, x)[1] - d(x, y)[0], d(x, y)[1] - d(y, y)[0]
    bent = d(x, x, x)[1] - d(x, x, y)[0] + d(x, y, y)[1] - d(y, y, y)[0]
    carried = u * w_x + v * w_y
    assert np.abs(0.01 * bent - carried).max() < 0.03 * np.abs(carried).max()


def test_an_error_is_that_of_the_compared_outputs():
    problem_of = importlib.import_module("solved.problem")
    judge = problem_of.Judge(problems()["heat, inverse"]())
    exact = judge.solution
    assert judge.error(exact, {"k": 1.0}) == 0.0
    assert judge.error(1.02 * exact, {"k": 1.0}) == pytest.approx(0.02)
    assert judge.error(exact, {"k": 1.3}) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="give the net's whole result"):
        judge.error(exact[:5])


def test_pages_show_when_an_error_was_reached():
    page = importlib.import_module("solved.page")
    run = {"problem": "Burgers", "seed": 0, "limit": 60.0}
    slow = {**run, "side": "PaddleScience", "curve": [(0, 0, 1.0), (50.0, 10, 2e-3)]}
    other = {**run, "side": "DeepXDE, Paddle", "curve": [(0, 0, 1.0), (60.0, 9, 0.6)]}
    fast = {**run, "side": "ours, scan"}
    fast["curve"] = [(0, 0, 1.0), (2.0, 90, 2e-3), (60.0, 999, 5e-6)]
    failed = {**run, "side": "JAX, optax", "curve": [], "failed": "KeyError: tan"}
    hand = {**slow, "side": "JAX, L-BFGS", "curve": [(0, 0, 1.0), (9.0, 9, 4e-6)]}
    runs = [slow, other, fast, failed, hand]
    # The second has learnt nothing, so that there is no time to its error, only steps.
    assert "| Burgers | 25.0 | (111.0) | 400 | 400 | 0.8 |" in page.summary(runs)
    text = page.problems(runs)
    assert "| **ours, scan** | 2 | 60 | 60 | 5.0e-06 | 17 |" in text
    assert "Fails in JAX, optax: `KeyError: tan`." in text
    assert "0.8 times smaller than the best of JAX" in page.in_the_median(runs)
    said = page.goals(runs)
    assert said.endswith(
        "on 1 of 1 problems after a minute, and on 1 after their longest runs"
    )
    assert page.seconds_to(slow, 1e-3) == float("inf")
    never = [slow, {**fast, "curve": [(0, 0, 1.0), (60.0, 9, 0.9)]}]
    assert "| Burgers | never |" in page.summary(never)


def test_seeds_of_different_limits():
    """What is past the shorter limit is told of those that had more."""
    page = importlib.import_module("solved.page")

    def run(side, seed, limit, *looks):
        curve = [(0, 0, 1.0), *((s, int(s), e) for s, e in looks)]
        given = {"problem": "Burgers", "side": side, "seed": seed, "limit": limit}
        return {**given, "curve": curve}

    ours = "ours, self-scaled Broyden"
    runs = [
        run("PaddleScience", 0, 300.0, (60.0, 0.3), (300.0, 0.2)),
        *(run("PaddleScience", seed, 60.0, (60.0, 0.5)) for seed in (1, 2)),
        run("DeepXDE, Paddle", 0, 60.0, (60.0, 0.8)),
        run(ours, 0, 300.0, (60.0, 0.1), (200.0, 5e-4), (300.0, 2e-4)),
        run(ours, 1, 60.0, (30.0, 5e-3), (60.0, 4e-3)),
        run(ours, 2, 60.0, (40.0, 8e-3), (60.0, 2e-3)),
    ]
    text = page.problems(runs)
    errors = "4.0e-03 (2.0e-03\N{EN DASH}1.0e-01) | 2.0e-04"
    assert f"| **{ours}** | 40 | 200 |  | {errors} | 1 |" in text
    assert "|  |  |  | 5.0e-01 (3.0e-01\N{EN DASH}5.0e-01) | 2.0e-01 | 1 |" in text
    assert "|  |  |  | 8.0e-01 |  | 1 |" in text
    assert "| Burgers |  |  | 125 | 1,000 |  |" in page.summary(runs)
    # A longer run has had less of its second method by then, and stands beside.
    longer = run(ours, 0, 900.0, (60.0, 0.4), (300.0, 0.04), (700.0, 5e-5))
    runs.append(longer)
    text = page.problems(runs)
    assert f"| **{ours}** | 40 | 200 | 700 | {errors} | 5.0e-05 | 1 |" in text
    assert "| 5.0e-01 (3.0e-01\N{EN DASH}5.0e-01) | 2.0e-01 |  | 1 |" in text
    assert "| Burgers |  |  | 125 | 1,000 |  |" in page.summary(runs)
    assert "8 runs of 60 or 300 or 900 seconds, 3 seeds" in page.told(runs)
    files = [page.file_of(*page.run_of(each), ".npy") for each in runs]
    assert len({*files}) == len(runs)
    assert files[-1] == "Burgers-ours--self-scaled-Broyden-0-900.npy"


@pytest.mark.parametrize(
    "name", ["Kovasznay flow", "biharmonic plate", "heat, inverse"]
)
def test_a_problem_by_jvp_is_the_same(name):
    """As JAX and PyTorch have it, here with this package's ``jvp``."""
    by_jvp = importlib.import_module("solved.by_jvp")
    by_functions = importlib.import_module("solved.by_functions")
    problem = problems()[name]()

    def array(values):
        return paddle.to_tensor(np.array(values), "float64")

    made = by_jvp.Posed(problem, 3, paddle, jvp, array)
    ours = by_functions.Posed(problem, 3, "float64")
    expected = float(ours.loss(ours.params))
    assert float(made.loss(made.params)) == pytest.approx(expected, rel=1e-9)
    squares = sum(float((r**2).sum()) for r in made.scaled(made.params))
    assert squares == pytest.approx(expected, rel=1e-9)


def test_all_sides_begin_with_the_same_numbers():
    problem = problems()["Kovasznay flow"]()
    start = problem.start(3)
    assert [w.shape for w, _ in start] == [(2, 50), *[(50, 50)] * 3, (50, 3)]
    for weight, _ in start[1:4]:  # Glorot's
        np.testing.assert_allclose(weight.std(), (2 / 100) ** 0.5, rtol=0.1)
    posed = importlib.import_module("solved.by_functions").Posed
    made = posed(problem, 3, "float64")
    points = np.random.default_rng(0).uniform(0.0, 1.0, (7, 2))
    x = points
    for k, (weight, bias) in enumerate(start):
        x = x @ weight + bias
        x = np.tanh(x) if k < 4 else x
    at = {n: made.tensor(points[:, i : i + 1]) for i, n in enumerate("xy")}
    found = made.fields(made.params, at)
    for i, name in enumerate("uvp"):
        np.testing.assert_allclose(found[name].numpy()[:, 0], x[:, i], rtol=1e-6)


def test_residuals_of_all_points_are_those_of_single_ones():
    """Their squares are the loss, and gradients of each point are the Jacobian."""
    by_least_squares = importlib.import_module("solved.by_least_squares")
    posed_of = importlib.import_module("solved.by_functions").Posed
    problem = problems()["Euler beam"]()
    posed = posed_of(problem, 1, "float64")
    single, jacobian = by_least_squares.by_points(posed)
    flat = lambda parts: np.concatenate([p.numpy().ravel() for p in parts])  # noqa: E731
    found, at_once = flat(single(posed.params)), by_least_squares.all_at_once(posed)
    np.testing.assert_allclose(found, flat(at_once(posed.params)), rtol=1e-10)
    loss = float(posed.loss(posed.params))
    np.testing.assert_allclose((found**2).sum(), loss, rtol=1e-10)
    name, h = "1.weight", 1e-6
    rows = np.concatenate(
        [part["net"][name].numpy()[:, 2, 5] for part in jacobian(posed.params)]
    )
    ends = []
    for sign in (1.0, -1.0):
        moved = posed.params["net"][name].clone()
        moved[2, 5] += sign * h
        net = {**posed.params["net"], name: moved}
        ends.append(flat(single({**posed.params, "net": net})))
    np.testing.assert_allclose(rows, (ends[0] - ends[1]) / (2 * h), atol=1e-7)
