"""Comparisons for tests, of this package's and of your own layers.

Gradients are compared element by element, with random cotangents: a transposed or
permuted one does not pass. May import all rooms but :mod:`paddle_chainrules.bridge`.
"""

from .checks import check_vjp, compare
from .errors import DIFFERENCES, LEAST, STEP, TOLERANCES
from .report import Report, Row

__all__ = [
    "DIFFERENCES",
    "LEAST",
    "STEP",
    "TOLERANCES",
    "Report",
    "Row",
    "check_vjp",
    "compare",
]
