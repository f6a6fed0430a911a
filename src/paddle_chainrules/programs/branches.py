"""A choice between two functions as one operator of a program.

Both functions are programs of their own, and a call runs one of them. The gradient is
such an operator again, whose branches are the gradients of these: the branch that did
not run contributes nothing, not even NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.listener import listener, not_listening
from .batches.batching import DETACH, STOP, batched, recorded_one, replayed
from .capture_error import CaptureError
from .compiling.passes import least, program_of
from .compiling.program import Program
from .derivatives.taylor import own
from .loops.fused_kernels.regions import PRODUCTS
from .operators.calls import BatchCall, Call, NoRule
from .operators.entry import batch_of, define, formula_of, holds_for_complex, reverse_of
from .operators.shared import ops
from .tracing.operations import Operation, Value, fresh_numbers

Branch = Callable[[list[Tensor]], Sequence[Tensor]]
"""A function of a list of tensors; the two branches give the same shapes and dtypes."""

LIGHT = 1 << 14
"""Elements that the operators of both branches go over, up to which machine code has
both computed."""

_numbers = itertools.count()


class Branches:
    """Two programs with the same inputs and outputs, of which a call runs one.

    Args:
        programs: for a true and for a false predicate.
        drawn: how many of the last outputs of each program are random numbers that it
            has drawn, which the backward pass needs.
        batched: None for one predicate; for a predicate of each sample, which inputs
            have samples along their first axis.
        operands: how many of the first inputs always have a gradient, perhaps of zeros,
            as no caller knows which branch will depend on them.
    """

    def __init__(
        self,
        programs: tuple[Program, Program],
        drawn: tuple[int, int] = (0, 0),
        batched: tuple[bool, ...] | None = None,
        operands: int = 0,
    ) -> None:
        self.programs, self.drawn, self.batched = programs, drawn, batched
        self.operands = operands
        self._number = next(_numbers)
        self._wide: dict[int, tuple[Program, Program]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_wide": {}}

    def __repr__(self) -> str:
        one, other = (len(program.ops) for program in self.programs)
        return f"Branches(no. {self._number}: {one} or {other} operators)"

    @property
    def count(self) -> int:
        """The number of results, without the random numbers."""
        return len(self.programs[0].outputs) - self.drawn[0]

    @cached_property
    def as_run(self) -> tuple[Program, ...]:
        """The programs without the places where gradients end."""
        return tuple(map(_without_stops, self.programs))

    @cached_property
    def is_light(self) -> bool:
        """Whether machine code computes both sooner than Python chooses one."""
        rows = [op for program in self.as_run for op in program.ops]
        return sum(map(_cost, rows)) <= LIGHT and not any(op.is_complex for op in rows)

    def both(self, predicate: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the results by both branches, of which elements are chosen."""
        truths = predicate if predicate.dtype == paddle.bool else predicate != 0
        if self.batched is None:
            one, other = (replayed(program, tensors) for program in self.as_run)
        else:
            size = predicate.shape[0]
            one, other = (self._each(p, tensors, size) for p in self.as_run)
        return [_chosen(truths, a, b) for a, b in zip(one, other, strict=True)]

    def __call__(self, predicate: Tensor, *tensors: Tensor) -> list[Tensor]:
        """Return the results of one branch, and the random numbers of both.

        Those of the branch that did not run are zeros.
        """
        with grad_mode(False):
            if self.batched is not None:
                return self._of_samples(predicate, tensors)
            k = 0 if bool(predicate) else 1
            found: list[Tensor] = self.as_run[k].function(*tensors)
            if not any(self.drawn):
                return found
            other = self.programs[1 - k].outputs[self.count :]
            zeros = [*map(_zeros, other)]
            drawn = [found[self.count :], zeros]
            return [*found[: self.count], *drawn[k], *drawn[1 - k]]

    def _of_samples(self, chosen: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Results of all samples, each of the branch that is chosen for it."""
        size = chosen.shape[0]
        try:
            one, other = (p.function(*tensors) for p in self._whole(size, tensors))
        except Exception:  # at numbers of a sample that has chosen the other branch
            return self._apart(chosen, tensors)
        truths = chosen.astype("bool")
        return [_chosen(truths, a, b) for a, b in zip(one, other, strict=True)]

    def _whole(self, size: int, tensors: Sequence[Tensor]) -> tuple[Program, Program]:
        """Both programs for so many samples."""
        if size not in self._wide:

            def traced(program: Program) -> Program:
                def fn(leaves: list[Tensor]) -> list[Tensor]:
                    return self._each(program, leaves, size)

                return _without_stops(recorded_one(fn, tensors)[0])

            one, other = self.programs
            self._wide[size] = traced(one), traced(other)
        return self._wide[size]

    def _apart(self, chosen: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The same with each branch at the samples alone that have chosen it."""
        assert self.batched is not None
        truths = chosen.astype("bool")
        found = [_zeros(v, chosen.shape[0]) for v in self.programs[0].outputs]
        for program, rows in zip(self.programs, (truths, ~truths), strict=True):
            places = paddle.nonzero(rows).flatten()
            if not (size := places.shape[0]):
                continue
            some = [
                x[places] if flag else x
                for x, flag in zip(tensors, self.batched, strict=True)
            ]
            for whole, part in zip(found, self._each(program, some, size), strict=True):
                whole[places] = part
        return found

    def _each(
        self, program: Program, tensors: Sequence[Tensor], size: int
    ) -> list[Tensor]:
        """A program's results for all samples."""
        assert self.batched is not None
        return of_samples(program, tensors, self.batched, size)

    # Rules.

    def back(self, call: Call) -> list[Tensor | None]:
        """Return the gradients of the tensors that a call was given."""
        predicate, *tensors = call.args[1:]
        drawn = call.outputs[self.count :]
        given = [(i, g) for i, g in enumerate(call.cotangents) if g is not None]
        ends = [[self._place(k, i) for i, _ in given] for k in range(2)]
        reached = {*range(self.operands)}
        for program, places in zip(self.programs, ends, strict=True):
            reached.update(*(program.reached[i] for i in places if i is not None))
        wanted = [
            i
            for i, x in enumerate(tensors)
            if i in reached and i + 2 in call.wanted and is_differentiable(x)
        ]
        grads: list[Tensor | None] = [None] * len(tensors)
        if not wanted:
            return grads

        def gradient_of(k: int) -> Branch:
            def gradient(leaves: list[Tensor]) -> list[Tensor]:
                m = len(tensors)
                record: Any = listener()
                with grad_mode(True):
                    here = [_leaf(record, x) for x in leaves[:m]]
                    found = replayed(self.programs[k], here)
                cotangents = leaves[m + len(drawn) :]
                seeds = [
                    (found[i], g)
                    for i, g in zip(ends[k], cotangents, strict=True)
                    if i is not None and not found[i].stop_gradient
                ]
                starts = [here[i] for i in wanted]
                own_grads = record.gradients(
                    [end for end, _ in seeds],
                    starts,
                    [g for _, g in seeds],
                    create_graph=paddle.is_grad_enabled(),
                )
                pairs = zip(own_grads, starts, strict=True)
                return [paddle.zeros_like(x) if g is None else g for g, x in pairs]

            return gradient

        first = len(tensors)
        own_draws = [
            range(first, first + self.drawn[0]),
            range(first + self.drawn[0], first + sum(self.drawn)),
        ]
        every = [*tensors, *drawn, *(g for _, g in given)]
        flags = self.batched
        if flags is not None:
            flags = (*flags, *(True for _ in (*drawn, *given)))
        found = in_branches(
            (gradient_of(0), gradient_of(1)), predicate, every, flags, own_draws
        )
        for i, grad in zip(wanted, found, strict=True):
            shared = self.batched is not None and not self.batched[i]
            grads[i] = grad.sum(0) if shared else grad
        return grads

    def _place(self, k: int, i: int) -> int | None:
        """Where branch k has the output of this position, if it has it."""
        if i < self.count or not k:
            return i if i < self.count + self.drawn[0] else None
        place = i - self.drawn[0]
        return place if place >= self.count else None

    def of_many(self, call: BatchCall) -> list[Tensor]:
        """Return the results of many samples.

        Raises:
            NoRule: random numbers are drawn.
        """
        if any(self.drawn):
            raise NoRule("a branch that draws random numbers")
        predicate, *tensors = call.args[1:]
        flags = tuple(i in call.batched for i in range(2, len(call.args)))
        size = call.size
        if self.batched is not None:
            return self._of_samples_of_samples(predicate, 1 in call.batched, call)
        if 1 in call.batched:
            chosen = predicate.reshape([size])
            made = Branches(self.programs, batched=flags, operands=self.operands)
            return COND.every([made, chosen, *tensors])

        def wide(program: Program) -> Branch:
            return lambda leaves: of_samples(program, leaves, flags, size)

        one, other = self.programs
        return in_branches(
            (wide(one), wide(other)), predicate, tensors, operands=self.operands
        )

    def _of_samples_of_samples(
        self, chosen: Tensor, is_many: bool, call: BatchCall
    ) -> list[Tensor]:
        """Samples of two axes, which become one."""
        assert self.batched is not None
        size, inner = call.size, chosen.shape[-1]

        def spread(x: Tensor, is_outer: bool, is_inner: bool) -> Tensor:
            rest = x.shape[is_outer + is_inner :]
            x = x.reshape([size if is_outer else 1, inner if is_inner else 1, *rest])
            return ops.expand(x, [size, inner, *rest]).reshape([size * inner, *rest])

        outer = [i in call.batched for i in range(2, len(call.args))]
        tensors = [
            spread(x, a, b) if a or b else x
            for x, a, b in zip(call.args[2:], outer, self.batched, strict=True)
        ]
        flags = tuple(a or b for a, b in zip(outer, self.batched, strict=True))
        branches = Branches(self.programs, batched=flags, operands=self.operands)
        found = COND.every([branches, spread(chosen, is_many, True), *tensors])
        return [y.reshape([size, inner, *y.shape[1:]]) for y in found]


def of_samples(
    program: Program, tensors: Sequence[Tensor], flags: Sequence[bool], size: int
) -> list[Tensor]:
    """Return a program's results for all samples, each with samples along axis 0.

    Args:
        flags: which tensors have samples.
        size: the number of samples.
    """
    if any(flags):
        found, differ = batched(program, tensors, flags)
    else:
        found, differ = replayed(program, tensors), [False] * len(program.outputs)
    return [
        y if flag else ops.expand(y, [size, *y.shape])
        for y, flag in zip(found, differ, strict=True)
    ]


def _zeros(value: Value, *count: int) -> Tensor:
    return paddle.zeros([*count, *value.shape], getattr(paddle, value.dtype))


def _chosen(truths: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """One result or the other, by a truth or by one of each row."""
    rest = [1] * (one.ndim - 1)
    truths = truths.reshape([-1, *rest] if one.ndim else [])
    found: Tensor = paddle.where(truths, one, other)
    return found


def _cost(op: Operation) -> int:
    """How many elements an operation goes over, about."""
    sizes = [math.prod(v.shape) for v in (*op.inputs, *op.outputs)]
    if op.operator.name in PRODUCTS and len(op.inputs) > 1:
        return sizes[0] * math.prod(op.inputs[1].shape[-1:])
    return max(sizes, default=0)


def _leaf(record: Any, x: Tensor) -> Tensor:
    return own(record, x) if is_differentiable(x) else x


def _without_stops(program: Program) -> Program:
    row = [
        replace(o, operator=DETACH) if o.operator is STOP else o for o in program.ops
    ]
    known = program.inputs, program.constants
    return least(program_of(row, *known, program.outputs, "branch"))


def _run(branches: Branches, *tensors: Tensor) -> list[Tensor]:
    return branches(*tensors)


COND = define("cond", "", run=_run, opaque=True)
DRAWING_COND = define("drawing_cond", "", run=_run, opaque=True, random=True)
"""The same where a branch draws random numbers."""

holds_for_complex("cond", "drawing_cond")


@reverse_of("cond", "drawing_cond")
def _cond_reverse(call: Call) -> list[Any]:
    return [None, None, *call.args[0].back(call)]


@formula_of("cond")
def _cond_formula(branches: Branches, predicate: Tensor, *tensors: Tensor) -> Any:
    if not branches.is_light:
        raise NoRule("a branch with much to do")
    return branches.both(predicate, tensors)


@batch_of("cond", "drawing_cond")
def _cond_batch(call: BatchCall) -> list[Tensor]:
    return call.args[0].of_many(call)


def in_branches(
    branches: tuple[Branch, Branch],
    predicate: Tensor,
    tensors: Sequence[Tensor],
    batched: tuple[bool, ...] | None = None,
    drawn: Sequence[range] = (range(0), range(0)),
    operands: int = 0,
) -> list[Tensor]:
    """Call one of two functions as one operator of whoever listens.

    Args:
        branches: for a true predicate and a false one.
        predicate: a truth; with ``batched`` one of each sample.
        tensors: what both functions are given.
        batched: for many samples, which tensors have them along their first axis; the
            functions are of one sample.
        drawn: for each function the positions of tensors that replace the random
            numbers that it would draw, in this order.
        operands: as :class:`Branches` takes it.

    Returns:
        The results.

    Raises:
        ValueError: the predicate is no single truth.
        CaptureError: a branch can't be traced.
    """
    samples = _samples(tensors, batched)
    with not_listening():
        taken = None if batched is not None else (0 if bool(predicate) else 1)
    traced = [
        _traced(fn, samples, drawn[k], is_unlikely=k != taken)
        for k, fn in enumerate(branches)
    ]
    far = [x for each in traced for x in each[1]]
    one, other = (program for program, *_ in traced)
    first = len(samples)
    a, b = one.inputs[first:], other.inputs[first:]
    programs = (
        replace(one, inputs=(*one.inputs, *_unused(one, b))),
        replace(other, inputs=(*other.inputs[:first], *_unused(other, a), *b)),
    )
    counts = traced[0][2], traced[1][2]
    flags = None if batched is None else (*batched, *(False for _ in far))
    made = Branches(programs, counts, flags, operands)
    if any(counts) and batched is not None:
        raise CaptureError(
            "random numbers are drawn in a branch of cond that differs from sample to "
            "sample; draw them before it, and give them as an operand"
        )
    operator = DRAWING_COND if any(counts) else COND
    return operator.every([made, predicate, *tensors, *far])[: made.count]


def _samples(
    tensors: Sequence[Tensor], batched: tuple[bool, ...] | None
) -> list[Tensor]:
    """What branches are traced at."""
    flags = batched or (False for _ in tensors)
    on = paddle.is_grad_enabled()
    with not_listening():
        found = [
            (x[0] if flag else x).detach()
            for x, flag in zip(tensors, flags, strict=True)
        ]
        for x in found:
            x.stop_gradient = not (on and is_differentiable(x))
    return found


def _traced(
    fn: Branch, samples: Sequence[Tensor], drawn: range, is_unlikely: bool
) -> tuple[Program, list[Tensor], int]:
    """Trace a branch.

    Returns:
        Its program, whose last inputs are for what it closes over; these tensors; and
        how many random numbers it draws, its last outputs.
    """
    program, record = recorded_one(fn, samples, is_unlikely=is_unlikely)
    outer: Any = listener()
    if outer is not None:
        outer.writes = outer.writes or record.writes
        outer.differentiates = outer.differentiates or record.differentiates
    row, ends, inputs = [*program.ops], program.outputs, program.inputs
    random = [op for op in row if op.operator.random]
    made = [v for op in random for v in op.outputs if v.dtype != "none"]
    far = {v: t for v, t in program.constants.items() if not record.is_own(v)}
    constants = {v: t for v, t in program.constants.items() if v not in far}
    count = 0
    if drawn:
        row = [op for op in row if not op.operator.random]
        unused = dict(zip(drawn, made, strict=True))
        inputs = tuple(unused.get(i, v) for i, v in enumerate(inputs))
    elif random:
        ends, count = (*ends, *made), len(made)
    program = program_of(row, (*inputs, *far), constants, ends, "branch")
    return program, [*far.values()], count


def _unused(program: Program, like: Sequence[Value]) -> list[Value]:
    """Inputs of the same kinds that a program does not read."""
    given = (*program.inputs, *program.constants)
    fresh = fresh_numbers(given, program.ops)
    return [Value(next(fresh), v.shape, v.dtype, v.bytes) for v in like]
