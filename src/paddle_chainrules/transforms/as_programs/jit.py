"""Functions of tensors as programs: captured at their first call, then run."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np
from paddle import Tensor

from ...paddle_side.arguments import checked_flag, checked_function, checked_integer
from ...paddle_side.interception import listening
from ...paddle_side.listener import is_plain
from ...paddle_side.traced_numbers import NumberUses, ValueNeeded
from ...programs.capture_error import CaptureError
from ...programs.compiling.program import Program
from ...programs.static_graphs import need_tensors, sot
from ...programs.switch import programs_are_on
from ...programs.tracing.existing import single_use_captures
from ...programs.tracing.record import Tracer
from ..containers.tree import flatten_tree
from .changing_numbers import NUMBERS, ChangingNumbers, NumberInputs, with_results
from .dependencies import ATOMS, JITTED, most_samples
from .keys import exactly, kinds_of_leaves, may_change
from .last_call import FastPathGuard, LastCall, modes
from .methods import Instances, WeakMethod
from .outer_state import OuterState
from .program_cache import BOUND, THESE_SIZES, TRIES, CompiledFunction, ProgramCache
from .program_nodes import call, found_value
from .recompiling import STATIC, RecompileLog, kinds_of
from .unpacking import key_orders, unpacking

P = ParamSpec("P")
T = TypeVar("T")

MAX_DEPTH = 8
"""How deep an argument that is compared by its value is searched for functions."""


@overload
def jit(
    fn: Callable[P, T],
    static_argnums: int | Sequence[int] = (),
    strict: bool = False,
    *,
    static_argnames: str | Sequence[str] = (),
) -> Callable[P, T]: ...


@overload
def jit(
    *,
    static_argnums: int | Sequence[int] = (),
    strict: bool = False,
    static_argnames: str | Sequence[str] = (),
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def jit(
    fn: Any = None,
    static_argnums: int | Sequence[int] = (),
    strict: bool = False,
    *,
    static_argnames: str | Sequence[str] = (),
) -> Any:
    """Compile a function to programs of Paddle's operators, one per kind of arguments.

    The first call with tensors of new dtypes and shapes captures what the function does
    to them. Later calls run the program, without Python's and Paddle's layers in
    between. If two calls differ in the number of samples alone, and the function names
    no size, the program serves any number of samples. Values computed from shapes and
    from Python objects are part of the program. If an attribute, a closed-over variable
    or a global that the code names gets another value, the call gets another program.
    Tensors that the function closes over are read at every call. Changes that the
    function makes to Python objects happen once for each program.

    ``@jit`` on a method keeps programs for each instance. A method that sets its own
    attributes at each call runs as it is.

    A number among the arguments is part of the program at first. With its second value
    it becomes an input, unless the function needs the value: for a shape or a branch.

    The function is called once for each program, with the arguments of that call. Then
    the program's results are compared with the function's. The function is called once
    more if it makes tensors that no operator shows (``paddle.to_tensor`` of a list is
    one), and if a number becomes an input.

    Derivatives inside, by this package or ``paddle.grad``, become part of the program:
    ``jit(value_and_grad(loss))`` is one program, and so is a whole training step.

    A function that can't be captured runs as it is. An :class:`EagerWarning` says so at
    the eighth call, and :func:`explain` says why at any time. With
    ``PADDLE_CHAINRULES_PROGRAMS=off`` in the environment all functions do, except
    strict ones.

    Args:
        fn: function of trees of tensors. Without it, jit returns a decorator with these
            options: ``@jit(static_argnums=1)``.
        static_argnums: position or positions of arguments that are compared by value,
            and objects that have no value by identity, and go to fn as they are. Other
            arguments' leaves that are neither tensors nor numbers are compared so, too.
            Of a method, ``self`` is argument 0.
        strict: raise an error if the function can't be captured.
        static_argnames: the same by name. An argument that fn has by name is static
            however it is given, by position or by keyword.

    Returns:
        A function with the same results. They are on the caller's graph where fn's are.

    Raises:
        CaptureError: from a call, if ``strict``.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import jit, value_and_grad
        >>> step = jit(value_and_grad(lambda w, x: (w * x).sum()))
        >>> value, grad = step(paddle.ones([2]), paddle.to_tensor([3.0, 4.0]))
        >>> grad.tolist()
        [3.0, 4.0]
    """
    if fn is None:
        options = {"static_argnums": static_argnums, "strict": strict}
        return functools.partial(jit, **options, static_argnames=static_argnames)
    made = Jitted(fn, static_argnums, strict, static_names=static_argnames, asked=True)
    kept = _earlier(fn)
    return kept.setdefault(made.options, functools.wraps(fn, updated=())(made))


def _earlier(fn: Any) -> dict[Any, Any]:
    """Return what jit has made of a function before, by its options.

    This is kept from the second time on. So a function that is gone after one use does
    not wait, with its programs, for Python's collector.
    """
    if type(fn) is not types.FunctionType:
        return {}
    owner, result = vars(fn).get(JITTED, (None, None))
    if owner is not None and owner() is fn:
        return result
    vars(fn)[JITTED] = weakref.ref(fn), {}  # others take over what a function has
    return {}


def make_program(
    fn: Callable[..., Any], static_argnums: Sequence[int] = ()
) -> Callable[..., Program]:
    """Return a function that gives the program of ``fn(*args)``, to be read.

    It is like ``jax.make_jaxpr``. A printed program has a line for each operator, with
    its place in the code; ``.python()`` is the source that runs.

    Raises:
        CaptureError: from a call, if the function can't be captured.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import make_program
        >>> program = make_program(lambda x: paddle.tanh(x) * 2.0)(paddle.ones([3]))
        >>> [op.operator.name for op in program.ops]
        ['tanh', 'Tensor.__mul__']
    """

    def make(*args: Any, **kwargs: Any) -> Program:
        return Jitted(fn, static_argnums, True, asked=True).program(*args, **kwargs)

    return make


def _attribute(module: Any, name: str) -> Any:
    """Return a module's attribute by its qualified name, or None."""
    try:
        return attrgetter(name)(module)
    except AttributeError:  # within a function
        return None


