"""Constants that are only one number, of any size.

A function may make a constant from no tensor, such as the first states of a recurrent
layer. It is as large as the batch of the call. Where it is one number, repeated, we
expand that number at each call to the size needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddle import Tensor

from ..operators.table import TABLE
from ..tracing.operations import Operation, Value, fresh_numbers


def with_one_number(
    ops: Sequence[Operation], constants: dict[Value, Tensor], live_ins: Iterable[Value]
) -> tuple[list[Operation], dict[Value, Tensor]]:
    """Replace each constant that is one number, repeated, by an expanded number.

    Args:
        live_ins: other values defined before the operations.
    """
    fresh = fresh_numbers((*live_ins, *constants), ops)
    results: dict[Value, Tensor] = {}
    expansions = []
    for value, tensor in constants.items():
        if not _is_one_number(tensor):
            results[value] = tensor
            continue
        shape = (1,) * len(value.shape)
        number = Value(next(fresh), shape, value.dtype, value.bytes // tensor.size)
        results[number] = tensor.flatten()[:1].reshape(shape)
        args = number, [*value.shape]
        expansions.append(Operation(TABLE["expand"], args, (value,), False, ""))
    return [*expansions, *ops], results


def _is_one_number(tensor: Tensor) -> bool:
    if tensor.size < 2 or tensor.is_complex():
        return False
    row = tensor.numpy().reshape(-1)
    return bool(row.tobytes() == row[:1].tobytes() * row.size)
