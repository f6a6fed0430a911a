"""Nets made of a net: its gradients, and its derivatives by the input.

As nets they may be differentiated in their turn.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from paddle import Tensor

from ..programs.partials import MultiIndex
from ..transforms.effects import Effects
from ..transforms.tree import Tree
from .derivatives import (
    derivative,
    derivatives,
    directional_derivative,
)
from .laplacians import laplacian
from .net import Net
from .params import ParamSpec
from .programs import NetPrograms

What = str | MultiIndex | tuple[MultiIndex, ...]
"""A derivative of a net: by name, or a partial one by its multi-index, or several."""


class Derived(Net):
    """A net with the parameters of another."""

    def __init__(self, net: Net) -> None:
        self._net = net

    @property
    def spec(self) -> ParamSpec:
        return self._net.spec


class VJP(Derived):
    """``forward(params, args, kwargs, cotangents)`` is the vjp of another net.

    Cotangents come in a row, one for each leaf of the output. It gives the gradients
    of the parameters in order, of ``args``, and of ``kwargs`` (None without any), with
    None where there is none. Its own vjp is of the second order, and so on, as far as
    Paddle's kernels go.
    """

    def in_dtype(self, dtype: str) -> VJP:
        return VJP(self._net.in_dtype(dtype))

    def _apply(
        self,
        params: dict[str, Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        cotangents: tuple[Any, ...],
    ) -> Tree:
        _, pullback, *_ = self._net.recorded(params, args, kwargs)
        wrt = ("params", "args", "kwargs") if pullback.keywords else ("params", "args")
        cotangent = pullback.nested_as_output(cotangents)
        grads, by_args, *rest = pullback(cotangent, wrt=wrt)
        by_params = [None] * len(params) if grads is None else [*grads.values()]
        by_args = (None,) * len(args) if by_args is None else by_args
        return by_params, by_args, rest[0] if rest else None


class Derivative(Derived):
    """``forward(params, x)`` is a derivative by the input; of ``"jvp"`` ``(x, v)``."""

    def __init__(self, net: Net, what: What) -> None:
        super().__init__(net)
        self._what = what

    def in_dtype(self, dtype: str) -> Derivative:
        return Derivative(self._net.in_dtype(dtype), self._what)

    @cached_property
    def _programs(self) -> NetPrograms | None:
        return NetPrograms(self) if self._net._programs else None

    @property
    def _effects(self) -> Effects:
        return self._net._effects

    def _apply(self, params: dict[str, Tensor], x: Tensor, *direction: Tensor) -> Tree:
        if self._what == "laplacian":
            return laplacian(self._net, params, x)
        if self._what == "jvp":
            return directional_derivative(self._net, params, x, *direction)
        indices: Any = self._what
        if isinstance(indices[0], tuple):
            return derivatives(self._net, params, x, indices)
        return derivative(self._net, params, x, indices)
