"""Methods as programs: what an instance holds is compared at each call."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from operator import is_
from typing import Any

import numpy as np
from paddle import Tensor

from ...programs.capture_error import CaptureError
from .keys import HEAP, exactly
from .recompiling import attribute_kinds
from .seen import MAX_KEY_BYTES, MOST

BOUND_METHOD = "_paddle_chainrules_jitted_"
"""What an instance's attributes for its methods as programs begin with."""

_BY_IDENTITY = (
    Tensor,
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type),
    types.MethodType,
)
"""What counts as the same as long as it is the same object."""


class InstanceState:
    """What an instance holds, at any depth: values by value, tensors by identity.

    Args:
        instance: any object.

    It is equal to another of the same state, and has a hash.

    Raises:
        CaptureError: it holds far more than a model does, or large arrays.
    """

    def __init__(self, instance: Any) -> None:
        self._left = MOST
        self._met: dict[int, int] = {}
        self._held: list[Any] = []  # whose identity is compared
        self._copies: list[tuple[Any, Any]] = []
        self._arrays: list[tuple[Any, bytes]] = []
        self._parts = id(instance), *self._of_object(instance)
        self._hash = hash(self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InstanceState) and self._parts == other._parts

    def __hash__(self) -> int:
        return self._hash

    def is_same(self) -> bool:
        """Tell whether all that is held is the very same; an equal number is not."""
        for container, copy in self._copies:
            if isinstance(container, dict | list | set):
                if len(container) != len(copy) or not all(map(is_, container, copy)):
                    return False
                if isinstance(container, dict) and not all(
                    map(is_, container.values(), copy.values())
                ):
                    return False
            elif not all(getattr(container, n, None) is v for n, v in copy.items()):
                return False
        return all(array.tobytes() == data for array, data in self._arrays)

    def restore(self) -> None:
        """Put back what was set in the instance since, and in what it holds."""
        for container, copy in self._copies:
            if isinstance(container, list):
                container[:] = copy
            elif isinstance(container, dict | set):
                container.clear()
                container.update(copy)
            else:
                for name, value in copy.items():
                    object.__setattr__(container, name, value)

    def _of(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, _BY_IDENTITY):
            self._held.append(value)
            return id(value)
        if not self._is_walked(value):
            return exactly(value)
        self._left -= 1
        if self._left < 0:
            raise CaptureError(
                f"the instance holds more than {MOST} things, which takes long to "
                "compare at each call; keep data outside of it, or put jit round a "
                "function that closes over it"
            )
        if id(value) in self._met:
            return "again", self._met[id(value)]
        self._met[id(value)] = len(self._met)
        self._held.append(value)
        if isinstance(value, tuple | frozenset):
            return kind, tuple(map(self._of, value))
        if isinstance(value, np.ndarray):
            return self._of_array(value)
        if isinstance(value, list | set):
            self._copies.append((value, [*value]))
            return kind, tuple(map(self._of, value))
        if isinstance(value, dict):
            return kind, self._of_dict(value)
        return id(value), *self._of_object(value)

    def _is_walked(self, value: Any) -> bool:
        if isinstance(value, list | tuple | dict | set | frozenset | np.ndarray):
            return True
        kind = type(value)
        is_ours = kind.__module__.startswith("paddle_chainrules.")
        return bool(kind.__flags__ & HEAP) and not is_ours

    def _of_array(self, value: Any) -> Any:
        if value.dtype == object or value.nbytes > MAX_KEY_BYTES:
            raise CaptureError(
                f"the instance holds an array of {value.nbytes} bytes, which takes "
                "long to compare at each call; make it a tensor"
            )
        self._arrays.append((value, value.tobytes()))
        return value.dtype.str, value.shape, value.tobytes()

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        self._copies.append((value, dict(value)))
        pairs = [(key, self._of(v)) for key, v in value.items() if not _is_method(key)]
        return tuple(pairs)

    def _of_object(self, value: Any) -> list[Any]:
        """Its attributes, in a dict or in slots."""
        found = []
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            found.append(self._of_dict(held))
        slots = {}
        for kind in type(value).__mro__:
            names = vars(kind).get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    slots[name] = getattr(value, name)
        if slots:
            self._copies.append((value, slots))
            found.append(tuple([(name, self._of(v)) for name, v in slots.items()]))
        return found


def _is_method(key: Any) -> bool:
    return type(key) is str and key.startswith(BOUND_METHOD)


class Method:
    """A method of one instance, which it does not keep alive.

    Args:
        fn: the function in the class.
        instance: to be had by a weak reference.
    """

    def __init__(self, fn: Callable[..., Any], instance: Any) -> None:
        self.__wrapped__ = fn
        self.__name__ = getattr(fn, "__qualname__", type(fn).__name__)
        self._instance = weakref.ref(instance)
        self._state: InstanceState | None = None

    def is_of(self, fn: Any, instance: Any) -> bool:
        """Tell whether it is this function of this instance."""
        return self.__wrapped__ is fn and self._instance() is instance

    @property
    def __code__(self) -> Any:
        return getattr(self.__wrapped__, "__code__", None)

    def state(self) -> InstanceState:
        """Return what the instance holds now.

        Raises:
            CaptureError: it holds too much.
        """
        if self._state is None or not self._state.is_same():
            self._state = InstanceState(self._instance())
        return self._state

    def kinds(self) -> dict[str, str]:
        """Say what each attribute of the instance is."""
        held = vars(self._instance())
        return attribute_kinds({n: v for n, v in held.items() if not _is_method(n)})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(self._instance(), *args, **kwargs)

    def unchanged(self, call: Callable[[], Any]) -> Any:
        """Return what a call gives that sets nothing in the instance.

        Raises:
            CaptureError: it has set something, which is put back.
        """
        before = self.state()
        try:
            found = call()
        finally:
            is_same = self.state() == before
            if not is_same:
                before.restore()
        if not is_same:
            raise SetsAttributes(
                f"{self.__name__} sets what its instance holds, which a program does "
                "not; return the new values, and give them to the next call"
            )
        return found


class BoundMethod:
    """A method of an instance, which it keeps alive, and its programs.

    Args:
        jitted: runs the method of this instance.
        instance: any object.
    """

    def __init__(self, jitted: Callable[..., Any], instance: Any) -> None:
        self.jitted, self.__self__ = jitted, instance
        self.__doc__ = jitted.__doc__

    @property
    def __wrapped__(self) -> Any:
        return self.jitted.__wrapped__  # type: ignore[attr-defined]

    @property
    def __name__(self) -> str:
        return self.jitted.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.jitted(*args, **kwargs)

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__name__)


class SetsAttributes(CaptureError):
    """A method sets what its instance holds."""
