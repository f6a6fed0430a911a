"""The effects of part of a program on memory, step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..switch import wanted_blas
from ..tracing.operations import Operation, Value
from .elements.scalars import (
    COST,
    ElementBuilder,
    NotLowerable,
    Shape,
    emit_element,
    kept_dims,
)
from .extents import ZERO, ShapeEnv, SymInt
from .fusion import FusionGroup
from .ir_builder import TYPES, FunctionBuilder
from .iteration_domains import IterationDomain, of_nest, of_product
from .matrix_products.products import product, shared_batch, write_product
from .matrix_products.thin import thin, write_thin
from .nest import LoopNest, NestAccess, clear, shared_loop
from .views import VIEW_LOWERINGS, Buffer, BufferView, along, dense, is_dense, reshaped

Address = Callable[[BufferView], str]


@dataclass(frozen=True, eq=False)
class Stage:
    """One nest of loops, or one product.

    Attributes:
        reads: the memory that it reads.
        writes: the memory that it writes, all of it.
        over: for each memory that it writes, those that it reads at the same places and
            no others, and so may overwrite.
        write: writes its text.
        copy: the source and target, if all it does is copy.
        clears: whether it only writes zeros.
        may_leave: whether it may leave the function where an index is out of range.
        is_long: whether it stops where the flag is set.
        space: its places, some of which may be done at a time.
        shared: how many arithmetic operations it has, if threads may share its loops.
        prepare: writes the text that one thread runs before, if they do.
    """

    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    over: dict[Buffer, list[Buffer]]
    write: Callable[[FunctionBuilder, Address], None]
    copy: tuple[BufferView, BufferView] | None = None
    clears: bool = False
    may_bail_out: bool = False
    is_long: bool = False
    space: IterationDomain | None = None
    shared: SymInt | None = None
    prepare: Callable[[FunctionBuilder, Address], None] | None = None


class StageBuilder:
    """The steps of consecutive operations.

    Attributes:
        has_products: whether a library multiplies.
        inputs: values from elsewhere, in the order in which they are met.
        views: the place of each value that was met.
        found: the steps so far.
        ops: the operations so far.
    """

    def __init__(self, sizes: ShapeEnv, has_products: bool = True) -> None:
        self.sizes, self.has_products = sizes, has_products
        self.inputs: dict[Value, BufferView] = {}
        self.views: dict[Value, BufferView] = {}
        self.found: list[Stage] = []
        self.ops: list[Operation] = []

    def add(self, part: Operation | FusionGroup) -> None:
        """Add an operation, or a group of operations.

        Raises:
            NotLowerable: there is no rule for it. Nothing has changed then.
        """
        before = {**self.inputs}, {**self.views}, len(self.found)
        try:
            if isinstance(part, FusionGroup):
                self._group(part)
            else:
                self._operation(part)
        except NotLowerable:
            self.inputs, self.views = before[:2]
            del self.found[before[2] :]
            raise
        self.ops += part.ops if isinstance(part, FusionGroup) else [part]

    def view(self, value: Value) -> BufferView:
        """Return where a value lies."""
        if value not in self.views:
            if value.dtype not in TYPES:
                raise NotLowerable
            self.views[value] = self.inputs[value] = dense(value, self.sizes)
        return self.views[value]

    def is_whole(self, view: BufferView) -> bool:
        """Tell whether it is all of its memory, without gaps and in order."""
        whole = view.memory.extent == self.sizes.product(view.shape)
        return whole and not view.offset and is_dense(view, self.sizes)

    def placed(self, ends: Collection[Buffer]) -> dict[Buffer, BufferView]:
        """Return what is computed in its place within an end that would copy it.

        These copies are no steps any more, and steps that write zeros there come first.
        Where another step writes to the end, a copy remains a step, after it.
        """
        given = {view.memory for view in self.inputs.values()}
        made = {m for s in self.found if not (s.copy or s.clears) for m in s.writes}
        results: dict[Buffer, BufferView] = {}
        left = []
        for step in reversed(self.found):
            if step.copy is not None:
                source, to = step.copy
                is_own = source.memory not in (given | {*ends} | results.keys())
                is_end = to.memory in ends or to.memory in results
                is_first = to.memory not in made
                without_gaps = self.is_whole(source) and is_dense(to, self.sizes)
                as_large = self.sizes.product(source.shape) == self.sizes.product(
                    to.shape
                )
                if is_own and is_end and is_first and without_gaps and as_large:
                    results[source.memory] = to
                    continue
            left.append(step)
        there = results.keys() | {*ends}
        early = [step for step in left if step.clears and step.writes[0] in there]
        self.found = [*early, *(s for s in left[::-1] if s not in early)]
        return results

    def new(self, value: Value) -> BufferView:
        """Return memory of a value's own."""
        if value.dtype not in TYPES:
            raise NotLowerable
        self.views[value] = result = dense(value, self.sizes)
        return result

    def dense(self, value: Value) -> BufferView:
        """Return where a value lies without gaps."""
        view = self.view(value)
        return view if is_dense(view, self.sizes) else self.copied(view, _like(value))

    def copied(self, view: BufferView, to: Value) -> BufferView:
        """Copy the elements of a view into memory of a value's own."""
        self.copy(view, result := self.new(to))
        return result

    def duplicate(self, value: Value, to: Value) -> BufferView:
        """Return a copy that others may write into."""
        result = self.copied(self.view(value), to)
        # It stays a step, since what it copies is to stay as it is.
        self.found[-1] = replace(self.found[-1], copy=None)
        return result

    def copy(self, view: BufferView, to: BufferView) -> None:
        """Write the elements of a view into another one, to whose shape it expands."""
        if view.memory.dtype != to.memory.dtype:
            raise NotLowerable
        read = NestAccess(view, along(view, to.shape))
        write = NestAccess(to, along(to, to.shape))
        self._nest(to.shape, [read], [write], lambda given, text, lanes: given)
        self.found[-1] = replace(self.found[-1], copy=(view, to))

    def _operation(self, op: Operation) -> None:
        name = op.operator.name
        if name in VIEW_LOWERINGS and not (
            name in STAGE_LOWERINGS and len(op.inputs) > 1
        ):
            self._views(op)
        elif name == "matmul" and self.has_products:
            self._product(op)
        elif name in STAGE_LOWERINGS:
            STAGE_LOWERINGS[name](self, op)
        else:
            raise NotLowerable

    def _views(self, op: Operation) -> None:
        source = self.view(op.inputs[0])
        rule = VIEW_LOWERINGS[op.operator.name]
        try:
            made = rule(source, op, self.sizes)
        except NotLowerable:
            if is_dense(source, self.sizes):
                raise
            made = rule(self.copied(source, _like(op.inputs[0])), op, self.sizes)
        self.views.update(zip(op.outputs, made, strict=True))

    def _product(self, op: Operation) -> None:
        views = [self.view(value) for value in op.inputs]
        try:
            result = product(op, views, self.sizes)
        except NotLowerable:
            pairs = zip(op.inputs, views, strict=True)
            views = [self.copied(view, _like(v)) for v, view in pairs]
            result = product(op, views, self.sizes)
        out = self.new(op.outputs[0])
        to = out._replace(shape=result.shape, strides=self.sizes.strides(result.shape))
        sizes = self.sizes
        reads = result.x.view.memory, result.y.view.memory
        # No library is asked for by its name.
        small = thin(result, sizes) if wanted_blas() in ("on", "own") else None
        note = f"; {op!r}  {op.where}"

        def write(text: FunctionBuilder, address: Address) -> None:
            text.line(note)
            if not (small and write_thin(text, small, to, address)):
                write_product(text, result, to, sizes, address)

        space = of_product(result, to, note, sizes)
        step = Stage(reads, (out.memory,), {}, write, space=space)
        if shared_batch(result) is not None:
            step = replace(step, shared=sizes.product(space.shape))
        self.found.append(step)

    def _group(self, group: FusionGroup) -> None:
        shape = group.shape
        names = [*group.reads]
        reads = [
            NestAccess(view, along(view, shape))
            for view in (self._as_read(value, read) for value, read in names)
        ]
        writes = []
        for out in group.outputs:
            view = self.new(out)
            if out in group.reduced:
                op, attrs = group.reduced[out]
                writes.append(NestAccess(view, _reduced(view, op, shape), attrs))
            else:
                writes.append(NestAccess(view, along(view, shape)))

        def body(given: Sequence[str], text: FunctionBuilder, lanes: int) -> list[str]:
            known = dict(zip(names, given, strict=True))
            scalars = ElementBuilder(text.name("e"), text.number, lanes)
            for op in group.ops:
                out = op.outputs[0]
                scalars.lines.append(f"; {op!r}  {op.where}")
                known[out, out.shape] = emit_element(op, known.__getitem__, scalars)
            text.lines += scalars.lines
            return [known[out, out.shape] for out in group.outputs]

        work = sum(COST[op.operator.name] for op in group.ops)
        self._nest(shape, reads, writes, body, work)

    def _as_read(self, value: Value, shape: Shape) -> BufferView:
        view = self.view(value)
        return view if shape == view.shape else reshaped(view, shape, self.sizes)

    def _nest(
        self,
        shape: Shape,
        reads: Sequence[NestAccess],
        writes: Sequence[NestAccess],
        body: Callable[[Sequence[str], FunctionBuilder, int], Sequence[str]],
        each: int = 1,
    ) -> None:
        """Add a nest of loops.

        Args:
            each: about how many operations there are on an element.
        """
        sizes = self.sizes
        depth = shared_loop(shape, reads, writes, sizes)

        def nest(text: FunctionBuilder, address: Address) -> LoopNest:
            shared = depth if text.is_shared else None
            return LoopNest(text, shape, reads, writes, sizes, address, shared, each)

        def write(text: FunctionBuilder, address: Address) -> None:
            nest(text, address).write(lambda given, lanes: body(given, text, lanes))

        over = {
            each.view.memory: _same_places(each, reads)
            for each in writes
            if not each.reduction
        }
        given, made = (
            tuple(each.view.memory for each in part) for part in (reads, writes)
        )
        space = of_nest(shape, reads, writes, body, each)
        count = None if depth is None else sizes.product(shape).times(SymInt(each))
        step = Stage(given, made, over, write, space=space, shared=count)
        if any(each.reduction for each in writes):
            step = replace(step, prepare=lambda t, a: nest(t, a).prepare())
        self.found.append(step)

    def zeros(self, value: Value) -> BufferView:
        """Make a value of zeros."""
        view, sizes = self.new(value), self.sizes

        def write(text: FunctionBuilder, address: Address) -> None:
            clear(text, view, address(view), sizes)

        self.found.append(Stage((), (view.memory,), {}, write, clears=True))
        return view

    def copy_into(self, part: Value, to: BufferView) -> None:
        """Write a value into a part of another."""
        self.copy(self.view(part), to)


