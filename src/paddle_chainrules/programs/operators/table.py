"""All operators that programs hold, by name."""

from __future__ import annotations

from . import (  # noqa: F401
    activations,
    arithmetic,
    brackets,
    comparison,
    convolution,
    copies,
    counting,
    cumulative,
    diagonals,
    elementary,
    indexing,
    losses,
    matrices,
    normalization,
    ordering,
    putting,
    random,
    rearranging,
    reductions,
    segments,
    shapes,
    writes,
)
from .entry import TABLE

__all__ = ["TABLE"]
