"""Nets made of a net: its gradients, and its derivatives along directions.

They take everything in a row, as it crosses to and from Julia, and may be
differentiated in their turn.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.process.random_state import checked_seed, drawing_from
from ...transforms.as_programs.by_rules import call_by_rules
from ...transforms.containers.tree import Tree, flatten_tree
from ...transforms.derivatives.jvp import linearize
from ...transforms.derivatives.vjp import vjp
from ..calls.programs import NetPrograms, of_derivatives
from ..calls.wrt import Flags, each
from ..nesting import Nesting
from ..net import Net
from ..parameters.params import Params
from .derived import Derived


class FlatArgsNet(Derived):
    """A net made of another, whose arguments come in a row.

    Args:
        count: how many arguments the other takes in a row.
        nesting: how it takes them; by position if None.
    """

    _sources: tuple[int, ...] = ()
    """Places in the row of the seeds of random numbers, which are no part of a program.
    The first that is not None counts."""

    def __init__(self, net: Net, count: int, nesting: Nesting | None = None) -> None:
        super().__init__(net)
        self._count, self._nesting = count, nesting
        if isinstance(net, FlatArgsNet):
            self._sources = net._sources
        elif nesting is not None and nesting.seed is not None:
            self._sources = (nesting.seed,)

    @cached_property
    def _kept(self) -> NetPrograms | None:
        return of_derivatives(self, self._net._programs)

    @property
    def _programs(self) -> NetPrograms | None:
        """The programs, once calls have shown that the other net is fit for them."""
        effects = self._net._effects
        plain = effects.is_known and not effects.writes and not effects.asks
        return self._kept if plain else None

    def forward(self, params: Params, *row: Any) -> Any:
        row, constants = self._apart(row)
        return self._forward(params, row, {}, constants)

    def _unchecked_pullback(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        row, constants = self._apart(args)
        return self._recorded(params, row, kwargs, constants)

    def is_seeded(self, row: Sequence[Any]) -> bool:
        """Tell whether the row holds a seed of random numbers."""
        return any(row[i] is not None for i in self._sources)

    def _apart(self, row: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the row without the sources of random numbers, and the source."""
        if not self.is_seeded(row):
            return row, {}
        rest = (None if i in self._sources else leaf for i, leaf in enumerate(row))
        source = next(row[i] for i in self._sources if row[i] is not None)
        is_state = isinstance(source, list)
        return tuple(rest), {"_seed": source if is_state else checked_seed(source)}

    def _apply(self, params: dict[str, Tensor], *row: Any, _seed: Any = None) -> Tree:
        with drawing_from(_seed):
            output, buffers = self._of_row(params, row)
        return (output, *buffers) if buffers else output

    @abc.abstractmethod
    def _of_row(
        self, params: dict[str, Tensor], row: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        """Return the output, and the layer's new buffers in a list, if there are any.

        Random numbers are whatever is drawn.
        """

    def _arguments(self, leaves: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        if self._nesting is None:
            return tuple(leaves), {}
        return self._nesting.arguments(leaves)

    def _output(
        self, params: dict[str, Tensor], leaves: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        """Return the output of the other net."""
        if isinstance(self._net, FlatArgsNet):
            return self._net._of_row(params, leaves)
        args, kwargs = self._arguments(leaves)
        result = self._net.forward(params, *args, **kwargs)
        if kwargs.get("buffers") is None:
            return result, []
        output, buffers = result
        return output, [buffers]


class VJP(FlatArgsNet):
    """``forward(params, source, *leaves, *cotangents)`` gives gradients in a row.

    Those of the parameters in order, then of the leaves, with None where there is none
    or it is not asked for. Cotangents are one for each leaf of the output, None for
    zero; ``source`` is None, or what random numbers are drawn from. Its own vjp is of
    the second order, and so on.

    Args:
        params: the parameters to differentiate with respect to.
        inputs: whether to differentiate by the leaves.
    """

    def __init__(
        self,
        net: Net,
        count: int,
        nesting: Nesting | None = None,
        params: Flags = True,
        inputs: bool = True,
    ) -> None:
        super().__init__(net, count, nesting)
        self._sources = (*[i + 1 for i in self._sources], 0)
        self._wanted = each(params, len(self.spec.names)), inputs

    def _of_row(
        self, params: dict[str, Tensor], row: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        leaves, cotangents = row[1 : 1 + self._count], row[1 + self._count :]
        args, kwargs = self._arguments(leaves)
        _, pullback, *_ = self._net._unchecked_pullback(params, args, kwargs)
        result = pullback._in_a_row(cotangents, *self._wanted)
        by_params, by_leaves = result[: len(params)], result[len(params) :]
        if self._nesting is not None:
            by_leaves = self._nesting.in_a_row(by_leaves)
        return (*by_params, *by_leaves), []

    def along(
        self,
        params: dict[str, Tensor],
        row: Sequence[Any],
        directions: Sequence[Tensor | None],
        number: int,
    ) -> tuple[list[Any], list[list[Any]]]:
        """Return the gradients, and their derivatives along the directions.

        Those of <y, c> along (x', c') are the gradients of <y', c> + <y, c'>. That
        takes reverse mode twice: second derivatives are symmetric.
        """
        primals = [*params.values(), *row[1 : 1 + self._count]]
        cotangents = row[1 + self._count :]
        moves = [*directions[: len(params)], *directions[len(params) + 1 :]]
        turns = moves[len(primals) :]
        flags = [*self._wanted[0], *[self._wanted[1]] * self._count]
        wanted = [flags[i] and is_differentiable(x) for i, x in enumerate(primals)]
        at = [i for i, x in enumerate(primals) if wanted[i] or moves[i] is not None]

        def output(*variables: Tensor) -> tuple[Any, ...]:
            every = _replaced(primals, at, variables)
            values = self.spec.named(every[: len(params)])
            return tuple(flatten_tree(self._output(values, every[len(params) :])[0])[0])

        def gradients(*variables: Tensor) -> tuple[Any, Any]:
            y, pullback = vjp(output, *variables)
            turned = [
                pullback.or_none(_part(turns[: len(y)], k))
                for k in range(number)
                if any(t is not None for t in turns)
            ]
            return pullback.or_none(tuple(cotangents[: len(y)])), turned

        first, second, turned = vjp(gradients, *[primals[i] for i in at], has_aux=True)
        slopes = []
        for k in range(number):
            given = _part([moves[i] for i in at], k)
            terms = [*turned[k : k + 1]]
            if any(t is not None for t in given):
                pairs = zip(first, given, strict=True)
                moved = tuple(None if g is None else t for g, t in pairs)
                terms.append(second.or_none(moved))
            slopes.append([_sum(parts) for parts in zip(*terms, strict=True)])

        def in_row(result: Sequence[Any]) -> list[Any]:
            every = _replaced([None] * len(primals), at, result)
            return [x if flag else None for x, flag in zip(every, wanted, strict=True)]

        return in_row(first), [*map(in_row, slopes)]


class JVP(FlatArgsNet):
    """``forward(params, *leaves, *tangents)``: value, and derivatives along directions.

    These are several at once: tangents have one axis more, the first. So have the
    derivatives, which are nested as the value, with None where there is none.

    Args:
        moved: the parameters and leaves that have a tangent.
        theta: whether the parameters have one together, as one vector.
    """

    def __init__(
        self,
        net: Net,
        count: int,
        nesting: Nesting | None,
        moved: Sequence[bool],
        theta: bool = False,
    ) -> None:
        super().__init__(net, count, nesting)
        self._moved, self._theta = moved, theta

    def _of_row(
        self, params: dict[str, Tensor], row: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        results: tuple[Tree, list[Any]] = call_by_rules(self._nested, (params, row), {})
        return results

    def _nested(
        self, params: dict[str, Tensor], row: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        leaves, tangents = row[: self._count], iter(row[self._count :])
        directions = [next(tangents) if moves else None for moves in self._moved]
        number = next(t.shape[0] for t in directions if t is not None)
        if self._theta:
            directions[:1] = self._parts(directions[0])
        if isinstance(self._net, VJP):
            value, slopes = self._net.along(params, leaves, directions, number)
            every = tuple(map(_stacked, zip(*slopes, strict=True)))
            return (tuple(value), every), []
        primals = [*params.values(), *leaves]
        at = [i for i, t in enumerate(directions) if t is not None]

        def output(*variables: Tensor) -> tuple[Tree, list[Any]]:
            every = _replaced(primals, at, variables)
            values = self.spec.named(every[: len(params)])
            return self._output(values, every[len(params) :])

        value, pushforward, *buffers = linearize(
            output, *[primals[i] for i in at], has_aux=True
        )
        slopes = [
            flatten_tree(pushforward(*_part([directions[i] for i in at], k)))[0]
            for k in range(number)
        ]
        _, spec = flatten_tree(value)
        slope = spec.unflatten(map(_stacked, zip(*slopes, strict=True)))
        return (value, slope), buffers[0]

    def _parts(self, tangent: Tensor | None) -> list[Tensor | None]:
        """Split the tangent of theta into one part for each parameter."""
        spec = self.spec
        if tangent is None:
            return [None] * len(spec.names)
        results: list[Tensor | None] = []
        start = 0
        for shape, size in zip(spec.shapes, spec.sizes, strict=True):
            part = tangent[:, start : start + size]
            results.append(part.reshape([tangent.shape[0], *shape]))
            start += size
        return results


def _replaced(row: Sequence[Any], at: Sequence[int], items: Sequence[Any]) -> list[Any]:
    results = [*row]
    for i, item in zip(at, items, strict=True):
        results[i] = item
    return results


def _part(tangents: Sequence[Tensor | None], k: int) -> tuple[Tensor | None, ...]:
    """Return the tangents of direction k."""
    return tuple(None if t is None else t[k] for t in tangents)


def _stacked(parts: Sequence[Any]) -> Tensor | None:
    given = next((part for part in parts if part is not None), None)
    if given is None:
        return None
    zero = paddle.zeros_like(given)
    return paddle.stack([zero if part is None else part for part in parts])


def _sum(terms: Sequence[Any]) -> Tensor | None:
    given = [term for term in terms if term is not None]
    return paddle.add_n(given) if given[1:] else next(iter(given), None)
