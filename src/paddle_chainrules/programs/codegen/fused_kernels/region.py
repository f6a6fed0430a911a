"""A stretch of a program as one function of machine code: a fused kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, cached_property
from operator import attrgetter
from struct import Struct
from struct import error as struct_error
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import dtype_name
from ....paddle_side.interception import RAW
from ....paddle_side.shared_memory import without_gaps
from ...operators.entry import Operator
from ...sizes.samples import Samples
from ...tracing.operations import Value
from .. import threads
from ..ir_builder import BYTES, FLAG, FunctionBuilder
from ..lowering import Stage, StageBuilder
from ..views import BufferView
from .entries import Enter, entry
from .plan import ALIGNED, BufferAssignment, planned
from .tile_fusion import in_blocks
from .workspace import CPU, borrowed, give_back

ADDRESS, SIZE = Tensor.data_ptr, Tensor.element_size
WITHOUT_GAPS, SHAPE = Tensor.is_contiguous, attrgetter("shape")

ON_STACK = 1 << 15
"""The most bytes of intermediate results that lie on the stack."""

CHECKED = 4
"""One of this many loops and products checks the flag."""

PART = 32
"""The most loops and products of a function. With more, LLVM takes much longer."""

MAX_ALIKE_APART = 2
"""The number of such functions above which equal steps share one function."""

FIRST = FLAG + 1
"""The place in the block of the first tensor's address."""

_zero = ctypes.c_int32(0)
NEVER = ctypes.addressof(_zero)
"""The address of the flag of calls from Python. No interrupt ends these."""


