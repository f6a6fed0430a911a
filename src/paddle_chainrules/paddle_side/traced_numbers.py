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

_INEXACT_DTYPES = (paddle.float32, paddle.float64, paddle.complex64, paddle.complex128)
_INTEGER_DTYPES = (paddle.int32, paddle.int64)

_KINDS = {(True, False): int, (False, False): float}
_KINDS |= {(True, True): np.int64, (False, True): np.float64}
"""The types of numbers, by whether they are whole, and NumPy's."""


class ValueNeeded(Exception):
    """An error: code asked for the value of a number that each call may give anew."""

    def __init__(self, origins: frozenset[int], message: str) -> None:
        super().__init__(message)
        self.origins = origins


def number_to_tensor(value: float) -> Tensor:
    """Put a number into a 0-d tensor of float64 or int64."""
    is_integer = isinstance(value, int | np.int64)
    return paddle.full([], value, "int64" if is_integer else "float64")


Formula = Callable[[Sequence[Any]], Any]
"""A number of Python's, computed of a function's leaves."""


class NumberUses(NamedTuple):
    """What a function does with numbers that are inputs."""

    needed: set[int]
    """Positions of numbers whose value it asks for."""
    divisions: list[Formula]
    """Quotients and powers, for which Python may raise an error."""


class TracedNumber:
    """A float or an int that stands for a 0-d tensor, which is an input of a program.

    It computes with numbers and tensors as its value would. All else raises
    :class:`ValueNeeded`.

    Args:
        tensor: 0-d, of float64 or int64.
        kind: the type of the number that it stands for, Python's or NumPy's.
        origins: the positions of the arguments on which it depends.
        formula: what it is.
        uses: where its uses are noted.
        bound: for an integer, more than its absolute value.
    """

    __slots__ = ("_bound", "_formula", "_tensor", "_uses", "kind", "origins")

    def __init__(
        self,
        tensor: Tensor,
        kind: type,
        origins: frozenset[int],
        formula: Formula,
        uses: NumberUses,
        bound: int = MAX_INTEGER,
    ) -> None:
        self._tensor, self._bound, self.kind = tensor, bound, kind
        self.origins, self._formula, self._uses = origins, formula, uses

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For ``isinstance``: the type of the represented number."""
        return self.kind

    @property
    def _is_integer(self) -> bool:
        return self._tensor.dtype == paddle.int64

    def refuse(self) -> NoReturn:
        """Note that its value is asked for.

        Raises:
            ValueNeeded: always.
        """
        self._uses.needed.update(self.origins)
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
        if not self._is_integer:
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
        if dtype in _INEXACT_DTYPES or (
            self._is_integer and dtype in _INTEGER_DTYPES and fits
        ):
            return self._tensor.astype(dtype)
        self.refuse()

    def _derived(
        self,
        tensor: Tensor,
        apply: Callable[..., Any],
        operands: Sequence[Any],
        may_fail: bool = False,
        bound: int = MAX_INTEGER,
    ) -> TracedNumber:
        """Return a number that is computed of this one, and perhaps of another one."""
        traced = [operand for operand in operands if type(operand) is TracedNumber]
        origins = frozenset[int]().union(*(operand.origins for operand in traced))
        formulas = [
            operand._formula
            if type(operand) is TracedNumber
            else lambda _, operand=operand: operand
            for operand in operands
        ]

        def formula(leaves: Sequence[Any]) -> Any:
            return apply(*(evaluate(leaves) for evaluate in formulas))

        if may_fail:
            self._uses.divisions.append(formula)
        is_numpy = any(issubclass(operand.kind, np.generic) for operand in traced)
        kind = _KINDS[tensor.dtype == paddle.int64, is_numpy]
        return TracedNumber(tensor, kind, origins, formula, self._uses, bound)

    def _tensor_and_bound(self, other: Any) -> tuple[Any, int]:
        """Return the other operand as a tensor, and its bound."""
        if type(other) is TracedNumber:
            return other._tensor, other._bound
        if type(other) is float:
            return number_to_tensor(other), 0
        if type(other) is int and abs(other) < MAX_INTEGER:
            return number_to_tensor(other), abs(other) + 1
        self.refuse()


def _arithmetic_method(name: str, is_right: bool) -> Callable[[TracedNumber, Any], Any]:
    """Return a method for an operator of two numbers."""
    apply: Callable[[Any, Any], Any] = getattr(operator, name)

    def method(self: TracedNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            self_tensor: Any = self.like(other)
            return apply(other, self_tensor) if is_right else apply(self_tensor, other)
        tensor, bound = self._tensor_and_bound(other)
        self_tensor = self._tensor
        is_integer = (
            self_tensor.dtype == tensor.dtype == paddle.int64 and name != "truediv"
        )
        if is_integer:
            bound = self._bound * bound if name == "mul" else self._bound + bound
            if bound >= MAX_SEED:
                self.refuse()
        else:
            self_tensor, tensor = (
                self_tensor.astype("float64"),
                tensor.astype("float64"),
            )
        pair = (tensor, self_tensor) if is_right else (self_tensor, tensor)
        operands = (other, self) if is_right else (self, other)
        return self._derived(apply(*pair), apply, operands, name == "truediv", bound)

    return method


def _comparison_method(name: str) -> Callable[[TracedNumber, Any], Any]:
    """Return a method that compares with a tensor, or two numbers as Python does."""
    apply: Callable[[Any, Any], Any] = getattr(operator, name)

    def method(self: TracedNumber, other: Any) -> Any:
        if isinstance(other, Tensor):
            return apply(self.like(other), other)
        self.refuse()

    return method


def _power(self: TracedNumber, exponent: Any) -> Any:
    """Return a float to the power of an integer, which is real for every float."""
    if self._is_integer or type(exponent) is not int:
        self.refuse()
    result = self._tensor ** number_to_tensor(float(exponent))
    return self._derived(result, operator.pow, (self, exponent), may_fail=True)


def _reflected_power(self: TracedNumber, base: Any) -> Any:
    """Return a positive float to any power."""
    if type(base) is not float or not 0.0 < base < math.inf:
        self.refuse()
    exponent = self._tensor.astype("float64")
    result = number_to_tensor(base) ** exponent
    return self._derived(result, operator.pow, (base, self), may_fail=True)


def _negative(self: TracedNumber) -> TracedNumber:
    return self._derived(-self._tensor, operator.neg, (self,), bound=self._bound)


def _refuse_value(self: TracedNumber, *_: Any) -> Any:
    self.refuse()


for _name in ("add", "sub", "mul", "truediv"):
    setattr(TracedNumber, f"__{_name}__", _arithmetic_method(_name, False))
    setattr(TracedNumber, f"__r{_name}__", _arithmetic_method(_name, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(TracedNumber, f"__{_name}__", _comparison_method(_name))
for _name, _method in (
    ("pow", _power),
    ("rpow", _reflected_power),
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
    setattr(TracedNumber, f"__{_name}__", _refuse_value)


_COMPUTED_WITH_TENSORS = frozenset(
    f"Tensor.__{_name}__"
    for _name in (
        *("add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv"),
        *("rtruediv", "lt", "le", "gt", "ge", "eq", "ne"),
    )
)


def numbers_to_tensors(name: str, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an operator's arguments, with a tensor for a number beside a tensor.

    Raises:
        ValueNeeded: the operator takes numbers alone in its place.
    """
    for number in operands:
        if type(number) is TracedNumber:
            break
    else:
        return operands
    if (
        name not in _COMPUTED_WITH_TENSORS
        or len(operands) != 2
        or not isinstance(operands[0], Tensor)
    ):
        number.refuse()
    return operands[0], number.like(operands[0])
