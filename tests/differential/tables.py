"""The tables by name, and how a case of each is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import calls, functions, layers
from .inputs import arrays_of
from .verdicts import Verdict, of_function, of_layer

Begin = Callable[[str], Any]


class Table(NamedTuple):
    """Cases by name, and what judges one by its name."""

    cases: Mapping[str, Any]
    judge: Callable[[str, Begin], list[Verdict]]


def _function(name: str, begin: Begin) -> list[Verdict]:
    case = functions.TABLE[name]
    return of_function(name, case.function, arrays_of(name, case.inputs), begin)


def _layer(name: str, begin: Begin) -> list[Verdict]:
    case = layers.TABLE[name]
    return of_layer(name, case, arrays_of(name, case.inputs), begin)


TABLES = {
    "functions": Table(functions.TABLE, _function),
    "layers": Table(layers.TABLE, _layer),
}
CALLED = {
    "calls of functions": Table(functions.TABLE, calls.of_function),
    "calls of layers": Table(layers.TABLE, calls.of_layer),
}
"""The same, called many times."""
