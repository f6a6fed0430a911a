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
from paddle.base import core

from .autograd import py_layer_calls
from .flags import Noted, flags_of
from .index_lists import put_item, with_tensors
from .listener import Listener, local
from .locks import in_child_of_fork
from .patching.places import (
    ScannedModules,
    TakenSlot,
    callable_of,
    code_calling,
    innermost,
    lock,
    look_through,
    original,
    standing,
    taken,
)
from .rules import operators as rules
from .traced_numbers import in_tensors

RAW: Any = core.eager.ops
"""Operators by name, as programs call them: without a way for static graphs."""

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

PROPERTIES = ("data",)
"""Attributes of tensors that give another tensor without an operator."""

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
    """Hand the calls of this thread to somebody, those within its methods excepted.

    After an error the flags of tensors are as before.

    Attributes:
        flags: the flags of tensors whose flag was set meanwhile.
    """

    def __init__(self, who: Listener) -> None:
        self._who, self._before = who, local.listener
        self._outer: Noted | None = getattr(local, "flags", None)
        self.flags: Noted = {}

    def __enter__(self) -> listening:
        try:
            _begin(self._who)
            local.listener, local.flags = self._who, self.flags
        except BaseException:  # an interrupt
            ended(self._who, self._before)
            raise
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            ended(self._who, self._before)
        except BaseException:  # an interrupt
            ended(self._who, self._before)
            raise
        finally:
            if error is not None:
                flags = flags_of(self.flags)
                flags.set(flags.before)
            elif self._outer is not None:
                self._outer.update(self.flags | self._outer)
            local.flags = self._outer  # only now, so that it does not note these


def _begin(who: Listener) -> None:
    with lock:
        first = not _listening
        looked = _look() if first else None
        rules.place(looked)
        _listening.append((get_ident(), who))
        if first:
            places = _operator_slots(looked)
            for space in places:
                space.look()
            taken.update(_every)
            for space in places:
                space.take()
            py_layer_calls.install()
            py_layer_calls.watch_contexts()


def ended(who: Listener, before: Listener | None) -> None:
    """Stop listening; called twice if an interrupt may have come between."""
    local.listener = before
    with lock:
        if (get_ident(), who) in _listening:
            _listening.remove((get_ident(), who))
        if not _listening:
            _give_back()


def _give_back() -> None:
    if taken:
        for space in _spaces.values():
            space.give_back()
        py_layer_calls.leave_contexts()
        taken.clear()


@in_child_of_fork
def _only_this_thread() -> None:
    """Remove the listeners of other threads, which do not exist in the child."""
    with lock:
        _listening[:] = [each for each in _listening if each[0] == get_ident()]
        if not _listening:
            _give_back()


