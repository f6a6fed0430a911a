"""A tracer of what a function does to tensors, operator by operator, as it runs.

Derivatives that are requested meanwhile are taken on the trace. The rules of the
operators run on the real tensors, and their operators are traced too.
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
from .arguments import values_for_tensors
from .in_place import begin_write, finish_write, is_write, trace_write
from .operations import OF_SHAPES, Operation, tensors_in, values_in
from .paddle_grad import grad
from .reverse import reverse_through
from .shape_arguments import check_shapes
from .unlikely import harmless_values
from .values import ValueTable
from .where import at_one_location, where_called
from .within import passive_listening

_DRAWING = SEEDS.union(DRAWING)


_SPELLED = (
    {f"__{name}__": f"{name}(x)" for name in ("float", "int", "complex")}
    | {name: f"x.{name}()" for name in ("item", "numpy", "tolist")}
    | {"__array__": "np.asarray(x)", "__index__": "an index, a size or range(x)"}
    | {"grad": "x.grad", "_grad_ivar": "x.grad"}
    | {"_copy_to": "x.to(device) or x.cpu()"}
)
"""Attributes by which values leave, as code writes that."""


class Tracer(ValueTable):
    """The operators that a function has called, and tensors that stand for values."""

    # What :mod:`...paddle_side.interception` hands over.

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        entry = TABLE.get(name)
        if entry is not None and entry.decompose is not None:
            result = entry.decompose(
                self._may_decompose, *entry.canonical(args, kwargs)
            )
            if result is not None:
                return result
        if kwargs and kwargs.get("out") is not None:
            return self._trace_with_out(name, call, args, dict(kwargs))
        outer_listener, local.listener = local.listener, None
        try:
            tensors = tensors_in(args)
            if kwargs:
                tensors += tensors_in(kwargs.values())
            if not (is_write(name) and not self._are_private(tensors)):
                return self._trace_read(name, entry, call, args, kwargs, tensors)
        finally:
            local.listener = outer_listener
        self.draws = self.draws or name in _DRAWING
        return trace_write(self, name, call, args, kwargs)

    def _trace_with_out(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Trace an operator with ``out``; write the results there and return it."""
        out = kwargs.pop("out")
        results = self.operator(name, call, args, kwargs)
        is_one = isinstance(out, Tensor)
        pairs = [(results, out)] if is_one else zip(results, out, strict=True)
        for result, tensor in pairs:
            paddle._C_ops.assign_out_(result, tensor)
        return out

    def _trace_read(
        self,
        name: str,
        entry: Operator | None,
        call: Callable[..., Any],
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
    ) -> Any:
        """Trace an operator that writes into no tensor of a value.

        One that reads only constants of the function is not traced.
        """
        # Of a tensor's shape alone, or of none of the program's.
        contents_read = tensors[1:] if name in OF_SHAPES else tensors
        own_constants = self._own_constants
        for t in contents_read:
            if id(t) not in own_constants or not t.stop_gradient:
                break
        else:
            if name not in _DRAWING:
                result = self._note_constant(call(*args, **kwargs))
                self._constant_views.record_view(name, args, kwargs, result)
                return result
        if entry is None:
            return self.unknown(name, call, args, kwargs)
        try:
            entry, canonical_args = entry.simplified(entry.canonical(args, kwargs))
        except UnknownArgument as error:
            self.fail(
                f"{name} is called with an argument that programs do not know: {error}"
            )
        return self._run_operator(entry, canonical_args)

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

    def _are_private(self, tensors: Sequence[Tensor]) -> bool:
        """Tell whether the function created all from constants, without values.

        No other tensors that share their memory may have values, either.
        """
        own_constants, values = self._own_constants, self._value_by_id
        return all(
            id(t) in own_constants
            and id(t) not in values
            and not self.memory.aliases_of(t)
            for t in tensors
        )

    def escape(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        with not_listening():
            if all(id(t) in self._own_constants for t in tensors_in(args)):
                return call(*args, **kwargs)
            attribute = name.removeprefix("Tensor.")
            if attribute == "__bool__" and _is_checked_by_paddle(sys._getframe(2)):
                return self._is_unlikely or call(*args, **kwargs)
            if attribute == "_copy_to" and args[0].place._equals(args[1]):
                with grad_mode(False):  # off the graph, as Paddle's copy is
                    return self.every(TABLE["assign"], [args[0]])
            if attribute == "__bool__":
                self.fail(
                    "an if, while, and, or, not or assert decides by a value: use cond "
                    "or paddle.where, or compute it before and give it as an argument"
                )
            self.fail(
                f"a value leaves the program by {_SPELLED.get(attribute, attribute)}, "
                "for Python to compute or decide with it: write it in tensor "
                "operations (paddle.where for if), or compute it before and give it as "
                "an argument"
            )

    def apply(
        self, layer: Any, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Trace a call of a ``PyLayer``, which is an operator that Python runs."""
        with not_listening():
            layer_call = LayerCall(layer, args, kwargs)
            tensors = layer_call.tensors
            if all(id(t) in self._own_constants and t.stop_gradient for t in tensors):
                return self._note_constant(call(*args, **kwargs))
            layer_call.begin(passive_listening(self, layer_call.name))
            results = self.every(TABLE["py_layer"], [layer_call, *tensors])
            with grad_mode(False):
                for i, is_fixed in enumerate(layer_call.fixed):
                    if is_fixed:
                        results[i] = self.every(TABLE["Tensor.detach"], [results[i]])
            return layer_call.result(results)

    def missed_layer(self, layer: Any) -> None:
        """Handle a context made by a stored ``apply``.

        We learn of such a call only when it makes a context. Paddle asks for the
        layer's forward next. So for a moment the layer has a forward that does what
        :meth:`apply` does.
        """
        own_forward, enabled = vars(layer).get("forward"), paddle.is_grad_enabled()

        def forward(context: Any, *args: Any, **kwargs: Any) -> Any:
            restore_forward()
            if getattr(local, "listener", None) is not self:  # of another thread
                return layer.forward(context, *args, **kwargs)
            with grad_mode(enabled):
                return self.apply(layer, native_apply(layer), args, kwargs)

        def restore_forward() -> None:
            if own_forward is None:
                del layer.forward
            else:
                layer.forward = own_forward

        layer.forward = staticmethod(forward)

    def _note_constant(self, result: Any) -> Any:
        """Note that a result was computed from no tensor, or only from constants."""
        for tensor in tensors_in([result]):
            self._own_constants[id(tensor)] = tensor
        return result

    def _run_operator(self, entry: Operator, args: tuple[Any, ...]) -> Any:
        result = self._trace_operation(entry, args, entry.writes_of(args))
        if entry.nested is not None:
            return entry.nested(result)
        is_list = isinstance(result, list | tuple)
        if not is_list or entry.shown in (None, len(result)):
            return result
        return result[0] if entry.shown == 1 else tuple(result[: entry.shown])

    def every(self, entry: Operator, args: Sequence[Any]) -> Any:
        """Trace an operator and return all its results, also those Paddle hides.

        It writes into nothing. Operators of programs do not write.
        """
        with not_listening():
            return self._trace_operation(entry, tuple(args), {})

    def _trace_operation(
        self, entry: Operator, tensor_args: tuple[Any, ...], writes: dict[int, int]
    ) -> Any:
        value_args = tuple([values_for_tensors(self, arg) for arg in tensor_args])
        if entry.view and (
            self.is_reused
            or any(self._requires[v.number] for v in values_in(value_args))
        ):
            check_shapes(self, entry.name, value_args)
        for index in writes:
            begin_write(self, entry.name, tensor_args[index])
        result = self._compute(entry, tensor_args)
        self.draws = self.draws or entry.random
        many = isinstance(result, list | tuple)
        output_tensors = _without_arguments(
            tensor_args, [*result] if many else [result]
        )
        result = type(result)(output_tensors) if many else output_tensors[0]
        inputs = values_in(value_args)
        taped = False
        if entry.differentiable != () and paddle.is_grad_enabled():
            requires = self._requires
            for v in inputs:
                if requires[v.number]:
                    taped = True
                    break
        # Paddle's kernels end gradients somewhere, rules do not.
        for index, tensor in enumerate(output_tensors):
            if isinstance(tensor, Tensor):
                stop_gradient = not taped or index in entry.fixed
                if tensor.stop_gradient != stop_gradient and is_differentiable(tensor):
                    tensor.stop_gradient = stop_gradient
        # An empty result of something is one that an operator has left out.
        optional = many and not any(0 in v.shape for v in inputs)
        outputs = tuple(
            [self._new_value(tensor, optional) for tensor in output_tensors]
        )
        location = where_called() if self.location is None else self.location
        op = Operation(entry, value_args, outputs, many, location)
        self.ops.append(op)
        self.taped.append(taped)
        if entry.view or entry.alias:
            self.memory.record_views(op, tensor_args[0], output_tensors)
        for index, output_index in writes.items():
            finish_write(
                self, entry.name, tensor_args[index], output_tensors[output_index]
            )
        return result

    def _compute(self, entry: Operator, args: tuple[Any, ...]) -> Any:
        if entry.random:
            note_drawing()
            if self._enclosing_layer is not None:
                self._enclosing_layer.check(entry.name, ())
            with generator_lock():
                return self._run_kernel(entry, args)
        return self._run_kernel(entry, args)

    def _run_kernel(self, entry: Operator, args: tuple[Any, ...]) -> Any:
        if self._is_unlikely and entry.untaken is not None:
            return entry.untaken(*args)
        try:
            return entry.run(*args)
        except Exception:
            if not self._is_unlikely:
                raise
            return entry.run(*map(harmless_values, args))

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
            output_values = [self.value_of(t) for t in outputs]
            input_values = [self.value_of(t) for t in inputs]
        with grad_mode(create_graph), at_one_location(self):
            return reverse_through(self, output_values, input_values, cotangents)

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


def _without_arguments(args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Return the results, none of which is an argument itself.

    Paddle's ``contiguous`` may return its argument. A tensor stands for one value, so
    we return another tensor on the same memory.
    """
    arg_ids = {*map(id, tensors_in(args))}
    return [x.detach() if id(x) in arg_ids else x for x in results]
