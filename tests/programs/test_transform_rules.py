"""The table's rules for Taylor series and batches, wherever there are any."""

import mpmath
import numpy as np
import paddle
import pytest
from numpy.polynomial import chebyshev

from paddle_chainrules import BatchWarning, CaptureError
from paddle_chainrules.paddle_side.interception import listening
from paddle_chainrules.paddle_side.listener import listener, not_listening
from paddle_chainrules.programs import capture
from paddle_chainrules.programs.batches.batching import batched
from paddle_chainrules.programs.derivatives.taylor import series_of
from paddle_chainrules.programs.operators.table import TABLE
from paddle_chainrules.programs.tracing.record import Tracer
from programs.sampled import ONCE, ROUGH, Sampled, called, floats, made
from programs.samples import SAMPLES, T

ORDER = 4


def real_rows(name):
    """Samples without complex numbers, which these transforms refuse."""
    return [k for k, row in enumerate(SAMPLES.get(name, ())) if not has_complex(row)]


def has_complex(arg):
    if isinstance(arg, T):
        return arg.kind == "complex128"
    if isinstance(arg, tuple | list):
        return any(map(has_complex, arg))
    return isinstance(arg, complex) or arg is paddle.complex128


def has(entry, rule):
    """Whether an operator has a rule; one for series comes of that for gradients."""
    if rule == "jet" and entry.differentiable != () and not entry.alias:
        return entry.reverse is not None or entry.formula is not None
    return getattr(entry, rule) is not None


def cases(rule, by_rule=True):
    """Samples of operators with a rule; or of those with one by gradients alone."""
    names = [name for name, entry in TABLE.items() if has(entry, rule)]
    if not by_rule:
        names = [n for n in names if TABLE[n].jet is None and n not in ONCE]
    assert names
    every = [(name, k) for name in names for k in real_rows(name)]
    return pytest.mark.parametrize(
        ("name", "k"), every, ids=[f"{name} {k}" for name, k in every]
    )


def function_of(name, k):
    """A function of float tensors, and these."""
    tensors, fill = made(SAMPLES[name][k])
    shown = TABLE[name].shown

    def function(values):
        result = called(name)(*fill(values))
        result = floats(result[0] if name == "einsum" else result)
        return result[: shown or len(result)]

    return function, tensors


def series_by_record(fn, series):
    """Taylor coefficients of all outputs, by the rules."""
    starts = [part[0].clone() for part in series]
    for start in starts:
        start.stop_gradient = False
    record = Tracer(starts)
    with listening(record):
        outputs = fn(starts)
        with not_listening():
            ends = [record.value_of(out) for out in outputs]
        stop = len(record.ops)
        return series_of(record, 0, stop, ends, record.inputs, series)


def series_by_interpolation(fn, series, reaches=(0.1,)):
    """The same from values at the nodes of Chebyshev, without a rule.

    And of each order what a roundoff of values of 1 makes in it. Of the reaches the
    first in which the function has no kink is taken.
    """
    curves = [[part.numpy() for part in s] for s in series]

    def at(t):
        points = [sum(c * t**k for k, c in enumerate(curve)) for curve in curves]
        return [out.numpy() for out in fn([paddle.to_tensor(p) for p in points])]

    for reach in reaches:
        found = [fit_of(values, reach) for values in sampled(at, reach)]
        if all(smooth for _, smooth in found):
            break
    rounding = EPS * np.abs(COEFFICIENTS).sum(1) / reach ** np.arange(ORDER + 1)
    return [coefficients for coefficients, _ in found], rounding


NODES = np.cos(np.pi * (np.arange(16) + 0.5) / 16)
FIT = np.linalg.inv(chebyshev.chebvander(NODES, 15))
POWERS = np.stack(
    [np.pad(chebyshev.cheb2poly(row), (0, 15 - k)) for k, row in enumerate(np.eye(16))]
)
"""The powers of each of Chebyshev's polynomials."""
COEFFICIENTS = POWERS[:, : ORDER + 1].T @ FIT
EPS = np.finfo(float).eps


def sampled(at, reach):
    """The values of each output at the nodes."""
    values = [at(reach * node) for node in NODES]
    return map(np.stack, zip(*values, strict=True))


def fit_of(values, reach):
    """Taylor coefficients of one output, and whether it has no kink in reach."""
    fits = FIT @ values.reshape(len(NODES), -1)
    scales = np.maximum(1, np.abs(fits).max(0))
    smooth = np.all(np.abs(fits[-2:]).max(0) < 1e-14 * scales)
    raw = COEFFICIENTS @ values.reshape(len(NODES), -1)
    coefs = raw / reach ** np.arange(ORDER + 1)[:, None]
    return coefs.reshape(ORDER + 1, *values.shape[1:]), smooth


