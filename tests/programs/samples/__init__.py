"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from .basic import BASIC
from .convolutions import CONVOLUTIONS
from .norms import NORMS
from .pooling import POOLING
from .recurrent import RECURRENT
from .resampling import RESAMPLING, SAMPLING
from .tensors import T, t

__all__ = ["SAMPLES", "T", "t"]

SAMPLES = {
    **BASIC,
    **CONVOLUTIONS,
    **POOLING,
    **RESAMPLING,
    **SAMPLING,
    **NORMS,
    **RECURRENT,
}
