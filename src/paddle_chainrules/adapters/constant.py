"""Packages whose own functions and variables are taken not to change."""

from __future__ import annotations

import sys

CONSTANT = (
    *("paddle", "numpy", "scipy", "sympy", "deepxde", "ppsci", "builtins"),
    *("paddle_chainrules", "typing_extensions"),
    *("omegaconf", "hydra", "easydict", "ml_collections", "yacs"),
)
"""Their names.

Objects of their classes are data: what a configuration holds is compared, and not the
library that it is written in.
"""


def is_constant(module: str) -> bool:
    return module.partition(".")[0] in CONSTANT


def is_standard(module: str) -> bool:
    """Tell whether a module is Python's own, or of a package taken not to change."""
    return is_constant(module) or module.partition(".")[0] in sys.stdlib_module_names
