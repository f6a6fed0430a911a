"""What a function does to tensors, noted operator by operator while it runs.

Derivatives that are asked for meanwhile are taken on the record: the rules of the
operators run on the real tensors, and are noted in their turn.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.dtypes import dtype_name, is_differentiable
from ..paddle_side.grad_mode import grad_mode
from ..paddle_side.listener import not_listening
from ..paddle_side.random_state import DRAWING
from .operations import Operation, Value, values_in
from .operators.entry import Operator, UnknownArgument
from .operators.table import TABLE
from .reverse import reverse
from .where import where_called

_DRAWING = frozenset(DRAWING)


class CaptureError(RuntimeError):
    """A function that is no straight line of known operators.

    Attributes:
        where: file and line of the function's code.
    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where


class Record:
    """The operators that a function has called, and tensors that stand for values.

    Args:
        inputs: tensors that come with a call.

    Attributes:
        takes_gradients: whether ``paddle.grad`` itself was called.
        draws: whether random numbers were drawn.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.ops: list[Operation] = []
        self.constants: dict[Value, Tensor] = {}
        self.failure: CaptureError | None = None
        self.takes_gradients = self.draws = False
        self._tensors: list[Any] = []
        self._values: dict[int, Value] = {}
        self._requires: list[bool] = []
        self._native: list[bool] = []
        self._before: list[bool] = []
        self.taped: list[bool] = []
        self._fresh: dict[int, Tensor] = {}
        self._leaves: dict[Value, weakref.ref[Any]] = {}
        self._made: dict[Any, Value] = {}
        self._versions: list[tuple[Tensor, int]] = []
        self.inputs = tuple(map(self._new, inputs))

    # Tensors and values.

    def _new(self, tensor: Any) -> Value:
        known = isinstance(tensor, Tensor) and tensor._is_initialized()
        shape, dtype, size = (), "none", 0
        if known:
            shape, dtype = tuple(tensor.shape), dtype_name(tensor.dtype)
            size = math.prod(shape) * tensor.element_size()
        value = Value(len(self._tensors), shape, dtype, size)
        native = isinstance(tensor, Tensor) and not tensor.stop_gradient
        self._tensors.append(tensor)
        self._native.append(native)
        self._before.append(native)
        self._requires.append(native and known and is_differentiable(tensor))
        if isinstance(tensor, Tensor):
            self._values[id(tensor)] = value
        return value

    def value_of(self, tensor: Tensor) -> Value:
        """What a tensor stands for; a constant, where nobody has made it here."""
        value = self._values.get(id(tensor))
        if value is None:
            if not tensor.stop_gradient and not tensor.is_leaf:
                self.fail(
                    "a tensor is used that was computed from others by no operator "
                    "that programs know (by a PyLayer, or before the call): write it "
                    "in tensor operations, in the function"
                )
            value = self._constant_of(tensor)
            self._versions.append((tensor, tensor._inplace_version()))
        elif tensor.stop_gradient == self._native[value.number]:  # it was changed
            requires = not tensor.stop_gradient
            if requires and not tensor.is_leaf:
                self.fail(
                    "a tensor has the gradient of something that no operator shows, "
                    "such as a PyLayer: write it in tensor operations"
                )
            value = self._flagged(value, tensor)
        return value

    def _constant_of(self, tensor: Tensor) -> Value:
        """A constant; small ones made here of the same numbers are the same."""
        key = None
        if id(tensor) in self._fresh and tensor.stop_gradient:
            shape = tuple(tensor.shape)
            if math.prod(shape) <= _SMALL and tensor._is_initialized():
                key = dtype_name(tensor.dtype), shape, tensor.numpy().tobytes()
        if key in self._made:
            value = self._values[id(tensor)] = self._made[key]
            return value
        value = self._new(tensor)
        self.constants[value] = tensor
        if key is not None:
            self._made[key] = value
        return value

    def _flagged(self, value: Value, tensor: Tensor) -> Value:
        """The same numbers from here on, with or without gradients."""
        found = self._new(tensor)
        op = Operation(
            TABLE["Tensor.detach"], (value,), (found,), False, where_called()
        )
        self.ops.append(op)
        self.taped.append(False)
        return found

    def tensor(self, value: Value) -> Any:
        return self._tensors[value.number]

    def requires(self, value: Value) -> bool:
        """Whether gradients flow through it."""
        return self._requires[value.number]

    def stands_in(self, leaves: Sequence[Tensor], recording: Any) -> None:
        """Leaves by which a recording differentiates, as long as it is there."""
        with not_listening():
            held = weakref.ref(recording)
            self._leaves.update((self.value_of(leaf), held) for leaf in leaves)

    def is_done(self, value: Value) -> bool:
        """Whether nobody differentiates by it: by a constant, or such a leaf by now."""
        held = self._leaves.get(value)
        return held() is None if held is not None else not self.requires(value)

    def outside(self) -> tuple[set[Value], list[Tensor]]:
        """What depends on tensors that required gradients before, and which did."""
        beyond = [v for v in self.constants if self._before[v.number]]
        reached = {*beyond, *(v for v in self.inputs if self._before[v.number])}
        for op, taped in zip(self.ops, self.taped, strict=True):
            if taped and not reached.isdisjoint(op.inputs):
                reached.update(v for v in op.outputs if self._requires[v.number])
        return reached, [self.constants[v] for v in beyond]

    def reaches_beyond(self, outputs: Sequence[Any], own: Sequence[Any]) -> bool:
        """Whether they depend on what requires gradients and is none of their own."""
        with not_listening():
            needed = {self.value_of(o) for o in outputs if isinstance(o, Tensor)}
            roots = {self.value_of(t) for t in own if isinstance(t, Tensor)}
        for op, taped in zip(reversed(self.ops), reversed(self.taped), strict=True):
            if taped and not needed.isdisjoint(op.outputs):
                needed.difference_update(op.outputs)
                needed.update(op.inputs)
        return any(self._requires[v.number] for v in needed - roots)

    def check_constants(self) -> None:
        """Refuse constants that were written into after they had been used."""
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

    # What :mod:`..paddle_side.interception` hands over.

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        with not_listening():
            tensors = [*_tensors_in(args), *_tensors_in(kwargs.values())]
            self.draws = self.draws or name in _DRAWING
            # Of a tensor's shape alone, or of none of the program's.
            asked = tensors[1:] if name in _OF_SHAPES else tensors
            own = all(id(t) in self._fresh for t in asked)
            if own and name not in _DRAWING:
                return self._constant(call(*args, **kwargs))
            entry = TABLE.get(name)
            if entry is None:
                self.fail(
                    f"the operator {name} is not in the table of programs; write it in "
                    "others, or leave it outside of jit"
                )
            assert entry is not None
            try:
                given = entry.canonical(args, kwargs)
            except UnknownArgument as error:
                self.fail(
                    f"{name} is called with an argument that programs do not "
                    f"know: {error}"
                )
            return self._run(entry, given)

    def leaves(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        with not_listening():
            if all(id(t) in self._fresh for t in _tensors_in(args)):
                return call(*args, **kwargs)
            attribute = name.removeprefix("Tensor.")
            self.fail(
                f"a value leaves the program by {attribute}, for Python to compute or "
                "decide with it: write it in tensor operations (paddle.where for if), "
                "or compute it before and give it as an argument"
            )

    def _constant(self, result: Any) -> Any:
        """What was made of no tensor, or of such constants."""
        for tensor in _tensors_in([result]):
            self._fresh[id(tensor)] = tensor
        return result

    def _run(self, entry: Operator, given: tuple[Any, ...]) -> Any:
        result = self._noted(entry, given)
        if entry.nested is not None:
            return entry.nested(result)
        if entry.shown is None or not isinstance(result, list | tuple):
            return result
        if entry.shown == len(result):
            return result
        return result[0] if entry.shown == 1 else tuple(result[: entry.shown])

    def every(self, entry: Operator, given: Sequence[Any]) -> Any:
        """All that an operator gives, also what Paddle does not show."""
        with not_listening():
            return self._noted(entry, tuple(given))

    def _noted(self, entry: Operator, given: tuple[Any, ...]) -> Any:
        args = tuple(map(self._with_values, given))
        writes = entry.writes_of(given)
        self._check_memory(entry, args, writes)
        result = entry.run(*given)
        many = isinstance(result, list | tuple)
        parts = [*result] if many else [result]
        taped = (
            paddle.is_grad_enabled()
            and entry.differentiable != ()
            and any(self._requires[v.number] for v in values_in(args))
        )
        for i, part in enumerate(parts):  # Paddle's kernels end somewhere, rules do not
            if is_differentiable(part) and part._is_initialized():
                part.stop_gradient = not taped or i in entry.fixed
        outputs = tuple(map(self._new, parts))
        self.ops.append(Operation(entry, args, outputs, many, where_called()))
        self.taped.append(taped)
        for argument, output in writes.items():
            given[argument].stop_gradient = parts[output].stop_gradient
            self._values[id(given[argument])] = outputs[output]
        return result

    def _check_memory(
        self, entry: Operator, args: tuple[Any, ...], writes: dict[int, int]
    ) -> None:
        """Refuse writes into what is not the function's own, and shapes by values."""
        if writes:
            copies = (op for op in self.ops if op.operator.name in _COPIES)
            if not {args[i] for i in writes} <= {op.outputs[0] for op in copies}:
                self.fail(
                    f"{entry.name} writes into a tensor that the function has not "
                    "made, such as a layer's statistics; use stateless(layer) with "
                    "buffers=, or give it a clone"
                )
        others = values_in(args[1:]) if entry.view else []
        if entry.name == "Tensor._getitem_dygraph":
            if any(v.dtype == "bool" for v in others):
                self.fail(
                    "an index by a mask has a shape that depends on values; use "
                    "paddle.where"
                )
        elif others:
            self.fail(
                f"{entry.name} is given a tensor that says a shape or an axis, which "
                "is part of a program; give Python's ints"
            )

    def _with_values(self, arg: Any) -> Any:
        if isinstance(arg, Tensor):
            return self.value_of(arg)
        if type(arg) in (list, tuple):
            return type(arg)(map(self._with_values, arg))
        if isinstance(arg, slice) and _tensors_in([arg]):
            self.fail(
                "a slice goes from or to a tensor, so that shapes depend on values; "
                "give Python's ints"
            )
        if isinstance(arg, np.ndarray | np.generic):
            self.fail(
                "an operator is given an array of numpy, which may change; give it as "
                "a tensor, by an argument of the function"
            )
        return arg

    # Derivatives.

    def gradients(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        create_graph: bool,
    ) -> list[Tensor | None]:
        """As :func:`..paddle_side.engine.gradients`, by the rules of the table."""
        with not_listening():
            ends = [self.value_of(t) for t in outputs]
            starts = [self.value_of(t) for t in inputs]
        with grad_mode(create_graph):
            return reverse(self, 0, len(self.ops), ends, starts, cotangents)

    def grad(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """``paddle.grad`` with its own arguments."""
        self.takes_gradients = True
        given = dict(zip(_GRAD_ARGUMENTS, args, strict=False)) | kwargs
        outputs, inputs = _listed(given["outputs"]), _listed(given["inputs"])
        seeds = given.get("grad_outputs")
        seeds = [None] * len(outputs) if seeds is None else _listed(seeds)
        if given.get("no_grad_vars"):
            self.fail("paddle.grad with no_grad_vars: detach these tensors instead")
        seeds = [
            paddle.ones_like(o) if seed is None else seed
            for o, seed in zip(outputs, seeds, strict=True)
        ]
        create_graph = bool(given.get("create_graph"))
        found = self.gradients(outputs, inputs, seeds, create_graph)
        if any(grad is None for grad in found) and not given.get("allow_unused"):
            self.fail("paddle.grad by a tensor that is not used; see allow_unused")
        return found


_SMALL = 1 << 14
"""Elements of constants that are compared, such as ones that gradients begin with."""

_COPIES = frozenset({"assign", "copy", "Tensor.clone"})
"""Operators that give memory of its own."""

_OF_SHAPES = frozenset(
    {"full_like", "zeros_like", "ones_like", "shape", "shape64", "numel"}
)
"""Operators whose result depends on shapes alone, which are part of a program."""

_GRAD_ARGUMENTS = (
    *("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"),
    *("only_inputs", "allow_unused", "no_grad_vars"),
)


def _listed(tensors: Any) -> list[Any]:
    return [*tensors] if isinstance(tensors, list | tuple) else [tensors]


def _tensors_in(args: Any) -> list[Tensor]:
    found = []
    for arg in args:
        if isinstance(arg, Tensor):
            found.append(arg)
        elif isinstance(arg, list | tuple):
            found += _tensors_in(arg)
        elif isinstance(arg, slice):
            found += _tensors_in((arg.start, arg.stop, arg.step))
    return found