def _same_places(each: NestAccess, reads: Sequence[NestAccess]) -> list[Buffer]:
    """Return what is read where an access writes, at that time and nowhere else."""
    own = each.view
    alike = [
        r.strides == each.strides
        and (r.view.offset, r.view.memory.extent, r.view.memory.dtype)
        == (own.offset, own.memory.extent, own.memory.dtype)
        for r in reads
    ]
    others = {r.view.memory for r, same in zip(reads, alike, strict=True) if not same}
    every = dict.fromkeys(r.view.memory for r in reads)
    return [memory for memory in every if memory not in others]


def _like(value: Value) -> Value:
    return Value(value.number, value.shape, value.dtype, value.bytes)


def _reduced(view: BufferView, op: Operation, shape: Shape) -> tuple[SymInt, ...]:
    """Return the strides of a reduced view along the shape that it is made of."""
    kept, rest = kept_dims(op), iter(view.strides)
    if len(view.shape) == len(shape):  # what is gone is there as 1
        return tuple(s if k in kept else ZERO for k, s in enumerate(rest))
    return tuple(next(rest) if k in kept else ZERO for k in range(len(shape)))


STAGE_LOWERINGS: dict[str, Callable[[StageBuilder, Operation], None]] = {}
"""Rules of operators that write one part of their result after another."""


