"""Parameters of chains of affine maps in pairs, and batches as rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paddle import Tensor

Weights = Sequence[tuple[Tensor, Tensor]]
"""``(weight [in, out], bias [out])`` of each layer."""


def weights_of(values: Sequence[Tensor]) -> Weights:
    """``(weight, bias)`` of each layer, from parameters in order."""
    return list(zip(values[::2], values[1::2], strict=True))


def as_rows(x: Tensor) -> Tensor:
    """All leading dimensions as one, in which there may be no sample."""
    if x.ndim == 2:
        return x
    return x.reshape([math.prod(x.shape[:-1]), x.shape[-1]])


def with_leading_of(x: Tensor, rows: Tensor) -> Tensor:
    """Rows with the leading dimensions of x: the way back from :func:`as_rows`."""
    return rows if x.ndim == 2 else rows.reshape([*x.shape[:-1], rows.shape[-1]])
