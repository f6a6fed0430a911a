"""Convolutions: bilinear in the image and the filter, and so are their gradients."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..axes import FIRST, Axes, Images, full
from ..calls import BatchCall, Call, NoRule
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
"""Convolutions, with the arguments that follow the image and the filter."""

TUNING = {
    "use_addto": False,
    "workspace_size_MB": -1,
    "exhaustive_search": False,
    "fuse_relu": False,
}
"""Further arguments of ``F.conv1d`` to the depthwise kernel, which ignores them."""


class Grouped(Images):
    """Images whose weights may differ from sample to sample: groups of the channels.

    Args:
        places: positions of the weights that stay the same for all samples where
            possible.
    """

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        if self.shared and call.batched.isdisjoint(self.shared):
            return super().batch(operator, call)
        if 1 in call.unused and 1 not in call.batched:  # no gradient by the filter
            return OF_ONE_FILTER.batch(operator, call)
        if not str(call.args[-1]).startswith("NC"):
            raise NoRule("weights of each sample with channels last; put them first")
        args = [full(call, i) for i in range(len(call.args))]
        for i, arg in enumerate(args):
            if isinstance(arg, Tensor):
                args[i] = _in_rows(arg) if i == 1 else _in_channels(arg)
        args[operator.arguments.index("groups")] *= call.size
        results = operator.every(args)
        images = _of_samples(results[0], call.size)
        if len(results) == 1:
            return [images]
        return [images, ops.reshape(results[1], [call.size, *call.shapes[1]])]


OF_ONE_FILTER = Images(1)


def _in_rows(x: Tensor) -> Any:
    """Return [s, a, ...] as [s * a, ...]."""
    return ops.reshape(x, [-1, *x.shape[2:]])


def _in_channels(x: Tensor) -> Any:
    """Return [s, n, c, ...] as [n, s * c, ...]."""
    x = ops.transpose(x, [1, 0, *range(2, x.ndim)])
    return ops.reshape(x, [x.shape[0], -1, *x.shape[3:]])


def _of_samples(x: Tensor, size: int) -> Any:
    """Return [n, s * c, ...] as [s, n, c, ...]."""
    x = ops.reshape(x, [x.shape[0], size, -1, *x.shape[2:]])
    return ops.transpose(x, [1, 0, *range(2, x.ndim)])


def _bilinear(name: str, how: str) -> None:
    """Make the kernel ``name_grad`` give the gradients, and their own gradients.

    The gradient by the image is linear in the result's cotangent and in the filter. The
    gradient by the filter is linear in the image and the result's cotangent. So the
    kernel gives both second gradients at once, with cotangents in place of image and
    filter.
    """
    extra = " ".join(TUNING) if name == "depthwise_conv2d" else ""
    count = len(how.split())
    defaults = TUNING if extra else None
    kernel = f"{name}_grad"
    axes: Axes = Images(1)
    its: Axes = Grouped()
    if name.endswith("transpose"):
        axes = its = FIRST
    elif not name.startswith("depthwise"):
        axes = Grouped(1)
    define(
        name,
        f"input filter {how} {extra}",
        axes=axes,
        differentiable=(0, 1),
        defaults=defaults,
    )
    define(kernel, f"input filter out_grad {how}", axes=its, differentiable=(0, 1, 2))

    def reverse(call: Call) -> list[Any]:
        x, filter, *given = call.args
        results = getattr(ops, kernel)(x, filter, call.cotangent, *given[:count])
        return [*results, *(None for _ in given)]

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