def written_as(*names: str) -> Callable[[Any], Any]:
    """Register the rule of these operators, given the steps so far, as a decorator."""

    def put(rule: Any) -> Any:
        STAGE_LOWERINGS.update(dict.fromkeys(names, rule))
        return rule

    return put


@written_as("copy")
def _copy_loop(steps: StageBuilder, op: Operation) -> None:
    steps.copied(steps.view(op.args[0]), op.outputs[0])


@written_as("concat")
def _concat_loop(steps: StageBuilder, op: Operation) -> None:
    parts, axis = op.args
    if type(axis) is not int:
        raise NotLowerable
    (out,) = op.outputs
    axis %= len(out.shape)
    whole = steps.new(out)
    starts: list[SymInt] = []
    for part in parts:
        place = whole.moved(axis, *starts)
        steps.copy_into(
            part, BufferView(whole.memory, place, part.shape, whole.strides)
        )
        starts.append(steps.sizes.of(part.shape[axis]))


@written_as("stack")
def _stack_loop(steps: StageBuilder, op: Operation) -> None:
    parts, axis = op.args
    (out,) = op.outputs
    axis %= len(out.shape)
    whole = steps.new(out)
    strides = whole.strides[:axis] + whole.strides[axis + 1 :]
    for k, part in enumerate(parts):
        place = whole.moved(axis, SymInt(k))
        steps.copy_into(part, BufferView(whole.memory, place, part.shape, strides))


@written_as("slice_grad")
def _slice_grad_loop(steps: StageBuilder, op: Operation) -> None:
    _, part, *_ = op.args
    whole = steps.zeros(op.outputs[0])
    like = Operation(op.operator, (op.args[0], *op.args[2:]), (part,), False, "")
    (place,) = VIEW_LOWERINGS["slice"](whole, like, steps.sizes)
    steps.copy_into(part, place)
