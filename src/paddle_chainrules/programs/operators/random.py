"""Random numbers, and the operators that draw them."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import single
from ...paddle_side.interception import RAW, by_older_interface
from ...paddle_side.listener import not_listening
from ...paddle_side.process.random_state import begin_seed, end_seed, is_sketched
from ...paddle_side.rules import drawing
from ...paddle_side.rules.derivatives.formulas import refuse_derivative
from .axes import ANYWHERE, ELEMENTS
from .calls import Call, NoRule
from .entry import TABLE, define, formula_of, reverse_of, simpler_of
from .shared import ops


def _dropout(
    x: Tensor, seed_tensor: Any, p: Any, is_test: bool, mode: str, seed: int, fix: bool
) -> Any:
    """Return the result with the mask. Paddle shows it only in its older calls."""
    if seed_tensor is not None:
        return (RAW.dropout(x, seed_tensor, p, is_test, mode, seed, fix),)
    attributes = ("dropout_prob", float(p), "is_test", is_test, "seed", seed)
    attrs = ("dropout_implementation", mode, "fix_seed", fix)
    out, mask = by_older_interface("dropout", x, *attributes, *attrs)
    if mask._is_initialized():
        mask.stop_gradient = True
    return out, mask


def _dropout_of_ones(ones: Tensor, p: float, mode: str, seed: int, fix: bool) -> Any:
    """Return the factors by which dropout multiplies, and the mask."""
    if is_sketched():
        seed, fix = 1, True
    return _dropout(ones, None, p, False, mode, seed, fix)


def _rrelu(x: Tensor, lower: float, upper: float, is_test: bool) -> Any:
    """Return the result with the slopes."""
    attributes = "lower", lower, "upper", upper, "is_test", is_test
    return by_older_interface("rrelu", x, *attributes)


def _gumbel_softmax(x: Tensor, temperature: float, hard: bool, axis: int) -> Any:
    """Return the choice, and its probabilities."""
    soft = RAW.gumbel_softmax(x, temperature, False, axis)
    if not hard:
        return soft
    first = RAW.argmax(soft, axis, True, paddle.int64)
    classes = paddle.arange(soft.shape[axis], dtype="int64")
    classes = RAW.reshape(classes, [-1, *[1] * (soft.ndim - 1 - axis % soft.ndim)])
    return RAW.cast(RAW.equal(first, classes), soft.dtype), soft


define(
    "dropout",
    run=_dropout,
    random=True,
    shown=1,
    differentiable=(0,),
    fixed=(1,),
    axes=ANYWHERE,
    tape=refuse_derivative("dropout", 2, drawing.dropout),
)
define("dropout_grad", differentiable=(1,), axes=ELEMENTS)
define(
    "dropout_of_ones",
    "ones p mode seed fix_seed",
    run=_dropout_of_ones,
    random=True,
    differentiable=(),
    axes=ANYWHERE,
)
define(
    "rrelu",
    run=_rrelu,
    random=True,
    shown=1,
    differentiable=(0,),
    fixed=(1,),
    axes=ANYWHERE,
    tape=drawing.rrelu,
)
define(
    "gumbel_softmax",
    run=_gumbel_softmax,
    random=True,
    shown=1,
    differentiable=(0,),
    fixed=(1,),
    tape=drawing.gumbel_softmax,
)
for name in (
    *("gaussian", "uniform", "randint", "randperm", "poisson", "binomial"),
    *("multinomial", "standard_gamma", "dirichlet", "truncated_gaussian_random"),
    *("class_center_sample", "uniform_random_batch_size_like"),
):
    define(name, random=True, differentiable=())
define("bernoulli", axes=ANYWHERE, random=True, differentiable=())
for name, step in (("seed", paddle.seed), ("begin_seed", begin_seed)):
    define(name, "seed", run=step, random=True, differentiable=())
define("end_seed", "", run=end_seed, random=True, differentiable=())
SEEDS = frozenset({"seed", "begin_seed", "end_seed"})
"""Operators that seed the generators, in order with those that draw."""


_ROUNDED_DTYPES = (paddle.float32, paddle.float64)
"""Dtypes whose kernels round draws to float32, and multiply by them as they are."""


@simpler_of("dropout")
def _dropout_simpler(x: Any, _: Any, p: Any, is_test: bool, mode: str, *__: Any) -> Any:
    """Replace it in evaluation, where it draws nothing."""
    if not is_test:
        return None
    if mode == "upscale_in_train":
        return "assign", (x,)
    if x.dtype not in _ROUNDED_DTYPES or not isinstance(p, float | int):
        return None
    return "scale", (x, single(1.0 - single(float(p))), 0.0, True)


@simpler_of("rrelu")
def _rrelu_simpler(x: Any, lower: float, upper: float, is_test: bool) -> Any:
    """Replace it in evaluation, where it draws nothing."""
    if not is_test or x.dtype not in _ROUNDED_DTYPES:
        return None
    return "leaky_relu", (x, single((single(lower) + single(upper)) / 2.0))


@formula_of("dropout")
def _dropout_formula(
    x: Tensor, seed_tensor: Any, p: Any, is_test: bool, mode: str, seed: int, fix: bool
) -> Any:
    """Draw separately, so that the draw waits for nothing that is computed."""
    if is_test or seed_tensor is not None or not isinstance(p, float | int):
        raise NoRule("a seed or a probability in a tensor; give numbers")
    ones = paddle.ones(x.shape, x.dtype)
    factors, mask = TABLE["dropout_of_ones"].bind([ones, p, mode, seed, fix])
    zeros = ops.expand(paddle.zeros([], x.dtype), x.shape)  # of what is infinite, too
    return ops.where(factors > 0.0, x * factors, zeros), mask


@formula_of("dropout_grad")
def _dropout_grad_formula(
    mask: Tensor, out_grad: Tensor, p: Any, is_test: bool, mode: str
) -> Tensor:
    if is_test or not isinstance(p, float | int):
        raise NoRule("a probability in a tensor; give a number")
    with not_listening():  # rounded as Paddle rounds it
        unit_grad = paddle.ones([1], out_grad.dtype)
        ones_mask = paddle.ones([1], "uint8")
        scale = RAW.dropout_grad(ones_mask, unit_grad, p, False, mode).item()
    return out_grad * ops.cast(mask, out_grad.dtype) * scale


@reverse_of("dropout")
def _dropout_reverse(call: Call) -> list[Any]:
    _, seed_tensor, p, is_test, mode, _, _ = call.args
    g = call.cotangent
    if is_test:
        grad = g if mode == "upscale_in_train" else g * single(1.0 - single(float(p)))
    elif seed_tensor is not None:
        raise NoRule("a seed in a tensor; call paddle.seed before")
    else:
        grad = ops.dropout_grad(call.outputs[1], g, p, False, mode)
    return [grad, *(None for _ in range(6))]


@reverse_of("dropout_grad")
def _dropout_grad_reverse(call: Call) -> list[Any]:
    mask, _, *attrs = call.args
    grad = ops.dropout_grad(mask, call.cotangent, *attrs)
    return [None, grad, None, None, None]


@reverse_of("rrelu")
def _rrelu_reverse(call: Call) -> list[Any]:
    return [call.cotangent * call.outputs[1], None, None, None]


@reverse_of("gumbel_softmax")
def _gumbel_softmax_reverse(call: Call) -> list[Any]:
    """Return the gradient of the probabilities, also for a hard choice.

    Paddle's documentation says so.
    """
    _, temperature, _, axis = call.args
    grad = ops.softmax_grad(call.outputs[-1], call.cotangent, axis)
    return [grad / single(temperature), None, None, None]
