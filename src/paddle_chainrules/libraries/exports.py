"""Functions of tensors as programs that become functions of a library."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree
import paddle
from paddle import Tensor

from ..errors import CaptureError
from ..paddle_side.arguments import is_row_of
from ..programs import Program, Target
from ..settings import ANY
from ..transforms.as_programs.program_cache import CompiledFunction, ProgramCache
from ..transforms.containers.tree import flatten_tree
from .names import INTERFACE_NAMES, unique

CAPTURED_COUNTS = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Numbers of samples that a function is captured for, two of them."""


class FunctionRole(NamedTuple):
    """What a function is to a net.

    Attributes:
        kind: ``value``, or the derivative, such as ``vjp``.
        net: the net's name.
        has_params: whether the first input is the vector of parameters.
    """

    kind: str
    net: str
    has_params: bool


class Export:
    """A function that :func:`save_library` makes a function of a library.

    Args:
        fn: a function of tensors, and of dicts, lists and tuples of them.
        args: example arguments. Their shapes and dtypes are those of later calls.
            Everything but tensors becomes part of the function.
        batched: positions of the arguments whose first axis is the number of samples.
            The function then takes any number of samples, and its first argument is
            that number.
        names: of the arguments, in the interfaces; by default those of fn's parameters.
        results: names of the tensors that it returns, in the interfaces.

    Raises:
        TypeError: fn is no function, or positions or names have another type.
        ValueError: positions or names do not fit the arguments.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.libraries import Export
        >>> norm = Export(lambda x: (x * x).sum(1), paddle.rand([4, 3]), batched=0)
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        batched: int | Sequence[int] = (),
        names: Sequence[str] | None = None,
        results: Sequence[str] | None = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(
                f"an Export is made of a function, got a {type(fn).__name__}; give the "
                "function first, then example arguments"
            )
        self.fn, self.args = fn, args
        self.batched = positions(batched, len(args))
        checked_names = _checked_names("names", names)
        if checked_names and len(checked_names) != len(args):
            raise ValueError(
                f"names has {len(checked_names)} names, and there are {len(args)} "
                "arguments; give a name for each argument"
            )
        self.names = checked_names or _names_of(fn, len(args))
        for position in self.batched:
            _check_samples(self.names[position], args[position])
        self.results = _checked_names("results", results)
        self.role: FunctionRole | None = None


def positions(batched: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return the positions of arguments with samples as a tuple.

    Raises:
        TypeError: they are no integers.
        ValueError: there are no such arguments.
    """
    results = tuple(batched) if isinstance(batched, list | tuple) else (batched,)
    for position in results:
        if not isinstance(position, int) or isinstance(position, bool):
            raise TypeError(
                f"batched is a position or a sequence of positions, got {batched!r}; "
                "count the arguments from 0, and give () for none"
            )
        if not 0 <= position < count:
            raise ValueError(
                f"batched has the position {position}, and there are {count} "
                "arguments; count them from 0"
            )
    return results


def _check_samples(name: str, argument: Any) -> None:
    """Raise an error where an argument has no samples."""
    leaves = flatten_tree(argument)[0]
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    sizes = [_shape(x)[:1] for x in tensors]
    if leaves and not any(sizes):
        kind = f"{tensors[0].dtype} []" if tensors else f"a {type(argument).__name__}"
        raise ValueError(
            f"{name} is {kind}, which has no axis of samples; give a tensor with one, "
            "or leave out its position in batched"
        )
    if [0] in sizes:
        raise ValueError(
            f"{name} is an example without samples; give an example with one or more"
        )


def _checked_names(what: str, names: Sequence[str] | None) -> list[str] | None:
    """Return names as a list; raise an error for something else."""
    if names is None:
        return None
    if not is_row_of(str, names):
        raise TypeError(
            f"{what} is a list of names, got {names!r}; write {what}=['a', 'b']"
        )
    return [*names]


class TensorParameter(NamedTuple):
    """A tensor that a function of a library takes or returns.

    Attributes:
        name: an identifier.
        dtype: as Paddle calls it.
        shape: for each size a factor, and the power of the number of samples.
    """

    name: str
    dtype: str
    shape: tuple[tuple[int, int], ...]


