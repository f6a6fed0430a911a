"""Programs that are one function of machine code, as Julia calls them.

Julia needs the function's address, what goes into its block of addresses, and the sizes
of all of it; from then on a call enters no Python. The sizes are multiples of powers of
the number of samples where the program serves any number.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from paddle import Tensor

from ..nets.calls.inputs import CallInputs
from ..nets.calls.wrt import each
from ..nets.derivatives.vjp_jvp_nets import FlatArgsNet
from ..nets.layers.stateless import RESERVED
from ..nets.net import Net
from ..programs import switch
from ..programs.capture_error import CaptureError
from ..programs.codegen.extents import ShapeEnv
from ..programs.compiling.program import Program
from ..programs.switch import LOOPS, loops_are_on, programs_are_on
from ..programs.tracing.operations import Value
from ..transforms.as_programs.program_recording import CompiledVJP


def patience() -> int:
    """Return how many calls of a kind come before Julia asks for code; -1 for never."""
    return switch.CALLS_BEFORE_CODE if programs_are_on() and loops_are_on() else -1


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


def code_of(program: Program, places: Sequence[int] | None = None) -> Code:
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
        places: at which place among a call's arguments each input is, where there may
            be others between, which have the dtype ``none``.

    Raises:
        NoCode: it is more or less than one function.
    """
    if program.draws:
        raise NoCode(
            "it draws random numbers, which Paddle counts; use the net in "
            "evaluation mode"
        )
    try:
        made = program.as_code
    except MemoryError as error:
        raise NoCode(str(error)) from None
    if len(made.regions) > 1:
        raise NoCode(made.explain_machine())
    region = made.regions[0] if made.regions else None
    sizes = ShapeEnv(made.samples)
    order = region.order if region else []
    own = region.work if region and not region.on_stack else []
    results: list[Value] = []
    for op in made.ops:
        if region is None or op.operator is not region:
            raise NoCode(made.explain_machine())
        results = [*op.outputs]
    if any(0 in value.shape for value in (*made.inputs, *results, *made.outputs)):
        raise NoCode("a tensor of it has no elements; give some samples for code")
    if places is None:
        places = range(len(made.inputs))
    given = dict(zip(places, made.inputs, strict=True))
    at = {value: f"i {place + 1}" for place, value in given.items()}
    for value, tensor in made.constants.items():
        if not tensor.is_contiguous() or not tensor.place.is_cpu_place():
            raise NoCode(
                "a constant of it has gaps between elements; make it contiguous"
            )
        at[value] = f"c {tensor.data_ptr()}"
    at.update({value: f"o {k + 1}" for k, value in enumerate(results)})

    def size(value: Value | None) -> str:
        if value is None:
            return "none 0"
        each = (f"{e.factor} {e.power}" for e in map(sizes.of, reversed(value.shape)))
        return " ".join([value.dtype, str(len(value.shape)), *each])

    def listed(items: Iterable[str]) -> str:
        row = [*items]
        return " ".join([str(len(row)), *row])

    parts = [
        str(region.address if region else 0),
        str(int(region.may_bail_out if region else 0)),
        _samples(made, given),
        listed(size(given.get(k)) for k in range(1 + max(given, default=-1))),
        listed(at[value] for value in order),
        listed(f"{e.factor} {e.power}" for e in own),
        listed(map(size, results)),
        listed(f"{at[value]} {size(value)}" for value in made.outputs),
    ]
    owner = region and region.code, [*made.constants.values()]
    return Code(" ".join(parts), owner)


def _samples(program: Program, given: dict[int, Value]) -> str:
    if program.samples is None:
        return "0 0 0 0"
    size, varying, most = program.samples
    for k, value in given.items():
        for axis, result in enumerate(value.shape):
            if result in varying:
                where = f"{k + 1} {len(value.shape) - axis} {result // size}"
                return f"{where} {most}"
    raise NoCode(
        "no input of it tells the number of samples; give them as the first axis"
    )


