"""Every operator of the table: programs give what Paddle gives, and its gradients.

Those, and their gradients in turn, are compared with central differences in float64.
"""

import functools

import numpy as np
import paddle
import pytest

from differential.verdicts import Differences, apart
from paddle_chainrules import vjp
from paddle_chainrules.paddle_side import sparse_products
from paddle_chainrules.programs import choosing, steps  # noqa: F401, in the table
from paddle_chainrules.programs.capture import capture
from paddle_chainrules.programs.capture_error import CaptureError
from paddle_chainrules.programs.operators.entry import raw
from paddle_chainrules.programs.operators.linear_algebra.sparse import csr
from paddle_chainrules.programs.operators.reductions.reductions import share
from paddle_chainrules.programs.operators.table import TABLE
from paddle_chainrules.programs.switch import CALLS_BEFORE_CODE
from paddle_chainrules.transforms.as_programs import program_cache
from paddle_chainrules.transforms.as_programs.program_cache import ProgramCache
from programs.samples import COMPARED, PREPARED, SAMPLES, T

CASES = [(name, k) for name, rows in SAMPLES.items() for k in range(len(rows))]
UNTESTED = {
    *("p_norm_grad", "silu_grad", "elu_grad", "warpctc_grad", "warprnnt_grad"),
    *("batch_norm_grad", "layer_norm_grad", "instance_norm_grad", "group_norm_grad"),
    *("rnn_grad", "cumprod_grad", "logcumsumexp_grad"),
    *("Tensor._tensor_use_gpudnn", "share_data", "Tensor.T", "Tensor.data"),
    *("blocks", "steps", "stop_gradient", "dropout_of_ones", "cond", "drawing_cond"),
    *("py_layer", "pdist", "logspace", "Tensor.__floordiv__", "Tensor.__rfloordiv__"),
}
"""Without a sample: they take what only their forward gives, or a program, are part of
machine code alone (tests/programs/test_decompositions.py), are put into batches alone
(tests/transforms/test_many_samples.py), or are others as soon as they are recorded."""
ONCE = {
    *("warpctc", "warprnnt"),
}
"""Of which no rule gives gradients of gradients."""
ROUNDED = {"linear", "rnn", "send_ue_recv"}
"""Which programs have as other operators, or several threads add in any order."""
ROUGH = {"lp_pool2d", "lp_pool2d_grad"}
"""Paddle's own values have errors of 1e-7 here, which differences make larger."""


class Place(int):
    """Where in the row of tensors one is."""


def made(row, seed=0):
    """Arguments with tensors in the place of shapes, and these tensors in a row."""
    rng = np.random.default_rng(seed)
    tensors = []

    def walk(arg):
        if isinstance(arg, T):
            tensors.append(arg.made(rng))
            return Place(len(tensors) - 1)
        return type(arg)(map(walk, arg)) if type(arg) in (list, tuple) else arg

    args = [walk(arg) for arg in row]

    def filled(arg, values):
        if isinstance(arg, Place):
            return values[arg]
        if type(arg) in (list, tuple):
            return type(arg)(filled(part, values) for part in arg)
        return arg

    return tensors, lambda values: [filled(arg, values) for arg in args]


def is_smooth(tensor):
    return tensor.dtype in (paddle.float64, paddle.complex128)


def floats(result):
    if isinstance(result, list | tuple):
        return [part for each in result for part in floats(each)]
    made = isinstance(result, paddle.Tensor) and result._is_initialized()
    return [result] if made and is_smooth(result) else []


def with_item(x, index, value):
    y = x.clone()
    y[index] = value
    return y


def called(name):
    """The operator, as Paddle's own code calls it: by the name in its place."""
    owner, _, attribute = name.rpartition(".")
    if name in ("copy", "seed", "share"):
        return {"copy": paddle.assign, "seed": paddle.seed, "share": share}[name]
    if name == "matrix_exp":
        return lambda x: paddle.linalg.matrix_exp(x)
    if name in sparse_products.PRODUCTS:
        return lambda *args: csr(name, *args)
    if name == "Tensor._setitem_dygraph":
        return with_item
    place = paddle.Tensor if owner else paddle._C_ops
    prepared, compared = (d.get(name, lambda same: same) for d in (PREPARED, COMPARED))
    return lambda first, *rest: compared(
        getattr(place, attribute)(prepared(first), *rest)
    )


def test_every_operator_has_a_sample():
    missing = ({*TABLE} - {*SAMPLES}) ^ UNTESTED
    assert {*TABLE} - {*SAMPLES} == UNTESTED, f"a row in programs/samples/: {missing}"


class Sampled:
    """One call of an operator, as a function of a list of tensors."""

    def __init__(self, name, k):
        self.name, self.entry = name, TABLE[name]
        self.tensors, self._fill = made(SAMPLES[name][k])
        self._call = called(name)
        self._own = []
        if self.entry.writes:  # what it writes into is no argument here
            kept, self._own = self.tensors, [*self.entry.writes]
            self.tensors = [t for i, t in enumerate(kept) if i not in self._own]
            self._kept = kept

    def _filled(self, values):
        if not self._own:
            return self._fill(values)
        each = iter(values)
        kept = enumerate(self._kept)
        return self._fill(
            [t.clone() if i in self._own else next(each) for i, t in kept]
        )

    def results(self, values):
        if self.entry.random:
            paddle.seed(3)
        result = self._call(*self._filled(values))
        if self.name == "einsum":  # what it keeps for its own way back
            result = result[0]
        found = floats(result)
        # What is saved in evaluation is junk.
        return found[: (3 if self._own else self.entry.shown) or len(found)]

    def outputs(self, values):
        """What has gradients."""
        found = enumerate(self.results(values))
        return [part for i, part in found if i not in self.entry.fixed]

    @property
    def places(self):
        """Of the tensors that may have gradients."""
        return [i for i, t in enumerate(self.tensors) if is_smooth(t)]

    @property
    def has_gradients(self):
        entry = self.entry
        return bool(
            entry.differentiable != () and self.places and self.outputs(self.tensors)
        )


