"""The loss of a tree of classes, along the path from its root to a leaf."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.rules.requested_gradients import differentiate_all
from ..entry import define, formula_of
from ..shared import ops

define(
    "hsigmoid_loss",
    "x label w bias path code num_classes is_sparse is_sparse_too",
    differentiable=(0, 2, 3),
    fixed=(1, 2),
    defaults={"is_sparse_too": False},
    tape=differentiate_all("hsigmoid_loss"),
)


@formula_of("hsigmoid_loss", keeps_kernel=True)
def _hsigmoid_loss_formula(
    x: Tensor,
    label: Tensor,
    w: Tensor,
    bias: Any,
    path: Any,
    code: Any,
    num_classes: int,
    is_sparse: bool,
    is_sparse_too: bool,
) -> Tensor:
    if path is None:
        path, code = _binary_tree_path(label, num_classes)
    is_on_path = path >= 0
    nodes = ops.where(is_on_path, path, paddle.zeros_like(path))
    rows = ops.embedding(nodes, w, -1, False)
    scores = ops.sum(rows * ops.unsqueeze(x, [1]), [2], None, False)
    if bias is not None:
        scores = scores + ops.squeeze(ops.embedding(nodes, bias, -1, False), [2])
    loss = ops.softplus(scores, 1.0, 80.0) - scores * ops.cast(code, x.dtype)
    loss = ops.where(is_on_path, loss, paddle.zeros_like(loss))
    return ops.sum(loss, [1], None, True)


def _binary_tree_path(label: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the nodes on the path to a class, and whether it turns right at each.

    After the last node come -1. Node n of the tree has the children 2n + 1 and 2n + 2.
    """
    depth = (2 * count - 1).bit_length() - 1
    halves = 2 ** paddle.arange(depth, dtype=label.dtype)
    leaf = ops.reshape(label, [-1, 1]) + count
    node_numbers = ops.floor_divide(leaf, halves)
    parents = ops.floor_divide(node_numbers, paddle.full_like(node_numbers, 2))
    return parents - 1, node_numbers - parents * 2
