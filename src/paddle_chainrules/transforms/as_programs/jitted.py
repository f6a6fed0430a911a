"""The functions that :func:`.jit.jit` returns."""

from __future__ import annotations

import functools
import math
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from typing import Any, NamedTuple

from ...errors import CaptureError
from ...paddle_side.arguments import checked_flag, checked_function
from ...paddle_side.listener import is_plain, single_use_captures
from ...paddle_side.static_graphs import need_tensors, sot
from ...paddle_side.traced_numbers import ValueNeeded
from ...programs import Program, capture
from ...settings import programs_are_on
from ..containers.tree import flatten_tree
from ..recordings.effects import tensors_among
from .changing_numbers import NO_INPUTS, NUMBERS, ChangingNumbers, NumberInputs
from .dependencies import most_samples
from .function_of_leaves import CallNesting, FunctionOfLeaves, distinct_leaf_indices
from .guarded_calls import GuardedCalls
from .guards import GuardBuilder, GuardedCall, key_orders
from .keys import may_change
from .methods import Instances, WeakMethod
from .outer_state import OuterState, holders_of_state
from .program_cache import (
    MAX_PASSING_ERRORS,
    MAX_PROGRAMS_PER_FUNCTION,
    THESE_SIZES,
    CompiledFunction,
    ProgramCache,
)
from .program_nodes import call, lookup_program
from .recompiling import RecompileLog
from .static_arguments import NO_VALUES, StaticArguments, static_key


