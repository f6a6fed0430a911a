"""All operators that programs hold, by name."""

from __future__ import annotations

from . import (  # noqa: F401
    activation_series,
    activations,
    arithmetic,  # for those above
    brackets,
    channel_norms,
    channels_last,
    comparison,
    complex_numbers,
    convolution,
    copies,
    counting,
    cross_entropy,
    cumulative,
    diagonals,
    eigenvalues,
    einsum,
    elementary,
    factorizations,
    functions,
    gates,
    hierarchical,
    indexing,
    losses,
    matrices,
    normalization,
    norms,
    ordering,
    pooling,
    products,
    putting,
    random,
    rearranging,
    recurrent,
    recurrent_steps,
    reductions,
    regions,
    resampling,
    sampling,
    segments,
    shapes,
    solving,
    sparse,
    special,
    spectral,
    writes,
)
from .entry import TABLE

__all__ = ["TABLE"]
