"""Searches step by step: how they report to users, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ...paddle_side.autograd.grad_mode import grad_mode
from ...transforms.containers.tree import Tree, flatten_tree

P = ParamSpec("P")
Result = TypeVar("Result")


class Step(NamedTuple):
    """Where a search is after a step."""

    number: int
    params: Tree
    value: float
    damping: float | None = None
    """None of a method that has none."""


Steps = Generator[Step, bool | None, Result]
"""A search: yields what each step gives, takes whether to end there, and returns a
result."""

STOPPED = "on_step raised StopIteration"


def searched(function: Callable[P, Steps[Result]]) -> Callable[P, Result]:
    """Turn a function that begins a search into one that runs it to its end.

    Its keyword argument ``on_step`` is called after each step. ``__wrapped__`` is the
    function itself.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        on_step: Any = kwargs.get("on_step")
        search, stop = function(*args, **kwargs), None
        while True:
            try:
                step = next_step(search, stop)
            except StopIteration as end:
                result: Result = end.value
                return result
            stop = None
            if on_step is not None:
                versions = _versions(step.params)
                try:
                    on_step(step.number, step.params, step.value)
                except StopIteration:
                    stop = True
                if _versions(step.params) != versions:
                    raise ValueError(
                        "on_step wrote into the parameters it was given, from which "
                        "the search goes on; write into clones of them"
                    )

    return run


def _versions(params: Any) -> list[int]:
    """Return how often each parameter was written into."""
    return [leaf._inplace_version() for leaf in flatten_tree(params)[0]]


def next_step(search: Steps[Any], stop: bool | None = None) -> Step:
    """Take the next step of a search, or end it where ``stop`` is true.

    Raises:
        StopIteration: it has ended; its value is the result.
    """
    with grad_mode(False):
        return search.send(stop)


def one_line_repr(results: Any) -> str:
    """Show the numbers and words of a named tuple."""
    pairs = [*zip(results._fields, results, strict=True)][1:]
    shown = ", ".join(
        f"{k}={v!r}" for k, v in pairs if isinstance(v, int | float | str)
    )
    return f"{type(results).__name__}({shown})"
