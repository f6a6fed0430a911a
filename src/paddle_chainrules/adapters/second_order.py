"""Second-order methods in the place of a library's optimizer."""

from __future__ import annotations

from typing import Any

from ..optimizers.second_order.methods import METHODS, check_options
from .paddlescience_training import LBFGS


class SecondOrder:
    """A second-order method that a library trains with, in place of its optimizer.

    Args:
        method: the name of one of :data:`METHODS`: "levenberg_marquardt",
            "gauss_newton", "natural_gradient", "self_scaled_broyden", "bfgs" or
            "lbfgs". The first three need a loss of mean squares.
        options: keyword arguments of the function of that name in
            :mod:`paddle_chainrules.optimizers`, such as ``damping=1e-3``. By default
            "levenberg_marquardt" has ``scaled=False, geodesic=True``, "lbfgs" has
            ``memory=100``, and quasi-Newton methods have no tolerance.

    Raises:
        ValueError: there is no such method.
        TypeError: the method has no such option.

    Examples:
        >>> from paddle_chainrules.adapters.second_order import SecondOrder
        >>> SecondOrder("levenberg_marquardt", damping=1e-3)
        SecondOrder('levenberg_marquardt', damping=0.001)
    """

    def __init__(self, method: str, **options: Any) -> None:
        check_options(method, options)
        self.method, self.options = method, options

    def __call__(self, models: Any) -> Any:
        """Return PaddleScience's optimizer of these models, for its ``Solver``.

        Args:
            models: a model, or several models and equations with unknowns.
        """
        return LBFGS(self.method, self.options, models)

    def __repr__(self) -> str:
        given = "".join(f", {k}={v!r}" for k, v in self.options.items())
        return f"SecondOrder({self.method!r}{given})"


def as_settings(optimizer: Any) -> SecondOrder | None:
    """Return the method that an optimizer or its name stands for; None if none."""
    if isinstance(optimizer, SecondOrder):
        return optimizer
    return (
        SecondOrder(optimizer)
        if isinstance(optimizer, str) and optimizer in METHODS
        else None
    )
