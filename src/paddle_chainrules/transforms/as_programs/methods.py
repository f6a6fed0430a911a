"""Functions of :func:`.jit` as methods: programs for each instance."""

from __future__ import annotations

import functools
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MAX_INSTANCES = 64
"""The most instances of a class whose programs are kept."""


class WeakMethod:
    """A method that does not keep its instance alive.

    Args:
        fn: the function, whose first argument the instance is.
        instance: the instance.
    """

    def __init__(self, fn: Callable[..., Any], instance: Any) -> None:
        self._fn, self._instance = fn, _reference(instance)
        functools.update_wrapper(self, fn, updated=())

    def _depends_on(self) -> list[Any]:
        """Return what its results depend on: the method itself."""
        return [types.MethodType(self._fn, self._instance())]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(self._instance(), *args, **kwargs)


class Instances:
    """Values that are created once for each instance, and live as long as it."""

    def __init__(self) -> None:
        self._values: OrderedDict[int, tuple[Callable[[], Any], Any]] = OrderedDict()

    def of(self, instance: Any, create: Callable[[], Any]) -> Any:
        """Return an instance's value; create it at the first time."""
        reference, value = self._values.get(id(instance), (None, None))
        if reference is None or reference() is not instance:
            for key in [k for k, (of, _) in self._values.items() if of() is None]:
                del self._values[key]
            value = create()
            self._values[id(instance)] = _reference(instance), value
            while len(self._values) > MAX_INSTANCES:
                self._values.popitem(last=False)
        return value


def _reference(instance: Any) -> Callable[[], Any]:
    """Return a weak reference, or a strong one where its class has no weak ones."""
    try:
        return weakref.ref(instance)
    except TypeError:
        return lambda: instance
