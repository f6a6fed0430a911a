"""Numbers of Python's that are inputs of a program, while the program is captured."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import paddle
from paddle import Tensor

MAX_INTEGER = 1 << 31
"""Bound below which an integer that is an input of a program may be computed with."""

MAX_SEED = 1 << 63
"""Bound below which it may be a seed."""

_REAL = (paddle.float32, paddle.float64, paddle.complex64, paddle.complex128)
_WHOLE = (paddle.int32, paddle.int64)


class ValueNeeded(Exception):
    """An error: code asked for the value of a number that each call may give anew."""

    def __init__(self, origins: frozenset[int], message: str) -> None:
        super().__init__(message)
        self.origins = origins


def as_input(value: float) -> Tensor:
    """Put a number into a 0-d tensor of float64 or int64."""
    whole = isinstance(value, int | np.int64)
    return paddle.full([], value, "int64" if whole else "float64")


Formula = Callable[[Sequence[Any]], Any]
"""A number of Python's, computed of a function's leaves."""


class NumberUses(NamedTuple):
    """What a function does with numbers that are inputs."""

    needed: set[int]
    """Places of numbers whose value it asks for."""
    divisions: list[Formula]
    """Quotients and powers, for which Python may raise an error."""


class TracedNumber:
    """A float or an int that stands for a 0-d tensor, which is an input of a program.

    It computes with numbers and tensors as its value would. All else raises
    :class:`ValueNeeded`.

    Args:
        tensor: 0-d, of float64 or int64.
        origins: the places of the arguments on which it depends.
        formula: what it is.
        noted: where is noted what is done with it.
        bound: for an integer, more than its absolute value.
    """

    __slots__ = ("_bound", "_formula", "_noted", "_tensor", "origins")

    def __init__(
        self,
        tensor: Tensor,
        origins: frozenset[int],
        formula: Formula,
        noted: NumberUses,
        bound: int = MAX_INTEGER,
    ) -> None:
        self._tensor, self._bound = tensor, bound
        self.origins, self._formula, self._noted = origins, formula, noted

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For ``isinstance``: the type of the represented number."""
        return int if self._is_whole else float

    @property
    def _is_whole(self) -> bool:
        return self._tensor.dtype == paddle.int64

    def refuse(self) -> NoReturn:
        """Note that its value is asked for.

        Raises:
            ValueNeeded: always.
        """
        self._noted.needed.update(self.origins)
        raise ValueNeeded(
            self.origins,
            "the value of a number is needed that changes from call to call; give it "
            "as a static argument",
        )

    def seed(self) -> Tensor:
        """Return it as an integer tensor.

        Raises:
            ValueNeeded: it is no integer.
        """
        if not self._is_whole:
            self.refuse()
        return self._tensor

    def result(self) -> Tensor:
        """Return it as a 0-d tensor, which stands for it among results."""
        return self._tensor

    def like(self, tensor: Tensor) -> Tensor:
        """Return it as a 0-d tensor of another tensor's dtype.

        Raises:
            ValueNeeded: Paddle would give another dtype to the result.
        """
        dtype = tensor.dtype
        fits = dtype == paddle.int64 or self._bound <= MAX_INTEGER
        if dtype in _REAL or (self._is_whole and dtype in _WHOLE and fits):
            return self._tensor.astype(dtype)
        self.refuse()

    def _computed(
        self,
        tensor: Tensor,
        apply: Callable[..., Any],
        parts: Sequence[Any],
        may_fail: bool = False,
        bound: int = MAX_INTEGER,
    ) -> TracedNumber:
        """Return a number that is computed of this one, and perhaps of another one."""
        traced = [part for part in parts if type(part) is TracedNumber]
        origins = frozenset[int]().union(*(part.origins for part in traced))
        formulas = [
            part._formula if type(part) is TracedNumber else lambda _, part=part: part
            for part in parts
        ]

        def formula(leaves: Sequence[Any]) -> Any:
            return apply(*(of(leaves) for of in formulas))

        if may_fail:
            self._noted.divisions.append(formula)
        return TracedNumber(tensor, origins, formula, self._noted, bound)

    def _parts(self, other: Any) -> tuple[Any, int]:
        """Return another number as a tensor, and its bound."""
        if type(other) is TracedNumber:
            return other._tensor, other._bound
        if type(other) is float:
            return as_input(other), 0
        if type(other) is int and abs(other) < MAX_INTEGER:
            return as_input(other), abs(other) + 1
        self.refuse()


