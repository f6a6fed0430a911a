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
from .calls import Call
from .entry import define, holds_for_complex, reverse_of


class _TensorSlot:
    """A stand-in for a tensor among arguments and results, none of which is kept."""


_numbers = itertools.count()


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
    _results: list[Any]
    _nesting: Any
    _kinds: list[str]

    def __init__(self, layer: Any, args: Any, kwargs: Any) -> None:
        self.name = layer.__name__
        self._layer = layer
        self._count, self._names = len(args), tuple(kwargs)
        # In the order of the call, in which gradients are given.
        given = [*args, *kwargs.values()]
        leaves, self._spec = _flatten(given)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._leaves = [*map(_without_tensor, leaves)]
        self._flags = [x.stop_gradient for x in self.tensors]
        self._holding = [
            (_kind_of_argument(argument), len(own))
            for argument in given
            if (own := tensors_in_tree(argument))
        ]
        """Arguments that hold tensors: the kind of each, and how many it holds."""
        self._number = next(_numbers)
        self._first: list[Tensor] | None = None

    def __repr__(self) -> str:
        return f"{self.name}(no. {self._number})"

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """Return the arguments with other tensors."""
        given = self._spec.unflatten(_filled(self._leaves, tensors))
        named = zip(self._names, given[self._count :], strict=True)
        return given[: self._count], dict(named)

    def _context(self) -> tuple[Any, list[bool]]:
        """Return the shared context, and whether missing cotangents are zeros."""
        context, fills = self._layer._backward_function(), [True]
        context.set_materialize_grads = lambda value: fills.__setitem__(0, value)
        return context, fills

    def _forward(
        self, context: Any, tensors: Sequence[Tensor], wanted: Sequence[int] = ()
    ) -> Any:
        """Call forward as Paddle does: without a graph, tensors with their flags."""
        given = [x.detach() for x in tensors]
        for i, (x, flag) in enumerate(zip(given, self._flags, strict=True)):
            x.stop_gradient = flag and i not in wanted
        args, kwargs = self.filled(given)
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
        before = [x._inplace_version() for x in copies]
        context, _ = self._context()
        with watching:
            result = self._forward(context, copies)
        if [x._inplace_version() for x in copies] != before:
            raise ValueError(
                f"the forward of the PyLayer {self.name} writes into an argument, "
                "which others read; have it write into a copy"
            )
        if not isinstance(result, Tensor | list | tuple):
            raise ValueError(
                f"the forward of the PyLayer {self.name} gives a "
                f"{type(result).__name__}; have it give a tensor, or a tuple of them"
            )
        leaves, self._nesting = _flatten(result)
        self._results = [*map(_without_tensor, leaves)]
        made = tensors_in_tree(result)
        self._kinds = [*map(_kind, made)]
        marked = {*map(id, context.non_differentiable or ())}
        self.fixed = [id(y) in marked for y in made]
        self._first, self.tensors = _own_copies(made), []

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """Return a result that holds these tensors."""
        return self._nesting.unflatten(_filled(self._results, tensors))

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the tensors among the results.

        Raises:
            ValueError: they differ from those of the first call.
        """
        first, self._first = self._first, None
        if first is not None:
            return first
        results = tensors_in_tree(self._forward(self._context()[0], tensors))
        if (kinds := [*map(_kind, results)]) != self._kinds:
            raise ValueError(
                f"the PyLayer {self.name} gives {kinds}, and gave {self._kinds} when "
                "it was traced; have it give the same shapes and dtypes at each call"
            )
        return _own_copies(results)

    def on_graph(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Return the same, with a graph."""
        args, kwargs = self.filled(tensors)
        return [*tensors_in_tree(native_apply(guarded(self._layer))(*args, **kwargs))]

    def back(
        self,
        tensors: Sequence[Tensor],
        cotangents: Sequence[Tensor | None],
        wanted: Sequence[int],
    ) -> list[Tensor | None]:
        """Return its backward's result for each of the tensors, without a graph.

        Paddle's engine is not asked, since a program may run within a hook of it.
        """
        context, fills = self._context()
        results = tensors_in_tree(self._forward(context, tensors, wanted))
        seeds = [
            paddle.zeros_like(y) if g is None and fills[0] else copy_of_cotangent(g)
            for y, g in zip(results, cotangents, strict=True)
        ]
        with grad_mode(False):
            outcomes = self._layer.backward(context, *seeds)
        requested = [kind for kind, _ in self._holding if kind is not None]
        is_one = requested == ["list"]
        if not isinstance(outcomes, Tensor | list | tuple | None):
            outcomes = (*outcomes,)  # of a generator
        is_row = isinstance(outcomes, tuple) or (
            isinstance(outcomes, list) and not is_one
        )
        parts = [*outcomes] if is_row else [outcomes]
        missing = len(requested) - len(parts)
        if missing < 0:
            raise ValueError(
                f"the backward of the PyLayer {self.name} gives {len(parts)} gradients "
                f"for {len(requested)} arguments; have it give one, or None, for "
                "each"
            )
        grads: list[Tensor | None] = []
        rest = iter([*parts, *[None] * missing])
        for kind, count in self._holding:
            part = None if kind is None else next(rest)
            grads += part if kind == "list" and part is not None else [part] * count
        return grads


