"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from __future__ import annotations

from typing import Any

from .basic import BASIC
from .complex_numbers import COMPLEX
from .convolutions import CONVOLUTIONS
from .indexing import INDEXING
from .linear_algebra import COMPARED, LINEAR_ALGEBRA, PREPARED
from .losses import LOSSES
from .norms import NORMS
from .pooling import POOLING
from .random import RANDOM
from .recurrent import RECURRENT
from .resampling import RESAMPLING, SAMPLING
from .sparse import SPARSE
from .special import SPECIAL
from .spectral import SPECTRAL
from .tensors import T, t
from .writes import WRITES

__all__ = ["COMPARED", "PREPARED", "SAMPLES", "T", "t"]

SAMPLES: dict[str, list[tuple[Any, ...]]] = {}
FAMILIES = (
    BASIC,
    COMPLEX,
    CONVOLUTIONS,
    INDEXING,
    LINEAR_ALGEBRA,
    LOSSES,
    NORMS,
    POOLING,
    RANDOM,
    RECURRENT,
    RESAMPLING,
    SAMPLING,
    SPARSE,
    SPECIAL,
    SPECTRAL,
    WRITES,
)
for family in FAMILIES:
    for name, rows in family.items():
        SAMPLES.setdefault(name, []).extend(rows)
