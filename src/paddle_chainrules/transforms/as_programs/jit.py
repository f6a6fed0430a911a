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
from .changing_numbers import NUMBERS, ChangingNumbers, NumberInputs, numbers_to_tensors
from .dependencies import ATOMS, JITTED, most_samples
from .keys import exactly, kinds_of_leaves, may_change, modes
from .last_call import FastPathGuard, LastCall
from .methods import Instances, WeakMethod
from .outer_state import OuterState
from .program_cache import (
    MAX_PASSING_ERRORS,
    MAX_PROGRAMS_PER_FUNCTION,
    THESE_SIZES,
    CompiledFunction,
    ProgramCache,
)
from .program_nodes import call, lookup_program
from .recompiling import STATIC, RecompileLog, kinds_of
from .unpacking import key_orders, make_unpack

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
    jitted = Jitted(
        fn, static_argnums, strict, static_names=static_argnames, explicit=True
    )
    by_options = _jitted_by_options(fn)
    return by_options.setdefault(
        jitted.options, functools.wraps(fn, updated=())(jitted)
    )


def _jitted_by_options(fn: Any) -> dict[Any, Any]:
    """Return the jitted functions that jit has already made of fn, by options.

    This is kept from the second time on. So a function that is gone after one use does
    not wait, with its programs, for Python's collector.
    """
    if type(fn) is not types.FunctionType:
        return {}
    owner, by_options = vars(fn).get(JITTED, (None, None))
    if owner is not None and owner() is fn:
        return by_options
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
        return Jitted(fn, static_argnums, True, explicit=True).program(*args, **kwargs)

    return make


def _module_attribute(module: Any, name: str) -> Any:
    """Return a module's attribute by its qualified name, or None."""
    try:
        return attrgetter(name)(module)
    except AttributeError:  # within a function
        return None


def _one_or_more(value: Any) -> Iterable[Any]:
    """Return a collection as it is, and anything else in a tuple."""
    is_collection = isinstance(value, list | tuple | set | frozenset | range)
    return value if is_collection else (value,)


def _static_positions(argnums: Any) -> tuple[int, ...]:
    """Return positions of arguments; a single one need not be in a sequence.

    Raises:
        TypeError: they are no integers.
        ValueError: one counts from the last argument.
    """
    positions = _one_or_more(argnums)
    results = tuple(checked_integer("each of static_argnums", n) for n in positions)
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


