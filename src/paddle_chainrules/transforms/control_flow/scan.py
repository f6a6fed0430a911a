"""Loops of steps in the semantics of ``jax.lax``.

A loop that is called by itself makes a program of its step. Where that is one function
of machine code, steps follow one another without a tensor of Paddle's in between: two
sets of memory take turns. Within another program it is one operator
(:func:`.programs.trace_scan`), and within a derivative such a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import optree
import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.arguments import checked_flag, checked_function, checked_integer
from ...paddle_side.listener import is_plain, listener, single_use_captures
from ...programs import Program, RepeatedStep, trace_scan
from ...settings import loops_are_on, programs_are_on
from ..as_programs.jitted import Jitted
from ..as_programs.program_cache import CompiledFunction
from ..containers.tree import Tree, flatten_tree, nesting
from ..recordings.effects import tensors_among
from ..recordings.recording import records_graph
from .carry import (
    as_tensor,
    call_step_checked,
    check_same_carry,
    copy,
    fill_tensors,
    inputs_unchanged,
    number_of_steps,
    program_of,
    stack_steps,
    with_distinct_tensors,
    xs_leaf,
)

MAX_EAGER_SCAN_STEPS = 100
"""Steps, for more of which a loop is not run natively where a program can be made, be
it to differentiate it once or to see that a program is right."""

Report = Callable[[int, Tree, Tree], Any]
"""Function of the number of steps, the carry, and the last step's results."""


def scan(
    step: Callable[[Tree, Tree], tuple[Tree, Tree]],
    carry: Tree,
    xs: Tree = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    on_step: Report | None = None,
    every: int = 1,
) -> tuple[Tree, Tree]:
    """Return the carry after many steps and each step's result, as ``jax.lax.scan``.

    Each call captures the step anew, with the values that Python's objects have then.
    The program of ``jit(step)`` is kept from call to call.

    Args:
        step: a function from a carry and a part of ``xs`` to the next carry, of the
            same nesting, shapes and dtypes, and a tree of tensors; as :func:`.jit.jit`
            takes it.
        carry: a tree of tensors and numbers, which become tensors.
        xs: a tree of tensors, each with a part for each step along its first axis; None
            if steps are given None.
        length: how many steps; the length of ``xs`` if None.
        reverse: whether steps go from the last part of ``xs`` to the first; each result
            stands where its part does.
        on_step: called after each ``every`` steps, and after the last, with the number
            of steps so far, the carry, and the last step's result, all of them the
            caller's. An error or an interrupt ends the loop; reported values stay.
        every: the number of steps between two reports.

    Returns:
        The last carry; and the steps' results, tensors with an axis of steps first.

    Raises:
        ValueError: the carry of a step is nested or shaped otherwise, a step gives
            something other than tensors, numbers and None, or the numbers of steps
            differ.
        NotImplementedError: ``on_step`` is used within another program or derivative,
            or a step with it reads a tensor that requires gradients; or a step writes
            into its arguments.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import scan
        >>> total, sums = scan(lambda t, x: (t + x, t + x), 0.0, paddle.arange(4.0))
        >>> float(total), sums.tolist()
        (6.0, [0.0, 1.0, 3.0, 6.0])
    """
    if checked_integer("every", every) < 1:
        raise ValueError(f"every is {every}; give a number of steps from 1 on")
    reports = on_step is not None
    loop = Loop(step, carry, xs, length, reverse=reverse, reports=reports)
    result = loop.as_operator()
    if result is not None:
        return result
    for t in loop.walk():
        if on_step is not None and ((t + 1) % every == 0 or t + 1 == loop.count):
            on_step(t + 1, *loop.reported())
    return loop.result()


class _LongLoopRefusal(Exception):
    """The refusal to run a long loop natively, if another way shows its results."""


