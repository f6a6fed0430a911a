"""What every stateless net can do: forward, vjp, pullback, flatten."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import paddle
from paddle import Tensor

from ..transforms.vjp import Tree, cotangent_leaves, flatten_tree
from ..programs.closed_form import Weights, weights_of
from ..transforms.conduct import (
    Conduct,
    copied,
    flags,
    is_refused_write,
    put_back,
    versions,
)
from .description import Description, chain_formula
from ..paddle_side.grad_mode import grad_mode
from ..paddle_side.partial_gradients import leaves_behind
from ..paddle_side.rules.in_place import refuse_other_uses
from .grad_buffers import Primal, check_buffers, write
from ..paddle_side.rules.operators import Watch
from .params import DTYPES, Params, ParamSpec, dtype_name, same_dtype
from ..transforms.recording import Recording, cut, own_memory, record, records_graph
from ..paddle_side.row_sparse import RowSparse
from ..paddle_side.watch import is_traced, watched
from ..paddle_side.write_counts import writes_counted
from .selection import WRT, Wrt, asked_for, items_of, selected

if TYPE_CHECKING:
    from .chain import Chain


def casts_automatically() -> bool:
    """Whether ``paddle.amp.auto_cast`` is on: a faster paddle.is_autocast_enabled."""
    try:
        level = paddle.base.framework._dygraph_tracer()._amp_level.value
    except AttributeError:
        return bool(paddle.is_autocast_enabled())
    return bool(level != 0)


_NO_KEYWORDS = flatten_tree({})


class _Inputs:
    """What a net is called with, as a row of leaves.

    Attributes:
        leaves: the checked parameters, or theta, then those of all arguments.
        order: the names as the caller has them in order; None for theta.
    """

    def __init__(
        self,
        spec: ParamSpec,
        params: Params,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._spec = spec
        given: list[Any]
        if isinstance(params, Tensor):
            self.order, given = None, [params]
        else:
            values = spec.as_dict(params)
            self.order, given = tuple(params), [*values.values()]
            self._whole = values, args, kwargs
        arg_leaves, self.args_spec = flatten_tree(args)
        kwarg_leaves, self.kwargs_spec = (
            flatten_tree(kwargs) if kwargs else _NO_KEYWORDS
        )
        self._start = len(given)
        self._middle = self._start + len(arg_leaves)
        self.leaves = [*given, *arg_leaves, *kwarg_leaves]

    def with_leaves(self, leaves: Sequence[Any]) -> tuple[dict[str, Any], Any, Any]:
        """Parameters as a dict, arguments and keyword arguments, of other leaves."""
        if self.order is None:
            values = self._spec.unflatten(leaves[0])
        elif leaves is self.leaves:
            return self._whole
        else:
            values = self._spec.named(leaves[: self._start])
        args = self.args_spec.unflatten(leaves[self._start : self._middle])
        if self.kwargs_spec is _NO_KEYWORDS[1]:
            return values, args, {}
        return values, args, self.kwargs_spec.unflatten(leaves[self._middle :])


class NetPullback(abc.ABC):
    """Cotangent of a net's output to the gradients of its parameters and arguments."""

    def __init__(
        self,
        spec: ParamSpec,
        order: tuple[str, ...] | None,
        args_spec: Any,
        kwargs_spec: Any = _NO_KEYWORDS[1],
    ) -> None:
        self._spec = spec
        self._order = order  # of the caller's parameters; None for one theta
        self._count = 1 if order is None else len(order)
        self._args_spec = args_spec
        self._kwargs_spec = kwargs_spec

    def __call__(
        self,
        cotangent: Tree,
        *,
        wrt: Wrt = WRT,
        into: tuple[Tree, ...] | None = None,
        accumulate: bool = False,
        sparse: Wrt | bool = False,
    ) -> tuple[Tree, ...]:
        """``(grad_params, grad_args)``, nested as the inputs; callable repeatedly.

        A third, ``grad_kwargs``, comes where it is asked for.

        Args:
            cotangent: nested as the output, with its shapes and dtypes.
            wrt: what to differentiate by: ``"params"``, ``"args"``, names of
                parameters or patterns of them such as ``"encoder.*"``, positions of
                arguments, predicates of names, ``"kwargs"`` or names of keyword
                arguments, or several of these. What is not asked for is not computed
                and comes back as None.
            into: the same pair, or the three, of the caller's own tensors, None where
                a gradient is not wanted; it is written there, and not computed where
                it is not. Instead of ``wrt``.
            accumulate: add to what is there instead.
            sparse: parameters whose gradients to give as :class:`RowSparse`: names,
                patterns or predicates, or True for all. Where the layer computes them
                so (``Embedding(sparse=True)``) no dense one is made. A RowSparse in
                ``into`` asks for the same.

        Returns:
            New tensors, or those of ``into``.

        Raises:
            ValueError: an unknown name in wrt; a cotangent of another structure or
                shape; a buffer of another structure, shape or device, or one that
                overlaps another, a parameter or an argument.
            TypeError: a cotangent or a buffer of another dtype; a cotangent of an
                output that has no derivative.

        Nothing is written where something is raised.
        """
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
        rows = self._sparse_positions(sparse)
        if wrt is WRT:
            return self._nested(self._gradients(cotangent, None, rows))
        children, keywords = self._args_spec.children(), self.keywords
        asked = asked_for(wrt, self._spec.names, len(children), keywords)
        by_params, by_args = any(asked.params), any(asked.args)
        if self._order is None and by_params and not all(asked.params):
            raise ValueError(
                "wrt names some parameters, but they came as one theta, which has one "
                "gradient; pass a dict, or ask for 'params'"
            )
        flags = [by_params] if self._order is None else [*asked.params]
        for child, flag in zip(children, asked.args, strict=True):
            flags += [flag] * child.num_leaves
        if asked.kwargs is not None:
            each = zip(self._kwargs_spec.children(), keywords, strict=True)
            for child, keyword in each:
                flags += [asked.kwargs[keyword]] * child.num_leaves
        grads = self._gradients(cotangent, flags, rows)
        grad_params, grad_args = self._nested(grads)
        if by_args and not all(asked.args):
            grad_args = tuple(
                part if flag else None
                for part, flag in zip(grad_args, asked.args, strict=True)
            )
        found = grad_params if by_params else None, grad_args if by_args else None
        if asked.kwargs is None:
            return found
        stop = self._count + self._args_spec.num_leaves
        by_keyword: Any = self._kwargs_spec.unflatten(grads[stop:])
        return *found, {
            n: g if asked.kwargs[n] else None for n, g in by_keyword.items()
        }

    def _sparse_positions(self, sparse: Wrt | bool) -> Sequence[int]:
        if sparse is False:
            return ()
        if self._order is None:
            raise ValueError(
                "sparse names parameters, but they came as one theta, whose gradient "
                "is dense; pass a dict"
            )
        names = self._spec.names
        items = ["params"] if sparse is True else items_of(sparse)
        chosen = {n for item in items for n in selected(item, names, "sparse")}
        return [i for i, name in enumerate(names) if name in chosen]

    @property
    def keywords(self) -> tuple[str, ...]:
        """Names of the keyword arguments of the call."""
        return tuple(self._kwargs_spec.entries())

    def _write(
        self, cotangent: Tree, into: tuple[Tree, ...], accumulate: bool
    ) -> tuple[Tree, ...]:
        if not isinstance(into, tuple) or len(into) not in (2, 3):
            raise TypeError(
                "into must be a pair, of buffers for the parameters and a tuple of "
                "buffers for the arguments, or these and a dict for the keyword "
                f"arguments, got {type(into).__name__}"
            )
        for_params, for_args, *for_kwargs = into
        buffers = [*self._param_buffers(for_params), *self._arg_buffers(for_args)]
        for given in for_kwargs:
            buffers += self._kwarg_buffers(given)
        check_buffers(buffers, self._primals()[: len(buffers)])
        flags = [buffer is not None for buffer in buffers]
        rows = [i for i, buffer in enumerate(buffers) if isinstance(buffer, RowSparse)]
        write(buffers, self._gradients(cotangent, flags, rows), accumulate)
        return into

    def _param_buffers(self, given: Tree) -> list[Any]:
        if given is None:
            return [None] * self._count
        if self._order is None:
            return [given]
        if not isinstance(given, Mapping) or given.keys() != set(self._order):
            found = list(given) if isinstance(given, Mapping) else type(given).__name__
            raise ValueError(
                "into for the parameters must be None or a dict with the names "
                f"{list(self._order)}, None where one is not wanted; got {found}"
            )
        return [given[name] for name in self._spec.names]

    def _arg_buffers(self, given: Tree) -> list[Any]:
        children = self._args_spec.children()
        if given is None:
            given = (None,) * len(children)
        if not isinstance(given, tuple) or len(given) != len(children):
            raise ValueError(
                f"into for the arguments must be None or a tuple of {len(children)}, "
                f"one for each, got {given!r}"
            )
        return [
            leaf
            for i, (part, child) in enumerate(zip(given, children, strict=True))
            for leaf in _leaves_as(child, part, f"argument {i}")
        ]

    def _kwarg_buffers(self, given: Tree) -> list[Any]:
        keywords = self.keywords
        if given is None:
            given = dict.fromkeys(keywords)
        if not isinstance(given, Mapping) or given.keys() != set(keywords):
            found = list(given) if isinstance(given, Mapping) else type(given).__name__
            raise ValueError(
                "into for the keyword arguments must be None or a dict with the names "
                f"{list(keywords)}, None where one is not wanted; got {found}"
            )
        return [
            leaf
            for name, child in zip(keywords, self._kwargs_spec.children(), strict=True)
            for leaf in _leaves_as(child, given[name], f"argument {name!r}")
        ]

    def _nested(self, grads: Sequence[Any]) -> tuple[Tree, Tree]:
        """Gradients in a row, nested as parameters and arguments."""
        if self._order is None:
            grad_params = grads[0]
        else:
            grad_params = self._spec.named(grads[: self._count], self._order)
        stop = self._count + self._args_spec.num_leaves
        return grad_params, self._args_spec.unflatten(grads[self._count : stop])

    @abc.abstractmethod
    def _gradients(
        self,
        cotangent: Tree,
        flags: Sequence[bool] | None,
        sparse: Sequence[int] = (),
    ) -> Sequence[Any]:
        """Of the parameters in forward order, or theta, then of the arguments' leaves.

        None where a flag is off, and computed only where it is on; all without flags.
        Flags may go on with those of the keyword arguments' leaves. Those at the
        ``sparse`` positions are RowSparse.
        """

    @abc.abstractmethod
    def _primals(self) -> list[Primal]:
        """What these are with respect to."""


