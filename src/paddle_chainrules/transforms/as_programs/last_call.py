"""The program of a jitted function's last calls, found without its key.

Where it is machine code, that looks at its tensors itself. Only what it can't see is
compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from paddle import Tensor

from ...programs.compiling.program import Program
from .keys import kinds_of_leaves, modes
from .outer_state import OuterState
from .program_cache import CompiledFunction, ProgramCache
from .program_nodes import lookup_program
from .program_recording import run
from .unpacking import Unpack

SEARCH_INTERVAL = 16
"""Calls from one search for such a program to the next."""

MAX_MISSES = 8
"""Calls in a row that it does not serve, after which it is dropped."""

MAX_SEARCHES = 32


class FastPathGuard(NamedTuple):
    """All of a call that its tensors do not tell.

    Attributes:
        unpack: gives the tensors of arguments that are nested like its own.
        kinds: the dtypes and shapes of these.
        state: the number of the function's outer state.
        modes: whether gradients are on, whether dtypes are cast, the default dtype.
    """

    unpack: Unpack
    kinds: tuple[Any, ...]
    state: int
    modes: tuple[Any, ...]


class LastCall:
    """The program that served the last calls of a function, if one did."""

    def __init__(self) -> None:
        self._guard: FastPathGuard | None = None
        self._compiled: CompiledFunction | None = None
        self._calls = self._misses = self._searches = 0

    def is_worth_a_search(self) -> bool:
        """Count a call; tell whether to look for a program after it."""
        if self._compiled is not None or self._searches >= MAX_SEARCHES:
            return False
        self._calls += 1
        return self._calls % SEARCH_INTERVAL == 0

    def search(
        self, programs: ProgramCache, leaves: Sequence[Any], guard: FastPathGuard
    ) -> None:
        """Store the program of a call, if its results are off the caller's graph."""
        self._searches += 1
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            return
        result, _ = lookup_program(programs, leaves)
        if True not in result.captured.requires:
            self._guard, self._compiled, self._misses = guard, result, 0

    def result(
        self, args: Any, state: OuterState, fn: Callable[..., Any]
    ) -> tuple[Any, ...] | None:
        """Return a call's result, alone in a tuple; None if it does not serve.

        Args:
            args: the call's arguments, ``(args, kwargs)``.
            state: the state of the function ``fn``.
        """
        compiled, guard = self._compiled, self._guard
        if compiled is None or guard is None:
            return None
        leaves = guard.unpack(args)
        outputs = None
        if (
            leaves is not None
            and modes() == guard.modes
            and state.number(fn) == guard.state
            and are_off_the_graph(leaves, guard.modes[0])
            and len({*map(id, leaves)}) == len(leaves)
            and not compiled.is_stale()
        ):
            outputs = _run_guarded(compiled.captured.program, leaves, guard.kinds)
        if outputs is None:
            self._misses += 1
            if self._misses >= MAX_MISSES or compiled.is_stale():
                self._compiled = None
            return None
        self._misses = 0
        return (compiled.structure.unflatten(compiled.captured.filled(outputs)),)


def _run_guarded(
    program: Program, tensors: Sequence[Any], kinds: tuple[Any, ...]
) -> list[Tensor] | None:
    """Run a program; return None if dtypes or shapes differ from the guard's."""
    if program.entered is not None:
        return program.entered(*tensors)
    return (
        run(program, tensors, trusted=True)
        if kinds_of_leaves(tensors) == kinds
        else None
    )


def are_off_the_graph(leaves: Iterable[Any], grad_enabled: bool) -> bool:
    """Tell whether leaves need no gradients, or gradients are off.

    The caller finds leaves that are no tensors.
    """
    try:
        return not grad_enabled or all(map(_stop_gradient_of, leaves))
    except AttributeError:
        return False


_stop_gradient_of = attrgetter("stop_gradient")
