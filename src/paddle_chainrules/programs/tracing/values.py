"""The tensors of a function that is traced, and the values that they stand for."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.dtypes import dtype_name, facts_of, is_differentiable
from ...paddle_side.flags import Noted
from ...paddle_side.listener import keeps_operators_whole, not_listening
from ...paddle_side.shared_memory import share_memory
from ...settings import loops_are_on
from ..operators.table import TABLE
from .arguments import values_for_tensors
from .constant_views import ConstantViews
from .existing import is_usable_from_outside
from .memory import AliasMap
from .operations import Operation, Value
from .where import where_called
from .within import enclosing_layer, passive_listening


class ValueTable:
    """The tensors that a traced function has used, and the values they stand for.

    Class attributes:
        is_reused: whether the trace becomes a program, which serves other values.

    Args:
        inputs: tensors that come with a call.
        outer: the tracer of the enclosing call.
        is_unlikely: whether the function is not meant to run at these values, as that
            of a branch that was not chosen. Where an operator fails, we take its result
            at other values, since only shapes and dtypes matter.

    Attributes:
        takes_gradients: whether ``paddle.grad`` itself was called.
        draws: whether random numbers were drawn.
        writes: whether something was written in place.
        differentiates, by_series: whether derivatives, and Taylor series, were taken.
        by_samples: whether a function of one sample ran for many.
        dummies: tensors that derivatives are taken by, unknown to the function.
        formulas: by operation, its :class:`.reverse.Formula`, which gradients share.
        flags: the flags of tensors where the function has set them.
        location: file and line of the user's code that calls operators; None to look
            each up.
    """

    is_reused = True
    is_passive = False

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outer: ValueTable | None = None,
        is_unlikely: bool = False,
    ) -> None:
        self.outer = outer
        self._enclosing_layer: passive_listening | None = enclosing_layer()
        if self._enclosing_layer is None and outer is not None:
            self._enclosing_layer = outer._enclosing_layer
        is_outer_unlikely = outer is not None and outer._is_unlikely
        self._is_unlikely: bool = is_unlikely or is_outer_unlikely
        self.ops: list[Operation] = []
        self.constants: dict[Value, Tensor] = {}
        self.failure: CaptureError | None = None
        self.takes_gradients = self.draws = self.writes = False
        self.differentiates = self.by_series = self.by_samples = False
        self.location: str | None = None
        self._tensors: list[Any] = []
        self._all_values: list[Value] = []
        self._value_by_id: dict[int, Value] = {}
        self._requires: list[bool] = []
        self._requires_grad: list[bool] = []
        self.taped: list[bool] = []
        self._producer_indices: dict[Value, int] = {}
        self._indexed_op_count = 0
        self._own_constants: dict[int, Tensor] = {}
        self._constant_views = ConstantViews()
        self._stale_views: dict[int, Tensor] = {}
        self._leaves: dict[Value, weakref.ref[Any]] = {}
        self._constant_by_content: dict[Any, Value] = {}
        self._flag_twin: dict[Value, Value] = {}
        self.formulas: dict[Operation, Any] = {}
        self.flags: Noted = {}
        self._versions: list[tuple[Tensor, int]] = []
        self._may_decompose = loops_are_on() and not keeps_operators_whole()
        self.memory = AliasMap()
        self.dummies: list[Tensor] = [] if outer is None else outer.dummies
        self.inputs = tuple(map(self._new_value, inputs))

    def add_inputs(self, inputs: Sequence[Any]) -> None:
        """Add more inputs: the tensors among them."""
        self.inputs += tuple(
            self._new_value(x) for x in inputs if isinstance(x, Tensor)
        )

    # Tensors and values.

    def _new_value(self, tensor: Any, may_be_omitted: bool = False) -> Value:
        is_tensor = is_initialized = isinstance(tensor, Tensor)
        if (
            is_initialized and not tensor._is_initialized()
        ):  # empty, or left out by an operator
            is_initialized = 0 in tensor.shape and not (
                may_be_omitted and tensor.shape == [0]
            )
        requires_grad = is_tensor and not tensor.stop_gradient
        number = len(self._tensors)
        if is_initialized:
            shape, facts = tuple(tensor.shape), facts_of(tensor)
            size = math.prod(shape) * facts.bytes
            value = Value(number, shape, facts.name, size)
            self._requires.append(requires_grad and facts.is_differentiable)
        else:
            value = Value(number, (), "none", 0)
            self._requires.append(False)
        self._all_values.append(value)
        self._tensors.append(tensor)
        self._requires_grad.append(requires_grad)
        if is_tensor:
            self._value_by_id[id(tensor)] = value
            self.memory.add(tensor)
        return value

    def value_of(self, tensor: Tensor) -> Value:
        """Return the value of a tensor; a new constant where it has none yet."""
        value = self._value_by_id.get(id(tensor))
        if value is None:
            if self._enclosing_layer is not None:
                self._enclosing_layer.check("", [tensor])
            if id(tensor) in self._stale_views:
                self.fail(
                    "a tensor is used that shares memory with one that was written "
                    "into; take it from that one, after the write"
                )
            if not (
                tensor.stop_gradient or tensor.is_leaf or self._is_from_outside(tensor)
            ):
                self.fail(
                    "a tensor is used that was computed from others by no operator "
                    "that programs know, before the call perhaps: write it in "
                    "tensor operations, or give it as an argument"
                )
            value = self._constant_of(tensor)
            self._versions.append((tensor, tensor._inplace_version()))
        elif (
            tensor.stop_gradient == self._requires_grad[value.number]  # it was changed
            and is_differentiable(tensor)
        ):
            value = self._value_by_id[id(tensor)] = self._with_changed_flag(
                value, tensor
            )
        return value

    def _is_from_outside(self, tensor: Tensor) -> bool:
        if (outer := self.outer) is not None:
            return outer.knows(tensor) or outer._is_from_outside(tensor)
        own_values = (v for v in self._all_values if v in self.inputs or self.is_own(v))
        return is_usable_from_outside(tensor, map(self.tensor, own_values))

    def _constant_of(self, tensor: Tensor) -> Value:
        """Return a constant. Small ones that the function creates share equal ones."""
        key = None
        if id(tensor) in self._own_constants and tensor.stop_gradient:
            shape = tuple(tensor.shape)
            if math.prod(shape) <= _MAX_COMPARED_ELEMENTS and tensor._is_initialized():
                key = dtype_name(tensor.dtype), shape, tensor.numpy().tobytes()
        if key in self._constant_by_content:
            value = self._value_by_id[id(tensor)] = self._constant_by_content[key]
            self.memory.add(tensor)
            return value
        value = self._new_value(tensor)
        self.constants[value] = tensor
        if key is not None:
            self._constant_by_content[key] = value
        return value

    def _with_changed_flag(self, value: Value, tensor: Tensor) -> Value:
        """Return a new value with the same contents, for a changed gradient flag."""
        self.tensor(value)  # apart from this one, as it was
        requires = not tensor.stop_gradient
        if value in self._flag_twin:
            return self._flag_twin[value]
        if requires and not (tensor.is_leaf or self._is_from_outside(tensor)):
            self.fail(
                "a tensor has the gradient of something that no operator shows: write "
                "it in tensor operations"
            )
        result = self._new_value(tensor)
        if requires and value in self.constants and not self.is_own(value):
            self.constants[result] = tensor
        else:
            operator, location = TABLE["Tensor.detach"], where_called()
            self.ops.append(Operation(operator, (value,), (result,), False, location))
            self.taped.append(False)
        self._flag_twin |= {value: result, result: value}
        return result

    def producer_index(self, value: Value) -> int:
        """Return the index of the operation that computes a value; -1 if none does."""
        indices, ops = self._producer_indices, self.ops
        for i in range(self._indexed_op_count, len(ops)):
            for output in ops[i].outputs:
                indices[output] = i
        self._indexed_op_count = len(ops)
        return indices.get(value, -1)

    def knows(self, tensor: Tensor) -> bool:
        """Tell whether this tracer or an outer one has a value for a tensor."""
        outer = self.outer
        return id(tensor) in self._value_by_id or (
            outer is not None and outer.knows(tensor)
        )

    def tensor(self, value: Value) -> Any:
        """Return the tensor of a value, with the gradient flag that it had then."""
        result, requires_grad = (
            self._tensors[value.number],
            self._requires_grad[value.number],
        )
        if not isinstance(result, Tensor) or result.stop_gradient != requires_grad:
            return result
        with not_listening():
            alias = self._tensors[value.number] = result.detach()
        alias.stop_gradient = not result.stop_gradient
        self._value_by_id[id(alias)] = value
        self.memory.add(alias)
        return alias

    def differentiable_value(self, tensor: Tensor) -> Value:
        """Return the value of a tensor that has gradients, or else its value."""
        v = self.value_of(tensor)
        return v if self.requires(v) else self._flag_twin.get(v, v)

    def is_own(self, v: Value) -> bool:
        """Tell whether the traced function created a value."""
        is_created_here = (
            v not in self.constants or id(self.constants[v]) in self._own_constants
        )
        return is_created_here and v not in self.inputs

    def is_fixed(self, tensor: Tensor) -> bool:
        """Tell whether the function created a tensor from no value, as a size is."""
        return id(tensor) in self._own_constants

    def may_write(self, value: Value) -> bool:
        """Tell whether an in-place operator may change the tensor of a value."""
        return self.is_own(value)

    def shares_input(self, x: Tensor) -> bool:
        """Tell whether a tensor shares the memory of an input of the call."""
        return any(
            self._value_by_id.get(id(t)) in self.inputs
            for t in self.memory.aliases_of(x)
        )

    def refuse_write(self, name: str) -> Any:
        """Refuse an operator that writes and may not.

        Raises:
            CaptureError: always.
        """
        self.fail(
            f"{name} writes into a tensor that the function has not made, such as an "
            "argument or a layer's statistics; use stateless(layer) with buffers=, or "
            "give it a clone"
        )

    def versions(self) -> list[tuple[Tensor, int]]:
        """Return the inputs and outputs of operations with gradients, and versions.

        The version of a tensor moves when somebody writes into it.
        """
        taped_numbers: set[int] = set()
        for op, taped in zip(self.ops, self.taped, strict=True):
            if taped:
                taped_numbers.update(v.number for v in (*op.inputs, *op.outputs))
        tensors = [self._tensors[n] for n in taped_numbers]
        return [(t, t._inplace_version()) for t in tensors if t is not None]

    def preserve_aliases(self, x: Tensor) -> None:
        """Copy the contents of values whose memory x shares, before x is written."""
        self.writes = True
        for value, tensor in zip(self._all_values, self._tensors, strict=True):
            if isinstance(tensor, Tensor) and share_memory(tensor, x):
                copy = self._tensors[value.number] = tensor.detach().clone()
                copy.stop_gradient = tensor.stop_gradient
                self._value_by_id[id(copy)] = value
                self.memory.add(copy)
                if value in self.constants:
                    self.constants[value] = self._own_constants[id(copy)] = copy
        remaining = (p for p in self._versions if not share_memory(p[0], x))
        self._versions = [*remaining]
        for key, tensor in self._own_constants.items():
            if key not in self._value_by_id and share_memory(tensor, x):
                self._stale_views[key] = tensor
        for key in self._stale_views:
            self._own_constants.pop(key, None)

    def trace_constant_views(self, x: Tensor) -> None:
        """Add the views of constants that share memory with a tensor to the trace."""
        for entry, view_args, output_tensors, many in self._constant_views.pop_sharing(
            x
        ):
            self.value_of(view_args[0])
            value_args = tuple(values_for_tensors(self, arg) for arg in view_args)
            outputs = tuple(map(self._new_value, output_tensors))
            op = Operation(entry, value_args, outputs, many, where_called())
            self.ops.append(op)
            self.taped.append(False)
            self.memory.record_views(op, view_args[0], output_tensors)

    def bind(self, tensor: Tensor, value: Value) -> None:
        """Make a tensor stand for another value from here on."""
        self._value_by_id[id(tensor)] = value
        self._own_constants.pop(id(tensor), None)

    @contextmanager
    def substituted(
        self, tensors: Sequence[Tensor], others: Sequence[Tensor]
    ) -> Iterator[None]:
        """Return a context in which tensors stand for others, of the same shapes.

        They have the others' contents and flags meanwhile, for what is decided by them.
        """
        pairs = [*zip(tensors, others, strict=True)]
        values = [self.value_of(other) for other in others]
        with not_listening():
            contents = [*map(_with_same_memory, tensors)]
        before = [(self._value_by_id.get(id(t)), t.stop_gradient) for t in tensors]
        try:
            with not_listening():
                for tensor, other in pairs:
                    other._share_buffer_to(tensor)
                    tensor.stop_gradient = other.stop_gradient
            for tensor, value in zip(tensors, values, strict=True):
                self.bind(tensor, value)
            yield
        finally:
            with not_listening():
                for tensor, content in zip(tensors, contents, strict=True):
                    content._share_buffer_to(tensor)
                for tensor, (_, flag) in zip(tensors, before, strict=True):
                    tensor.stop_gradient = flag
            for tensor, (known, _) in zip(tensors, before, strict=True):
                self._value_by_id.pop(id(tensor), None)
                if known is not None:
                    self._value_by_id[id(tensor)] = known

    def requires(self, value: Value) -> bool:
        """Tell whether gradients flow through it."""
        return self._requires[value.number]

    def stands_in(self, leaves: Sequence[Tensor], recording: Any) -> None:
        """Register leaves that a recording differentiates by while it exists."""
        with not_listening():
            recording_ref = weakref.ref(recording)
            self._leaves.update((self.value_of(leaf), recording_ref) for leaf in leaves)

    def is_inactive(self, value: Value) -> bool:
        """Tell whether nobody differentiates by it: a constant, or a finished leaf."""
        recording_ref = self._leaves.get(value)
        return (
            recording_ref() is None
            if recording_ref is not None
            else not self.requires(value)
        )

    def required(self, value: Value) -> bool:
        """Tell whether the tensor of a value required gradients at its first use."""
        return self._requires_grad[value.number]

    def reaches_free(self, outputs: Sequence[Any], own: Sequence[Any]) -> bool:
        """Tell whether outputs depend on foreign tensors that require gradients."""
        with not_listening():
            needed = {self.value_of(o) for o in outputs if isinstance(o, Tensor)}
            roots = {self.value_of(t) for t in own if isinstance(t, Tensor)}
        for op, taped in zip(reversed(self.ops), reversed(self.taped), strict=True):
            if taped and not needed.isdisjoint(op.outputs):
                needed.difference_update(op.outputs)
                needed.update(op.inputs)
        return any(self._requires[v.number] for v in needed - roots)

    def check_constants(self) -> None:
        """Refuse constants that were written into or frozen after they were used."""
        required = [v for v in self.constants if self.required(v)]
        if any(self.constants[v].stop_gradient for v in required if not self.is_own(v)):
            self.fail(
                "a tensor that is no argument is used with gradients and frozen "
                "afterwards; set stop_gradient back, or freeze it outside of jit"
            )
        for tensor, version in self._versions:
            if tensor._inplace_version() != version:
                self.fail(
                    "a tensor that is no argument was written into in place; give it "
                    "as an argument and return its new value"
                )

    def fail(self, reason: str) -> Any:
        """Give up tracing.

        Raises:
            CaptureError: always.
        """
        self.failure = CaptureError(reason, where_called(full=True))
        raise self.failure


def _with_same_memory(tensor: Tensor) -> Tensor:
    """Return a tensor of the same memory, which stays if the tensor takes another's.

    Those of ``detach`` follow it there.
    """
    result = paddle.empty([0], tensor.dtype)
    tensor._share_buffer_to(result)
    return result


_MAX_COMPARED_ELEMENTS = 1 << 14
"""Constants up to this many elements are compared.

One example is the ones that gradients begin with.
"""
