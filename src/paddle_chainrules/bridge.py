"""The one module that Julia calls: a handle per net, one call per crossing.

Tensors cross as DLPack capsules. The layout law makes that safe: a Julia array of size
``(d, n)`` and the tensor of shape ``[n, d]`` are the same bytes, so shapes are reversed
and nothing is permuted. What Julia sends must stay alive in Julia until the call
returns, and for as long as a pullback made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor
from paddle.utils.dlpack import from_dlpack, to_dlpack

from ._activations import Activation
from ._autodiff import flatten_tree
from ._fcnet import FCNet
from ._net import Net, NetPullback
from ._params import Params
from ._stateless import stateless

Packed = tuple[Any, ...]
"""``(structure, capsule, ...)``: the leaves, and None or the tree they came from."""


class Handle:
    """A net as Julia holds it: what it needs to know, and two entry points."""

    def __init__(self, net: Net, label: str, features: int) -> None:
        self.net = net
        self.label = label
        self.features = features
        self.names = net.spec.names
        self.shapes = net.spec.shapes
        self.dtypes = net.spec.dtypes

    def forward(self, flat: bool, *capsules: Any) -> Packed:
        """The output; parameters are theta if flat, else one capsule each."""
        params, args = self._receive(flat, capsules)
        return _pack(self.net.forward(params, *args))

    def pullback(
        self, flat: bool, *capsules: Any
    ) -> tuple[Packed, Callable[..., tuple[Any, ...]]]:
        """The output, and the map from cotangent capsules to gradient capsules.

        The map takes one capsule or None per output leaf and gives one capsule or None
        per parameter array and input, in the order they came.
        """
        params, args = self._receive(flat, capsules)
        output, pullback = self.net.pullback(params, *args)
        return _pack(output), _PullbackHandle(pullback, output)

    def _receive(
        self, flat: bool, capsules: tuple[Any, ...]
    ) -> tuple[Params, list[Tensor]]:
        tensors = [from_dlpack(capsule) for capsule in capsules]
        if flat:
            return tensors[0], tensors[1:]
        count = len(self.names)
        params = dict(zip(self.names, tensors[:count], strict=True))
        return params, tensors[count:]


class _PullbackHandle:
    def __init__(self, pullback: NetPullback, output: Any) -> None:
        self._pullback = pullback
        _, self._spec = flatten_tree(output)

    def __call__(self, *cotangents: Any) -> tuple[Any, ...]:
        tensors = [None if c is None else from_dlpack(c) for c in cotangents]
        params, args = self._pullback(self._spec.unflatten(tensors))
        grads = (*(params.values() if isinstance(params, dict) else [params]), *args)
        return tuple(None if grad is None else _export(grad) for grad in grads)


def fcnet(
    sizes: tuple[int, ...], activation: str | Activation, dtype: str, seed: int
) -> tuple[Handle, tuple[Any, ...]]:
    """A handle of an :class:`FCNet`, and its initial parameters as capsules."""
    net = FCNet(sizes, activation, dtype)
    name = activation if isinstance(activation, str) else "custom activation"
    widths = " => ".join(str(n) for n in net.sizes)
    handle = Handle(net, f"FCNet({widths}, {name}, {dtype})", net.sizes[0])
    return handle, tuple(_export(value) for value in net.init(seed).values())


def layer(module: paddle.nn.Layer) -> tuple[Handle, tuple[Any, ...]]:
    """A handle of any layer, and copies of its parameters as capsules."""
    net, params, _ = stateless(module)
    handle = Handle(net, type(module).__name__, 0)
    return handle, tuple(_export(value) for value in params.values())


def _pack(output: Any) -> Packed:
    leaves, spec = flatten_tree(output)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(
                "a net called from Julia must return tensors, or tuples, lists and "
                f"dicts of them; this one returns a {type(leaf).__name__}"
            )
    structure = None if spec.is_leaf() else spec.unflatten([None] * len(leaves))
    return (structure, *(_export(leaf) for leaf in leaves))


def _export(tensor: Tensor) -> Any:
    tensor = tensor.detach()
    return to_dlpack(tensor if tensor.is_contiguous() else tensor.contiguous())
