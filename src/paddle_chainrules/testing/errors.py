"""Errors relative to the largest entry, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
from paddle import Tensor

from ..paddle_side.dtypes import is_differentiable
from ..transforms.containers.tree import flatten_tree
from .progress import progress
from .report import Row
from .sides import Side

TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-10}
"""Allowed errors relative to the largest entry, by the dtype of compared values."""


LEAST = 1e-2
"""The least that counts as the largest entry, as a part of that of all tensors: one
that is nothing but rounding, such as a bias before BatchNorm has, is no error."""


DIFFERENCES = 1e-5
"""The same of central differences in float64: where activations have kinks, some of
them lie between the two points."""


STEP = 1e-6
"""Step of these differences, along a direction of length 1."""


def rows_of(side: Side, reference: Side, seed: int) -> Iterator[Row]:
    rng = np.random.default_rng(seed)
    inputs = reference.args, reference.kwargs
    outputs = reference.outputs(reference.params, inputs)
    cotangents = [
        paddle.to_tensor(rng.standard_normal(leaf.shape))
        if is_differentiable(leaf)
        else None
        for leaf in outputs
    ]
    results = side.gradients(cotangents)
    oracles = {"native": side.native_gradients(cotangents)}
    if side.dtype != "float64":
        oracles["float64"] = reference.native_gradients(cotangents)
    for oracle, expected in oracles.items():
        pairs = {
            tensor: pair
            for tensor, value in results.items()
            if (pair := _array_pair(tensor, value, expected[tensor])) is not None
        }
        min_scale = LEAST * max(_largest(reference) for _, reference in pairs.values())
        for tensor, pair in pairs.items():
            labels = side.device, side.dtype, oracle, tensor
            yield row_of(*labels, *pair, TOLERANCES[side.dtype], min_scale)
    if side.dtype == "float64":
        yield from _differences(side, cotangents, results, rng)


def _differences(
    side: Side,
    cotangents: Sequence[Any],
    result: Mapping[str, Any],
    rng: np.random.Generator,
) -> Iterator[Row]:
    """Compare each gradient along a random direction with the output's slope."""
    names = list(side.params)
    arg_leaves, structure = flatten_tree((side.args, side.kwargs))
    leaves = [*side.params.values(), *arg_leaves]
    tensors = [f"params[{name!r}]" for name in names]
    tensors += [f"argument {i}" for i in range(len(arg_leaves))]
    compared: list[tuple[str, tuple[int, ...], float, float]] = []
    steps = progress(enumerate(tensors), len(tensors), f"differences, {side.device}")
    for i, tensor in steps:
        if not is_differentiable(leaves[i]):
            continue
        direction = paddle.to_tensor(rng.standard_normal(leaves[i].shape)).to(
            side.device
        )

        def weighted_sum(t: float, i: int = i, v: Tensor = direction) -> float:
            moved = [*leaves[:i], leaves[i] + t * v, *leaves[i + 1 :]]
            params = dict(zip(names, moved, strict=False))
            inputs = structure.unflatten(moved[len(names) :])
            outputs = side.outputs(params, inputs)
            return sum(
                float((output * cotangent.to(side.device)).sum())
                for output, cotangent in zip(outputs, cotangents, strict=True)
                if cotangent is not None
            )

        slope = (weighted_sum(STEP) - weighted_sum(-STEP)) / (2 * STEP)
        grad = result[tensor]
        terms = np.zeros(1) if grad is None else (grad * direction).numpy()
        # Relative to what the terms of the product add up to, not to what is left.
        scale = max(float(np.abs(terms).sum()), abs(slope))
        difference = abs(float(terms.sum()) - slope)
        compared.append((tensor, tuple(leaves[i].shape), difference, scale))
    min_scale = LEAST * max((scale for *_, scale in compared), default=0.0)
    for tensor, shape, difference, scale in compared:
        error = difference / (max(scale, min_scale) or 1.0)
        labels = side.device, side.dtype, "differences", tensor
        yield Row(*labels, shape, error, None, DIFFERENCES)


def _array_pair(tensor: str, result: Any, expected: Any) -> tuple[Array, Array] | None:
    """Return both as arrays, None as zero; nothing if neither is a tensor."""
    if not isinstance(result, Tensor) and not isinstance(expected, Tensor):
        return None
    if result is None or expected is None:
        array = array_of(expected if result is None else result)
        return (np.zeros_like(array), array) if result is None else (array, 0 * array)
    assert result.shape == expected.shape, (
        f"{tensor} has shape {list(result.shape)}, the oracle's {list(expected.shape)}"
    )
    return array_of(result), array_of(expected)


def _largest(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def array_of(tensor: Tensor) -> Array:
    floating = tensor.is_floating_point()
    array: Array = (tensor.detach().astype("float64") if floating else tensor).numpy()
    return array


def row_of(
    device: str,
    dtype: str,
    oracle: str,
    tensor: str,
    values: Array,
    expected: Array,
    tolerance: float,
    min_scale: float = 0.0,
) -> Row:
    labels = device, dtype, oracle, tensor, tuple(expected.shape)
    if not expected.size:
        return Row(*labels, 0.0, None, tolerance)
    difference = np.abs(values - expected)
    difference = np.where(np.isnan(difference), np.inf, difference)
    is_equal = (values == expected) | (np.isnan(values) & np.isnan(expected))
    difference = np.where(is_equal, 0.0, difference)
    position = np.unravel_index(int(difference.argmax()), difference.shape)
    scale = max(_largest(expected), min_scale) or 1.0
    error = float(difference.max()) / scale
    return Row(*labels, error, tuple(int(i) for i in position), tolerance)


Array = npt.NDArray[Any]
