"""The tensors of a function that is recorded, and the values that they stand for."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

from paddle import Tensor

from ...paddle_side.dtypes import dtype_name, facts_of, is_differentiable
from ...paddle_side.flags import Noted
from ...paddle_side.listener import not_listening
from ...paddle_side.shared_memory import share_memory
from ..capture_error import CaptureError
from ..operators.table import TABLE
from ..switch import loops_are_on
from .arguments import in_values
from .constant_views import ConstantViews
from .existing import is_existing, is_whole
from .memory import AliasMap
from .operations import Operation, Value
from .where import where_called
from .within import around, passive_listening


class Values:
    """The tensors that a function has met, and the values that they stand for.

    Class attributes:
        is_reused: whether a program is made of it, which serves other values.

    Args:
        inputs: tensors that come with a call.
        outer: the record of the call that this one is a part of.
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
        place: the place in the user's code where operators are called; None to look
            each up.
    """

    is_reused = True
    is_passive = False

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outer: Values | None = None,
        is_unlikely: bool = False,
    ) -> None:
        self.outer = outer
        self._around: passive_listening | None = around()
        if self._around is None and outer is not None:
            self._around = outer._around
        above = outer is not None and outer._is_unlikely
        self._is_unlikely: bool = is_unlikely or above
        self.ops: list[Operation] = []
        self.constants: dict[Value, Tensor] = {}
        self.failure: CaptureError | None = None
        self.takes_gradients = self.draws = self.writes = False
        self.differentiates = self.by_series = self.by_samples = False
        self.place: str | None = None
        self._tensors: list[Any] = []
        self._all: list[Value] = []
        self._values: dict[int, Value] = {}
        self._requires: list[bool] = []
        self._native: list[bool] = []
        self.taped: list[bool] = []
        self._made_by: dict[Value, int] = {}
        self._counted = 0
        self._fresh: dict[int, Tensor] = {}
        self._constant_views = ConstantViews()
        self._lost: dict[int, Tensor] = {}
        self._leaves: dict[Value, weakref.ref[Any]] = {}
        self._made: dict[Any, Value] = {}
        self._other_flag: dict[Value, Value] = {}
        self.formulas: dict[Operation, Any] = {}
        self.flags: Noted = {}
        self._versions: list[tuple[Tensor, int]] = []
        self._decomposes = loops_are_on() and not is_whole()
        self.memory = AliasMap()
        self.dummies: list[Tensor] = [] if outer is None else outer.dummies
        self.inputs = tuple(map(self._new, inputs))

    def take(self, inputs: Sequence[Any]) -> None:
        """Take more inputs: the tensors among them."""
        self.inputs += tuple(self._new(x) for x in inputs if isinstance(x, Tensor))

    # Tensors and values.

    def _new(self, tensor: Any, optional: bool = False) -> Value:
        is_tensor = known = isinstance(tensor, Tensor)
        if known and not tensor._is_initialized():  # empty, or left out by an operator
            known = 0 in tensor.shape and not (optional and tensor.shape == [0])
        native = is_tensor and not tensor.stop_gradient
        number = len(self._tensors)
        if known:
            shape, facts = tuple(tensor.shape), facts_of(tensor)
            size = math.prod(shape) * facts.bytes
            value = Value(number, shape, facts.name, size)
            self._requires.append(native and facts.is_differentiable)
        else:
            value = Value(number, (), "none", 0)
            self._requires.append(False)
        self._all.append(value)
        self._tensors.append(tensor)
        self._native.append(native)
        if is_tensor:
            self._values[id(tensor)] = value
            self.memory.meet(tensor)
        return value

    def value_of(self, tensor: Tensor) -> Value:
        """Return what a tensor stands for: a constant, unless it was made here."""
        value = self._values.get(id(tensor))
        if value is None:
            if self._around is not None:
                self._around.check("", [tensor])
            if id(tensor) in self._lost:
                self.fail(
                    "a tensor is used that shares memory with one that was written "
                    "into; take it from that one, after the write"
                )
            if not (tensor.stop_gradient or tensor.is_leaf or self._is_outer(tensor)):
                self.fail(
                    "a tensor is used that was computed from others by no operator "
                    "that programs know, before the call perhaps: write it in "
                    "tensor operations, or give it as an argument"
                )
            value = self._constant_of(tensor)
            self._versions.append((tensor, tensor._inplace_version()))
        elif (
            tensor.stop_gradient == self._native[value.number]  # it was changed
            and is_differentiable(tensor)
        ):
            value = self._values[id(tensor)] = self._flagged(value, tensor)
        return value

    def _is_outer(self, tensor: Tensor) -> bool:
        if (outer := self.outer) is not None:
            return outer.knows(tensor) or outer._is_outer(tensor)
        own = (v for v in self._all if v in self.inputs or self.is_own(v))
        return is_existing(tensor, map(self.tensor, own))

    def _constant_of(self, tensor: Tensor) -> Value:
        """Return a constant. Small ones made here with equal values share one."""
        key = None
        if id(tensor) in self._fresh and tensor.stop_gradient:
            shape = tuple(tensor.shape)
            if math.prod(shape) <= _MAX_COMPARED_ELEMENTS and tensor._is_initialized():
                key = dtype_name(tensor.dtype), shape, tensor.numpy().tobytes()
        if key in self._made:
            value = self._values[id(tensor)] = self._made[key]
            self.memory.meet(tensor)
            return value
        value = self._new(tensor)
        self.constants[value] = tensor
        if key is not None:
            self._made[key] = value
        return value

    def _flagged(self, value: Value, tensor: Tensor) -> Value:
        """Return the same values as a new value, with or without gradients."""
        self.tensor(value)  # apart from this one, as it was
        requires = not tensor.stop_gradient
        if value in self._other_flag:
            return self._other_flag[value]
        if requires and not (tensor.is_leaf or self._is_outer(tensor)):
            self.fail(
                "a tensor has the gradient of something that no operator shows: write "
                "it in tensor operations"
            )
        result = self._new(tensor)
        if requires and value in self.constants and not self.is_own(value):
            self.constants[result] = tensor
        else:
            entry, place = TABLE["Tensor.detach"], where_called()
            self.ops.append(Operation(entry, (value,), (result,), False, place))
            self.taped.append(False)
        self._other_flag |= {value: result, result: value}
        return result

    def made_by(self, value: Value) -> int:
        """Return the place of the operation that gives it; -1 for what is given."""
        made, ops = self._made_by, self.ops
        for i in range(self._counted, len(ops)):
            for output in ops[i].outputs:
                made[output] = i
        self._counted = len(ops)
        return made.get(value, -1)

    def knows(self, tensor: Tensor) -> bool:
        """Tell whether a value stands for it here or in a record this is part of."""
        outer = self.outer
        return id(tensor) in self._values or (outer is not None and outer.knows(tensor))

    def tensor(self, value: Value) -> Any:
        """Return a tensor for rules to run on, with the gradient flag it had then."""
        result, native = self._tensors[value.number], self._native[value.number]
        if not isinstance(result, Tensor) or result.stop_gradient != native:
            return result
        with not_listening():
            before = self._tensors[value.number] = result.detach()
        before.stop_gradient = not result.stop_gradient
        self._values[id(before)] = value
        self.memory.meet(before)
        return before

    def requiring(self, tensor: Tensor) -> Value:
        """Return the value that carries its gradients, or else its own value."""
        v = self.value_of(tensor)
        return v if self.requires(v) else self._other_flag.get(v, v)

    def is_own(self, v: Value) -> bool:
        """Tell whether it was made here."""
        made = v not in self.constants or id(self.constants[v]) in self._fresh
        return made and v not in self.inputs

    def is_fixed(self, tensor: Tensor) -> bool:
        """Tell whether it was made here from no value, as a number of elements is."""
        return id(tensor) in self._fresh

    def may_write(self, value: Value) -> bool:
        """Tell whether an operator in place may change the tensor for this value."""
        return self.is_own(value)

    def shares_input(self, x: Tensor) -> bool:
        """Tell whether it shares the memory of an input of the call."""
        return any(
            self._values.get(id(t)) in self.inputs for t in self.memory.sharing(x)
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
        """Return the tensors that operations with gradients read or gave.

        Beside each is its version, which moves when somebody writes into it.
        """
        known: set[int] = set()
        for op, taped in zip(self.ops, self.taped, strict=True):
            if taped:
                known.update(v.number for v in (*op.inputs, *op.outputs))
        results = [self._tensors[n] for n in known]
        return [(t, t._inplace_version()) for t in results if t is not None]

    def set_apart(self, x: Tensor) -> None:
        """Keep the contents of values whose memory x shares, before x is written."""
        self.writes = True
        for value, tensor in zip(self._all, self._tensors, strict=True):
            if isinstance(tensor, Tensor) and share_memory(tensor, x):
                copy = self._tensors[value.number] = tensor.detach().clone()
                copy.stop_gradient = tensor.stop_gradient
                self._values[id(copy)] = value
                self.memory.meet(copy)
                if value in self.constants:
                    self.constants[value] = self._fresh[id(copy)] = copy
        kept = (p for p in self._versions if not share_memory(p[0], x))
        self._versions = [*kept]
        for key, tensor in self._fresh.items():
            if key not in self._values and share_memory(tensor, x):
                self._lost[key] = tensor
        for key in self._lost:
            self._fresh.pop(key, None)

    def show_views(self, x: Tensor) -> None:
        """Note as operations the views of constants that share memory with a tensor."""
        for entry, given, parts, many in self._constant_views.sharing(x):
            self.value_of(given[0])
            args = tuple(in_values(self, arg) for arg in given)
            outputs = tuple(map(self._new, parts))
            op = Operation(entry, args, outputs, many, where_called())
            self.ops.append(op)
            self.taped.append(False)
            self.memory.note(op, given[0], parts)

    def stand_for(self, tensor: Tensor, value: Value) -> None:
        """Make a tensor stand for another value from here on."""
        self._values[id(tensor)] = value
        self._fresh.pop(id(tensor), None)

    def requires(self, value: Value) -> bool:
        """Tell whether gradients flow through it."""
        return self._requires[value.number]

    def stands_in(self, leaves: Sequence[Tensor], recording: Any) -> None:
        """Note leaves that a recording differentiates by, as long as it exists."""
        with not_listening():
            held = weakref.ref(recording)
            self._leaves.update((self.value_of(leaf), held) for leaf in leaves)

    def is_done(self, value: Value) -> bool:
        """Tell whether nobody differentiates by it: a constant, or a finished leaf."""
        held = self._leaves.get(value)
        return held() is None if held is not None else not self.requires(value)

    def required(self, value: Value) -> bool:
        """Tell whether it required gradients when it was met."""
        return self._native[value.number]

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
        """Give up.

        Raises:
            CaptureError: always.
        """
        self.failure = CaptureError(reason, where_called(full=True))
        raise self.failure


_MAX_COMPARED_ELEMENTS = 1 << 14
"""Constants up to this many elements are compared.

One example is the ones that gradients begin with.
"""
