"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from .basic import BASIC
from .spatial import SPATIAL
from .tensors import T

__all__ = ["SAMPLES", "T"]

SAMPLES = {**BASIC, **SPATIAL}
