"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from .basic import BASIC
from .tensors import T
from .writes import WRITES

__all__ = ["SAMPLES", "T"]

SAMPLES = {**BASIC, **WRITES}
