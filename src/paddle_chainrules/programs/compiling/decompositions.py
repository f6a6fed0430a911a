"""Operators decomposed into simpler ones for machine code: norms, softmax, losses.

Paddle's kernels of these operators go over memory several times, and end a region.
Their formulas consist of operators that have rules for machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.listener import not_listening
from ...paddle_side.process.random_state import private_dropout_seed
from ..codegen.fused_kernels.regions import may_be_part
from ..operators.calls import NoRule
from ..operators.images.channels_last import CHANNELS_LAST, FIRST
from ..sizes.any_size import infer_samples
from ..sizes.one_number import with_one_number
from ..sizes.samples import Samples
from ..tracing.common_subexpressions import CommonSubexpressions
from ..tracing.inside import trace_inside
from ..tracing.operations import Operation, Value, fresh_numbers, values_in, with_values

MAX_COMPARED_NUMBERS = 64
"""Constants of up to this many entries are compared with other constants."""


class Decomposition(NamedTuple):
    """The operators that replace an operator.

    Attributes:
        inputs: the values that stand for its inputs.
        constants: tensors that the formula makes from no input.
        optional_outputs: the values that stand for its outputs, None for unused ones.
    """

    inputs: Sequence[Value]
    constants: dict[Value, Tensor]
    ops: Sequence[Operation]
    optional_outputs: Sequence[Value | None]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The optional outputs that are not None."""
        return tuple(end for end in self.optional_outputs if end is not None)

    def inputs_read(self, op: Operation) -> list[Value]:
        """Return the inputs of the original operation that the operators read."""
        used = {v for inner_op in self.ops for v in inner_op.inputs}
        pairs = zip(_tensor_inputs(op), self.inputs, strict=True)
        return [value for value, formula_input in pairs if formula_input in used]

    def instantiate(
        self,
        op: Operation,
        fresh: Iterator[int],
        constants: dict[Value, Tensor],
        constant_by_content: dict[Any, Value],
    ) -> Iterator[Operation]:
        """Yield the operators on the values of an operation, and add their constants.

        Args:
            fresh: numbers for new values.
            constants: the program's constants, which grow.
            constant_by_content: the program's constants by :func:`_content_key`.
        """
        renamed = dict(zip(self.inputs, _tensor_inputs(op), strict=True))
        pairs = zip(self.optional_outputs, op.outputs, strict=True)
        renamed.update(
            (formula_output, out)
            for formula_output, out in pairs
            if formula_output is not None
        )

        def rename(value: Value) -> Value:
            if value not in renamed:
                size = value.shape, value.dtype, value.bytes
                renamed[value] = Value(next(fresh), *size)
            return renamed[value]

        for value, tensor in self.constants.items():
            renamed[value] = constant_by_content.setdefault(
                _content_key(tensor), rename(value)
            )
            constants.setdefault(renamed[value], tensor)
        for inner_op in self.ops:
            args = tuple(with_values(arg, rename) for arg in inner_op.args)
            outputs = tuple(map(rename, inner_op.outputs))
            yield replace(inner_op, args=args, outputs=outputs, where=op.where)


def _content_key(tensor: Tensor) -> Any:
    """Return a key that is the same for small tensors with the same contents."""
    if tensor.size > MAX_COMPARED_NUMBERS:
        return id(tensor)
    return tensor.dtype, *tensor.shape, tensor.numpy().tobytes()


def _tensor_inputs(op: Operation) -> list[Value]:
    """Return the distinct input tensors of an operation, without omitted ones."""
    return [v for v in dict.fromkeys(op.inputs) if v.dtype != "none"]


def may_decompose(ops: Iterable[Operation]) -> bool:
    """Tell whether some of the operators may be decomposed."""
    return any(map(_has_formula, ops))


def _has_formula(op: Operation) -> bool:
    """Tell whether machine code uses an operator's formula instead of its kernel."""
    entry = op.operator
    return entry.formula is not None and not (entry.keeps_kernel or entry.loop)


def _may_be_decomposed(op: Operation) -> bool:
    """Tell whether an operation may have a decomposition, by cheap checks."""
    name = op.operator.name
    if name in CHANNELS_LAST and not any(
        isinstance(arg, str) and arg in FIRST for arg in op.args
    ):
        return False
    return _has_formula(op)