def _leaves_as(structure: Any, part: Tree, what: str) -> list[Any]:
    """Buffers for one argument in a row, None where none is given."""
    if part is None:
        return [None] * int(structure.num_leaves)
    leaves, found = flatten_tree(part)
    if found != structure:
        raise ValueError(
            f"into for {what} is nested as {found}, the argument as {structure}; they "
            "must be equal, with None where one is not wanted"
        )
    return leaves


class RecordedPullback(NetPullback):
    """The pullback of any net, by the graph that Paddle records."""

    def __init__(
        self,
        recording: Recording,
        spec: ParamSpec,
        order: tuple[str, ...] | None,
        args_spec: Any,
        kwargs_spec: Any,
        out_spec: Any,
    ) -> None:
        super().__init__(spec, order, args_spec, kwargs_spec)
        self._recording = recording
        self._out_spec = out_spec

    def _gradients(
        self,
        cotangent: Tree,
        flags: Sequence[bool] | None,
        sparse: Sequence[int] = (),
    ) -> Sequence[Any]:
        leaves = cotangent_leaves(cotangent, self._out_spec)
        return self._of(leaves, flags, sparse)

    def _of(
        self,
        cotangents: Sequence[Tensor | None],
        flags: Sequence[bool] | None,
        sparse: Sequence[int] = (),
    ) -> list[Any]:
        """One for each flag, or of the parameters and arguments."""
        count = self._count + self._args_spec.num_leaves
        asked: Collection[int] | None = None
        if flags is not None:
            asked = {i for i, flag in enumerate(flags) if flag}
            count = len(flags)
        elif len(self._recording.leaves) > count:
            asked = range(count)
        return self._recording.gradients(cotangents, asked, sparse)[:count]

    def _primals(self) -> list[Primal]:
        args = self._args_spec.num_leaves + self._kwargs_spec.num_leaves
        count = self._count + args
        values = self._recording.leaves[:count]
        names = param_labels(self._spec, self._order)
        labels = [*names, *(["an argument"] * (len(values) - len(names)))]
        return [Primal(*pair) for pair in zip(labels, values, strict=True)]

    @property
    def nodes(self) -> int:
        """Operators on the graph that is kept."""
        return self._recording.nodes

    def nested_as_output(self, cotangents: Sequence[Any]) -> Tree:
        """Cotangents in a row as ``pullback`` takes them; more are left out."""
        return self._out_spec.unflatten(cotangents[: self._out_spec.num_leaves])

    def leaves(
        self,
        cotangents: Sequence[Tensor | None],
        params: bool | Sequence[bool],
        args: bool,
    ) -> list[Tensor | None]:
        """Gradients in a row: of the parameters, then of all arguments' leaves."""
        count = self._args_spec.num_leaves + self._kwargs_spec.num_leaves
        if params is True and args and count == self._args_spec.num_leaves:
            return self._of(cotangents, None)
        flags = [params] * self._count if isinstance(params, bool) else [*params]
        return self._of(cotangents, flags + [args] * count)


