"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from .basic import BASIC
from .losses import LOSSES
from .random import RANDOM
from .special import SPECIAL
from .tensors import T, t

__all__ = ["SAMPLES", "T", "t"]

SAMPLES = {**BASIC, **LOSSES, **RANDOM, **SPECIAL}