Decompose = Callable[[Operation, tuple[bool, ...]], Decomposition | None]
"""A function that returns what replaces an operation, given which outputs are used.

It returns None where the operation stays.
"""

OpsAndConstants = tuple[list[Operation], dict[Value, Tensor]]
"""Operations, and the further constants that they need."""


def decompose_for_regions(
    ops: Sequence[Operation],
    live_ins: Iterable[Value],
    outputs: Iterable[Value],
    samples: Samples | None,
    has_products: bool,
) -> OpsAndConstants:
    """Decompose operations whose decomposition goes into regions of machine code.

    Args:
        live_ins: values defined before the operations.
        has_products: whether regions may contain matrix products.
    """

    def decompose_nested(
        ops: Sequence[Operation], live_ins: Iterable[Value], outputs: Iterable[Value]
    ) -> OpsAndConstants:
        return decompose_for_regions(ops, live_ins, outputs, None, has_products)

    def decompose(
        op: Operation, requested_outputs: tuple[bool, ...]
    ) -> Decomposition | None:
        return _decompose_for_region(
            op, requested_outputs, samples, decompose_nested, has_products
        )

    return _replace_operations(ops, live_ins, outputs, _may_be_decomposed, decompose)


def decompose_by_formulas(
    ops: Sequence[Operation],
    live_ins: Iterable[Value],
    outputs: Iterable[Value],
    lacks: Callable[[Operation], bool],
) -> OpsAndConstants:
    """Decompose operations that lack something into their formulas.

    Operations whose formula lacks it too stay.
    """

    def is_replaceable(op: Operation) -> bool:
        return op.operator.formula is not None and lacks(op)

    def replace_nested(
        ops: Sequence[Operation], live_ins: Iterable[Value], outputs: Iterable[Value]
    ) -> OpsAndConstants:
        return _replace_operations(ops, live_ins, outputs, is_replaceable, decompose)

    def decompose(
        op: Operation, requested_outputs: tuple[bool, ...]
    ) -> Decomposition | None:
        result = _trace_formula(op, requested_outputs, int, replace_nested)
        return None if result is None or any(map(lacks, result.ops)) else result

    return replace_nested(ops, live_ins, outputs)


def _replace_operations(
    ops: Sequence[Operation],
    live_ins: Iterable[Value],
    outputs: Iterable[Value],
    is_replaceable: Callable[[Operation], bool],
    decompose: Decompose,
) -> OpsAndConstants:
    """Replace the operations that have a decomposition, and drop dead ones."""
    cache: dict[Any, Decomposition | None] = {}
    live = {*outputs}
    live_ops: list[tuple[Operation, Decomposition | None]] = []
    for op in reversed(ops):
        if not op.operator.random and live.isdisjoint(op.outputs):
            continue
        decomposition = None
        if is_replaceable(op):
            requested_outputs = tuple(out in live for out in op.outputs)
            key = requested_outputs, _signature(op)
            if key not in cache:
                cache[key] = decompose(op, requested_outputs)
            decomposition = cache[key]
        live.update(
            op.inputs if decomposition is None else decomposition.inputs_read(op)
        )
        live_ops.append((op, decomposition))
    common, program_outputs = CommonSubexpressions(), {*outputs}
    fresh = fresh_numbers(live_ins, ops)
    constants: dict[Value, Tensor] = {}
    constant_by_content: dict[Any, Value] = {}
    results: list[Operation] = []
    for op, decomposition in reversed(live_ops):
        for new_op in (
            [op]
            if decomposition is None
            else decomposition.instantiate(op, fresh, constants, constant_by_content)
        ):
            canonical = common.canonical(new_op)
            # What a program gives is its own.
            if not program_outputs.isdisjoint(
                canonical.outputs
            ) or not common.is_duplicate(canonical):
                results.append(canonical)
    return results, constants


def _signature(op: Operation) -> Any:
    """Return a key that is the same for operations that decompose alike."""
    order = {v: i for i, v in enumerate(dict.fromkeys(op.inputs))}
    args = with_values(op.args, lambda v: (order[v], v.shape, v.dtype))
    return op.operator.name, repr(args)


