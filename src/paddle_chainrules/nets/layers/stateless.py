"""Any paddle.nn.Layer as a stateless net."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import paddle
from paddle import Tensor

from ...paddle_side.arguments import checked_flag
from ...paddle_side.autograd.partial_gradients import node_of
from ...paddle_side.dtypes import dtype_named
from ...paddle_side.patching.argument_kinds import explain
from ...paddle_side.process.random_state import checked_seed, drawing_from
from ...paddle_side.static_graphs import need_tensors, sot
from ...settings import programs_are_on
from ...transforms.containers.tree import Tree
from ...transforms.recordings.effects import Effects
from ..calls.programs import NetPrograms, programs_for_jit_flag
from ..calls.pullback import NetPullback
from ..calls.wrt import Wrt, items_of, select_names
from ..chain import Chain, chain_of
from ..description import Description
from ..net import Net
from ..parameters.params import P, Params, ParamSpec, checked_tensors
from ..parameters.state_dicts import aliases, copies_by_names
from .buffers import moved_buffers
from .functional_module import copied, derives, keywords_of, required_arguments
from .functional_modules import BoundModule, FunctionalModules
from .one_sample import OneSample
from .paddles_own import is_paddles_own
from .refusals import LayerError, refusal
from .structure import construct, describe

RESERVED = frozenset({"buffers", "seed"})
"""Keyword arguments of every stateless net, not passed on to its layer."""


class StatelessLayer(Net):
    """The net that :func:`stateless` returns: ``forward(params, *args)`` of a layer.

    Arguments and keyword arguments go to the layer's ``forward``. Each call may have
    two more:

    - ``buffers``: the buffers come in explicitly and their new values (BatchNorm's
      running statistics in training mode) are returned. Without ``buffers`` the net
      uses those of :func:`stateless`, and drops updates.
    - ``seed``: the seed of the random numbers that the layer draws, from 0 to
      2**64 - 1. The same seed gives the same dropout, and Paddle's own generator goes
      on as if nothing had been drawn. Without ``seed`` the numbers come from that
      generator.

    Each calling thread has a copy of the layer's structure, and so has a call within a
    call. The layer's first call shows what a call changes in the layer (a hidden state,
    a cache, a counter). After every call that is put back.
    """

    def __init__(
        self, layer: paddle.nn.Layer, frozen: Wrt = (), jit: bool | None = None
    ) -> None:
        if not isinstance(layer, paddle.nn.Layer):
            raise TypeError(
                "stateless needs a paddle.nn.Layer instance, got "
                f"{layer.__name__ if isinstance(layer, type) else type(layer).__name__}"
                "; for a plain function of tensors use vjp(fn, *primals)"
            )
        named_params = dict(layer.named_parameters())
        trained = [n for n, p in named_params.items() if not p.stop_gradient]
        self._frozen = {
            n
            for item in items_of(frozen)
            for n in select_names(item, trained, "frozen")
        }
        params = {n: named_params[n] for n in trained if n not in self._frozen}
        buffers = {n: p for n, p in named_params.items() if n not in params}
        # Paddle counts every tensor among them, also what was computed of parameters.
        layer_buffers = {n: b for n, b in layer.named_buffers() if b._is_initialized()}
        buffers |= {n: b for n, b in layer_buffers.items() if b.is_leaf}
        self._spec = ParamSpec.of(params)
        self._buffers = {n: b.detach().clone() for n, b in buffers.items()}
        self._aliases = aliases(layer, params, buffers)
        self._originals = {n: node_of(p) for n, p in params.items()}
        self._derives = derives(layer)
        self._jit = jit
        self._adopt(copied(layer, {**params, **buffers}))
        self._ambiguous = keywords_of(layer.forward) & RESERVED

    def _adopt(self, layer: paddle.nn.Layer) -> None:
        """Take a layer of this net's own, with marks where its tensors belong."""
        self._layer = layer
        self._modules = FunctionalModules(layer)
        self._chain = None if self._buffers else chain_of(layer, self._spec)
        self._calls = Effects(check_free=self._refuse_originals)
        self._samples = OneSample()
        self._moving = moved_buffers(layer)
        self._is_paddles_own = is_paddles_own(layer)
        self._own_programs = self._new_programs()

    def _new_programs(self) -> NetPrograms | None:
        layer = None if self._is_paddles_own else self._layer
        return programs_for_jit_flag(self, self._jit, layer)

    @property
    def _programs(self) -> NetPrograms | None:
        return self._own_programs

    def _depends_on(self) -> list[Any]:
        """Return what its results depend on besides arguments.

        That is the layer where its code is others', which may read anything.
        """
        return [] if self._is_paddles_own else [self._layer]

    @property
    def _is_opaque(self) -> bool:
        """True if it can't be known what its results depend on."""
        return self._own_programs is None

    def _refuse_originals(self, free: set[int]) -> None:
        """Refuse results that depend on the layer's own parameters.

        Raises:
            TypeError: they do.
        """
        for name, node in self._originals.items():
            if node.node_ptr() in free:
                kind = type(self._layer).__name__
                raise TypeError(
                    f"{kind}.forward uses its own parameter {name!r} and not the one "
                    "given: it is reached through a weak reference, a variable of the "
                    "class or module, or a function of these, or a tensor was computed "
                    "from it beforehand, where stateless can't replace it; reach it "
                    "through an attribute of the layer, and compute with it in forward"
                )

    def __deepcopy__(self, memo: dict[int, Any]) -> StatelessLayer:
        return self._copy_with(lambda layer: None)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._derives and not self._effects.is_known:
            raise TypeError(
                f"{type(self._layer).__name__} holds tensors computed from its "
                "parameters, and no call has shown yet that forward computes them "
                "anew; call the net once before it is pickled"
            )
        with self._modules.marked() as layer:
            return _unpickled, (pickle.dumps(layer), self._constant_fields())

    def _constant_fields(self) -> dict[str, Any]:
        """Return the net's own fields besides its layer, by attribute."""
        field_names = ("_spec", "_buffers", "_frozen", "_aliases", "_ambiguous", "_jit")
        return {name: vars(self)[name] for name in field_names}

    def described(self) -> tuple[dict[str, Any], list[Tensor]]:
        """Describe it in values of JSON; return these and the tensors that it holds.

        Raises:
            TypeError: some of its parts do not come from Paddle.
        """
        with self._modules.marked() as layer:
            return describe(layer, self._constant_fields())

    def _copy_with(
        self, change: Callable[[paddle.nn.Layer], object], **fields: Any
    ) -> StatelessLayer:
        """Return a net like this one, with a layer of its own that is changed first."""
        with self._modules.marked() as marked_layer:
            layer = copied(marked_layer, {})
        change(layer)
        net = StatelessLayer.__new__(StatelessLayer)
        vars(net).update(vars(self))
        net._buffers = {n: b.clone() for n, b in self._buffers.items()}
        vars(net).update(fields)
        net._adopt(layer)
        return net

    def in_mode(self, training: bool) -> StatelessLayer:
        """Return the same net and buffers in training or evaluation mode."""
        mode = "train" if checked_flag("training", training) else "eval"
        layers = self._layer.sublayers(include_self=True)
        if all(layer.training == training for layer in layers):
            return self
        return self._copy_with(
            lambda layer: getattr(layer, mode)(), _buffers=self._buffers
        )

    def in_dtype(self, dtype: str) -> StatelessLayer:
        kind, old_buffers = dtype_named(dtype), self._buffers
        buffers = {
            n: b.astype(kind) if b.is_floating_point() and b.dtype != kind else b
            for n, b in old_buffers.items()
        }
        if {*self._spec.dtypes} <= {dtype} and all(
            buffers[n] is old_buffers[n] for n in old_buffers
        ):
            return self

        def convert(layer: paddle.nn.Layer) -> None:
            for sublayer in layer.sublayers(include_self=True):
                sublayer._dtype = kind  # as Layer.to does

        spec = self._spec.in_dtype(dtype)
        return self._copy_with(convert, _spec=spec, _buffers=buffers)

    def share_buffers(self, buffers: Mapping[str, Tensor]) -> None:
        """Read these tensors from now on where none are given, and not copies of them.

        Raises:
            TypeError: they are no dict of tensors.
            ValueError: one has an unknown name, or another shape than what it takes the
                place of.
        """
        for name, value in checked_tensors("buffers", buffers).items():
            if name not in self._buffers:
                raise ValueError(
                    f"{name!r} is no buffer of the net, which has "
                    f"{[*self._buffers]}; give some of these"
                )
            if value.shape != self._buffers[name].shape:
                raise ValueError(
                    f"buffer {name!r} has shape {list(value.shape)}, the net needs "
                    f"{list(self._buffers[name].shape)}; give one of that shape"
                )
        self._buffers = {**self._buffers, **buffers}
        self._own_programs = self._new_programs()  # which read these

    @property
    def spec(self) -> ParamSpec:
        return self._spec

    @property
    def chain(self) -> Chain | None:
        return self._chain

    @property
    def _effects(self) -> Effects:
        return self._calls

    def _shared(self) -> list[Tensor]:
        return [self._buffers[name] for name in self._frozen]

    @property
    def training(self) -> bool:
        """The mode that the layer had: dropout and BatchNorm behave accordingly."""
        return bool(self._layer.training)

    @property
    def moved_buffers(self) -> tuple[str, ...]:
        """The statistics that batch normalization moves with each call in training."""
        return moved_buffers(self._layer)

    @property
    def needs_several(self) -> bool:
        """True if one argument is not enough for the layer's ``forward``."""
        return required_arguments(self._layer.forward) > 1

    def __repr__(self) -> str:
        kind = type(self._layer).__name__
        return (
            f"StatelessLayer({kind}, {len(self._spec.names)} parameters of "
            f"{self._spec.size} elements)"
        )

    def describe(self) -> Description:
        result = super().describe()
        spec = ParamSpec.of(self._buffers)
        rows = zip(spec.names, map(list, spec.shapes), spec.dtypes, strict=True)
        buffers = tuple(
            ("frozen" if n in self._frozen else "buffer", n, str(shape), dtype)
            for n, shape, dtype in rows
        )
        return dataclasses.replace(result, rows=(*result.rows, *buffers))

    def _formula(self) -> str:
        if self._chain is not None:
            return super()._formula()
        mode = "training" if self.training else "evaluation"
        return f"y = {type(self._layer).__name__}(...) in {mode}"

    def _describe_runs(self) -> str:
        if self._programs is None and programs_are_on() and self._jit is None:
            return (
                "It runs as Paddle runs it, since not all of its layers are Paddle's "
                "own; jit=True makes it a program."
            )
        return super()._describe_runs()

    @property
    def buffers(self) -> Mapping[str, Tensor]:
        """The buffers used where none are given; read-only."""
        return MappingProxyType(self._buffers)

    @overload
    def forward(
        self, params: Params, *args: Any, buffers: Mapping[str, Tensor], **kwargs: Any
    ) -> tuple[Any, dict[str, Tensor]]: ...

    @overload
    def forward(self, params: Params, *args: Any, **kwargs: Any) -> Any: ...

    def forward(self, params: Params, *args: Any, **kwargs: Any) -> Any:
        """Return the layer's output; with buffers, ``(output, new_buffers)``."""
        need_tensors(sot.fallback(True))
        if self._moving:
            self._warn_of_moving(kwargs)
        if (programs := self._own_programs) is not None:
            outputs = programs.values.result(params, args, kwargs)
            if outputs is not None:
                return outputs[0]
        constants: dict[str, Any] = {}
        if kwargs.keys() & RESERVED:
            constants, kwargs = self._split_keywords(kwargs)
        return self._forward(params, args, kwargs, constants)

    def _forward(
        self,
        params: Params,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        constants: dict[str, Any],
    ) -> Any:
        try:  # here, since to_static does not go round functions that have one
            return super()._forward(params, args, kwargs, constants)
        except (TypeError, ValueError):
            self._refuse_buffers_among(params, args)
            raise

    @overload
    def __call__(
        self, params: Params, *args: Any, buffers: Mapping[str, Tensor], **kwargs: Any
    ) -> tuple[Any, dict[str, Tensor]]: ...

    @overload
    def __call__(self, params: Params, *args: Any, **kwargs: Any) -> Any: ...

    def __call__(self, params: Params, *args: Any, **kwargs: Any) -> Any:
        return self.forward(params, *args, **kwargs)

    @overload
    def pullback(
        self, params: P, *args: Any, buffers: Mapping[str, Tensor], **kwargs: Any
    ) -> tuple[Any, NetPullback[P], dict[str, Tensor]]: ...

    @overload
    def pullback(
        self, params: P, *args: Any, **kwargs: Any
    ) -> tuple[Any, NetPullback[P]]: ...

    def pullback(self, params: Params, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return ``(output, pullback)``; with buffers, their new values as a third."""
        need_tensors(sot.fallback(True))
        if self._moving:
            self._warn_of_moving(kwargs)
        if (programs := self._own_programs) is not None:
            result = programs.pullbacks.result(params, args, kwargs)
            if result is not None:
                return result
        return self._unchecked_pullback(params, args, kwargs)

    def _unchecked_pullback(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        constants: dict[str, Any] = {}
        if kwargs:
            constants, kwargs = self._split_keywords(kwargs)
        buffers = constants.get("_buffers")
        try:
            return self._recorded(
                params, args, kwargs, constants, has_aux=buffers is not None
            )
        except (TypeError, ValueError):
            self._refuse_buffers_among(params, args)
            raise

    def expects_moving(self) -> None:
        """Take it for known that training moves buffers."""
        self._moving = ()

    def _warn_of_moving(self, kwargs: Mapping[str, Any]) -> None:
        """Say once that a call without buffers drops what training moves."""
        if kwargs.get("buffers") is not None:
            return
        names, self._moving = self._moving, ()
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        warnings.warn(
            f"in training, {', '.join(map(repr, names[:3]))}{more} move with each "
            "call, and a call without buffers drops what they become, so that "
            "evaluation uses the first ones. Give them, and keep what comes back: "
            "y, buffers = net(params, x, buffers=buffers)",
            stacklevel=3,
        )

    def _split_keywords(
        self, kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return buffers and seed, checked for :meth:`_apply`, and other keywords."""
        if ambiguous := self._ambiguous & kwargs.keys():
            kind = type(self._layer).__name__
            raise TypeError(
                f"{sorted(ambiguous)} are keyword arguments of {kind}'s own and of "
                "every stateless net's; give the layer's own by position"
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
        names: Sequence[str] | None = None,
        buffers: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Do as :meth:`Net.to_state_dict`, with tied names, and with buffers if given.

        Frozen parameters are among the buffers. With these, ``names`` has a name for
        each in the order of the layer's state dict.
        """
        if like is not None and buffers is None:
            return super().to_state_dict(params, like, names)
        values = super().to_state_dict(params)
        if buffers is not None:
            values |= copies_by_names(
                checked_buffers := self._check_buffers(buffers), checked_buffers
            )
        if like is None:
            return {a: values[n] for a, n in self._aliases.items() if n in values}
        target = like.state_dict() if isinstance(like, paddle.nn.Layer) else like
        net_names = dict.fromkeys(n for n in self._aliases.values() if n in values)
        return copies_by_names({n: values[n] for n in net_names}, target, names)

    def _refuse_buffers_among(self, params: Any, args: tuple[Any, ...]) -> None:
        """Explain a call that failed, if buffers stand where they do not belong.

        An argument may well be a dict with these names, so that nothing is refused
        before.

        Raises:
            TypeError: they are given as parameters or as an argument.
        """
        names = self._buffers.keys()
        if not names:
            return
        param_trees = params if isinstance(params, tuple) else (params,)
        for argument in (*param_trees, *args):
            if isinstance(argument, Mapping) and argument.keys() >= names:
                raise TypeError(
                    f"the buffers {[*names]} are not among the parameters and "
                    "positional arguments; give them by name: "
                    "y, buffers = net(params, x, buffers=buffers)"
                )

    def _check_buffers(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return ParamSpec.of(self._buffers).as_dict(buffers, "buffers")

    def _apply(
        self,
        params: dict[str, Tensor],
        *args: Any,
        _buffers: dict[str, Tensor] | None = None,
        _seed: int | None = None,
        **kwargs: Any,
    ) -> Tree:
        uses_own_buffers = _buffers is None
        buffers = self._buffers if _buffers is None else _buffers
        frozen = None if uses_own_buffers else self._frozen
        new_buffers: dict[str, Tensor] = {}

        def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree:
            with (
                drawing_from(_seed),
                BoundModule(
                    self._modules, self._calls, params, buffers, frozen
                ) as bound,
            ):
                try:
                    output = bound.call(args, kwargs)
                except (TypeError, ValueError) as error:
                    explain(error)
                    if (result := refusal(error)) is None:
                        raise
                    raise LayerError(result.reason) from error
                if not uses_own_buffers:
                    new_buffers.update(bound.buffers())
                return output

        output = self._samples.call(run, args, kwargs)
        return output if uses_own_buffers else (output, new_buffers)


def constructed(facts: dict[str, Any], tensors: Sequence[Tensor]) -> StatelessLayer:
    """Make the net that ``net.described()`` tells of; it keeps these tensors.

    Raises:
        ValueError: it tells of none.
    """
    return _restore(*construct(facts, tensors))


def _unpickled(layer: bytes, net_fields: dict[str, Any]) -> StatelessLayer:
    return _restore(pickle.loads(layer), net_fields)


def _restore(layer: paddle.nn.Layer, net_fields: dict[str, Any]) -> StatelessLayer:
    """Build a net from its layer with marks and its other fields."""
    net = StatelessLayer.__new__(StatelessLayer)
    vars(net).update(net_fields)
    net._originals = {}
    net._adopt(layer)
    return net
