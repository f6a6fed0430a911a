"""Layers and inputs that are named on a command line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import paddle
from paddle import Tensor

NAMING_RULE = "a layer is named as module:factory or file.py:factory"


class UsageError(Exception):
    """A name that can't be used; the message says why, and what can be used."""


def layer_and_inputs(
    name: str, inputs: list[str]
) -> tuple[paddle.nn.Layer, tuple[Tensor, ...]]:
    """Return the layer that a factory gives, and inputs for it.

    Args:
        name: ``module:factory``, the factory a layer, a class of layers, or a function
            without arguments that gives a layer, or a layer and a tuple of inputs.
        inputs: what each input is like, see :func:`tensor_like`; none where the factory
            gives inputs.

    Raises:
        UsageError: no such factory, or one that gives something else.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        raise UsageError(f"{NAMING_RULE}, got {name!r}; such as paddle.nn:Tanh")
    try:
        result: Any = _module(module)
        for name_part in attribute.split("."):
            result = getattr(result, name_part)
    except (AttributeError, ModuleNotFoundError) as error:
        raise UsageError(
            f"{NAMING_RULE}, but for {name!r}: {error}; run it where Python finds the "
            "module"
        ) from error
    paddle.seed(0)
    if not isinstance(result, paddle.nn.Layer):
        try:
            result = result()
        except TypeError as error:
            raise UsageError(
                f"a factory takes no arguments, but {name!r} says: {error}; write a "
                "function that gives the layer as you want it"
            ) from error
    factory_inputs: tuple[Any, ...] = ()
    if isinstance(result, tuple) and result:
        result, *rest = result
        factory_inputs = (
            tuple(rest[0]) if len(rest) == 1 and type(rest[0]) is tuple else (*rest,)
        )
    if not isinstance(result, paddle.nn.Layer):
        raise UsageError(
            f"a factory gives a paddle.nn.Layer, or one and its inputs, but {name!r} "
            f"gave {type(result).__name__}; let it return the layer"
        )
    if bool(factory_inputs) == bool(inputs):
        what = "both" if factory_inputs else "neither"
        raise UsageError(
            f"inputs come from the factory or from the command line, here {what}; "
            "name their shapes, such as --input 64x3, or return (layer, (x, ...))"
        )
    return result, factory_inputs or tuple(tensor_like(text) for text in inputs)


def check_call(layer: paddle.nn.Layer, inputs: tuple[Any, ...]) -> None:
    """Call the layer as Paddle does.

    Raises:
        UsageError: it takes no such inputs.
    """
    try:
        layer(*inputs)
    except Exception as error:  # whatever a layer of the user's raises
        tensors = (x for x in inputs if isinstance(x, Tensor))
        shapes = ", ".join(f"shape {list(x.shape)} and {x.dtype}" for x in tensors)
        raise UsageError(
            f"{type(layer).__name__} itself refuses inputs of {shapes}: "
            f"{short_message(error)}; name others by --input, such as 64x3:float64"
        ) from error


def short_message(error: Exception) -> str:
    """Return the first line of an error, with its kind."""
    first = next((line for line in str(error).split("\n") if line.strip()), "")
    return f"{type(error).__name__}: {first.strip()[:300]}"


def tensor_like(text: str) -> Tensor:
    """Make a random tensor: ``64x3``, ``64x3:float64`` or ``64x5:int64:100``.

    Floating tensors are normal; integers lie below the last number.
    """
    shape, _, dtype_text = text.partition(":")
    dtype, _, high = dtype_text.partition(":")
    try:
        sizes = [int(n) for n in shape.split("x")] if shape else []
        kind: Any = dtype or "float32"
        if dtype.startswith("int"):
            return paddle.randint(0, int(high), sizes, kind)
        return paddle.randn(sizes).astype(kind)
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            "an input is like 64x3, 64x3:float64 or, for integers below 100, "
            f"64x5:int64:100, got {text!r}; give its sizes with x between"
        ) from error


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise UsageError(f"{NAMING_RULE}, but there is no file {name}; give its path")
    sys.path.insert(0, str(path.parent))
    return importlib.import_module(path.stem)
