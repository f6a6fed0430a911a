"""Nets made of a net: its gradients, and its derivatives by the input.

As nets they may be differentiated in their turn.
"""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..programs.jets import MultiIndex
from ..programs.weights import weights_of
from ..transforms.tree import Tree
from .derivatives import (
    derivative,
    derivatives,
    derivatives_of,
    directional_derivative,
    laplacian,
)
from .net import Net
from .params import ParamSpec

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

    def _apply(self, params: dict[str, Tensor], x: Tensor, *direction: Tensor) -> Tree:
        if self._what == "laplacian":
            return laplacian(self._net, params, x)
        if self._what == "jvp":
            weights = weights_of(list(params.values()))
            return directional_derivative(
                derivatives_of(self._net), weights, x, *direction
            )
        indices: Any = self._what
        if isinstance(indices[0], tuple):
            return derivatives(self._net, params, x, indices)
        return derivative(self._net, params, x, indices)