class KindOfCall(NamedTuple):
    """Calls with arguments of one nesting, equal static arguments and equal state."""

    function: FunctionOfLeaves
    programs: ProgramCache


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
        state: what fn reads besides its arguments. With ``explicit`` it is looked for.
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
        state: OuterState | None = None,
    ) -> None:
        self._recompile_log = RecompileLog(fn) if explicit else None
        self._fn, self._patience = checked_function("fn", fn), patience
        self._strict = checked_flag("strict", strict)
        self._empty = empty
        self._most = most or (lambda: most_samples(fn))
        self._static = StaticArguments(fn, static_argnums, static_names)
        self._has_static = bool(self._static.positions or self._static.names)
        self._is_method, self._instances = False, Instances()
        self._has_run = False
        self._state = OuterState(self._fn) if explicit else state
        self._guarded = GuardedCalls()
        self._kinds: dict[Any, KindOfCall] = {}
        self._numbers: dict[Any, ChangingNumbers] = {}
        self.derived_programs: dict[Any, Any] = {}
        """Programs built from this one: loops that run it as step, its gradient."""

    @property
    def options(self) -> Any:
        """Options that tell it apart from another one of the same function."""
        return self._static.positions, self._static.names, self._strict

    def __reduce__(self) -> Any:
        """Pickle as functions do, by name if it has one; copies make programs anew."""
        module = sys.modules.get(getattr(self, "__module__", ""))
        name: str = getattr(self, "__qualname__", "")
        if name and module is not None and _module_attribute(module, name) is self:
            return name
        names, positions = sorted(self._static.names), sorted(self._static.positions)
        return new_jitted, (self._fn, positions, self._strict, names)

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
            [index - 1 for index in self._static.positions if index],
            self._strict,
            most=lambda: 0,
            static_names=[*self._static.names],
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
            outputs = self._guarded.result(args, kwargs)
            if outputs is not None:
                return outputs[0]
            result, compiled = self._serve(call, args, kwargs)
            return compiled.structure.unflatten(result)
        except CaptureError as error:
            if self._strict:
                raise
            why = str(error)
        result = self._fn(*args, **kwargs)  # whose own errors have no other's context
        if self._recompile_log is not None:
            self._recompile_log.ran_eagerly(why)
        return result

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
        return self._compiled(*args, **kwargs).captured.program

    def _compiled(self, *args: Any, **kwargs: Any) -> CompiledFunction:
        """Return the program that runs at one call, with what else belongs to it.

        Raises:
            CaptureError: there is none.
        """
        result: CompiledFunction = self._serve(lookup_program, args, kwargs)[0]
        return result

    def _fixed_size_program(self, *args: Any) -> CompiledFunction:
        """Return the program of one call, compiled for its number of samples alone.

        Raises:
            CaptureError: there is none.
        """
        (_, programs), leaves, _ = self._kind_of_call(args, {})
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
        (function, programs), leaves, numbers = self._kind_of_call(args, kwargs)
        self._has_run = False
        divisions = function.divisions
        try:
            result = serve(programs, leaves)
            if function.divisions is not divisions:
                self._kind_of_call(args, kwargs)  # which divides
            if serve is call:
                served = result[1], function.structure.inputs, leaves
                self._note_served(function, *served, args, kwargs)
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
        (_, programs), leaves, _ = self._kind_of_call(args, kwargs, as_inputs=False)
        self._has_run = False
        try:
            result = serve(programs, leaves)
        except CaptureError:
            self._leave_out_changed(programs, undo=True)
            numbers.tries = False  # it is not for the numbers
            raise
        numbers.make_constant(numbers.inputs.positions)
        return result

    def _note_served(
        self,
        function: FunctionOfLeaves,
        compiled: CompiledFunction,
        inputs: NumberInputs,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Note a call that a program has served, for the functions of its kind.

        Args:
            inputs: the numbers that are inputs.
            leaves: of the call as a program takes them.
        """
        if True not in compiled.captured.requires and not function.divisions:
            call = compiled, inputs, leaves, args, kwargs
            self._guarded.note(compiled, lambda: self._write_guarded(*call))

    def _write_guarded(
        self,
        compiled: CompiledFunction,
        inputs: NumberInputs,
        leaves: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> GuardedCall | None:
        """Return a function for calls like this one, where guards can see all."""
        builder, tensors = GuardBuilder("args, kwargs", inputs), tensors_among(leaves)
        if self._recompile_log is None:
            builder.require_ordinary()
        else:
            builder.require_no_listener()
        builder.require_modes()
        names = self._guard_arguments(builder, args, kwargs)
        if len(names) != len(tensors):
            return None  # one is given twice
        builder.require_off_graph(names)
        builder.require_distinct(names)
        all_arguments = [*args, *flatten_tree((args, kwargs))[0]]
        if self._state is not None and holders_of_state(all_arguments):
            return None
        return builder.build_value(compiled, self._state, names, tensors)

    def _guard_arguments(
        self, builder: GuardBuilder, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[str]:
        """Emit the guards of arguments; return the names of the tensors among them."""
        names: list[str] = []
        builder.require(f"len(args) == {len(args)}")
        for i, name in enumerate(builder.items_of("args", len(args))):
            if i in self._static.positions:
                builder.require_key(name, static_key(args[i]), static_key)
                builder.skip_leaf()
            else:
                names += builder.leaves_of(args[i], name)
        name_of = dict(zip(kwargs, builder.values_of(kwargs, "kwargs"), strict=True))
        for key in sorted(kwargs):
            if key in self._static.names:
                value = static_key(kwargs[key])
                builder.require_key(name_of[key], value, static_key)
            else:
                names += builder.leaves_of(kwargs[key], name_of[key])
        return names

    def _leave_out_changed(self, programs: ProgramCache, undo: bool = False) -> None:
        """Keep programs whatever becomes of the state that the function changes.

        Args:
            undo: whether to undo the changes, since the function will run once more.
        """
        if self._state is not None and self._state.leave_out_changed(undo):
            number = self._state.number_again()
            for key, kind in [*self._kinds.items()]:
                if kind.programs is programs:
                    new_key = (key[0], number, *key[2:])
                    self._kinds[new_key] = kind

    def _run_once(self) -> AbstractContextManager[None]:
        """Have only the first run within a call change Python state."""
        has_run, self._has_run = self._has_run, True
        if has_run and self._state is not None:
            return self._state.state_restored()
        return nullcontext()

    def _kind_of_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], as_inputs: bool = True
    ) -> tuple[KindOfCall, list[Any], ChangingNumbers | None]:
        """Return the kind of a call, leaves that are not static, and numbers of these.

        Args:
            as_inputs: whether numbers that change are inputs.

        Raises:
            ZeroDivisionError: Python divides by a number that is an input, and zero.
        """
        static = NO_VALUES
        static_items: tuple[tuple[Any, Any], ...] = ()
        static_key: tuple[Any, ...] = ()
        if self._has_static:
            static, args, kwargs = self._static.split(args, kwargs)
            static_items, static_key = static.items, static.key
        leaves, spec = flatten_tree((args, kwargs))
        leaf_indices = distinct_leaf_indices(leaves)
        orders = key_orders((args, kwargs))
        state = 0
        if self._state is not None:
            holders = holders_of_state([*(v for _, v in static_items), *leaves])
            state = self._state.number(holders)
        key: Any = (static_key, spec, orders, leaf_indices), state
        if leaf_indices is not None:
            leaves = [
                leaves[leaf_indices.index(k)] for k in range(1 + max(leaf_indices))
            ]
        numbers, inputs, raw_leaves = None, NO_INPUTS, leaves
        try:
            if self._recompile_log and not NUMBERS.isdisjoint(map(type, leaves)):
                numbers = self._numbers.setdefault(key[0], ChangingNumbers())
                numbers.note(leaves)
                inputs = numbers.inputs if as_inputs else inputs
                if inputs.positions:
                    key, leaves = (*key, inputs), inputs.to_tensors(leaves)
            kind = self._kinds.get(key)
        except TypeError as error:
            raise CaptureError(
                f"a static argument has no hash ({error}); give one that has"
            ) from None
        if kind is None:
            kind = self._new_kind(CallNesting(spec, leaf_indices, static, inputs))
            self._kinds[key] = kind
            for cache in (self._kinds, self._numbers):
                while len(cache) > MAX_PROGRAMS_PER_FUNCTION:
                    cache.pop(next(iter(cache)), None)
        elif len(self._kinds) > MAX_PROGRAMS_PER_FUNCTION // 2:
            self._kinds[key] = self._kinds.pop(key, kind)  # as the one used last
        if kind.function.divisions:
            kind.function.check_divisions(raw_leaves)
        return kind, leaves, numbers

    def _new_kind(self, structure: CallNesting) -> KindOfCall:
        programs = ProgramCache(
            function := FunctionOfLeaves(self._fn, structure, self._run_once),
            patience=self._patience,
            most=self._most(),
            tries=math.inf if self._strict else MAX_PASSING_ERRORS,
            empty=self._empty,
            note=self._note_program if self._recompile_log else None,
            # With numbers as inputs it is compared: code may ask for their type.
            once=self._recompile_log is not None and not structure.inputs.positions,
        )
        return KindOfCall(function, programs)

    def _note_program(
        self, programs: ProgramCache, function: Any, leaves: Sequence[Any]
    ) -> None:
        """Note a new program, and leave out the state that its capture has changed."""
        if self._state is not None and self._recompile_log is not None:
            state = self._state.values_by_label()
            self._recompile_log.note(function.structure.kinds(leaves, state))
        self._leave_out_changed(programs)


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
            errors: list[Exception] = [error]
        if reused:
            del errors
            return run_strictly(Jitted(fn, strict=True, empty=True), fn, *args)

        def run(_: list[Any]) -> list[Any]:
            try:
                fn(*args)  # which says better what is wrong with the arguments
            except Exception as error:
                errors.append(error)
                raise
            return []

        try:
            with suppress(CaptureError):
                capture(run, [], check=False)
            raise errors[-1]
        finally:
            errors.clear()


def _module_attribute(module: Any, name: str) -> Any:
    """Return a module's attribute by its qualified name, or None."""
    try:
        return attrgetter(name)(module)
    except AttributeError:  # within a function
        return None


def new_jitted(
    fn: Any,
    static: int | Sequence[int],
    strict: bool,
    names: str | Sequence[str],
) -> Jitted:
    """Return fn as :func:`.jit.jit` returns it, without programs."""
    jitted = Jitted(fn, static, strict, static_names=names, explicit=True)
    functools.update_wrapper(jitted, fn, updated=())
    return jitted
