"""Answers of calls, and how two of them differ."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import optree
import paddle


class Answer(NamedTuple):
    """What a call gave: arrays, with None for what there is none of, or an error."""

    leaves: list[Any]
    structure: Any
    error: Exception | None = None
    drawn: float = 0.0
    """A number that was drawn afterwards."""

    def __repr__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return f"{self.leaves}"


def ask(call):
    """Call a function after a seed."""
    paddle.seed(5)
    try:
        leaves, structure = optree.tree_flatten(call(), none_is_leaf=True)
    except Exception as error:
        return Answer([], None, error)
    arrays = [x.numpy() if isinstance(x, paddle.Tensor) else x for x in leaves]
    return Answer(arrays, structure, None, float(paddle.rand([1])[0]))


def difference(one, other, *, types=True, rtol=1e-7, atol=1e-10, draws=True):
    """Say how answers differ; nothing where they differ by rounding alone.

    Args:
        types: whether errors must be of one type.
        draws: whether as many random numbers must have been drawn.
    """
    errors = [type(answer.error).__name__ for answer in (one, other)]
    if one.error is not None or other.error is not None:
        both = one.error is not None and other.error is not None
        same = both and (not types or errors[0] == errors[1])
        return "" if same else f"{one} and {other}"
    if one.structure != other.structure:
        return f"{one.structure} and {other.structure}"
    if draws and one.drawn != other.drawn:
        return "other numbers are drawn"
    for a, b in zip(one.leaves, other.leaves, strict=True):
        if (a is None) != (b is None):
            return f"{a} and {b}"
        if a is None:
            continue
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{a.shape} and {b.dtype}{b.shape}"
        with np.errstate(invalid="ignore"):
            if not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
                return f"{a} and {b}"
    return ""