def _one_or_more(given: Any) -> Iterable[Any]:
    """Return a collection as it is, and anything else in a tuple."""
    several = isinstance(given, list | tuple | set | frozenset | range)
    return given if several else (given,)


def _static_positions(argnums: Any) -> tuple[int, ...]:
    """Return positions of arguments; a single one need not be in a sequence.

    Raises:
        TypeError: they are no integers.
        ValueError: one counts from the last argument.
    """
    given = _one_or_more(argnums)
    results = tuple(checked_integer("each of static_argnums", n) for n in given)
    if any(position < 0 for position in results):
        raise ValueError(
            f"static_argnums counts arguments from 0, got {list(results)}; count from "
            "the first argument"
        )
    return results


def _static_names(argnames: Any) -> frozenset[str]:
    """Return names of arguments; a single one need not be in a sequence.

    Raises:
        TypeError: they are no strings.
    """
    results = frozenset(_one_or_more(argnames))
    for name in results:
        if not isinstance(name, str):
            raise TypeError(
                f"static_argnames holds names of arguments, got {name!r}; give "
                "strings, or positions as static_argnums"
            )
    return results


def _by_position(fn: Any) -> list[str]:
    """Return the names of arguments that can be given by position and by name."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # of a function of C
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _static(value: Any) -> Any:
    """Do as :func:`exactly`; a static argument need not be immutable."""
    return (type(value), value) if may_change(value) else exactly(value)


def holders_of_state(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments that may hold state: functions, and objects like these.

    Those that are compared by their values tell themselves if they change, but for
    such objects in them.
    """
    return tuple([v for v in values if type(v) not in ATOMS and _holds_state(v)])


def _holds_state(value: Any, depth: int = MAX_DEPTH) -> bool:
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ or kind is types.MethodType:
        return True
    if kind in ATOMS or isinstance(value, Tensor | np.ndarray) or not depth:
        return False
    if isinstance(value, tuple | frozenset):
        parts: Iterable[Any] = value
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, f.name, None) for f in dataclasses.fields(value)]
    else:
        parts = getattr(value, "__dict__", {}).values()
    return any(_holds_state(part, depth - 1) for part in parts)