def _computing(name: str, is_right: bool) -> Callable[[TracedNumber, Any], Any]:
    """Return a method for an operator of two numbers."""
    apply: Callable[[Any, Any], Any] = getattr(operator, name)

    def method(self: TracedNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            own: Any = self.like(other)
            return apply(other, own) if is_right else apply(own, other)
        tensor, bound = self._parts(other)
        own = self._tensor
        whole = own.dtype == tensor.dtype == paddle.int64 and name != "truediv"
        if whole:
            bound = self._bound * bound if name == "mul" else self._bound + bound
            if bound >= MAX_SEED:
                self.refuse()
        else:
            own, tensor = own.astype("float64"), tensor.astype("float64")
        pair = (tensor, own) if is_right else (own, tensor)
        parts = (other, self) if is_right else (self, other)
        return self._computed(apply(*pair), apply, parts, name == "truediv", bound)

    return method


def _comparing(name: str) -> Callable[[TracedNumber, Any], Any]:
    """Return a method that compares with a tensor, or two numbers as Python does."""
    apply: Callable[[Any, Any], Any] = getattr(operator, name)

    def method(self: TracedNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            return apply(self.like(other), other)
        self.refuse()

    return method


def _power(self: TracedNumber, other: Any) -> Any:
    """Return a float to the power of an integer, which is real for every float."""
    if self._is_whole or type(other) is not int:
        self.refuse()
    result = self._tensor ** as_input(float(other))
    return self._computed(result, operator.pow, (self, other), may_fail=True)


def _power_of(self: TracedNumber, base: Any) -> Any:
    """Return a positive float to any power."""
    if type(base) is not float or not 0.0 < base < math.inf:
        self.refuse()
    exponent = self._tensor.astype("float64")
    result = as_input(base) ** exponent
    return self._computed(result, operator.pow, (base, self), may_fail=True)


def _negative(self: TracedNumber) -> TracedNumber:
    return self._computed(-self._tensor, operator.neg, (self,), bound=self._bound)


def _needs_value(self: TracedNumber, *_: Any) -> Any:
    self.refuse()


for _name in ("add", "sub", "mul", "truediv"):
    setattr(TracedNumber, f"__{_name}__", _computing(_name, False))
    setattr(TracedNumber, f"__r{_name}__", _computing(_name, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(TracedNumber, f"__{_name}__", _comparing(_name))
for _name, _method in (
    ("pow", _power),
    ("rpow", _power_of),
    ("neg", _negative),
    ("pos", lambda self: self),
):
    setattr(TracedNumber, f"__{_name}__", _method)
for _name in (
    *("bool", "float", "int", "index", "complex", "hash"),
    *("floordiv", "rfloordiv", "mod", "rmod", "divmod", "rdivmod", "abs", "round"),
    *("trunc", "floor", "ceil", "repr", "str", "format", "reduce_ex", "getattr"),
    *("matmul", "rmatmul", "lshift", "rlshift", "rshift", "rrshift", "and", "rand"),
    *("or", "ror", "xor", "rxor", "invert"),
):
    setattr(TracedNumber, f"__{_name}__", _needs_value)


_COMPUTES = frozenset(
    f"Tensor.__{_name}__"
    for _name in (
        *("add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv"),
        *("rtruediv", "lt", "le", "gt", "ge", "eq", "ne"),
    )
)


def in_tensors(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an operator's arguments, with a tensor for a number beside a tensor.

    Raises:
        ValueNeeded: the operator takes numbers alone in its place.
    """
    for arg in args:
        if type(arg) is TracedNumber:
            break
    else:
        return args
    if name not in _COMPUTES or len(args) != 2 or not isinstance(args[0], Tensor):
        arg.refuse()
    return args[0], arg.like(args[0])
