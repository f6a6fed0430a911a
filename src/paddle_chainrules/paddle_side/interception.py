"""Interception of Paddle's operators: a listener gets every call for a while.

While an object listens, functions take the places of Paddle's operators, and of some
attributes of ``paddle.Tensor``. They hand the calls of the listener's thread to it, and
pass on those of other threads. Nothing stays after the last listener has gone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import cache
from operator import itemgetter
from threading import get_ident
from typing import Any, NamedTuple

import paddle
from paddle import Tensor
from paddle.base import core

from .autograd import py_layer_calls
from .devices import ON_CPU_ALONE
from .flags import Noted, flags_of
from .index_lists import lists_to_tensors, write_item
from .listener import Listener, local
from .locks import in_child_of_fork
from .patching.patch_sites import (
    ScannedModules,
    TakenSlot,
    callable_of,
    code_calling,
    current_value,
    find_operators,
    listener_slots,
    lock,
    original,
    undecorated,
)
from .rules import operators as rules
from .rules.moves import moved
from .traced_numbers import numbers_to_tensors

RAW: Any = core.eager.ops
"""Operators by name, as programs call them: without a way for static graphs."""


def by_older_interface(name: str, x: Tensor, *args: Any) -> Any:
    """Call an operator by Paddle's older interface, which shows all of its results.

    Where a device lacks the kernel, that leaves them on the CPU, and moves its
    arguments there, too. So it takes copies there, and we move the results back to the
    device of ``x``.
    """
    call = getattr(RAW.legacy, name)
    if ON_CPU_ALONE or x.place.is_cpu_place():
        return call(x, *args)
    copies = (RAW.assign(a) if isinstance(a, Tensor) else a for a in (x, *args))
    found = call(*copies)
    if isinstance(found, Tensor):
        return moved(found, x.place)
    return type(found)(moved(y, x.place) if y._is_initialized() else y for y in found)


BINARY = tuple(
    f"__{name}__"
    for name in (
        *("add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv"),
        *("rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "matmul"),
        *("rmatmul", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"),
        *("rand", "ror", "rxor", "lshift", "rshift", "rlshift", "rrshift"),
    )
)
METHODS = (
    *BINARY,
    *("_getitem_dygraph", "_getitem_from_offset", "_setitem_dygraph", "clone"),
    *("detach", "contiguous", "_tensor_use_gpudnn", "copy_", "detach_", "_to_dist_"),
)
"""Attributes of tensors that compute, in C."""

OLD = ("relu", "sigmoid", "tanh")
"""Operators that Paddle calls by its older interface too (``BatchNorm(act=...)``)."""

BRACKETS = ("__getitem__", "__setitem__")
"""Methods of tensors, in Python, that make an array of NumPy of a list."""

COMPOSED = ("seed", "pdist")
"""Functions of Python's that are handed over as a whole."""

PROPERTIES = {"data": "operator", "grad": "escape", "grad_": "escape"}
"""Attributes of tensors that give another tensor without an operator, and the
listener's method that handles them."""

EXITS = (
    *("numpy", "__array__", "__dlpack__", "__c_dlpack_exchange_api__", "data_ptr"),
    *("get_tensor", "_copy_to", "_share_buffer_to", "_share_underline_tensor_to"),
    *("_unsafe_share_buffer_to", "_local_value", "item", "tolist", "_grad_ivar"),
    *("__bool__", "__float__", "__int__", "__index__", "__complex__", "_grad_value"),
    *(
        "set_tensor",
        "_clear",
        "_clear_data",
        "_clear_dataptr",
        "_set_impl",
        "set_value",
    ),
    *("reconstruct_from_", "_inplace_assign", "get_selected_rows", "_apply_"),
    *("backward", "_register_grad_hook", "register_hook", "_copy_gradient_from"),
)
"""Attributes by which a value leaves for Python, or comes from there."""


_listening: list[tuple[int, Listener]] = []
"""Listeners, each with its thread."""


class listening:
    """Hand this thread's calls to a receiver, those within its methods excepted.

    After an error the flags of tensors are as before.

    Attributes:
        flags: the flags of tensors whose flag was set meanwhile.
    """

    def __init__(self, receiver: Listener) -> None:
        self._receiver, self._before = receiver, local.listener
        self._outer: Noted | None = getattr(local, "flags", None)
        self.flags: Noted = {}

    def __enter__(self) -> listening:
        try:
            _start_listening(self._receiver)
            local.listener, local.flags = self._receiver, self.flags
        except BaseException:  # an interrupt
            stop_listening(self._receiver, self._before)
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            stop_listening(self._receiver, self._before)
        except BaseException:  # an interrupt
            stop_listening(self._receiver, self._before)
            raise
        finally:
            if error is not None:
                flags = flags_of(self.flags)
                flags.set(flags.before)
            elif self._outer is not None:
                self._outer.update(self.flags | self._outer)
            local.flags = self._outer  # only now, so that it does not note these


