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

HALF_PRECISION = (paddle.float16, paddle.bfloat16)
"""Dtypes that are summed in float32: gloo's sum of float16 is infinite, and both lose
digits."""

REAL_DTYPES = {paddle.complex64: paddle.float32, paddle.complex128: paddle.float64}
"""Complex dtypes, and those of their components, as which they are summed."""


def named_leaves(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree, None among them, with their paths in it."""
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


def sum_over_ranks(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Sum floating-point or complex tensors over all ranks, in a round a dtype."""
    if size() == 1:
        return [t.detach() for t in tensors]
    results: list[Any] = [None] * len(tensors)
    for dtype in dict.fromkeys(_sum_dtype(t) for t in tensors):
        indices = [i for i, t in enumerate(tensors) if _sum_dtype(t) == dtype]
        flat = [_flat(tensors[i]).astype(dtype) for i in indices]
        buffer = add_up(paddle.concat(flat))
        for i, segment in zip(
            indices, buffer.split([f.shape[0] for f in flat]), strict=True
        ):
            results[i] = _restored(segment, tensors[i])
    return results


def _sum_dtype(tensor: Tensor) -> Any:
    return (
        paddle.float32
        if tensor.dtype in HALF_PRECISION
        else REAL_DTYPES.get(tensor.dtype, tensor.dtype)
    )


def _flat(tensor: Tensor) -> Tensor:
    detached = tensor.detach()
    return (
        paddle.as_real(detached) if detached.dtype in REAL_DTYPES else detached
    ).reshape([-1])


def _restored(segment: Tensor, tensor: Tensor) -> Tensor:
    segment = segment.to(tensor.place)
    if tensor.dtype in REAL_DTYPES:
        return paddle.as_complex(segment.reshape([*tensor.shape, 2]))
    return segment.reshape(tensor.shape).astype(tensor.dtype)


def as_bytes(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors of any dtypes, one after another, uint8."""
    chunks = [_bytes_of(t) for t in tensors if t.size]
    return paddle.concat(chunks) if chunks else paddle.zeros([0], dtype="uint8")


def from_bytes(buffer: Tensor, examples: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of :func:`as_bytes`, in the shapes and dtypes of these."""
    results, start = [], 0
    for tensor in examples:
        stop = start + math.prod(tensor.shape) * tensor.element_size()
        chunk = buffer[start:stop].clone().to(tensor.place)
        typed = chunk.view(tensor.dtype) if tensor.size else tensor.detach().clone()
        results.append(typed.reshape(tensor.shape))
        start = stop
    return results


def _bytes_of(tensor: Tensor) -> Tensor:
    return without_gaps(tensor.detach()).reshape([-1]).clone().view(paddle.uint8)
