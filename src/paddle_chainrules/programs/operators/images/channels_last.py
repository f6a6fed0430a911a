"""Images whose channels are last, as transposed images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..calls import NoRule
from ..entry import TABLE
from ..shared import ops
from .convolution import CONVOLUTIONS

FIRST = {"NHWC": "NCHW", "NDHWC": "NCDHW"}


def _register_channels_last(
    name: str, image_args: Sequence[int], image_outputs: Sequence[int] = (0,)
) -> None:
    """Give an operator a formula where channels are last.

    Args:
        image_args: positions of the arguments that are images.
        image_outputs: positions of the results that are images.
    """
    layout_index = TABLE[name].arguments.index("data_format")

    def formula(*args: Any) -> Any:
        layout = args[layout_index]
        if layout not in FIRST:
            raise NoRule(f"the layout {layout}; the operator itself has one")
        rank = args[image_args[0]].ndim  # Paddle names images of 3-D ones NHWC, too
        to_first, to_last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
        first_args = [
            ops.transpose(x, to_first) if k in image_args else x
            for k, x in enumerate(args)
        ]
        first_args[layout_index] = FIRST[layout]
        result = getattr(ops, name)(*first_args)
        outputs = [*result] if isinstance(result, list | tuple) else [result]
        outputs = [
            ops.transpose(y, to_last) if k in image_outputs else y
            for k, y in enumerate(outputs)
        ]
        return outputs[0] if len(outputs) == 1 else outputs

    TABLE[name].formula = formula


for _name in CONVOLUTIONS:
    _register_channels_last(_name, [0])
    _register_channels_last(f"{_name}_grad", [0, 2])

CHANNELS_LAST = frozenset(f"{n}{end}" for n in CONVOLUTIONS for end in ("", "_grad"))
"""Operators that have such a formula."""
