"""Entries of operators: signatures, flags and rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import paddle

from ...paddle_side.interception import RAW
from ...paddle_side.listener import listener
from ...paddle_side.rules.arguments import ARGUMENTS, without_aliases
from ...paddle_side.rules.operators import by_rule
from ...paddle_side.rules.table import define_tape_rule
from ...paddle_side.rules.tensors_as_numbers import number_positions
from .axes import UNKNOWN, Axes


class Operator:
    """An operator of Paddle's, as programs hold it.

    Attributes:
        name: in ``paddle._C_ops``, or ``Tensor.name`` for an attribute of tensors.
        arguments: their names, in the order of a call.
        run: what a program calls; it may return more than the operator, for the
            backward pass.
        shown: how many tensors of the result the operator itself returns.
        lean: what a program calls where it needs the first output alone.
        nested: makes lists within the operator's result of the tensors of ``run``.
        differentiable: positions of the arguments that rules can differentiate by, all
            where None; empty where no gradient goes through.
        reverse: gradients of the arguments, from a :class:`.calls.NetCall`.
        formula: the same in operators that have rules, which is differentiated where
            there is no ``reverse``.
        jet: Taylor series of the results, from a :class:`.calls.JetCall`.
        batch: results of many samples, from a :class:`.calls.BatchCall`; by ``axes``
            where there is no other rule.
        loop: instructions on one element, from a :class:`.ElementCall`.
        julia: an expression of Julia's, from a :class:`.JuliaCall`.
        shapes: positions of the arguments where only the shape matters.
        structure: positions of the arguments that say where things begin, and whose
            values can't be arbitrary.
        numbers: positions of the arguments that Paddle's own operator turns into Python
            scalars.
        fixed: positions of the outputs that have no derivative.
        alias: it gives its first argument as it is.
        view: it may give memory of its first argument.
        random: it draws random numbers.
        opaque: it runs a program, or Python, which Paddle's tape does not look into.
        complex: its rules hold for complex numbers too.
        axes: what it does along the axes of its tensors.
        linear: positions of the arguments in each of which its result is linear.
        promotes: positions of the arguments that Paddle's own operator brings to one
            dtype.
        cheap: it costs less than to read its result from memory.
        keeps_kernel: it has a formula, and machine code has Paddle's kernel for it
            nevertheless.
        work_bytes: bytes of memory that it takes while it runs.
        left_bytes: how many of those bytes later operators can use.
        writes: by position the arguments that Paddle's own operator overwrites, and the
            output that it writes there; programs do not.
        writes_nothing: tells by the arguments whether it writes nothing.
        in_place: by position the arguments that the result may overwrite: what to call
            then, and the positions of its arguments in their order.
        infix: the sign by which source code has it.
        instead: by the arguments, a faster function with the same values, and its
            arguments; None where there is none.
        simpler: by the arguments, the name of another operator that programs have
            for it, which gives the same, and its arguments; None where there is none.
        decompose: by the arguments, and whether programs are to become machine code,
            its result by other operators; None where programs have it.
        prune_outputs: return an operation without the outputs that nobody needs.
        untaken: what runs in its place in a branch that was not chosen, since it might
            not end there; None where it always ends.
    """

    work_bytes = left_bytes = 0

    def __init__(
        self,
        name: str,
        arguments: str | None = None,
        run: Callable[..., Any] | None = None,
        *,
        shown: int | None = None,
        lean: Callable[..., Any] | None = None,
        nested: Callable[[Sequence[Any]], Any] | None = None,
        differentiable: Sequence[int] | None = None,
        shapes: Sequence[int] = (),
        structure: Sequence[int] = (),
        fixed: Sequence[int] = (),
        alias: bool = False,
        view: bool = False,
        random: bool = False,
        opaque: bool = False,
        axes: Axes = UNKNOWN,
        linear: Sequence[int] = (),
        promotes: Sequence[int] = (),
        cheap: bool = False,
        writes: dict[int, int] | None = None,
        writes_nothing: Callable[..., bool] | None = None,
        infix: str | None = None,
        defaults: dict[str, Any] | None = None,
        tape: Callable[..., Any] | None = None,
    ) -> None:
        if tape is not None:
            define_tape_rule(name, tape)
        self.name = name
        self.arguments = tuple((arguments or " ".join(ARGUMENTS.get(name, ()))).split())
        self.run: Callable[..., Any] = run or raw(name)
        self.shown, self.lean, self.nested = shown, lean, nested
        self.differentiable = differentiable
        self.shapes = frozenset(shapes)
        self.structure = frozenset(structure)
        numbers = (
            {ARGUMENTS[name][i] for i in number_positions(name)}
            if name in ARGUMENTS
            else set()
        )
        self.numbers = frozenset(
            i for i, argument in enumerate(self.arguments) if argument in numbers
        )
        self.fixed = frozenset(fixed)
        self.alias, self.view, self.random = alias, view, random
        self.opaque = opaque
        self.axes, self.linear = axes, tuple(linear)
        self.promotes, self.cheap = tuple(promotes), cheap
        self.complex = self.keeps_kernel = False
        self.writes, self.writes_nothing = writes or {}, writes_nothing
        self.infix = infix
        self.defaults = defaults or {}
        self.in_place: dict[int, tuple[Callable[..., Any], tuple[int, ...]]] = {}
        self.instead: Callable[..., tuple[Callable[..., Any], Any] | None] | None = None
        self.simpler: Callable[..., tuple[str, tuple[Any, ...]] | None] | None = None
        self.decompose: Callable[..., Any] | None = None
        self.prune_outputs: Callable[..., Any] | None = None
        self.untaken: Callable[..., Any] | None = None
        self.reverse: Callable[..., Sequence[Any]] | None = None
        self.formula: Callable[..., Any] | None = None
        self.jet: Callable[..., Any] | None = None
        self.batch: Callable[..., Any] | None = None
        if axes.batches:
            self.batch = partial(axes.batch, self)
        self.loop: Callable[..., str] | None = None
        self.julia: Callable[..., str] | None = None

    def __repr__(self) -> str:
        return f"Operator({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return operator_of, (self.name,)

    def bind(self, args: Sequence[Any]) -> list[Any]:
        """Run or record it, and return all output tensors, more than are shown.

        While Paddle's tape is recorded, the rules of the tape apply.
        """
        record: Any = listener()
        result = None if self.decompose is None else self.decompose(False, *args)
        if result is None and record is None:
            result = by_rule(self.name, self.run, args, self.shown is not None)
        elif result is None:
            result = record.every(self, args)
        return [*result] if isinstance(result, list | tuple) else [result]

    def writes_of(self, args: Sequence[Any]) -> dict[int, int]:
        """Return the arguments that Paddle's operator overwrites, and the outputs."""
        if not self.writes or (
            self.writes_nothing is not None and self.writes_nothing(*args)
        ):
            return {}
        return self.writes

    def simplified(self, args: tuple[Any, ...]) -> tuple[Operator, tuple[Any, ...]]:
        """Return the operator to use at these arguments: itself or a simpler one."""
        replacement = self.simpler and self.simpler(*args)
        return (TABLE[replacement[0]], replacement[1]) if replacement else (self, args)

    def canonical(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Return all arguments by position.

        Raises:
            UnknownArgument: an argument is not known, or is missing.
        """
        if not kwargs and (len(args) == len(self.arguments) or not self.arguments):
            return args
        args, kwargs = without_aliases(self.arguments, args, kwargs)
        if any(extra is not None for extra in args[len(self.arguments) :]):
            raise UnknownArgument(args[len(self.arguments) :])
        by_name = dict(zip(self.arguments, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.arguments:
                if name == "out" and value is None:
                    continue
                raise UnknownArgument(name)
            by_name[name] = value
        for name in self.arguments:
            if name not in by_name:
                if name not in self.defaults:
                    raise UnknownArgument(name)
                by_name[name] = self.defaults[name]
        return tuple(map(by_name.__getitem__, self.arguments))


def overwrites(name: str, in_place_name: str, *positions: int) -> None:
    """Declare that an operator may write its result into its arguments.

    Args:
        in_place_name: the name of Paddle's raw operator that does so, where there is
            one.
        positions: of the arguments. Two of them may be exchanged.
    """
    run: Any = getattr(RAW, in_place_name, None)
    count = len(TABLE[name].arguments)
    for position in positions if run is not None else ():
        order = (1, 0) if position == 1 and len(positions) == 2 else tuple(range(count))
        TABLE[name].in_place[position] = run, order


def raw(name: str) -> Callable[..., Any]:
    """Return the function that programs call."""
    owner, _, attribute = name.rpartition(".")
    result = getattr(paddle.Tensor if owner else RAW, attribute, None)

    def missing(*_: Any) -> Any:
        raise NotImplementedError(
            f"this version of Paddle has no operator {name}; call the function without "
            "jit"
        )

    return result or missing


class UnknownArgument(Exception):
    """Raised for an argument of an operator that its entry does not know, or lacks."""


TABLE: dict[str, Operator] = {}


def operator_of(name: str) -> Operator:
    """Return the entry of this name, also of another process's program."""
    if name not in TABLE:
        for module in ("cond_op", "scan_op", "while_op"):
            import_module(f"...{module}", __name__)
    return TABLE[name]


def register(operator: Operator) -> Operator:
    """Register an operator in the table.

    Raises:
        ValueError: it is there already.
    """
    if operator.name in TABLE:
        raise ValueError(
            f"the operator {operator.name} is in the table; leave one entry of it"
        )
    TABLE[operator.name] = operator
    return operator


def define(name: str, arguments: str | None = None, **kinds: Any) -> Operator:
    """Define an operator of this name and kind, and register it in the table.

    Args:
        name: in ``paddle._C_ops``, or ``Tensor.name`` for an attribute of tensors.
        arguments: their names in order, separated by spaces; those of Paddle's operator
            where None.
        kinds: as the attributes of :class:`Operator`; besides ``run``, where it is
            not Paddle's own, ``defaults`` of arguments, and ``tape``, the rule while
            a graph is recorded, where Paddle's own gradient is not always right.
    """
    return register(Operator(name, arguments, **kinds))


def tape_of(*names: str) -> Callable[[Any], Any]:
    """Register a rule for while a graph is recorded, also without an entry."""

    def register(rule: Any) -> Any:
        for name in names:
            define_tape_rule(name, rule)
        return rule

    return register


def holds_for_complex(*names: str) -> None:
    """Declare that the rules of these operators hold for complex numbers too."""
    for name in names:
        TABLE[name].complex = True


def _rule_decorator(attribute: str) -> Callable[..., Callable[[Any], Any]]:
    def for_operators(*names: str) -> Callable[[Any], Any]:
        def register(rule: Any) -> Any:
            for name in names:
                setattr(TABLE[name], attribute, rule)
            return rule

        return register

    return for_operators


instead_of = _rule_decorator("instead")
simpler_of = _rule_decorator("simpler")
decompose_of = _rule_decorator("decompose")
reverse_of = _rule_decorator("reverse")
jet_of = _rule_decorator("jet")
batch_of = _rule_decorator("batch")
"""Decorators that take names of operators; see :class:`Operator`."""


def formula_of(*names: str, keeps_kernel: bool = False) -> Callable[[Any], Any]:
    """Register a formula in other operators, as a decorator.

    Args:
        keeps_kernel: as of :class:`Operator`.
    """

    def register(formula: Any) -> Any:
        for name in names:
            TABLE[name].formula, TABLE[name].keeps_kernel = formula, keeps_kernel
        return formula

    return register
