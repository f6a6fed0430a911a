"""The stateless fully connected net."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ._activations import Activation, resolve
from ._autodiff import check_cotangent, records_graph
from ._closed_form import Raw, Tape, forward, raw, reverse, value
from ._net import WRT, Net, NetPullback, asked_for, check_place, check_tensor
from ._params import DTYPES, Params, ParamSpec

MANY_DEVICES = paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu()


def _tensors(params: Params) -> Iterable[Tensor]:
    return (params,) if isinstance(params, Tensor) else params.values()


@dataclass(frozen=True)
class FCNet(Net):
    """A fully connected net as a pure function of ``(params, x)``.

    ``y = W_L' a(... a(W_1' x + b_1) ...) + b_L``, row by row; no activation after the
    last layer. Parameters are ``"0.weight"`` of shape ``[sizes[0], sizes[1]]``,
    ``"0.bias"`` of shape ``[sizes[1]]``, ``"1.weight"``, ... (Paddle's Linear).

    Unlike a ``paddle.nn.Layer`` it holds no parameters: it is a frozen value, equal to
    another of the same sizes, activation and dtype.

    Args:
        sizes: features in, hidden widths, features out; at least two, all positive.
        activation: a name of the built-in ones, or any differentiable callable of a
            tensor.
        dtype: "float32", "float64", "float16" or "bfloat16". Paddle's CPU build has no
            matrix product for the last two.

    ``x`` has shape ``[n, sizes[0]]`` and ``y`` ``[n, sizes[-1]]``. One sample without
    batch dimension, further leading dimensions, and n = 0 work.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet
        >>> net = FCNet((3, 16, 2), activation="tanh")
        >>> params = net.init(seed=0)
        >>> net.forward(params, paddle.ones([5, 3])).shape
        paddle.Size([5, 2])
    """

    sizes: tuple[int, ...]
    activation: str | Activation = "sigmoid"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        try:
            sizes = tuple(self.sizes)
        except TypeError:
            sizes = ()
        if len(sizes) < 2 or not all(
            isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0
            for n in sizes
        ):
            raise ValueError(
                "sizes needs at least two positive integers, features in to features "
                f"out, for example (2, 16, 1); got {self.sizes!r}"
            )
        object.__setattr__(self, "sizes", tuple(int(n) for n in sizes))
        resolve(self.activation)
        if self.dtype not in DTYPES:
            raise ValueError(
                f"unsupported dtype {self.dtype!r}; use one of {list(DTYPES)}"
            )

    @cached_property
    def spec(self) -> ParamSpec:
        names: list[str] = []
        shapes: list[tuple[int, ...]] = []
        for i, (n_in, n_out) in enumerate(
            zip(self.sizes[:-1], self.sizes[1:], strict=True)
        ):
            names += [f"{i}.weight", f"{i}.bias"]
            shapes += [(n_in, n_out), (n_out,)]
        return ParamSpec(tuple(names), tuple(shapes), (self.dtype,) * len(names))

    @cached_property
    def _act(self) -> Callable[[Tensor], Tensor]:
        return resolve(self.activation)

    def init(self, seed: int) -> dict[str, Tensor]:
        """Fresh parameters: Xavier-uniform weights, zero biases.

        The same seed gives the same numbers everywhere; no global random state is
        read or changed. On Paddle's current device.

        Source: Glorot and Bengio, "Understanding the difficulty of training deep
        feedforward neural networks", AISTATS 2010, eq. 16.
        """
        rng = np.random.default_rng(seed)
        params = {}
        for name, shape in zip(self.spec.names, self.spec.shapes, strict=True):
            if len(shape) == 2:
                bound = np.sqrt(6.0 / sum(shape))
                value = rng.uniform(-bound, bound, shape)
            else:
                value = np.zeros(shape)
            params[name] = paddle.to_tensor(value).astype(self.dtype)
        return params

    def _check(self, params: Params, args: tuple[Any, ...]) -> None:
        if len(args) != 1:
            raise TypeError(f"an FCNet takes one input x, got {len(args)} arguments")
        (x,) = args
        check_tensor("x", x, self.dtype)
        if x.shape[-1:] != self.sizes[:1]:
            raise ValueError(
                f"x has shape {list(x.shape)}, the net needs [n, {self.sizes[0]}]: "
                f"{self.sizes[0]} features in the last dimension, the batch before it"
            )
        if MANY_DEVICES:
            for part in _tensors(params):
                check_place("x", x.place, part.place)
        if self.dtype in ("float16", "bfloat16") and x.place.is_cpu_place():
            raise TypeError(
                f"the net computes in {self.dtype}, for which Paddle's CPU build has "
                "no matrix product; use dtype='float32', or a GPU"
            )

    @cached_property
    def raw(self) -> Raw | None:
        """The activation on raw operators, where it has them."""
        return raw(self.activation) if isinstance(self.activation, str) else None

    def weights(self, params: Params) -> list[tuple[Tensor, Tensor]]:
        """``(weight, bias)`` of each layer, of checked parameters."""
        values = list(self.spec.as_dict(params).values())
        return list(zip(values[::2], values[1::2], strict=True))

    def _apply(self, params: Params, x: Tensor) -> Tensor:
        weights = self.weights(params)
        if self.raw is not None:
            return value(self.raw.value, weights, x)
        *hidden, (weight, bias) = weights
        for w, b in hidden:
            x = self._act(F.linear(x, w, b))
        return F.linear(x, weight, bias)

    def forward(self, params: Params, *args: Any, **kwargs: Any) -> Tensor:
        """The output at ``x`` of shape [n, sizes[0]], of shape [n, sizes[-1]]."""
        self._check(params, args)
        return self._apply(params, *args, **kwargs)

    def pullback(
        self, params: Params, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, NetPullback]:
        """As :meth:`Net.pullback`, in closed form for the built-in activations.

        Where gradients are to be differentiated once more (a tensor with
        ``stop_gradient=False`` while gradients are on), ``paddle.grad`` does it.
        """
        self._check(params, args)
        (x,) = args
        asking = records_graph((x, *_tensors(params)))
        if self.raw is None or kwargs or asking:
            return super().pullback(params, x, **kwargs)
        weights = self.weights(params)
        rows = x if x.ndim == 2 else x.reshape([-1, self.sizes[0]])
        y, tape = forward(self.raw, weights, rows)
        shape = (*x.shape[:-1], self.sizes[-1])
        names = None if isinstance(params, Tensor) else tuple(params)
        pullback = ClosedPullback(self, weights, tape, x, shape, names)
        return y if x.ndim == 2 else y.reshape(shape), pullback


class ClosedPullback(NetPullback):
    """The pullback of an :class:`FCNet` without a recorded graph."""

    def __init__(
        self,
        net: FCNet,
        weights: list[tuple[Tensor, Tensor]],
        tape: Tape,
        x: Tensor,
        shape: tuple[int, ...],
        names: tuple[str, ...] | None,
    ) -> None:
        self._net = net
        self._weights = weights
        self._tape = tape
        self._x = x
        self._shape = shape
        self._names = names

    def __call__(
        self, cotangent: Tensor, *, wrt: str | tuple[str, ...] = WRT
    ) -> tuple[Any, Any]:
        """``(grad_params, (grad_x,))``, None where not asked for; repeatable."""
        asked = asked_for(wrt)
        check_cotangent(cotangent, self._shape, self._x.dtype)
        grads, x_bar = self.reverse(cotangent, "params" in asked, "args" in asked)
        grad_params: Any = None
        if grads is not None:
            grad_params = dict(zip(self._net.spec.names, grads, strict=True))
            if self._names is None:
                grad_params = self._net.flatten(grad_params)
            elif self._names != self._net.spec.names:
                grad_params = {name: grad_params[name] for name in self._names}
        return grad_params, None if x_bar is None else (x_bar,)

    def reverse(
        self, cotangent: Tensor, params: bool, args: bool
    ) -> tuple[list[Tensor] | None, Tensor | None]:
        """Gradients in the order of ``spec.names``, and of x; unchecked."""
        rows = self._x.ndim == 2
        d = cotangent if rows else cotangent.reshape([-1, self._net.sizes[-1]])
        raw = self._net.raw
        assert raw is not None
        grads, x_bar = reverse(raw, self._weights, self._tape, d, params, args)
        if x_bar is not None and not rows:
            x_bar = x_bar.reshape(self._x.shape)
        return grads, x_bar
