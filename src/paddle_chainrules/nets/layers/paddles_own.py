"""Layers of Paddle's alone, whose calls depend on nothing that could change."""

from __future__ import annotations

import functools
import types
from typing import Any

import paddle

from .attribute_walk import ATOMS, TensorMark, walk

_KNOWN = frozenset({"paddle", "builtins", "collections", "numpy", "functools"})


def is_paddles_own(layer: paddle.nn.Layer) -> bool:
    """Tell whether all that a layer holds is Paddle's, forwards and hooks included.

    Then programs may serve its calls without being asked. A stateless net has a copy of
    the layer, so that nobody changes its attributes. No code of a user's runs, which
    could read variables that change.
    """
    held_values = (value for _, _, _, value in walk(layer, ""))
    return _is_paddle_value(layer) and all(map(_is_paddle_value, held_values))


def _is_paddle_value(value: Any) -> bool:
    if value is None or isinstance(value, (*ATOMS, paddle.Tensor, TensorMark)):
        return True
    if isinstance(value, paddle.nn.Layer):
        return _is_of_paddle(type(value)) and _is_of_paddle(type(value).forward)
    if isinstance(value, types.FunctionType | types.MethodType):
        return _is_of_paddle(value)
    if isinstance(value, functools.partial):
        return True  # what it holds is looked at
    return _top_package(type(value)) in _KNOWN


def _is_of_paddle(code: Any) -> bool:
    return _top_package(code) == "paddle"


def _top_package(code: Any) -> str:
    return str(getattr(code, "__module__", None) or "").split(".")[0]
