"""Calls of a ``PyLayer`` as operators, which Python runs each time.

We do not look into a PyLayer. Its forward runs as it is, and its backward gives the
gradient. Derivatives of that gradient are Paddle's own, of the backward on a graph.
They are refused where the backward leaves Paddle.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import optree
import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.guarded_layers import (
    copy_of_cotangent,
    guarded,
    has_gradient,
    tensors_in_tree,
)
from ...paddle_side.autograd.py_layer_calls import native_apply
from ...paddle_side.dtypes import dtype_name, is_differentiable
from ...paddle_side.listener import not_listening
from ...paddle_side.rules.in_place import refuse_other_uses
from ...paddle_side.rules.operators import TapeContext
from .calls import Call
from .entry import define, holds_for_complex, reverse_of


class _TensorSlot:
    """A placeholder for a tensor among arguments and results, none of which is held."""


_call_numbers = itertools.count()


class LayerCall:
    """A call of a PyLayer as a function of its tensors alone.

    Args:
        layer: the subclass of ``PyLayer``.
        args: the positional arguments of the call.
        kwargs: the keyword arguments of the call.

    Attributes:
        tensors: the tensors that :meth:`begin` calls it with.
        fixed: for each result tensor, whether the layer marks it as not differentiable;
            known after the first call.
    """

    fixed: list[bool]
    _result_leaves: list[Any]
    _result_spec: Any
    _types: list[str]

    def __init__(self, layer: Any, args: Any, kwargs: Any) -> None:
        self.name = layer.__name__
        self._layer = layer
        self._num_args, self._keywords = len(args), tuple(kwargs)
        # In the order of the call, in which gradients are given.
        arguments = [*args, *kwargs.values()]
        leaves, self._arg_spec = _flatten(arguments)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._arg_leaves = [*map(_slot_of, leaves)]
        self._stop_gradients = [x.stop_gradient for x in self.tensors]
        self._tensor_arguments = [
            (_gradient_kind(argument), len(tensors))
            for argument in arguments
            if (tensors := tensors_in_tree(argument))
        ]
        """Arguments that hold tensors: the kind of each gradient, and their number."""
        self._number = next(_call_numbers)
        self._pending: list[Tensor] | None = None

    def __repr__(self) -> str:
        return f"{self.name}(no. {self._number})"

    def arguments_with(self, tensors: Sequence[Tensor]) -> Any:
        """Return the arguments with other tensors."""
        arguments = self._arg_spec.unflatten(_fill_slots(self._arg_leaves, tensors))
        keywords = zip(self._keywords, arguments[self._num_args :], strict=True)
        return arguments[: self._num_args], dict(keywords)

    def _context(self) -> tuple[Any, list[bool]]:
        """Return the shared context, and whether missing cotangents are zeros."""
        context, materializes = self._layer._backward_function(), [True]
        context.set_materialize_grads = lambda value: materializes.__setitem__(0, value)
        return context, materializes

    def _forward(
        self, context: Any, tensors: Sequence[Tensor], wanted: Sequence[int] = ()
    ) -> Any:
        """Call forward as Paddle does: without a graph, tensors with their flags."""
        copies = [x.detach() for x in tensors]
        for i, (x, flag) in enumerate(zip(copies, self._stop_gradients, strict=True)):
            x.stop_gradient = flag and i not in wanted
        args, kwargs = self.arguments_with(copies)
        with grad_mode(False):
            return self._layer.forward(context, *args, **kwargs)

    def begin(self, watching: Any) -> None:
        """Call the layer at copies of the tensors; the next call gives the results.

        Args:
            watching: a context for the call.

        Raises:
            ValueError: the forward writes into an argument.
        """
        copies = [x.detach().clone() for x in self.tensors]
        versions = [x._inplace_version() for x in copies]
        context, _ = self._context()
        with watching:
            result = self._forward(context, copies)
        if [x._inplace_version() for x in copies] != versions:
            raise ValueError(
                f"the forward of the PyLayer {self.name} writes into an argument, "
                "which others read; have it write into a copy"
            )
        if not isinstance(result, Tensor | list | tuple):
            raise ValueError(
                f"the forward of the PyLayer {self.name} gives a "
                f"{type(result).__name__}; have it give a tensor, or a tuple of them"
            )
        leaves, self._result_spec = _flatten(result)
        self._result_leaves = [*map(_slot_of, leaves)]
        outputs = tensors_in_tree(result)
        self._types = [*map(_dtype_and_shape, outputs)]
        nondifferentiable = {*map(id, context.non_differentiable or ())}
        self.fixed = [id(y) in nondifferentiable for y in outputs]
        self._pending, self.tensors = _detached_copies(outputs), []

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """Return a result that holds these tensors."""
        return self._result_spec.unflatten(_fill_slots(self._result_leaves, tensors))

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the tensors among the results.

        Raises:
            ValueError: they differ from those of the first call.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            return pending
        results = tensors_in_tree(self._forward(self._context()[0], tensors))
        if (kinds := [*map(_dtype_and_shape, results)]) != self._types:
            raise ValueError(
                f"the PyLayer {self.name} gives {kinds}, and gave {self._types} when "
                "it was traced; have it give the same shapes and dtypes at each call"
            )
        return _detached_copies(results)

    def on_graph(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Return the same, with a graph."""
        args, kwargs = self.arguments_with(tensors)
        return [*tensors_in_tree(native_apply(guarded(self._layer))(*args, **kwargs))]

    def backward(
        self,
        tensors: Sequence[Tensor],
        cotangents: Sequence[Tensor | None],
        wanted: Sequence[int],
    ) -> list[Tensor | None]:
        """Return the layer's gradient for each of the tensors, without a graph.

        Paddle's engine is not used, since a program may run within a hook of it.
        """
        context, materializes = self._context()
        results = tensors_in_tree(self._forward(context, tensors, wanted))
        seeds = [
            paddle.zeros_like(y)
            if g is None and materializes[0]
            else copy_of_cotangent(g)
            for y, g in zip(results, cotangents, strict=True)
        ]
        with grad_mode(False):
            result = self._layer.backward(context, *seeds)
        requested = [kind for kind, _ in self._tensor_arguments if kind is not None]
        is_single_list = requested == ["list"]
        if not isinstance(result, Tensor | list | tuple | None):
            result = (*result,)  # of a generator
        is_sequence = isinstance(result, tuple) or (
            isinstance(result, list) and not is_single_list
        )
        returned = [*result] if is_sequence else [result]
        missing = len(requested) - len(returned)
        if missing < 0:
            raise ValueError(
                f"the backward of the PyLayer {self.name} gives {len(returned)} "
                f"gradients for {len(requested)} arguments; have it give one, or "
                "None, for each"
            )
        grads: list[Tensor | None] = []
        remaining = iter([*returned, *[None] * missing])
        for kind, count in self._tensor_arguments:
            grad = None if kind is None else next(remaining)
            grads += grad if kind == "list" and grad is not None else [grad] * count
        return grads


