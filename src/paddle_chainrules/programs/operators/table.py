"""All operators that programs hold, by name."""

from __future__ import annotations

from . import (  # noqa: F401
    activations,
    arithmetic,
    channel_norms,
    comparison,
    convolution,
    copies,
    elementary,
    indexing,
    losses,
    matrices,
    normalization,
    pooling,
    random,
    recurrent,
    reductions,
    regions,
    resampling,
    sampling,
    shapes,
)
from .entry import TABLE

__all__ = ["TABLE"]
