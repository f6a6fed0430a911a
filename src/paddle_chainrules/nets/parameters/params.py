"""Parameters that live outside a net: a dict in forward order, or one vector theta."""

from __future__ import annotations

import math
from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, Union

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import dtype_name, is_dtype_name
from .param_trees import ParamTree

Params: TypeAlias = Union[Mapping[str, Any], Sequence[Any], Tensor]  # noqa: UP007
"""The ``params`` of every net: ``{name: tensor}``, or the flat 1-D ``theta``.

Any tree with the same leaves will do, too. In dicts, keys and indices make up the
names, with dots between. Tuples and lists are in forward order."""

P = TypeVar("P", bound=Params)
"""Params of one form, in which gradients come back."""


def checked_tensors(name: str, tensors: Any) -> Mapping[str, Tensor]:
    """Return a dict of tensors by name.

    Raises:
        TypeError: it is something else, or holds something else.
    """
    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"{name} must be a dict of tensors by name, got {type(tensors).__name__}; "
            "net.unflatten(theta) makes one of a vector"
        )
    for key, value in tensors.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name}[{key!r}] must be a paddle.Tensor, got "
                f"{type(value).__name__}; convert it with paddle.to_tensor"
            )
    return tensors


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


@dataclass(frozen=True)
class ParamSpec:
    """Names, shapes and dtypes of a net's parameters, in forward order.

    One order serves both forms: ``theta`` is the concatenation of the parameters,
    each raveled row-major, in the order of ``names``.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    def __post_init__(self) -> None:
        columns = (self.names, self.shapes, self.dtypes)
        if (
            not all(isinstance(column, tuple) for column in columns)
            or len({*map(len, columns)}) > 1
        ):
            raise TypeError(
                "names, shapes and dtypes are tuples of the same length, got "
                f"{', '.join(type(column).__name__ for column in columns)}; "
                "ParamSpec.of makes one of parameters"
            )
        for dtype in self.dtypes:
            if not is_dtype_name(dtype):
                raise TypeError(
                    f"dtypes are names as 'float32', got {dtype!r}; give those of "
                    "Paddle's dtypes"
                )
        if not all(map(_is_text, self.names)):
            raise TypeError("names are strings, as '0.weight'; convert what is none")

    @classmethod
    def of(cls, params: Mapping[str, Tensor]) -> ParamSpec:
        """Return the spec of existing parameters.

        Raises:
            TypeError: it is no dict of tensors.
        """
        checked_tensors("params", params)
        return cls(
            tuple(params),
            tuple(tuple(p.shape) for p in params.values()),
            tuple(dtype_name(p.dtype) for p in params.values()),
        )

    def in_dtype(self, dtype: str) -> ParamSpec:
        """Return the same parameters in one dtype."""
        return ParamSpec(self.names, self.shapes, (dtype,) * len(self.names))

    def __getstate__(self) -> dict[str, Any]:
        # What is derived from these is made anew, some of it can't be pickled.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _names(self) -> KeysView[str]:
        return dict.fromkeys(self.names).keys()

    @cached_property
    def _expected(self) -> tuple[tuple[str, tuple[int, ...], paddle.dtype], ...]:
        dtypes = [getattr(paddle, dtype) for dtype in self.dtypes]
        return tuple(zip(self.names, self.shapes, dtypes, strict=True))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of each parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """Number of elements of all parameters together, the length of theta."""
        return sum(self.sizes)

    def as_dict(self, params: Params, what: str = "params") -> dict[str, Tensor]:
        """Return either form as a checked dict in forward order; ``what`` names it.

        Raises:
            TypeError: neither a mapping nor a tensor, or a dtype that differs.
            ValueError: a name missing or unknown, a shape or a length that differs.
        """
        if isinstance(params, Tensor):
            return self.unflatten(params)
        if not isinstance(params, (dict, Mapping)) or params.keys() != self._names:
            tree_and_leaves = ParamTree.of(params, self.names)
            if tree_and_leaves is not None:
                return self.as_dict(tree_and_leaves[1], what)
            if not isinstance(params, Mapping):
                raise TypeError(
                    f"{what} must be a dict of tensors, one flat tensor theta, or a "
                    f"tree with the same leaves, got {type(params).__name__}; get a "
                    "valid dict from net.init(seed) or from stateless(layer)"
                )
            missing = [n for n in self.names if n not in params]
            unknown = [n for n in params if n not in self.names]
            raise ValueError(
                f"{what} must have exactly the names {list(self.names)}; "
                f"missing: {missing}, unknown: {unknown}. "
                "stateless(layer) gives both, net.spec.names those of params in order"
            )
        checked = {}
        for name, shape, dtype in self._expected:
            checked[name] = value = params[name]
            if not isinstance(value, Tensor):
                remedy = "convert it with paddle.to_tensor"
                if value is None:
                    remedy += ", or give paddle.zeros_like of it where nothing flows"
                raise TypeError(
                    f"{what}[{name!r}] must be a paddle.Tensor, got "
                    f"{type(value).__name__}; {remedy}"
                )
            if value.shape != shape:
                is_transposed = len(shape) == 2 and [*value.shape] == [*shape[::-1]]
                raise ValueError(
                    f"{what}[{name!r}] has shape {list(value.shape)}, the net needs "
                    f"{list(shape)}; give one of that shape"
                    + (
                        ": a Paddle weight is [in, out], use .T"
                        if is_transposed
                        else ""
                    )
                )
            if value.dtype is not dtype and value.dtype != dtype:
                raise TypeError(
                    f"{what}[{name!r}] is {dtype_name(value.dtype)}, the net needs "
                    f"{dtype_name(dtype)}; convert it with "
                    f".astype({dtype_name(dtype)!r})"
                )
        return checked

    def order_of(self, params: Params) -> tuple[str, ...] | None:
        """Return the names in the order of params; None for theta.

        Raises:
            TypeError: they are neither a dict, nor a tree with the same leaves.
            ValueError: a name is missing or unknown.
        """
        if isinstance(params, Tensor):
            return None
        if isinstance(params, (dict, Mapping)):
            order = tuple(params)
            if order == self.names or params.keys() == self._names:
                return order
        tree_and_leaves = ParamTree.of(params, self.names)
        if tree_and_leaves is None:
            return tuple(self.as_dict(params))  # which says what is wrong with them
        return tree_and_leaves[0]

    def named(
        self, values: Sequence[Any], order: tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """Return a dict of values in forward order, its keys in that order or another.

        Raises:
            TypeError: the order is no tuple of names.
            ValueError: it is none of these names, or values are more or fewer.
        """
        results = dict(zip(self.names, values, strict=True))
        if order is None:
            return results
        if not isinstance(order, tuple) or not all(map(_is_text, order)):
            raise TypeError(
                f"an order is a tuple of names, got {type(order).__name__}; order_of "
                "gives that of parameters"
            )
        if order == self.names:
            return results
        if len(order) != len(results) or not all(name in results for name in order):
            raise ValueError(
                f"an order of {list(self.names)} is needed, got {list(order)}; give "
                "each name once"
            )
        return {name: results[name] for name in order}

    @cached_property
    def flat_dtype(self) -> str:
        """The one dtype that all parameters share, which theta has too."""
        kinds = sorted(set(self.dtypes))
        if len(kinds) > 1:
            raise TypeError(
                f"a flat theta needs parameters of one dtype, this net has {kinds}; "
                "pass params as a dict"
            )
        return kinds[0] if kinds else "float32"

    def flatten(self, params: Mapping[str, Tensor]) -> Tensor:
        """Put all parameters into one 1-D tensor, differentiably."""
        dtype = self.flat_dtype
        values = self.as_dict(params).values()
        if not self.names:
            return paddle.zeros([0], getattr(paddle, dtype))
        return paddle.concat([paddle.reshape(value, [-1]) for value in values])

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Split theta into a dict, differentiably; inverse of :meth:`flatten`.

        Raises:
            ValueError: theta is not 1-D or has the wrong length.
            TypeError: theta has another dtype than the parameters.
        """
        if not isinstance(theta, Tensor):
            raise TypeError(
                f"theta is a 1-D tensor of all parameters, got {type(theta).__name__}; "
                "net.flatten(params) makes it"
            )
        dtype = self.flat_dtype
        if list(theta.shape) != [self.size]:
            raise ValueError(
                f"theta has shape {list(theta.shape)}, the net needs [{self.size}], "
                f"the lengths {list(self.sizes)} of {list(self.names)} in a row; "
                "net.flatten(params) makes it, and calls are net(params, x)"
            )
        if dtype_name(theta.dtype) != dtype:
            raise TypeError(
                f"theta is {dtype_name(theta.dtype)}, the net needs {dtype}; "
                f"convert it with .astype({dtype!r})"
            )
        if not self.names:
            return {}
        segments = paddle.split(theta, list(self.sizes))
        return {
            name: paddle.reshape(segment, list(shape))
            for name, segment, shape in zip(
                self.names, segments, self.shapes, strict=True
            )
        }