class VJPCode:
    """The forward and backward pass of a kind of calls, as Julia calls them.

    Args:
        way: its programs.
        places: the place of each leaf among a call's arguments.
        params: how many of the arguments are parameters.

    Raises:
        NoCode: the forward pass is more or less than one function.
    """

    def __init__(self, way: CompiledVJP, places: Sequence[int], params: int) -> None:
        self._way, self._params = way, params
        tensors = _input_places(way.forward_backward.forward, places)
        self._at = [places[leaf] for leaf in way.grad_leaves]
        self.forward_backward = code_of(way.forward_backward.forward, tensors)

    @property
    def facts(self) -> str:
        """Return the number of outputs, then the places of those with a cotangent."""
        count, seeds = self._way.forward_backward.count, self._way.seeds
        return " ".join(map(str, (count, *(i + 1 for i in seeds))))

    def back(
        self, params: bool | tuple[bool, ...], inputs: bool, given: tuple[bool, ...]
    ) -> tuple[str, str, Any] | None:
        """Return the places of the gradients that exist, the code, and its owner."""
        flags = [*each(params, self._params)]
        requested = tuple(flags[i] if i < len(flags) else inputs for i in self._at)
        program, has = self._way.forward_backward.backward_program(requested, given)
        wanted = [i for i, flag in zip(self._at, requested, strict=True) if flag]
        results = [str(i + 1) for i, flag in zip(wanted, has, strict=True) if flag]
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


def told(find: Callable[..., CompiledCall]) -> Callable[..., CompiledCall]:
    """Have a function say why there is no code, where it would raise that."""

    @functools.wraps(find)
    def answer(*args: Any) -> CompiledCall:
        try:
            return find(*args)
        except (NoCode, CaptureError) as error:
            return CompiledCall(str(error))
        except Exception as error:  # as programs do that can't be compiled
            why = f"machine code can't be made of it ({error})"
            remedy = f"reinstall llvmlite, or set {LOOPS}=off"
            warnings.warn(f"{why}; {remedy}", stacklevel=2)
            return CompiledCall(why)

    return answer


@told
def code(
    net: Net, back: bool, params: Any, row: tuple[Any, ...], arguments: Arguments
) -> CompiledCall:
    """Return the code of calls of a net like this one.

    Args:
        back: whether the backward pass is wanted, too.
        row: the arguments, nested by ``arguments``.
    """
    return _code(net, back, params, row, *arguments(row))


def _code(
    net: Net,
    back: bool,
    params: Any,
    row: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> CompiledCall:
    programs = net._programs
    if programs is None:
        raise NoCode("it does not run as programs; make the net with jit = true")
    if RESERVED & kwargs.keys() or (
        isinstance(net, FlatArgsNet) and net.is_seeded(row)
    ):
        raise NoCode("it is given a seed or buffers; call it without for code")
    tensors = [params] if isinstance(params, Tensor) else [*params.values()]
    at = {id(x): k for k, x in enumerate((*tensors, *row)) if isinstance(x, Tensor)}
    inputs = CallInputs(net.spec, params, args, kwargs)
    if back:
        way, leaves = programs.way(inputs)
        structure, captured, count = (
            way.structure,
            way.captured,
            way.forward_backward.count,
        )
    else:
        result, leaves = programs.value(inputs)
        structure, captured = result.structure, result.captured
        count = len(captured.program.outputs)
    if len(captured.outputs) != count or structure.buffers is not None:
        raise NoCode(
            "it gives something that is no tensor, or new buffers; give tensors alone"
        )
    places = [at.get(id(leaf), -1) for leaf in leaves]
    nested = structure.output.unflatten([None] * structure.number)
    if not back:
        value = code_of(captured.program, _input_places(captured.program, places))
        return CompiledCall("", value.text, value.owner, nested)
    made = VJPCode(way, places, len(tensors))
    if made.back(True, True, (True,) * len(way.seeds)) is None:
        raise NoCode(
            "its pullback is more than one function of machine code; put what has no "
            "rule into a net of its own"
        )
    return CompiledCall("", made.forward_backward.text, made, nested)


def _input_places(program: Program, places: Sequence[int]) -> list[int]:
    """Return the places of a program's inputs, of those of all leaves."""
    results = [place for place in places if place >= 0]
    if len(results) != len(program.inputs):
        raise NoCode("its arguments are no plain tensors; give it arrays alone")
    return results
