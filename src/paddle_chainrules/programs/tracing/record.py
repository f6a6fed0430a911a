"""A record of what a function does to tensors, operator by operator, as it runs.

Derivatives that are asked for meanwhile are taken on the record. The rules of the
operators run on the real tensors, and the record notes their operators too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.py_layer_calls import native_apply
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import local, not_listening
from ...paddle_side.process.random_state import DRAWING, generator_lock, note_drawing
from ..operators.entry import Operator, UnknownArgument
from ..operators.py_layers import LayerCall
from ..operators.random import SEEDS
from ..operators.table import TABLE
from .arguments import in_values
from .in_place import begin, end, is_write, write
from .operations import OF_SHAPES, Operation, tensors_in, values_in
from .paddle_grad import grad
from .reverse import reverse_through
from .shape_arguments import check_shapes
from .unlikely import harmless
from .values import Values
from .where import in_one_place, where_called
from .within import passive_listening

_DRAWING = SEEDS.union(DRAWING)


class Tracer(Values):
    """The operators that a function has called, and tensors that stand for values."""

    # What :mod:`...paddle_side.interception` hands over.

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        entry = TABLE.get(name)
        if entry is not None and entry.decompose is not None:
            result = entry.decompose(self._decomposes, *entry.canonical(args, kwargs))
            if result is not None:
                return result
        if kwargs and kwargs.get("out") is not None:
            return self._into(name, call, args, dict(kwargs))
        before, local.listener = local.listener, None
        try:
            tensors = tensors_in(args)
            if kwargs:
                tensors += tensors_in(kwargs.values())
            if not (is_write(name) and not self._is_nobodys(tensors)):
                return self._read(name, entry, call, args, kwargs, tensors)
        finally:
            local.listener = before
        self.draws = self.draws or name in _DRAWING
        return write(self, name, call, args, kwargs)

    def _into(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Note an operator that writes its results into tensors, and return these."""
        out = kwargs.pop("out")
        results = self.operator(name, call, args, kwargs)
        is_one = isinstance(out, Tensor)
        pairs = [(results, out)] if is_one else zip(results, out, strict=True)
        for result, tensor in pairs:
            paddle._C_ops.assign_out_(result, tensor)
        return out

    def _read(
        self,
        name: str,
        entry: Operator | None,
        call: Callable[..., Any],
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
    ) -> Any:
        """Note an operator that is known to write into nothing that matters."""
        # Of a tensor's shape alone, or of none of the program's.
        requested = tensors[1:] if name in OF_SHAPES else tensors
        fresh = self._fresh
        for t in requested:
            if id(t) not in fresh or not t.stop_gradient:
                break
        else:
            if name not in _DRAWING:
                result = self._constant(call(*args, **kwargs))
                self._constant_views.note(name, args, kwargs, result)
                return result
        if entry is None:
            return self.unknown(name, call, args, kwargs)
        try:
            entry, given = entry.simplified(entry.canonical(args, kwargs))
        except UnknownArgument as error:
            self.fail(
                f"{name} is called with an argument that programs do not know: {error}"
            )
        return self._run(entry, given)

    def unknown(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Handle an operator that is not in the table."""
        if name == "arange":
            self.fail(
                "arange is given tensors, whose values decide how long it is; give it "
                "numbers, such as x.shape[0], and shift and stretch the result: start "
                "+ step * paddle.arange(n)"
            )
        self.fail(
            f"the operator {name} is not in the table of programs; write it in others, "
            "or leave it outside of jit"
        )

    def _is_nobodys(self, tensors: Sequence[Tensor]) -> bool:
        """Tell whether all were made here from nothing else, and stand for no value.

        No value may stand for other tensors that share their memory, either.
        """
        fresh, values = self._fresh, self._values
        return all(
            id(t) in fresh and id(t) not in values and not self.memory.sharing(t)
            for t in tensors
        )

    def escape(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        with not_listening():
            if all(id(t) in self._fresh for t in tensors_in(args)):
                return call(*args, **kwargs)
            attribute = name.removeprefix("Tensor.")
            if attribute == "__bool__" and _is_checked_by_paddle(sys._getframe(2)):
                return self._is_unlikely or call(*args, **kwargs)
            if attribute == "_copy_to" and args[0].place._equals(args[1]):
                with grad_mode(False):  # off the graph, as Paddle's copy is
                    return self.every(TABLE["assign"], [args[0]])
            self.fail(
                f"a value leaves the program by {attribute}, for Python to compute or "
                "decide with it: write it in tensor operations (paddle.where for if), "
                "or compute it before and give it as an argument"
            )

    def apply(
        self, layer: Any, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Note a call of a ``PyLayer``, which is an operator that Python runs."""
        with not_listening():
            result = LayerCall(layer, args, kwargs)
            tensors = result.tensors
            if all(id(t) in self._fresh and t.stop_gradient for t in tensors):
                return self._constant(call(*args, **kwargs))
            result.begin(passive_listening(self, result.name))
            results = self.every(TABLE["py_layer"], [result, *tensors])
            with grad_mode(False):
                for i, is_fixed in enumerate(result.fixed):
                    if is_fixed:
                        results[i] = self.every(TABLE["Tensor.detach"], [results[i]])
            return result.result(results)

    def missed_layer(self, layer: Any) -> None:
        """Handle a context made by a stored ``apply``.

        We learn of such a call only when it makes a context. Paddle asks for the
        layer's forward next. So for a moment the layer has a forward that does what
        :meth:`apply` does.
        """
        own, enabled = vars(layer).get("forward"), paddle.is_grad_enabled()

        def forward(context: Any, *args: Any, **kwargs: Any) -> Any:
            put_back()
            if getattr(local, "listener", None) is not self:  # of another thread
                return layer.forward(context, *args, **kwargs)
            with grad_mode(enabled):
                return self.apply(layer, native_apply(layer), args, kwargs)

        def put_back() -> None:
            if own is None:
                del layer.forward
            else:
                layer.forward = own

        layer.forward = staticmethod(forward)

    def _constant(self, result: Any) -> Any:
        """Note a result that was made from no tensor, or only from such constants."""
        for tensor in tensors_in([result]):
            self._fresh[id(tensor)] = tensor
        return result

    def _run(self, entry: Operator, given: tuple[Any, ...]) -> Any:
        result = self._noted(entry, given, entry.writes_of(given))
        if entry.nested is not None:
            return entry.nested(result)
        is_list = isinstance(result, list | tuple)
        if not is_list or entry.shown in (None, len(result)):
            return result
        return result[0] if entry.shown == 1 else tuple(result[: entry.shown])

    def every(self, entry: Operator, given: Sequence[Any]) -> Any:
        """Return all that an operator gives, also what Paddle does not show.

        It writes into nothing. Operators of programs do not write.
        """
        with not_listening():
            return self._noted(entry, tuple(given), {})

    def _noted(
        self, entry: Operator, given: tuple[Any, ...], writes: dict[int, int]
    ) -> Any:
        args = tuple([in_values(self, arg) for arg in given])
        if entry.view and (
            self.is_reused or any(self._requires[v.number] for v in values_in(args))
        ):
            check_shapes(self, entry.name, args)
        for i in writes:
            begin(self, entry.name, given[i])
        result = self._result(entry, given)
        self.draws = self.draws or entry.random
        many = isinstance(result, list | tuple)
        parts = _other_than(given, [*result] if many else [result])
        result = type(result)(parts) if many else parts[0]
        inputs = values_in(args)
        taped = False
        if entry.differentiable != () and paddle.is_grad_enabled():
            requires = self._requires
            for v in inputs:
                if requires[v.number]:
                    taped = True
                    break
        for i, part in enumerate(parts):  # Paddle's kernels end somewhere, rules do not
            if isinstance(part, Tensor):
                flag = not taped or i in entry.fixed
                if part.stop_gradient != flag and is_differentiable(part):
                    part.stop_gradient = flag
        # An empty result of something is one that an operator has left out.
        optional = many and not any(0 in v.shape for v in inputs)
        outputs = tuple([self._new(part, optional) for part in parts])
        place = where_called() if self.place is None else self.place
        op = Operation(entry, args, outputs, many, place)
        self.ops.append(op)
        self.taped.append(taped)
        if entry.view or entry.alias:
            self.memory.note(op, given[0], parts)
        for i, output in writes.items():
            end(self, entry.name, given[i], parts[output])
        return result

    def _result(self, entry: Operator, given: tuple[Any, ...]) -> Any:
        if entry.random:
            note_drawing()
            if self._around is not None:
                self._around.check(entry.name, ())
            with generator_lock():
                return self._run_of(entry, given)
        return self._run_of(entry, given)

    def _run_of(self, entry: Operator, given: tuple[Any, ...]) -> Any:
        if self._is_unlikely and entry.untaken is not None:
            return entry.untaken(*given)
        try:
            return entry.run(*given)
        except Exception:
            if not self._is_unlikely:
                raise
            return entry.run(*map(harmless, given))

    # Derivatives.

    def gradients(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        create_graph: bool,
    ) -> list[Tensor | None]:
        """Return gradients as :func:`.engine.gradients`, by the rules of the table."""
        self.differentiates = True
        with not_listening():
            ends = [self.value_of(t) for t in outputs]
            starts = [self.value_of(t) for t in inputs]
        with grad_mode(create_graph), in_one_place(self):
            return reverse_through(self, ends, starts, cotangents)

    def grad(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call ``paddle.grad`` with its own arguments."""
        self.takes_gradients = True
        return grad(self, *args, **kwargs)


def _is_checked_by_paddle(frame: FrameType | None) -> bool:
    """Tell whether ``paddle.distribution`` checks its arguments in this call.

    It raises for those out of range, when a program is made; a program does not.
    """
    passing = "paddle.base", "paddle.tensor"
    while frame is not None and frame.f_globals["__name__"].startswith(passing):
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "__init__":
        return False
    module: str = frame.f_globals["__name__"]
    return module.startswith("paddle.distribution")


def _other_than(given: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Return the results, none of which is an argument itself.

    Paddle's ``contiguous`` may return its argument. A tensor stands for one value, so
    we return another tensor on the same memory.
    """
    known = {*map(id, tensors_in(given))}
    return [x.detach() if id(x) in known else x for x in results]
