"""Calls of nets as functions for Julia."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..programs.capture_error import CaptureError
from ..programs.compiling.rematerialize import recompute_cheap_residuals
from ..programs.in_julia.any_batch import of_any_batch
from ..programs.in_julia.function import JuliaFunction, TupleParameter, julia_function
from ..programs.in_julia.repeated import goes_into
from ..programs.operators.calls import NoRule
from ..programs.sizes.any_size import is_same_tensor
from ..programs.tracing.existing import undecomposed_operators
from ..transforms.as_programs.program_cache import ProgramCache
from ..transforms.as_programs.program_recording import CompiledVJP
from ..transforms.containers.tree import flatten_tree
from .layers.stateless import StatelessLayer
from .net import Net

TRIED_COUNTS = (3, 4, 6, 7, 9, 11, 13, 17, 19, 23, 29)
"""Numbers of samples of which two are tried."""

TRIED_BOUNDS = (509, 503, 127, 113, 61, 59, 37, 31)
"""Numbers of which one is, by which what is bounded by a size is seen."""

BYTES = 1 << 22
"""Most bytes of the tried samples, if one of ``TRIED_BOUNDS`` is that small."""


class Lowered(NamedTuple):
    """A call as Julia functions.

    Attributes:
        value: a function of ``(inputs, ps, constants)``, three tuples; gives the
            output.
        there: a function of the same; gives the output, its tensors that have gradients
            in a row, and those that the backward pass needs. None if an operator's
            gradient has no expression.
        back: a function of ``(saved, cotangents, constants)``; gives the gradients of
            inputs and parameters in a row, ``nothing`` where there is none.
        samples: how many there must be; 0 if any number will do.
        why: the reason why there is no backward pass.
    """

    value: JuliaFunction
    there: JuliaFunction | None
    back: JuliaFunction | None
    samples: int
    why: str


Arguments = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""Function from leaves in a row to arguments and keyword arguments."""


def lowered(
    net: Net, params: dict[str, Tensor], row: Sequence[Any], arguments: Arguments
) -> Lowered:
    """Return a net's call as Julia's functions, for these dtypes and shapes.

    Args:
        row: leaves of the arguments, in the order of Julia's inputs.

    Raises:
        NoRule: an operator has no expression in Julia.
        CaptureError: the call is no program.
    """
    call = _LoweredCall(net, params, row, arguments)
    try:
        return call.of_any_number() or call.of_one_number()
    except NoRule as error:
        error.args = (f"there is no expression for {error}",)
        raise