def param_labels(spec: ParamSpec, order: tuple[str, ...] | None) -> list[str]:
    """What to call parameters in an error."""
    if order is None:
        return ["theta"]
    return [f"params[{name!r}]" for name in spec.names]


class Net(abc.ABC):
    """A net without state: parameters come in with every call.

    ``params`` is a dict ``{name: tensor}`` in forward order, or the flat vector theta;
    gradients come back in the form that came in. A call records a graph on the
    caller's tensors only where one of them asks for it (``stop_gradient=False``, with
    gradients on), and changes none of them.
    """

    @property
    @abc.abstractmethod
    def spec(self) -> ParamSpec:
        """Names, shapes and dtypes of the parameters."""

    @abc.abstractmethod
    def _apply(self, params: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tree:
        """The net's formula on checked parameters."""

    def _check(self, params: Params, args: tuple[Any, ...]) -> None:  # noqa: B027
        """Refuse bad arguments in the caller's own terms."""

    def describe(self) -> Description:
        """Formula, and name, shape and dtype of each parameter, as a table to print."""
        spec = self.spec
        shapes = [str(list(shape)) for shape in spec.shapes]
        rows = zip(spec.names, shapes, spec.dtypes, strict=True)
        return Description(
            repr(self), self._formula(), tuple(("", *row) for row in rows), spec.size
        )

    def _formula(self) -> str:
        """The net in a line."""
        if self.chain is None:
            return f"y = {type(self).__name__}(...)"
        return chain_formula(self.chain.activation, len(self.spec.names) // 2)

    def flatten(self, params: Mapping[str, Tensor]) -> Tensor:
        """The flat 1-D theta of a parameter dict; see :meth:`unflatten`."""
        return self.spec.flatten(params)

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """The parameter dict of a flat 1-D theta; inverse of :meth:`flatten`."""
        return self.spec.unflatten(theta)

    def forward(self, params: Params, *args: Any, **kwargs: Any) -> Tree:
        """The output at ``args`` with the given parameters.

        Raises:
            TypeError: a wrong type or dtype.
            ValueError: a wrong name, shape or device.
        """
        self._check(params, args)
        if (weights := self._closed_weights(params, args, kwargs)) is not None:
            assert self.chain is not None
            return self.chain.value(weights, args[0])
        return self._forward(params, args, kwargs, {})

    def _forward(
        self,
        params: Params,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: dict[str, Any],
    ) -> Tree:
        conduct = self._conduct
        if conduct.asks:
            return self._recorded(params, args, kwargs, constants)[0]
        inputs = _Inputs(self.spec, params, args, kwargs)
        leaves = given = inputs.leaves
        copies = conduct.copies
        if copies:
            given = [*map(copied, leaves)]
        before = 0 if copies else versions(leaves)

        def apply(given: list[Any]) -> Tree:
            values, args, kwargs = inputs.with_leaves(given)
            return self._apply(values, *args, **kwargs, **constants)

        watch = None
        traced = enabled = paddle.is_grad_enabled() and watched()
        if not traced:
            if traced := records_graph(leaves, bool(conduct.reaches)):
                watch = Watch((), by_caller=True)
            first = conduct.reaches is None and not traced
            enabled = traced or (first and paddle.is_grad_enabled())
        with grad_mode(enabled), writes_counted():
            required = flags(given)
            try:
                output = watch.call(apply, given) if watch else apply(given)
            except Exception as error:
                refused = is_refused_write(error) and not copies
                if flags(given) == required and not refused:
                    raise
                if refused:
                    conduct.writes = True
            if flags(given) != required:
                put_back(given, required)
                conduct.asks = True
                return self._forward(params, args, kwargs, constants)
            if conduct.writes and not copies:
                return self._forward(params, args, kwargs, constants)
            if copies:
                conduct.learn(given, leaves)
            else:
                conduct.check(leaves, before)
            outputs, out_spec = flatten_tree(output)
            if watch and watch.writes:
                refuse_other_uses(outputs, watch.writes)
            if enabled and not traced:
                conduct.note_beyond(leaves_behind(filter(is_traced, outputs)))
            held = [*leaves, *self._shared()]
            if constants:
                held += flatten_tree(constants)[0]
            return out_spec.unflatten(own_memory(outputs, held))

    def _shared(self) -> Sequence[Tensor]:
        """What is the net's own, and not to be handed out."""
        return ()

    @property
    def _conduct(self) -> Conduct:
        """What calls have shown of the net's formula."""
        return Conduct(writes=False, reaches=False)

    @property
    def chain(self) -> Chain | None:
        """The net's closed form, where it has one."""
        return None

    def pullback(self, params: Params, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """``(output, pullback)``: one forward, then any number of pullbacks.

        Keyword arguments are passed on; the pullback differentiates by them where it
        is asked to.

        Chains of Linear layers go in closed form, everything else and every gradient
        that is to be differentiated once more (a tensor with ``stop_gradient=False``
        while gradients are on) by ``paddle.grad``.
        """
        self._check(params, args)
        if (weights := self._closed_weights(params, args, kwargs)) is not None:
            assert self.chain is not None
            order = None if isinstance(params, Tensor) else tuple(params)
            return self.chain.pullback(weights, args[0], order)
        return self.recorded(params, args, kwargs)

    def recorded(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """As :meth:`pullback`, on a recorded graph; arguments are not checked."""
        return self._recorded(params, args, kwargs, {})

    def _recorded(
        self,
        params: Params,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: dict[str, Any],
        has_aux: bool = False,
    ) -> tuple[Any, ...]:
        """The same; ``constants`` are keyword arguments of :meth:`_apply` alone.

        With ``has_aux`` what the formula gives beside the output is the third.
        """
        inputs = _Inputs(self.spec, params, args, kwargs)
        out_spec, aux = inputs.args_spec, None

        def flat(stand_ins: list[Any]) -> list[Any]:
            nonlocal out_spec, aux
            values, args, kwargs = inputs.with_leaves(stand_ins)
            output = self._apply(values, *args, **kwargs, **constants)
            if has_aux:
                output, aux = output
            outputs, out_spec = flatten_tree(output)
            return outputs

        values, recording = record(flat, inputs.leaves, self._conduct)
        if not recording.connected and (shared := self._shared()):
            values = own_memory(values, shared)
        pullback = RecordedPullback(
            recording,
            *(self.spec, inputs.order, inputs.args_spec, inputs.kwargs_spec, out_spec),
        )
        value = out_spec.unflatten(values)
        if not has_aux:
            return value, pullback
        aux_leaves, aux_spec = flatten_tree(aux)
        given = [*inputs.leaves, *flatten_tree(constants)[0], *self._shared()]
        return value, pullback, aux_spec.unflatten(cut(aux_leaves, given))

    def _closed_weights(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Weights | None:
        """Checked parameters in pairs, where the closed form serves this call.

        It does for one tensor in, no graph asked for, and no automatic casting.
        """
        if self.chain is None or len(args) != 1 or kwargs or casts_automatically():
            return None
        (x,) = args
        if not isinstance(x, Tensor) or x.ndim == 0:
            return None
        values = list(self.spec.as_dict(params).values())
        if paddle.is_grad_enabled():
            for value in (x, *values):
                if not value.stop_gradient:
                    return None
        return weights_of(values)

    def vjp(
        self, params: Params, args: Tree, cotangent: Tree, **kwargs: Any
    ) -> tuple[Tree, Tree]:
        """Vector-Jacobian product: ``(grad_params, grad_args)``, nested as the inputs.

        Args:
            params: dict or theta.
            args: the tuple of positional arguments, or the one argument itself.
            cotangent: nested as the output, with its shapes and dtypes.

        Example:
            >>> import paddle
            >>> from paddle_chainrules import FCNet
            >>> net = FCNet((3, 5, 2), "tanh")
            >>> params, x = net.init(0), paddle.ones([4, 3])
            >>> grad_params, grad_x = net.vjp(params, x, paddle.ones([4, 2]))
            >>> list(grad_params), list(grad_x.shape)
            (['0.weight', '0.bias', '1.weight', '1.bias'], [4, 3])
        """
        single = not isinstance(args, tuple)
        args = (args,) if single else args
        _, pullback, *_ = self.pullback(params, *args, **kwargs)
        grad_params, grad_args = pullback(cotangent)
        return grad_params, grad_args[0] if single else grad_args

    def from_state_dict(
        self, state_dict: Mapping[str, Tensor], names: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Parameters from a layer's ``state_dict()``, copied.

        Args:
            state_dict: tensors by name. Where both number their layers in order, the
                numbers may differ (``"2.weight"`` of a Sequential is ``"1.weight"`` of
                an FCNet).
            names: what they are called there, in the order of ``spec.names``, where
                neither holds.

        Raises:
            ValueError: a name is missing, or a shape differs.
            TypeError: a dtype differs.
        """
        there = self._names_in(state_dict, names)
        pairs = zip(self.spec.names, there, strict=True)
        copies = {name: state_dict[other].detach().clone() for name, other in pairs}
        return self.spec.as_dict(copies)

    def to_state_dict(
        self,
        params: Params,
        like: Mapping[str, Tensor] | paddle.nn.Layer | None = None,
        names: Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """A state dict that ``layer.set_state_dict`` takes, copied.

        Args:
            params: dict or theta.
            like: a layer or its state dict whose names to use, as
                :meth:`from_state_dict` finds them; the net's own names when None.
            names: as for :meth:`from_state_dict`.

        Raises:
            ValueError: ``like`` has other names, or another shape.
        """
        own = self.spec.as_dict(params)
        if like is None:
            return {name: value.detach().clone() for name, value in own.items()}
        target = like.state_dict() if isinstance(like, paddle.nn.Layer) else like
        found = {}
        for other, (name, value) in zip(
            self._names_in(target, names), own.items(), strict=True
        ):
            if tuple(target[other].shape) != tuple(value.shape):
                raise ValueError(
                    f"parameter {name!r} has shape {list(value.shape)}, {other!r} of "
                    f"the state dict to fill {list(target[other].shape)}; they must be "
                    "equal"
                )
            found[other] = value.detach().clone()
        return found

    def _names_in(
        self, state_dict: Mapping[str, Tensor], names: Sequence[str] | None
    ) -> Sequence[str]:
        """What this net's parameters are called in a state dict."""
        own = self.spec.names
        if names is None:
            if all(name in state_dict for name in own):
                return own
            names = [*state_dict]
            if _numbered(names) is not None and _numbered(names) == _numbered(own):
                return names
        elif len(names) == len(own) and all(name in state_dict for name in names):
            return names
        raise ValueError(
            f"the state dict has the tensors {list(state_dict)}, the net the "
            f"parameters {list(own)}, asked for as {list(names)}; they must have the "
            "same names, or be numbered alike. Which is which can be told: "
            "names=[...], a name in the state dict for each of net.spec.names"
        )


def _numbered(names: Sequence[str]) -> list[tuple[int, str]] | None:
    """Names such as ``"2.weight"`` with the numbers replaced by their ranks.

    None where there are others, or the numbers do not go up.
    """
    parts = [name.partition(".") for name in names]
    if not all(number.isdigit() for number, _, _ in parts):
        return None
    numbers = [int(number) for number, _, _ in parts]
    ranks = {number: rank for rank, number in enumerate(dict.fromkeys(numbers))}
    if numbers != sorted(numbers):
        return None
    return [(ranks[n], rest) for n, (_, _, rest) in zip(numbers, parts, strict=True)]


def check_tensor(name: str, value: Any, dtype: str) -> None:
    """Refuse what is no tensor, or of another dtype."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a paddle.Tensor, got {type(value).__name__}; convert it "
            f"with paddle.to_tensor({name}, dtype={dtype!r})"
        )
    if not same_dtype(value.dtype, DTYPES[dtype]):
        raise TypeError(
            f"{name} is {dtype_name(value.dtype)}, the net computes in {dtype}; "
            f"convert it with {name}.astype({dtype!r}), or make the net with "
            f"dtype={dtype_name(value.dtype)!r}"
        )


def check_width(x: Tensor, width: int) -> None:
    """Refuse an input of another number of features."""
    if x.shape[-1:] != (width,):
        raise ValueError(
            f"x has shape {list(x.shape)}, the net needs [n, {width}]: {width} "
            "features in the last dimension, the batch before it"
        )


def check_place(name: str, place: Any, expected: Any) -> None:
    """Refuse a tensor on another device than the parameters."""
    if str(place) != str(expected):
        raise ValueError(
            f"{name} is on {place}, the parameters are on {expected}; move one of "
            f"them, for example {name}.to({str(expected)!r})"
        )
