"""Partition of a program's operations into regions. The rest stay Paddle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ....paddle_side.dtypes import FLOATS
from ...operators.table import TABLE
from ...sizes.samples import Samples
from ...tracing.operations import Operation, Value, fresh_numbers
from ..elements.scalars import OVER_COUNT, NotLowerable, kept_dims
from ..extents import ShapeEnv
from ..fusion import FusionGroup, fuse_operations, is_fusible
from ..images import patches  # noqa: F401  # with its rules
from ..images.convolution import CONVOLUTIONS
from ..images.pooling import POOLING
from ..lowering import STAGE_LOWERINGS, StageBuilder
from ..manipulation import indices, padding, rearranged  # noqa: F401  # likewise
from ..reductions import extremes, running, sorting  # noqa: F401  # likewise
from ..views import VIEW_LOWERINGS
from .region import Region

EXPANSIONS = {"linear": 2, "addmm": 2, "mean": 2, "mean_all": 2, "share": 1}
"""Operators that are several in a region, and how many."""

PRODUCTS = frozenset({"matmul", "linear", "addmm", *CONVOLUTIONS})
"""Operators whose products a library computes."""

SINGLE_REGIONS = frozenset({OVER_COUNT.name, *CONVOLUTIONS, *POOLING})
"""Operators that are each a region alone, if necessary."""


SLOW_VIEWS = frozenset({"flip"})
"""Views whose kernels take many times as long as a copy."""


def may_be_part(op: Operation, has_products: bool) -> bool:
    """Tell whether an operation may be in a region.

    Args:
        has_products: whether products may be.
    """
    name = op.operator.name
    if name in PRODUCTS:
        return has_products or is_fusible(op)
    return (
        name in VIEW_LOWERINGS
        or name in STAGE_LOWERINGS
        or name in EXPANSIONS
        or is_fusible(op)
    )


def may_have_regions(ops: Iterable[Operation]) -> bool:
    """Tell whether at least two operations may be in a region."""
    names = ((op.operator.name, op.operator.loop) for op in ops)
    return (
        sum(_count(n, loop is not None or n in STAGE_LOWERINGS) for n, loop in names)
        > 1
    )


def _count(name: str, has_rule: bool) -> int:
    return 2 if name in SINGLE_REGIONS else EXPANSIONS.get(name, has_rule)


def has_products_among(ops: Iterable[Operation]) -> bool:
    """Tell whether there are products that may be in regions."""
    return not PRODUCTS.isdisjoint(op.operator.name for op in ops)


def copied_views(
    ops: Sequence[Operation], inputs: Sequence[Value], outputs: Sequence[Value]
) -> tuple[tuple[Operation, ...], tuple[Value, ...]]:
    """Return the same operations and outputs, with copies of outputs that are views."""
    fresh = fresh_numbers(inputs, ops)
    views = {v for op in ops if op.operator.name in VIEW_LOWERINGS for v in op.outputs}
    copies: dict[Value, Operation] = {}
    for value in outputs:
        if value in views and value not in copies:
            copied = Value(next(fresh), value.shape, value.dtype, value.bytes)
            copies[value] = Operation(TABLE["copy"], (value,), (copied,), False, "")
    copied_outputs = (copies[v].outputs[0] if v in copies else v for v in outputs)
    return (*ops, *copies.values()), tuple(copied_outputs)


def with_regions(
    ops: Sequence[Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    samples: Samples | None,
    has_products: bool,
    min_operations: int = 2,
) -> list[Operation]:
    """Return the same operations, in regions where they have rules.

    Args:
        inputs: values from before, which the caller keeps alive.
        has_products: whether products may be in regions.
        min_operations: the number of kinds of operations that make a region.
    """
    shape_env = ShapeEnv(samples)
    fresh = fresh_numbers(inputs, ops)
    items = fuse_operations(
        [*_expand(ops, shape_env, fresh, has_products)], inputs, outputs
    )
    return _Regions(items, outputs, shape_env, has_products, min_operations).ops


def _expand(
    ops: Iterable[Operation],
    shape_env: ShapeEnv,
    fresh: Iterator[int],
    has_products: bool,
) -> Iterator[Operation]:
    """Expand composite operations into simple ones."""

    def like(value: Value) -> Value:
        return Value(next(fresh), value.shape, value.dtype, value.bytes)

    for op in ops:
        name, args = op.operator.name, op.args
        if name == "linear" and has_products:
            x, weight, bias = args
            yield from _expand_affine(op, x, weight, bias, like)
        elif name == "addmm" and has_products and args[3:] == (1.0, 1.0):
            yield from _expand_affine(op, args[1], args[2], args[0], like)
        elif name in ("mean", "mean_all") and op.outputs[0].dtype in FLOATS:
            x, axes, keepdim = args if name == "mean" else (*args, None, False)
            total_value = like(op.outputs[0])
            sum_args = x, axes, None, keepdim
            total = replace(
                op, operator=TABLE["sum"], args=sum_args, outputs=(total_value,)
            )
            kept_axes = kept_dims(total)
            count = shape_env.product(
                n for k, n in enumerate(x.shape) if k not in kept_axes
            )
            yield total
            yield replace(op, operator=OVER_COUNT, args=(total_value, count))
        elif name == "share" and op.outputs[0].dtype in FLOATS:
            x, shape = args
            yield replace(op, operator=OVER_COUNT, args=(x, shape_env.product(shape)))
        else:
            yield op


def _expand_affine(
    op: Operation, x: Value, weight: Value, bias: Any, like: Callable[[Value], Value]
) -> Iterator[Operation]:
    """Give a product, and the addition of the bias."""
    (out,) = op.outputs
    product = out if bias is None else like(out)
    args = x, weight, False, False
    yield replace(op, operator=TABLE["matmul"], args=args, outputs=(product,))
    if bias is not None:
        yield replace(op, operator=TABLE["add"], args=(product, bias))


def _ops_of(item: Operation | FusionGroup) -> tuple[Operation, ...]:
    return item.ops if isinstance(item, FusionGroup) else (item,)


class _Regions:
    """Operations and groups in order, with as many in one region as possible."""

    def __init__(
        self,
        items: Sequence[Operation | FusionGroup],
        outputs: Sequence[Value],
        shape_env: ShapeEnv,
        has_products: bool,
        min_operations: int,
    ) -> None:
        self._min_operations = min_operations
        self._scheduled: dict[Operation, None] = {}  # in their order, each of them once
        self._shape_env = shape_env
        self._users: Counter[Value] = Counter(outputs)
        """The number of later items, and outputs of the program, that read a value."""
        for item in items:
            self._users.update({*item.inputs})
        self._has_products = has_products
        self._builder = StageBuilder(shape_env, has_products)
        self._open_items: list[Operation | FusionGroup] = []
        self._open_values: set[Value] = set()
        """Values computed in the open region."""
        for item in items:
            try:
                self._builder.add(item)
            except NotLowerable:
                if self._open_values.isdisjoint(
                    item.inputs
                ):  # it waits for nothing here
                    self._scheduled.update(dict.fromkeys(_ops_of(item)))
                else:
                    self._close_region([item])
            else:
                self._open_values.update(v for op in _ops_of(item) for v in op.outputs)
                self._open_items.append(item)
        self._close_region([])
        self.ops = [*self._scheduled]

    def _close_region(self, outside: Sequence[Operation | FusionGroup]) -> None:
        """Close the open region; put some items after it, outside all regions."""
        builder, items = self._builder, self._open_items
        self._builder, self._open_items = (
            StageBuilder(self._shape_env, self._has_products),
            [],
        )
        self._open_values.clear()
        for item in items:
            self._users.subtract({*item.inputs})
        names = [
            op.operator.name
            for op in builder.ops
            if op.operator.name not in VIEW_LOWERINGS
        ]
        if len(names) >= self._min_operations or not SINGLE_REGIONS.isdisjoint(names):
            self._append_region(builder)
        else:
            outside = [*items, *outside]
        for item in outside:
            self._scheduled.update(dict.fromkeys(_ops_of(item)))

    def _append_region(self, builder: StageBuilder) -> None:
        """Append a region, then the views of its results that other items need."""
        needed = [
            v for v in builder.views if v not in builder.inputs and self._users[v] > 0
        ]
        producer = {v: op for op in builder.ops for v in op.outputs}
        for value in needed:
            if producer[value].operator.name in SLOW_VIEWS:
                builder.materialize(builder.views[value], value)
        buffer_uses = Counter(builder.views[v].buffer for v in needed)
        outputs: dict[Value, None] = {}
        following_views: set[Operation] = set()
        input_buffers = {view.buffer for view in builder.inputs.values()}
        for value in needed:
            view = builder.views[value]
            is_only_use = (
                view.buffer not in input_buffers and buffer_uses[view.buffer] == 1
            )
            if is_only_use and builder.covers_buffer(view):
                outputs[value] = None
                continue
            while value not in builder.inputs:
                op = producer[value]
                if builder.views[value].buffer.value is value:  # it is no view here
                    outputs[value] = None
                    break
                following_views.add(op)
                value = op.inputs[0]
        region = Region(builder, [*outputs], self._shape_env.samples)
        inputs, where = tuple(builder.inputs), builder.ops[-1].where
        self._scheduled[Operation(region, inputs, (*outputs,), True, where)] = None
        self._scheduled.update(
            (op, None) for op in builder.ops if op in following_views
        )
