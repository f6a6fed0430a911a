"""Every operator of the table: programs give what Paddle gives, and its gradients.

Those, and their gradients in turn, are compared with central differences in float64.
"""

import functools

import numpy as np
import paddle
import pytest

from differential.verdicts import Differences, apart, of_function
from paddle_chainrules import CaptureError, vjp
from paddle_chainrules.programs import capture
from paddle_chainrules.programs.operators.entry import operator_of, raw
from paddle_chainrules.programs.operators.table import TABLE
from paddle_chainrules.settings import CALLS_BEFORE_CODE
from paddle_chainrules.transforms.as_programs import program_cache
from paddle_chainrules.transforms.as_programs.program_cache import ProgramCache
from programs.fenced import check, cotangent
from programs.sampled import ONCE, ROUGH, Sampled, is_smooth
from programs.samples import SAMPLES
from programs.wrong_on_the_tape import (
    NOT_ASKED,
    OTHERWISE,
    is_named,
    is_wrong_on_the_tape,
)

CASES = [(name, k) for name, rows in SAMPLES.items() for k in range(len(rows))]
FUNCTIONS = [(name, k) for name, k in CASES if not name.endswith("_grad")]
"""Without the gradients' own operators, which rules alone call."""
UNTESTED = {
    *("p_norm_grad", "silu_grad", "elu_grad", "warpctc_grad", "warprnnt_grad"),
    *("batch_norm_grad", "layer_norm_grad", "instance_norm_grad", "group_norm_grad"),
    *("rnn_grad", "cumprod_grad", "logcumsumexp_grad"),
    *("Tensor._tensor_use_gpudnn", "share_data", "Tensor.T", "Tensor.data"),
    *("blocks", "steps", "stop_gradient", "dropout_of_ones", "cond", "drawing_cond"),
    *("py_layer", "pdist", "logspace", "Tensor.__floordiv__", "Tensor.__rfloordiv__"),
    *("begin_seed", "end_seed", "while_loop"),
}
"""Without a sample: they take what only their forward gives, or a program, are part of
machine code alone (tests/programs/test_decompositions.py), are put into batches alone
(tests/transforms/test_many_samples.py), come in pairs
(tests/transforms/test_changing_numbers.py), or are others as soon as they are
recorded."""
ROUNDED = {"linear", "nll_loss", "rnn", "send_ue_recv"}
"""Which programs have as other operators, or several threads add in any order."""


def test_every_operator_has_a_sample():
    operator_of("while_loop")  # which may not be loaded yet, as those loaded with it
    missing = ({*TABLE} - {*SAMPLES}) ^ UNTESTED
    assert {*TABLE} - {*SAMPLES} == UNTESTED, f"a row in programs/samples/: {missing}"


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


def each_of(cases):
    ids = [f"{name} {k}" for name, k in cases]
    return pytest.mark.parametrize(("name", "k"), cases, ids=ids)


each_case = each_of(CASES)


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
NORMS = ("p_norm", "dist", "renorm")


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
    rough, places = name in ROUGH, sampled.differentiable
    compare(sampled.outputs, tensors, places, values, grads, cotangents, name, rough)
    count_case("operators, gradients")


@pytest.mark.thinned(20)
@each_of(FUNCTIONS)
def test_derivatives_on_the_tape(name, k, count_case):
    """``vjp`` and ``jvp`` of the function itself, by all arguments and by each."""
    sampled = Sampled(name, k)
    if not sampled.has_gradients or is_named(NOT_ASKED, name, k):
        return
    function, arrays = sampled.by_arguments
    verdicts = of_function(name, function, arrays, lambda asked: None)
    wrong = [v for v in verdicts if v.verdict not in ("exact", "refused")]
    assert bool(wrong) == is_wrong_on_the_tape(name, k), wrong
    count_case("operators, on the tape")


@pytest.mark.thinned(40)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@each_of(FUNCTIONS)
def test_values_and_gradients_in_machine_code(name, k, dtype, count_case):
    """Amid other arithmetic, beside the same operators one by one."""
    sampled = Sampled(name, k, dtype)
    tensors, entry = sampled.tensors, sampled.entry
    is_left_out = is_named(NOT_ASKED, name, k) or is_named(OTHERWISE, name, k)
    if entry.random or is_left_out or not sampled.outputs(tensors):
        return

    def value(*tensors):
        given = [t * 0.875 if is_smooth(t, dtype) else t for t in tensors]
        return tuple(part * 2.0 for part in sampled.outputs(given))

    def both(*tensors):
        def of(*moved):
            every = [*tensors]
            for i, tensor in zip(sampled.differentiable, moved, strict=True):
                every[i] = tensor
            return value(*every)

        outputs, back = vjp(of, *(tensors[i] for i in sampled.differentiable))
        return *outputs, *back(tuple(map(cotangent, outputs)))

    has_rule = sampled.has_gradients and (entry.reverse or entry.formula)
    with_gradients = has_rule and not is_wrong_on_the_tape(name, k)
    # Paddle's gradients of norms add 1e-12 to what they divide by.
    eps = 200_000 if name in MEANS_OF_SQUARES else 20_000 if name in NORMS else 2_000
    check(both if with_gradients else value, *tensors, regions=None, eps=eps)
    count_case("operators, in machine code")


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
