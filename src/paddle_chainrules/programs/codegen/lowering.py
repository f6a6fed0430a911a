"""Lowering of a program's operations to stages: loop nests and products on buffers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from .iteration_domains import IterationDomain, nest_domain, product_domain
from .matrix_products.products import emit_product, product, shared_batch
from .nest import LoopNest, NestAccess, emit_clear, parallel_loop_depth
from .views import (
    VIEW_LOWERINGS,
    Buffer,
    BufferView,
    broadcast_strides,
    dense_view,
    is_dense,
    reshaped,
)

Address = Callable[[BufferView], str]


@dataclass(frozen=True, eq=False)
class Stage:
    """One loop nest, or one product.

    Attributes:
        reads: the buffers that it reads.
        writes: the buffers that it writes, all of them.
        may_overwrite: for each buffer that it writes, those that it reads at the same
            indices and no others, and so may overwrite.
        emit: emits its code.
        copy: the source and target, if all it does is copy.
        clears: whether it only writes zeros.
        may_bail_out: whether it may leave the function where an index is out of range.
        is_long: whether it polls the cancel flag.
        domain: its iteration domain, if it may run tile by tile.
        parallel_ops: its number of arithmetic operations, if threads may share it.
        emit_prologue: emits the code that one thread runs before, if they do.
    """

    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    may_overwrite: dict[Buffer, list[Buffer]]
    emit: Callable[[FunctionBuilder, Address], None]
    copy: tuple[BufferView, BufferView] | None = None
    clears: bool = False
    may_bail_out: bool = False
    is_long: bool = False
    domain: IterationDomain | None = None
    parallel_ops: SymInt | None = None
    emit_prologue: Callable[[FunctionBuilder, Address], None] | None = None


class StageBuilder:
    """Lowers consecutive operations to stages.

    Attributes:
        has_products: whether a library multiplies.
        inputs: the views of values from outside, in the order of their first use.
        views: the view of each value used so far.
        stages: the stages so far.
        ops: the operations so far.
    """

    def __init__(self, shape_env: ShapeEnv, has_products: bool = True) -> None:
        self.shape_env, self.has_products = shape_env, has_products
        self.inputs: dict[Value, BufferView] = {}
        self.views: dict[Value, BufferView] = {}
        self.stages: list[Stage] = []
        self.ops: list[Operation] = []

    def add(self, item: Operation | FusionGroup) -> None:
        """Add an operation, or a group of operations.

        Raises:
            NotLowerable: there is no rule for it. Nothing has changed then.
        """
        snapshot = {**self.inputs}, {**self.views}, len(self.stages)
        try:
            if isinstance(item, FusionGroup):
                self._lower_group(item)
            else:
                self._lower_operation(item)
        except NotLowerable:
            self.inputs, self.views = snapshot[:2]
            del self.stages[snapshot[2] :]
            raise
        self.ops += item.ops if isinstance(item, FusionGroup) else [item]

    def view(self, value: Value) -> BufferView:
        """Return the view of a value, an input if no stage computes it."""
        if value not in self.views:
            if value.dtype not in TYPES:
                raise NotLowerable
            self.views[value] = self.inputs[value] = dense_view(value, self.shape_env)
        return self.views[value]

    def covers_buffer(self, view: BufferView) -> bool:
        """Tell whether a view is all of its buffer, dense and in order."""
        is_full = view.buffer.extent == self.shape_env.product(view.shape)
        return is_full and not view.offset and is_dense(view, self.shape_env)

    def elide_copies(self, outputs: Collection[Buffer]) -> dict[Buffer, BufferView]:
        """Remove copies of intermediate results into outputs.

        Return the view of an output that each such buffer becomes. Stages that clear
        these outputs come first. A copy to an output that another stage writes stays.
        """
        input_buffers = {view.buffer for view in self.inputs.values()}
        written_buffers = {
            m for s in self.stages if not (s.copy or s.clears) for m in s.writes
        }
        aliases: dict[Buffer, BufferView] = {}
        remaining = []
        for stage in reversed(self.stages):
            if stage.copy is not None:
                source, target = stage.copy
                is_intermediate = source.buffer not in (
                    input_buffers | {*outputs} | aliases.keys()
                )
                is_output = target.buffer in outputs or target.buffer in aliases
                is_unwritten = target.buffer not in written_buffers
                are_dense = self.covers_buffer(source) and is_dense(
                    target, self.shape_env
                )
                same_size = self.shape_env.product(
                    source.shape
                ) == self.shape_env.product(target.shape)
                if (
                    is_intermediate
                    and is_output
                    and is_unwritten
                    and are_dense
                    and same_size
                ):
                    aliases[source.buffer] = target
                    continue
            remaining.append(stage)
        destinations = aliases.keys() | {*outputs}
        initial_clears = [
            stage
            for stage in remaining
            if stage.clears and stage.writes[0] in destinations
        ]
        self.stages = [
            *initial_clears,
            *(s for s in remaining[::-1] if s not in initial_clears),
        ]
        return aliases

    def allocate(self, value: Value) -> BufferView:
        """Allocate a dense buffer for a value."""
        if value.dtype not in TYPES:
            raise NotLowerable
        self.views[value] = result = dense_view(value, self.shape_env)
        return result

    def dense_view(self, value: Value) -> BufferView:
        """Return a dense view of a value, a copy if necessary."""
        view = self.view(value)
        return (
            view
            if is_dense(view, self.shape_env)
            else self.materialize(view, _clone_value(value))
        )

    def materialize(self, view: BufferView, value: Value) -> BufferView:
        """Copy a view into a buffer allocated for a value."""
        self.copy(view, result := self.allocate(value))
        return result

    def duplicate(self, value: Value, copy: Value) -> BufferView:
        """Return a copy that others may write into."""
        result = self.materialize(self.view(value), copy)
        # This copy must not be elided, since its source must not change.
        self.stages[-1] = replace(self.stages[-1], copy=None)
        return result

    def copy(self, view: BufferView, target: BufferView) -> None:
        """Add a copy of a view to another one, broadcast to its shape."""
        if view.buffer.dtype != target.buffer.dtype:
            raise NotLowerable
        read = NestAccess(view, broadcast_strides(view, target.shape))
        write = NestAccess(target, broadcast_strides(target, target.shape))
        self._add_nest(
            target.shape, [read], [write], lambda elements, ir, lanes: elements
        )
        self.stages[-1] = replace(self.stages[-1], copy=(view, target))

    def _lower_operation(self, op: Operation) -> None:
        name = op.operator.name
        if name in VIEW_LOWERINGS and not (
            name in STAGE_LOWERINGS and len(op.inputs) > 1
        ):
            self._lower_view(op)
        elif name == "matmul" and self.has_products:
            self._lower_matmul(op)
        elif name in STAGE_LOWERINGS:
            STAGE_LOWERINGS[name](self, op)
        else:
            raise NotLowerable

    def _lower_view(self, op: Operation) -> None:
        source = self.view(op.inputs[0])
        rule = VIEW_LOWERINGS[op.operator.name]
        try:
            results = rule(source, op, self.shape_env)
        except NotLowerable:
            if is_dense(source, self.shape_env):
                raise
            results = rule(
                self.materialize(source, _clone_value(op.inputs[0])), op, self.shape_env
            )
        self.views.update(zip(op.outputs, results, strict=True))

    def _lower_matmul(self, op: Operation) -> None:
        views = [self.view(value) for value in op.inputs]
        try:
            matmul = product(op, views, self.shape_env)
        except NotLowerable:
            pairs = zip(op.inputs, views, strict=True)
            views = [self.materialize(view, _clone_value(v)) for v, view in pairs]
            matmul = product(op, views, self.shape_env)
        out = self.allocate(op.outputs[0])
        matrices = out._replace(
            shape=matmul.shape, strides=self.shape_env.strides(matmul.shape)
        )
        shape_env = self.shape_env
        reads = matmul.x.view.buffer, matmul.y.view.buffer
        comment = f"; {op!r}  {op.where}"

        def emit(ir: FunctionBuilder, address: Address) -> None:
            ir.line(comment)
            emit_product(ir, matmul, matrices, shape_env, address)

        domain = product_domain(matmul, matrices, comment, shape_env)
        stage = Stage(reads, (out.buffer,), {}, emit, domain=domain)
        if shared_batch(matmul) is not None:
            stage = replace(stage, parallel_ops=shape_env.product(domain.shape))
        self.stages.append(stage)

    def _lower_group(self, group: FusionGroup) -> None:
        shape = group.shape
        group_reads = [*group.reads]
        reads = [
            NestAccess(view, broadcast_strides(view, shape))
            for view in (self._view_as(value, read) for value, read in group_reads)
        ]
        writes = []
        for out in group.outputs:
            view = self.allocate(out)
            if out in group.reductions:
                op, reduction = group.reductions[out]
                writes.append(
                    NestAccess(view, _reduced_strides(view, op, shape), reduction)
                )
            else:
                writes.append(NestAccess(view, broadcast_strides(view, shape)))

        def body(loaded: Sequence[str], ir: FunctionBuilder, lanes: int) -> list[str]:
            element_names = dict(zip(group_reads, loaded, strict=True))
            scalars = ElementBuilder(ir.fresh_name("e"), ir.size_value, lanes)
            for op in group.ops:
                out = op.outputs[0]
                scalars.lines.append(f"; {op!r}  {op.where}")
                element_names[out, out.shape] = emit_element(
                    op, element_names.__getitem__, scalars
                )
            ir.lines += scalars.lines
            return [element_names[out, out.shape] for out in group.outputs]

        work = sum(COST[op.operator.name] for op in group.ops)
        self._add_nest(shape, reads, writes, body, work)

    def _view_as(self, value: Value, shape: Shape) -> BufferView:
        view = self.view(value)
        return view if shape == view.shape else reshaped(view, shape, self.shape_env)

    def _add_nest(
        self,
        shape: Shape,
        reads: Sequence[NestAccess],
        writes: Sequence[NestAccess],
        body: Callable[[Sequence[str], FunctionBuilder, int], Sequence[str]],
        each: int = 1,
    ) -> None:
        """Add the stage of a loop nest.

        Args:
            each: about how many operations there are on an element.
        """
        shape_env = self.shape_env
        parallel_depth = parallel_loop_depth(shape, reads, writes, shape_env)

        def build_nest(ir: FunctionBuilder, address: Address) -> LoopNest:
            emitted_depth = parallel_depth if ir.is_parallel else None
            return LoopNest(
                ir, shape, reads, writes, shape_env, address, emitted_depth, each
            )

        def emit(ir: FunctionBuilder, address: Address) -> None:
            build_nest(ir, address).emit(lambda inputs, lanes: body(inputs, ir, lanes))

        overwritable = {
            each.view.buffer: _overwritable_reads(each, reads)
            for each in writes
            if not each.reduction
        }
        inputs, outputs = (
            tuple(each.view.buffer for each in accesses) for accesses in (reads, writes)
        )
        domain = nest_domain(shape, reads, writes, body, each)
        op_count = (
            None
            if parallel_depth is None
            else shape_env.product(shape).times(SymInt(each))
        )
        stage = Stage(
            inputs,
            outputs,
            overwritable,
            emit,
            domain=domain,
            parallel_ops=op_count,
        )
        if any(each.reduction for each in writes):
            stage = replace(
                stage, emit_prologue=lambda t, a: build_nest(t, a).emit_prologue()
            )
        self.stages.append(stage)

    def zeros(self, value: Value) -> BufferView:
        """Allocate a value, and add a stage that fills it with zeros."""
        view, shape_env = self.allocate(value), self.shape_env

        def emit(ir: FunctionBuilder, address: Address) -> None:
            emit_clear(ir, view, address(view), shape_env)

        self.stages.append(Stage((), (view.buffer,), {}, emit, clears=True))
        return view

    def copy_into(self, value: Value, target: BufferView) -> None:
        """Add a copy of a value into a view."""
        self.copy(self.view(value), target)


def _overwritable_reads(write: NestAccess, reads: Sequence[NestAccess]) -> list[Buffer]:
    """Return buffers that are read only at the indices where an access writes."""
    view = write.view
    same_layout = [
        r.strides == write.strides
        and (r.view.offset, r.view.buffer.extent, r.view.buffer.dtype)
        == (view.offset, view.buffer.extent, view.buffer.dtype)
        for r in reads
    ]
    conflicting = {
        r.view.buffer for r, same in zip(reads, same_layout, strict=True) if not same
    }
    read_buffers = dict.fromkeys(r.view.buffer for r in reads)
    return [buffer for buffer in read_buffers if buffer not in conflicting]


def _clone_value(value: Value) -> Value:
    return Value(value.number, value.shape, value.dtype, value.bytes)


def _reduced_strides(
    view: BufferView, op: Operation, shape: Shape
) -> tuple[SymInt, ...]:
    """Return a reduction's output strides along its input shape, 0 where it reduces."""
    kept_axes, strides = kept_dims(op), iter(view.strides)
    if len(view.shape) == len(shape):  # what is gone is there as 1
        return tuple(s if k in kept_axes else ZERO for k, s in enumerate(strides))
    return tuple(next(strides) if k in kept_axes else ZERO for k in range(len(shape)))


