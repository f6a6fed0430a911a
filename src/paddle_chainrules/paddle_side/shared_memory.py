"""Tensors that share memory. Paddle reads any other than dense ones as if dense."""

from __future__ import annotations

from operator import attrgetter

from paddle import Tensor

ADDRESS, WITHOUT_GAPS = Tensor.data_ptr, Tensor.is_contiguous
SHAPE = attrgetter("shape")


def has_buffer(x: Tensor) -> bool:
    """Tell whether memory of a dense tensor may be asked for.

    A gradient of a few rows (SelectedRows) is no dense tensor.
    """
    return bool(x.is_dense() and x._is_initialized())


def without_gaps(x: Tensor) -> Tensor:
    """Return x, or a copy of an x that has gaps between elements or another order.

    Paddle's ``contiguous`` gives x itself other memory, which a view no longer shares.
    """
    return x if x.is_contiguous() else x.clone()


def share_memory(x: Tensor, y: Tensor) -> bool:
    """Tell whether two tensors share memory; neither need have any."""
    return has_buffer(x) and has_buffer(y) and bool(x._is_shared_buffer_with(y))