def _start_listening(receiver: Listener) -> None:
    with lock:
        is_first = not _listening
        scanned = _scan_new_modules() if is_first else None
        rules.install_rules(scanned)
        _listening.append((get_ident(), receiver))
        if is_first:
            namespaces = _operator_slots(scanned)
            for namespace in namespaces:
                namespace.refresh()
            listener_slots.update(_all_slots)
            for namespace in namespaces:
                namespace.install()
            py_layer_calls.install()
            py_layer_calls.watch_contexts()


def stop_listening(receiver: Listener, before: Listener | None) -> None:
    """Stop listening; called twice if an interrupt may have come between."""
    local.listener = before
    with lock:
        if (get_ident(), receiver) in _listening:
            _listening.remove((get_ident(), receiver))
        if not _listening:
            _restore_all()


def _restore_all() -> None:
    if listener_slots:
        for namespace in _namespaces.values():
            namespace.restore()
        py_layer_calls.leave_contexts()
        listener_slots.clear()


@in_child_of_fork
def _forget_other_threads() -> None:
    """Remove the listeners of other threads, which do not exist in the child."""
    with lock:
        _listening[:] = [entry for entry in _listening if entry[0] == get_ident()]
        if not _listening:
            _restore_all()


class _PatchedNamespace:
    """The patched names of a module, of a type, or of a function.

    There are thousands, which are looked at in each capture.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._stand_ins: dict[str, Any] = {}
        self._beneath: list[Any] = []
        self._before: list[Any] = []
        self._restored: dict[str, Any] = {}
        self._current_callable: list[tuple[int, list[Any]]] = []
        self._getter_and_count: tuple[int, Callable[[Any], tuple[Any, ...]]] | None = (
            None
        )

    def add(self, name: str, stand_in: StandIn) -> None:
        owner, call = self._owner, stand_in.call
        if (id(owner), name) in _all_slots:
            return
        if name == "__code__":
            call = code_calling(owner, call)
        number = len(self._stand_ins)
        _all_slots[id(owner), name] = TakenSlot(
            owner, name, self._beneath, number, stand_in.passing
        )
        self._stand_ins[name] = call
        if stand_in.owner is owner and stand_in.name == name:
            self._current_callable.append((number, stand_in.passing))

    def refresh(self) -> None:
        """Note the current values, which are restored later."""
        owner, names, previous = self._owner, self._stand_ins, self._beneath
        if type(owner) is dict:
            try:
                values = self._getter()(owner)
            except KeyError:  # somebody has deleted one
                values = tuple(map(owner.get, names))
        else:
            values = tuple(getattr(owner, name, None) for name in names)
        if values == tuple(previous):  # as nearly always
            return
        previous[:] = values
        for number, passing in self._current_callable:
            passing[0] = callable_of(owner, previous[number])

    def _getter(self) -> Callable[[Any], tuple[Any, ...]]:
        """Return a function that gets all of these from a dict, three times as fast."""
        names = self._stand_ins
        if self._getter_and_count is None or self._getter_and_count[0] != len(names):
            get: Any = itemgetter(*names)
            is_single = len(names) == 1
            self._getter_and_count = (
                len(names),
                (lambda d: (get(d),)) if is_single else get,
            )
        return self._getter_and_count[1]

    def install(self) -> None:
        self._assign(self._stand_ins)

    def restore(self) -> None:
        if self._beneath != self._before:
            self._before = [*self._beneath]
            pairs = zip(self._stand_ins, self._beneath, strict=True)
            self._restored = dict(pairs)
        self._assign(self._restored)

    def _assign(self, values: dict[str, Any]) -> None:
        if type(self._owner) is dict:
            self._owner.update(values)
        else:
            for name, value in values.items():
                setattr(self._owner, name, value)


class StandIn(NamedTuple):
    """A function that takes an operator's place, or an attribute's, for listeners."""

    owner: Any
    name: str
    call: Any
    passing: list[Any]
    """The function that it passes other threads' calls on to, alone in the list."""


def _current_callable(owner: Any, name: str) -> Any:
    return callable_of(owner, current_value(owner, name))


def _function_stand_in(label: str, handler: str) -> StandIn:
    """Make a replacement for a function written in Python."""
    owner = undecorated(getattr(paddle, label))
    return _stand_in(owner, "__code__", handler, label)


def _stand_in(owner: Any, name: str, handler: str, label: str = "") -> StandIn:
    passing = [_current_callable(owner, name)]
    label = label or (f"Tensor.{name}" if owner is paddle.Tensor else name)

    def call(*args: Any, **kwargs: Any) -> Any:
        receiver = getattr(local, "listener", None)
        if receiver is None:
            return passing[0](*args, **kwargs)
        return getattr(receiver, handler)(
            label, passing[0], numbers_to_tensors(label, args), kwargs
        )

    return StandIn(owner, name, call, passing)