class Loop:
    """One call of :func:`scan`, whose steps are those of :meth:`walk`.

    Args:
        step: the function.
        carry: as :func:`scan` takes it.
        xs: as :func:`scan` takes it.
        length: as :func:`scan` takes it.
        reverse: as :func:`scan` takes it.
        reports: whether :meth:`reported` will be called.

    Attributes:
        count: the number of steps.
    """

    def __init__(
        self,
        step: Callable[[Tree, Tree], tuple[Tree, Tree]],
        carry: Tree,
        xs: Tree = None,
        length: int | None = None,
        *,
        reverse: bool = False,
        reports: bool = False,
    ) -> None:
        checked_function("step", step)
        reverse = checked_flag("reverse", reverse)
        leaves, self._xs_spec = flatten_tree(xs)
        self._xs = [*map(xs_leaf, leaves)]
        self.count = number_of_steps(self._xs, length)
        leaves, self._spec = flatten_tree(carry)
        self._leaves = with_distinct_tensors([*map(as_tensor, leaves)])
        is_native = is_plain()
        self._reports = reports
        if is_native or records_graph([*self._leaves, *self._xs]):
            self._refuse_reports()
        run = None if is_native or not programs_are_on() else program_of(step)
        self._backwards = reverse
        self._step, self._jitted_step = step, run
        self._compiled_step: CompiledFunction | None = None
        self._repeated: RepeatedStep | None = None
        self._step_results: list[list[Any]] = []
        """The results of each step, tensors by step."""
        self._ys_spec: optree.PyTreeSpec | None = None

    def program(self) -> Program | None:
        """Return the program of a step, if it is a function of the carry alone."""
        result = self._step_program()
        if result is None or any(result.captured.requires):
            return None
        return result.captured.program

    def walk(self) -> Iterator[int]:
        """Take one step after another; yield the number of each, once it is done."""
        if not self.count:
            return
        result = self._step_program()
        if result is not None and RepeatedStep.pays(
            result.captured.program, self.count
        ):
            self._repeated = self._repeated_step(result)
        if self._repeated is not None:
            yield from self._repeated.run_steps(self.count)
            return
        for t in range(self.count):
            self._take_step(t)
            yield t

    def reported(self) -> tuple[Tree, Tree]:
        """Return the carry now and the last step's results, as unshared tensors."""
        if self._repeated is not None:
            return self._results_of_code(*self._repeated.copies())
        ys = self._nest_ys([*map(copy, self._step_results[-1])])
        return self._nest_carry([*map(copy, self._leaves)]), ys

    def results_between(self, begin: int, end: int) -> Tree:
        """Return the stacked results of the steps from ``begin`` to before ``end``.

        Args:
            begin: the first of these.
            end: the one after the last; at most the number of steps done.
        """
        if self._repeated is not None:
            tensors = [y[begin:end].clone() for y in self._repeated.result()[1]]
            return self._nest_ys(fill_tensors(self._step_results[0], tensors))
        return self._nest_ys(stack_steps(self._step_results[begin:end]))

    def result(self) -> tuple[Tree, Tree]:
        """Return the last carry and all steps' results, after all have been walked."""
        if not self.count:
            return self._results_of_no_steps()
        if self._repeated is not None:
            return self._results_of_code(*self._repeated.result())
        step_results = (
            self._step_results[::-1] if self._backwards else self._step_results
        )
        return self._nest_carry(self._leaves), self._nest_ys(stack_steps(step_results))

    def as_operator(self) -> tuple[Tree, Tree] | None:
        """Return all steps as one operator of a program.

        None if they are to go one by one.
        """
        if not programs_are_on() or not self.count:
            return None
        if listener() is not None:
            few = RepeatedStep.MAX_EAGER_STEPS
            return self._as_scan_operator() if self.count > few else None
        if is_plain():
            if self.count > MAX_EAGER_SCAN_STEPS:
                raise _LongLoopRefusal
            return None
        if not self._is_on_graph():
            return None
        self._refuse_reports()
        cached_loops = (
            self._step.derived_programs if isinstance(self._step, Jitted) else None
        )
        if self.count <= (
            MAX_EAGER_SCAN_STEPS
            if cached_loops is None
            else RepeatedStep.MAX_EAGER_STEPS
        ):
            self._jitted_step = None  # natively, on Paddle's tape
            return None
        carry, xs = self._nest_carry(self._leaves), self._xs_spec.unflatten(self._xs)
        loop = Jitted(_loop_of(self._step, self.count, self._backwards), strict=True)
        if cached_loops is not None:
            loop = cached_loops.setdefault((self.count, self._backwards), loop)
        try:
            with single_use_captures(cached_loops is None):
                results: tuple[Tree, Tree] = loop.run(carry, xs)
            return results
        except CaptureError:
            return None

    def _refuse_reports(self) -> None:
        if self._reports:
            raise NotImplementedError(
                "on_step within another program or derivative, which would run without "
                "it; call scan by itself, under paddle.no_grad() where a tensor that "
                "the step reads requires gradients, or leave on_step out"
            )

    def _is_on_graph(self) -> bool:
        """Tell whether gradients are taken from outside, or by closed-over tensors."""
        if records_graph([*self._leaves, *self._xs]):
            return True
        result = self._step_program()
        return result is not None and any(result.captured.requires)

    def _step_program(self) -> CompiledFunction | None:
        """Return the program of a step, or None if there is none."""
        if self._jitted_step is None:
            return None
        if self._compiled_step is None:
            try:
                self._compiled_step = self._jitted_step._fixed_size_program(
                    self._nest_carry(self._leaves), self._xs_at(0)
                )
            except CaptureError:
                self._jitted_step = None
        return self._compiled_step

    def _as_scan_operator(self) -> tuple[Tree, Tree] | None:
        """Emit all steps as one scan operator of the program being captured.

        None if steps draw random numbers.
        """
        out_leaves: list[list[Any]] = []
        pairs = (self._spec, self._leaves), (self._xs_spec, self._xs)

        def step(tensors: list[Tensor]) -> list[Tensor]:
            tensors_left = iter(tensors)
            trees = [
                spec.unflatten(fill_tensors(row, tensors_left)) for spec, row in pairs
            ]
            with inputs_unchanged(tensors):
                results = self._step(*trees)
            out_leaves[:] = self._check_results(results)
            return tensors_among(out_leaves[0]) + tensors_among(out_leaves[1])

        carry, xs = tensors_among(self._leaves), tensors_among(self._xs)
        traced = trace_scan(step, carry, xs, self.count, self._backwards)
        if traced is None:
            return None
        results = iter(traced)
        leaves, ys = (fill_tensors(row, results) for row in out_leaves)
        return self._nest_carry(leaves), self._nest_ys(ys)

    def _take_step(self, t: int) -> None:
        """Run one step; store its carry and results."""
        x = self._xs_at(t)
        if self._jitted_step is not None:
            result = self._jitted_step(self._nest_carry(self._leaves), x)
        else:
            result = call_step_checked(
                self._step, self._nest_carry(self._leaves), x, t == 0
            )
        self._leaves, ys = self._check_results(result)
        self._step_results.append(ys)

    def _check_results(self, results: Any) -> tuple[list[Any], list[Any]]:
        """Check a step's results, and return their leaves."""
        if type(results) is not tuple or len(results) != 2:
            raise ValueError(
                f"a step of scan gives a {type(results).__name__}, and must give a "
                "pair of the next carry and a tree of tensors; give None for nothing"
            )
        leaves, spec = flatten_tree(results[0])
        leaves = [*map(as_tensor, leaves)]
        check_same_carry(self._leaves, self._spec, leaves, spec)
        ys, ys_spec = flatten_tree(results[1])
        if self._ys_spec is not None and ys_spec != self._ys_spec:
            raise ValueError(
                f"a step of scan gives {nesting(ys_spec)} after "
                f"{nesting(self._ys_spec)}; give the same at every step"
            )
        self._ys_spec = ys_spec
        ys = [*map(as_tensor, ys)]
        for y in ys:
            if not (y is None or isinstance(y, Tensor)):
                raise ValueError(
                    f"a step of scan gives {y!r} besides its carry, of which there is "
                    "no row for each step; give tensors, numbers or None"
                )
        return leaves, ys

    def _repeated_step(self, result: CompiledFunction) -> RepeatedStep | None:
        """Return all steps as machine code of a step's program; None if impossible."""
        program = result.captured.program
        if not loops_are_on() or any(result.captured.requires):
            return None
        outputs = RepeatedStep.empty_results(program)
        leaves, ys = self._check_results(
            result.structure.unflatten(result.captured.filled(outputs))
        )
        if len(tensors_among(leaves)) + len(tensors_among(ys)) != len(outputs):
            return None  # numbers of Python's are among them
        self._step_results = [ys]
        carry, xs = tensors_among(self._leaves), tensors_among(self._xs)
        repeated = RepeatedStep.of(program, carry, xs, (), self._backwards)
        if repeated is None:
            self._step_results = []
        return repeated

    def _results_of_code(
        self, carry: Sequence[Tensor], ys: Sequence[Tensor]
    ) -> tuple[Tree, Tree]:
        last_carry = self._nest_carry(fill_tensors(self._leaves, carry))
        return last_carry, self._nest_ys(fill_tensors(self._step_results[0], ys))

    def _results_of_no_steps(self) -> tuple[Tree, Tree]:
        """Return the results of no steps, shaped as those of a step on zeros."""
        zeros = [
            x if x is None else paddle.zeros(x.shape[1:], x.dtype) for x in self._xs
        ]
        carry = self._nest_carry([*map(copy, self._leaves)])
        x = self._xs_spec.unflatten(zeros)
        result = call_step_checked(self._step, carry, x, True)
        _, ys = self._check_results(result)
        empty_ys = [
            y if y is None else paddle.zeros([0, *y.shape], y.dtype) for y in ys
        ]
        return carry, self._nest_ys(empty_ys)

    def _nest_carry(self, leaves: Sequence[Any]) -> Tree:
        return self._spec.unflatten(leaves)

    def _nest_ys(self, ys: Sequence[Any]) -> Tree:
        assert self._ys_spec is not None
        return self._ys_spec.unflatten(ys)

    def _xs_at(self, t: int) -> Tree:
        """Return the slice of ``xs`` for step t."""
        t = self.count - 1 - t if self._backwards else t
        return self._xs_spec.unflatten([x if x is None else x[t] for x in self._xs])


def _loop_of(step: Callable[..., Any], count: int, backwards: bool) -> Any:
    """Return ``count`` steps as a function of the carry and of their ``xs``."""

    def loop(carry: Tree, xs: Tree) -> tuple[Tree, Tree]:
        loop = Loop(step, carry, xs, count, reverse=backwards)
        result = loop.as_operator()
        if result is None:
            for _ in loop.walk():
                pass
            result = loop.result()
        return result

    return loop
