"""Types of arguments and results of transforms, for editors and type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple

    Primals = TypeVarTuple("Primals")

X = TypeVar("X")
"""A tree that is differentiated by, which gradients are nested as."""
Y = TypeVar("Y")
"""A value."""
Y_co = TypeVar("Y_co", covariant=True)
Aux = TypeVar("Aux")
Aux_co = TypeVar("Aux_co", covariant=True)

Function = Callable[..., Y]
WithAux = Callable[..., tuple[Y, Aux]]


class Grad(Protocol):
    """Gradients by the first argument."""

    def __call__(self, x: X, /, *args: Any, **kwargs: Any) -> X: ...


class GradAndAux(Protocol, Generic[Aux_co]):
    """Gradients by the first argument, and aux."""

    def __call__(self, x: X, /, *args: Any, **kwargs: Any) -> tuple[X, Aux_co]: ...


class ValueAndGrad(Protocol, Generic[Y_co]):
    """The value, and gradients by the first argument."""

    def __call__(self, x: X, /, *args: Any, **kwargs: Any) -> tuple[Y_co, X]: ...
