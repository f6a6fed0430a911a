"""The chain rule, from values computed of a call's results to its arguments.

``jacobian(u * v, x)`` goes through Paddle's graph from the product to ``u`` and ``v``.
From there it needs ``u_x`` and ``v_x``, which are series computed with the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import ref

import paddle
from paddle import Tensor

from ..nets.derivatives.derivatives import MAX_ORDER
from ..paddle_side.autograd.partial_gradients import node_of, nodes
from .origins import DerivativeRequests, Entry, NetCall, Origin

MOST_COLUMNS = 4
"""Most columns by which a gradient comes from series, each a pass, and not from one
reverse pass for all."""

MOST_ENTRIES = 64
"""Most derivatives that one gradient may need."""


class ChainRule:
    """Gradients of one call by the derivatives that were computed with it.

    What is missing is noted, so that the next call computes it.
    """

    def __init__(self, requested: Sequence[Entry]) -> None:
        self._requested = requested
        self._derivatives: dict[Entry, tuple[ref[Tensor], int]] = {}

    def take_results(self, call: NetCall) -> None:
        """Take the results of the call, without keeping them alive."""
        self._notes: DerivativeRequests = call.notes
        self._outputs = [_entries(k, y) for k, y in enumerate(call.outputs)]
        self._widths = widths(call)
        for entry, y in call.derivatives.items():
            self._derivatives[entry] = ref(y), y._inplace_version()

    def gradients(
        self, cotangents: Mapping[int, Tensor], leaves: Sequence[int]
    ) -> list[Tensor] | None:
        """Return gradients of these leaves, as a program's node asks for them."""
        entries_by_output = {output: self._entries(output) for output in cotangents}
        columns = {leaf: self._widths[leaf] for leaf in leaves}
        wanted = request_derivatives(self._notes, entries_by_output.values(), columns)
        if not wanted:
            return None
        derivatives = {entry: self._derivative(entry) for entry in wanted}
        available = {entry: y for entry, y in derivatives.items() if y is not None}
        if len(available) < len(derivatives):
            return None
        return [
            _sum_of(
                _column_product(
                    cotangents[output],
                    [
                        [available[e.derivative((leaf, c))] for c in range(n)]
                        for e in entries
                    ],
                )
                for output, entries in entries_by_output.items()
            )
            for leaf, n in columns.items()
        ]

    def _entries(self, output: int) -> tuple[Entry, ...]:
        """Return the entries of a result; none for what a call leaves in attributes."""
        if output < len(self._outputs):
            return self._outputs[output]
        output -= len(self._outputs)
        return tuple(self._requested[output : output + 1])

    def _derivative(self, entry: Entry) -> Tensor | None:
        """Return a derivative, if the script has it still and has not written in it."""
        if entry not in self._derivatives:
            return None
        reference, version = self._derivatives[entry]
        y = reference()
        return y if y is not None and y._inplace_version() == version else None


def request_derivatives(
    notes: DerivativeRequests,
    entries_by_term: Iterable[Sequence[Entry]],
    widths: Mapping[int, int],
) -> list[Entry] | None:
    """Return what the gradient of an expression by some arguments needs, and note it.

    None, with the reason noted, if series are not the way to it.

    Args:
        entries_by_term: the entries that the expression is computed of.
        widths: the arguments' indices, and their numbers of columns by :func:`widths`.
    """
    columns = [(argument, c) for argument, n in widths.items() for c in range(n)]
    wanted: set[Entry] = set()
    reason = ""
    for entries in entries_by_term:
        if not (entries and all(widths.values())):
            reason = "gradients of it are asked for, and its rows are no points"
        elif len(columns) > MOST_COLUMNS or len(entries) * len(columns) > MOST_ENTRIES:
            reason = "gradients by many columns at once are asked for"
        else:
            wanted.update(e.derivative(column) for e in entries for column in columns)
    if any(len(entry.by) > MAX_ORDER for entry in wanted):
        reason = f"derivatives go to order {MAX_ORDER}"
    if reason:
        notes.unsupported = reason
        return None
    notes.requested |= wanted
    return sorted(wanted)


def widths(call: NetCall) -> list[int]:
    """Return the arguments' numbers of columns, 0 where outputs have other rows."""
    rows = {y.shape[0] if y.ndim == 2 else 0 for y in call.outputs}
    return [
        width(x) if rows == {x.shape[0] if x.ndim else 1} else 0 for x in call.inputs
    ]


class CallEntries(NamedTuple):
    """A native call, and the entries of it that something is computed of."""

    call: NetCall
    entries: set[Entry]


class Expressions:
    """Gradients of results of native calls, and what these results are behind.

    Programs' nodes see by themselves which of their results a gradient comes from.
    """

    def __init__(self) -> None:
        self._derivatives: list[tuple[Tensor, list[CallEntries]]] = []

    def clear(self) -> None:
        self._derivatives.clear()

    def add(self, tensor: Tensor, call_entries: list[CallEntries]) -> None:
        """Note a gradient, and what it is computed of; forget those of old calls."""
        self._derivatives = [
            gradient
            for gradient in self._derivatives
            if any(p.call.notes.is_open for p in gradient[1])
        ]
        self._derivatives.append((tensor, call_entries))

    def calls_behind(
        self, outputs: Iterable[Tensor], origins: Iterable[Origin]
    ) -> list[CallEntries]:
        """Return what these tensors are computed of, first of all.

        Args:
            origins: of the results of all calls.
        """
        entries_by_node: dict[int, list[CallEntries]] = {}
        for tensor, call, entries, _ in origins:
            if not (call.by_program or tensor.stop_gradient):
                node_entries = entries_by_node.setdefault(
                    node_of(tensor).node_ptr(), []
                )
                node_entries.append(CallEntries(call, {*entries}))
        for tensor, call_entries in self._derivatives:
            entries_by_node.setdefault(node_of(tensor).node_ptr(), []).extend(
                call_entries
            )
        results: dict[int, CallEntries] = {}
        roots = [node_of(y) for y in outputs if entries_by_node and not y.stop_gradient]
        for node in nodes(roots, lambda node: node.node_ptr() in entries_by_node):
            for source in entries_by_node.get(node.node_ptr(), ()):
                merged = results.setdefault(
                    id(source.call.notes), CallEntries(source.call, set())
                )
                merged.entries.update(source.entries)
        return [*results.values()]


def width(x: Tensor) -> int:
    """Return the number of columns of a matrix, 0 of any other tensor."""
    return x.shape[1] if x.ndim == 2 else 0


def _entries(output: int, y: Tensor) -> tuple[Entry, ...]:
    return tuple(Entry(output, column) for column in range(width(y)))


def _column_product(cotangent: Tensor, rows: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the sum of a cotangent's columns, each times a row of derivatives."""
    if len(rows) == 1:
        return cotangent * _concat_columns(rows[0])
    if len(rows[0]) == 1:
        joined = _concat_columns([y for (y,) in rows])
        return (cotangent * joined).sum(axis=1, keepdim=True)
    return _sum_of(
        cotangent[:, k : k + 1] * _concat_columns(row) for k, row in enumerate(rows)
    )


def _concat_columns(columns: Sequence[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else paddle.concat([*columns], axis=1)


def _sum_of(terms: Iterable[Tensor]) -> Tensor:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first
