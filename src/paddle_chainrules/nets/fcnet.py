"""The stateless fully connected net."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ..paddle_side.dtypes import DTYPES, dtype_named
from ..paddle_side.near_names import METHODS
from ..paddle_side.static_graphs import need_tensors, sot
from ..transforms.recordings.effects import Effects
from .activations import Activation, resolve
from .calls.programs import NetPrograms, programs_for_paddle_layers
from .calls.pullback import NetPullback
from .chain import Chain
from .checks import check_tensor, check_width
from .description import chain_formula
from .net import Net
from .parameters.params import P, Params, ParamSpec


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

    Examples:
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

    if TYPE_CHECKING:

        def forward(self, params: Params, *args: Any, **kwargs: Any) -> Tensor: ...

        def __call__(self, params: Params, *args: Any, **kwargs: Any) -> Tensor: ...

        def pullback(
            self, params: P, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, NetPullback[P]]: ...

    def __post_init__(self) -> None:
        try:
            sizes = tuple(self.sizes)
        except (TypeError, AssertionError):  # as of a tensor without dimensions
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
        dtype_named(self.dtype)

    def _depends_on(self) -> list[Any]:
        """Return what results depend on besides arguments: an activation of others."""
        return [] if isinstance(self.activation, str) else [self.activation]

    @property
    def _is_opaque(self) -> bool:
        """True if it can't be known what its results depend on."""
        return not isinstance(self.activation, str)

    def __getstate__(self) -> dict[str, Any]:
        # What is derived from these is made anew, some of it can't be pickled.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def in_dtype(self, dtype: str) -> FCNet:
        dtype_named(dtype)
        return self if dtype == self.dtype else replace(self, dtype=dtype)

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

    _elsewhere = METHODS | dict.fromkeys(
        ("eval", "train"), "nothing: it is the same in training and evaluation"
    )

    def init(self, seed: int) -> dict[str, Tensor]:
        """Return fresh parameters: Xavier-uniform weights, zero biases.

        The same seed gives the same values everywhere; no global random state is read
        or changed. On Paddle's current device.

        Source: Glorot and Bengio, "Understanding the difficulty of training deep
        feedforward neural networks", AISTATS 2010, eq. 16.
        """
        need_tensors(sot.fallback(True))
        rng = np.random.default_rng(seed)
        params = {}
        for name, shape in zip(self.spec.names, self.spec.shapes, strict=True):
            if len(shape) == 2:
                bound = np.sqrt(6.0 / sum(shape))
                value = rng.uniform(-bound, bound, shape)
            else:
                value = np.zeros(shape)
            params[name] = paddle.to_tensor(value).astype(DTYPES[self.dtype])
        return params

    def _check(self, params: Params, args: tuple[Any, ...]) -> None:
        if len(args) != 1:
            remedy = (
                "put them side by side with paddle.concat, or use stateless(layer)"
                if args
                else "give the parameters first, as net(params, x)"
            )
            raise TypeError(
                f"an FCNet takes one input x, got {len(args)} arguments; {remedy}"
            )
        (x,) = args
        check_tensor("x", x, self.dtype)
        check_width(x, self.sizes[0])
        if self.dtype in ("float16", "bfloat16") and x.place.is_cpu_place():
            raise TypeError(
                f"the net computes in {self.dtype}, for which Paddle's CPU build has "
                "no matrix product; use dtype='float32', or a GPU"
            )

    @cached_property
    def chain(self) -> Chain | None:
        if not isinstance(self.activation, str):
            return None
        return Chain(self.spec, self.activation)

    @cached_property
    def _programs(self) -> NetPrograms | None:
        # An activation of the user's may decide by anything.
        return (
            programs_for_paddle_layers(self)
            if isinstance(self.activation, str)
            else None
        )

    @cached_property
    def _effects(self) -> Effects:
        # An activation of the user's may close over anything.
        return Effects(writes=False, reaches=not isinstance(self.activation, str))

    def _formula(self) -> str:
        name = self.activation if isinstance(self.activation, str) else "activation"
        return chain_formula(name, len(self.sizes) - 1)

    def _apply(self, params: dict[str, Tensor], x: Tensor) -> Tensor:
        values = [*params.values()]
        *hidden, (weight, bias) = zip(values[::2], values[1::2], strict=True)
        for w, b in hidden:
            x = self._act(F.linear(x, w, b))
        return F.linear(x, weight, bias)
