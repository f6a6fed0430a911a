"""The sides of a comparison: a net, and Paddle's layer itself."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle
from paddle import Tensor, nn

from ..nets.fcnet import FCNet
from ..nets.layers.of_layer import stateless
from ..nets.net import Net
from ..paddle_side.autograd.engine import gradients
from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.process.random_state import drawing_from
from ..paddle_side.rules.operators import TapeContext
from ..transforms.containers.tree import Tree, flatten_tree


def move_to(value: Any, device: str, dtype: str | None = None) -> Any:
    leaves, structure = flatten_tree(value)
    moved = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().to(device)
            if dtype is not None and leaf.is_floating_point():
                leaf = leaf.astype(getattr(paddle, dtype))
        moved.append(leaf)
    return structure.unflatten(moved)


def _as_dtype(layer: paddle.nn.Layer, device: str, dtype: str) -> paddle.nn.Layer:
    """Return a copy of another dtype, its integers and Booleans as they are."""
    converted: Any = copy.deepcopy(layer)
    converted.to(device, dtype)
    pairs = zip(layer.sublayers(True), converted.sublayers(True), strict=True)
    for original, copied in pairs:
        for name, value in original._buffers.items():
            is_integral = isinstance(value, Tensor) and not is_differentiable(value)
            if is_integral and value._is_initialized():
                copied._buffers[name] = value.detach().clone().to(device)
    return converted


class Side:
    """A net in one dtype on one device, with its layer in the same state."""

    def __init__(
        self,
        net: Net,
        params: Mapping[str, Tensor] | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        layer: nn.Layer | None,
        dtype: str,
        device: str,
    ) -> None:
        self.dtype, self.device = dtype, device
        self.args = tuple(move_to(arg, device, dtype) for arg in args)
        self.kwargs = {n: move_to(arg, device, dtype) for n, arg in kwargs.items()}
        self.layer: nn.Layer | None = None
        if layer is None:
            assert isinstance(net, FCNet)
            self.net: Net = dataclasses.replace(net, dtype=dtype)
            initial_params = net.init(0) if params is None else net.spec.as_dict(params)
            self.params = move_to(dict(initial_params), device, dtype)
            return
        self.layer = _as_dtype(layer, device, dtype)
        self.net, self.params, _ = stateless(self.layer)
        if params is not None:
            self.params = move_to(dict(params), device, dtype)
            layer_params = dict(self.layer.named_parameters())
            for name, value in self.params.items():
                layer_params[name].set_value(value)

    def outputs(self, params: Mapping[str, Tensor], inputs: Tree) -> list[Any]:
        """Return the leaves of the net's results."""
        args, kwargs = inputs
        with drawing_from(0):
            return flatten_tree(self.net.forward(params, *args, **kwargs))[0]

    def gradients(self, cotangents: Sequence[Any]) -> dict[str, Any]:
        """Return outputs and gradients by our pullback, by their labels."""
        with drawing_from(0):
            y, pullback = self.net.pullback(self.params, *self.args, **self.kwargs)
        leaves, structure = flatten_tree(y)
        cotangent = structure.unflatten(self._cast(cotangents))
        wrt = ("params", "args", "kwargs") if self.kwargs else ("params", "args")
        by_name, *by_input = pullback(cotangent, wrt=wrt)
        return label_tensors(leaves, by_name or {}, flatten_tree(by_input)[0])

    def native_gradients(self, cotangents: Sequence[Any]) -> dict[str, Any]:
        """Return outputs and gradients by the layer itself, and paddle.grad."""
        original_leaves, structure = flatten_tree((self.args, self.kwargs))
        leaves = [
            leaf.detach() if is_differentiable(leaf) else leaf
            for leaf in original_leaves
        ]
        inputs: Any = structure.unflatten(leaves)
        if self.layer is None:
            params = {name: p.detach() for name, p in self.params.items()}
            call: Callable[..., Tree] = lambda *args: self.net.forward(params, *args)  # noqa: E731
        else:
            layer_params = dict(self.layer.named_parameters())
            params = {name: layer_params[name] for name in self.net.spec.names}
            call = self.layer
        differentiated = [*params.values(), *filter(is_differentiable, leaves)]
        args, kwargs = inputs
        outputs, grads = native_gradients(
            call, args, kwargs, differentiated, self._cast(cotangents)
        )
        results = iter(grads)
        by_name = {name: next(results) for name in params}
        by_arg = [next(results) if is_differentiable(leaf) else None for leaf in leaves]
        return label_tensors(outputs, by_name, by_arg)

    def _cast(self, cotangents: Sequence[Any]) -> list[Any]:
        return [
            None if c is None else move_to(c, self.device, self.dtype)
            for c in cotangents
        ]


def native_gradients(
    call: Callable[..., Tree],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wanted: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
) -> tuple[list[Any], Sequence[Tensor | None]]:
    """Return output leaves of a layer itself, and gradients by the wanted tensors.

    By ``paddle.grad`` alone, with the same random numbers every time; what a kernel
    needs beside, such as the frozen scale of a LayerNorm, is differentiated too. The
    wanted tensors, parameters of the layer or leaves of its arguments, are left
    requiring gradients.
    """
    for leaf in wanted:
        leaf.stop_gradient = False
    tape = TapeContext(wanted)
    with drawing_from(0):
        outputs, _ = flatten_tree(tape.call(lambda: call(*args, **kwargs)))
    pairs = [
        (output, cotangent)
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None and not output.stop_gradient
    ]
    differentiated_outputs, seeds = zip(*pairs, strict=True)
    result = gradients(
        differentiated_outputs,
        [*wanted, *tape.requested_tensors.values()],
        seeds,
        False,
    )
    return outputs, result[: len(wanted)]


def label_tensors(
    outputs: Sequence[Any], by_name: Mapping[str, Any], by_arg: Sequence[Any]
) -> dict[str, Any]:
    return {
        **{f"output {i}": value for i, value in enumerate(outputs)},
        **{f"params[{name!r}]": grad for name, grad in by_name.items()},
        **{f"argument {i}": grad for i, grad in enumerate(by_arg)},
    }
