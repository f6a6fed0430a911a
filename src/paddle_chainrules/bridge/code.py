"""Programs that are one function of machine code, as Julia calls them.

Julia needs the function's address, what goes into its block of addresses, and the sizes
of all of it; from then on a call enters no Python. The sizes are multiples of powers of
the number of samples where the program serves any number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from paddle import Tensor

from ..nets.known_calls import KnownCalls, Structure
from ..nets.selection import each
from ..programs import switch
from ..programs.capture import Captured
from ..programs.loops.extents import Sizes
from ..programs.loops.views import KEEP_ORDER
from ..programs.operations import Value
from ..programs.program import Program
from ..programs.switch import loops_are_on, programs_are_on
from ..transforms.program_recording import Way


def patience() -> int:
    """Calls of a kind before Julia asks for code; negative where there is none."""
    return switch.PATIENCE if programs_are_on() and loops_are_on() else -1


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


def code_of(program: Program) -> Code:
    """The code of a program.

    The text has, one after another, each a number or a word:

    - the address of the function, 0 where nothing is computed;
    - the number of samples: the input that tells it, the dimension, counted from one as
      Julia does, and how many elements a sample has there; zeros where it is fixed;
    - the inputs: how many, then for each its dtype, and its size as Julia has it;
    - the block: how many addresses, then for each ``i`` and an input, ``c`` and an
      address of a constant, or ``o`` and a result;
    - memory for what is in between: how many parts, then of each the bytes;
    - the results: how many, and each as an input;
    - the outputs: how many, and for each where it is, as in the block, and as an input.

    A size is its number of dimensions, and a factor and a power for each.

    Raises:
        NoCode: it is more or less than one function.
    """
    if program.draws:
        raise NoCode("it draws random numbers")
    made = program.as_code
    if len(made.regions) > 1:
        raise NoCode(program.explain_machine())
    region = made.regions[0] if made.regions else None
    places: dict[Value, str] = {}
    for k, value in enumerate(made.inputs):
        places[value] = f"i {k + 1}"
    for value, tensor in made.constants.items():
        if not tensor.is_contiguous() or not tensor.place.is_cpu_place():
            raise NoCode("a constant of it has gaps between elements")
        places[value] = f"c {tensor.data_ptr()}"
    results: list[Value] = []
    for op in made.ops:
        if region is not None and op.operator is region:
            results = [*op.outputs]
            places.update({v: f"o {k + 1}" for k, v in enumerate(results)})
        elif op.operator.name in KEEP_ORDER and op.inputs[0] in places:
            places[op.outputs[0]] = places[op.inputs[0]]
        else:
            raise NoCode(program.explain_machine())
    if any(0 in value.shape for value in (*made.inputs, *results, *made.outputs)):
        raise NoCode("a tensor of it has no elements")
    sizes = Sizes(made.samples)

    def size(value: Value) -> str:
        each = (f"{e.factor} {e.power}" for e in map(sizes.of, reversed(value.shape)))
        return " ".join([value.dtype, str(len(value.shape)), *each])

    def listed(items: Iterable[str]) -> str:
        row = [*items]
        return " ".join([str(len(row)), *row])

    samples = _samples(made)
    order = region.order if region else []
    own = region.work if region and not region.on_stack else []
    work = (f"{e.factor} {e.power}" for e in own)
    parts = [
        str(region.address if region else 0),
        samples,
        listed(map(size, made.inputs)),
        listed(places[value] for value in order),
        listed(work),
        listed(map(size, results)),
        listed(f"{places[value]} {size(value)}" for value in made.outputs),
    ]
    return Code(" ".join(parts), (region and region.code, [*made.constants.values()]))


def _samples(program: Program) -> str:
    if program.samples is None:
        return "0 0 0"
    size, varying = program.samples
    for k, value in enumerate(program.inputs):
        for axis, found in enumerate(value.shape):
            if found in varying:
                return f"{k + 1} {len(value.shape) - axis} {found // size}"
    raise NoCode("no input of it tells the number of samples")


class WayCode:
    """The way there and back of a kind of calls, as Julia calls it.

    Args:
        way: its programs.
        params: how many of the leaves are parameters.

    Raises:
        NoCode: the way there is more or less than one function.
    """

    def __init__(self, way: Way, params: int) -> None:
        self._way, self._params = way, params
        self.there = code_of(way.there.forward)
        self.structure = _structure(way.structure)

    @property
    def facts(self) -> str:
        """How many outputs there are, then the places of those with a cotangent."""
        return " ".join(map(str, (self._way.there.count, *(i + 1 for i in self._way.seeds))))

    def back(
        self, params: bool | tuple[bool, ...], inputs: bool, given: tuple[bool, ...]
    ) -> tuple[str, str, Any] | None:
        """Which of the gradients there are, by their places, the code, and its owner.

        None where it is more or less than one function.

        Args:
            params: which parameters' gradients are wanted, one flag or one of each.
            inputs: whether those of the inputs are.
            given: of each cotangent whether it is more than zeros.
        """
        way = self._way
        flags = [*each(params, self._params)]
        flags += [inputs] * (len(way.there.forward.inputs) - len(flags))
        wanted = [place + 1 for place in way.places if flags[place]]
        program, has = way.there.back(tuple(flags[i] for i in way.places), given)
        found = [str(p) for p, flag in zip(wanted, has, strict=True) if flag]
        try:
            return " ".join(found), *code_of(program)
        except NoCode:
            return None


def _structure(structure: Structure) -> Any:
    """How outputs are nested, with None for each; None for one alone."""
    if structure.buffers is not None:
        raise NoCode("it gives new buffers")
    return structure.output.unflatten([None] * structure.number)


class Found(NamedTuple):
    """What Julia gets that asks for code.

    Attributes:
        why: there is none; empty where there is.
        owner: of a value what keeps its code alive, of a way its :class:`WayCode`.
        structure: how outputs are nested.
    """

    why: str
    text: str = ""
    owner: Any = None
    structure: Any = None


NOT_YET = Found("no program serves calls of this kind yet")


def value_code(known: KnownCalls | None, params: Any, row: tuple[Any, ...]) -> Found:
    """The code of a net's value at such parameters and arguments."""
    found = known and known.value(params, row)[0]
    if not found:
        return NOT_YET
    of = found.found
    try:
        _check(of.captured, len(of.captured.program.outputs))
        code = code_of(of.captured.program)
        return Found("", code.text, code.owner, _structure(of.structure))
    except NoCode as error:
        return Found(str(error))


def way_code(known: KnownCalls | None, params: Any, row: tuple[Any, ...]) -> Found:
    """The same of the way there and back; the text is that of the way there."""
    found = known and known.way(params, row)[0]
    if not found:
        return NOT_YET
    way = found.way
    try:
        _check(way.captured, way.there.count)
        count = 1 if isinstance(params, Tensor) else len(params)
        made = WayCode(way, count)
        if made.back(True, True, (True,) * len(way.seeds)) is None:
            return Found("its way back is more than one function of machine code")
        return Found("", made.there.text, made, made.structure)
    except NoCode as error:
        return Found(str(error))


def _check(captured: Captured, outputs: int) -> None:
    if captured.is_stale():
        raise NoCode("what it was captured of has changed")
    if len(captured.outputs) != outputs:
        raise NoCode("it gives something that is no tensor")
