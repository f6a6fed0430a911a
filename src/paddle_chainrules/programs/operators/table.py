"""All operators that programs hold, by name."""

from __future__ import annotations

from . import (  # noqa: F401
    activations,
    arithmetic,
    comparison,
    complex_numbers,
    convolution,
    copies,
    elementary,
    indexing,
    losses,
    matrices,
    normalization,
    random,
    reductions,
    shapes,
    spectral,
    writes,
)
from .entry import TABLE

__all__ = ["TABLE"]
