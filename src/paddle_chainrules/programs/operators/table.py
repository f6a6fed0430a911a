"""All operators that programs hold, by name."""

from __future__ import annotations

from . import (  # noqa: F401
    activations,
    arithmetic,
    comparison,
    convolution,
    copies,
    cross_entropy,
    elementary,
    gates,
    hierarchical,
    indexing,
    losses,
    matrices,
    normalization,
    random,
    reductions,
    shapes,
    special,
)
from .entry import TABLE

__all__ = ["TABLE"]
