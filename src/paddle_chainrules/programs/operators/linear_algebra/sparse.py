"""Products of a sparse matrix, given by its rows, with a dense one."""

from __future__ import annotations

from typing import Any

from ....paddle_side.sparse_products import PRODUCTS
from ..calls import BatchCall, Call, NoRule
from ..entry import TABLE, batch_of, define, reverse_of
from ..shared import ops

for _name, _kind in PRODUCTS.items():
    define(
        _name,
        "x y crows cols d",
        run=_kind.kernel,
        differentiable=(0, 1),
        structure=(2, 3),
        linear=(0, 1),
    )


def _reverse_rule(name: str) -> Any:
    def rule(call: Call) -> list[Any]:
        first, second, *pattern = call.args
        operands = first, second, call.cotangent
        grads: list[Any] = [None] * 5
        for k, (kernel, (i, j)) in enumerate(PRODUCTS[name].gradients_by):
            if k in call.wanted:
                grads[k] = TABLE[kernel].bind([operands[i], operands[j], *pattern])[0]
        return grads

    return rule


for _name in PRODUCTS:
    reverse_of(_name)(_reverse_rule(_name))


def _batch_rule(name: str) -> Any:
    """Return a rule that puts the dense matrices of all samples side by side."""

    def rule(call: BatchCall) -> list[Any]:
        values, dense, *pattern = call.args
        if call.batched != frozenset({1}):
            raise NoRule(
                "a sparse matrix of each sample; give one matrix that has the rows of "
                "all, and reduce the result by samples"
            )
        size, rows, width = dense.shape
        side_by_side = ops.reshape(
            ops.transpose(dense, [1, 0, 2]), [rows, size * width]
        )
        result = TABLE[name].bind([values, side_by_side, *pattern])[0]
        per_sample = ops.reshape(result, [result.shape[0], size, width])
        return [ops.transpose(per_sample, [1, 0, 2])]

    return rule


for _name in ("csr_product", "csr_adjoint"):
    batch_of(_name)(_batch_rule(_name))
