"""Shapes that depend on values. No program has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .operations import values_in
from .reverse import TraceView


def check_shapes(tracer: TraceView, name: str, args: Sequence[Any]) -> None:
    """Refuse an operator that may give a view, where a tensor gives the shape.

    Raises:
        CaptureError: it is such an operator.
    """
    other_values = values_in(args[1:])
    if name == "Tensor._getitem_dygraph":
        if any(v.dtype == "bool" for v in other_values):
            tracer.fail(
                "an index by a mask has a shape that depends on values; use "
                "paddle.where"
            )
    elif other_values:
        tracer.fail(
            f"{name} is given a tensor that says a shape or an axis, which is part of "
            "a program; give Python's ints"
        )
