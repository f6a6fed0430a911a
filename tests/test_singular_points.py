"""Every operator, and every function of the differential table, where things go wrong:
a call by Paddle's tape and one by a program give the same numbers, infinities, NaNs and
Nones."""

import numpy as np
import paddle
import pytest

from answers import ask, difference
from differential.functions import TABLE
from differential.inputs import arrays_of
from paddle_chainrules import jit, vjp
from programs.sampled import Sampled
from programs.test_table import FUNCTIONS
from trees import tensors_of

ENDS = 0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 20.0, -20.0
"""Where pieces of functions meet, and where exponentials end."""


def every_other(array, value):
    array.reshape(-1)[::2] = value
    return array


POINTS = {
    "zeros": (lambda a: 0 * a, 1.0),
    "equal": (lambda a: 0 * a + 1, 1.0),
    "some zeros": (lambda a: every_other(a, 0.0), 1.0),
    "ends": (lambda a: np.resize(ENDS, a.shape), 1.0),
    "a cotangent of NaN": (lambda a: a, np.nan),
    "an infinite cotangent": (lambda a: a, np.inf),
    "zeros, an infinite cotangent": (lambda a: 0 * a, np.inf),
    "ends, a cotangent of NaN": (lambda a: np.resize(ENDS, a.shape), np.nan),
    "ends, an infinite cotangent": (lambda a: np.resize(ENDS, a.shape), np.inf),
}
"""By name, what becomes of the arguments, and a factor of the cotangents."""

DIFFERENT = {
    "assign: output": "what was there before has zeros, or None",
    "F.binary_cross_entropy": "at exactly 0 and 1, with gradients by the label",
    "F.binary_cross_entropy: weight": "at exactly 0 and 1, with gradients by the label",
    **dict.fromkeys(("lu_solve 0", "lu_unpack"), "of a singular matrix"),
    "bce_loss 0": "at exactly 0 and 1, with gradients by the label",
    "prod 5": "a number by itself that is zero",
    "eig 0": "of a matrix whose eigenvalues are equal",
    "gammaincc 0": "an infinite cotangent at zero",
    "spectral_norm 0": "the tape takes its vectors for constants",
    **dict.fromkeys(
        ("hardswish 0", "silu 0", "swish 0", "mish 0"),
        "an infinite cotangent at zero",
    ),
}
"""Named in docs/limits.md."""

FATAL = ("eig", "svd", "lstsq", "lu", "qr", "pinv", "cond", "matrix_rank", "roi_align")
"""Paddle's kernels that end the process at some of such numbers."""


VARIED = {
    *("p_norm", "dist", "pow", "elementwise_pow", "prod", "max", "median", "cumsum"),
    *("clip", "gelu", "softmax", "layer_norm", "instance_norm", "group_norm"),
    *("lerp", "embedding"),
}
"""Operators whose samples differ at such points."""
OPERATORS = {
    f"{name} {k}": (name, k) for name, k in FUNCTIONS if k == 0 or name in VARIED
}
"""All samples of these, and the first one of each other."""


def function_and_arrays(name):
    if name in OPERATORS:
        return Sampled(*OPERATORS[name]).by_arguments
    return TABLE[name].function, arrays_of(name, TABLE[name].inputs)


def cases():
    for name in (*TABLE, *OPERATORS):
        for point in POINTS:
            is_fatal = any(part in name for part in FATAL)
            if not (is_fatal and "ends" in point):
                yield name, point


def largest_of(arrays):
    """Return the largest finite size of an entry; others may be differences of it."""
    floats = [a for a in arrays if isinstance(a, np.ndarray) and a.dtype.kind in "fc"]
    sizes = [np.abs(a[np.isfinite(a)]).max(initial=0.0) for a in floats]
    return max(sizes, default=0.0)


@pytest.mark.thinned(23)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "point"), [*cases()])
def test_tape_and_program(name, point, count_case):
    (function, arrays), (changed, factor) = function_and_arrays(name), POINTS[point]
    arrays = [changed(a.copy()) if a.dtype.kind == "f" else a for a in arrays]
    given = [*map(paddle.to_tensor, arrays)]

    def pulled(*given):
        results, pullback = vjp(lambda *g: tuple(tensors_of(function(*g))), *given)
        rng = np.random.default_rng(2)
        cotangents = [
            paddle.to_tensor(factor * rng.standard_normal(y.shape)).astype(y.dtype)
            if y.is_floating_point() or y.is_complex()
            else None
            for y in results
        ]
        return results, pullback(tuple(cotangents))

    by_tape = ask(lambda: pulled(*given))
    compiled = jit(pulled)
    by_program = ask(lambda: compiled(*given))
    atol = max(1e-9, 1e-15 * largest_of(by_tape.leaves))
    told = difference(by_tape, by_program, rtol=1e-6, atol=atol)
    assert not told or name in DIFFERENT, told
    count_case("functions at singular points, by tape and program")