def _distinct_places(leaves: list[Any]) -> tuple[int, ...] | None:
    """Return each leaf's place among the distinct leaves; None if none repeats."""
    tensors = [id(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
    if len(tensors) == len({*tensors}):
        return None
    first: dict[Any, int] = {}
    keys = (
        id(leaf) if isinstance(leaf, Tensor) else (i,) for i, leaf in enumerate(leaves)
    )
    return tuple([first.setdefault(key, len(first)) for key in keys])


def run_strictly(
    program: Jitted, fn: Callable[..., Any], *args: Any, kept: bool = False
) -> Any:
    """Run ``fn(*args)`` as a program, or raise the errors of fn if there can be none.

    Args:
        kept: whether the program will serve other calls.
    """
    with single_use_captures(not kept):
        try:
            return program.run(*args)
        except CaptureError as error:
            refusal = error
        try:
            with listening(Tracer([])):
                fn(*args)  # which says better what is wrong with the arguments
            raise refusal
        finally:
            del refusal


class Jitted:
    """The function that :func:`jit` returns.

    Args:
        patience: how many calls of a kind come before there is a program.
        most: gives the number up to which fn does the same for any number of samples.
        empty: as for :class:`.program_cache.ProgramCache`.
        static_names: names of arguments that are static.
        asked: whether somebody has asked for programs. Then fn is called once for each,
            numbers that change become inputs, and a warning says where programs pile
            up. Otherwise fn is compared with its programs on other values.
    """

    def _depends_on(self) -> list[Any]:
        """Return what its results depend on, for :mod:`.seen`."""
        return [self._fn]

    def __init__(
        self,
        fn: Callable[..., Any],
        static_argnums: int | Sequence[int] = (),
        strict: bool = False,
        patience: int = 0,
        most: Callable[[], int] | None = None,
        empty: bool = False,
        static_names: str | Sequence[str] = (),
        asked: bool = False,
    ) -> None:
        self._piles = RecompileLog(fn) if asked else None
        self._fn, self._patience = checked_function("fn", fn), patience
        self._strict = checked_flag("strict", strict)
        self._empty = empty
        self._most = most or (lambda: most_samples(fn))
        self._static = frozenset(_static_positions(static_argnums))
        self._static_names = _static_names(static_names)
        if self._static or self._static_names:  # each argument however it is given
            names = _by_position(fn)
            named = {i for i, name in enumerate(names) if name in self._static_names}
            numbered = {name for i, name in enumerate(names) if i in self._static}
            self._static, self._static_names = (
                self._static | named,
                self._static_names | numbered,
            )
        self._is_method, self._instances = False, Instances()
        self._has_run = False
        self._state = OuterState() if asked else None
        is_simple = asked and not (self._static or self._static_names)
        self._last = LastCall() if is_simple else None
        self._made: dict[Any, ProgramCache] = {}
        self._numbers: dict[Any, ChangingNumbers] = {}
        self.within: dict[Any, Any] = {}
        """Programs of which it is a part: loops whose step it is, its gradient."""

    @property
    def options(self) -> Any:
        """Options that tell it apart from another one of the same function."""
        return self._static, self._static_names, self._strict

    def __reduce__(self) -> Any:
        """Pickle as functions do, by name if it has one; copies make programs anew."""
        module = sys.modules.get(getattr(self, "__module__", ""))
        name: str = getattr(self, "__qualname__", "")
        if name and module is not None and _attribute(module, name) is self:
            return name
        names = sorted(self._static_names)
        return _again, (self._fn, sorted(self._static), self._strict, names)

    def __set_name__(self, owner: type, name: str) -> None:
        self._is_method = True

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def of_instance(self, instance: Any) -> Jitted | None:
        """Return the programs of one instance of the class in which this is a method.

        Args:
            instance: the instance, or the class itself.

        Returns:
            None if the instance is an argument like others: a tree, or something that
            is compared by its value.
        """
        has_no_value = may_change(instance) or type(instance).__hash__ is None
        if not (has_no_value or isinstance(instance, type)):
            return None
        if not flatten_tree(instance)[1].is_leaf():
            return None
        return self._instances.of(instance, lambda: self._bound(instance))

    def _bound(self, instance: Any) -> Jitted:
        method = WeakMethod(self._fn, instance)
        made = Jitted(
            method,
            [at - 1 for at in self._static if at],
            self._strict,
            most=lambda: 0,
            static_names=[*self._static_names],
            asked=True,
        )
        functools.update_wrapper(made, self._fn, updated=())
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and (self._is_method or isinstance(args[0], type)):
            bound = self.of_instance(args[0])
            if bound is not None:
                return bound(*args[1:], **kwargs)
        need_tensors(sot.fallback(True))
        if is_plain() or not (self._strict or programs_are_on()):
            return self._fn(*args, **kwargs)  # as part of another program, too
        return self.run(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call by the program, whoever listens."""
        if self._piles is not None:
            self._piles.called()
        try:
            state = self._state
            if self._last is not None and state is not None:
                again = self._last.result((args, kwargs), state, self._fn)
                if again is not None:
                    return again[0]
            result, structure = self._served(call, args, kwargs)
            return structure.unflatten(result)
        except CaptureError as error:
            if self._strict:
                raise
            why = str(error)
        if self._piles is not None:
            self._piles.ran_eagerly(why)
        return self._fn(*args, **kwargs)  # whose own errors have no other's context

    def listed(self) -> str:
        """List its programs, and what told them apart; nothing where it has none."""
        if self._state is not None and self._state.refusal:
            return self._state.refusal
        return self._piles.listed() if self._piles is not None else ""

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """Return the program that runs at one call."""
        result: CompiledFunction = self._served(found_value, args, kwargs)[0]
        return result.captured.program

    def _found(self, *args: Any) -> CompiledFunction:
        """Return the program of one call, for its number of samples alone.

        Raises:
            CaptureError: there is none.
        """
        programs, leaves, _ = self._programs(args, {})
        result, flags = found_value(programs, leaves)
        if result.captured.program.samples is None:
            return result
        own: CompiledFunction = programs.found(
            THESE_SIZES, leaves, programs.value_of, flags
        )
        return own

    def _served(
        self,
        serve: Callable[[ProgramCache, list[Any]], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return what the programs give; try once more if a number's value matters.

        Raises:
            CaptureError: there is none.
        """
        programs, leaves, numbers = self._programs(args, kwargs)
        self._has_run = False
        divisions = programs.divisions
        try:
            result = serve(programs, leaves)
            if programs.divisions is not divisions:
                self._programs(args, kwargs)  # which makes them
            if self._last is not None and self._last.is_worth_a_search():
                self._search(programs, leaves, args, kwargs)
            return result
        except CaptureError as error:
            self._leave_out_changed(programs, undo=True)
            if numbers is None or not numbers.inputs.places:
                raise
            cause = error.__cause__
            if isinstance(cause, ValueNeeded):
                numbers.keep(cause.origins)
                return self._served(serve, args, kwargs)
            if not numbers.tries:
                raise
        programs, leaves, _ = self._programs(args, kwargs, as_inputs=False)
        self._has_run = False
        try:
            result = serve(programs, leaves)
        except CaptureError:
            self._leave_out_changed(programs, undo=True)
            numbers.tries = False  # it is not for the numbers
            raise
        numbers.keep(numbers.inputs.places)
        return result

    def _search(
        self,
        programs: ProgramCache,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Look if the program that has served can serve like calls at less cost."""
        every = flatten_tree((args, kwargs))[0]
        given = [x for x in every if isinstance(x, Tensor)]
        if (
            self._last is None
            or self._state is None
            or _distinct_places(given) is not None
        ):
            return
        if holders_of_state(every):
            return
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if [*map(id, given)] == [*map(id, tensors)]:
            state = self._state.number(self._fn)
            unpack = unpacking((args, kwargs))
            like = FastPathGuard(unpack, kinds_of_leaves(given), state, modes())
            self._last.search(programs, leaves, like)

    def _leave_out_changed(self, programs: ProgramCache, undo: bool = False) -> None:
        """Keep programs whatever becomes of the state that the function changes.

        Args:
            undo: whether to undo the changes, since the function will run once more.
        """
        if self._state is not None and self._state.leave_out_changed(undo):
            number = self._state.number_again(self._fn)
            for key, made in [*self._made.items()]:
                if made is programs:
                    kept = (key[0], number, *key[2:])
                    self._made[kept] = programs

    def _run_once(self) -> AbstractContextManager[None]:
        """Have only the first run within a call change Python state."""
        again, self._has_run = self._has_run, True
        if again and self._state is not None:
            return self._state.once_more(self._fn)
        return nullcontext()

    def _programs(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], as_inputs: bool = True
    ) -> tuple[ProgramCache, list[Any], ChangingNumbers | None]:
        """Return the programs, leaves that are not static, and numbers among them.

        Args:
            as_inputs: whether numbers that change are inputs.

        Raises:
            ZeroDivisionError: Python divides by a number that is an input, and zero.
        """
        static: tuple[Any, ...] = ()
        if self._static:
            static = tuple((i, args[i]) for i in sorted(self._static) if i < len(args))
            args = tuple(None if i in self._static else a for i, a in enumerate(args))
        by_name: dict[str, Any] = {}
        if self._static_names and kwargs:
            by_name = {n: kwargs[n] for n in sorted(self._static_names & kwargs.keys())}
            kwargs = {n: v for n, v in kwargs.items() if n not in by_name}
        leaves, spec = flatten_tree((args, kwargs))
        places = _distinct_places(leaves)
        orders = key_orders((args, kwargs))
        given = (*static, *by_name.items())
        statics = tuple((at, _static(v)) for at, v in given)
        state = 0
        if self._state is not None:
            holders = holders_of_state([*(v for _, v in given), *leaves])
            state = self._state.number(self._fn, holders)
        key: Any = (statics, spec, orders, places), state
        if places is not None:
            leaves = [leaves[places.index(k)] for k in range(1 + max(places))]
        numbers, inputs, raw = None, NumberInputs(frozenset(), frozenset()), leaves
        try:
            if self._piles and not NUMBERS.isdisjoint(map(type, leaves)):
                numbers = self._numbers.setdefault(key[0], ChangingNumbers())
                numbers.note(leaves)
                inputs = numbers.inputs if as_inputs else inputs
                if inputs.places:
                    key, leaves = (*key, inputs), inputs.in_tensors(leaves)
            programs = self._made.get(key)
        except TypeError as error:
            raise CaptureError(
                f"a static argument has no hash ({error}); give one that has"
            ) from None
        if programs is None:

            def flat(leaves: list[Any]) -> tuple[list[Any], Any]:
                noted = NumberUses(set(), [])
                if inputs.places:
                    leaves = inputs.in_numbers(leaves, noted)
                every = leaves if places is None else [leaves[k] for k in places]
                args, kwargs = spec.unflatten(every)
                args = [*args]
                for i, value in static:
                    args[i] = value
                with self._run_once():
                    result = self._fn(*args, **kwargs, **by_name)
                outputs, out = flatten_tree(result)
                assert programs is not None
                if noted.divisions:
                    programs.divisions = noted.divisions
                return with_results(outputs, out, noted.needed)

            def note(leaves: Sequence[Any]) -> None:
                leaves = inputs.in_words(leaves)
                every = leaves if places is None else [leaves[k] for k in places]
                rest = {f"{STATIC} {at!r}": value for at, value in given}
                assert programs is not None
                if self._state is not None and self._piles is not None:
                    rest |= self._state.shown()
                    self._piles.note(kinds_of(spec, every, rest))
                self._leave_out_changed(programs)

            programs = ProgramCache(
                flat,
                patience=self._patience,
                most=self._most(),
                tries=math.inf if self._strict else TRIES,
                empty=self._empty,
                note=note if self._piles else None,
                # With numbers as inputs it is compared: code may ask for their type.
                once=self._piles is not None and not inputs.places,
            )
            self._made[key] = programs
            for made in (self._made, self._numbers):
                while len(made) > BOUND:
                    made.pop(next(iter(made)), None)
        elif len(self._made) > BOUND // 2:  # to the end, as used last
            self._made[key] = self._made.pop(key, programs)
        for division in programs.divisions:  # a tensor's gives what is no number
            division(raw)
        return programs, leaves, numbers


def _again(fn: Any, static: list[int], strict: bool, names: list[str]) -> Any:
    """Return a copy, which makes its programs anew."""
    return jit(fn, static, strict, static_argnames=names)
