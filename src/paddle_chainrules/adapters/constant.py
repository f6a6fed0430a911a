"""Packages whose own functions and variables are taken not to change."""

from __future__ import annotations

CONSTANT = (
    *("paddle", "numpy", "scipy", "sympy", "sklearn", "deepxde", "ppsci", "builtins"),
    *("paddle_chainrules", "typing_extensions"),
    *("omegaconf", "hydra", "easydict", "ml_collections", "yacs"),
)
"""Their names.

Objects of their classes are data: what a configuration holds is compared, and not the
library that it is written in.
"""


def is_constant(module: str | None) -> bool:
    return (module or "").partition(".")[0] in CONSTANT
