"""All that a function depends on besides its arguments, if all of it can be seen.

It lets through few kinds of things. Each never changes, or is compared by its contents:
tensors, numbers, strings, plain containers and small arrays of these, functions, this
package's nets and transforms, and Paddle's own functions. Code may name what computes,
and nothing that says or reads more.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
import types
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ...settings import ANY
from .keys import exactly

MAX_DEPENDENCIES = 2_000
"""Things that are gone through at a call, which takes some microseconds each."""

MAX_KEY_BYTES = 1 << 16
"""Bytes of an array that is compared by its numbers."""

ATOMS = (
    *(str, bytes, int, float, complex, bool),
    *(type(None), type(Ellipsis), slice, range),
)
"""Types of values that never change."""

PURE_BUILTINS = frozenset(
    {
        *("len", "range", "zip", "enumerate", "sum", "min", "max", "abs", "float"),
        *("int", "bool", "tuple", "list", "dict", "isinstance", "map", "filter", "str"),
        *("sorted", "reversed", "any", "all", "round", "pow", "divmod", "slice"),
        *("set", "frozenset", "ValueError", "TypeError", "AssertionError", "Ellipsis"),
    }
)
"""Python's functions that give a value and do nothing more."""

IMPURE_NAMES = frozenset(
    {
        *("seed", "get_rng_state", "set_rng_state", "get_flags", "set_flags", "save"),
        *("load", "set_default_dtype", "get_default_dtype", "backward", "step", "grad"),
        *("register_hook", "set_value", "name", "random", "numpy", "item", "tolist"),
        *("clear_grad", "clear_gradient", "gradient", "stop_gradient", "persistable"),
        *("set_device", "get_device", "summary", "flops", "create_parameter", "jit"),
        *("set_printoptions", "log_level", "enable_static", "disable_static", "hub"),
    }
)
"""Public names of Paddle's that give another value another time, or do more."""

SIZE_NAMES = frozenset(
    {
        *("len", "shape", "size", "numel", "nbytes", "strides", "stride"),
        *("get_strides", "element_size", "nelement", "data_ptr", "itemsize"),
    }
)
"""Names by which code may ask how large something is."""

RESUMABLE_FLAGS = (
    inspect.CO_GENERATOR,
    inspect.CO_COROUTINE,
    inspect.CO_ASYNC_GENERATOR,
)
EFFECT_OPCODES = frozenset(
    {
        *("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM", "STORE_ATTR"),
        *("DELETE_ATTR", "STORE_NAME", "DELETE_NAME", "LOAD_NAME", "IMPORT_STAR"),
    }
)
"""Instructions that change what is not the function's own, or find it anyhow."""

JIT_ADVICE = "put the transform into jit where that is no matter"


class UnknownDependencies(Exception):
    """An error: it can't be known what a function depends on, or does."""


