"""Transformed functions that have been called before run as programs, unasked.

After some calls ``vmap(grad(loss))(params, x, y)`` is a program as it is in
:func:`.jit.jit`, where it can be known that nothing is lost by that: all that ``loss``
depends on beside its arguments is the same as before (:mod:`.python_state`), and it
does nothing but give a value. What can't be known runs as ever.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from ..paddle_side.engine import is_running
from ..paddle_side.listener import is_plain
from ..paddle_side.watch import watched
from ..programs.capture_error import CaptureError
from ..programs.switch import programs_are_on
from .jit import Jitted
from .python_state import State
from .recording import records_graph
from .tree import flatten_tree

PATIENCE = 2
"""Calls of a kind that come before there is a program."""

CHANGES = 3
"""How often what a function depends on may change."""

KEPT = "_paddle_chainrules"
"""The name in a function's ``__dict__`` under which its transforms are kept."""

NOTHING: Any = object()


def kept(*kind: Hashable) -> Callable[[Any, Callable[..., Any]], Callable[..., Any]]:
    """Has a transformed function run as a program after some calls.

    Args:
        kind: the transform's name and options.

    Returns:
        From the function and what it was transformed to, what is to be called.
    """

    def of(fn: Any, transformed: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(transformed, updated=())
        def called(*args: Any, **kwargs: Any) -> Any:
            found = by_program(kind, fn, transformed, args, kwargs, vars(called))
            return transformed(*args, **kwargs) if found is NOTHING else found

        vars(called)["_of"] = kind, fn, transformed
        return called

    return of


def without_keeping(fn: Any) -> Any:
    """A transformed function that is called as it is."""
    of = getattr(fn, "__dict__", {}).get("_of")
    return of[2] if of else fn


def by_program(
    kind: tuple[Hashable, ...],
    fn: Any,
    transformed: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    place: dict[str, Any] | None = None,
) -> Any:
    """What a program gives for ``transformed(*args, **kwargs)``; NOTHING where there is
    none.

    Args:
        place: where it is kept if the function that was transformed has no place.
    """
    if is_plain() or not programs_are_on() or watched() or is_running():
        return NOTHING
    calls = _calls_of(kind, fn, place)
    if calls is None or calls.why:
        return NOTHING
    return calls.result(transformed, args, kwargs)


def why_not(fn: Any) -> str:
    """Why calls of a transformed function run as ever, if they do and it is known."""
    of = getattr(fn, "__dict__", {}).get("_of")
    if of is None:
        return ""
    try:
        State(_innermost(of[1])[1], strict=True)
    except Exception as error:
        return str(error)
    calls = _calls_of(of[0], of[1], vars(fn))
    return calls.why if calls is not None else ""


def _innermost(fn: Any) -> tuple[tuple[Hashable, ...], Any]:
    """The transforms of a function, and the function that they are of."""
    kinds: list[Hashable] = []
    while of := getattr(fn, "__dict__", {}).get("_of"):
        kinds.append(of[0])
        fn = of[1]
    return tuple(kinds), fn


class _Kept:
    """The transforms of one function, which copies of it have none of."""

    def __init__(self, owner: Any = None) -> None:
        self.owner = weakref.ref(owner) if owner is not None else lambda: None
        self.calls: dict[Hashable, _Calls] = {}

    def __reduce__(self) -> Any:
        return _Kept, ()


def _calls_of(
    kind: tuple[Hashable, ...], fn: Any, place: dict[str, Any] | None
) -> _Calls | None:
    kinds, inner = _innermost(fn)
    key: Hashable = (kind, *kinds)
    try:
        hash(key)
    except TypeError:
        key = id(fn)
        inner = None
    held = getattr(inner, "__dict__", None) if _lasts(inner) else None
    if held is None:
        if place is None:
            return None
        held, key = place, ()
    made = held.get(KEPT)
    if made is None or (held is not place and made.owner() is not inner):
        made = held[KEPT] = _Kept(inner if held is not place else None)
    calls: _Calls | None = made.calls.get(key)
    if calls is None:
        if len(made.calls) >= MANY:
            made.calls.pop(next(iter(made.calls)), None)
        calls = made.calls[key] = _Calls(_innermost(fn)[1])
    return calls


MANY = 32
"""Transforms of one function; the first of them is dropped."""


def _lasts(fn: Any) -> bool:
    """Whether it is an object of its own, that can have attributes."""
    kind = type(fn)
    is_own = kind.__module__.startswith("paddle_chainrules.")
    return isinstance(fn, _FUNCTION) or (is_own and hasattr(fn, "__dict__"))


_FUNCTION = type(_lasts)


class _Calls:
    """Calls of one transformed function.

    Attributes:
        why: why they run as ever, if they do.
    """

    def __init__(self, inner: Any) -> None:
        self.why = ""
        self._inner = weakref.ref(inner) if _lasts(inner) else lambda: inner
        self._calls = self._changes = 0
        self._state: State | None = None
        self._here = threading.local()
        self._program = self._new()

    def _new(self) -> Jitted:
        return Jitted(self._called, strict=True, patience=PATIENCE - 1)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        """The function of the call that is being captured."""
        return self._here.transformed(*args, **kwargs)

    def result(
        self,
        transformed: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        leaves, _ = flatten_tree((args, kwargs))
        if records_graph(leaves):
            return NOTHING
        self._calls += 1
        if self._calls < PATIENCE:
            return NOTHING
        if self._state is None:
            return self._watched(transformed, args, kwargs)
        if not _is_same(self._state):
            self._change()
            return NOTHING
        self._here.transformed = transformed
        try:
            return self._program(*args, **kwargs)
        except CaptureError:
            return NOTHING
        finally:
            self._here.transformed = None

    def _watched(
        self,
        transformed: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """A call as ever, which shows whether it changes what it depends on."""
        try:
            state = State(self._inner(), strict=True)
        except Exception as error:  # of an object of the user's, perhaps
            self.why = f"what it depends on can't be seen ({error})"
            return NOTHING
        found = transformed(*args, **kwargs)
        if _is_same(state):
            self._state = state
        else:
            self._change()
        return found

    def _change(self) -> None:
        self._state, self._program = None, self._new()
        self._changes += 1
        if self._changes > CHANGES:
            self.why = (
                "what it depends on changes from call to call; give that as an argument"
            )


def _is_same(state: State) -> bool:
    try:
        return state.is_same()
    except Exception:  # of an object of the user's
        return False