class Gradient:
    """Gradients of a call of a PyLayer, or of such gradients, as a function.

    Args:
        of: the function that is differentiated.
        count: how many tensors it takes; the cotangents come after them.
        ends: positions of the results that have cotangents.
        wanted: positions of the tensors whose gradients are asked for.
        results: how many results there are.
    """

    def __init__(
        self,
        of: LayerCall | Gradient,
        count: int,
        ends: Sequence[int],
        wanted: Sequence[int],
        results: int,
    ) -> None:
        self._of, self._count, self._results = of, count, results
        self._ends, self._wanted = ends, wanted
        self.name: str = of.name
        self._first: list[Tensor] | None = None

    def __repr__(self) -> str:
        return f"gradient of {self._of!r}"

    def begin(self, leaves: Sequence[Tensor]) -> list[bool]:
        """Return which of the gradients exist; the next call gives those.

        Raises:
            ValueError: the backward writes into an argument of the layer.
        """
        copies = [x.detach().clone() for x in leaves]
        results = self._gradients(copies)
        if any(x.inplace_version for x in copies):
            raise ValueError(
                f"the backward of the PyLayer {self.name} writes into an argument of "
                "its forward, which others read; have it write into a copy"
            )
        self._first = _own_copies(g for g in results if g is not None)
        there = [g is not None for g in results]
        self._wanted = [i for i, flag in zip(self._wanted, there, strict=True) if flag]
        return there

    def __call__(self, *leaves: Tensor) -> list[Tensor]:
        """Return the gradients, with zeros for those missing now."""
        first, self._first = self._first, None
        if first is not None:
            return first
        results = zip(self._gradients(leaves), self._wanted, strict=True)
        return _own_copies(
            paddle.zeros_like(leaves[i]) if g is None else g for g, i in results
        )

    def _gradients(self, leaves: Sequence[Tensor]) -> list[Tensor | None]:
        tensors, given = leaves[: self._count], leaves[self._count :]
        if isinstance(self._of, LayerCall):
            cotangents: list[Tensor | None] = [None] * self._results
            for i, g in zip(self._ends, given, strict=True):
                cotangents[i] = g
            every = self._of.back(tensors, cotangents, self._wanted)
            return [every[i] for i in self._wanted]
        return self._by_paddle([x.detach() for x in tensors], given, False)

    def on_graph(self, leaves: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the same, with a graph."""
        tensors, given = leaves[: self._count], leaves[self._count :]
        return self._by_paddle(tensors, given, True)

    def _by_paddle(
        self, tensors: Sequence[Tensor], given: Sequence[Tensor], create_graph: bool
    ) -> list[Tensor | None]:
        with grad_mode(True):
            starts: list[Any] = [*tensors]
            for i, x in enumerate(starts):
                if is_differentiable(x) and x.stop_gradient:
                    leaf = x.detach()
                    leaf.stop_gradient = False
                    starts[i] = leaf.clone()  # which a layer may give as it is
            results = self._of.on_graph(starts)
            every = [(results[i], g) for i, g in zip(self._ends, given, strict=True)]
            pairs = [(y, g) for y, g in every if y is not None and not y.stop_gradient]
            # Of all, since a PyLayer must give None for what is not asked for.
            requested = [i for i, x in enumerate(starts) if is_differentiable(x)]
            outcomes = gradients(
                [y for y, _ in pairs],
                [starts[i] for i in requested],
                [g for _, g in pairs],
                create_graph,
            )
            by = dict(zip(requested, outcomes, strict=True))
            return [by[i] for i in self._wanted]


def _flatten(tree: Any) -> tuple[list[Any], Any]:
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
    return [*leaves], spec


def _kind_of_argument(argument: Any) -> str | None:
    """Return what a gradient of an argument is; None where Paddle asks for none."""
    if not has_gradient(argument):
        return None
    return "tensor" if isinstance(argument, Tensor) else "list"


def _without_tensor(leaf: Any) -> Any:
    return _TensorSlot if isinstance(leaf, Tensor) else leaf


def _filled(leaves: Sequence[Any], tensors: Iterable[Tensor]) -> list[Any]:
    each = iter(tensors)
    return [next(each) if leaf is _TensorSlot else leaf for leaf in leaves]


def _own_copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return copies in memory of their own, since a layer may keep its results."""
    return [x.detach().clone() for x in tensors]


def _kind(x: Tensor) -> str:
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
    ends = [i for i, _ in pairs]
    gradient = Gradient(function, len(tensors), ends, wanted, len(call.outputs))
    given = [*tensors, *(g for _, g in pairs)]
    with not_listening():
        there = gradient.begin(given)
    places = [i for i, flag in zip(wanted, there, strict=True) if flag]
    results = PY_LAYER.every([gradient, *given]) if places else []
    for i, grad in zip(places, results, strict=True):
        grads[i + 1] = grad
    return grads
