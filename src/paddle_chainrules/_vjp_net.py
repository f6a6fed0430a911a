"""The gradients of a net as a net, which may be differentiated in its turn."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ._autodiff import Tree
from ._net import Net
from ._params import ParamSpec


class VJP(Net):
    """``forward(params, args, kwargs, cotangents)`` is the vjp of another net.

    Cotangents come in a row, one for each leaf of the output. It gives the gradients
    of the parameters in order, of ``args``, and of ``kwargs`` (None without any), with
    None where there is none. Its own vjp is of the second order, and so on, as far as
    Paddle's kernels go.
    """

    def __init__(self, net: Net) -> None:
        self._net = net

    @property
    def spec(self) -> ParamSpec:
        return self._net.spec

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
