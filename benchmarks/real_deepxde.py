"""Nets of DeepXDE on Paddle, as its examples build them."""

from __future__ import annotations

import os
from typing import Any

import paddle
from paddle.nn import Layer

from real_comparison import Make


def deepxde(kind: str) -> Any:
    os.environ["DDE_BACKEND"] = "paddle"
    import deepxde

    if not hasattr(deepxde.nn, kind):
        raise ImportError(f"DeepXDE has no {kind} on Paddle")
    return getattr(deepxde.nn, kind)


GLOROT = "Glorot uniform"
PLANE, ACROSS = [3, 32, 32, 32, 1], [20, 32, 32]


def points(kind: str, sizes: Any, activation: Any = "tanh", **kw: Any) -> Make:
    """A net of points in three dimensions."""

    def make() -> tuple[Layer, tuple[Any, ...]]:
        net = deepxde(kind)(sizes, activation, GLOROT, **kw)
        return net, (paddle.rand([50, sizes[0]]),)

    return make


def operator(kind: str, branch: Any, trunk: Any, product: bool, **kw: Any) -> Make:
    """A net of functions at 20 sensors and points, every pair of them or in turn."""

    def make() -> tuple[Layer, tuple[Any, ...]]:
        net = deepxde(kind)(branch, trunk, "relu", GLOROT, **kw)
        functions = paddle.randn([7 if product else 50, 20])
        return net, ((functions, paddle.rand([50, 2])),)

    return make


def multifidelity() -> tuple[Layer, tuple[Any, ...]]:
    sizes = [3, 32, 32, 1], [16, 16, 1]
    return deepxde("MfNN")(*sizes, "tanh", GLOROT), (paddle.rand([50, 3]),)


TRUNK = [2, 32, 32]

NETS: dict[str, Make] = {
    "deepxde: FNN": points("FNN", PLANE),
    "deepxde: FNN, sin": points("FNN", PLANE, "sin"),
    "deepxde: FNN, swish": points("FNN", PLANE, "swish"),
    "deepxde: FNN, dropout": points("FNN", PLANE, dropout_rate=0.1),
    "deepxde: FNN, activations of layers": points(
        "FNN", PLANE, ["relu", "tanh", "sigmoid", "sin"]
    ),
    "deepxde: PFNN": points("PFNN", [3, [16, 16], [16, 16], 2]),
    "deepxde: MsFFN": points("MsFFN", PLANE, sigmas=[1, 10]),
    "deepxde: MfNN": multifidelity,
    "deepxde: STMsFFN": points("STMsFFN", PLANE, sigmas_x=[1], sigmas_t=[1, 10]),
    "deepxde: DeepONet": operator("DeepONet", ACROSS, TRUNK, False),
    "deepxde: DeepONet, product": operator(
        "DeepONetCartesianProd", ACROSS, TRUNK, True
    ),
    "deepxde: DeepONet, product, two outputs": operator(
        *("DeepONetCartesianProd", ACROSS, TRUNK, True),
        num_outputs=2,
        multi_output_strategy="independent",
    ),
    "deepxde: POD-DeepONet": operator("PODDeepONet", ACROSS, TRUNK, True),
}
