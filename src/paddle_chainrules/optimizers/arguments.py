"""Checks of the arguments of optimizers and schedules, when these are created.

The annotation of each argument says which check applies. So a wrong argument fails
where it is given, and not at the first step.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from paddle import Tensor

from ..paddle_side.arguments import is_flag, is_integer, is_number
from ..paddle_side.near_names import refuse_foreign_arguments
from .transformation import Optimizer

F = TypeVar("F", bound=Callable[..., Any])

HUGE = sys.float_info.max
MINIMUM = {"learning_rate": 0.0, "epsilon": 0.0, "weight_decay": 0.0, "steps": 0}
"""The least value of arguments with these names."""


def checked(function: F) -> F:
    """Decorate a function to check its arguments against their annotations.

    Raises:
        TypeError: from the function: an argument is of another kind.
        ValueError: from it: a number is NaN, or below the least.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            refuse_foreign_arguments(
                function.__name__, kwargs.keys() - signature.parameters
            )
            return function(*args, **kwargs)  # which says what is missing
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            if value is not parameter.default:
                result = _checked_number(function, name, value, parameter.annotation)
                bound.arguments[name] = result
        return function(*bound.args, **bound.kwargs)

    return call  # type: ignore[return-value]


def _checked_number(function: Any, name: str, value: Any, annotation: str) -> Any:
    """Return the value, an integer as a float where a float is expected."""
    kinds = [kind.strip() for kind in annotation.split("|")]
    kinds = ["Callable" if kind.startswith("Callable[") else kind for kind in kinds]
    rules = [RULES[kind] for kind in kinds if kind in RULES]
    if len(rules) < len(kinds):
        return value  # one of them may be anything
    if not any(rule(value) for rule, _ in rules):
        expected = ", or ".join(description for _, description in rules)
        raise TypeError(
            f"{name} of {function.__name__} must be {expected}, got "
            f"{_value_text(value)}; convert it, or leave it out where it has a default"
        )
    if is_number(value):
        minimum = MINIMUM.get(name, -math.inf)
        largest = sys.maxsize if "float" not in kinds and "int" in kinds else HUGE
        is_in_range = value == math.inf or abs(value) <= largest  # NaN is none
        if not is_in_range or value < minimum:
            bound = "" if minimum == -math.inf else f" from {minimum} on"
            raise ValueError(
                f"{name} of {function.__name__} must be a number{bound}, got {value}; "
                "change it"
            )
        if "int" not in kinds and is_integer(value):
            return float(value)
    return value


def _value_text(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"


def _is_rate(value: Any) -> bool:
    is_function = callable(value) and not isinstance(value, type)
    return isinstance(value, Tensor) or is_number(value) or is_function


def _all_pass(rule: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, (list, tuple, range, np.ndarray)) and all(map(rule, value))
    )


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "float": (is_number, "a number"),
    "int": (is_integer, "an integer"),
    "bool": (is_flag, "True or False"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "Callable": (callable, "a function"),
    "None": (lambda value: value is None, "None"),
    "Rate": (_is_rate, "a number, a tensor of one, or a function of the steps so far"),
    "Optimizer": (lambda value: isinstance(value, Optimizer), "an optimizer"),
    "Sequence[int]": (_all_pass(is_integer), "a list of integers"),
    "Sequence[float]": (_all_pass(is_number), "a list of numbers"),
}
"""A check and what it expects, for each name in an annotation."""