def _positional_or_keyword_names(fn: Any) -> list[str]:
    """Return the names of arguments that can be given by position and by name."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # of a function of C
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _static_key(value: Any) -> Any:
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
        fields: Iterable[Any] = value
    elif dataclasses.is_dataclass(value):
        fields = [getattr(value, f.name, None) for f in dataclasses.fields(value)]
    else:
        fields = getattr(value, "__dict__", {}).values()
    return any(_holds_state(field, depth - 1) for field in fields)


def _distinct_leaf_indices(leaves: list[Any]) -> tuple[int, ...] | None:
    """Return each leaf's index among distinct leaves; None if no tensor repeats."""
    tensors = [id(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
    if len(tensors) == len({*tensors}):
        return None
    first: dict[Any, int] = {}
    keys = (
        id(leaf) if isinstance(leaf, Tensor) else (i,) for i, leaf in enumerate(leaves)
    )
    return tuple([first.setdefault(key, len(first)) for key in keys])


def run_strictly(
    program: Jitted, fn: Callable[..., Any], *args: Any, reused: bool = False
) -> Any:
    """Run ``fn(*args)`` as a program, or raise the errors of fn if there can be none.

    Args:
        reused: whether the program will serve other calls. If there can be no such
            program, there may be one for this call.
    """
    with single_use_captures(not reused):
        try:
            return program.run(*args)
        except CaptureError as error:
            refusal = error
        if reused:
            del refusal
            return run_strictly(Jitted(fn, strict=True, empty=True), fn, *args)
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
        explicit: whether the user has called jit. Then fn is called once per program,
            numbers that change become inputs, and many recompiles give a warning.
            Otherwise fn is compared with its programs on other values.
    """

    def _depends_on(self) -> list[Any]:
        """Return what its results depend on, for :mod:`.dependencies`."""
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
        explicit: bool = False,
    ) -> None:
        self._recompile_log = RecompileLog(fn) if explicit else None
        self._fn, self._patience = checked_function("fn", fn), patience
        self._strict = checked_flag("strict", strict)
        self._empty = empty
        self._most = most or (lambda: most_samples(fn))
        self._static_key = frozenset(_static_positions(static_argnums))
        self._static_names = _static_names(static_names)
        if self._static_key or self._static_names:  # each argument however it is given
            names = _positional_or_keyword_names(fn)
            named = {i for i, name in enumerate(names) if name in self._static_names}
            numbered = {name for i, name in enumerate(names) if i in self._static_key}
            self._static_key, self._static_names = (
                self._static_key | named,
                self._static_names | numbered,
            )
        self._is_method, self._instances = False, Instances()
        self._has_run = False
        self._state = OuterState() if explicit else None
        is_simple = explicit and not (self._static_key or self._static_names)
        self._last = LastCall() if is_simple else None
        self._caches: dict[Any, ProgramCache] = {}
        self._numbers: dict[Any, ChangingNumbers] = {}
        self.derived_programs: dict[Any, Any] = {}
        """Programs built from this one: loops that run it as step, its gradient."""

    @property
    def options(self) -> Any:
        """Options that tell it apart from another one of the same function."""
        return self._static_key, self._static_names, self._strict

    def __reduce__(self) -> Any:
        """Pickle as functions do, by name if it has one; copies make programs anew."""
        module = sys.modules.get(getattr(self, "__module__", ""))
        name: str = getattr(self, "__qualname__", "")
        if name and module is not None and _module_attribute(module, name) is self:
            return name
        names = sorted(self._static_names)
        return _again, (self._fn, sorted(self._static_key), self._strict, names)

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
        return self._instances.of(instance, lambda: self._bind(instance))

    def _bind(self, instance: Any) -> Jitted:
        method = WeakMethod(self._fn, instance)
        bound = Jitted(
            method,
            [index - 1 for index in self._static_key if index],
            self._strict,
            most=lambda: 0,
            static_names=[*self._static_names],
            explicit=True,
        )
        functools.update_wrapper(bound, self._fn, updated=())
        return bound

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
        """Run a call by its program, even while another trace listens."""
        if self._recompile_log is not None:
            self._recompile_log.count_call()
        try:
            state = self._state
            if self._last is not None and state is not None:
                fast_result = self._last.result((args, kwargs), state, self._fn)
                if fast_result is not None:
                    return fast_result[0]
            result, structure = self._serve(call, args, kwargs)
            return structure.unflatten(result)
        except CaptureError as error:
            if self._strict:
                raise
            why = str(error)
        if self._recompile_log is not None:
            self._recompile_log.ran_eagerly(why)
        return self._fn(*args, **kwargs)  # whose own errors have no other's context

    def list_programs(self) -> str:
        """List this function's programs, and the arguments that caused each.

        The reason why there are none, if state forbids them; "" if none was made yet.
        """
        if self._state is not None and self._state.refusal:
            return self._state.refusal
        return (
            self._recompile_log.list_programs()
            if self._recompile_log is not None
            else ""
        )

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """Return the program that runs at one call."""
        result: CompiledFunction = self._serve(lookup_program, args, kwargs)[0]
        return result.captured.program

    def _fixed_size_program(self, *args: Any) -> CompiledFunction:
        """Return the program of one call, compiled for its number of samples alone.

        Raises:
            CaptureError: there is none.
        """
        programs, leaves, _ = self._programs(args, {})
        result, flags = lookup_program(programs, leaves)
        if result.captured.program.samples is None:
            return result
        same_size: CompiledFunction = programs.get_or_compile(
            THESE_SIZES, leaves, programs.compile_value, flags
        )
        return same_size

    def _serve(
        self,
        serve: Callable[[ProgramCache, list[Any]], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run ``serve`` on the call's programs; retry if a number's value matters.

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
                self._search_fast_path(programs, leaves, args, kwargs)
            return result
        except CaptureError as error:
            self._leave_out_changed(programs, undo=True)
            if numbers is None or not numbers.inputs.positions:
                raise
            cause = error.__cause__
            if isinstance(cause, ValueNeeded):
                numbers.make_constant(cause.origins)
                return self._serve(serve, args, kwargs)
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
        numbers.make_constant(numbers.inputs.positions)
        return result

    def _search_fast_path(
        self,
        programs: ProgramCache,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Offer the call's program to the fast path, where that can guard it."""
        arg_leaves = flatten_tree((args, kwargs))[0]
        arg_tensors = [x for x in arg_leaves if isinstance(x, Tensor)]
        if (
            self._last is None
            or self._state is None
            or _distinct_leaf_indices(arg_tensors) is not None
        ):
            return
        if holders_of_state(arg_leaves):
            return
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if [*map(id, arg_tensors)] == [*map(id, tensors)]:
            state = self._state.number(self._fn)
            unpack = make_unpack((args, kwargs))
            guard = FastPathGuard(unpack, kinds_of_leaves(arg_tensors), state, modes())
            self._last.search(programs, leaves, guard)

    def _leave_out_changed(self, programs: ProgramCache, undo: bool = False) -> None:
        """Keep programs whatever becomes of the state that the function changes.

        Args:
            undo: whether to undo the changes, since the function will run once more.
        """
        if self._state is not None and self._state.leave_out_changed(undo):
            number = self._state.number_again(self._fn)
            for key, cache in [*self._caches.items()]:
                if cache is programs:
                    new_key = (key[0], number, *key[2:])
                    self._caches[new_key] = programs

    def _run_once(self) -> AbstractContextManager[None]:
        """Have only the first run within a call change Python state."""
        has_run, self._has_run = self._has_run, True
        if has_run and self._state is not None:
            return self._state.state_restored(self._fn)
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
        if self._static_key:
            static = tuple(
                (i, args[i]) for i in sorted(self._static_key) if i < len(args)
            )
            args = tuple(
                None if i in self._static_key else a for i, a in enumerate(args)
            )
        by_name: dict[str, Any] = {}
        if self._static_names and kwargs:
            by_name = {n: kwargs[n] for n in sorted(self._static_names & kwargs.keys())}
            kwargs = {n: v for n, v in kwargs.items() if n not in by_name}
        leaves, spec = flatten_tree((args, kwargs))
        leaf_indices = _distinct_leaf_indices(leaves)
        orders = key_orders((args, kwargs))
        static_items = (*static, *by_name.items())
        static_key = tuple((name, _static_key(v)) for name, v in static_items)
        state = 0
        if self._state is not None:
            holders = holders_of_state([*(v for _, v in static_items), *leaves])
            state = self._state.number(self._fn, holders)
        key: Any = (static_key, spec, orders, leaf_indices), state
        if leaf_indices is not None:
            leaves = [
                leaves[leaf_indices.index(k)] for k in range(1 + max(leaf_indices))
            ]
        changing_numbers, inputs, raw_leaves = (
            None,
            NumberInputs(frozenset(), frozenset()),
            leaves,
        )
        try:
            if self._recompile_log and not NUMBERS.isdisjoint(map(type, leaves)):
                changing_numbers = self._numbers.setdefault(key[0], ChangingNumbers())
                changing_numbers.note(leaves)
                inputs = changing_numbers.inputs if as_inputs else inputs
                if inputs.positions:
                    key, leaves = (*key, inputs), inputs.to_tensors(leaves)
            programs = self._caches.get(key)
        except TypeError as error:
            raise CaptureError(
                f"a static argument has no hash ({error}); give one that has"
            ) from None
        if programs is None:

            def flat(leaves: list[Any]) -> tuple[list[Any], Any]:
                uses = NumberUses(set(), [])
                if inputs.positions:
                    leaves = inputs.to_traced_numbers(leaves, uses)
                all_leaves = (
                    leaves
                    if leaf_indices is None
                    else [leaves[k] for k in leaf_indices]
                )
                args, kwargs = spec.unflatten(all_leaves)
                args = [*args]
                for i, value in static:
                    args[i] = value
                with self._run_once():
                    result = self._fn(*args, **kwargs, **by_name)
                outputs, out_spec = flatten_tree(result)
                assert programs is not None
                if uses.divisions:
                    programs.divisions = uses.divisions
                return numbers_to_tensors(outputs, out_spec, uses.needed)

            def note(leaves: Sequence[Any]) -> None:
                leaves = inputs.to_placeholders(leaves)
                all_leaves = (
                    leaves
                    if leaf_indices is None
                    else [leaves[k] for k in leaf_indices]
                )
                extra_kinds = {
                    f"{STATIC} {name!r}": value for name, value in static_items
                }
                assert programs is not None
                if self._state is not None and self._recompile_log is not None:
                    extra_kinds |= self._state.values_by_label()
                    self._recompile_log.note(kinds_of(spec, all_leaves, extra_kinds))
                self._leave_out_changed(programs)

            programs = ProgramCache(
                flat,
                patience=self._patience,
                most=self._most(),
                tries=math.inf if self._strict else MAX_PASSING_ERRORS,
                empty=self._empty,
                note=note if self._recompile_log else None,
                # With numbers as inputs it is compared: code may ask for their type.
                once=self._recompile_log is not None and not inputs.positions,
            )
            self._caches[key] = programs
            for cache in (self._caches, self._numbers):
                while len(cache) > MAX_PROGRAMS_PER_FUNCTION:
                    cache.pop(next(iter(cache)), None)
        elif (
            len(self._caches) > MAX_PROGRAMS_PER_FUNCTION // 2
        ):  # to the end, as used last
            self._caches[key] = self._caches.pop(key, programs)
        for division in programs.divisions:  # a tensor's gives what is no number
            division(raw_leaves)
        return programs, leaves, changing_numbers


def _again(fn: Any, static: list[int], strict: bool, names: list[str]) -> Any:
    """Return a copy, which makes its programs anew."""
    return jit(fn, static, strict, static_argnames=names)