class Gradient:
    """Gradients of a call of a PyLayer, or of such gradients, as a function.

    Args:
        function: the function that is differentiated.
        num_tensors: how many tensors it takes; the cotangents come after them.
        seeded: positions of the results that have cotangents.
        wanted: positions of the tensors whose gradients are requested.
        num_results: how many results there are.
    """

    def __init__(
        self,
        function: LayerCall | Gradient,
        num_tensors: int,
        seeded: Sequence[int],
        wanted: Sequence[int],
        num_results: int,
    ) -> None:
        self._function, self._num_tensors, self._num_results = (
            function,
            num_tensors,
            num_results,
        )
        self._seeded, self._wanted = seeded, wanted
        self.name: str = function.name
        self._pending: list[Tensor] | None = None

    def __repr__(self) -> str:
        return f"gradient of {self._function!r}"

    def begin(self, leaves: Sequence[Tensor]) -> list[bool]:
        """Return which of the gradients exist; the next call gives those.

        Raises:
            ValueError: the backward writes into an argument of the layer.
        """
        copies = [x.detach().clone() for x in leaves]
        grads = self._compute_gradients(copies)
        if any(x.inplace_version for x in copies):
            raise ValueError(
                f"the backward of the PyLayer {self.name} writes into an argument of "
                "its forward, which others read; have it write into a copy"
            )
        self._pending = _detached_copies(g for g in grads if g is not None)
        exists = [g is not None for g in grads]
        self._wanted = [i for i, flag in zip(self._wanted, exists, strict=True) if flag]
        return exists

    def __call__(self, *leaves: Tensor) -> list[Tensor]:
        """Return the gradients, with zeros for those missing now."""
        pending, self._pending = self._pending, None
        if pending is not None:
            return pending
        grads = zip(self._compute_gradients(leaves), self._wanted, strict=True)
        return _detached_copies(
            paddle.zeros_like(leaves[i]) if g is None else g for g, i in grads
        )

    def _compute_gradients(self, leaves: Sequence[Tensor]) -> list[Tensor | None]:
        tensors, seeds = leaves[: self._num_tensors], leaves[self._num_tensors :]
        if isinstance(self._function, LayerCall):
            cotangents: list[Tensor | None] = [None] * self._num_results
            for i, g in zip(self._seeded, seeds, strict=True):
                cotangents[i] = g
            grads = self._function.backward(tensors, cotangents, self._wanted)
            return [grads[i] for i in self._wanted]
        return self._run_engine([x.detach() for x in tensors], seeds, False)

    def on_graph(self, leaves: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the same, with a graph."""
        tensors, seeds = leaves[: self._num_tensors], leaves[self._num_tensors :]
        return self._run_engine(tensors, seeds, True)

    def _run_engine(
        self, tensors: Sequence[Tensor], seeds: Sequence[Tensor], create_graph: bool
    ) -> list[Tensor | None]:
        with grad_mode(True):
            inputs: list[Any] = [*tensors]
            for i, x in enumerate(inputs):
                if is_differentiable(x) and x.stop_gradient:
                    leaf = x.detach()
                    leaf.stop_gradient = False
                    inputs[i] = leaf.clone()  # which a layer may give as it is
            results = self._function.on_graph(inputs)
            seeded = [(results[i], g) for i, g in zip(self._seeded, seeds, strict=True)]
            pairs = [(y, g) for y, g in seeded if y is not None and not y.stop_gradient]
            # Of all, since a PyLayer must give None for what is not asked for.
            requested = [i for i, x in enumerate(inputs) if is_differentiable(x)]
            ends = [y for y, _ in pairs], [inputs[i] for i in requested]
            cotangents = [g for _, g in pairs]
            if create_graph:
                # The layer's backward is on the graph, and may write into its tensors.
                context = TapeContext((), nests=True)
                grads = context.call(gradients, *ends, cotangents, True)
                refuse_other_uses([g for g in grads if g is not None], context.writes)
            else:
                grads = gradients(*ends, cotangents, False)
            grad_at = dict(zip(requested, grads, strict=True))
            return [grad_at[i] for i in self._wanted]


def _flatten(tree: Any) -> tuple[list[Any], Any]:
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
    return [*leaves], spec


def _gradient_kind(argument: Any) -> str | None:
    """Return "tensor" or "list" for an argument's gradient; None where it has none."""
    if not has_gradient(argument):
        return None
    return "tensor" if isinstance(argument, Tensor) else "list"


def _slot_of(leaf: Any) -> Any:
    return _TensorSlot if isinstance(leaf, Tensor) else leaf


def _fill_slots(leaves: Sequence[Any], tensors: Iterable[Tensor]) -> list[Any]:
    remaining = iter(tensors)
    return [next(remaining) if leaf is _TensorSlot else leaf for leaf in leaves]


def _detached_copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return detached copies, since a layer may hold its results."""
    return [x.detach().clone() for x in tensors]


def _dtype_and_shape(x: Tensor) -> str:
    return f"{dtype_name(x.dtype)}{list(x.shape)}"


PY_LAYER = define(
    "py_layer", "", run=lambda call, *tensors: call(*tensors), opaque=True
)
holds_for_complex("py_layer")


@reverse_of("py_layer")
def _py_layer_reverse(call: Call) -> list[Any]:
    function, *tensors = call.args
    pairs = [(i, g) for i, g in enumerate(call.cotangents) if g is not None]
    wanted = [
        i
        for i, x in enumerate(tensors)
        if i + 1 in call.wanted and is_differentiable(x)
    ]
    grads: list[Any] = [None] * len(call.args)
    seeded = [i for i, _ in pairs]
    gradient = Gradient(function, len(tensors), seeded, wanted, len(call.outputs))
    inputs = [*tensors, *(g for _, g in pairs)]
    with not_listening():
        exists = gradient.begin(inputs)
    positions = [i for i, flag in zip(wanted, exists, strict=True) if flag]
    outputs = PY_LAYER.bind([gradient, *inputs]) if positions else []
    for i, grad in zip(positions, outputs, strict=True):
        grads[i + 1] = grad
    return grads
