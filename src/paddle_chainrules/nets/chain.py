"""Chains of affine maps with one activation between, differentiated in closed form.

What :class:`FCNet` is, and what a ``paddle.nn.Sequential`` of Linear layers often is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import paddle.nn.functional as F
from paddle import Tensor, nn

from ..paddle_side.row_sparse import RowSparse
from ..programs.activations import ACTIVATIONS, Activation
from ..programs.closed_form import (
    Raw,
    Tape,
    Weights,
    as_rows,
    forward,
    raw,
    reverse,
    value,
    with_leading_of,
)
from ..transforms.effects import check_unchanged, versions
from ..transforms.recording import check_cotangent, records_graph
from ..transforms.tree import flatten_tree
from ..transforms.vjp import recorded_vjp
from .grad_buffers import Primal
from .inputs import Form
from .params import ParamSpec
from .pullback import NetPullback, param_labels

_, ONE_ARGUMENT = flatten_tree((None,))

# The layers that are built-in activations, as what they have to be for that.
ACTIVATION_LAYERS: dict[type, tuple[str, dict[str, Any]]] = {
    nn.Sigmoid: ("sigmoid", {}),
    nn.Tanh: ("tanh", {}),
    nn.ReLU: ("relu", {}),
    nn.GELU: ("gelu", {"_approximate": False}),
    nn.Silu: ("silu", {"_inplace": False}),
    nn.Softplus: ("softplus", {"_beta": 1, "_threshold": 20}),
    nn.ELU: ("elu", {"_alpha": 1.0}),
    nn.LeakyReLU: ("leaky_relu", {"_negative_slope": 0.01}),
}


def recorded(act: Activation, weights: Weights, x: Tensor) -> Tensor:
    """The output by public functions, as a graph can record it."""
    *hidden, (weight, bias) = weights
    for w, b in hidden:
        x = act(F.linear(x, w, b))
    return F.linear(x, weight, bias)


@dataclass(frozen=True)
class Chain:
    """The closed form of a net whose parameters are weight, bias, weight, bias, ..."""

    spec: ParamSpec
    activation: str
    raw: Raw

    def value(self, weights: Weights, x: Tensor) -> Tensor:
        """The output at ``x`` of shape [..., in], of shape [..., out]."""
        rows = len(x.shape) == 2
        y = value(self.raw.value, weights, x if rows else as_rows(x))
        return y if rows else with_leading_of(x, y)

    def pullback(
        self, weights: Weights, x: Tensor, order: tuple[str, ...] | None
    ) -> tuple[Tensor, ChainPullback]:
        """Output and pullback; gradients come in ``order``, or as one theta."""
        rows = len(x.shape) == 2
        y, tape = forward(self.raw, weights, x if rows else as_rows(x))
        if not rows:
            y = with_leading_of(x, y)
        return y, ChainPullback(self, weights, tape, x, y.shape, order)


class ChainPullback(NetPullback[Any]):
    """The pullback of a chain, without a recorded graph."""

    def __init__(
        self,
        chain: Chain,
        weights: Weights,
        tape: Tape,
        x: Tensor,
        shape: Sequence[int],
        order: tuple[str, ...] | None,
    ) -> None:
        super().__init__(Form(chain.spec, order, ONE_ARGUMENT))
        self._chain = chain
        self._weights = weights
        self._tape = tape
        self._x = x
        self._shape = shape
        self._held = [x, *(tensor for pair in weights for tensor in pair)]
        self._versions = versions(self._held)

    def _saved(self) -> Weights:
        """The weights, which with the argument are still what they were.

        Raises:
            RuntimeError: an operation in place has changed one.
        """
        check_unchanged(self._held, self._versions, "a parameter or the argument")
        return self._weights

    def _gradients(
        self,
        cotangent: Tensor,
        flags: Sequence[bool] | None,
        sparse: Sequence[int] = (),
    ) -> Sequence[Any]:
        check_cotangent(cotangent, self._shape, self._x.dtype)
        count = 2 * len(self._weights)
        if flags is None:
            params, args = (True,) * count, True
        else:
            *given, args = flags
            params = (*given,) if self._form.order is not None else (*given,) * count
        grads: Sequence[Any]
        if records_graph((cotangent,)):
            grads, x_bar = self._recorded(cotangent, params, args)
        else:
            grads, x_bar = self.reverse(cotangent, params, args)
        if self._form.order is None:
            if not params[0]:
                return [None, x_bar]
            return [self._form.spec.flatten(self._form.spec.named(grads)), x_bar]
        if sparse:
            grads = [
                RowSparse.of(g) if i in sparse and g is not None else g
                for i, g in enumerate(grads)
            ]
        return [*grads, x_bar]

    def _recorded(
        self, cotangent: Tensor, params: Sequence[bool], args: bool
    ) -> tuple[Sequence[Tensor | None], Tensor | None]:
        """Gradients that can be differentiated with respect to the cotangent."""
        call = partial(recorded, ACTIVATIONS[self._chain.activation])
        _, pullback = recorded_vjp(call, (self._saved(), self._x), create_graph=True)
        asked = [i for i, flag in enumerate((any(params), args)) if flag]
        pairs, x_bar = pullback(cotangent, wrt=asked)
        grads = [None] * len(params) if pairs is None else chain.from_iterable(pairs)
        return [
            grad if flag else None for grad, flag in zip(grads, params, strict=True)
        ], x_bar

    def _primals(self) -> list[Primal]:
        labels = [*param_labels(self._form.spec, self._form.order), "args[0]"]
        values = [*chain.from_iterable(self._weights)]
        if self._form.order is None:
            values = [self._form.spec.flatten(self._form.spec.named(values))]
        return [Primal(*pair) for pair in zip(labels, [*values, self._x], strict=True)]

    def reverse(
        self, cotangent: Tensor, params: Sequence[bool], args: bool
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """Gradients in the order of the parameters, and of x; unchecked."""
        rows = len(self._shape) == 2
        grads, x_bar = reverse(
            self._chain.raw,
            self._saved(),
            self._tape,
            cotangent if rows else as_rows(cotangent),
            params,
            args,
        )
        if x_bar is not None and not rows:
            x_bar = with_leading_of(self._x, x_bar)
        return grads, x_bar


def chain_of(layer: nn.Layer, spec: ParamSpec) -> Chain | None:
    """The chain that a layer is, or None where it is anything else.

    It is one when it is a Linear, or a Sequential of Linear layers with the same
    activation between every two, all of them Paddle's own classes with their default
    constants, without hooks, and with biases and distinct trained parameters. Layers
    that do nothing, such as dropout in evaluation, may stand in between.
    """
    named = {"": layer}
    if type(layer) is nn.Sequential:
        named = {f"{name}.": part for name, part in layer._sub_layers.items()}
    if any(map(_is_hooked, (layer, *named.values()))):
        return None
    named = {name: part for name, part in named.items() if not _is_idle(part)}
    parts = list(named.values())
    linears, activations = parts[::2], parts[1::2]
    if len(parts) % 2 == 0 or any(type(part) is not nn.Linear for part in linears):
        return None
    kinds = {_activation(part) for part in activations} or {"identity"}
    names = [
        f"{prefix}{name}" for prefix in list(named)[::2] for name in ("weight", "bias")
    ]
    if len(kinds) > 1 or list(spec.names) != names or len(set(spec.dtypes)) != 1:
        return None
    (kind,) = kinds
    pair = None if kind is None else raw(kind)
    return None if kind is None or pair is None else Chain(spec, kind, pair)


def _is_hooked(layer: nn.Layer) -> bool:
    return bool(
        layer._forward_pre_hooks
        or layer._forward_post_hooks
        or "forward" in vars(layer)
    )


def _is_idle(layer: nn.Layer) -> bool:
    """Whether a layer gives back what it gets, as it is now."""
    if type(layer) is nn.Dropout:
        return not layer.training and layer.mode == "upscale_in_train"
    return type(layer) is nn.Identity


def _activation(layer: nn.Layer) -> str | None:
    name, constants = ACTIVATION_LAYERS.get(type(layer), (None, {}))
    same = all(getattr(layer, k, None) == v for k, v in constants.items())
    return name if same else None
