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
from ..tracing.operations import Operation, Value, fresh_numbers, inputs_read
from .passes import needed_ops, program_of
from .program import Program
from .proportional import (
    Term,
    arg_keys,
    is_moderate,
    is_sum,
    linear_in,
    ratio,
    reuse_multiples,
    scale_and_operand,
    scale_op,
)

Position = tuple[int, int]


def collapse_sums(program: Program) -> Program:
    """Return a program of the same values, up to rounding, with fewer operations."""
    live_ins = (*program.inputs, *program.constants)
    ops = needed_ops(reuse_multiples(program.ops, program.outputs), program.outputs)
    collapsed_ops = _SumCollapser(ops, live_ins, program.outputs).collapse_all()
    return program_of(collapsed_ops, program.inputs, program.constants, program.outputs)


class _SumCollapser:
    """Rewrites sums of like terms, from the last sum of a program to the first.

    By the time a sum is visited, only visited operations use its terms. So these terms
    are dead where a sum of them serves all of those operations.

    Attributes:
        producers: the operation that computes a value, where it has one output.
        dead_producers: the same for values of which only the shape is still used.
        positions: of values, about as in the program.
        users: for each value, the values computed from it, now or before.
        use_counts: how often the contents of a value are read.
        pending: a heap of sums to visit, the last one first.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        live_ins: Iterable[Value],
        outputs: Sequence[Value],
    ) -> None:
        self.multi_output_ops = [op for op in ops if len(op.outputs) != 1]
        self.live_ins = {*live_ins}
        self.positions: dict[Value, Position] = dict.fromkeys(self.live_ins, (-1, 0))
        self.producers: dict[Value, Operation] = {}
        self.dead_producers: dict[Value, Operation] = {}
        self.use_counts: Counter[Value] = Counter(outputs)
        self.users: dict[Value, list[Value]] = {}
        self.value_by_key: dict[Any, Value] = {}
        self.next_order, self.new_numbers = (
            itertools.count(1),
            fresh_numbers(self.positions, ops),
        )
        for i, op in enumerate(ops):
            self.positions.update(dict.fromkeys(op.outputs, (i, 0)))
            if len(op.outputs) == 1:
                self._register(op.outputs[0], op)
            self.use_counts.update(inputs_read(op))
        self.pending = [
            (_latest_first(self.positions[v]), v.number, v) for v in self.producers
        ]
        heapq.heapify(self.pending)

    def collapse_all(self) -> list[Operation]:
        """Rewrite each sum, last one first, and return the operations in order."""
        irreducible: set[Value] = set()
        while self.pending:
            *_, value = heapq.heappop(self.pending)
            op = self.producers.get(value)
            if op is not None and value not in irreducible and is_sum(op):
                self._collapse_sum(value, op, irreducible)
        return self._schedule()

    def _register(self, out: Value, op: Operation) -> None:
        self.producers[out] = op
        for value in op.inputs:
            self.users.setdefault(value, []).append(out)

    def _collapse_sum(self, out: Value, op: Operation, irreducible: set[Value]) -> None:
        """Replace groups of like terms of a sum by one term each, while there are any.

        Args:
            irreducible: receives the sums that have no such group.
        """
        terms, nested_sums = self._flatten_sum(out)
        changed, rejected = False, set[Any]()
        while (group := self._largest_group(terms, rejected)) is not None:
            key, (name, k, args), members = group
            first = min(members, key=lambda i: self.positions[members[i][1]])
            factor = members[first][0]
            coefficients: dict[Value, float] = {}
            for coefficient, x in members.values():
                coefficients[x] = coefficients.get(x, 0.0) + ratio(coefficient, factor)
            if not all(map(is_moderate, coefficients.values())):
                rejected.add(key)
                continue
            total = self._emit_sum(
                self._presum_by_use(coefficients, op.where), op.where
            )
            args = (*args[:k], total, *args[k + 1 :])
            collapsed = self._emit(name, args, terms[first][1], op.where)
            terms = [t for i, t in enumerate(terms) if i not in members]
            terms.append((factor, collapsed))
            changed = True
        if changed:
            self._emit_sum(terms, op.where, out)
        else:
            irreducible |= nested_sums

    def _presum_by_use(
        self, coefficients: dict[Value, float], where: str
    ) -> list[Term]:
        """Sum terms that are used in the same ways first, and return fewer terms.

        That partial sum may be needed elsewhere too.
        """
        by_use: dict[Any, list[Term]] = {}
        for x in sorted(coefficients, key=self.positions.__getitem__):
            by_use.setdefault(self._linear_uses(x), []).append((coefficients[x], x))
        results = []
        for terms in by_use.values():
            factor = terms[0][0]
            normalized = [(ratio(coefficient, factor), x) for coefficient, x in terms]
            is_alone = len(by_use) == 1 or len(terms) == 1
            results += (
                terms if is_alone else [(factor, self._emit_sum(normalized, where))]
            )
        return results

    def _linear_uses(self, x: Value) -> Any:
        """Return a key of the operations that use a value linearly."""
        uses: set[Any] = set()
        for out in self.users.get(x, ()):
            op = self.producers.get(out)
            if op is None or x not in op.inputs or is_sum(op) or scale_and_operand(op):
                continue
            linear_args = [k for k in linear_in(op) if op.args[k] is x]
            for k in linear_args:
                other_args = [*op.args]
                for j in linear_in(op):
                    other_args[j] = (
                        None if j == k else self._strip_scales(other_args[j])[1]
                    )
                uses.add((op.operator.name, *arg_keys(op, other_args)))
            if not linear_args:
                uses.add(None)
        return frozenset(uses)

    def _flatten_sum(self, out: Value) -> tuple[list[Term], set[Value]]:
        """Return the terms of a sum, and the nested sums that only it uses.

        Terms are collected through these nested sums and through scalings.
        """
        terms: list[Term] = []
        nested_sums: set[Value] = set()
        worklist = [(1.0, out)]
        while worklist:
            factor, value = worklist.pop()
            op = self.producers.get(value)
            if op is not None and (value is out or self.use_counts[value] == 1):
                scale = scale_and_operand(op)
                if scale is not None and is_moderate(factor * scale[0]):
                    worklist.append((factor * scale[0], scale[1]))
                    continue
                if is_sum(op):
                    nested_sums.add(value)
                    sign = -1.0 if op.operator.name == "subtract" else 1.0
                    worklist += [(factor * sign, op.args[1]), (factor, op.args[0])]
                    continue
            terms.append((factor, value))
        return terms, nested_sums

    def _largest_group(self, terms: Sequence[Term], rejected: set[Any]) -> Any:
        """Return the largest group of terms that differ in one linear argument only.

        Products of matrices come before others.
        """
        groups: dict[Any, tuple[Any, Any, dict[int, Term]]] = {}
        for i, (factor, value) in enumerate(terms):
            op = self.producers.get(value)
            if op is None or self.use_counts[value] > 1:
                continue
            linear_args, args = linear_in(op), [*op.args]
            for k in linear_args:
                scale, args[k] = self._strip_scales(args[k])
                factor *= scale
            for k in linear_args if is_moderate(factor) else ():
                x, other_args = args[k], (*args[:k], None, *args[k + 1 :])
                if op.operator.name == "multiply":
                    k, other_args = 0, (None, args[1 - k])
                key = (op.operator.name, k, x.shape, *arg_keys(op, other_args))
                group = groups.setdefault(key, (key, (key[0], k, other_args), {}))
                group[2][i] = factor, x
        candidates = [
            g for g in groups.values() if len(g[2]) > 1 and g[0] not in rejected
        ]
        rank = lambda g: (g[1][0] == "matmul", len(g[2]))  # noqa: E731
        return max(candidates, key=rank, default=None)

    def _strip_scales(self, value: Value) -> Term:
        factor = 1.0
        while (op := self.producers.get(value)) is not None:
            scale = scale_and_operand(op)
            if scale is None or not is_moderate(factor * scale[0]):
                break
            factor, value = factor * scale[0], scale[1]
        return factor, value

    def _emit_sum(
        self, terms: Sequence[Term], where: str, out: Value | None = None
    ) -> Value:
        """Return the sum of terms of one shape and dtype.

        Terms with the same factor are added first.

        Args:
            out: the value to define as the sum; a new value where None.
        """
        by_magnitude: dict[float, list[tuple[bool, Value]]] = {}
        if out is None:
            terms = sorted(terms, key=lambda term: self.positions[term[1]])
        for factor, x in terms:
            by_magnitude.setdefault(abs(factor), []).append((factor < 0, x))
        partial_sums = []
        for magnitude, signed_terms in by_magnitude.items():
            is_minus, x = self._emit_signed_sum(signed_terms, where)
            partial_sums.append((is_minus, self._emit_scaled(magnitude, x, where)))
        is_minus, total = self._emit_signed_sum(partial_sums, where)
        if is_minus:
            total = self._emit_scaled(-1.0, total, where)
        if out is None:
            heapq.heappush(
                self.pending,
                (_latest_first(self.positions[total]), total.number, total),
            )
            return total
        producer, old_producer = self.producers[total], self.producers[out]
        self._register(out, replace(producer, outputs=(out,)))
        if self.use_counts[total]:
            self.use_counts.update(inputs_read(producer))
        else:
            del self.producers[total]
        self._release_inputs(old_producer)
        return out

    def _emit_signed_sum(
        self, terms: Sequence[tuple[bool, Value]], where: str
    ) -> tuple[bool, Value]:
        """Emit a sum of signed terms; return whether it is negated, and its value."""
        is_negated = all(is_minus for is_minus, _ in terms)
        ordered = sorted(terms, key=lambda term: term[0] and not is_negated)
        (_, total), *rest = ordered
        for is_minus, x in rest:
            name = "subtract" if is_minus and not is_negated else "add"
            total = self._emit(name, (total, x), total, where)
        return is_negated, total

    def _emit_scaled(self, factor: float, x: Value, where: str) -> Value:
        if factor == 1:
            return x
        op = scale_op(x, factor, x, where)
        return self._emit(op.operator.name, op.args, x, where)

    def _emit(
        self, name: str, args: tuple[Any, ...], template: Value, where: str
    ) -> Value:
        """Emit an operator and return its output, which has the template's shape.

        The same call is emitted only once.
        """
        key = (name, *map(key_of, args))
        cached = self.value_by_key.get(key)
        if cached in self.producers:
            return cached
        out = Value(
            next(self.new_numbers), template.shape, template.dtype, template.bytes
        )
        op = Operation(TABLE[name], args, (out,), False, where)
        self.value_by_key[key] = out
        self._register(out, op)
        last_input = max((self.positions[v][0] for v in op.inputs), default=-1)
        self.positions[out] = last_input, next(self.next_order)
        self.use_counts.update(inputs_read(op))
        return out

    def _release_inputs(self, op: Operation) -> None:
        """Remove the producers of inputs that only a removed operation used."""
        worklist = [*inputs_read(op)]
        while worklist:
            value = worklist.pop()
            self.use_counts[value] -= 1
            if not self.use_counts[value] and value in self.producers:
                self.dead_producers[value] = self.producers.pop(value)
                worklist += inputs_read(self.dead_producers[value])

    def _schedule(self) -> list[Operation]:
        """Return the operations by position, each after the producers of its inputs."""
        ops = [*map(self._redirect_shape_args, self.producers.values())]
        ops += map(self._redirect_shape_args, self.multi_output_ops)
        producers = {
            v: op for op in (*self.dead_producers.values(), *ops) for v in op.outputs
        }
        stack = sorted(ops, key=lambda op: _latest_first(self.positions[op.outputs[0]]))
        scheduled: dict[Operation, None] = {}
        while stack:
            op = stack[-1]
            dependencies = [producers[v] for v in op.inputs if v in producers]
            if dependencies := [
                dependency for dependency in dependencies if dependency not in scheduled
            ]:
                stack += dependencies
            else:
                scheduled.setdefault(stack.pop())
        return [*scheduled]

    def _redirect_shape_args(self, op: Operation) -> Operation:
        """Replace dead arguments of which only the shape is used by live values."""
        args = [*op.args]
        for k in op.operator.shapes:
            if (
                k < len(args)
                and type(args[k]) is Value
                and args[k] in self.dead_producers
            ):
                args[k] = self._same_shape_value(args[k], self.positions[op.outputs[0]])
        return replace(op, args=tuple(args)) if tuple(args) != op.args else op

    def _same_shape_value(self, value: Value, position: Position) -> Value:
        shape_and_dtype = value.shape, value.dtype
        available = (
            v for v in self.positions if v in self.producers or v in self.live_ins
        )
        candidates = (v for v in available if (v.shape, v.dtype) == shape_and_dtype)
        return next(
            (v for v in candidates if self.positions[v][0] < position[0]), value
        )


def _latest_first(position: Position) -> Position:
    """Return a key for a heap from which the last position comes first."""
    return -position[0], -position[1]