def _decompose_for_region(
    op: Operation,
    requested_outputs: tuple[bool, ...],
    samples: Samples | None,
    replace_nested: Callable[..., OpsAndConstants],
    has_products: bool,
) -> Decomposition | None:
    """Return the decomposition for the requested outputs, if it fits in a region."""
    result = _trace_formula(
        op, requested_outputs, int if samples else None, replace_nested
    )
    if result is None or not all(
        may_be_part(inner_op, has_products) or inner_op.operator.random
        for inner_op in result.ops
    ):
        return None
    if samples is not None:
        varying, size = samples.varying, samples.size
        other_size = size + 1

        def resize(n: int) -> int:
            return n // size * other_size if n in varying else n

        retraced = _trace_formula(op, requested_outputs, resize, replace_nested)
        common_samples = retraced and infer_samples(
            result, size, retraced, other_size, known_varying=varying
        )
        if common_samples is None or common_samples.varying != varying:
            return None
    return result


def _zeros(value: Value, resize: Callable[[int], int]) -> Tensor:
    shape, dtype = [*map(resize, value.shape)], getattr(paddle, value.dtype)
    return paddle.zeros(shape, dtype)


def _trace_formula(
    op: Operation,
    requested_outputs: tuple[bool, ...],
    resize: Callable[[int], int] | None,
    replace_nested: Callable[..., OpsAndConstants],
) -> Decomposition | None:
    """Trace the formula of an operation.

    Args:
        requested_outputs: tells for each output whether it is used.
        resize: gives other sizes for the sizes of its inputs; None where they stay,
            whatever the number of samples.
        replace_nested: decomposes operations of the formula in turn.
    """
    is_resized = resize is not None
    resize = resize or int
    values = _tensor_inputs(op)
    formula = op.operator.formula
    assert formula is not None
    results: list[Any] = []

    def run_formula(tensors: list[Tensor]) -> list[Tensor]:
        tensor_by_value = dict(zip(values, tensors, strict=True))
        result = formula(*(with_values(arg, tensor_by_value.get) for arg in op.args))
        results.extend(result if isinstance(result, list | tuple) else [result])
        return [r for r in results if r is not None]

    try:
        with not_listening(), grad_mode(False):
            tensors = [_zeros(v, resize) for v in values]
        with grad_mode(False), private_dropout_seed():
            tracer, traced_outputs = trace_inside(run_formula, tensors)
    except (CaptureError, NoRule, RuntimeError, TypeError, ValueError):
        return None
    common = CommonSubexpressions()
    ops = []
    for inner_op in map(common.canonical, tracer.ops):
        if inner_op.operator.alias:
            common.alias[inner_op.outputs[0]] = inner_op.args[0]
        else:
            ops.append(inner_op)
    remaining = iter(common.alias.get(v, v) for v in traced_outputs)
    outputs = [next(remaining) if r is not None else None for r in results]
    count = len(op.outputs)
    outputs = [*outputs[:count], *[None] * (count - len(outputs))]
    outputs = [
        output if is_requested else None
        for output, is_requested in zip(outputs, requested_outputs, strict=True)
    ]
    computed = {v for inner_op in ops for v in inner_op.outputs}
    outputs = [
        output if output in computed else None for output in outputs
    ]  # no input as it is
    pairs = zip(outputs, op.outputs, strict=True)
    if any(out is not None and out.dtype != own.dtype for out, own in pairs):
        return None
    live_outputs = [output for output in outputs if output is not None]
    if len({*live_outputs}) < sum(requested_outputs):
        return None  # the same twice, or left out
    live_ins = (*tracer.inputs, *tracer.constants)
    ops, nested_constants = replace_nested(ops, live_ins, live_outputs)
    candidates = {**tracer.constants, **nested_constants}
    if is_resized:
        ops, candidates = with_one_number(ops, candidates, live_ins)
    used = {*values_in([inner_op.args for inner_op in ops])}
    constants = {v: t for v, t in candidates.items() if v in used}
    return Decomposition(tracer.inputs, constants, ops, outputs)