class Dependencies:
    """All that a function depends on, gone through once; a state of it is compared.

    Args:
        fn: the function.

    Attributes:
        asks_sizes: whether code names sizes, or may, so that it may decide by them.

    Raises:
        UnknownDependencies: it can't be known what it depends on, or does.
    """

    def __init__(self, fn: Any) -> None:
        self._visited: dict[int, Any] = {}
        self._remaining = MAX_DEPENDENCIES
        self.asks_sizes = False
        self._visit(fn)

    @property
    def most(self) -> int:
        """The samples up to which it does the same for any number: none, or all."""
        return 0 if self.asks_sizes else ANY

    def _visit(self, value: Any) -> None:
        self._remaining -= 1
        if self._remaining < 0:
            raise UnknownDependencies(
                f"it depends on more than {MAX_DEPENDENCIES} things; {JIT_ADVICE}"
            )
        kind = type(value)
        if isinstance(value, Tensor) or kind in ATOMS or id(value) in self._visited:
            return
        self._visited[id(value)] = value
        if kind is dict:
            for key in value:
                exactly(key)
            self._visit_all(value.values())
        elif kind in (list, tuple) or _is_named_tuple(kind):
            self._visit_all(value)
        elif kind is types.FunctionType:
            self._visit_function(value)
        elif _is_ours(kind.__module__) and hasattr(kind, "_depends_on"):
            self._visit_ours(value)
        elif not (_is_small_array(value) or _is_constant(value)):
            self._refuse(value)

    def _visit_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._visit(value)

    def _refuse(self, value: Any) -> None:
        is_named = isinstance(
            value, types.ModuleType | types.BuiltinFunctionType | type
        )
        name = value.__name__ if is_named else f"a {type(value).__name__}"
        raise UnknownDependencies(
            f"it uses {name}, of which can't be seen when it changes or what it does "
            f"besides; {JIT_ADVICE}"
        )

    def _visit_ours(self, value: Any) -> None:
        """Visit what a net or transform depends on: functions, and others of these."""
        if getattr(value, "_is_opaque", False):
            self._refuse(value)
        if getattr(getattr(value, "_programs", None), "most", None) == 0:
            self.asks_sizes = True  # of a layer whose code is not Paddle's
        for dependency in value._depends_on():
            if isinstance(dependency, types.FunctionType | types.MethodType) or hasattr(
                type(dependency), "_depends_on"
            ):
                self._visit(dependency)

    def _visit_function(self, fn: types.FunctionType) -> None:
        """Visit a function's defaults, closed-over values, and named globals."""
        origin = transform_of(fn)
        if origin is not None:
            self._visit(origin.fn)
            return
        module = fn.__module__ or ""
        if module.partition(".")[0] == "paddle":  # or it wraps a function of Paddle's
            module = fn.__globals__.get("__name__", "")
        if module.partition(".")[0] == "paddle":
            return
        if extras := {*fn.__dict__} - {
            TRANSFORM,
            CALLS_BY_KIND,
            JITTED,
            "__wrapped__",
        }:
            raise UnknownDependencies(
                f"{fn.__name__} has attributes, {min(extras)} among them, which may "
                f"change; {JIT_ADVICE}"
            )
        self._visit_all(fn.__defaults__ or ())
        self._visit_all((fn.__kwdefaults__ or {}).values())
        for cell in fn.__closure__ or ():
            try:
                self._visit(cell.cell_contents)
            except ValueError:  # it is unbound
                continue
        if _is_ours(module):
            return
        names, unknown, asks_sizes = global_and_attribute_names(fn.__code__)
        self.asks_sizes = self.asks_sizes or asks_sizes
        for name in names:
            if name in fn.__globals__:
                self._visit(fn.__globals__[name])
            elif not (name in PURE_BUILTINS and hasattr(builtins, name)):
                raise UnknownDependencies(
                    f"{fn.__name__} names {name}, which may do more than give a value; "
                    f"{JIT_ADVICE}"
                )
        if unknown:  # but for those of named tuples
            visited = self._visited.values()
            unknown = unknown.difference(
                *(getattr(type(value), "_fields", ()) for value in visited)
            )
        if unknown:
            raise UnknownDependencies(
                f"{fn.__name__} names {min(unknown)}, which may give another value "
                f"another time, or do something besides; {JIT_ADVICE}"
            )


def most_samples(fn: Any) -> int:
    """Return :attr:`Dependencies.most` of a function; 0 if that can't be known."""
    try:
        return Dependencies(fn).most
    except Exception:  # of an object of the user's, too
        return 0


class Transform:
    """The origin of a transformed function.

    Attributes:
        kind: the transform's name and options.
        fn: the function.
        owner: a reference to the transformed function; copies of its attributes do not
            count.
    """

    def __init__(self, kind: str, fn: Any, owner: Any) -> None:
        self.kind, self.fn, self.owner = kind, fn, owner