def largest(array):
    return np.abs(array).max(initial=0)


def along_a_curve(tensors, seed=2):
    rng = np.random.default_rng(seed)
    return [
        [t, *(paddle.to_tensor(0.3 * rng.standard_normal(t.shape)) for _ in range(4))]
        for t in tensors
    ]


def as_numpy(part, like):
    return np.zeros(like.shape) if part is None else part.numpy()


@pytest.mark.thinned(5)
@cases("jet")
def test_taylor_series(name, k, count_case):
    """To the second order, and to the fourth where the operator has a rule for it."""
    if TABLE[name].jet is not None:
        close = 2e-8 if name == "linear" else 1e-8  # as its products are rounded
        check_series(name, k, ORDER, close, roundoffs=0)
    elif name in ONCE:
        with pytest.raises(CaptureError, match="has no rule for its gradient"):
            check_series(name, k, 2, 1e-7)
    else:
        check_by_gradients(name, k, 2)
    count_case("operators, Taylor series")


@pytest.mark.slow
@cases("jet", by_rule=False)
def test_taylor_series_of_the_fourth_order(name, k, count_case):
    check_by_gradients(name, k, ORDER)
    count_case("operators, Taylor series of the fourth order")


def check_by_gradients(name, k, order):
    """Within a smaller reach where the function has kinks."""
    if name in ROUGH:
        check_series(name, k, 2, 1e-3, (0.2,))
    else:
        check_series(name, k, order, 1e-7, (0.1, 0.03, 0.01))


def exponentials(moving):
    """Of matrices, rounded once, where Paddle's own are off by tens of roundoffs."""
    (x,) = moving
    matrices = x.numpy().reshape(-1, *x.shape[-2:]).tolist()
    with mpmath.workdps(30):
        made = [mpmath.expm(mpmath.matrix(m), "taylor").tolist() for m in matrices]
    return [paddle.to_tensor(np.array(made, float).reshape(x.shape))]


EXACT = {"matrix_exp": exponentials}
"""Of operators whose values are too rough to interpolate, better ones."""


def check_series(name, k, order, close, reaches=(0.1,), roundoffs=4):
    """Of all arguments together, and of each alone.

    Roundoffs of the values are what interpolation may be off by.
    """
    sample = Sampled(name, k)
    if not sample.has_gradients:
        pytest.skip("of such arguments there is no derivative")
    function = sample.moved
    series = along_a_curve([sample.tensors[i] for i in sample.places])
    every = range(len(series))
    for which in [every, *([i] for i in every if len(every) > 1)]:
        moving = [s if i in which else [s[0]] for i, s in enumerate(series)]
        values = EXACT.get(name, function)
        expected, rounding = series_by_interpolation(values, moving, reaches)
        filled = [[*s, *[None] * ORDER][: order + 1] for s in moving]
        found = series_by_record(function, filled)
        for ours, theirs in zip(found, expected, strict=True):
            assert len(ours) == order + 1
            for at, part in enumerate(ours):
                like = theirs[at]
                assert part is None or list(part.shape) == list(like.shape)
                off = largest(as_numpy(part, like) - like)
                enough = close * max(1.0, largest(like))
                rounded = roundoffs * rounding[at] * max(1.0, largest(theirs[0]))
                assert off <= max(enough, rounded), (which, at)


def every_case():
    """Samples of all operators that give floats, and draw and write nothing."""
    names = [n for n, e in TABLE.items() if not (e.random or e.writes or e.alias)]
    every = [(name, k) for name in names for k in real_rows(name)]
    ids = [f"{name} {k}" for name, k in every]
    return pytest.mark.parametrize(("name", "k"), every, ids=ids)


@pytest.mark.thinned(3)
@every_case()
@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_batches(name, k, count_case):
    """By rules, by formulas, or one after another: as the function of each."""
    function, tensors = function_of(name, k)
    count = len(tensors)
    numbers = [i for i, t in enumerate(tensors) if t.dtype == paddle.float64]
    if not numbers or not function(tensors):
        pytest.skip("no floats come and go")
    program = capture(function, tensors, check=False).program
    others = [made(SAMPLES[name][k], seed=s)[0] for s in range(3)]
    for others_row in others:  # integers have to fit together
        for i in {*range(count)} - {*numbers}:
            others_row[i] = tensors[i]
    for moving in [numbers, *([j] for j in numbers if len(numbers) > 1)]:
        flags = [i in moving for i in range(count)]
        given = [
            paddle.stack([other[i] for other in others]) if flag else tensors[i]
            for i, flag in enumerate(flags)
        ]
        found, many = batched(program, given, flags)
        for sample, other in enumerate(others):
            one = [o if f else t for o, f, t in zip(other, flags, tensors, strict=True)]
            expected = function(one)
            assert len(found) == len(expected)
            for ours, theirs, differs in zip(found, expected, many, strict=True):
                ours = ours[sample] if differs else ours
                assert list(ours.shape) == list(theirs.shape)
                near = 1e-6 if name in (*ROUGH, "renorm") else 1e-11
                near *= max(1.0, largest(theirs.numpy()))
                np.testing.assert_allclose(
                    ours.numpy(), theirs.numpy(), rtol=0, atol=near
                )
        count_case("operators, batches")


