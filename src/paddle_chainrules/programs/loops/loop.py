"""Programs in which operations on elements are loops of machine code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import paddle

from ...paddle_side.interception import RAW
from ..operations import Operation, Value
from ..operators.entry import Operator
from .groups import Group, grouped
from .kernel import Kernel, kernel, spans
from .machine import machine_code
from .scalars import NoLoop

CPU = paddle.CPUPlace()

SHORT = 1024
"""Elements below which a sum alone is left to Paddle."""


class Loop(Operator):
    """An operator that is one loop over elements.

    Attributes:
        group: what it does.
        kernel: how.
        code: which does it.
    """

    def __init__(self, group: Group, kernel: Kernel) -> None:
        super().__init__("loop", "", run=_no_operator)
        self.group, self.kernel = group, kernel
        self.code: Callable[..., None] = _no_operator

    def lines(
        self,
        named: Callable[[Any, str], str],
        text: Callable[[Any], str],
        overwritten: Mapping[int, Value],
    ) -> Iterator[str]:
        """Of Python's, that run it.

        Args:
            named: a name for something.
            text: of a value.
            overwritten: by the place of an output, the input in whose memory it comes.
        """
        group, shape = self.group, self.group.shape
        full = next((v for v, _ in group.reads if v.shape == shape != ()), None)
        if full is None:
            sizes = [_size(group, i, text) for i, _ in enumerate(shape)]
        else:
            sizes = [f"n{i}" for i, _ in enumerate(shape)]
            yield f"{', '.join(sizes)}, = {text(full)}.shape"
        for k, out in enumerate(group.outputs):
            if k in overwritten:
                yield f"{text(out)} = {text(overwritten[k])}"
                continue
            dtype = named(getattr(paddle, out.dtype), out.dtype)
            rest = f"{dtype}, {named(CPU, 'cpu')}"
            if out not in group.sums and full is not None:
                call = named(RAW.empty_like, "empty_like")
                yield f"{text(out)} = {call}({text(full)}, {rest})"
                continue
            size = sizes
            if out in group.sums:
                dims = range(len(shape) - len(out.shape), len(shape))
                size = [sizes[i] if spans(shape, out.shape, i) else "1" for i in dims]
            call = named(RAW.empty, "empty")
            yield f"{text(out)} = {call}([{', '.join(size)}], {rest})"
        extents = (
            " * ".join(sizes[i] for i in dims) or "1" for dims in self.kernel.extents
        )
        tensors = (*(v for v, _ in group.reads), *group.outputs)
        given = [*extents, *(f"{text(v)}.data_ptr()" for v in tensors)]
        yield f"{named(self.code, 'loop')}({', '.join(given)})"


def _size(group: Group, i: int, text: Callable[[Any], str]) -> str:
    """Of a dimension of the results, by a tensor that goes along it."""
    for value, read in group.reads:
        if group.shape[i] != 1 and spans(group.shape, read, i):
            if read == value.shape:
                return f"{text(value)}.shape[{i - len(group.shape)}]"
            return f"max({text(value)}.shape)"  # a row or a column
    return "1"


def _no_operator(*_: Any) -> Any:
    raise NotImplementedError(
        "a loop runs within its program alone; call the program instead"
    )


def with_loops(
    ops: Sequence[Operation], given: Sequence[Value], outputs: Sequence[Value]
) -> list[Operation]:
    """The same operations, those on elements in loops where there are several.

    Args:
        given: values that are there before, which the caller keeps.

    Raises:
        ImportError: llvmlite is not installed.
    """
    found: dict[Operation, None] = {}  # in their order, each of them once
    loops: list[Loop] = []
    for part in grouped(ops, given, outputs):
        if isinstance(part, Operation):
            found[part] = None
            continue
        try:
            if len(part.ops) == 1 and not _is_long_sum(part):
                raise NoLoop
            loop = Loop(part, kernel(part))
        except NoLoop:
            found |= dict.fromkeys(part.ops)
            continue
        loops.append(loop)
        where = part.ops[-1].where
        found[Operation(loop, part.inputs, part.outputs, True, where)] = None
    for loop, code in zip(
        loops, machine_code([loop.kernel for loop in loops]), strict=True
    ):
        loop.code = code
    return [*found]


def _is_long_sum(group: Group) -> bool:
    return bool(group.sums) and math.prod(group.shape) >= SHORT
