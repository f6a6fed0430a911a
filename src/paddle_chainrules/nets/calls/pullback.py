"""Pullbacks from the cotangent of a net's output to its parameters and arguments."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, overload

from paddle import Tensor
from paddle.jit import not_to_static

from ...paddle_side.autograd.row_sparse import RowSparse
from ...paddle_side.static_graphs import need_tensors, sot
from ...transforms.containers.tree import Tree, cotangent_leaves, flatten_tree, nesting
from ...transforms.derivatives.typed import Y_co
from ...transforms.recordings.kept_graph import KeptGraph
from ...transforms.recordings.recording import Recording
from ..parameters.param_trees import ParamTree
from ..parameters.params import ParamSpec
from .grad_buffers import Primal, check_buffers, write
from .inputs import CallStructure
from .wrt import WRT, Flags, Wrt, flags_per_param, items_of, needs_grad, select_names


class NetPullback(KeptGraph, abc.ABC, Generic[Y_co]):
    """Cotangent of a net's output to the gradients of its parameters and arguments."""

    def __init__(self, form: CallStructure) -> None:
        self._form = form

    @overload
    def __call__(
        self, cotangent: Tree, *, sparse: Wrt | bool = False
    ) -> tuple[Y_co, tuple[Any, ...]]: ...

    @overload
    def __call__(
        self,
        cotangent: Tree,
        *,
        wrt: Wrt = WRT,
        into: tuple[Tree, ...] | None = None,
        accumulate: bool = False,
        sparse: Wrt | bool = False,
    ) -> tuple[Any, ...]: ...

    @not_to_static  # whose defaults Paddle's transformation does not find
    def __call__(
        self,
        cotangent: Tree,
        *,
        wrt: Wrt = WRT,
        into: tuple[Tree, ...] | None = None,
        accumulate: bool = False,
        sparse: Wrt | bool = False,
    ) -> tuple[Tree, ...]:
        """Return ``(grad_params, grad_args)``, nested as the inputs.

        A third, ``grad_kwargs``, comes if it is asked for. Further calls are allowed.

        Args:
            cotangent: nested as the output, with its shapes and dtypes.
            wrt: what to differentiate with respect to: ``"params"``, ``"args"``, names
                of parameters or patterns of them such as ``"encoder.*"``, positions of
                arguments, predicates of names, ``"kwargs"`` or names of keyword
                arguments, or several of these. Gradients that are not asked for are not
                computed, and come back as None.
            into: in place of ``wrt``, the same pair, or the three, of the caller's own
                tensors, to write the gradients into. None stands for a gradient that is
                not wanted, which is not computed.
            accumulate: add to the values in ``into`` instead of replacing them.
            sparse: parameters whose gradients to give as :class:`RowSparse`: names,
                patterns or predicates, or True for all. If the layer computes them so
                (``Embedding(sparse=True)``) no dense one is made. A RowSparse in
                ``into`` asks for the same.

        Returns:
            New tensors, or those of ``into``.

        Raises:
            ValueError: an unknown name in wrt; a cotangent of another structure or
                shape; a buffer of another structure, shape or device, or one that
                overlaps another, a parameter or an argument.
            TypeError: a cotangent or a buffer of another dtype; a cotangent of an
                output that has no derivative.

        If an error is raised, nothing is written.
        """
        need_tensors(sot.fallback(True))
        if into is not None:
            if wrt is not WRT:
                raise ValueError(
                    "wrt and into both say what is wanted; give one of them, with None "
                    "in into for what is not"
                )
            if sparse:
                raise ValueError("into says what is sparse: give a RowSparse there")
            return self._write(cotangent, into, accumulate)
        if accumulate:
            raise ValueError("accumulate adds to the tensors of into; give them too")
        sparse_positions = self._sparse_positions(sparse)
        if wrt is WRT:
            return self._nested(self._gradients(cotangent, None, sparse_positions))
        children, keywords = self._form.args.children(), self.keywords
        requested = needs_grad(wrt, self._form.spec.names, len(children), keywords)
        by_params, by_args = any(requested.params), any(requested.args)
        if self._form.order is None and by_params and not all(requested.params):
            raise ValueError(
                "wrt names some parameters, but they came as one theta, which has one "
                "gradient; pass a dict, or ask for 'params'"
            )
        flags = [by_params] if self._form.order is None else [*requested.params]
        for child, flag in zip(children, requested.args, strict=True):
            flags += [flag] * child.num_leaves
        if requested.kwargs is not None:
            children_and_keywords = zip(
                self._form.kwargs.children(), keywords, strict=True
            )
            for child, keyword in children_and_keywords:
                flags += [requested.kwargs[keyword]] * child.num_leaves
        grads = self._gradients(cotangent, flags, sparse_positions)
        grad_params, grad_args = self._nested(grads)
        if by_args and not all(requested.args):
            grad_args = tuple(
                grad if flag else None
                for grad, flag in zip(grad_args, requested.args, strict=True)
            )
        results = grad_params if by_params else None, grad_args if by_args else None
        if requested.kwargs is None:
            return results
        stop = self._form.param_leaves + self._form.args.num_leaves
        by_keyword: Any = self._form.kwargs.unflatten(grads[stop:])
        return *results, {
            n: g if requested.kwargs[n] else None for n, g in by_keyword.items()
        }

    def _sparse_positions(self, sparse: Wrt | bool) -> Sequence[int]:
        if sparse is False:
            return ()
        if self._form.order is None:
            raise ValueError(
                "sparse names parameters, but they came as one theta, whose gradient "
                "is dense; pass a dict"
            )
        names = self._form.spec.names
        items = ["params"] if sparse is True else items_of(sparse)
        chosen = {n for item in items for n in select_names(item, names, "sparse")}
        return [i for i, name in enumerate(names) if name in chosen]

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names of the keyword arguments of the call."""
        return tuple(self._form.kwargs.entries())

    def _write(
        self, cotangent: Tree, into: tuple[Tree, ...], accumulate: bool
    ) -> tuple[Tree, ...]:
        if not isinstance(into, tuple) or len(into) not in (2, 3):
            raise TypeError(
                "into must be a pair, of buffers for the parameters and a tuple of "
                "buffers for the arguments, or these and a dict for the keyword "
                f"arguments, got {type(into).__name__}; give None for what is not "
                "wanted"
            )
        for_params, for_args, *for_kwargs = into
        buffers = [*self._param_buffers(for_params), *self._arg_buffers(for_args)]
        for buffers_by_keyword in for_kwargs:
            buffers += self._kwarg_buffers(buffers_by_keyword)
        check_buffers(buffers, self._primals()[: len(buffers)])
        flags = [buffer is not None for buffer in buffers]
        sparse_positions = [
            i for i, buffer in enumerate(buffers) if isinstance(buffer, RowSparse)
        ]
        write(buffers, self._gradients(cotangent, flags, sparse_positions), accumulate)
        return into

    def _param_buffers(self, into: Tree) -> list[Any]:
        if into is None:
            return [None] * self._form.param_leaves
        if self._form.order is None:
            return [into]
        if isinstance(self._form.order, ParamTree):
            into = self._form.order.leaves(into)
        _check_names(into, self._form.order, "parameters")
        return [into[name] for name in self._form.spec.names]

    def _arg_buffers(self, into: Tree) -> list[Any]:
        children = self._form.args.children()
        if into is None:
            into = (None,) * len(children)
        if not isinstance(into, tuple) or len(into) != len(children):
            raise ValueError(
                f"into for the arguments must be None or a tuple of {len(children)}, "
                f"one for each, got {into!r}; give None for what is not wanted"
            )
        return [
            leaf
            for i, (buffers, child) in enumerate(zip(into, children, strict=True))
            for leaf in _buffer_leaves(child, buffers, f"argument {i}")
        ]

    def _kwarg_buffers(self, into: Tree) -> list[Any]:
        keywords = self.keywords
        if into is None:
            into = dict.fromkeys(keywords)
        _check_names(into, keywords, "keyword arguments")
        return [
            leaf
            for name, child in zip(keywords, self._form.kwargs.children(), strict=True)
            for leaf in _buffer_leaves(child, into[name], f"argument {name!r}")
        ]

    def _nested(self, grads: Sequence[Any]) -> tuple[Tree, Tree]:
        """Nest flat gradients as the parameters and the arguments."""
        form = self._form
        count = form.param_leaves
        if form.order is None:
            grad_params = grads[0]
        else:
            grad_params = form.spec.named(grads[:count], form.order)
            if isinstance(form.order, ParamTree):
                grad_params = form.order.nested(grad_params)
        return grad_params, form.args.unflatten(
            grads[count : count + form.args.num_leaves]
        )

    @abc.abstractmethod
    def _gradients(
        self,
        cotangent: Tree,
        flags: Sequence[bool] | None,
        sparse: Sequence[int] = (),
    ) -> Sequence[Any]:
        """Return gradients of parameters in forward order, or theta, then of arguments.

        Only leaves whose flag is on get a gradient, others None; without flags all do.
        Flags may go on with those of the keyword arguments' leaves. Gradients at the
        ``sparse`` positions are RowSparse.
        """

    @abc.abstractmethod
    def _primals(self) -> list[Primal]:
        """Return the values that these gradients are taken with respect to."""


def _check_names(buffers: Tree, names: Sequence[str], what: str) -> None:
    """Refuse buffers by name that have other names."""
    if not isinstance(buffers, Mapping) or buffers.keys() != set(names):
        given_names = (
            list(buffers) if isinstance(buffers, Mapping) else type(buffers).__name__
        )
        raise ValueError(
            f"into for the {what} must be None or a dict with the names "
            f"{list(names)}, None where one is not wanted; got {given_names}"
        )


def _buffer_leaves(arg_spec: Any, buffers: Tree, what: str) -> list[Any]:
    """Return a buffer per leaf of one argument; None for each if none is given."""
    if buffers is None:
        return [None] * int(arg_spec.num_leaves)
    leaves, buffers_spec = flatten_tree(buffers)
    if buffers_spec != arg_spec:
        raise ValueError(
            f"into for {what} is nested as {nesting(buffers_spec)}, the argument as "
            f"{nesting(arg_spec)}; they must be equal, with None where one is not "
            "wanted"
        )
    return leaves


class RecordedPullback(NetPullback[Any]):
    """The pullback of any net, from the record of a call."""

    def __init__(self, recording: Recording, form: CallStructure) -> None:
        super().__init__(form)
        self._recording = recording

    def _gradients(
        self,
        cotangent: Tree,
        flags: Sequence[bool] | None,
        sparse: Sequence[int] = (),
    ) -> Sequence[Any]:
        leaves = cotangent_leaves(cotangent, self._form.output)
        return self._recorded_gradients(leaves, flags, sparse)

    def _recorded_gradients(
        self,
        cotangents: Sequence[Tensor | None],
        flags: Sequence[bool] | None,
        sparse: Sequence[int] = (),
    ) -> list[Any]:
        """Return a gradient for each flag, or for all parameters and arguments."""
        form, recording = self._form, self._recording
        count = form.param_leaves + form.args.num_leaves
        if flags is None and len(recording.leaves) == count:
            return recording.gradients(cotangents, None, sparse)
        requested: Collection[int] = range(count)
        if flags is not None:
            requested = {i for i, flag in enumerate(flags) if flag}
            count = len(flags)
        return recording.gradients(cotangents, requested, sparse)[:count]

    def _primals(self) -> list[Primal]:
        args = self._form.args.num_leaves + self._form.kwargs.num_leaves
        count = self._form.param_leaves + args
        values = self._recording.leaves[:count]
        names = param_labels(self._form.spec, self._form.order)
        labels = [*names, *(["an argument"] * (len(values) - len(names)))]
        return [Primal(*pair) for pair in zip(labels, values, strict=True)]

    @property
    def nodes(self) -> int:
        """Operators on the graph that is kept."""
        return self._recording.nodes

    def _flat_gradients(
        self,
        cotangents: Sequence[Tensor | None],
        params: Flags,
        args: bool,
    ) -> list[Tensor | None]:
        """Return flat gradients: of the parameters, then of all arguments' leaves.

        More cotangents than the output has leaves are left out.
        """
        cotangents = cotangents[: self._form.output.num_leaves]
        count = self._form.args.num_leaves + self._form.kwargs.num_leaves
        if params is True and args and count == self._form.args.num_leaves:
            return self._recorded_gradients(cotangents, None)
        flags = [*flags_per_param(params, self._form.param_leaves), *[args] * count]
        return self._recorded_gradients(cotangents, flags)


def param_labels(spec: ParamSpec, order: tuple[str, ...] | None) -> list[str]:
    """Return the names of parameters for an error."""
    if order is None:
        return ["theta"]
    return [f"params[{name!r}]" for name in spec.names]
