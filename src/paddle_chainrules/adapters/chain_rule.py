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

    What lacks is noted, so that the next call computes it.
    """

    def __init__(self, asked: Sequence[Entry]) -> None:
        self._asked = asked
        self._known: dict[Entry, tuple[ref[Tensor], int]] = {}

    def take(self, call: NetCall) -> None:
        """Take the results of the call, without keeping them alive."""
        self._notes: DerivativeRequests = call.notes
        self._outputs = [_entries(k, y) for k, y in enumerate(call.outputs)]
        self._widths = widths(call)
        for entry, y in call.derivatives.items():
            self._known[entry] = ref(y), y._inplace_version()

    def gradients(
        self, cotangents: Mapping[int, Tensor], leaves: Sequence[int]
    ) -> list[Tensor] | None:
        """Return gradients of these leaves, as a program's node asks for them."""
        behind = {place: self._entries(place) for place in cotangents}
        columns = {leaf: self._widths[leaf] for leaf in leaves}
        wanted = further(self._notes, behind.values(), columns)
        if not wanted:
            return None
        results = {entry: self._derivative(entry) for entry in wanted}
        known = {entry: y for entry, y in results.items() if y is not None}
        if len(known) < len(results):
            return None
        return [
            _total(
                _column_product(
                    cotangents[place],
                    [
                        [known[e.derivative((leaf, c))] for c in range(n)]
                        for e in entries
                    ],
                )
                for place, entries in behind.items()
            )
            for leaf, n in columns.items()
        ]

    def _entries(self, place: int) -> tuple[Entry, ...]:
        """Return the entries of a result; none for what a call leaves in attributes."""
        if place < len(self._outputs):
            return self._outputs[place]
        place -= len(self._outputs)
        return tuple(self._asked[place : place + 1])

    def _derivative(self, entry: Entry) -> Tensor | None:
        """Return a derivative, if the script has it still and has not written in it."""
        if entry not in self._known:
            return None
        result, version = self._known[entry]
        y = result()
        return y if y is not None and y._inplace_version() == version else None


def further(
    notes: DerivativeRequests,
    behind: Iterable[Sequence[Entry]],
    widths: Mapping[int, int],
) -> list[Entry] | None:
    """Return what the gradient of an expression by some arguments needs, and note it.

    None, with the reason noted, if series are not the way to it.

    Args:
        behind: the entries that the expression is computed of.
        widths: the arguments' places, and their numbers of columns by :func:`widths`.
    """
    columns = [(place, c) for place, n in widths.items() for c in range(n)]
    wanted: set[Entry] = set()
    why = ""
    for entries in behind:
        if not (entries and all(widths.values())):
            why = "gradients of it are asked for, and its rows are no points"
        elif len(columns) > MOST_COLUMNS or len(entries) * len(columns) > MOST_ENTRIES:
            why = "gradients by many columns at once are asked for"
        else:
            wanted.update(e.derivative(column) for e in entries for column in columns)
    if any(len(entry.by) > MAX_ORDER for entry in wanted):
        why = f"derivatives go to order {MAX_ORDER}"
    if why:
        notes.unknown = why
        return None
    notes.asked |= wanted
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
        self._known: list[tuple[Tensor, list[CallEntries]]] = []

    def clear(self) -> None:
        self._known.clear()

    def add(self, tensor: Tensor, parts: list[CallEntries]) -> None:
        """Note a gradient, and what it is computed of; forget those of old calls."""
        self._known = [
            known
            for known in self._known
            if any(p.call.notes.is_open for p in known[1])
        ]
        self._known.append((tensor, parts))

    def behind(
        self, ends: Iterable[Tensor], origins: Iterable[Origin]
    ) -> list[CallEntries]:
        """Return what these tensors are computed of, first of all.

        Args:
            origins: of the results of all calls.
        """
        known: dict[int, list[CallEntries]] = {}
        for tensor, call, entries, _ in origins:
            if not (call.by_program or tensor.stop_gradient):
                there = known.setdefault(node_of(tensor).node_ptr(), [])
                there.append(CallEntries(call, {*entries}))
        for tensor, parts in self._known:
            known.setdefault(node_of(tensor).node_ptr(), []).extend(parts)
        results: dict[int, CallEntries] = {}
        roots = [node_of(y) for y in ends if known and not y.stop_gradient]
        for node in nodes(roots, lambda node: node.node_ptr() in known):
            for part in known.get(node.node_ptr(), ()):
                whole = results.setdefault(
                    id(part.call.notes), CallEntries(part.call, set())
                )
                whole.entries.update(part.entries)
        return [*results.values()]


def width(x: Tensor) -> int:
    """Return the number of columns of a matrix, 0 of any other tensor."""
    return x.shape[1] if x.ndim == 2 else 0


def _entries(output: int, y: Tensor) -> tuple[Entry, ...]:
    return tuple(Entry(output, column) for column in range(width(y)))


def _column_product(cotangent: Tensor, rows: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the sum of a cotangent's columns, each times a row of derivatives."""
    if len(rows) == 1:
        return cotangent * _side_by_side(rows[0])
    if len(rows[0]) == 1:
        whole = _side_by_side([y for (y,) in rows])
        return (cotangent * whole).sum(axis=1, keepdim=True)
    return _total(
        cotangent[:, k : k + 1] * _side_by_side(row) for k, row in enumerate(rows)
    )


def _side_by_side(columns: Sequence[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else paddle.concat([*columns], axis=1)


def _total(parts: Iterable[Tensor]) -> Tensor:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
