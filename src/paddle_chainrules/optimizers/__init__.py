"""Optimizers as functions, in optax's conventions, with the results of Paddle.

``state = init(params)``; ``updates, state = update(grads, state, params)``; ``params =
apply_updates(params, updates)``. Learning rates are numbers, tensors or schedules.
"""

from typing import TYPE_CHECKING
from typing import Any as _Any

from . import schedules
from .adaptive import adam, adamax, adamw, lamb, nadam, radam
from .first_order import adadelta, adagrad, momentum, rmsprop, sgd
from .paddles import from_paddle, schedule_of, to_paddle
from .parts import (
    accumulate,
    add_decayed_weights,
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    ema,
    global_norm,
    scale,
    scale_by_schedule,
)
from .second_order.damped_steps import Fit
from .second_order.krylov_least_squares import gauss_newton
from .second_order.least_squares import levenberg_marquardt
from .second_order.metric_gradients import natural_gradient
from .second_order.quasi_newton import Minimum, bfgs, lbfgs
from .transformation import Optimizer, apply_updates, chain

__all__ = [
    "Fit",
    "Minimum",
    "Optimizer",
    "accumulate",
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "add_decayed_weights",
    "apply_updates",
    "bfgs",
    "chain",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "ema",
    "from_paddle",
    "gauss_newton",
    "global_norm",
    "lamb",
    "lbfgs",
    "levenberg_marquardt",
    "momentum",
    "nadam",
    "natural_gradient",
    "radam",
    "rmsprop",
    "scale",
    "scale_by_schedule",
    "schedule_of",
    "schedules",
    "sgd",
    "to_paddle",
]


if not TYPE_CHECKING:  # type checkers would take any name to be here

    def __getattr__(name: str) -> _Any:
        here = name.lower()
        hint = (
            f"here it is the function {here}" if here in __all__ else "__all__ has all"
        )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; {hint}")
