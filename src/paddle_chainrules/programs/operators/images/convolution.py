"""Convolutions: bilinear in the image and the filter, and so are their gradients."""

from __future__ import annotations

from typing import Any

from ..calls import Call
from ..entry import TABLE, define
from ..shared import ops

PLAIN = "strides paddings padding_algorithm"
CONVOLUTIONS = {
    "conv2d": f"{PLAIN} dilations groups data_format",
    "conv3d": f"{PLAIN} groups dilations data_format",
    "depthwise_conv2d": f"{PLAIN} groups dilations data_format",
    **dict.fromkeys(
        ("conv2d_transpose", "conv3d_transpose", "depthwise_conv2d_transpose"),
        "strides paddings output_padding output_size padding_algorithm groups "
        "dilations data_format",
    ),
}
"""With the arguments that say how, after the image and the filter."""

TUNING = {
    "use_addto": False,
    "workspace_size_MB": -1,
    "exhaustive_search": False,
    "fuse_relu": False,
}
"""What ``F.conv1d`` says to the depthwise kernel besides, which takes no notice."""


def _bilinear(name: str, how: str) -> None:
    """Have the kernel ``name_grad`` give the gradients, and theirs.

    The gradient by the image is linear in the result's cotangent and in the filter,
    that by the filter in the image and the result's cotangent. So with their cotangents
    in the places of image and filter the kernel gives the gradients of both at once.
    """
    extra = " ".join(TUNING) if name == "depthwise_conv2d" else ""
    count = len(how.split())
    defaults = TUNING if extra else None
    define(
        name, f"input filter {how} {extra}", differentiable=(0, 1), defaults=defaults
    )
    kernel = f"{name}_grad"
    define(kernel, f"input filter out_grad {how}", differentiable=(0, 1, 2))

    def reverse(call: Call) -> list[Any]:
        x, filter, *given = call.args
        found = getattr(ops, kernel)(x, filter, call.cotangent, *given[:count])
        return [*found, *(None for _ in given)]

    def reverse_twice(call: Call) -> list[Any]:
        x, filter, g, *given = call.args
        u, v = call.cotangents
        grads: list[Any] = [None, None, None]
        if not call.wanted.isdisjoint((0, 1)):
            by_x, by_filter = getattr(ops, kernel)(
                x if u is None else u, filter if v is None else v, g, *given
            )
            grads[0] = None if v is None else by_x
            grads[1] = None if u is None else by_filter
        if 2 in call.wanted:
            parts = [(u, filter)] if u is not None else []
            parts += [(x, v)] if v is not None else []
            terms = [getattr(ops, name)(*pair, *given) for pair in parts]
            grads[2] = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        return [*grads, *(None for _ in given)]

    TABLE[name].reverse = reverse
    TABLE[kernel].reverse = reverse_twice


for _name, _how in CONVOLUTIONS.items():
    _bilinear(_name, _how)
