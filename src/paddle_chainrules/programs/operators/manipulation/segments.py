"""Rows gathered and reduced by segment ids, or along edges."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ..calls import Call, NoRule
from ..entry import define, formula_of, reverse_of
from ..known_shapes import define_of_known_shape
from ..shared import ops, summed_to

define_of_known_shape("segment_pool", differentiable=(0,), fixed=(1,))
define("send_u_recv", differentiable=(0,), fixed=(1,))
define("send_ue_recv", differentiable=(0, 1), fixed=(1,))
define("send_uv", differentiable=(0, 1))


def _sent_back(message: Tensor, to: Tensor, out: Tensor, g: Tensor, how: str) -> Tensor:
    """Return the gradient of messages that were reduced where they went.

    Several extremes share it, as they must where the same message may be sent twice.

    Args:
        to: the row of ``out`` that receives each message.
        how: SUM, MEAN, MIN or MAX.
    """
    if how == "MEAN":
        ones = paddle.ones(to.shape, g.dtype)
        count = paddle.zeros(out.shape[:1], g.dtype)
        count = ops.put_along_axis(count, to, ones, 0, "add", True)
        count = ops.reshape(ops.gather(count, to, 0), _ahead(to, message))
        return ops.gather(g, to, 0) / count
    g = ops.gather(g, to, 0)
    if how == "SUM":
        return g
    chosen = ops.cast(message == ops.gather(out, to, 0), g.dtype)
    count = ops.gather_grad(out, to, chosen, 0)
    count = ops.gather(ops.clip(count, 1.0, float(len(to))), to, 0)
    return g / count * chosen


def _ahead(rows: Tensor, like: Tensor) -> list[int]:
    """Return a shape that broadcasts one value for each row."""
    return [*rows.shape, *[1] * (like.ndim - 1)]


def _received(message: Tensor, to: Tensor, how: str, rows: int) -> Any:
    """Return the sums or means of messages, and how many there were.

    Args:
        rows: how many rows may receive some.
    """
    if how not in ("SUM", "MEAN"):
        raise NoRule(
            "the largest of messages, where some receive none; use sums or means"
        )
    shape = [rows, *message.shape[1:]]
    total = ops.index_add(paddle.zeros(shape, message.dtype), to, message, 0)
    if how == "SUM":
        return total, None
    ones = paddle.ones(to.shape, message.dtype)
    count = ops.index_add(paddle.zeros([rows], message.dtype), to, ones, 0)
    count = ops.maximum(count, paddle.ones_like(count))
    return total / ops.reshape(count, _ahead(count, message)), None


def _segment_rows(x: Tensor, out_size: Any) -> int:
    size = out_size[0] if isinstance(out_size, list) and out_size else out_size
    if type(size) is not int:
        raise NoRule("a number of rows in a tensor; give an int")
    return size if size > 0 else int(x.shape[0])


@formula_of("send_u_recv")
def _send_u_recv_formula(
    x: Tensor, source: Tensor, to: Tensor, how: str, out_size: Any
) -> Any:
    return _received(ops.gather(x, source, 0), to, how, _segment_rows(x, out_size))


@formula_of("send_ue_recv")
def _send_ue_recv_formula(
    x: Tensor, y: Tensor, source: Tensor, to: Tensor, op: str, how: str, out_size: Any
) -> Any:
    mine = ops.gather(x, source, 0)
    message = mine + y if op == "ADD" else mine * y
    return _received(message, to, how, _segment_rows(x, out_size))


@reverse_of("segment_pool")
def _segment_pool_reverse(call: Call) -> list[Any]:
    x, to, attrs, _ = call.args
    result = _sent_back(x, to, call.out, call.cotangent, attrs)
    return [result, None, None, None]


@reverse_of("send_u_recv")
def _send_u_recv_reverse(call: Call) -> list[Any]:
    x, source, to, attrs, _ = call.args
    message = ops.gather(x, source, 0)
    part = _sent_back(message, to, call.out, call.cotangent, attrs)
    return [ops.gather_grad(x, source, part, 0), *[None] * 4]


@reverse_of("send_ue_recv")
def _send_ue_recv_reverse(call: Call) -> list[Any]:
    x, y, source, to, op, attrs, _ = call.args
    mine = ops.gather(x, source, 0)
    message = mine + y if op == "ADD" else mine * y
    part = _sent_back(message, to, call.out, call.cotangent, attrs)
    by_x = by_y = None
    if 0 in call.wanted:
        by_x = summed_to(part if op == "ADD" else part * y, mine)
        by_x = ops.gather_grad(x, source, by_x, 0)
    if 1 in call.wanted:
        by_y = summed_to(part if op == "ADD" else part * mine, y)
    return [by_x, by_y, *[None] * 5]


@formula_of("send_uv")
def _send_uv_formula(
    x: Tensor, y: Tensor, source: Tensor, to: Tensor, op: str
) -> Tensor:
    mine, theirs = ops.gather(x, source, 0), ops.gather(y, to, 0)
    return mine + theirs if op == "ADD" else mine * theirs
