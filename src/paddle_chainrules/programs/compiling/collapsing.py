"""Sums of terms that are each linear in one value, computed from one sum.

``a @ w + b @ w`` is ``(a + b) @ w``. In Taylor series the highest coefficients along
several directions meet the same weights, layer by layer. Equations often ask for their
sum alone, as ``u_xx + u_yy`` or ``u_t - c u_xx``. That sum goes through all layers as
one, and so do its gradients. Dangel, Siebert, Zeinhofer, Walther, "Collapsing Taylor
mode automatic differentiation", 2025. For Laplacians Li et al., 2023, call it the
forward Laplacian.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..operators.table import TABLE
from ..tracing.common_subexpressions import key_of
from ..tracing.operations import Operation, Value, fresh_numbers, read
from .passes import needed, program_of
from .program import Program
from .proportional import (
    Term,
    is_moderate,
    is_sum,
    keys,
    linear_in,
    ratio,
    scaled,
    scaling,
    with_proportions,
)

Place = tuple[int, int]


def collapsed(program: Program) -> Program:
    """Return the same values, up to rounding, by fewer operations."""
    given = (*program.inputs, *program.constants)
    ops = needed(with_proportions(program.ops, program.outputs), program.outputs)
    result = _Sums(ops, given, program.outputs).found()
    return program_of(result, program.inputs, program.constants, program.outputs)


class _Sums:
    """Operations by their results, and sums, visited from the last to the first.

    By the time a sum is visited, only visited operations take its terms. So these terms
    are gone where a sum of them serves all of those operations.

    Attributes:
        made: the operation that gives a value, where it gives that alone.
        gone: the same for values that nothing takes any more, except for their shapes.
        places: of values, about as in the program.
        takers: for each value, what is made of it, or was.
        uses: how often the contents of a value are taken.
    """

    def __init__(
        self, ops: Sequence[Operation], given: Iterable[Value], ends: Sequence[Value]
    ) -> None:
        self.rest = [op for op in ops if len(op.outputs) != 1]
        self.given = {*given}
        self.places: dict[Value, Place] = dict.fromkeys(self.given, (-1, 0))
        self.made: dict[Value, Operation] = {}
        self.gone: dict[Value, Operation] = {}
        self.uses: Counter[Value] = Counter(ends)
        self.takers: dict[Value, list[Value]] = {}
        self.known: dict[Any, Value] = {}
        self.later, self.fresh = itertools.count(1), fresh_numbers(self.places, ops)
        for i, op in enumerate(ops):
            self.places.update(dict.fromkeys(op.outputs, (i, 0)))
            if len(op.outputs) == 1:
                self._note(op.outputs[0], op)
            self.uses.update(read(op))
        self.sums = [(_last(self.places[v]), v.number, v) for v in self.made]
        heapq.heapify(self.sums)

    def found(self) -> list[Operation]:
        """Return all operations needed, after visiting each sum, last one first."""
        inside: set[Value] = set()
        while self.sums:
            *_, value = heapq.heappop(self.sums)
            op = self.made.get(value)
            if op is not None and value not in inside and is_sum(op):
                self._collapse(value, op, inside)
        return self._in_order()

    def _note(self, out: Value, op: Operation) -> None:
        self.made[out] = op
        for value in op.inputs:
            self.takers.setdefault(value, []).append(out)

    def _collapse(self, out: Value, op: Operation, inside: set[Value]) -> None:
        """Join terms that are alike into one, as often as there are any.

        Args:
            inside: where to note sums without such terms.
        """
        terms, within = self._terms(out)
        changed, refused = False, set[Any]()
        while (group := self._largest(terms, refused)) is not None:
            key, (name, k, args), members = group
            first = min(members, key=lambda i: self.places[members[i][1]])
            factor = members[first][0]
            inner: dict[Value, float] = {}
            for by, x in members.values():
                inner[x] = inner.get(x, 0.0) + ratio(by, factor)
            if not all(map(is_moderate, inner.values())):
                refused.add(key)
                continue
            total = self._sum(self._together(inner, op.where), op.where)
            args = (*args[:k], total, *args[k + 1 :])
            whole = self._new(name, args, terms[first][1], op.where)
            terms = [t for i, t in enumerate(terms) if i not in members]
            terms.append((factor, whole))
            changed = True
        if changed:
            self._sum(terms, op.where, out)
        else:
            inside |= within

    def _together(self, inner: dict[Value, float], where: str) -> list[Term]:
        """Return the same terms, with those of one fate as a sum of their own.

        That sum may be needed elsewhere too.
        """
        classes: dict[Any, list[Term]] = {}
        for x in sorted(inner, key=self.places.__getitem__):
            classes.setdefault(self._fate(x), []).append((inner[x], x))
        results = []
        for terms in classes.values():
            factor = terms[0][0]
            by_first = [(ratio(by, factor), x) for by, x in terms]
            alone = len(classes) == 1 or len(terms) == 1
            results += terms if alone else [(factor, self._sum(by_first, where))]
        return results

    def _fate(self, x: Value) -> Any:
        """Return what is done to a value that is linear in it."""
        results: set[Any] = set()
        for out in self.takers.get(x, ()):
            op = self.made.get(out)
            if op is None or x not in op.inputs or is_sum(op) or scaling(op):
                continue
            linear = [k for k in linear_in(op) if op.args[k] is x]
            for k in linear:
                rest = [*op.args]
                for j in linear_in(op):
                    rest[j] = None if j == k else self._unscaled(rest[j])[1]
                results.add((op.operator.name, *keys(op, rest)))
            if not linear:
                results.add(None)
        return frozenset(results)

    def _terms(self, out: Value) -> tuple[list[Term], set[Value]]:
        """Return the terms of a sum, and the sums that nothing else takes.

        The terms are collected through these sums.
        """
        results: list[Term] = []
        within: set[Value] = set()
        left = [(1.0, out)]
        while left:
            factor, value = left.pop()
            op = self.made.get(value)
            if op is not None and (value is out or self.uses[value] == 1):
                by = scaling(op)
                if by is not None and is_moderate(factor * by[0]):
                    left.append((factor * by[0], by[1]))
                    continue
                if is_sum(op):
                    within.add(value)
                    sign = -1.0 if op.operator.name == "subtract" else 1.0
                    left += [(factor * sign, op.args[1]), (factor, op.args[0])]
                    continue
            results.append((factor, value))
        return results, within

    def _largest(self, terms: Sequence[Term], refused: set[Any]) -> Any:
        """Return the largest group of terms that differ in one linear argument only.

        Products of matrices come before others.
        """
        groups: dict[Any, tuple[Any, Any, dict[int, Term]]] = {}
        for i, (factor, value) in enumerate(terms):
            op = self.made.get(value)
            if op is None or self.uses[value] > 1:
                continue
            linear, args = linear_in(op), [*op.args]
            for k in linear:
                by, args[k] = self._unscaled(args[k])
                factor *= by
            for k in linear if is_moderate(factor) else ():
                x, rest = args[k], (*args[:k], None, *args[k + 1 :])
                if op.operator.name == "multiply":
                    k, rest = 0, (None, args[1 - k])
                key = (op.operator.name, k, x.shape, *keys(op, rest))
                alike = groups.setdefault(key, (key, (key[0], k, rest), {}))
                alike[2][i] = factor, x
        several = [g for g in groups.values() if len(g[2]) > 1 and g[0] not in refused]
        size = lambda g: (g[1][0] == "matmul", len(g[2]))  # noqa: E731
        return max(several, key=size, default=None)

    def _unscaled(self, value: Value) -> Term:
        factor = 1.0
        while (op := self.made.get(value)) is not None:
            by = scaling(op)
            if by is None or not is_moderate(factor * by[0]):
                break
            factor, value = factor * by[0], by[1]
        return factor, value

    def _sum(
        self, terms: Sequence[Term], where: str, out: Value | None = None
    ) -> Value:
        """Return the sum of terms of one shape and dtype.

        Terms with the same factor are added first.

        Args:
            out: the value that the sum is to be, where that is known.
        """
        sizes: dict[float, list[tuple[bool, Value]]] = {}
        if out is None:
            terms = sorted(terms, key=lambda term: self.places[term[1]])
        for factor, x in terms:
            sizes.setdefault(abs(factor), []).append((factor < 0, x))
        parts = []
        for size, each in sizes.items():
            is_minus, x = self._signed(each, where)
            parts.append((is_minus, self._times(size, x, where)))
        is_minus, total = self._signed(parts, where)
        if is_minus:
            total = self._times(-1.0, total, where)
        if out is None:
            heapq.heappush(self.sums, (_last(self.places[total]), total.number, total))
            return total
        last, old = self.made[total], self.made[out]
        self._note(out, replace(last, outputs=(out,)))
        if self.uses[total]:
            self.uses.update(read(last))
        else:
            del self.made[total]
        self._left(old)
        return out

    def _signed(
        self, terms: Sequence[tuple[bool, Value]], where: str
    ) -> tuple[bool, Value]:
        """Return a sum, and whether it is negated."""
        flip = all(is_minus for is_minus, _ in terms)
        order = sorted(terms, key=lambda term: term[0] and not flip)
        (_, total), *rest = order
        for is_minus, x in rest:
            name = "subtract" if is_minus and not flip else "add"
            total = self._new(name, (total, x), total, where)
        return flip, total

    def _times(self, factor: float, x: Value, where: str) -> Value:
        if factor == 1:
            return x
        op = scaled(x, factor, x, where)
        return self._new(op.operator.name, op.args, x, where)

    def _new(self, name: str, args: tuple[Any, ...], like: Value, where: str) -> Value:
        """Return an operator's result, of another value's size; make it only once."""
        key = (name, *map(key_of, args))
        known = self.known.get(key)
        if known in self.made:
            return known
        out = Value(next(self.fresh), like.shape, like.dtype, like.bytes)
        op = Operation(TABLE[name], args, (out,), False, where)
        self.known[key] = out
        self._note(out, op)
        base = max((self.places[v][0] for v in op.inputs), default=-1)
        self.places[out] = base, next(self.later)
        self.uses.update(read(op))
        return out

    def _left(self, op: Operation) -> None:
        """Forget what only an operation that is gone has taken."""
        left = [*read(op)]
        while left:
            value = left.pop()
            self.uses[value] -= 1
            if not self.uses[value] and value in self.made:
                self.gone[value] = self.made.pop(value)
                left += read(self.gone[value])

    def _in_order(self) -> list[Operation]:
        """Return what is needed by its places, each after what it takes."""
        every = [*map(self._with_shapes, self.made.values())]
        every += map(self._with_shapes, self.rest)
        makers = {v: op for op in (*self.gone.values(), *every) for v in op.outputs}
        left = sorted(every, key=lambda op: _last(self.places[op.outputs[0]]))
        results: dict[Operation, None] = {}
        while left:
            op = left[-1]
            before = [makers[v] for v in op.inputs if v in makers]
            if before := [each for each in before if each not in results]:
                left += before
            else:
                results.setdefault(left.pop())
        return [*results]

    def _with_shapes(self, op: Operation) -> Operation:
        """Return the same with the shapes of values that exist, if some have them."""
        args = [*op.args]
        for k in op.operator.shapes:
            if k < len(args) and type(args[k]) is Value and args[k] in self.gone:
                args[k] = self._like(args[k], self.places[op.outputs[0]])
        return replace(op, args=tuple(args)) if tuple(args) != op.args else op

    def _like(self, value: Value, before: Place) -> Value:
        size = value.shape, value.dtype
        there = (v for v in self.places if v in self.made or v in self.given)
        alike = (v for v in there if (v.shape, v.dtype) == size)
        return next((v for v in alike if self.places[v][0] < before[0]), value)


def _last(place: Place) -> Place:
    """Return a key for a heap from which the last place comes first."""
    return -place[0], -place[1]
