"""Grouping of a program's operations into regions. The rest stay Paddle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...operators.table import TABLE
from ...sizes.samples import Samples
from ...tracing.operations import Operation, Value, fresh_numbers
from ..elements.scalars import FLOATS, OVER_COUNT, NotLowerable, kept_dims
from ..extents import ShapeEnv
from ..fusion import FusionGroup, grouped, may_loop
from ..images import patches  # noqa: F401  # with its rules
from ..images.convolution import CONVOLUTIONS
from ..images.pooling import POOLING
from ..lowering import STAGE_LOWERINGS, StageBuilder
from ..manipulation import indices, padding, rearranged  # noqa: F401  # likewise
from ..reductions import extremes, running, sorting  # noqa: F401  # likewise
from ..views import VIEW_LOWERINGS
from .region import Region

APART = {"linear": 2, "addmm": 2, "mean": 2, "mean_all": 2, "share": 1}
"""Operators that are several in a region, and how many."""

PRODUCTS = frozenset({"matmul", "linear", "addmm", *CONVOLUTIONS})
"""Operators whose products a library computes."""

ALONE = frozenset({OVER_COUNT.name, *CONVOLUTIONS, *POOLING})
"""Operators that are each a region alone, if necessary."""


SLOW = frozenset({"flip"})
"""Views whose kernels take many times as long as a copy."""


def may_be_part(op: Operation, has_products: bool) -> bool:
    """Tell whether an operation may be part of a region.

    Args:
        has_products: whether products may be.
    """
    name = op.operator.name
    if name in PRODUCTS:
        return has_products or may_loop(op)
    return (
        name in VIEW_LOWERINGS
        or name in STAGE_LOWERINGS
        or name in APART
        or may_loop(op)
    )


def may_have_regions(ops: Iterable[Operation]) -> bool:
    """Tell whether at least two operations may be part of a region."""
    names = ((op.operator.name, op.operator.loop) for op in ops)
    return (
        sum(_count(n, loop is not None or n in STAGE_LOWERINGS) for n, loop in names)
        > 1
    )


def _count(name: str, is_part: bool) -> int:
    return 2 if name in ALONE else APART.get(name, is_part)


def has_products_among(ops: Iterable[Operation]) -> bool:
    """Tell whether there are products that may be part of regions."""
    return not PRODUCTS.isdisjoint(op.operator.name for op in ops)


def copied_views(
    ops: Sequence[Operation], given: Sequence[Value], outputs: Sequence[Value]
) -> tuple[tuple[Operation, ...], tuple[Value, ...]]:
    """Return the same operations and outputs, with copies in place of views."""
    fresh = fresh_numbers(given, ops)
    views = {v for op in ops if op.operator.name in VIEW_LOWERINGS for v in op.outputs}
    more: dict[Value, Operation] = {}
    for value in outputs:
        if value in views and value not in more:
            made = Value(next(fresh), value.shape, value.dtype, value.bytes)
            more[value] = Operation(TABLE["copy"], (value,), (made,), False, "")
    ends = (more[v].outputs[0] if v in more else v for v in outputs)
    return (*ops, *more.values()), tuple(ends)


def with_regions(
    ops: Sequence[Operation],
    given: Sequence[Value],
    outputs: Sequence[Value],
    samples: Samples | None,
    has_products: bool,
    least: int = 2,
) -> list[Operation]:
    """Return the same operations, in regions where they have rules.

    Args:
        given: values that exist before and that the caller keeps.
        has_products: whether products may be part of regions.
        least: the number of kinds of operations that make a region.
    """
    shape_env = ShapeEnv(samples)
    fresh = fresh_numbers(given, ops)
    parts = grouped([*_apart(ops, shape_env, fresh, has_products)], given, outputs)
    return _Regions(parts, outputs, shape_env, has_products, least).found


def _apart(
    ops: Iterable[Operation],
    shape_env: ShapeEnv,
    fresh: Iterator[int],
    has_products: bool,
) -> Iterator[Operation]:
    """Give operations that do one thing each."""

    def like(value: Value) -> Value:
        return Value(next(fresh), value.shape, value.dtype, value.bytes)

    for op in ops:
        name, args = op.operator.name, op.args
        if name == "linear" and has_products:
            x, weight, bias = args
            yield from _affine(op, x, weight, bias, like)
        elif name == "addmm" and has_products and args[3:] == (1.0, 1.0):
            yield from _affine(op, args[1], args[2], args[0], like)
        elif name in ("mean", "mean_all") and op.outputs[0].dtype in FLOATS:
            x, axes, keepdim = args if name == "mean" else (*args, None, False)
            made = like(op.outputs[0])
            given = x, axes, None, keepdim
            total = replace(op, operator=TABLE["sum"], args=given, outputs=(made,))
            kept = kept_dims(total)
            count = shape_env.product(n for k, n in enumerate(x.shape) if k not in kept)
            yield total
            yield replace(op, operator=OVER_COUNT, args=(made, count))
        elif name == "share" and op.outputs[0].dtype in FLOATS:
            x, shape = args
            yield replace(op, operator=OVER_COUNT, args=(x, shape_env.product(shape)))
        else:
            yield op


def _affine(
    op: Operation, x: Value, weight: Value, bias: Any, like: Callable[[Value], Value]
) -> Iterator[Operation]:
    """Give a product, and the addition of the bias."""
    (out,) = op.outputs
    made = out if bias is None else like(out)
    args = x, weight, False, False
    yield replace(op, operator=TABLE["matmul"], args=args, outputs=(made,))
    if bias is not None:
        yield replace(op, operator=TABLE["add"], args=(made, bias))


def _ops_of(part: Operation | FusionGroup) -> tuple[Operation, ...]:
    return part.ops if isinstance(part, FusionGroup) else (part,)


class _Regions:
    """Parts of a program in order, with as many in one region as possible."""

    def __init__(
        self,
        parts: Sequence[Operation | FusionGroup],
        outputs: Sequence[Value],
        shape_env: ShapeEnv,
        has_products: bool,
        least: int,
    ) -> None:
        self._least = least
        self._found: dict[Operation, None] = {}  # in their order, each of them once
        self._shape_env = shape_env
        self._users: Counter[Value] = Counter(outputs)
        """The number of later parts, and outputs of the program, that read a value."""
        for part in parts:
            self._users.update({*part.inputs})
        self._has_products = has_products
        self._steps = StageBuilder(shape_env, has_products)
        self._parts: list[Operation | FusionGroup] = []
        self._made: set[Value] = set()
        """Values made by the parts of the open region."""
        for part in parts:
            try:
                self._steps.add(part)
            except NotLowerable:
                if self._made.isdisjoint(part.inputs):  # it waits for nothing here
                    self._found.update(dict.fromkeys(_ops_of(part)))
                else:
                    self._end([part])
            else:
                self._made.update(v for op in _ops_of(part) for v in op.outputs)
                self._parts.append(part)
        self._end([])
        self.found = [*self._found]

    def _end(self, after: Sequence[Operation | FusionGroup]) -> None:
        """Close a region. The next parts are in none."""
        steps, parts = self._steps, self._parts
        self._steps, self._parts = StageBuilder(self._shape_env, self._has_products), []
        self._made.clear()
        for part in parts:
            self._users.subtract({*part.inputs})
        names = [
            op.operator.name
            for op in steps.ops
            if op.operator.name not in VIEW_LOWERINGS
        ]
        if len(names) >= self._least or not ALONE.isdisjoint(names):
            self._put(steps)
        else:
            after = [*parts, *after]
        for part in after:
            self._found.update(dict.fromkeys(_ops_of(part)))

    def _put(self, builder: StageBuilder) -> None:
        """Append a region, then the views of its results that other parts need."""
        needed = [
            v for v in builder.views if v not in builder.inputs and self._users[v] > 0
        ]
        by = {v: op for op in builder.ops for v in op.outputs}
        for value in needed:
            if by[value].operator.name in SLOW:
                builder.materialize(builder.views[value], value)
        alone = Counter(builder.views[v].buffer for v in needed)
        outputs: dict[Value, None] = {}
        after: set[Operation] = set()
        given = {view.buffer for view in builder.inputs.values()}
        for value in needed:
            view = builder.views[value]
            is_own = view.buffer not in given and alone[view.buffer] == 1
            if is_own and builder.covers_buffer(view):
                outputs[value] = None
                continue
            while value not in builder.inputs:
                op = by[value]
                if builder.views[value].buffer.value is value:  # it is no view here
                    outputs[value] = None
                    break
                after.add(op)
                value = op.inputs[0]
        region = Region(builder, [*outputs], self._shape_env.samples)
        inputs, where = tuple(builder.inputs), builder.ops[-1].where
        self._found[Operation(region, inputs, (*outputs,), True, where)] = None
        self._found.update((op, None) for op in builder.ops if op in after)
