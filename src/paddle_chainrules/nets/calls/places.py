"""Refusal of a call's tensors on several devices, where Paddle would not copy them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from paddle import Tensor

from ...paddle_side.devices import device_name
from ..parameters.params import ParamSpec
from .inputs import CallInputs
from .pullback import param_labels

_warned: WeakSet[ParamSpec] = WeakSet()


def check_places(net: Any, inputs: CallInputs) -> None:
    """Refuse tensors on two devices beside the CPU, and warn of copied parameters.

    An operator of Paddle copies what is on the CPU to the device of its other tensors.
    It has no rule for two devices, so these are left to code that moves tensors itself.

    Raises:
        ValueError: two tensors are on different devices, none of which is the CPU, and
            the net has no code of the user's.
    """
    devices: dict[str, str] = {}
    of_params = set()
    for label, tensor in _labelled_tensors(inputs):
        place = tensor.place
        on_host = place.is_cpu_place() or place.is_cuda_pinned_place()
        if label.startswith(("params[", "theta")):
            of_params.add(on_host)
        if not on_host:
            devices.setdefault(device_name(place), label)
    if len(devices) > 1 and not _has_own_code(net):
        (first, label), (second, other), *_ = devices.items()
        raise ValueError(
            f"{label} is on {first}, and {other} is on {second}; all tensors of a call "
            f"must be on one device. Move {other} with .to({first!r})"
        )
    if devices and of_params == {True} and inputs.spec not in _warned:
        _warned.add(inputs.spec)
        device, label = next(iter(devices.items()))
        remedy = f"theta = theta.to({device!r})"
        if inputs.order is not None:
            moved = f"value.to({device!r})"
            remedy = f"params = {{name: {moved} for name, value in params.items()}}"
        warnings.warn(
            f"the parameters are on the CPU, and {label} is on {device}, so Paddle "
            f"copies all parameters at each call; move them once with {remedy}",
            stacklevel=5,
        )


def _labelled_tensors(inputs: CallInputs) -> Iterator[tuple[str, Tensor]]:
    """Return the tensors of a call that hold numbers, with names for an error."""
    labels = param_labels(inputs.spec, inputs.order)
    for i, leaf in enumerate(inputs.leaves):
        if isinstance(leaf, Tensor) and leaf.size:
            label = labels[i] if i < len(labels) else f"input {i - len(labels) + 1}"
            yield label, leaf


def _has_own_code(net: Any) -> bool:
    """Tell whether a net's results depend on code of the user's."""
    if not hasattr(net, "_depends_on"):
        return True
    return any(map(_has_own_code, net._depends_on()))