def net_and_inputs(activation=paddle.tanh):
    """An operator of every family, and what it takes."""

    def function(values):
        x, w, b, scale, shift, last = values
        h = paddle.nn.functional.linear(x, w, b)
        h = activation(paddle.nn.functional.layer_norm(h, [5], scale, shift))
        return [paddle.reshape(paddle.matmul(h, last) + 1.0, [-1])]

    rng = np.random.default_rng(4)
    shapes = [4, 3], [3, 5], [5], [5], [5], [5, 2]
    return function, [paddle.to_tensor(rng.standard_normal(n)) for n in shapes]


def test_series_of_a_net():
    function, tensors = net_and_inputs()
    series = along_a_curve(tensors)
    (found,) = series_by_record(function, series)
    (expected,), _ = series_by_interpolation(function, series)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["tanh", "silu", "gelu", "softmax", "cumsum"])
def test_series_are_differentiated_in_their_turn(name):
    """Of operators with a rule for series, and of those by their gradients."""
    apart = {"tanh": paddle.tanh, "cumsum": lambda x: paddle.cumsum(x * x, 1)}
    function, tensors = net_and_inputs(
        apart.get(name) or getattr(paddle.nn.functional, name)
    )
    x, *params = tensors
    v = paddle.ones_like(x)

    def curvature(values):
        """The sum of second derivatives along v, by a jet on the record."""
        record = listener()
        if record is None:
            fit, _ = series_by_interpolation(
                lambda p: function([*p, *params]),
                [[values[0], v, *[paddle.zeros_like(v)] * 3]],
            )
            return [paddle.to_tensor(fit[0][2].sum())]
        start = len(record.ops)
        outputs = function([*values, *params])
        with not_listening():
            ends = [record.value_of(out) for out in outputs]
            starts = [record.value_of(values[0])]
        (series,) = series_of(
            record, start, len(record.ops), ends, starts, [[values[0], v, None]]
        )
        return [series[2].sum()]

    def slope(values):
        values[0].stop_gradient = False
        return paddle.grad(curvature(values), [values[0]])

    with paddle.enable_grad():
        program = capture(slope, [x], check=False).program
    (found,) = program(x)
    step = 1e-5
    for i in range(2):
        for j in range(3):
            moved = []
            for sign in (1, -1):
                point = x.numpy()
                point[i, j] += sign * step
                moved.append(float(curvature([paddle.to_tensor(point)])[0]))
            slope_here = (moved[0] - moved[1]) / (2 * step)
            assert abs(float(found[i, j]) - slope_here) < 1e-5


def test_a_net_over_a_batch_of_parameters():
    function, tensors = net_and_inputs()
    program = capture(function, tensors).program
    x, *params = tensors
    many = [paddle.stack([p, p * 1.5, p - 0.25]) for p in params]
    (found,), _ = batched(program, [x, *many], [False] + [True] * len(params))
    for i in range(3):
        (one,) = function([x, *(p[i] for p in many)])
        np.testing.assert_allclose(found[i].numpy(), one.numpy(), rtol=1e-12)


def test_what_has_no_rule_says_so():
    sample = Sampled("warpctc", 0)
    logits = [sample.tensors[i] for i in sample.places]
    with pytest.raises(CaptureError, match="warpctc_grad has no rule for its gradient"):
        series_by_record(sample.moved, [[t, t, t] for t in logits])


def rotated(values):
    return [paddle.as_real(values[0] * 1j)]


def test_complex_numbers():
    x = paddle.rand([3, 4], "float64")
    program = capture(rotated, [x]).program
    with pytest.warns(BatchWarning, match="runs for one of 2 samples after another"):
        (found,), _ = batched(program, [paddle.stack([x, 3 * x])], [True])
    np.testing.assert_array_equal(found[1].numpy(), rotated([3 * x])[0].numpy())
    ((_, slope),) = series_by_record(rotated, [[x, 2 * x]])
    np.testing.assert_allclose(slope.numpy(), 2 * rotated([x])[0].numpy(), rtol=1e-15)