STAGE_LOWERINGS: dict[str, Callable[[StageBuilder, Operation], None]] = {}
"""Rules of operators that add stages, by the operator's name."""


def lowering_rule(*names: str) -> Callable[[Any], Any]:
    """Register a lowering rule of these operators, as a decorator."""

    def register(rule: Any) -> Any:
        STAGE_LOWERINGS.update(dict.fromkeys(names, rule))
        return rule

    return register


@lowering_rule("copy")
def _lower_copy(builder: StageBuilder, op: Operation) -> None:
    builder.materialize(builder.view(op.args[0]), op.outputs[0])


@lowering_rule("concat")
def _lower_concat(builder: StageBuilder, op: Operation) -> None:
    operands, axis = op.args
    if type(axis) is not int:
        raise NotLowerable
    (out,) = op.outputs
    axis %= len(out.shape)
    result = builder.allocate(out)
    starts: list[SymInt] = []
    for operand in operands:
        offset = result.offset_at(axis, *starts)
        builder.copy_into(
            operand, BufferView(result.buffer, offset, operand.shape, result.strides)
        )
        starts.append(builder.shape_env.extent(operand.shape[axis]))


@lowering_rule("stack")
def _lower_stack(builder: StageBuilder, op: Operation) -> None:
    operands, axis = op.args
    (out,) = op.outputs
    axis %= len(out.shape)
    result = builder.allocate(out)
    strides = result.strides[:axis] + result.strides[axis + 1 :]
    for k, operand in enumerate(operands):
        offset = result.offset_at(axis, SymInt(k))
        builder.copy_into(
            operand, BufferView(result.buffer, offset, operand.shape, strides)
        )


@lowering_rule("slice_grad")
def _lower_slice_grad(builder: StageBuilder, op: Operation) -> None:
    _, cotangent, *_ = op.args
    grad = builder.zeros(op.outputs[0])
    slice_op = Operation(
        op.operator, (op.args[0], *op.args[2:]), (cotangent,), False, ""
    )
    (sliced,) = VIEW_LOWERINGS["slice"](grad, slice_op, builder.shape_env)
    builder.copy_into(cotangent, sliced)