def drawn_like(tensors, seed):
    rng = np.random.default_rng(seed)

    def one(tensor):
        row = rng.standard_normal(tensor.shape)
        if tensor.is_complex():
            row = row + 1j * rng.standard_normal(tensor.shape)
        return paddle.to_tensor(row)

    return [*map(one, tensors)]


def compare(function, tensors, places, values, grads, cotangents, name, rough=False):
    """Gradients beside central differences of the function, element by element."""
    exact = Differences(function, tensors, places)
    slopes = exact.gradients([c.numpy() for c in cotangents])
    scale = max((float(np.abs(s).max(initial=0)) for s in slopes.values()), default=0.0)
    for i, slope in slopes.items():
        assert not apart(grads[i], slope, scale, rough), (name, i)


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Beside the tape, which some of Paddle's gradients have no way back on."""
    found = functools.partial(capture, check=False)
    monkeypatch.setattr(program_cache, "capture", found)


def shares(result, tensors):
    """Of each part whether it is a view of any of these."""
    parts = result if isinstance(result, list | tuple) else [result]
    parts = [p for p in parts if isinstance(p, paddle.Tensor) and p._is_initialized()]
    return [any(map(part._is_shared_buffer_with, tensors)) for part in parts]


def each_case(test):
    return pytest.mark.parametrize(
        ("name", "k"), CASES, ids=[f"{n} {k}" for n, k in CASES]
    )(test)


@each_case
def test_value(name, k, count_case):
    sampled = Sampled(name, k)
    entry, tensors = sampled.entry, sampled.tensors
    paddle.seed(3)
    native = sampled.results(tensors)
    if not (entry.view or entry.alias or entry.writes):
        for part in native:
            assert not any(map(part._is_shared_buffer_with, tensors)), "a view"
    else:  # a write into the one must be seen in the other, in a program too
        given = sampled._filled(tensors)
        if not entry.writes and entry.shown is None:
            native_views = shares(sampled._call(*given), tensors)
            assert shares(entry.run(*given), tensors) == native_views
    paddle.seed(3)
    captured = capture(sampled.results, tensors, check=not entry.random)
    paddle.seed(3)
    for found, expected in zip(captured.program(*tensors), native, strict=True):
        if name in ROUNDED or not CALLS_BEFORE_CODE:  # in regions
            assert_to_last_places(found.numpy(), expected.numpy(), name)
        else:
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
    count_case("operators, value")


MEANS_OF_SQUARES = ("group_norm",)
"""Of which Paddle's kernels subtract squares of means, and lose digits."""


def assert_to_last_places(found, expected, name=""):
    """Equal but for rounding: kernels of one product differ so on some processors."""
    assert found.dtype == expected.dtype
    if not expected.size or expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, expected)
        return
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    most = 200_000 if name in MEANS_OF_SQUARES else 8
    rounding = most * np.finfo(expected.dtype).eps * largest
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding)


@pytest.mark.thinned(5)
@each_case
def test_gradients(name, k, count_case):
    sampled = Sampled(name, k)
    if not sampled.has_gradients:
        return
    entry, tensors = sampled.entry, sampled.tensors
    cache = ProgramCache(lambda values: (sampled.outputs(values), None))
    if entry.reverse is None and entry.formula is None:
        with pytest.raises(CaptureError, match="has no rule"):
            cache.record(tensors)
        return
    values, _, recording = cache.record(tensors)
    cotangents = drawn_like(values, 5)
    grads = recording.gradients(cotangents)
    places = sampled.places
    if entry.differentiable is not None or entry.shapes:
        places = [i for i in places if grads[i] is not None]
    rough = name in ROUGH
    compare(sampled.outputs, tensors, places, values, grads, cotangents, name, rough)
    count_case("operators, gradients")


@pytest.mark.thinned(6)
@each_case
def test_gradients_of_gradients(name, k, count_case):
    sampled = Sampled(name, k)
    entry = sampled.entry
    if not sampled.has_gradients or (entry.reverse is None and entry.formula is None):
        return
    cotangents = drawn_like(sampled.outputs(sampled.tensors), 5)
    tensors = [*sampled.tensors, *cotangents]
    count = len(sampled.tensors)

    def gradients(values):
        def outputs(*given):
            return tuple(sampled.outputs([*given]))

        _, pullback = vjp(outputs, *values[:count])
        grads = zip(pullback(tuple(values[count:])), values, strict=False)
        return [
            paddle.zeros_like(v) if g is None else g for g, v in grads if is_smooth(v)
        ]

    cache = ProgramCache(lambda values: (gradients(values), None))
    if name in ONCE:
        with pytest.raises(CaptureError, match="has no rule"):
            cache.record(tensors)
        count_case("operators, gradients once alone")
        return
    values, _, recording = cache.record(tensors)
    second = drawn_like(values, 7)
    grads = recording.gradients(second)
    places = [i for i, t in enumerate(tensors) if is_smooth(t) and grads[i] is not None]
    first = capture(gradients, tensors, check=False).program
    compare(
        *(lambda given: first(*given), tensors, places, values, grads, second, name),
        name in ROUGH,
    )
    count_case("operators, gradients of gradients")


def test_names_that_this_paddle_lacks_are_no_error_before_they_are_called():
    with pytest.raises(NotImplementedError, match="has no operator nonsense"):
        raw("nonsense")()