class OutlinedStages:
    """Steps as functions. Steps that do the same to other memory share one."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    @property
    def texts(self) -> Iterator[str]:
        """The texts of the functions."""
        return (text.replace("@NAME.step", name) for text, name in self._names.items())

    def emit_call(
        self, step: Stage, ir: FunctionBuilder, address: Callable[[BufferView], str]
    ) -> None:
        """Write a call of the function of a step."""
        own, given = self._own(step)
        names = ", ".join(f"ptr %a{k}" for k in range(len(given)))
        own.head = f"internal i1 @NAME.step(ptr noalias %block, {names}) noinline"
        name = self._named(own, ir)
        places = ", ".join(f"ptr {address(view)}" for view in given)
        is_left = ir.emit(f"call i1 {name}(ptr %block, {places})", "left")
        if step.may_bail_out or step.is_long:
            ir.bailout_if(is_left)

    def emit_parallel_call(
        self, step: Stage, ir: FunctionBuilder, address: Callable[[BufferView], str]
    ) -> None:
        """Write a call that lets threads share the function of a step."""
        assert step.parallel_ops is not None
        if step.emit_prologue:
            step.emit_prologue(ir, address)
        own, given = self._own(step, is_shared=True)
        own.head = threads.HEAD
        own.prepend_entry(
            threads.load_arguments(["%block", *(f"%a{k}" for k in range(len(given)))])
        )
        name = self._named(own, ir)
        pointers = ["%block", *map(address, given)]
        threads.emit_parallel_call(ir, name, pointers, step.parallel_ops)

    def _own(
        self, step: Stage, is_shared: bool = False
    ) -> tuple[FunctionBuilder, list[BufferView]]:
        """Return the text of a step's function, and the views whose addresses it takes.

        It is given their addresses.
        """
        own = FunctionBuilder()
        own.is_parallel = is_shared
        given: dict[tuple[Any, ...], tuple[str, BufferView]] = {}

        def argument(view: BufferView) -> str:
            place = view.buffer, view.offset
            return given.setdefault(place, (f"%a{len(given)}", view))[0]

        step.emit(own, argument)
        return own, [view for _, view in given.values()]

    def _named(self, own: FunctionBuilder, ir: FunctionBuilder) -> str:
        """Return the name of a function. Its notes go where it is called."""
        rows = str(own).split("\n")
        ir.lines += [row.strip() for row in rows if row.startswith("  ;")]
        body = "\n".join(row for row in rows if not row.startswith("  ;"))
        return self._names.setdefault(body, f"@NAME.step.{len(self._names)}")


class Region(Operator):
    """An operator that is one function of machine code.

    It takes the address of a block of eight bytes each: the number of samples, then the
    addresses of a flag, of inputs, of outputs, and of memory for intermediate results.
    The flag has four bytes. Where it is no longer zero, the function ends early and
    says so.

    Attributes:
        ops: the operations that it does.
        order: the tensors whose addresses it takes, inputs first.
        text: its text, in LLVM's language.
        code: the machine code.
        work: the bytes of further memory that it needs, by the number of samples.
        may_leave: whether it ends early where an index is out of range.
    """

    def __init__(
        self, builder: StageBuilder, outputs: Sequence[Value], samples: Samples | None
    ) -> None:
        super().__init__("region", "", run=_no_operator)
        self.ops = tuple(builder.ops)
        self._inputs, self._outputs = [*builder.inputs], [*outputs]
        self.order = [v for v in (*builder.inputs, *outputs) if 0 not in v.shape]
        self._samples = samples
        self._shape_env = builder.shape_env
        given = {view.buffer for view in builder.inputs.values()}
        ends = [builder.views[value].buffer for value in outputs]
        self._placed = builder.elide_copies(ends)
        there = {*given, *self._placed, *ends}
        builder.stages = in_blocks(builder.stages, there, self._placed, self._shape_env)
        plan = planned(builder.stages, there, ())
        self.work = plan.bytes
        n = samples.size if samples else 0
        self.may_bail_out = any(step.may_bail_out for step in builder.stages)
        self.work_bytes = sum(each.at(n) for each in self.work)
        self.on_stack = samples is None and self.work_bytes <= ON_STACK
        self.left_bytes = 0 if self.on_stack else self.work_bytes
        self.text = self._written(builder, plan)
        self.code: Callable[[bytes], bool] = _no_operator

    @property
    def address(self) -> int:
        """The address of the code."""
        return ctypes.cast(self.code, ctypes.c_void_p).value or 0  # type: ignore[arg-type]

    def _written(self, builder: StageBuilder, plan: BufferAssignment) -> str:
        """Return the text of the function, and of those that it calls in order.

        LLVM takes much longer for large functions. So these are split.
        """
        starts = range(0, len(builder.stages), PART)
        parts = [builder.stages[start : start + PART] for start in starts]
        alike, all_alike = OutlinedStages(), len(parts) > MAX_ALIKE_APART
        texts = [
            self._part(k, part, builder, plan, alike, all_alike)
            for k, part in enumerate(parts)
        ]
        whole = FunctionBuilder()
        for place, value in enumerate(self.order, FIRST):
            whole.line(f"; {place}: {value!r}")
        work = "null"
        if self.on_stack and plan.bytes:
            work = whole.alloca(self.work_bytes, ALIGNED)
        elif plan.bytes:
            given = whole.load_slot(FIRST + len(self.order), "ptr", "work")
            work = whole.aligned(given, ALIGNED)
        for k in range(len(parts)):
            is_left = whole.emit(f"call i1 @NAME.{k}(ptr %block, ptr {work})", "left")
            whole.bailout_if(is_left)
        return "\n\n".join(map(str, [*alike.texts, *texts, whole]))

    def _part(
        self,
        k: int,
        part: Sequence[Stage],
        builder: StageBuilder,
        plan: BufferAssignment,
        alike: OutlinedStages,
        all_alike: bool,
    ) -> FunctionBuilder:
        ir = FunctionBuilder(
            f"internal i1 @NAME.{k}(ptr noalias %block, ptr %work) noinline"
        )
        places = {v: place for place, v in enumerate(self.order, FIRST)}
        bases = {
            builder.views[value].buffer: places.get(value)
            for value in (*self._inputs, *self._outputs)
        }

        def address(view: BufferView) -> str:
            memory = view.buffer
            if memory in self._placed:
                base = address(self._placed[memory])
            elif memory not in bases:
                base = ir.hoisted_address(
                    "%work", "bool", plan.starts[plan.slots[memory]]
                )
            elif bases[memory] is None:
                return "null"  # it has no elements
            else:
                base = ir.load_slot(bases[memory] or 0, "ptr", "p")
            return ir.hoisted_address(base, memory.dtype, view.offset)

        for k, step in enumerate(part):
            if not self.on_stack and k % CHECKED == 0:
                ir.poll_cancel()
            if threads.may_share(step.parallel_ops):
                alike.emit_parallel_call(step, ir, address)
            elif all_alike:
                alike.emit_call(step, ir, address)
            else:
                step.emit(ir, address)
        return ir

    def lines(
        self,
        named: Callable[[Any, str], str],
        text: Callable[[Any], str],
        looked_at: Sequence[Value],
        trusted: Collection[Value],
        otherwise: str,
    ) -> Iterator[str]:
        """Give Python lines that run it, where ``n`` is the number of samples.

        Args:
            named: gives a name for an object.
            text: gives the text of a value.
            looked_at: inputs that may differ from those of the capture.
            trusted: inputs that may differ only in their gaps.
            otherwise: an expression for the program's results where it ends early.
        """
        outputs = ", ".join(map(text, self._outputs))
        enter = self.entry
        if enter is None:
            yield from self._by_python(named, text, looked_at, trusted, otherwise)
            return
        inputs = ", ".join(map(text, self._inputs))
        yield f"made = {named(enter, 'enter')}({inputs})"
        yield "if made is None:"
        rest = self._by_python(named, text, looked_at, trusted, otherwise)
        yield from (f"    {line}" for line in rest)
        yield "else:"
        yield f"    [{outputs}] = made"
        yield "del made"

    @cached_property
    def entry(self) -> Enter | None:
        """The builtin function that runs it, with its code; None if there is none."""
        if len(self.order) != len(self._inputs) + len(self._outputs):
            return None  # some have no elements
        work: dict[int, int] = {}
        if self.work and not self.on_stack:
            work = {0: ALIGNED}
            for factor, power in self.work:
                work[power] = work.get(power, 0) + factor
        return entry(
            self.code,
            self._inputs,
            self._outputs,
            shape_env=self._shape_env,
            work=work,
            flag=NEVER,
            may_bail_out=self.may_bail_out,
        )

    def _by_python(
        self,
        named: Callable[[Any, str], str],
        text: Callable[[Any], str],
        looked_at: Sequence[Value],
        trusted: Collection[Value],
        otherwise: str,
    ) -> Iterator[str]:
        """Give lines that check tensors and make results in Python."""
        cpu, empty = named(CPU, "cpu"), named(RAW.empty, "empty")
        samples = "0" if self._samples is None else "n"
        if others := [value for value in looked_at if value not in trusted]:
            yield from self._check(named, text, others)
        if known := [value for value in looked_at if value in trusted]:
            names = ", ".join(map(text, known))
            has_none = named(WITHOUT_GAPS, "has_no_gaps")
            yield f"given = [{names}]"
            yield f"if not all(map({has_none}, given)):"
            yield f"    [{names}] = {named(all_without_gaps, 'without_gaps')}(given)"
        for out in self._outputs:
            dtype = named(getattr(paddle, out.dtype), out.dtype)
            yield f"{text(out)} = {empty}({self._shape(out)}, {dtype}, {cpu})"
        tensors = [text(v) for v in self.order]
        if self.work and not self.on_stack:
            yield f"memory = {named(borrowed, 'borrowed')}({self._work_size()})"
            tensors.append("memory[1]")
        count = FIRST + len(tensors)
        pack = named(_pack(count), f"pack{count}")
        places = f"*map({named(ADDRESS, 'address')}, [{', '.join(tensors)}])"
        yield "try:"
        given = f"{samples}, {named(NEVER, 'never')}, {places}"
        call = f"{named(self.code, 'region')}({pack}({given}))"
        yield f"    is_left = {call}" if self.may_bail_out else f"    {call}"
        yield f"except {named(struct_error, 'no_address')}:"
        yield f"    raise {named(without_memory, 'without_memory')}() from None"
        if self.work and not self.on_stack:
            yield f"{named(give_back, 'give_back')}(memory)"
            yield "del memory"
        if self.may_bail_out:
            yield f"if is_left: return {otherwise}"

    def _check(
        self,
        named: Callable[[Any, str], str],
        text: Callable[[Any], str],
        values: Sequence[Value],
    ) -> Iterator[str]:
        """Give lines that check tensors before their addresses are taken."""
        rows = [self._shape(value) for value in values]
        shapes = f"[{', '.join(rows)}]"
        if self._samples is None:
            shapes = named([[*value.shape] for value in values], "shapes")
        sizes = named([BYTES[value.dtype] for value in values], "sizes")
        dtypes = named([value.dtype for value in values], "dtypes")
        names = ", ".join(map(text, values))
        yield f"given = [{names}]"
        yield f"if not {named(is_as, 'is_as')}(given, {shapes}, {sizes}):"
        fitting = f"{named(fitted, 'fitted')}(given, {shapes}, {dtypes})"
        yield f"    [{names}] = {fitting}"

    def _work_size(self) -> str:
        """Write the bytes of intermediate results as a Python expression."""
        sums = {0: ALIGNED - 1}
        for factor, power in self.work:
            sums[power] = sums.get(power, 0) + factor
        return " + ".join(f"{f} * n**{p}" if p else f"{f}" for p, f in sums.items())

    def _shape(self, value: Value) -> str:
        return f"[{', '.join(map(self._size, value.shape))}]"

    def _size(self, size: int) -> str:
        factor, power = self._shape_env.extent(size)
        return f"{factor} * n" if power and factor != 1 else "n" if power else f"{size}"


def is_as(given: list[Tensor], shapes: list[list[int]], sizes: list[int]) -> bool:
    """Tell whether tensors have these shapes and element sizes, and no gaps."""
    return (
        [*map(SHAPE, given)] == shapes
        and [*map(SIZE, given)] == sizes
        and all(map(WITHOUT_GAPS, given))
    )


def fitted(
    given: list[Tensor], shapes: list[list[int]], dtypes: list[str]
) -> list[Tensor]:
    """Return the tensors, or copies without gaps.

    Raises:
        ValueError: one has another shape or dtype.
    """
    for i, x in enumerate(given):
        result = f"{dtype_name(x.dtype)}{list(x.shape)}"
        if result != (expected := f"{dtypes[i]}{shapes[i]}"):
            raise ValueError(
                f"a tensor that a program reads is {result}, and was {expected} when "
                "it was captured; leave shapes and dtypes of parameters, constants and "
                "what a pullback needs as they are, or make new tensors"
            )
    return all_without_gaps(given)


def all_without_gaps(given: list[Tensor]) -> list[Tensor]:
    """Return the tensors, or copies of those that have gaps between elements."""
    return [*map(without_gaps, given)]


def without_memory() -> ValueError:
    """Return the error for a tensor without an address."""
    return ValueError(
        "a tensor that a program reads has no memory any more; keep parameters, "
        "constants and what a pullback needs until it was called"
    )


@cache
def _pack(count: int) -> Callable[..., bytes]:
    return Struct(f"{count}q").pack


def _no_operator(*_: Any) -> Any:
    raise NotImplementedError(
        "a region is a kernel that runs within its program alone, and no operator of "
        "its own; call the program instead"
    )
