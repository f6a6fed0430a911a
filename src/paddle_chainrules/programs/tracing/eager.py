"""A tracer of one call, which takes its derivatives and is then dropped."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.flags import stand_in
from ...paddle_side.interception import listening
from ...paddle_side.listener import local, not_listening, single_use_captures
from ...paddle_side.rules.graph_breaks import BREAKS, constant_refusal
from ...paddle_side.rules.in_place import REFUSED_WRITE
from ...paddle_side.watch import is_traced, tapes_suspended
from ..operators.entry import Operator
from .in_place import ITEM
from .operations import OF_SHAPES, Operation, Value, tensors_in
from .outside import outside_constants, values_reached_from
from .reach import ancestors_of
from .record import Tracer

_READING_ATTRIBUTES = frozenset((*BREAKS, "__bool__", "__dlpack__", "data_ptr"))
"""Attributes through which Python reads the values of a tensor."""

_COPYING_ATTRIBUTES = frozenset(("_copy_to", "_local_value", "get_tensor"))
"""Attributes that return a tensor of the same values."""


_INDEXING_OPERATORS = frozenset(("Tensor._getitem_dygraph", ITEM))


def _masks_to_indices(item: Any, writes: bool) -> Any:
    """Replace boolean masks in an index by the indices of their true entries.

    Paddle writes by a mask without true entries, but not by an index without elements.
    """
    entries = item if isinstance(item, tuple) else (item,)
    results: list[Any] = []
    for entry in entries:
        is_mask = (
            isinstance(entry, Tensor) and entry.dtype == paddle.bool and entry.ndim
        )
        if is_mask and (bool(entry.any()) or not writes):
            results += paddle.nonzero(entry).unbind(1)
        else:
            results.append(entry)
    return tuple(results) if len(results) > 1 or isinstance(item, tuple) else results[0]


class TracedGraph(NamedTuple):
    """Results of calls on a trace, and the outside tensors that they depend on.

    Attributes:
        keys: the identities of the results.
        ends: tensors that stand for the results.
        starts: tensors that stand for the outside tensors.
        inputs: the outside tensors.
        free: those among them that no call was given.
        values: the values of the results.
        ops: the operations of the trace.
    """

    keys: list[int]
    ends: list[Tensor]
    starts: list[Tensor]
    inputs: list[Tensor]
    free: list[Tensor]
    values: list[Value]
    ops: list[Operation]

    def feeds_another(self, index: int) -> bool:
        """Return whether another result is computed from the one at an index."""
        others = [v for i, v in enumerate(self.values) if i != index]
        return self.values[index] in ancestors_of(self.ops, others)


class EagerTracer(Tracer):
    """The operators of one call, with rules for derivatives of every order.

    Values may leave: what Python computes of them is a constant to the derivative, as
    on Paddle's tape.

    Args:
        inputs: tensors that come with the call.
        outer: the tracer whose trace this one continues.
    """

    is_reused = False

    def __init__(self, inputs: Sequence[Tensor], outer: Tracer | None = None) -> None:
        super().__init__(inputs, outer)
        self.location = ""
        self._refusal = ""
        self._protected: frozenset[Value] = frozenset()
        self._outside_tensors: dict[Value, Tensor] = {}

    def stand_ins_for(self, leaves: Sequence[Any]) -> list[Any]:
        """Return what a call is given for these leaves, as inputs of the trace."""
        stand_ins, count = [*map(stand_in, leaves)], len(self.inputs)
        self.add_inputs(stand_ins)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._outside_tensors.update(zip(self.inputs[count:], tensors, strict=True))
        return stand_ins

    def graph_of(self, results: Mapping[int, Tensor]) -> TracedGraph | None:
        """Return the results, by identity, that depend on outside tensors, if any."""
        outside = self._outside_tensors
        free = [v for v in outside_constants(self) if not self.is_own(v)]
        starts = [*filter(self.required, outside), *free]
        reached = values_reached_from(self, starts)
        ends = {key: self.value_of(x) for key, x in results.items()}
        ends = {key: value for key, value in ends.items() if value in reached}
        if not ends:
            return None
        inputs = [outside[v] if v in outside else self.constants[v] for v in starts]
        values = [*ends.values()]
        return TracedGraph(
            [*ends],
            [*map(self.tensor, values)],
            [*map(self.tensor, starts)],
            inputs,
            [self.constants[v] for v in free],
            values,
            self.ops,
        )

    @contextmanager
    def refusing_writes(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Refuse writes into tensors that are being differentiated with respect to."""
        outer_protected = self._protected
        with not_listening():
            self._protected |= {
                self.memory.view_chain(self.value_of(t))[0] for t in tensors
            }
        try:
            yield
        finally:
            self._protected = outer_protected

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if name in _INDEXING_OPERATORS:
            x, item, *rest = args
            with not_listening():
                args = x, _masks_to_indices(item, bool(rest)), *rest
        return super().operator(name, call, args, kwargs)

    def escape(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        attribute = name.removeprefix("Tensor.")
        tensors = tensors_in(args)
        traced = any(map(is_traced, tensors))
        with not_listening():
            reads = attribute in _READING_ATTRIBUTES or (
                attribute in _COPYING_ATTRIBUTES and not traced
            )
            if not reads and any(map(self.knows, tensors)):
                return super().escape(name, call, args, kwargs)
            if traced and attribute in _READING_ATTRIBUTES:
                self._refusal = (
                    constant_refusal(attribute, sys._getframe(2)) or self._refusal
                )
            return call(*args, **kwargs)

    def unknown(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Call an operator without rules as it is, where nothing is differentiated.

        An operator that fills an unused tensor, as a new parameter, also runs as it is.
        """
        tensors = tensors_in([*args, *kwargs.values()])
        if name in OF_SHAPES:
            del tensors[0]
        is_new = name.endswith("_") and len(tensors) == 1 and not self.knows(tensors[0])
        if paddle.is_grad_enabled() and any(map(is_traced, tensors)) and not is_new:
            super().unknown(name, call, args, kwargs)
        if name.endswith("_") and tensors and self.knows(tensors[0]):
            self._check_write(name, tensors[0])
        return call(*args, **kwargs)

    def _check_write(self, name: str, x: Tensor) -> None:
        with not_listening():
            if self.memory.view_chain(self.value_of(x))[0] in self._protected:
                self.refuse_write(name)

    def may_write(self, value: Value) -> bool:
        is_constant = value in self.constants and not self.required(value)
        is_writable = is_constant or super().may_write(value)
        return is_writable and value not in self._protected

    def refuse_write(self, name: str) -> Any:
        raise ValueError(
            f"{name} writes into an argument of the function, which is not to change; "
            f"write into a copy, x = x.clone() ({REFUSED_WRITE})"
        )

    @contextmanager
    def listens(self) -> Iterator[None]:
        """Trace this thread's operators.

        Raises:
            NotImplementedError: one can't be differentiated.
        """
        tracers = [self, *self._outer_tracers()]
        for tracer in tracers:
            tracer.failure = None
        try:
            with tapes_suspended(), single_use_captures(), listening(self):
                yield
        except Exception as error:  # of which Paddle may have made another
            for tracer in tracers:
                if (failure := tracer.failure) is not None:
                    raise NotImplementedError(failure.reason) from error
            raise
        if (failure := self.failure) is not None:  # which the function has caught
            raise NotImplementedError(failure.reason)
        if reason := self._refusal:
            raise NotImplementedError(reason)

    def gradients(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        create_graph: bool,
    ) -> list[Tensor | None]:
        """Return gradients by rules, which are traced only for ``create_graph``.

        The backward of a layer is traced in any case: it may take gradients itself.
        """
        request = outputs, inputs, cotangents, create_graph
        if create_graph or any(o.opaque for o in self.taped_operators()):
            return super().gradients(*request)
        with not_listening():
            return super().gradients(*request)

    def taped_operators(self) -> Iterator[Operator]:
        """Return the operators that gradients may flow through, outer tracers' too."""
        own_operators = (op.operator for op in itertools.compress(self.ops, self.taped))
        outer: Any = self.outer
        outer_operators = () if outer is None else outer.taped_operators()
        return itertools.chain(own_operators, outer_operators)

    @contextmanager
    def stands_by(self) -> Iterator[None]:
        """Take this thread's gradients on this trace, and trace no operator.

        Raises:
            NotImplementedError: an operator can't be differentiated.
        """
        outer_listener = getattr(local, "listener", None)
        try:
            with tapes_suspended():
                local.listener = self
                yield
        except CaptureError as failure:
            raise NotImplementedError(failure.reason) from failure
        finally:
            local.listener = outer_listener

    def _outer_tracers(self) -> Iterator[Any]:
        outer = self.outer
        while outer is not None:
            yield outer
            outer = outer.outer
