"""Second-order methods by their names, for those who take a name from others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...paddle_side.near_names import refuse_foreign_arguments
from .krylov_least_squares import gauss_newton
from .least_squares import levenberg_marquardt
from .metric_gradients import natural_gradient
from .quasi_newton import bfgs, lbfgs


class Method(NamedTuple):
    """A method: its function, and options that differ from the function's own."""

    function: Callable[..., Any]
    options: dict[str, Any]

    @property
    def takes_residuals(self) -> bool:
        """Whether it needs the residuals, and not their sum of squares alone."""
        return self.function not in (lbfgs, bfgs)


ENDLESS = {"tolerance_grad": 0.0, "tolerance_change": 0.0}
"""Options by which a search goes on as long as a step goes down."""

METHODS = {
    "levenberg_marquardt": Method(
        levenberg_marquardt, {"scaled": False, "geodesic": True}
    ),
    "gauss_newton": Method(gauss_newton, {}),
    "natural_gradient": Method(natural_gradient, {}),
    "self_scaled_broyden": Method(bfgs, {"update": "ssbroyden", **ENDLESS}),
    "bfgs": Method(bfgs, {"update": "bfgs", **ENDLESS}),
    "lbfgs": Method(lbfgs, {"memory": 100, **ENDLESS}),
}
"""The methods by their names."""

TAKEN = {
    *("fn", "residual", "loss", "params", "steps", "jacobian", "metric", "model"),
    *("inverse", "on_step"),
}
"""Arguments of the functions that come from whoever takes the name."""


def check_options(method: str, options: Mapping[str, Any]) -> None:
    """See that there is such a method, with such options.

    Raises:
        ValueError: there is no such method.
        TypeError: the method has no such option.
    """
    if method not in METHODS:
        raise ValueError(
            f"there is no second-order method {method!r}; name one of "
            f"{', '.join(METHODS)}"
        )
    known = inspect.signature(METHODS[method].function).parameters.keys() - TAKEN
    if METHODS[method].function is bfgs:
        known -= {"update"}
    unknown = options.keys() - known
    if unknown:
        refuse_foreign_arguments(method, unknown)
        raise TypeError(
            f"the method {method} has no option {', '.join(sorted(unknown))}; use one "
            f"of {', '.join(sorted(known))}"
        )
