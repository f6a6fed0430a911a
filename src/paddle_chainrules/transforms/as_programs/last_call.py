"""The program of a jitted function's last calls, found without its key.

Where it is machine code, that looks at its tensors itself. Only what it can't see is
compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from paddle import Tensor, is_grad_enabled

from ...programs.compiling.program import Program
from .keys import creation_modes, kinds_of_leaves
from .outer_state import OuterState
from .program_cache import CompiledFunction, ProgramCache
from .program_nodes import found_value
from .program_recording import run
from .unpacking import Unpack

EVERY = 16
"""Calls from one search for such a program to the next."""

MOST_MISSES = 8
"""Calls in a row that it does not serve, after which it is dropped."""

MOST_SEARCHES = 32


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
        self._like: FastPathGuard | None = None
        self._found: CompiledFunction | None = None
        self._calls = self._misses = self._searches = 0

    def is_worth_a_search(self) -> bool:
        """Tell whether to look for a program after this call; counts it."""
        if self._found is not None or self._searches >= MOST_SEARCHES:
            return False
        self._calls += 1
        return self._calls % EVERY == 0

    def search(
        self, programs: ProgramCache, leaves: Sequence[Any], like: FastPathGuard
    ) -> None:
        """Keep the program of a call, if its results are off the caller's graph."""
        self._searches += 1
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            return
        result, _ = found_value(programs, leaves)
        if True not in result.captured.requires:
            self._like, self._found, self._misses = like, result, 0

    def result(
        self, args: Any, state: OuterState, fn: Callable[..., Any]
    ) -> tuple[Any, ...] | None:
        """Return a call's result, alone in a tuple; None if it does not serve.

        Args:
            args: the call's arguments, ``(args, kwargs)``.
            state: the state of the function ``fn``.
        """
        outcome, like = self._found, self._like
        if outcome is None or like is None:
            return None
        leaves = like.unpack(args)
        made = None
        if (
            leaves is not None
            and modes() == like.modes
            and state.number(fn) == like.state
            and are_off_the_graph(leaves, like.modes[0])
            and len({*map(id, leaves)}) == len(leaves)
            and not outcome.is_stale()
        ):
            made = _made(outcome.captured.program, leaves, like.kinds)
        if made is None:
            self._misses += 1
            if self._misses >= MOST_MISSES or outcome.is_stale():
                self._found = None
            return None
        self._misses = 0
        return (outcome.structure.unflatten(outcome.captured.filled(made)),)


def _made(
    program: Program, tensors: Sequence[Any], kinds: tuple[Any, ...]
) -> list[Tensor] | None:
    """Return what a program gives; None if tensors are not as they were."""
    if program.entered is not None:
        return program.entered(*tensors)
    return (
        run(program, tensors, trusts=True)
        if kinds_of_leaves(tensors) == kinds
        else None
    )


def modes() -> tuple[Any, ...]:
    """Return what else decides which program serves: see :func:`.keys.key_of`."""
    return is_grad_enabled(), *creation_modes()


def are_off_the_graph(leaves: Iterable[Any], graph: bool) -> bool:
    """Tell whether leaves need no gradients, or gradients are off.

    The caller finds leaves that are no tensors.
    """
    try:
        return not graph or all(map(_needs_none, leaves))
    except AttributeError:
        return False


_needs_none = attrgetter("stop_gradient")
