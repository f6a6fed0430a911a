"""The built-in activations, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

Activation = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    """Return x itself. A net of such layers is affine."""
    return x


# gelu and softplus are no functions of Python's: looked up where they are called.
ACTIVATIONS: dict[str, Activation] = {
    "identity": identity,
    "sigmoid": F.sigmoid,
    "tanh": paddle.tanh,
    "relu": F.relu,
    "gelu": lambda x: F.gelu(x),
    "silu": F.silu,
    "softplus": lambda x: F.softplus(x),
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "mish": F.mish,
    "sin": paddle.sin,
}
"""Name to elementwise function, with Paddle's default constants: elu's alpha 1,
leaky_relu's slope 0.01, the exact (erf) gelu."""

LAYERS: dict[type[nn.Layer], tuple[str, dict[str, Any]]] = {
    nn.Sigmoid: ("sigmoid", {}),
    nn.Tanh: ("tanh", {}),
    nn.ReLU: ("relu", {}),
    nn.GELU: ("gelu", {"_approximate": False}),
    nn.Silu: ("silu", {"_inplace": False}),
    nn.Softplus: ("softplus", {"_beta": 1, "_threshold": 20}),
    nn.ELU: ("elu", {"_alpha": 1.0}),
    nn.LeakyReLU: ("leaky_relu", {"_negative_slope": 0.01}),
    nn.Mish: ("mish", {}),
}
"""Paddle's layers for these activations, and the attributes that they must have."""


def resolve(activation: str | Activation) -> Activation:
    """Return the function that has this name, or a callable as it is.

    Raises:
        ValueError: an unknown name.
        TypeError: neither a name nor a callable.
    """
    if isinstance(activation, str):
        try:
            return ACTIVATIONS[activation]
        except KeyError:
            near = activation.lower()
            meant = f"give {near!r}, or " if near in ACTIVATIONS else ""
            raise ValueError(
                f"unknown activation {activation!r}; {meant}one of "
                f"{sorted(ACTIVATIONS)}, or any differentiable callable of a tensor"
            ) from None
    if isinstance(activation, type):
        name = LAYERS.get(activation, (f"{activation.__name__}()",))[0]
        raise TypeError(
            f"activation is the class {activation.__name__}, which makes layers; give "
            f"{name!r}"
        )
    if callable(activation):
        return activation
    raise TypeError(
        "activation must be a name or a callable of a tensor, got "
        f"{type(activation).__name__}; the names are {sorted(ACTIVATIONS)}"
    )
