"""Programs that are one function of machine code, as Julia calls them.

Julia needs the function's address, what goes into its block of addresses, and the sizes
of all of it; from then on a call enters no Python. The sizes are multiples of powers of
the number of samples where the program serves any number.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from paddle import Tensor

from .. import settings
from ..errors import CaptureError
from ..nets.calls.inputs import CallInputs
from ..nets.calls.wrt import flags_per_param
from ..nets.derivatives.vjp_jvp_nets import FlatArgsNet
from ..nets.layers.stateless import RESERVED
from ..nets.net import Net
from ..programs import Program
from ..settings import LOOPS, loops_are_on, programs_are_on
from ..transforms.as_programs.program_recording import CompiledVJP


def patience() -> int:
    """Return how many calls of a kind come before Julia asks for code; -1 for never."""
    return settings.CALLS_BEFORE_CODE if programs_are_on() and loops_are_on() else -1


class NoCode(Exception):
    """A program is no one function that could be called without Python."""


class Code(NamedTuple):
    """A program as Julia calls it.

    Attributes:
        text: what there is to know, in words and numbers with spaces between.
        owner: what keeps the code and the constants alive.
    """

    text: str
    owner: Any


def code_of(program: Program, positions: Sequence[int] | None = None) -> Code:
    """Return the code of a program.

    The text has, one after another, each a number or a word:

    - the address of the function, 0 where nothing is computed;
    - 1 where it may leave with nothing done, which is then Paddle's, else 0;
    - the number of samples: the input that tells it, the dimension, counted from one as
      Julia does, how many elements a sample has there, and the most samples; zeros
      where it is fixed;
    - the inputs: how many, then for each its dtype, and its size as Julia has it;
    - the block: how many addresses, then for each ``i`` and an input, ``c`` and an
      address of a constant, or ``o`` and a result;
    - memory for what is in between: how many parts, then of each the bytes;
    - the results: how many, and each as an input;
    - the outputs: how many, and for each where it is, as in the block, and as an input.

    A size is its number of dimensions, and a factor and a power for each.

    Args:
        positions: the position of each input among a call's arguments, where others may
            stand between, which have the dtype ``none``.

    Raises:
        NoCode: it is more or less than one function.
    """
    if program.draws:
        raise NoCode(
            "it draws random numbers, which Paddle counts; use the net in "
            "evaluation mode"
        )
    try:
        compiled = program.as_code
    except MemoryError as error:
        raise NoCode(str(error)) from None
    if len(compiled.regions) > 1:
        raise NoCode(compiled.explain_machine())
    region = compiled.regions[0] if compiled.regions else None
    order = region.order if region else []
    work_sizes = region.work if region and not region.on_stack else []
    for op in compiled.ops:
        if region is None or op.operator is not region:
            raise NoCode(compiled.explain_machine())
    results = compiled.ops[-1].outputs if compiled.ops else ()
    if any(
        0 in value.shape for value in (*compiled.inputs, *results, *compiled.outputs)
    ):
        raise NoCode("a tensor of it has no elements; give some samples for code")
    if positions is None:
        positions = range(len(compiled.inputs))
    inputs_by_position = dict(zip(positions, compiled.inputs, strict=True))
    addresses = {
        value: f"i {position + 1}" for position, value in inputs_by_position.items()
    }
    for value, tensor in compiled.constants.items():
        if not tensor.is_contiguous() or not tensor.place.is_cpu_place():
            raise NoCode(
                "a constant of it has gaps between elements; make it contiguous"
            )
        addresses[value] = f"c {tensor.data_ptr()}"
    addresses.update({value: f"o {k + 1}" for k, value in enumerate(results)})

    sizes = {
        value: _size(value.dtype, compiled.extents_of(value))
        for value in (*compiled.inputs, *results, *compiled.outputs)
    }
    samples_axes = {k: value.shape for k, value in inputs_by_position.items()}

    def counted(items: Iterable[str]) -> str:
        row = [*items]
        return " ".join([str(len(row)), *row])

    fields = [
        str(region.address if region else 0),
        str(int(region.may_bail_out if region else 0)),
        _samples(compiled, samples_axes),
        counted(
            sizes[inputs_by_position[k]] if k in inputs_by_position else "none 0"
            for k in range(1 + max(inputs_by_position, default=-1))
        ),
        counted(addresses[value] for value in order),
        counted(f"{e.factor} {e.power}" for e in work_sizes),
        counted(sizes[value] for value in results),
        counted(f"{addresses[value]} {sizes[value]}" for value in compiled.outputs),
    ]
    owner = region and region.code, [*compiled.constants.values()]
    return Code(" ".join(fields), owner)


def _size(dtype: str, shape: Sequence[Any]) -> str:
    extents = (f"{e.factor} {e.power}" for e in reversed(shape))
    return " ".join([dtype, str(len(shape)), *extents])


def _samples(program: Program, shapes: Mapping[int, Sequence[int]]) -> str:
    if program.samples is None:
        return "0 0 0 0"
    size, varying, max_samples = program.samples
    for k, shape in shapes.items():
        for axis, size_ in enumerate(shape):
            if size_ in varying:
                axis_text = f"{k + 1} {len(shape) - axis} {size_ // size}"
                return f"{axis_text} {max_samples}"
    raise NoCode(
        "no input of it tells the number of samples; give them as the first axis"
    )


class VJPCode:
    """The forward and backward pass of a kind of calls, as Julia calls them.

    Args:
        way: its programs.
        positions: the position of each leaf among a call's arguments.
        params: how many of the arguments are parameters.

    Raises:
        NoCode: the forward pass is more or less than one function.
    """

    def __init__(
        self, compiled: CompiledVJP, positions: Sequence[int], params: int
    ) -> None:
        self._compiled, self._params = compiled, params
        input_positions = _input_positions(compiled.forward_backward.forward, positions)
        self._grad_positions = [positions[leaf] for leaf in compiled.grad_leaves]
        self.forward_backward = code_of(
            compiled.forward_backward.forward, input_positions
        )

    @property
    def facts(self) -> str:
        """Return the number of outputs, then positions of those with a cotangent."""
        count, seeds = self._compiled.forward_backward.count, self._compiled.seeds
        return " ".join(map(str, (count, *(i + 1 for i in seeds))))

    def back(
        self,
        params: bool | tuple[bool, ...],
        inputs: bool,
        has_cotangent: tuple[bool, ...],
    ) -> tuple[str, str, Any] | None:
        """Return the backward pass for the gradients that Julia asks for.

        That is the positions of those that exist, from 1 on, as a text; the addresses
        and sizes of :func:`code_of`, as a text; and what keeps that code alive. None if
        there is no machine code. Julia calls it by this name.
        """
        flags = [*flags_per_param(params, self._params)]
        requested = tuple(
            flags[i] if i < len(flags) else inputs for i in self._grad_positions
        )
        program, has_grad = self._compiled.forward_backward.backward_program(
            requested, has_cotangent
        )
        wanted = [
            i for i, flag in zip(self._grad_positions, requested, strict=True) if flag
        ]
        results = [str(i + 1) for i, flag in zip(wanted, has_grad, strict=True) if flag]
        try:
            return " ".join(results), *code_of(program)
        except NoCode:
            return None


class CompiledCall(NamedTuple):
    """The code that Julia gets when it asks for code.

    Attributes:
        why: the reason why there is none; empty if there is code.
        owner: for a value, the object that keeps its code alive; for a pullback, its
            :class:`VJPCode`.
        structure: how outputs are nested, with None for each; None for a single output.
    """

    why: str
    text: str = ""
    owner: Any = None
    structure: Any = None


Arguments = Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


def errors_as_reasons(find: Callable[..., CompiledCall]) -> Callable[..., CompiledCall]:
    """Make a function return a CompiledCall with the reason in place of raising."""

    @functools.wraps(find)
    def find_or_reason(*args: Any) -> CompiledCall:
        try:
            return find(*args)
        except (NoCode, CaptureError) as error:
            return CompiledCall(str(error))
        except Exception as error:  # as programs do that can't be compiled
            why = f"machine code can't be made of it ({error})"
            remedy = f"reinstall llvmlite, or set {LOOPS}=off"
            warnings.warn(f"{why}; {remedy}", stacklevel=2)
            return CompiledCall(why)

    return find_or_reason


@errors_as_reasons
def code(
    net: Net,
    with_backward: bool,
    params: Any,
    leaves: tuple[Any, ...],
    arguments: Arguments,
) -> CompiledCall:
    """Return the code of calls of a net like this one.

    Args:
        with_backward: whether the backward pass is wanted, too.
        leaves: the arguments, nested by ``arguments``.
    """
    return _code(net, with_backward, params, leaves, *arguments(leaves))


def _code(
    net: Net,
    with_backward: bool,
    params: Any,
    call_leaves: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> CompiledCall:
    programs = net._programs
    if programs is None:
        raise NoCode("it does not run as programs; make the net with jit = true")
    if RESERVED & kwargs.keys() or (
        isinstance(net, FlatArgsNet) and net.is_seeded(call_leaves)
    ):
        raise NoCode("it is given a seed or buffers; call it without for code")
    tensors = [params] if isinstance(params, Tensor) else [*params.values()]
    position_of = {
        id(x): k
        for k, x in enumerate((*tensors, *call_leaves))
        if isinstance(x, Tensor)
    }
    inputs = CallInputs(net.spec, params, args, kwargs)
    if with_backward:
        vjp, leaves = programs.compiled_vjp(inputs)
        structure, captured, count = (
            vjp.structure,
            vjp.captured,
            vjp.forward_backward.count,
        )
    else:
        result, leaves = programs.value(inputs)
        structure, captured = result.structure, result.captured
        count = len(captured.program.outputs)
    if len(captured.outputs) != count or structure.buffers is not None:
        raise NoCode(
            "it gives something that is no tensor, or new buffers; give tensors alone"
        )
    positions = [position_of.get(id(leaf), -1) for leaf in leaves]
    structure_for_julia = structure.output.unflatten([None] * structure.number)
    if not with_backward:
        value = code_of(captured.program, _input_positions(captured.program, positions))
        return CompiledCall("", value.text, value.owner, structure_for_julia)
    vjp_code = VJPCode(vjp, positions, len(tensors))
    if vjp_code.back(True, True, (True,) * len(vjp.seeds)) is None:
        raise NoCode(
            "its pullback is more than one function of machine code; put what has no "
            "rule into a net of its own"
        )
    return CompiledCall(
        "", vjp_code.forward_backward.text, vjp_code, structure_for_julia
    )


def _input_positions(program: Program, positions: Sequence[int]) -> list[int]:
    """Return positions of a program's inputs, of those of all leaves."""
    results = [position for position in positions if position >= 0]
    if len(results) != len(program.inputs):
        raise NoCode("its arguments are no plain tensors; give it arrays alone")
    return results