TRANSFORM = "_paddle_chainrules_transform"
CALLS_BY_KIND = "_paddle_chainrules_kept"
JITTED = "_paddle_chainrules_jitted"
"""Names in a function's ``__dict__``: of what it was transformed from, of what its
transforms have kept, and of what jit has made of it."""


def transform_of(fn: Any) -> Transform | None:
    """Return what the function was transformed from, or None."""
    if type(fn) is not types.FunctionType:
        return None
    result: Transform | None = fn.__dict__.get(TRANSFORM)
    return result if result is not None and result.owner() is fn else None


@cache
def global_and_attribute_names(
    code: types.CodeType,
) -> tuple[list[str], frozenset[str], bool]:
    """Return global variables and attributes that code names, and if it names sizes.

    Raises:
        UnknownDependencies: it is a generator, or changes what is not its own.
    """
    names, attributes = set(), set()
    for inner_code in codes_of(code):
        name = inner_code.co_name
        if (
            any(inner_code.co_flags & kind for kind in RESUMABLE_FLAGS)
            and name != "<genexpr>"
        ):
            raise UnknownDependencies(
                f"{name} is a generator, which goes on where it stood; {JIT_ADVICE}"
            )
        for op in dis.get_instructions(inner_code):
            is_cell = op.opname in ("STORE_DEREF", "DELETE_DEREF")
            is_local = not is_cell or op.argval not in inner_code.co_freevars
            if op.opname in EFFECT_OPCODES or not is_local:
                raise UnknownDependencies(
                    f"{name} sets or imports {op.argval}, which others may see; "
                    f"{JIT_ADVICE}"
                )
            if op.opname == "LOAD_GLOBAL":
                names.add(op.argval)
            elif op.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes.add(op.argval)
    asks_sizes = not SIZE_NAMES.isdisjoint(names | attributes)
    return sorted(names), frozenset(attributes - pure_attribute_names()), asks_sizes


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function, and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


MODULES = (
    *("paddle", "paddle.nn", "paddle.nn.functional", "paddle.linalg", "paddle.fft"),
    *("numpy", "math", "paddle_chainrules", "paddle_chainrules.optimizers"),
    *("paddle_chainrules.optimizers.schedules", "paddle.signal"),
)


@cache
def pure_attribute_names() -> frozenset[str]:
    """Return attributes that may be named: of tensors, containers, Paddle's modules."""
    holders: list[Any] = [Tensor, dict, list, tuple, str, float, int, math]
    holders += [paddle, paddle.nn, paddle.nn.functional, paddle.linalg, paddle.fft]
    results = {name for holder in holders for name in dir(holder)}
    results |= {"unflatten", "flatten", "forward", "init", "optimizers", "schedules"}
    return frozenset(n for n in results if not n.startswith("_")) - IMPURE_NAMES


def _is_small_array(value: Any) -> bool:
    """Tell whether it is a number of NumPy's, or an array to compare by its numbers."""
    if isinstance(value, np.generic):
        return True
    is_array = type(value) is np.ndarray and value.dtype != object
    return is_array and bool(value.nbytes <= MAX_KEY_BYTES)


def _is_named_tuple(kind: type) -> bool:
    """Tell whether it is a class of named tuples."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _is_ours(module: str | None) -> bool:
    return (module or "").startswith("paddle_chainrules.")


def _is_constant(value: Any) -> bool:
    """Tell whether it is an object of Paddle or Python that never changes."""
    if isinstance(value, types.ModuleType):
        return value.__name__ in MODULES
    if isinstance(value, paddle.dtype | np.dtype):
        return True
    if isinstance(value, np.ufunc):
        return getattr(np, value.__name__, None) is value
    if isinstance(value, types.BuiltinFunctionType):
        module = (value.__module__ or "").partition(".")[0]
        return module in ("math", "builtins") and (
            module == "math" or value.__name__ in PURE_BUILTINS
        )
    return isinstance(value, type) and value.__module__ == "builtins"
