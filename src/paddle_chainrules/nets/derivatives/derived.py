"""Nets made of a net: its derivatives by the input.

As nets they may be differentiated in their turn.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from paddle import Tensor

from ...transforms.containers.tree import Tree
from ...transforms.recordings.effects import Effects
from ..calls.programs import NetPrograms, programs_for_derivative
from ..layers.stateless import RESERVED
from ..net import Net
from ..parameters.params import ParamSpec
from .derivatives import MultiIndex, derivative, derivatives
from .laplacians import laplacian

What = str | MultiIndex | tuple[MultiIndex, ...] | Mapping[str, Sequence[Any]]
"""``"laplacian"``, a partial derivative by its multi-index, or several of them, by
multi-indices or by names."""


class Derived(Net):
    """A net with the parameters of another."""

    def __init__(self, net: Net) -> None:
        self._net = net

    def _depends_on(self) -> list[Any]:
        """Return what results depend on besides arguments."""
        return [self._net]

    @property
    def spec(self) -> ParamSpec:
        return self._net.spec

    def in_dtype(self, dtype: str) -> Derived:
        result = copy.copy(self)
        result._net = self._net.in_dtype(dtype)
        for cached in ("_programs", "_cached_programs"):  # of this one
            vars(result).pop(cached, None)
        return result


class Derivative(Derived):
    """A derivative by the input: ``forward`` takes what the net takes.

    Args:
        what: the derivative.
        names: the keyword arguments that are coordinates; where there are none the
            positional arguments are, or the one alone.
    """

    def __init__(self, net: Net, what: What, names: Sequence[str] = ()) -> None:
        super().__init__(net)
        self._what, self._names = what, names

    @cached_property
    def _programs(self) -> NetPrograms | None:
        return programs_for_derivative(self, self._net._programs)

    @property
    def _effects(self) -> Effects:
        return self._net._effects

    def _apply(self, params: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tree:
        if reserved := RESERVED & kwargs.keys():
            raise TypeError(
                "derivatives by the input are of a net without random numbers, at its "
                f"own buffers; leave {' and '.join(sorted(reserved))} out"
            )
        coords: Any = args[0] if len(args) == 1 else args
        function: Any = self._net
        if self._names:
            coords = {name: kwargs[name] for name in self._names}
        if kwargs or len(args) != 1:
            function = partial(self._at_coordinates, args, kwargs)
        what: Any = self._what
        if what == "laplacian":
            return laplacian(function, params, coords)
        if isinstance(what, Mapping) or isinstance(what[0], tuple):
            return derivatives(function, params, coords, what)
        return derivative(function, params, coords, what)

    def _at_coordinates(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], params: Any, coords: Any
    ) -> Tree:
        """Return the net at other coordinates."""
        if self._names:
            return self._net.forward(params, *args, **{**kwargs, **coords})
        positional = coords if len(args) != 1 else (coords,)
        return self._net.forward(params, *positional, **kwargs)
