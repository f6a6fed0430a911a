"""Trees of tensors as one flat buffer a dtype, since every round has its latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import optree
import paddle
from paddle import Tensor

from ..paddle_side.shared_memory import without_gaps
from .processes import size
from .rounds import add_up

HALF = (paddle.float16, paddle.bfloat16)
"""Dtypes that are summed in float32: gloo's sum of float16 is infinite, and both lose
digits."""

PARTS = {paddle.complex64: paddle.float32, paddle.complex128: paddle.float64}
"""Complex dtypes, and those of their parts, as which they are summed."""


def named_leaves(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree, None among them, with their places in it."""
    paths, leaves, _ = optree.tree_flatten_with_path(tree, is_leaf, none_is_leaf=True)
    names = ("".join(f"[{key!r}]" for key in path) for path in paths)
    yield from zip(names, leaves, strict=True)


def describe(name: str, leaf: Any, samples: bool = False) -> str:
    """Describe what must match on all ranks; the number of samples may differ."""
    if not isinstance(leaf, Tensor):
        return f"{name}: {type(leaf).__name__}"
    shape = [str(n) for n in leaf.shape]
    if samples and shape:
        shape[0] = "samples"
    return f"{name}: {str(leaf.dtype).removeprefix('paddle.')} [{', '.join(shape)}]"


def summed(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Sum floating-point or complex tensors over all ranks, in a round a dtype."""
    if size() == 1:
        return [t.detach() for t in tensors]
    results: list[Any] = [None] * len(tensors)
    for dtype in dict.fromkeys(_summed_as(t) for t in tensors):
        places = [i for i, t in enumerate(tensors) if _summed_as(t) == dtype]
        flat = [_flat(tensors[i]).astype(dtype) for i in places]
        buffer = paddle.concat(flat)
        add_up(buffer)
        for i, part in zip(
            places, buffer.split([f.shape[0] for f in flat]), strict=True
        ):
            results[i] = _like(part, tensors[i])
    return results


def _summed_as(tensor: Tensor) -> Any:
    return (
        paddle.float32
        if tensor.dtype in HALF
        else PARTS.get(tensor.dtype, tensor.dtype)
    )


def _flat(tensor: Tensor) -> Tensor:
    plain = tensor.detach()
    return (paddle.as_real(plain) if plain.dtype in PARTS else plain).reshape([-1])


def _like(part: Tensor, tensor: Tensor) -> Tensor:
    if tensor.dtype in PARTS:
        return paddle.as_complex(part.reshape([*tensor.shape, 2]))
    return part.reshape(tensor.shape).astype(tensor.dtype)


def as_bytes(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors of any dtypes, one after another, uint8."""
    parts = [_bytes_of(t) for t in tensors if t.size]
    return paddle.concat(parts) if parts else paddle.zeros([0], dtype="uint8")


def from_bytes(buffer: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of :func:`as_bytes`, in the shapes and dtypes of these."""
    results, start = [], 0
    for tensor in like:
        stop = start + math.prod(tensor.shape) * tensor.element_size()
        part = buffer[start:stop].clone()
        typed = part.view(tensor.dtype) if tensor.size else tensor.detach().clone()
        results.append(typed.reshape(tensor.shape))
        start = stop
    return results


def _bytes_of(tensor: Tensor) -> Tensor:
    return without_gaps(tensor.detach()).reshape([-1]).clone().view(paddle.uint8)