def _bracket_stand_in(owner: Any, name: str) -> StandIn:
    """Make a replacement for brackets, in which a listener is given tensors."""
    passing = [_current_callable(owner, name)]

    def call(tensor: Any, item: Any, *value: Any) -> Any:
        if getattr(local, "listener", None) is not None:
            is_single_entry = not isinstance(item, tuple)
            item = lists_to_tensors(
                tensor.shape, item, bools=is_single_entry or not value
            )
            if value:
                return write_item(passing[0], tensor, item, *value)
        return passing[0](tensor, item, *value)

    return StandIn(owner, name, call, passing)


def _property_stand_in(owner: Any, name: str, handler: str) -> StandIn:
    """Make a replacement for an attribute that is read, and may be set."""
    passing = [current_value(owner, name)]
    label = f"Tensor.{name}"

    def read(tensor: Any) -> Any:
        call, receiver = passing[0].__get__, getattr(local, "listener", None)
        return (
            call(tensor)
            if receiver is None
            else getattr(receiver, handler)(label, call, (tensor,), {})
        )

    def write(tensor: Any, value: Any) -> None:
        call, receiver = passing[0].__set__, getattr(local, "listener", None)
        if receiver is None:
            call(tensor, value)
        else:
            receiver.escape(label, call, (tensor, value), {})

    return StandIn(owner, name, property(read, write), passing)


def _flag_stand_in(owner: Any) -> StandIn:
    """Make a replacement for the flag of tensors; a listener notes its changes."""
    flag = current_value(owner, "stop_gradient")

    def write(tensor: Any, value: bool) -> None:
        if getattr(local, "listener", None) is not None:
            local.flags.setdefault(id(tensor), (tensor, tensor.stop_gradient))
        flag.__set__(tensor, value)

    return StandIn(owner, "stop_gradient", property(flag.__get__, write), [flag])


@cache
def _stand_ins() -> dict[str, StandIn]:
    """Return replacements, named as in ``paddle._C_ops`` or as ``Tensor.name``."""
    ops, tensor = vars(paddle._C_ops), paddle.Tensor
    results = {
        name: _stand_in(ops, name, "operator")
        for name in ops
        if callable(ops[name]) and not name.startswith("__")
    }
    for names, handler in ((METHODS, "operator"), (EXITS, "escape")):
        for name in names:
            if hasattr(tensor, name):
                results[f"Tensor.{name}"] = _stand_in(tensor, name, handler)
    for name in BRACKETS:
        results[f"Tensor.{name}"] = _bracket_stand_in(tensor, name)
    for name, handler in PROPERTIES.items():
        results[f"Tensor.{name}"] = _property_stand_in(tensor, name, handler)
    results["Tensor.stop_gradient"] = _flag_stand_in(tensor)
    results["grad"] = _function_stand_in("grad", "grad")
    for name in COMPOSED:
        results[name] = _function_stand_in(name, "operator")
    return results


@cache
def _operator_names() -> dict[int, str]:
    """Return names of operators, by the identity of each function that is one."""
    result, stand_ins = {}, _stand_ins()
    for source in (vars(RAW), vars(paddle._C_ops)):
        for name, value in source.items():
            if callable(value) and name in stand_ins:
                result[id(original(value))] = name
    for name in OLD:
        result[id(original(getattr(RAW.legacy, name)))] = name
    return result


_scanned_modules: set[str] = set()
_last_scan = [(0, "")]
"""Alone in the list, :func:`_module_state` when all of them had been looked through."""

_namespaces: dict[int, _PatchedNamespace] = {}
_all_slots: dict[tuple[int, str], TakenSlot] = {}
"""All slots of these, as :data:`.patch_sites.listener_slots` has them."""


def _scan_new_modules() -> ScannedModules:
    """Find operators in modules that are new since the last time."""
    module_state = _module_state()
    if module_state == _last_scan[0]:
        return ScannedModules([], [])
    new = [label for label in [*sys.modules] if label not in _scanned_modules]
    if not new:
        _last_scan[0] = module_state
    return find_operators(new, _operator_names() if new else {})


def _module_state() -> tuple[int, str]:
    """Return the number of modules, and the name of the last."""
    return len(sys.modules), next(reversed(sys.modules))


def _operator_slots(
    scanned: ScannedModules | None = None,
) -> Collection[_PatchedNamespace]:
    """Return all namespaces where operators are bound, in what is loaded.

    Args:
        scanned: as :func:`_scan_new_modules` has it.
    """
    scanned = scanned or _scan_new_modules()
    stand_ins = _stand_ins()

    def add(owner: Any, name: str, stand_in: StandIn) -> None:
        if id(owner) not in _namespaces:
            _namespaces[id(owner)] = _PatchedNamespace(owner)
        _namespaces[id(owner)].add(name, stand_in)

    if not _namespaces:
        for stand_in in stand_ins.values():
            if stand_in.owner is not vars(paddle._C_ops):
                add(stand_in.owner, stand_in.name, stand_in)
    for namespace, name, operator in scanned.sites:
        add(namespace, name, stand_ins[operator])
    _scanned_modules.update(
        scanned.module_names
    )  # not before an interrupt may have come
    return _namespaces.values()
