"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from .basic import BASIC
from .losses import LOSSES
from .random import RANDOM
from .special import SPECIAL
from .tensors import T

__all__ = ["SAMPLES", "T"]

SAMPLES = {**BASIC, **LOSSES, **RANDOM, **SPECIAL}
