"""Any paddle.nn.Layer as a stateless net."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import threading
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from types import MappingProxyType
from typing import Any

import paddle
from paddle import Tensor

from ._autodiff import Tree
from ._chain import Chain, chain_of
from ._conduct import Conduct
from ._describe import Description
from ._net import Net
from ._params import Params, ParamSpec
from ._random import checked_seed, drawing_from
from ._wrt import Wrt, items_of, selected

RESERVED = frozenset({"buffers", "seed"})
"""Keyword arguments of every stateless net, not passed on to its layer."""

Slot = tuple[Any, Any]
"""A container and the key or index under which it holds a tensor."""


def stateless(
    layer: paddle.nn.Layer, frozen: Wrt = ()
) -> tuple[StatelessLayer, dict[str, Tensor], dict[str, Tensor]]:
    """``(net, params, buffers)``: the layer as a pure function of its parameters.

    The layer is copied in structure once (its tensors are not) and never touched again:
    not its parameters, buffers, ``.grad``, ``stop_gradient``, hooks nor mode. The net
    keeps the mode, train or eval, that the layer has now.

    Like ``torch.func.functional_call``, with the bookkeeping done once.

    Args:
        layer: any layer.
        frozen: parameters not to train, by name, pattern such as ``"encoder.*"`` or
            predicate of names, or several of these; they join the buffers.

    Returns:
        net: a :class:`StatelessLayer`.
        params: copies of the parameters, by the names and in the order of
            ``layer.named_parameters()``; a tied parameter comes once.
        buffers: copies of what the layer holds but does not train: its buffers, and
            the parameters with ``stop_gradient=True``, which are frozen weights and,
            in Paddle, BatchNorm's running statistics.

    Raises:
        TypeError: not a ``paddle.nn.Layer``, or one with state that can't be copied.
        ValueError: a name or pattern in frozen that no parameter has.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import stateless
        >>> net, params, buffers = stateless(paddle.nn.Linear(3, 2))
        >>> net.forward(params, paddle.ones([4, 3])).shape
        paddle.Size([4, 2])
    """
    net = StatelessLayer(layer, frozen)
    named = dict(layer.named_parameters())
    params = {name: named[name].detach().clone() for name in net.spec.names}
    return net, params, {name: value.clone() for name, value in net.buffers.items()}


class StatelessLayer(Net):
    """What :func:`stateless` returns: ``forward(params, *args)`` of a layer.

    Arguments and keyword arguments go to the layer's ``forward``, but for two, which
    each call may have:

    - ``buffers``: the buffers come in explicitly and their new values (BatchNorm's
      running statistics in training mode) come back; without it those of
      :func:`stateless` are used, and updates are dropped.
    - ``seed``: of the random numbers that the layer draws, from 0 to 2**64 - 1. The
      same seed gives the same dropout, and the program's own numbers go on as if none
      had been drawn; without it they are the program's.

    Calls from several threads take turns.
    """

    def __init__(self, layer: paddle.nn.Layer, frozen: Wrt = ()) -> None:
        if not isinstance(layer, paddle.nn.Layer):
            raise TypeError(
                "stateless needs a paddle.nn.Layer instance, got "
                f"{layer.__name__ if isinstance(layer, type) else type(layer).__name__}"
                "; for a plain function of tensors use vjp(fn, *primals)"
            )
        named = dict(layer.named_parameters())
        trained = [n for n, p in named.items() if not p.stop_gradient]
        self._frozen = {
            n for item in items_of(frozen) for n in selected(item, trained, "frozen")
        }
        params = {n: named[n] for n in trained if n not in self._frozen}
        buffers = {n: p for n, p in named.items() if n not in params}
        buffers |= {n: b for n, b in layer.named_buffers() if b._is_initialized()}
        self._spec = ParamSpec.of(params)
        self._buffers = {n: b.detach().clone() for n, b in buffers.items()}
        self._aliases = _aliases(layer, params, buffers)
        tensors = [*params.values(), *buffers.values()]
        self._adopt(_copy_structure(layer, tensors), params, buffers)
        taken = inspect.signature(layer.forward).parameters.keys()
        self._ambiguous = taken & RESERVED

    def _adopt(
        self,
        shell: paddle.nn.Layer,
        params: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
    ) -> None:
        """Take a layer of this net's own, which holds these tensors."""
        self._shell = shell
        self._param_slots = _slots(shell, params)
        self._buffer_slots = _slots(shell, buffers)
        named_slots = (*self._param_slots.values(), *self._buffer_slots.values())
        self._slots = [slot for slots in named_slots for slot in slots]
        self._release()
        self._lock = threading.RLock()
        self._chain = None if buffers else chain_of(shell, self._spec)
        self._calls = Conduct()

    def in_mode(self, training: bool) -> StatelessLayer:
        """The same net in training or evaluation mode, all of its layers.

        Params and buffers of the one are params and buffers of the other.
        """
        with self._lock:
            layers = self._shell.sublayers(include_self=True)
            if all(layer.training == training for layer in layers):
                return self
            marks = {n: paddle.empty([0]) for n in (*self._spec.names, *self._buffers)}
            try:
                for name, slots in (
                    *self._param_slots.items(),
                    *self._buffer_slots.items(),
                ):
                    for container, key in slots:
                        container[key] = marks[name]
                shell = _copy_structure(self._shell, [*marks.values()])
            finally:
                self._release()
        if training:
            shell.train()
        else:
            shell.eval()
        other = copy.copy(self)
        params = {name: marks[name] for name in self._spec.names}
        other._adopt(shell, params, {name: marks[name] for name in self._buffers})
        return other

    @property
    def spec(self) -> ParamSpec:
        return self._spec

    @property
    def chain(self) -> Chain | None:
        return self._chain

    @property
    def _conduct(self) -> Conduct:
        return self._calls

    def _shared(self) -> list[Tensor]:
        return [self._buffers[name] for name in self._frozen]

    @property
    def training(self) -> bool:
        """The mode that the layer had: dropout and BatchNorm behave accordingly."""
        return bool(self._shell.training)

    def __repr__(self) -> str:
        return (
            f"StatelessLayer({type(self._shell).__name__}, {len(self._spec.names)} "
            f"parameters of {self._spec.size} elements)"
        )

    def describe(self) -> Description:
        found = super().describe()
        spec = ParamSpec.of(self._buffers)
        rows = zip(spec.names, map(list, spec.shapes), spec.dtypes, strict=True)
        buffers = tuple(
            ("frozen" if n in self._frozen else "buffer", n, str(shape), dtype)
            for n, shape, dtype in rows
        )
        return dataclasses.replace(found, rows=(*found.rows, *buffers))

    def _formula(self) -> str:
        if self._chain is not None:
            return super()._formula()
        mode = "training" if self.training else "evaluation"
        return f"y = {type(self._shell).__name__}(...) in {mode}"

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        """The buffers used where none are given; read-only."""
        return MappingProxyType(self._buffers)

    def forward(self, params: Params, *args: Any, **kwargs: Any) -> Tree:
        """The layer's output; ``(output, new_buffers)`` where buffers are given."""
        if not kwargs.keys() & RESERVED:
            return super().forward(params, *args, **kwargs)
        constants, kwargs = self._split(kwargs)
        return self._forward(params, args, kwargs, constants)

    def pullback(self, params: Params, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """``(output, pullback)``; with buffers given, their new values as a third."""
        return super().pullback(params, *args, **kwargs)

    def recorded(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        constants: dict[str, Any] = {}
        if kwargs:
            constants, kwargs = self._split(kwargs)
        given = constants.get("_buffers")
        return self._recorded(
            params, args, kwargs, constants, has_aux=given is not None
        )

    def _split(self, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Buffers and seed, checked, as :meth:`_apply` takes them, and the others."""
        if ambiguous := self._ambiguous & kwargs.keys():
            raise TypeError(
                f"{sorted(ambiguous)} are keyword arguments of "
                f"{type(self._shell).__name__}'s own and of every stateless net's; "
                "give the layer's own by position"
            )
        seed, buffers = checked_seed(kwargs.get("seed")), kwargs.get("buffers")
        constants: dict[str, Any] = {} if seed is None else {"_seed": seed}
        if buffers is not None:
            constants["_buffers"] = self._check_buffers(buffers)
        return constants, {n: v for n, v in kwargs.items() if n not in RESERVED}

    def to_state_dict(
        self,
        params: Params,
        like: Mapping[str, Tensor] | paddle.nn.Layer | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """As :meth:`Net.to_state_dict`, with tied names, and buffers where given."""
        if like is not None:
            return super().to_state_dict(params, like)
        values = {**super().to_state_dict(params)}
        if buffers is not None:
            values |= {
                n: b.detach().clone() for n, b in self._check_buffers(buffers).items()
            }
        return {
            alias: values[name]
            for alias, name in self._aliases.items()
            if name in values
        }

    def _check_buffers(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return ParamSpec.of(self._buffers).as_dict(buffers)

    def _apply(
        self,
        params: dict[str, Tensor],
        *args: Any,
        _buffers: dict[str, Tensor] | None = None,
        _seed: int | None = None,
        **kwargs: Any,
    ) -> Tree:
        buffers = self._buffers if _buffers is None else _buffers
        with self._lock, drawing_from(_seed):
            try:
                for name, value in params.items():
                    for container, key in self._param_slots[name]:
                        container[key] = value
                for name, value in buffers.items():
                    fresh = value.detach()
                    if name not in self._frozen or self._conduct.copies:
                        fresh = fresh.clone()  # the layer may write into it
                    for container, key in self._buffer_slots[name]:
                        container[key] = fresh
                output = self._shell(*args, **kwargs)
                if _buffers is None:
                    return output
                new = {}
                for name, slots in self._buffer_slots.items():
                    container, key = slots[0]
                    new[name] = container[key].detach()
                return output, new
            finally:
                self._release()

    def _release(self) -> None:
        """Leave no tensor of a caller in the shell."""
        for container, key in self._slots:
            container[key] = None


def _aliases(
    layer: paddle.nn.Layer, params: dict[str, Tensor], buffers: dict[str, Tensor]
) -> dict[str, str]:
    """Every name in the layer's state dict, to the one name used here."""
    first = {id(value): name for name, value in {**params, **buffers}.items()}
    return {
        alias: first[id(value)]
        for alias, value in layer.state_dict().items()
        if id(value) in first
    }


def _copy_structure(layer: paddle.nn.Layer, shared: list[Tensor]) -> paddle.nn.Layer:
    """A deep copy that shares the given tensors and copies every other one."""
    memo: dict[int, Any] = {id(value): value for value in shared}
    for owner in layer.sublayers(include_self=True):
        for value in _tensors_in(vars(owner)):
            if value._is_initialized():
                memo.setdefault(id(value), value.detach().clone())
    try:
        return copy.deepcopy(layer, memo)
    except Exception as error:
        raise TypeError(
            f"stateless copies a layer's structure, and {type(layer).__name__} holds "
            f"something that can't be copied ({error}); keep such state outside the "
            "layer, or give its class a __deepcopy__"
        ) from error


def _tensors_in(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _tensors_in(value)
    elif isinstance(tree, list | tuple | set):
        for value in tree:
            yield from _tensors_in(value)


def _slots(
    shell: paddle.nn.Layer, tensors: Mapping[str, Tensor]
) -> dict[str, list[Slot]]:
    """Where each tensor is held: in a layer's registry, or a list or dict of its own.

    LSTM shows why the registries are not enough: its kernel reads a plain list of the
    parameters, and its cells register them a second time.
    """
    found: dict[int, list[Slot]] = {id(tensor): [] for tensor in tensors.values()}
    seen: set[int] = set()

    def visit(container: Any) -> None:
        if id(container) in seen:
            return
        seen.add(id(container))
        entries = (
            container.items()
            if isinstance(container, Mapping)
            else enumerate(container)
        )
        for key, value in entries:
            if id(value) in found:
                if not isinstance(container, MutableMapping | MutableSequence):
                    raise TypeError(
                        f"{type(shell).__name__} holds a parameter or buffer in a "
                        f"{type(container).__name__}, where stateless can't replace "
                        "it; keep it in a list or dict instead"
                    )
                found[id(value)].append((container, key))
            elif isinstance(value, Mapping | list | tuple):
                visit(value)

    for owner in shell.sublayers(include_self=True):
        visit(vars(owner))
    return {name: found[id(tensor)] for name, tensor in tensors.items()}
