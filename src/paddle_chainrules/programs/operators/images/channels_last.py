"""Images whose channels are last, as transposed images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..calls import NoRule
from ..entry import TABLE
from ..shared import ops
from .convolution import CONVOLUTIONS

FIRST = {"NHWC": "NCHW", "NDHWC": "NCDHW"}


def _transposed(
    name: str, images: Sequence[int], results: Sequence[int] = (0,)
) -> None:
    """Give an operator a formula where channels are last.

    Args:
        images: positions of the arguments that are images.
        results: positions of the results that are images.
    """
    place = TABLE[name].arguments.index("data_format")

    def formula(*args: Any) -> Any:
        layout = args[place]
        if layout not in FIRST:
            raise NoRule(f"the layout {layout}; the operator itself has one")
        rank = len(layout)
        first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
        given = [
            ops.transpose(x, first) if k in images else x for k, x in enumerate(args)
        ]
        given[place] = FIRST[layout]
        outcomes = getattr(ops, name)(*given)
        made = [*outcomes] if isinstance(outcomes, list | tuple) else [outcomes]
        made = [
            ops.transpose(y, last) if k in results else y for k, y in enumerate(made)
        ]
        return made[0] if len(made) == 1 else made

    TABLE[name].formula = formula


for _name in CONVOLUTIONS:
    _transposed(_name, [0])
    _transposed(f"{_name}_grad", [0, 2])

CHANNELS_LAST = frozenset(f"{n}{end}" for n in CONVOLUTIONS for end in ("", "_grad"))
"""Operators that have such a formula."""
