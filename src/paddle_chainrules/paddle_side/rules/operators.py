"""Paddle's operators in the hands of their rules while a graph is recorded.

A :class:`TapeContext` that is under way has the operators of its thread go through the
rules of :mod:`.table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import paddle

from ..autograd import py_layer_calls, served_once
from ..listener import is_plain, listener
from ..patching.patch_sites import (
    Pair,
    PatchSet,
    ScannedModules,
    current_value,
    install_value,
    lock,
    without_listener,
)
from ..process.random_state import DRAWING, noting_drawing
from ..watch import (
    RuleContext,
    TapeContext,
    is_traced,
    note_written,
    recordings,
    tensors_in_arguments,
)
from .arguments import ARGUMENTS, without_aliases
from .table import FUNCTIONS, IN_PLACE, METHODS, OPERATORS, WITH_OUT, Rule

__all__ = ["TapeContext"]

ALWAYS = {"__getitem__", "__setitem__"}
"""Rules that give other values than Paddle, which is wrong there."""

WRITING = {*IN_PLACE, "assign_out_", "__setitem__"}


_FATAL = frozenset(("unstack", "broadcast_tensors", "meshgrid", "qr"))
"""Operators whose gradients end the process if a part of the results is unused.

They go through their rules on graphs of the caller's, too.
"""


def _is_on_graph(stack: list[TapeContext], name: str, args: Sequence[Any]) -> bool:
    """Tell whether a call of an operator goes through its rule."""
    if not paddle.is_grad_enabled():
        return False
    if stack or name not in _FATAL:
        return bool(stack)
    return listener() is None and any(map(is_traced, tensors_in_arguments(args)))


def _by_rule_when_recording(
    name: str, rule: Rule, operator: Any, always: bool = False, writes: bool = False
) -> Callable[..., Any]:
    """Return the operator as it is called while a recording is under way somewhere.

    Args:
        name: the operator's.
        writes: whether it writes into an argument, which is counted outside of
            recordings.
        always: whether it is the same in captures, and where functions are compared
            with their programs.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        stack = recordings()
        if not _is_on_graph(stack, name, args):
            if writes and not stack:
                note_written()
            if always and is_plain():
                return rule(operator, RuleContext(stack), *args, **kwargs)
            return operator(*args, **kwargs)
        if kwargs and kwargs.get("out") is not None:
            _refuse_out(name, args, kwargs)
        args, kwargs = without_aliases(ARGUMENTS.get(name), args, kwargs)
        return rule(operator, RuleContext(stack), *args, **kwargs)

    call.__wrapped__ = operator  # type: ignore[attr-defined]
    return call


def _refuse_out(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse to write a traced result into ``out``, which Paddle makes a leaf.

    Raises:
        NotImplementedError: a tensor among the arguments is traced.
    """
    if any(map(is_traced, tensors_in_arguments([*args, *kwargs.values()]))):
        raise NotImplementedError(
            f"{name}(..., out=y) is not differentiated: Paddle's graph loses what y "
            f"depends on. Write y = {name}(...)"
        )


def _refusing_out(name: str, operator: Any) -> Callable[..., Any]:
    """Return an operator without a rule, which may be given ``out``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs and kwargs.get("out") is not None and recordings():
            _refuse_out(name, args, kwargs)
        return operator(*args, **kwargs)

    call.__wrapped__ = operator  # type: ignore[attr-defined]
    return call


def by_rule(name: str, operator: Any, args: Sequence[Any], gives_more: bool) -> Any:
    """Call an operator of a program, by its rule while the tape is recorded.

    Args:
        name: as a program has it.
        gives_more: whether it gives more than the operator of that name.

    Raises:
        NotImplementedError: it gives more, has a rule, and a gradient is asked for.
    """
    stack = recordings()
    if not _is_on_graph(stack, name, args):
        return operator(*args)
    rule = (
        METHODS.get(name.removeprefix("Tensor."))
        if "." in name
        else OPERATORS.get(name)
    )
    if rule is None:
        return operator(*args)
    if gives_more and any(map(is_traced, tensors_in_arguments(args))):
        raise NotImplementedError(
            f"the tape takes no gradient of {name} where Paddle's kernel for it is "
            "called with all of its results; take it by rules, as jit does"
        )
    return rule(operator, RuleContext(stack), *args)


def _rule_pairs(rules: Mapping[str, Rule], owner: Any) -> dict[str, Pair]:
    return {
        name: (
            operator,
            _by_rule_when_recording(
                name, rule, operator, name in ALWAYS, name in WRITING
            ),
        )
        for name, rule in rules.items()
        if (operator := current_value(owner, name)) is not None
    }


@cache
def _replacements() -> PatchSet:
    names = {
        f"{function.__module__}.{function.__name__}": function for function in FUNCTIONS
    }
    functions = {
        name: (
            function,
            _by_rule_when_recording(
                name, FUNCTIONS[function], without_listener(function), True
            ),
        )
        for name, function in names.items()
    }
    ops = vars(paddle._C_ops)
    operators = _rule_pairs({**IN_PLACE, **OPERATORS}, ops)
    for name in WITH_OUT:
        if name not in operators and (op := current_value(ops, name)) is not None:
            operators[name] = op, _refusing_out(name, op)
    return PatchSet(operators | _drawing_pairs(operators) | functions)


def _drawing_pairs(pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """Return operators that draw, each with a note before its rule or itself."""
    ops = vars(paddle._C_ops)
    results = {
        n: pairs.get(n) or (op, op) for n in DRAWING if (op := current_value(ops, n))
    }
    results["seed"] = (
        (seed := current_value(vars(paddle), "seed")),
        without_listener(seed),
    )
    return {name: (pair[0], noting_drawing(pair[1])) for name, pair in results.items()}


@cache
def _method_pairs() -> dict[str, Pair]:
    return _rule_pairs(METHODS, paddle.Tensor)


_installed = [False]
"""True if the rules are installed."""


def install_rules(scanned: ScannedModules | None = None) -> None:
    """Replace the operators by their rules, for good.

    Raises:
        RuntimeError: the entries of operators, which have the rules, are not loaded.

    Installing them costs more than they do: outside of recordings they ask whether
    there is one, and pass on.

    Args:
        scanned: where operators are bound, if that is known.
    """
    if _installed[0]:
        return
    if not OPERATORS:
        raise RuntimeError(
            "no operator has a rule yet, and gradients would be Paddle's own; import "
            "paddle_chainrules.programs.operators.table before a graph is recorded"
        )
    with lock:
        if not _installed[0]:
            _replacements().switch(1, scanned)
            for name, pair in _method_pairs().items():
                install_value(paddle.Tensor, name, pair[1])
            py_layer_calls.install()
            served_once.patch_grad()
            _installed[0] = True


TapeContext.on_begin = staticmethod(install_rules)