class _LoweredCall:
    """A call, whose arguments may be made for other numbers of samples."""

    def __init__(
        self,
        net: Net,
        params: dict[str, Tensor],
        row: Sequence[Any],
        arguments: Arguments,
    ) -> None:
        self._net, self._params = net, params
        self._leaves, self._arguments = row, arguments
        buffers = arguments(row)[1].get("buffers") or {}
        self._held = {id(buffer) for buffer in buffers.values()}
        first = next((t for t in row if _has_samples(t)), None)
        self._count = 0 if first is None else first.shape[0]

    def of_any_number(self) -> Lowered | None:
        """Return functions for any number of samples, or None."""
        counts = self._counts() if self._count else []
        if len(counts) < 3:
            return None
        try:
            each = [self._of([*self._resized(n)], n) for n in counts]
        except (CaptureError, NoRule, ValueError, TypeError):
            return None
        value = _joined([one.value for one in each], counts)
        there = _joined([one.there for one in each], counts)
        back = _joined([one.back for one in each], counts)
        if value is None:
            return None
        if there is None or back is None:
            there = back = None
        return Lowered(value, there, back, 0, each[0].why)

    def _counts(self) -> list[int]:
        """Return three numbers of samples that are no sizes of the call, if any are."""
        tensors = [t for t in self._leaves if isinstance(t, Tensor)]
        taken = {n for t in (*tensors, *self._params.values()) for n in t.shape}
        few, many = (
            [n for n in row if n not in taken] for row in (TRIED_COUNTS, TRIED_BOUNDS)
        )
        sizes = (t.size * t.element_size() for t in tensors if _has_samples(t))
        fitting = BYTES * self._count // max(1, sum(sizes))
        return [*few[:2], *([n for n in many if n <= fitting] or many[-1:])[:1]]

    def of_one_number(self) -> Lowered:
        """Return functions for the number of samples that there are."""
        return self._of(self._leaves, 0)._replace(samples=self._count)

    def _resized(self, count: int) -> Iterator[Any]:
        """Yield the leaves with more or fewer samples, along their first axis."""
        rows = paddle.arange(count) % self._count
        for leaf in self._leaves:
            moves = _has_samples(leaf) and id(leaf) not in self._held
            if moves and self._count in leaf.shape:
                axis = leaf.shape.index(self._count)
                yield paddle.index_select(leaf, rows, axis)
            else:
                yield leaf

    def _of(self, leaves: Sequence[Any], count: int) -> Lowered:
        names, number, net = tuple(self._params), len(leaves), self._net

        def flat(every: list[Any]) -> tuple[list[Any], Any]:
            args, kwargs = self._arguments(every[:number])
            constants: dict[str, Any] = {}
            if isinstance(net, StatelessLayer):
                constants, kwargs = net._split_keywords(kwargs)
                constants.pop("_seed", None)
            params = dict(zip(names, every[number:], strict=True))
            return flatten_tree(net._apply(params, *args, **kwargs, **constants))

        every = [*leaves, *self._params.values()]
        programs = ProgramCache(flat, net._effects)
        with undecomposed_operators():
            result = programs.compile_value(every)
        inputs = [_label(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
        params = [f"{n}: {_label(p)}" for n, p in self._params.items()]
        given = TupleParameter("inputs", inputs), TupleParameter("ps", params)
        value = julia_function(
            "value",
            result.captured.program,
            given,
            lambda names: result.structure.unflatten(result.captured.filled(names)),
            count,
        )
        try:
            with undecomposed_operators():
                way = programs.compile_vjp(every)
            there, back = _with_gradients(way, given, count, every)
        except (CaptureError, NoRule) as error:
            return Lowered(value, None, None, 0, str(error))
        return Lowered(value, there, back, 0, "")


def _with_gradients(
    way: CompiledVJP, given: Sequence[TupleParameter], count: int, leaves: Sequence[Any]
) -> tuple[JuliaFunction, JuliaFunction]:
    """Return the functions of the forward and backward pass."""
    outputs, ways = (
        way.forward_backward.count,
        recompute_cheap_residuals(way.forward_backward.apart, goes_into),
    )

    def in_three(names: list[str]) -> Any:
        every = way.captured.filled(names[:outputs])
        seeded = tuple(every[i] for i in way.seeds)
        return way.structure.unflatten(every), seeded, tuple(names[outputs:])

    there = julia_function("there", ways.forward, given, in_three, count)
    every = (True,) * len(way.grad_leaves)
    program, has = ways.backward_program(every, (True,) * len(way.seeds))
    places = [p for p, there_is in zip(way.grad_leaves, has, strict=True) if there_is]

    def in_a_row(names: list[str]) -> Any:
        results = dict(zip(places, names, strict=True))
        return tuple(
            results.get(i) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)
        )

    cotangents = len(way.seeds)
    saved = len(program.inputs) - cotangents
    groups = (
        TupleParameter("saved", [""] * saved),
        TupleParameter("cotangents", [""] * cotangents),
    )
    return there, julia_function("back", program, groups, in_a_row, count)


def _has_samples(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0


def _label(tensor: Tensor) -> str:
    return " x ".join(map(str, reversed(tensor.shape)))


def _joined(
    each: list[JuliaFunction | None], counts: list[int]
) -> JuliaFunction | None:
    """Join three functions to one for any number of samples."""
    results = [one for one in each if one is not None]
    if len(results) < len(each):
        return None
    text = of_any_batch([one.text for one in results], counts)
    first = results[0].constants
    others = [other.constants for other in results[1:]]
    same = all(
        len(row) == len(first) and all(map(is_same_tensor, first, row))
        for row in others
    )
    return JuliaFunction(text, first) if same and text is not None else None
