"""Batch rules of operators on images, whose tensors have a first axis of their own."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..calls import BatchCall, NoRule
from ..each_element import full
from ..shared import ops
from ..table import TABLE

IMAGES = (
    *(
        "conv2d",
        "conv3d",
        "depthwise_conv2d",
        "pool2d",
        "pool3d",
        "pool2d_grad",
        "pool3d_grad",
    ),
    *("max_pool2d_with_index", "max_pool2d_with_index_grad"),
    *("max_pool3d_with_index", "max_pool3d_with_index_grad"),
    *("group_norm", "instance_norm", "pixel_shuffle", "pixel_unshuffle"),
)
"""Operators whose tensors have a first axis of images of their own.

Weights, which have none, are those in the places of :data:`SHARED`.
"""

SHARED = {
    "conv2d": {1},
    "conv3d": {1},
    "depthwise_conv2d": {1},
    "group_norm": {1, 2},
    "instance_norm": {1, 2},
}


def _of_images(name: str) -> None:
    shared = SHARED.get(name, set())

    def rule(call: BatchCall) -> list[Any]:
        if not call.batched.isdisjoint(shared):
            if name in ("conv2d", "conv3d"):
                return _by_groups(call, name)
            raise NoRule("weights that differ from sample to sample; give one")
        args = []
        for i, arg in enumerate(call.args):
            if isinstance(arg, Tensor) and i not in shared:
                arg = full(call, i)
                arg = ops.reshape(arg, [-1, *arg.shape[2:]])
            args.append(arg)
        pairs = zip(TABLE[name].every(args), call.shapes, strict=True)
        return [ops.reshape(y, [call.size, *shape]) for y, shape in pairs]

    TABLE[name].batch = rule


for _name in IMAGES:
    _of_images(_name)


GRADIENTS = ("conv2d_grad", "conv3d_grad", "depthwise_conv2d_grad")


def _of_gradients(name: str) -> None:
    def rule(call: BatchCall) -> list[Any]:
        return _by_groups(call, name)

    TABLE[name].batch = rule


for _name in GRADIENTS:
    _of_gradients(_name)


def _by_groups(call: BatchCall, name: str) -> list[Any]:
    """Samples with weights of their own as groups of the channels."""
    if not str(call.args[-1]).startswith("NC"):
        raise NoRule("weights of each sample with channels last; put them first")
    args = [full(call, i) for i in range(len(call.args))]
    for i, arg in enumerate(args):
        if isinstance(arg, Tensor):
            args[i] = _in_rows(arg) if i == 1 else _in_channels(arg)
    args[TABLE[name].arguments.index("groups")] *= call.size
    found = TABLE[name].every(args)
    if not name.endswith("_grad"):
        return [_apart(found[0], call.size)]
    weights = ops.reshape(found[1], [call.size, *call.shapes[1]])
    return [_apart(found[0], call.size), weights]


def _in_rows(x: Tensor) -> Any:
    """[s, a, ...] as [s * a, ...]."""
    return ops.reshape(x, [-1, *x.shape[2:]])


def _in_channels(x: Tensor) -> Any:
    """[s, n, c, ...] as [n, s * c, ...]."""
    x = ops.transpose(x, [1, 0, *range(2, x.ndim)])
    return ops.reshape(x, [x.shape[0], -1, *x.shape[3:]])


def _apart(x: Tensor, size: int) -> Any:
    """[n, s * c, ...] as [s, n, c, ...]."""
    x = ops.reshape(x, [x.shape[0], size, -1, *x.shape[2:]])
    return ops.transpose(x, [1, 0, *range(2, x.ndim)])
