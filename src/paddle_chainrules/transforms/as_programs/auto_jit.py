"""Transformed functions that run as programs after some calls, without ``jit``.

After some calls ``vmap(grad(loss))(params, x, y)`` is a program as it is in
:func:`.jit.jit`, if it is known that nothing is lost by that. That is so if all that
``loss`` depends on beside its arguments is unchanged, and if it does nothing but give a
value (:mod:`.dependencies`). If that can't be known, the function runs natively.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.arguments import checked_function
from ...paddle_side.autograd.running import is_running
from ...paddle_side.listener import is_plain
from ...paddle_side.watch import watched
from ...settings import programs_are_on
from ..containers.tree import flatten_tree
from ..recordings.recording import records_graph
from .by_rules import call_by_rules
from .dependencies import (
    ATOMS,
    CALLS_BY_KIND,
    MAX_DEPENDENCIES,
    TRANSFORM,
    Dependencies,
    Transform,
    UnknownDependencies,
    transform_of,
)
from .jitted import Jitted
from .outer_state import OuterState
from .state_reads import StatePolicy

CALLS_BEFORE_TRANSFORM = 2
"""Calls of a kind that come before there is a program."""

MAX_CHANGES = 3
"""Most changes of what a function depends on before it runs without programs."""

MAX_TRANSFORMS = 32
"""Transforms of one function; the first of them is dropped."""

POLICY = StatePolicy(
    max_reads=MAX_DEPENDENCIES, max_items=MAX_DEPENDENCIES, refuses=True
)
"""All that is allowed as a dependency is compared; of what is more, nothing is."""

_NOTHING: Any = object()


def auto_jit(
    fn: Any, transformed: Callable[..., Any], *kind: Any, order: int = 1
) -> Callable[..., Any]:
    """Return a transformed function that runs as a program after some calls.

    Its attribute ``__wrapped__`` is the one that it was made of.

    Args:
        fn: the function that was transformed.
        transformed: the result of the transform.
        kind: the transform's name and options.
        order: the order of the derivatives that it takes.
    """
    kind_name = repr(kind)
    checked_function("fn", fn)
    calls: AutoCalls | None = None

    @functools.wraps(transformed, updated=())
    def transformed_fn(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        if calls is None:
            calls = _transform_calls(kind_name, fn)
        return _run(calls, fn, transformed, order, args, kwargs)

    vars(transformed_fn)[TRANSFORM] = Transform(
        kind_name, fn, weakref.ref(transformed_fn)
    )
    return transformed_fn


def by_program(
    kind: str, fn: Any, transformed: Any, order: int, args: Any, kwargs: Any
) -> Any:
    """Run ``transformed(*args, **kwargs)``, by a program if there is one.

    Without one, derivatives that are nested are taken by rules.
    """
    return _run(_transform_calls(kind, fn), fn, transformed, order, args, kwargs)


def _run(
    calls: AutoCalls | None,
    fn: Any,
    transformed: Any,
    order: int,
    args: Any,
    kwargs: Any,
) -> Any:
    """Do as :func:`by_program`, with the calls of the transform, if it has any."""
    if calls is not None:
        outputs = calls.guarded.result(args, kwargs)
        if outputs is not None:
            return outputs[0]
    result = _NOTHING
    if not (
        calls is None
        or calls.why
        or is_plain()
        or not programs_are_on()
        or watched()
        or is_running()
    ):
        result = calls.result(transformed, args, kwargs)
    if result is not _NOTHING:
        return result
    if order > 1 or (order and (watched() or transform_of(fn) is not None)):
        return call_by_rules(transformed, args, kwargs)
    return transformed(*args, **kwargs)


def eager_reason(fn: Any) -> str:
    """Return why calls of a transformed function run natively, "" if unknown."""
    origin = transform_of(fn)
    if origin is None:
        return ""
    try:
        Dependencies(origin.fn)
    except Exception as error:
        return str(error)
    calls = _transform_calls(origin.kind, origin.fn)
    return (
        calls.why if calls is not None else f"a {type(origin.fn).__name__} keeps none"
    )


class _FunctionTransforms:
    """The transforms of one function, which copies of it have none of."""

    def __init__(self, owner: Any = None) -> None:
        self.owner = weakref.ref(owner) if owner is not None else lambda: None
        self.calls: dict[str, AutoCalls] = {}

    def __reduce__(self) -> Any:
        return _FunctionTransforms, ()


def _transform_calls(kind: str, fn: Any) -> AutoCalls | None:
    """Return the calls of a transform, stored on its function; None if impossible."""
    while (origin := transform_of(fn)) is not None:
        kind, fn = f"{kind}{origin.kind}", origin.fn
    is_ours = hasattr(type(fn), "_depends_on")
    if type(fn) is not types.FunctionType and not is_ours:
        return None
    transforms: _FunctionTransforms | None = vars(fn).get(CALLS_BY_KIND)
    if transforms is None or transforms.owner() is not fn:
        transforms = vars(fn)[CALLS_BY_KIND] = _FunctionTransforms(fn)
    result = transforms.calls.get(kind)
    if result is None:
        if len(transforms.calls) >= MAX_TRANSFORMS:
            transforms.calls.pop(next(iter(transforms.calls)), None)
        result = transforms.calls[kind] = AutoCalls(fn)
    return result


class AutoCalls:
    """Calls of one transformed function.

    Attributes:
        why: the reason why they run natively, if they do.
        guarded: functions for kinds of calls that have a program.
    """

    def __init__(self, fn: Any) -> None:
        self.why = ""
        self._fn, self._state = weakref.ref(fn), OuterState(fn, POLICY)
        self._calls = self._changes = 0
        self._settled: dict[int, Dependencies] = {}
        self._current = threading.local()
        self._program = Jitted(
            self._call_current,
            strict=True,
            patience=CALLS_BEFORE_TRANSFORM - 1,
            most=self._most_samples,
            state=self._state,
        )
        self.guarded = self._program._guarded

    def _most_samples(self) -> int:
        return min([each.most for each in self._settled.values()], default=0)

    def _call_current(self, *args: Any, **kwargs: Any) -> Any:
        """Call the transformed function of the thread's current call."""
        return self._current.transformed(*args, **kwargs)

    def result(
        self,
        transformed: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the result by a program, or natively; ``_NOTHING`` if neither ran."""
        leaves, _ = flatten_tree((args, kwargs))
        if not all(isinstance(leaf, Tensor) or type(leaf) in ATOMS for leaf in leaves):
            return _NOTHING
        if records_graph(leaves):
            return _NOTHING
        self._calls += 1
        if self._calls < CALLS_BEFORE_TRANSFORM:
            return _NOTHING
        state = self._number()
        if state is None:
            return _NOTHING
        if state not in self._settled:
            return self._settle(state, transformed, args, kwargs)
        self._current.transformed = transformed
        try:
            return self._program(*args, **kwargs)
        except CaptureError:
            return _NOTHING
        finally:
            self._current.transformed = None

    def _settle(
        self,
        state: int,
        transformed: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a call natively; note its state if nothing is lost by a program."""
        try:
            dependencies = Dependencies(self._fn())
        except UnknownDependencies as error:
            self.why = str(error)
            return _NOTHING
        except Exception as error:  # of an object of the user's
            self.why = f"what it depends on can't be seen ({error})"
            return _NOTHING
        result = transformed(*args, **kwargs)
        is_settled = self._number() == state
        self._changes += bool(self._settled) or not is_settled
        if is_settled:
            self._settled[state] = dependencies
        if self._changes > MAX_CHANGES:
            self.why = (
                "what it depends on changes from call to call; give that as an argument"
            )
        return result

    def _number(self) -> int | None:
        """Return the number of the function's state; None if that can't be known."""
        try:
            return self._state.number()
        except CaptureError as error:
            self.why = str(error)
            return None
