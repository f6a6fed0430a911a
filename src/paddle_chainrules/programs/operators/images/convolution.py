"""Convolutions: bilinear in the image and the filter, and so are their gradients."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..axes import Images, batched_arg
from ..calls import BatchCall, Call, NoRule
from ..entry import TABLE, define
from ..shared import ops

PADDING_ARGUMENTS = "strides paddings padding_algorithm"
CONVOLUTIONS = {
    "conv2d": f"{PADDING_ARGUMENTS} dilations groups data_format",
    "conv3d": f"{PADDING_ARGUMENTS} groups dilations data_format",
    "depthwise_conv2d": f"{PADDING_ARGUMENTS} groups dilations data_format",
    **dict.fromkeys(
        ("conv2d_transpose", "conv3d_transpose", "depthwise_conv2d_transpose"),
        "strides paddings output_padding output_size padding_algorithm groups "
        "dilations data_format",
    ),
}
"""Convolutions, with the arguments that follow the image and the filter."""

DEPTHWISE_DEFAULTS = {
    "use_addto": False,
    "workspace_size_MB": -1,
    "exhaustive_search": False,
    "fuse_relu": False,
}
"""Further arguments of ``F.conv1d`` to the depthwise kernel, which ignores them."""


class Grouped(Images):
    """Images whose weights may differ from sample to sample: groups of the channels.

    Args:
        shared: positions of the weights that stay the same for all samples where
            possible.
    """

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        if self.shared and call.batched.isdisjoint(self.shared):
            return super().batch(operator, call)
        if 1 in call.unused and 1 not in call.batched:  # no gradient by the filter
            return SHARED_FILTER.batch(operator, call)
        if not str(call.args[-1]).startswith("NC"):
            raise NoRule("weights of each sample with channels last; put them first")
        args = [batched_arg(call, i) for i in range(len(call.args))]
        for i, arg in enumerate(args):
            if isinstance(arg, Tensor):
                args[i] = (
                    _fold_samples_into_filters(arg)
                    if i == 1
                    else _fold_samples_into_channels(arg)
                )
        args[operator.arguments.index("groups")] *= call.size
        results = operator.bind(args)
        images = _unfold_samples(results[0], call.size)
        if len(results) == 1:
            return [images]
        return [images, ops.reshape(results[1], [call.size, *call.shapes[1]])]


SHARED_FILTER = Images(1)


def _fold_samples_into_filters(x: Tensor) -> Any:
    """Return [s, a, ...] as [s * a, ...]."""
    return ops.reshape(x, [-1, *x.shape[2:]])


def _fold_samples_into_channels(x: Tensor) -> Any:
    """Return [s, n, c, ...] as [n, s * c, ...]."""
    x = ops.transpose(x, [1, 0, *range(2, x.ndim)])
    return ops.reshape(x, [x.shape[0], -1, *x.shape[3:]])


def _unfold_samples(x: Tensor, size: int) -> Any:
    """Return [n, s * c, ...] as [s, n, c, ...]."""
    x = ops.reshape(x, [x.shape[0], size, -1, *x.shape[2:]])
    return ops.transpose(x, [1, 0, *range(2, x.ndim)])


def _define_convolution(name: str, attr_names: str) -> None:
    """Make the kernel ``name_grad`` give the gradients, and their own gradients.

    The gradient by the image is linear in the result's cotangent and in the filter. The
    gradient by the filter is linear in the image and the result's cotangent. So the
    kernel gives both second gradients at once, with cotangents in place of image and
    filter.
    """
    tuning_names = " ".join(DEPTHWISE_DEFAULTS) if name == "depthwise_conv2d" else ""
    num_attrs = len(attr_names.split())
    defaults = DEPTHWISE_DEFAULTS if tuning_names else None
    kernel = f"{name}_grad"
    define(
        name,
        f"input filter {attr_names} {tuning_names}",
        axes=SHARED_FILTER if name.startswith("depthwise") else Grouped(1),
        differentiable=(0, 1),
        defaults=defaults,
    )
    define(
        kernel,
        f"input filter out_grad {attr_names}",
        axes=Grouped(),
        differentiable=(0, 1, 2),
    )

    def reverse(call: Call) -> list[Any]:
        x, filter, *attrs = call.args
        kernel_grads = getattr(ops, kernel)(
            x, filter, call.cotangent, *attrs[:num_attrs]
        )
        return [*kernel_grads, *(None for _ in attrs)]

    def reverse_twice(call: Call) -> list[Any]:
        x, filter, g, *attrs = call.args
        u, v = call.cotangents
        grads: list[Any] = [None, None, None]
        if not call.wanted.isdisjoint((0, 1)):
            x_grad, filter_grad = getattr(ops, kernel)(
                x if u is None else u, filter if v is None else v, g, *attrs
            )
            grads[0] = None if v is None else x_grad
            grads[1] = None if u is None else filter_grad
        if 2 in call.wanted:
            operands = [(u, filter)] if u is not None else []
            operands += [(x, v)] if v is not None else []
            terms = [getattr(ops, name)(*pair, *attrs) for pair in operands]
            grads[2] = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        return [*grads, *(None for _ in attrs)]

    TABLE[name].reverse = reverse
    TABLE[kernel].reverse = reverse_twice


for _name, _attr_names in CONVOLUTIONS.items():
    _define_convolution(_name, _attr_names)
