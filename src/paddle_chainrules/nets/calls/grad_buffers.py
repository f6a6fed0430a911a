"""Gradients written into, or added to, tensors that the caller owns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.row_sparse import RowSparse
from ...paddle_side.devices import device_name
from ...paddle_side.dtypes import dtype_name, is_differentiable, same_dtype


class Primal(NamedTuple):
    """A value that a gradient is taken with respect to, and its name in errors."""

    label: str
    value: Any


def check_buffers(buffers: Sequence[Any], primals: Sequence[Primal]) -> None:
    """Refuse buffers that can't take the gradients of the primals; None takes none.

    Raises:
        TypeError: a buffer that is no tensor, has another dtype, or is for an argument
            without a gradient.
        ValueError: one of another shape or device, or memory that overlaps.
    """
    for buffer, (label, primal) in zip(buffers, primals, strict=True):
        if buffer is None:
            continue
        if not is_differentiable(primal):
            kind = getattr(primal, "dtype", type(primal).__name__)
            raise TypeError(
                f"into has a buffer for {label}, which is {kind} and has no gradient; "
                "give None there"
            )
        if isinstance(buffer, RowSparse):
            if tuple(buffer.shape) != tuple(primal.shape):
                raise ValueError(
                    f"into for {label} has shape {list(buffer.shape)}, the gradient "
                    f"{list(primal.shape)}; RowSparse.zeros makes one that fits"
                )
            if not same_dtype(buffer.values.dtype, primal.dtype):
                raise TypeError(
                    f"into for {label} is {dtype_name(buffer.values.dtype)}, the "
                    f"gradient {dtype_name(primal.dtype)}; RowSparse.zeros makes one "
                    "that fits"
                )
            continue
        if not isinstance(buffer, Tensor):
            raise TypeError(
                f"into for {label} must be a paddle.Tensor or None, got "
                f"{type(buffer).__name__}; give a tensor to write to, such as "
                "paddle.zeros_like of what is differentiated by"
            )
        if buffer.shape != primal.shape:
            raise ValueError(
                f"into for {label} has shape {list(buffer.shape)}, the gradient "
                f"{list(primal.shape)}; paddle.zeros_like makes one that fits"
            )
        if not same_dtype(buffer.dtype, primal.dtype):
            raise TypeError(
                f"into for {label} is {dtype_name(buffer.dtype)}, the gradient "
                f"{dtype_name(primal.dtype)}; paddle.zeros_like makes one that fits"
            )
        if not buffer.place._equals(primal.place):
            device = device_name(primal.place)
            raise ValueError(
                f"into for {label} is on {device_name(buffer.place)}, the gradient on "
                f"{device}; move it with .to({device!r})"
            )
    _check_overlap(buffers, primals)


def _check_overlap(buffers: Sequence[Any], primals: Sequence[Primal]) -> None:
    spans = []
    for buffer, (label, primal) in zip(buffers, primals, strict=True):
        if isinstance(buffer, Tensor) and buffer.size:
            spans.append((*_span(buffer), f"into for {label}", True))
        if isinstance(primal, Tensor) and primal._is_initialized() and primal.size:
            spans.append((*_span(primal), label, False))
    spans.sort()
    # Each against the one that reaches farthest of those that start before it, apart
    # for buffers, which may overlap nothing, and primals, which may overlap each other.
    reach: dict[bool, tuple[int, str]] = {True: (0, ""), False: (0, "")}
    for start, stop, label, is_buffer in spans:
        for other_is_buffer, (end, other) in reach.items():
            if start < end and (is_buffer or other_is_buffer):
                raise ValueError(
                    f"{other} and {label} overlap in memory, so that writing the one "
                    "changes the other; give each gradient memory of its own"
                )
        reach[is_buffer] = max(reach[is_buffer], (stop, label))


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the first address, and the one past the last."""
    entries = 1 + sum(
        (n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    start = tensor.data_ptr()
    return start, start + entries * tensor.element_size()


@grad_mode(False)
def write(buffers: Sequence[Any], grads: Sequence[Any], accumulate: bool) -> None:
    """Assign or add each gradient, None being zero, to its buffer."""
    for buffer, grad in zip(buffers, grads, strict=True):
        if buffer is None:
            continue
        if isinstance(buffer, RowSparse):
            zero = RowSparse.zeros(buffer.shape, dtype_name(buffer.values.dtype))
            buffer.assign(grad or zero, accumulate)
            continue
        memory = buffer.detach()  # whatever the buffer requires
        if grad is None:
            if not accumulate:
                memory.zero_()
        elif accumulate:
            memory.add_(grad.detach())
        else:
            memory.copy_(grad.detach(), True)
