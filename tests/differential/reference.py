"""What a layer of the table gives, and its gradients by differences, for Julia."""

from __future__ import annotations

from typing import Any, NamedTuple

import paddle

from paddle_chainrules import stateless

from . import layers
from .inputs import arrays_of
from .verdicts import Differences, Native, by_paddle, is_float, made, random_like


class Reference(NamedTuple):
    """A layer, what it is called with, and what must come of it, in numpy's arrays."""

    layer: Any
    inputs: list[Any]
    outputs: list[Any]
    cotangents: list[Any]
    by_parameters: list[Any]
    by_inputs: list[Any]
    """None for those that are no floats."""
    seeded: bool


def reference(name: str) -> Reference:
    """Of the layer of this name, in float64."""
    case = layers.TABLE[name]
    arrays = arrays_of(name, case.inputs)
    default = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    try:
        _, params, _ = stateless(made(case))
        args = [paddle.to_tensor(array) for array in arrays]
        tensors = [*params.values(), *args]
        places = [i for i, tensor in enumerate(tensors) if is_float(tensor)]
        exact = Differences(Native(case, [*params]), tensors, places)
        cotangents = random_like(exact.outputs, 1)
        if case.constant_writes:
            found = by_paddle(case, [*params], args, cotangents)
        else:
            found = exact.gradients(cotangents)
        layer = made(case)
    finally:
        paddle.set_default_dtype(default)
    count = len(params)
    return Reference(
        layer,
        arrays,
        exact.outputs,
        cotangents,
        [found[i] for i in range(count)],
        [found.get(count + k) for k in range(len(arrays))],
        case.seeded,
    )
