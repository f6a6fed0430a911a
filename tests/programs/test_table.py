"""Every operator of the table: programs give what Paddle gives, and its gradients.

Those are compared with central differences of Paddle's own operator, in float64.
"""

import functools

import numpy as np
import paddle
import pytest

from differential.verdicts import Differences, apart
from paddle_chainrules.programs.capture import capture
from paddle_chainrules.programs.operators.entry import raw
from paddle_chainrules.programs.operators.table import TABLE
from paddle_chainrules.programs.record import CaptureError
from paddle_chainrules.transforms import program_cache
from paddle_chainrules.transforms.program_cache import ProgramCache
from programs.samples import SAMPLES, T

CASES = [(name, k) for name, rows in SAMPLES.items() for k in range(len(rows))]
UNTESTED = {
    *("p_norm_grad", "silu_grad", "elu_grad", "conv2d_grad", "pool2d_grad"),
    *("max_pool2d_with_index_grad", "cross_entropy_with_softmax_grad"),
    *("batch_norm_grad", "layer_norm_grad"),
    *("Tensor._tensor_use_gpudnn", "share_data", "Tensor.T", "Tensor.data"),
    *("gaussian", "uniform", "randint", "randperm", "bernoulli"),
}
"""Without a sample: they take what only their forward gives, or draw."""


def made(row, seed=0):
    """Arguments with tensors in the place of shapes, and these tensors in a row."""
    rng = np.random.default_rng(seed)
    tensors = []

    def one(arg):
        if isinstance(arg, T):
            tensors.append(arg.made(rng))
            return len(tensors) - 1, None
        return arg

    def walk(arg):
        if isinstance(arg, T):
            return one(arg)
        return [walk(part) for part in arg] if isinstance(arg, list) else arg

    args = [walk(arg) for arg in row]

    def filled(arg, values):
        if isinstance(arg, tuple) and len(arg) == 2 and arg[1] is None:
            return values[arg[0]]
        if isinstance(arg, list):
            return [filled(part, values) for part in arg]
        return arg

    return tensors, lambda values: [filled(arg, values) for arg in args]


def floats(result):
    parts = result if isinstance(result, list | tuple) else [result]
    return [
        p
        for p in parts
        if isinstance(p, paddle.Tensor)
        and p._is_initialized()
        and p.dtype == paddle.float64
    ]


def called(name):
    """The operator, as Paddle's own code calls it: by the name in its place."""
    owner, _, attribute = name.rpartition(".")
    if name == "copy":
        return paddle.assign
    place = paddle.Tensor if owner else paddle._C_ops
    return lambda *args: getattr(place, attribute)(*args)


def test_every_operator_has_a_sample():
    assert {*TABLE} - {*SAMPLES} == UNTESTED


@pytest.mark.parametrize(("name", "k"), CASES, ids=[f"{n} {k}" for n, k in CASES])
def test_value_and_gradients(name, k, count_case, monkeypatch):
    # Beside the tape, which some of Paddle's gradients have no way back on.
    unchecked = functools.partial(capture, check=False)
    monkeypatch.setattr(program_cache, "capture", unchecked)
    tensors, fill = made(SAMPLES[name][k])
    entry = TABLE[name]
    if entry.writes:  # what it writes into is no argument here
        kept, refill = tensors, fill
        tensors = [t for i, t in enumerate(kept) if i not in entry.writes]

        def fill(values):
            each = iter(values)
            places = range(len(kept))
            return refill(
                [kept[i].clone() if i in entry.writes else next(each) for i in places]
            )

    call = called(name)

    def function(values):
        result = floats(call(*fill(values)))
        if entry.name == "cross_entropy_with_softmax":
            return result[1:]
        shown = (
            3 if entry.writes else entry.shown
        )  # what is saved in evaluation is junk
        return result[: shown or len(result)]

    paddle.seed(3)
    native = function(tensors)
    paddle.seed(3)
    if not (entry.view or entry.alias or entry.writes):
        for part in native:
            assert not any(map(part._is_shared_buffer_with, tensors)), "a view"
    captured = capture(function, tensors, check=not entry.random)
    paddle.seed(3)
    for found, expected in zip(captured.program(*tensors), native, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    count_case("operators, value")
    places = [i for i, t in enumerate(tensors) if t.dtype == paddle.float64]
    if entry.differentiable == () or not places or not native or entry.random:
        return
    number = 1 if entry.writes else len(native)

    def outputs(values):
        return function(values)[:number], None

    cache = ProgramCache(outputs)
    if entry.reverse is None and entry.formula is None:
        with pytest.raises(CaptureError, match="has no rule"):
            cache.record(tensors)
        return
    values, _, recording = cache.record(tensors)
    rng = np.random.default_rng(5)
    cotangents = [paddle.to_tensor(rng.standard_normal(v.shape)) for v in values]
    grads = recording.gradients(cotangents)
    allowed = {*range(len(tensors))}
    if entry.differentiable is not None or entry.shapes:
        allowed = {i for i in places if grads[i] is not None}
    exact = Differences(
        lambda given: outputs(given)[0], tensors, [i for i in places if i in allowed]
    )
    slopes = exact.gradients([c.numpy() for c in cotangents])
    scale = max(float(np.abs(s).max(initial=0)) for s in slopes.values())
    for i, slope in slopes.items():
        assert not apart(grads[i], slope, scale, False), (name, i)
    count_case("operators, gradients")


def test_names_that_this_paddle_lacks_are_no_error_before_they_are_called():
    with pytest.raises(NotImplementedError, match="has no operator nonsense"):
        raw("nonsense")()
