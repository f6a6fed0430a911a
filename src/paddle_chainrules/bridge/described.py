"""Nets as text and tensors, for Julia's streams, and nets of these."""

from __future__ import annotations

import json

from paddle import Tensor

from ..nets.fcnet import FCNet
from ..nets.layers.stateless import StatelessLayer, constructed
from .handles import Handle, of_fcnet, of_layer


def described(handle: Handle) -> tuple[str, tuple[Tensor, ...]]:
    """Return a net as text, which cannot hold code, and the tensors that it holds.

    Raises:
        TypeError: what it is made of is not Paddle's alone.
    """
    net = handle.net
    if type(handle) is Handle and isinstance(net, StatelessLayer):
        facts, tensors = net.described()
        return json.dumps({"label": handle.label, **facts}), tuple(tensors)
    if type(handle) is Handle and isinstance(net, FCNet):
        if isinstance(net.activation, str):
            return json.dumps([net.sizes, net.activation, net.dtype]), ()
        raise TypeError(
            "the activation of this net is a function, and nobody's code travels with "
            "a net; use a built-in activation, or write its parameters with "
            "save_params, make the net where they are needed, and read them there with "
            "load_params"
        )
    raise TypeError(
        f"{handle.label} is made of another net, and that one is written instead; make "
        "this of it where it is needed"
    )


def of_description(text: str, tensors: tuple[Tensor, ...]) -> Handle:
    """Return the handle of a net that is described; the tensors are copied.

    Raises:
        ValueError: none is.
    """
    facts = json.loads(text)
    if isinstance(facts, list):
        sizes, activation, dtype = facts
        return of_fcnet(FCNet(tuple(sizes), activation, dtype))
    copies = tuple(tensor.clone() for tensor in tensors)
    return of_layer(constructed(facts, copies), facts["label"])