class _Space:
    """All places of a module, of a type, or of a function.

    There are thousands, which are looked at in each capture.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._stand_ins: dict[str, Any] = {}
        self._beneath: list[Any] = []
        self._before: list[Any] = []
        self._to_give_back: dict[str, Any] = {}
        self._passing: list[tuple[int, list[Any]]] = []
        self._get: tuple[int, Callable[[Any], tuple[Any, ...]]] | None = None

    def add(self, name: str, stand_in: StandIn) -> None:
        owner, call = self._owner, stand_in.call
        if (id(owner), name) in _every:
            return
        if name == "__code__":
            call = code_calling(owner, call)
        number = len(self._stand_ins)
        _every[id(owner), name] = TakenSlot(
            owner, name, self._beneath, number, stand_in.passing
        )
        self._stand_ins[name] = call
        if stand_in.owner is owner and stand_in.name == name:
            self._passing.append((number, stand_in.passing))

    def look(self) -> None:
        """See what stands there, and is to stand there again."""
        owner, names, beneath = self._owner, self._stand_ins, self._beneath
        if type(owner) is dict:
            try:
                results = self._getter()(owner)
            except KeyError:  # somebody has deleted one
                results = tuple(map(owner.get, names))
        else:
            results = tuple(getattr(owner, name, None) for name in names)
        if results == tuple(beneath):  # as nearly always
            return
        beneath[:] = results
        for number, passing in self._passing:
            passing[0] = callable_of(owner, beneath[number])

    def _getter(self) -> Callable[[Any], tuple[Any, ...]]:
        """Return a function that gets all of these from a dict, three times as fast."""
        names = self._stand_ins
        if self._get is None or self._get[0] != len(names):
            get: Any = itemgetter(*names)
            alone = len(names) == 1
            self._get = len(names), (lambda d: (get(d),)) if alone else get
        return self._get[1]

    def take(self) -> None:
        self._put(self._stand_ins)

    def give_back(self) -> None:
        if self._beneath != self._before:
            self._before = [*self._beneath]
            pairs = zip(self._stand_ins, self._beneath, strict=True)
            self._to_give_back = dict(pairs)
        self._put(self._to_give_back)

    def _put(self, values: dict[str, Any]) -> None:
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


def _passing(owner: Any, name: str) -> Any:
    return callable_of(owner, standing(owner, name))


def _function_in(label: str, handler: str) -> StandIn:
    """Make a replacement for a function written in Python."""
    owner = innermost(getattr(paddle, label))
    return _stand_in(owner, "__code__", handler, label)


def _stand_in(owner: Any, name: str, handler: str, label: str = "") -> StandIn:
    passing = [_passing(owner, name)]
    label = label or (f"Tensor.{name}" if owner is paddle.Tensor else name)

    def call(*args: Any, **kwargs: Any) -> Any:
        who = getattr(local, "listener", None)
        if who is None:
            return passing[0](*args, **kwargs)
        return getattr(who, handler)(label, passing[0], in_tensors(label, args), kwargs)

    return StandIn(owner, name, call, passing)


def _bracket_in(owner: Any, name: str) -> StandIn:
    """Make a replacement for brackets, in which a listener is given tensors."""
    passing = [_passing(owner, name)]

    def call(tensor: Any, item: Any, *value: Any) -> Any:
        if getattr(local, "listener", None) is not None:
            alone = not isinstance(item, tuple)
            item = with_tensors(tensor.shape, item, bools=alone or not value)
            if value:
                return put_item(passing[0], tensor, item, *value)
        return passing[0](tensor, item, *value)

    return StandIn(owner, name, call, passing)


def _property_in(owner: Any, name: str) -> StandIn:
    """Make a replacement for an attribute that is read, and may be set."""
    passing = [standing(owner, name)]
    label = f"Tensor.{name}"

    def read(tensor: Any) -> Any:
        call, who = passing[0].__get__, getattr(local, "listener", None)
        return call(tensor) if who is None else who.operator(label, call, (tensor,), {})

    def write(tensor: Any, value: Any) -> None:
        call, who = passing[0].__set__, getattr(local, "listener", None)
        if who is None:
            call(tensor, value)
        else:
            who.leaves(label, call, (tensor, value), {})

    return StandIn(owner, name, property(read, write), passing)


def _flag_in(owner: Any) -> StandIn:
    """Make a replacement for the flag of tensors; a listener notes its changes."""
    flag = standing(owner, "stop_gradient")

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
    for names, handler in ((METHODS, "operator"), (EXITS, "leaves")):
        for name in names:
            if hasattr(tensor, name):
                results[f"Tensor.{name}"] = _stand_in(tensor, name, handler)
    for name in BRACKETS:
        results[f"Tensor.{name}"] = _bracket_in(tensor, name)
    for name in PROPERTIES:
        results[f"Tensor.{name}"] = _property_in(tensor, name)
    results["Tensor.stop_gradient"] = _flag_in(tensor)
    results["grad"] = _function_in("grad", "grad")
    for name in COMPOSED:
        results[name] = _function_in(name, "operator")
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


_seen: set[str] = set()
_modules_then = [(0, "")]
"""Alone in the list, :func:`_modules` when all of them had been looked through."""

_spaces: dict[int, _Space] = {}
_every: dict[tuple[int, str], TakenSlot] = {}
"""All places of these, as :data:`.places.taken` has them."""


def _look() -> ScannedModules:
    """Find where operators stand in modules that are new since the last time."""
    now = _modules()
    if now == _modules_then[0]:
        return ScannedModules([], [])
    new = [label for label in [*sys.modules] if label not in _seen]
    if not new:
        _modules_then[0] = now
    return look_through(new, _operator_names() if new else {})


def _modules() -> tuple[int, str]:
    """Return the number of modules, and the name of the last."""
    return len(sys.modules), next(reversed(sys.modules))


def _operator_slots(looked: ScannedModules | None = None) -> Collection[_Space]:
    """Return all places where operators stand, in what is loaded.

    Args:
        looked: as :func:`_look` has it.
    """
    looked = looked or _look()
    stand_ins = _stand_ins()

    def add(owner: Any, name: str, stand_in: StandIn) -> None:
        if id(owner) not in _spaces:
            _spaces[id(owner)] = _Space(owner)
        _spaces[id(owner)].add(name, stand_in)

    if not _spaces:
        for stand_in in stand_ins.values():
            if stand_in.owner is not vars(paddle._C_ops):
                add(stand_in.owner, stand_in.name, stand_in)
    for space, name, operator in looked.found:
        add(space, name, stand_ins[operator])
    _seen.update(looked.labels)  # not before an interrupt may have come
    return _spaces.values()