class LibraryFunction(NamedTuple):
    """A function of a library.

    Attributes:
        name: an identifier.
        inputs, outputs: its arguments, pointers in this order.
        has_samples: whether the number of samples comes before them.
        max_samples: the most samples of a call.
        program: what it does.
        export: what it was made of.
        one: its variant for one sample, where its code is faster.
    """

    name: str
    inputs: list[TensorParameter]
    outputs: list[TensorParameter]
    has_samples: bool
    max_samples: int
    program: Program
    export: Export
    one: LibraryFunction | None = None

    def run(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs of the function itself at these inputs."""
        flat, spec = flatten_tree(self.export.args)
        tensors = iter(leaves)
        arguments = [next(tensors) if isinstance(x, Tensor) else x for x in flat]
        results, _ = flatten_tree(self.export.fn(*spec.unflatten(arguments)))
        return [out for out in results if isinstance(out, Tensor)]

    def resized(self, count: int) -> list[Tensor]:
        """Return the example inputs with this number of samples."""
        return [x for x in _resized(self.export, count) if isinstance(x, Tensor)]


def capture_export(name: str, export: Export, target: Target) -> LibraryFunction:
    """Return an export as a function of a library for a target.

    Raises:
        CaptureError: it is not a straight line of operators, or not one region.
        ValueError: it does not serve any number of samples, though it should.
    """
    programs = _Programs(name, export, target)
    program = programs.program()
    _check_tensors(name, program)
    lowered = target.one_region(program)
    _check_single_region(name, lowered)
    flat, spec = flatten_tree(export.args)
    paths = optree.treespec_paths(spec)
    labels = [
        _path_label(export.names[path[0]], path[1:])
        for path, leaf in zip(paths, flat, strict=True)
        if isinstance(leaf, Tensor)
    ]
    output_labels = _output_labels(name, export, len(lowered.outputs))
    used_names = {*INTERFACE_NAMES, name.lower()}
    names = [unique(label, used_names) for label in (*labels, *output_labels)]
    tensors = [
        TensorParameter(label, value.dtype, lowered.extents_of(value))
        for label, value in zip(names, (*lowered.inputs, *lowered.outputs), strict=True)
    ]
    count = len(lowered.inputs)
    inputs, outputs = tensors[:count], tensors[count:]
    if lowered.samples is None:
        return LibraryFunction(name, inputs, outputs, False, 0, lowered, export)
    # beyond samples.most Paddle works in blocks to save memory; code needs none
    facts = True, target.max_samples(lowered), lowered, export
    result = LibraryFunction(name, inputs, outputs, *facts)
    return result._replace(one=_one_sample_variant(result, programs, target))


def _one_sample_variant(
    function: LibraryFunction, programs: _Programs, target: Target
) -> LibraryFunction | None:
    """Return the variant for one sample, if its code needs no memory.

    Products of one row have code of their own, which is faster.
    """
    try:
        lowered = target.one_region(programs.program_for(1))
        _check_single_region(function.name, lowered)
    except CaptureError:
        return None
    values, parameters = (*lowered.inputs, *lowered.outputs), []
    for tensor, value in zip(
        (*function.inputs, *function.outputs), values, strict=True
    ):
        shape = tuple(factor for factor, _ in tensor.shape)
        if value.shape != shape or value.dtype != tensor.dtype:
            return None
        parameters.append(tensor._replace(shape=lowered.extents_of(value)))
    region = next(iter(lowered.regions), None)
    if region is None or (region.work and not region.on_stack):
        return None
    count = len(lowered.inputs)
    return function._replace(
        name=f"{function.name}.one",
        inputs=parameters[:count],
        outputs=parameters[count:],
        has_samples=False,
        program=lowered,
    )


class _Programs:
    """The programs of a function, by the number of samples."""

    def __init__(self, name: str, export: Export, target: Target) -> None:
        self._name, self._export, self._target = name, export, target
        self._cache = ProgramCache(lambda leaves: _flat_call(export, leaves), most=ANY)

    def program_for(self, count: int) -> Program:
        """Return the program for a number of samples; 0 for that of the example."""
        leaves = [*_resized(self._export, count)]
        result: Program = self._cache.get_or_compile(
            "value", leaves, self._value
        ).captured.program
        return result

    def _value(self, leaves: Sequence[Any]) -> CompiledFunction:
        """Return what gives the value, for which no tensor outside has gradients."""
        result = self._cache.compile_value(leaves)
        requires = (False,) * len(result.captured.requires)
        captured = result.captured._replace(requires=requires, free=[])
        return result._replace(captured=captured)

    def program(self) -> Program:
        """Return the program, for any number of samples if it has them.

        Raises:
            ValueError: it does not serve any number.
        """
        export = self._export
        if not export.batched:
            return self.program_for(0)
        used_sizes = {n for x in flatten_tree(export.args)[0] for n in _shape(x)}
        counts = [n for n in CAPTURED_COUNTS if n not in used_sizes] or [
            *CAPTURED_COUNTS
        ]
        self.program_for(counts[0])
        for count in counts[1:]:
            self.program_for(count)
            for candidate in (count, counts[0]):  # either may be for any number by now
                result = self.program_for(candidate)
                if result.samples is not None:
                    return result
        # Which may be why:
        _check_single_region(self._name, self._target.one_region(result))
        raise ValueError(
            f"{self._name} does not do the same for any number of samples (the first "
            f"axis of arguments {list(export.batched)}); give batched=() for a library "
            "that serves the example's number alone"
        )


def _flat_call(export: Export, leaves: Sequence[Any]) -> tuple[list[Any], Any]:
    _, spec = flatten_tree(export.args)
    return flatten_tree(export.fn(*spec.unflatten(leaves)))


def _shape(leaf: Any) -> list[int]:
    return [*leaf.shape] if isinstance(leaf, Tensor) else []


def _resized(export: Export, count: int) -> Iterator[Any]:
    """Yield the leaves with this number of samples; of 0, with as many as they have."""
    for position, arg in enumerate(export.args):
        for leaf in flatten_tree(arg)[0]:
            if count and position in export.batched and _shape(leaf):
                rows = np.arange(count) % leaf.shape[0]
                yield paddle.to_tensor(leaf.numpy()[rows])  # Paddle has no uint8
            else:
                yield leaf


def _check_tensors(name: str, program: Program) -> None:
    """Raise an error where a library can't take or return a tensor."""
    for value in (*program.inputs, *program.outputs):
        kind = f"{value.dtype}{list(value.shape)}"
        if value.dtype not in Target.DTYPES:
            raise CaptureError(
                f"{name} takes or returns {kind}, and a library has tensors of "
                f"{', '.join(Target.DTYPES)}; cast it, or return real and imaginary "
                "parts"
            )
        if 0 in value.shape:
            raise CaptureError(
                f"{name} takes or returns {kind}, which has no elements; leave it out"
            )


def _check_single_region(name: str, lowered: Program) -> None:
    """Raise an error if a program is not one region."""
    operators_left = lowered.operators_left
    if lowered.draws:
        raise CaptureError(
            f"{name} draws random numbers, which a library cannot; use the net in "
            "evaluation mode, or draw outside and give the numbers as an argument"
        )
    if operators_left or len(lowered.regions) > 1:
        names = ", ".join(dict.fromkeys(operators_left)) or "parts between its regions"
        raise CaptureError(
            f"{name} cannot be a function of a library: there is no machine code for "
            f"{names}; compute these outside, and export what is before and after "
            "(docs/machine-code.md lists what is compiled)"
        )
    for value, tensor in lowered.constants.items():
        if not tensor.place.is_cpu_place():
            raise CaptureError(
                f"{name} holds a constant {value.dtype}{list(value.shape)} on "
                f"{tensor.place}, and a library runs on the CPU; move it there with "
                ".cpu(), as parameters that go inside"
            )


def _names_of(fn: Callable[..., Any], count: int) -> list[str]:
    """Return names of positional arguments."""
    try:
        results = [
            p.name
            for p in inspect.signature(fn).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        results = []
    return [*results, *(f"arg{i}" for i in range(len(results), count))][:count]


def _output_labels(name: str, export: Export, count: int) -> list[str]:
    """Return names of the outputs; raise an error where there are none, or others."""
    if not count:
        raise ValueError(
            f"{name} returns no tensor, and a function of a library writes one at "
            "least; return it from the function"
        )
    if export.results is not None:
        if len(export.results) != count:
            raise ValueError(
                f"results of {name} has {len(export.results)} names, and the function "
                f"returns {count} tensors; give a name for each"
            )
        return [*export.results]
    return ["result"] if count == 1 else [f"result{i}" for i in range(count)]


def _path_label(name: str, path: Sequence[Any]) -> str:
    return "_".join([name, *map(str, path)])
