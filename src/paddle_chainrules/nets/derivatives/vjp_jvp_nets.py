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
from ..calls.programs import NetPrograms, programs_for_derivative
from ..calls.wrt import Flags, flags_per_param
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

    _seed_positions: tuple[int, ...] = ()
    """Positions of seeds of random numbers among the arguments, which programs do not
    take. The first that is not None counts."""

    def __init__(self, net: Net, count: int, nesting: Nesting | None = None) -> None:
        super().__init__(net)
        self._count, self._nesting = count, nesting
        if isinstance(net, FlatArgsNet):
            self._seed_positions = net._seed_positions
        elif nesting is not None and nesting.seed is not None:
            self._seed_positions = (nesting.seed,)

    @cached_property
    def _cached_programs(self) -> NetPrograms | None:
        return programs_for_derivative(self, self._net._programs)

    @property
    def _programs(self) -> NetPrograms | None:
        """The programs, once calls have shown that the other net is fit for them."""
        effects = self._net._effects
        is_pure = effects.is_known and not effects.writes and not effects.asks
        return self._cached_programs if is_pure else None

    def forward(self, params: Params, *args: Any) -> Any:
        args, constants = self._split_seed(args)
        return self._forward(params, args, {}, constants)

    def _unchecked_pullback(
        self, params: Params, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        args_without_seeds, constants = self._split_seed(args)
        return self._recorded(params, args_without_seeds, kwargs, constants)

    def is_seeded(self, args: Sequence[Any]) -> bool:
        """Tell whether the row holds a seed of random numbers."""
        return any(args[i] is not None for i in self._seed_positions)

    def _split_seed(
        self, args: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments without seeds, and the seed as a constant."""
        if not self.is_seeded(args):
            return args, {}
        without_seeds = (
            None if i in self._seed_positions else leaf for i, leaf in enumerate(args)
        )
        source = next(args[i] for i in self._seed_positions if args[i] is not None)
        is_state = isinstance(source, list)
        return tuple(without_seeds), {
            "_seed": source if is_state else checked_seed(source)
        }

    def _apply(self, params: dict[str, Tensor], *args: Any, _seed: Any = None) -> Tree:
        with drawing_from(_seed):
            output, buffers = self._apply_flat(params, args)
        return (output, *buffers) if buffers else output

    @abc.abstractmethod
    def _apply_flat(
        self, params: dict[str, Tensor], args: Sequence[Any]
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
            return self._net._apply_flat(params, leaves)
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
        self._seed_positions = (*[i + 1 for i in self._seed_positions], 0)
        self._requested = flags_per_param(params, len(self.spec.names)), inputs

    def _apply_flat(
        self, params: dict[str, Tensor], flat_args: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        leaves, cotangents = (
            flat_args[1 : 1 + self._count],
            flat_args[1 + self._count :],
        )
        args, kwargs = self._arguments(leaves)
        _, pullback, *_ = self._net._unchecked_pullback(params, args, kwargs)
        result = pullback._flat_gradients(cotangents, *self._requested)
        by_params, by_leaves = result[: len(params)], result[len(params) :]
        if self._nesting is not None:
            by_leaves = self._nesting.flatten_gradients(by_leaves)
        return (*by_params, *by_leaves), []

    def along(
        self,
        params: dict[str, Tensor],
        flat_args: Sequence[Any],
        directions: Sequence[Tensor | None],
        number: int,
    ) -> tuple[list[Any], list[list[Any]]]:
        """Return the gradients, and their derivatives along the directions.

        Those of <y, c> along (x', c') are the gradients of <y', c> + <y, c'>. That
        takes reverse mode twice: second derivatives are symmetric.
        """
        primals = [*params.values(), *flat_args[1 : 1 + self._count]]
        cotangents = flat_args[1 + self._count :]
        tangents = [*directions[: len(params)], *directions[len(params) + 1 :]]
        cotangent_tangents = tangents[len(primals) :]
        flags = [*self._requested[0], *[self._requested[1]] * self._count]
        wanted = [flags[i] and is_differentiable(x) for i, x in enumerate(primals)]
        active = [
            i for i, x in enumerate(primals) if wanted[i] or tangents[i] is not None
        ]

        def output(*variables: Tensor) -> tuple[Any, ...]:
            all_primals = _replace_at(primals, active, variables)
            values = self.spec.named(all_primals[: len(params)])
            return tuple(
                flatten_tree(self._output(values, all_primals[len(params) :])[0])[0]
            )

        def gradients(*variables: Tensor) -> tuple[Any, Any]:
            y, pullback = vjp(output, *variables)
            grads_along = [
                pullback.or_none(_direction(cotangent_tangents[: len(y)], k))
                for k in range(number)
                if any(t is not None for t in cotangent_tangents)
            ]
            return pullback.or_none(tuple(cotangents[: len(y)])), grads_along

        first, second, grads_along = vjp(
            gradients, *[primals[i] for i in active], has_aux=True
        )
        slopes = []
        for k in range(number):
            direction_tangents = _direction([tangents[i] for i in active], k)
            terms = [*grads_along[k : k + 1]]
            if any(t is not None for t in direction_tangents):
                pairs = zip(first, direction_tangents, strict=True)
                grad_cotangents = tuple(None if g is None else t for g, t in pairs)
                terms.append(second.or_none(grad_cotangents))
            slopes.append([_sum(summands) for summands in zip(*terms, strict=True)])

        def in_row(result: Sequence[Any]) -> list[Any]:
            all_primals = _replace_at([None] * len(primals), active, result)
            return [
                x if flag else None for x, flag in zip(all_primals, wanted, strict=True)
            ]

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

    def _apply_flat(
        self, params: dict[str, Tensor], flat_args: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        results: tuple[Tree, list[Any]] = call_by_rules(
            self._by_linearize, (params, flat_args), {}
        )
        return results

    def _by_linearize(
        self, params: dict[str, Tensor], flat_args: Sequence[Any]
    ) -> tuple[Tree, list[Any]]:
        leaves, tangents = flat_args[: self._count], iter(flat_args[self._count :])
        directions = [
            next(tangents) if has_tangent else None for has_tangent in self._moved
        ]
        number = next(t.shape[0] for t in directions if t is not None)
        if self._theta:
            directions[:1] = self._split_theta(directions[0])
        if isinstance(self._net, VJP):
            value, slopes = self._net.along(params, leaves, directions, number)
            all_primals = tuple(map(_stack_or_none, zip(*slopes, strict=True)))
            return (tuple(value), all_primals), []
        primals = [*params.values(), *leaves]
        active = [i for i, t in enumerate(directions) if t is not None]

        def output(*variables: Tensor) -> tuple[Tree, list[Any]]:
            all_primals = _replace_at(primals, active, variables)
            values = self.spec.named(all_primals[: len(params)])
            return self._output(values, all_primals[len(params) :])

        value, pushforward, *buffers = linearize(
            output, *[primals[i] for i in active], has_aux=True
        )
        slopes = [
            flatten_tree(pushforward(*_direction([directions[i] for i in active], k)))[
                0
            ]
            for k in range(number)
        ]
        _, spec = flatten_tree(value)
        slope = spec.unflatten(map(_stack_or_none, zip(*slopes, strict=True)))
        return (value, slope), buffers[0]

    def _split_theta(self, tangent: Tensor | None) -> list[Tensor | None]:
        """Split the tangent of theta into the tangents of the parameters."""
        spec = self.spec
        if tangent is None:
            return [None] * len(spec.names)
        results: list[Tensor | None] = []
        start = 0
        for shape, size in zip(spec.shapes, spec.sizes, strict=True):
            segment = tangent[:, start : start + size]
            results.append(segment.reshape([tangent.shape[0], *shape]))
            start += size
        return results


def _replace_at(
    items_: Sequence[Any], positions: Sequence[int], items: Sequence[Any]
) -> list[Any]:
    results = [*items_]
    for i, item in zip(positions, items, strict=True):
        results[i] = item
    return results


def _direction(tangents: Sequence[Tensor | None], k: int) -> tuple[Tensor | None, ...]:
    """Return the tangents of direction k."""
    return tuple(None if t is None else t[k] for t in tangents)


def _stack_or_none(tangents: Sequence[Any]) -> Tensor | None:
    first = next((tangent for tangent in tangents if tangent is not None), None)
    if first is None:
        return None
    zero = paddle.zeros_like(first)
    return paddle.stack([zero if tangent is None else tangent for tangent in tangents])


def _sum(terms: Sequence[Any]) -> Tensor | None:
    present = [term for term in terms if term is not None]
    return paddle.add_n(present) if present[1:] else next(iter(present), None)
