"""Warnings where a function gets more and more programs, or none."""

from __future__ import annotations

import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optree
from paddle import Tensor

from ...paddle_side.dtypes import tensor_kind
from .dependencies import transform_of

MAX_PROGRAMS = 8
"""Programs of one function, and of functions that were called once, before a warning.
"""

MAX_EAGER = 2
"""Calls without a program before a warning."""

MAX_LISTED = 64
"""Programs of one function that are listed, the last ones."""

_logs_by_code: weakref.WeakKeyDictionary[types.CodeType, list[Any] | None] = (
    weakref.WeakKeyDictionary()
)
"""References by code to each ``RecompileLog`` with a program, and its list of one count
of calls. Those gone after several calls are left out. None stands after the warning."""


class RecompileWarning(UserWarning):
    """A function is captured again and again, which costs more than it gains."""


class EagerWarning(UserWarning):
    """A function given to :func:`jit` runs eagerly, call after call."""


class RecompileLog:
    """The differences between the programs of one function, and calls without one.

    Args:
        fn: the function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn, self._count, self._calls = fn, 0, [0]
        self._eager, self._why = 0, ""
        self._last: Mapping[str, str] = {}
        self._all: deque[Mapping[str, str]] = deque(maxlen=MAX_LISTED)

    def list_programs(self) -> str:
        """List the programs, and what they were made for; nothing where none is.

        Facts that all programs share are said once.
        """
        if not any(self._all):
            return f"{self._label()} runs eagerly: {self._why}" if self._why else ""
        first = self._all[0]
        shared = {
            label: kind
            for label, kind in first.items()
            if all(kinds.get(label) == kind for kinds in self._all)
        }
        count = len(self._all)
        lines = [f"{self._label()} has {count} program{'s' if count > 1 else ''}."]
        lines += [
            f"  {label}: {kind}, in each"
            for label, kind in shared.items()
            if _is_argument(label)
        ]
        if count > 1:
            for i, kinds in enumerate(self._all, 1):
                differing = [f"{n}: {k}" for n, k in kinds.items() if n not in shared]
                lines.append(
                    f"  {i}. " + ("; ".join(differing) or "gradients are asked for")
                )
        return "\n".join(lines)

    def note(self, kinds: Mapping[str, str]) -> None:
        """Note that a program is made.

        Args:
            kinds: the kinds that it is made for, by argument.
        """
        before, self._last = self._last, kinds
        self._all.append(kinds)
        if self._count and _differ_by_choice(before, kinds):
            return
        self._count += 1
        if self._count == MAX_PROGRAMS:
            warnings.warn(
                f"{self._label()} has been captured {self._count} times. "
                f"{_difference(before, kinds)}. Give what changes as an argument, a "
                "number as a tensor (paddle.to_tensor); pad what comes in many shapes; "
                "or call the function without jit. explain shows its programs",
                RecompileWarning,
                stacklevel=2,
            )
        if self._count == 1 and self._gone_after_a_call() >= MAX_PROGRAMS:
            _logs_by_code[self._code] = None
            warnings.warn(
                f"jit has been called {MAX_PROGRAMS} times for {self._label()}, for "
                "one call each, and each time a program was made. Call it once, "
                "before the loop, and use what it gives",
                RecompileWarning,
                stacklevel=2,
            )

    def count_call(self) -> None:
        """Note a call."""
        self._calls[0] += 1

    def ran_eagerly(self, why: str) -> None:
        """Note a call without a program, and warn at the second."""
        self._eager, self._why = self._eager + 1, why
        if self._eager == MAX_EAGER:
            warnings.warn(
                f"{self._label()} runs eagerly, since jit can't compile it: {why}. "
                "jit(fn, strict=True) makes this an error",
                EagerWarning,
                stacklevel=4,
            )

    def _gone_after_a_call(self) -> int:
        """Count others of this code that had a program for one call and are gone."""
        before = _logs_by_code.get(self._code, [])
        if before is None:
            return 0
        entries = [(ref, n) for ref, n in before if ref() is not None or n[0] == 1]
        _logs_by_code[self._code] = [*entries, (weakref.ref(self), self._calls)]
        return sum(ref() is None for ref, _ in entries)

    @property
    def _code(self) -> types.CodeType:
        """The function's code, or that of this class for what has none."""
        result = getattr(_user_function(self._fn), "__code__", None)
        return (
            result if isinstance(result, types.CodeType) else RecompileLog.note.__code__
        )

    def _label(self) -> str:
        """Return the function's name, and where it is."""
        fn = _user_function(self._fn)
        name = getattr(fn, "__name__", type(fn).__name__)
        code = getattr(fn, "__code__", None)
        if not isinstance(code, types.CodeType):
            return str(name)
        return f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _user_function(fn: Any) -> Any:
    """Return the user's function that transforms and wrappers were made of."""
    while fn is not None:
        result, origin = fn, transform_of(fn)
        fn = getattr(fn, "__wrapped__", None) if origin is None else origin.fn
    return result


STATIC = "static argument"
"""First words of the label of an argument whose values make programs by choice."""


def _is_argument(label: str) -> bool:
    """Tell whether it is the label of an argument, not of state outside."""
    return label.startswith(("argument", STATIC))


def _differ_by_choice(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Tell whether only static arguments differ."""
    labels = {label for label in before if before[label] != now.get(label)}
    same = before.keys() == now.keys()
    return same and bool(labels) and all(n.startswith(STATIC) for n in labels)


def _difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say how the last two programs differ, in a sentence without its full stop."""
    if {*filter(_is_argument, before)} != {*filter(_is_argument, now)}:
        return "Its arguments were nested otherwise the last time"
    for label, kind in now.items():
        if label in before and before[label] != kind:
            return f"The last time {label} went from {before[label]} to {kind}"
    for label in before.keys() ^ now.keys():
        return f"The last time {label} came or went"
    return "The last time tensors were on the graph, or gradients on, that were not"


def kinds_of(
    spec: optree.PyTreeSpec, leaves: Sequence[Any], extra: Mapping[str, Any]
) -> dict[str, str]:
    """Return by argument the kinds that tell programs apart.

    Args:
        spec: the structure of ``(args, kwargs)``.
        extra: others, by their labels.
    """
    results = {}
    for path, leaf in zip(spec.paths(), leaves, strict=True):
        is_keyword, name, *inner = path
        label = f"argument {name!r}" if is_keyword else f"argument {name}"
        results[label + "".join(f"[{key!r}]" for key in inner)] = _kind_of_leaf(leaf)
    return results | {label: _kind_of_leaf(value) for label, value in extra.items()}


def _kind_of_leaf(value: Any) -> str:
    if isinstance(value, Tensor):
        return tensor_kind(value)
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
