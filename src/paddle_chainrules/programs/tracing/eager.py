"""A record of one call, which takes its derivatives and is then dropped."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.interception import listening
from ...paddle_side.listener import local, not_listening
from ...paddle_side.rules.graph_breaks import BREAKS, constant_refusal
from ...paddle_side.rules.in_place import REFUSED_WRITE
from ...paddle_side.watch import is_traced, tapes_suspended
from ..capture_error import CaptureError
from ..operators.entry import Operator
from .existing import single_use_captures
from .in_place import ITEM
from .operations import OF_SHAPES, Value, tensors_in
from .record import Tracer

_READ = frozenset((*BREAKS, "__bool__", "__dlpack__", "data_ptr"))
"""Attributes through which Python reads the values of a tensor."""

_COPIED = frozenset(("_copy_to", "_local_value", "get_tensor"))
"""Attributes that return a tensor of the same values."""


_INDEXED = frozenset(("Tensor._getitem_dygraph", ITEM))


def _without_masks(item: Any, writes: bool) -> Any:
    """Return an index with the places where masks are true, which are known here.

    Paddle writes by a mask without true entries, but not by an index without elements.
    """
    parts = item if isinstance(item, tuple) else (item,)
    results: list[Any] = []
    for part in parts:
        is_mask = isinstance(part, Tensor) and part.dtype == paddle.bool and part.ndim
        if is_mask and (bool(part.any()) or not writes):
            results += paddle.nonzero(part).unbind(1)
        else:
            results.append(part)
    return tuple(results) if len(results) > 1 or isinstance(item, tuple) else results[0]


class Eager(Tracer):
    """The operators of one call, with rules for derivatives of every order.

    Values may leave: what Python computes of them is a constant to the derivative, as
    on Paddle's tape.

    Args:
        inputs: tensors that come with the call.
        outer: the record that this one goes on from.
    """

    is_reused = False

    def __init__(self, inputs: Sequence[Tensor], outer: Tracer | None = None) -> None:
        super().__init__(inputs, outer)
        self.place = ""
        self._refusal = ""
        self._kept: frozenset[Value] = frozenset()

    @contextmanager
    def keeps(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Refuse writes into tensors that are being differentiated with respect to."""
        before = self._kept
        with not_listening():
            self._kept |= {self.memory.chain(self.value_of(t))[0] for t in tensors}
        try:
            yield
        finally:
            self._kept = before

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        if name in _INDEXED:
            x, item, *rest = args
            with not_listening():
                args = x, _without_masks(item, bool(rest)), *rest
        return super().operator(name, call, args, kwargs)

    def escape(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        attribute = name.removeprefix("Tensor.")
        tensors = tensors_in(args)
        traced = any(map(is_traced, tensors))
        with not_listening():
            reads = attribute in _READ or (attribute in _COPIED and not traced)
            if not reads and any(map(self.knows, tensors)):
                return super().escape(name, call, args, kwargs)
            if traced and attribute in _READ:
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
        given = tensors_in([*args, *kwargs.values()])
        if name in OF_SHAPES:
            del given[0]
        is_new = name.endswith("_") and len(given) == 1 and not self.knows(given[0])
        if paddle.is_grad_enabled() and any(map(is_traced, given)) and not is_new:
            super().unknown(name, call, args, kwargs)
        if name.endswith("_") and given and self.knows(given[0]):
            self._check_write(name, given[0])
        return call(*args, **kwargs)

    def _check_write(self, name: str, x: Tensor) -> None:
        with not_listening():
            if self.memory.chain(self.value_of(x))[0] in self._kept:
                self.refuse_write(name)

    def may_write(self, value: Value) -> bool:
        is_constant = value in self.constants and not self.required(value)
        may = is_constant or super().may_write(value)
        return may and value not in self._kept

    def refuse_write(self, name: str) -> Any:
        raise ValueError(
            f"{name} writes into an argument of the function, which is not to change; "
            f"write into a copy, x = x.clone() ({REFUSED_WRITE})"
        )

    @contextmanager
    def listens(self) -> Iterator[None]:
        """Have this thread's operators noted here.

        Raises:
            NotImplementedError: one can't be differentiated.
        """
        records = [self, *self._outers()]
        for record in records:
            record.failure = None
        try:
            with tapes_suspended(), single_use_captures(), listening(self):
                yield
        except Exception as error:  # of which Paddle may have made another
            for record in records:
                if (failure := record.failure) is not None:
                    raise NotImplementedError(failure.reason) from error
            raise
        if (failure := self.failure) is not None:  # which the function has caught
            raise NotImplementedError(failure.reason)
        if why := self._refusal:
            raise NotImplementedError(why)

    def gradients(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        create_graph: bool,
    ) -> list[Tensor | None]:
        """Return gradients by rules, which are noted only if ``create_graph`` asks.

        The backward of a layer is noted in any case: it may take gradients itself.
        """
        given = outputs, inputs, cotangents, create_graph
        if create_graph or any(o.opaque for o in self.taped_operators()):
            return super().gradients(*given)
        with not_listening():
            return super().gradients(*given)

    def taped_operators(self) -> Iterator[Operator]:
        """Return the operators that gradients may flow through, outer records' too."""
        results = (op.operator for op in itertools.compress(self.ops, self.taped))
        outer: Any = self.outer
        above = () if outer is None else outer.taped_operators()
        return itertools.chain(results, above)

    @contextmanager
    def stands_by(self) -> Iterator[None]:
        """Take this thread's gradients on this record, and note no operator.

        Raises:
            NotImplementedError: an operator can't be differentiated.
        """
        before = getattr(local, "listener", None)
        try:
            with tapes_suspended():
                local.listener = self
                yield
        except CaptureError as failure:
            raise NotImplementedError(failure.reason) from failure
        finally:
            local.listener = before

    def _outers(self) -> Iterator[Any]:
        outer = self.outer
        while outer is not None:
            yield outer
            outer = outer.outer
