"""Rows gathered and reduced by segment ids, or along edges."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.rules.requested_gradients import differentiate_all
from ....paddle_side.rules.wrong_at_values import (
    TIES,
    are_edges_tied,
    are_sent_tied,
    is_pool_tied,
    refuse_where,
)
from ..calls import Call, NoRule
from ..entry import define, formula_of, reverse_of, tape_of
from ..known_shapes import define_of_known_shape
from ..shared import ops, summed_to

define_of_known_shape("segment_pool", differentiable=(0,), fixed=(1,))
define(
    "send_u_recv",
    differentiable=(0,),
    fixed=(1,),
    tape=refuse_where("send_u_recv", TIES, are_sent_tied),
)
define(
    "send_ue_recv",
    differentiable=(0, 1),
    fixed=(1,),
    tape=refuse_where(
        "send_ue_recv",
        TIES,
        are_edges_tied,
        otherwise=differentiate_all("send_ue_recv"),
    ),
)
define("send_uv", differentiable=(0, 1), tape=differentiate_all("send_uv"))


def _message_gradient(
    message: Tensor, target: Tensor, out: Tensor, g: Tensor, reduction: str
) -> Tensor:
    """Return the gradient of messages that were reduced into their target rows.

    Several extremes share it, as they must where the same message may be sent twice.

    Args:
        target: the row of ``out`` that receives each message.
        reduction: SUM, MEAN, MIN or MAX.
    """
    if reduction == "MEAN":
        ones = paddle.ones(target.shape, g.dtype)
        count = paddle.zeros(out.shape[:1], g.dtype)
        count = ops.put_along_axis(count, target, ones, 0, "add", True)
        count = ops.reshape(
            ops.gather(count, target, 0), _row_broadcast_shape(target, message)
        )
        return ops.gather(g, target, 0) / count
    g = ops.gather(g, target, 0)
    if reduction == "SUM":
        return g
    chosen = ops.cast(message == ops.gather(out, target, 0), g.dtype)
    count = ops.gather_grad(out, target, chosen, 0)
    count = ops.gather(ops.clip(count, 1.0, float(len(target))), target, 0)
    return g / count * chosen


def _row_broadcast_shape(row_values: Tensor, like: Tensor) -> list[int]:
    """Return a shape that broadcasts one value for each row."""
    return [*row_values.shape, *[1] * (like.ndim - 1)]


def _reduce_messages(message: Tensor, target: Tensor, reduction: str, rows: int) -> Any:
    """Return the sums or means of messages in each target row, and None.

    Args:
        rows: the number of target rows.
    """
    if reduction not in ("SUM", "MEAN"):
        raise NoRule(
            "the largest of messages, where some receive none; use sums or means"
        )
    shape = [rows, *message.shape[1:]]
    total = ops.index_add(paddle.zeros(shape, message.dtype), target, message, 0)
    if reduction == "SUM":
        return total, None
    ones = paddle.ones(target.shape, message.dtype)
    count = ops.index_add(paddle.zeros([rows], message.dtype), target, ones, 0)
    count = ops.maximum(count, paddle.ones_like(count))
    return total / ops.reshape(count, _row_broadcast_shape(count, message)), None


def _num_receivers(x: Tensor, out_size: Any) -> int:
    size = out_size[0] if isinstance(out_size, list) and out_size else out_size
    if type(size) is not int:
        raise NoRule("a number of rows in a tensor; give an int")
    return size if size > 0 else int(x.shape[0])


@formula_of("send_u_recv")
def _send_u_recv_formula(
    x: Tensor, source: Tensor, target: Tensor, reduction: str, out_size: Any
) -> Any:
    return _reduce_messages(
        ops.gather(x, source, 0), target, reduction, _num_receivers(x, out_size)
    )


@formula_of("send_ue_recv")
def _send_ue_recv_formula(
    x: Tensor,
    y: Tensor,
    source: Tensor,
    target: Tensor,
    op: str,
    reduction: str,
    out_size: Any,
) -> Any:
    sent = ops.gather(x, source, 0)
    message = sent + y if op == "ADD" else sent * y
    return _reduce_messages(message, target, reduction, _num_receivers(x, out_size))


@reverse_of("segment_pool")
def _segment_pool_reverse(call: Call) -> list[Any]:
    x, target, reduction, _ = call.args
    grad = _message_gradient(x, target, call.out, call.cotangent, reduction)
    return [grad, None, None, None]


@reverse_of("send_u_recv")
def _send_u_recv_reverse(call: Call) -> list[Any]:
    x, source, target, reduction, _ = call.args
    message = ops.gather(x, source, 0)
    message_grad = _message_gradient(
        message, target, call.out, call.cotangent, reduction
    )
    return [ops.gather_grad(x, source, message_grad, 0), *[None] * 4]


@reverse_of("send_ue_recv")
def _send_ue_recv_reverse(call: Call) -> list[Any]:
    x, y, source, target, op, reduction, _ = call.args
    sent = ops.gather(x, source, 0)
    message = sent + y if op == "ADD" else sent * y
    message_grad = _message_gradient(
        message, target, call.out, call.cotangent, reduction
    )
    x_grad = y_grad = None
    if 0 in call.wanted:
        x_grad = summed_to(message_grad if op == "ADD" else message_grad * y, sent)
        x_grad = ops.gather_grad(x, source, x_grad, 0)
    if 1 in call.wanted:
        y_grad = summed_to(message_grad if op == "ADD" else message_grad * sent, y)
    return [x_grad, y_grad, *[None] * 5]


@formula_of("send_uv")
def _send_uv_formula(
    x: Tensor, y: Tensor, source: Tensor, target: Tensor, op: str
) -> Tensor:
    source_rows, target_rows = ops.gather(x, source, 0), ops.gather(y, target, 0)
    return source_rows + target_rows if op == "ADD" else source_rows * target_rows


tape_of("segment_pool")(refuse_where("segment_pool", TIES, is_pool_tied))
