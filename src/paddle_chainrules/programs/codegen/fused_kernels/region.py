"""A stretch of a program as one function of machine code: a fused kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, cached_property
from struct import Struct
from struct import error as struct_error
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.devices import ON_CPU_ALONE, are_on_cpu
from ....paddle_side.dtypes import dtype_name
from ....paddle_side.interception import RAW
from ....paddle_side.shared_memory import ADDRESS, SHAPE, WITHOUT_GAPS, without_gaps
from ....paddle_side.workspace import CPU, borrow_memory, return_memory
from ...operators.entry import Operator
from ...sizes.samples import Samples
from ...tracing.operations import Value
from .. import threads
from ..ir_builder import BYTES, FLAG, FunctionBuilder
from ..lowering import Stage, StageBuilder
from ..views import BufferView
from .entries import Enter, entry
from .plan import ALIGNED, BufferAssignment, assign_buffers
from .tile_fusion import tile_chains

SIZE = Tensor.element_size

MAX_STACK_BYTES = 1 << 15
"""The most bytes of intermediate results on the stack."""

STAGES_PER_POLL = 4
"""One of this many stages polls the cancel flag."""

STAGES_PER_FUNCTION = 32
"""The most stages of a function. With more, LLVM takes much longer."""

MAX_UNSHARED_FUNCTIONS = 2
"""The number of such functions above which equal stages share one function."""

FIRST = FLAG + 1
"""The block's slot of the first tensor's address."""

_zero = ctypes.c_int32(0)
NEVER = ctypes.addressof(_zero)
"""The address of the flag of calls from Python. No interrupt ends these."""


class OutlinedStages:
    """Stages as functions. Stages that are equal but for addresses share one."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    @property
    def texts(self) -> Iterator[str]:
        """The texts of the functions."""
        return (body.replace("@NAME.step", name) for body, name in self._names.items())

    def emit_call(
        self, stage: Stage, ir: FunctionBuilder, address: Callable[[BufferView], str]
    ) -> None:
        """Emit a call of a stage's function."""
        function, views = self._build_function(stage)
        names = ", ".join(f"ptr %a{k}" for k in range(len(views)))
        function.head = f"internal i1 @NAME.step(ptr noalias %block, {names}) noinline"
        name = self._intern_function(function, ir)
        pointers = ", ".join(f"ptr {address(view)}" for view in views)
        has_bailed_out = ir.emit(f"call i1 {name}(ptr %block, {pointers})", "left")
        if stage.may_bail_out or stage.is_long:
            ir.bailout_if(has_bailed_out)

    def emit_parallel_call(
        self, stage: Stage, ir: FunctionBuilder, address: Callable[[BufferView], str]
    ) -> None:
        """Emit a call that runs a stage's function on all threads."""
        assert stage.parallel_ops is not None
        if stage.emit_prologue:
            stage.emit_prologue(ir, address)
        function, views = self._build_function(stage, is_parallel=True)
        function.head = threads.HEAD
        function.prepend_entry(
            threads.load_arguments(["%block", *(f"%a{k}" for k in range(len(views)))])
        )
        name = self._intern_function(function, ir)
        pointers = ["%block", *map(address, views)]
        threads.emit_parallel_call(ir, name, pointers, stage.parallel_ops)

    def _build_function(
        self, stage: Stage, is_parallel: bool = False
    ) -> tuple[FunctionBuilder, list[BufferView]]:
        """Build a stage's function; return it and the views that are its arguments."""
        function = FunctionBuilder()
        function.is_parallel = is_parallel
        arguments: dict[tuple[Any, ...], tuple[str, BufferView]] = {}

        def name_argument(view: BufferView) -> str:
            origin = view.buffer, view.offset
            return arguments.setdefault(origin, (f"%a{len(arguments)}", view))[0]

        stage.emit(function, name_argument)
        return function, [view for _, view in arguments.values()]

    def _intern_function(self, function: FunctionBuilder, ir: FunctionBuilder) -> str:
        """Return the name of a function, the same for equal ones; move its comments."""
        rows = str(function).split("\n")
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
        text: its LLVM text.
        code: the machine code.
        work: the bytes of further memory that it needs, by the number of samples.
        may_bail_out: whether it ends early where an index is out of range.
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
        input_buffers = {view.buffer for view in builder.inputs.values()}
        output_buffers = [builder.views[value].buffer for value in outputs]
        self._aliases = builder.elide_copies(output_buffers)
        external = {*input_buffers, *self._aliases, *output_buffers}
        builder.stages = tile_chains(
            builder.stages, external, self._aliases, self._shape_env
        )
        plan = assign_buffers(builder.stages, external, ())
        self.work = plan.bytes
        n = samples.size if samples else 0
        self.may_bail_out = any(stage.may_bail_out for stage in builder.stages)
        self.work_bytes = sum(size.at(n) for size in self.work)
        self.on_stack = samples is None and self.work_bytes <= MAX_STACK_BYTES
        self.left_bytes = 0 if self.on_stack else self.work_bytes
        self.text = self._build_text(builder, plan)
        self.code: Callable[[bytes], bool] = _no_operator

    @property
    def address(self) -> int:
        """The address of the code."""
        return ctypes.cast(self.code, ctypes.c_void_p).value or 0  # type: ignore[arg-type]

    def _build_text(self, builder: StageBuilder, plan: BufferAssignment) -> str:
        """Return the text of the function, and of those that it calls in order.

        LLVM takes much longer for large functions. So these are split.
        """
        starts = range(0, len(builder.stages), STAGES_PER_FUNCTION)
        chunks = [
            builder.stages[start : start + STAGES_PER_FUNCTION] for start in starts
        ]
        outlined, outline_all = OutlinedStages(), len(chunks) > MAX_UNSHARED_FUNCTIONS
        texts = [
            self._build_subfunction(k, chunk, builder, plan, outlined, outline_all)
            for k, chunk in enumerate(chunks)
        ]
        main = FunctionBuilder()
        for slot, value in enumerate(self.order, FIRST):
            main.line(f"; {slot}: {value!r}")
        work = "null"
        if self.on_stack and plan.bytes:
            work = main.alloca(self.work_bytes, ALIGNED)
        elif plan.bytes:
            work_pointer = main.load_slot(FIRST + len(self.order), "ptr", "work")
            work = main.aligned(work_pointer, ALIGNED)
        for k in range(len(chunks)):
            has_bailed_out = main.emit(
                f"call i1 @NAME.{k}(ptr %block, ptr {work})", "left"
            )
            main.bailout_if(has_bailed_out)
        return "\n\n".join(map(str, [*outlined.texts, *texts, main]))

    def _build_subfunction(
        self,
        k: int,
        chunk: Sequence[Stage],
        builder: StageBuilder,
        plan: BufferAssignment,
        outlined: OutlinedStages,
        outline_all: bool,
    ) -> FunctionBuilder:
        ir = FunctionBuilder(
            f"internal i1 @NAME.{k}(ptr noalias %block, ptr %work) noinline"
        )
        slot_of = {v: slot for slot, v in enumerate(self.order, FIRST)}
        base_slots = {
            builder.views[value].buffer: slot_of.get(value)
            for value in (*self._inputs, *self._outputs)
        }

        def address(view: BufferView) -> str:
            buffer = view.buffer
            if buffer in self._aliases:
                base = address(self._aliases[buffer])
            elif buffer not in base_slots:
                base = ir.hoisted_address(
                    "%work", "bool", plan.starts[plan.slots[buffer]]
                )
            elif base_slots[buffer] is None:
                return "null"  # it has no elements
            else:
                base = ir.load_slot(base_slots[buffer] or 0, "ptr", "p")
            return ir.hoisted_address(base, buffer.dtype, view.offset)

        for k, stage in enumerate(chunk):
            if not self.on_stack and k % STAGES_PER_POLL == 0:
                ir.poll_cancel()
            if threads.may_share(stage.parallel_ops):
                outlined.emit_parallel_call(stage, ir, address)
            elif outline_all:
                outlined.emit_call(stage, ir, address)
            else:
                stage.emit(ir, address)
        return ir

    def lines(
        self,
        name_of: Callable[[Any, str], str],
        value_text: Callable[[Any], str],
        checked: Sequence[Value],
        trusted: Collection[Value],
        fallback: str,
    ) -> Iterator[str]:
        """Give Python lines that run it, where ``n`` is the number of samples.

        Args:
            name_of: gives a Python name for an object.
            value_text: gives the Python expression of a value.
            checked: inputs that may differ from those of the capture.
            trusted: inputs that may differ only in their gaps.
            fallback: an expression for the program's results where it ends early.
        """
        outputs = ", ".join(map(value_text, self._outputs))
        enter = self.entry
        if enter is None:
            yield from self._python_call_lines(
                name_of, value_text, checked, trusted, fallback
            )
            return
        inputs = ", ".join(map(value_text, self._inputs))
        yield f"made = {name_of(enter, 'enter')}({inputs})"
        yield "if made is None:"
        call_lines = self._python_call_lines(
            name_of, value_text, checked, trusted, fallback
        )
        yield from (f"    {line}" for line in call_lines)
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

    def _python_call_lines(
        self,
        name_of: Callable[[Any, str], str],
        value_text: Callable[[Any], str],
        checked: Sequence[Value],
        trusted: Collection[Value],
        fallback: str,
    ) -> Iterator[str]:
        """Give Python lines that check tensors, allocate outputs and call the code."""
        if not ON_CPU_ALONE:
            inputs = "".join(f"{value_text(value)}, " for value in self._inputs)
            on_cpu = name_of(are_on_cpu, "are_on_cpu")
            yield f"if not {on_cpu}(({inputs})): return {fallback}"
        cpu, empty = name_of(CPU, "cpu"), name_of(RAW.empty, "empty")
        samples = "0" if self._samples is None else "n"
        if untrusted := [value for value in checked if value not in trusted]:
            yield from self._check_lines(name_of, value_text, untrusted)
        if trusted_inputs := [value for value in checked if value in trusted]:
            names = ", ".join(map(value_text, trusted_inputs))
            has_none = name_of(WITHOUT_GAPS, "has_no_gaps")
            yield f"given = [{names}]"
            yield f"if not all(map({has_none}, given)):"
            yield f"    [{names}] = {name_of(all_without_gaps, 'without_gaps')}(given)"
        for out in self._outputs:
            dtype = name_of(getattr(paddle, out.dtype), out.dtype)
            yield (
                f"{value_text(out)} = {empty}({self._shape_text(out)}, {dtype}, {cpu})"
            )
        tensors = [value_text(v) for v in self.order]
        if self.work and not self.on_stack:
            yield f"memory = {name_of(borrow_memory, 'borrowed')}({self._work_size()})"
            tensors.append("memory[1]")
        count = FIRST + len(tensors)
        pack = name_of(_pack(count), f"pack{count}")
        addresses = f"*map({name_of(ADDRESS, 'address')}, [{', '.join(tensors)}])"
        yield "try:"
        block_args = f"{samples}, {name_of(NEVER, 'never')}, {addresses}"
        call = f"{name_of(self.code, 'region')}({pack}({block_args}))"
        yield f"    is_left = {call}" if self.may_bail_out else f"    {call}"
        yield f"except {name_of(struct_error, 'no_address')}:"
        yield f"    raise {name_of(without_memory, 'without_memory')}() from None"
        if self.work and not self.on_stack:
            yield f"{name_of(return_memory, 'give_back')}(memory)"
            yield "del memory"
        if self.may_bail_out:
            yield f"if is_left: return {fallback}"

    def _check_lines(
        self,
        name_of: Callable[[Any, str], str],
        value_text: Callable[[Any], str],
        values: Sequence[Value],
    ) -> Iterator[str]:
        """Give Python lines that check tensors before their addresses are taken."""
        rows = [self._shape_text(value) for value in values]
        shapes = f"[{', '.join(rows)}]"
        if self._samples is None:
            shapes = name_of([[*value.shape] for value in values], "shapes")
        sizes = name_of([BYTES[value.dtype] for value in values], "sizes")
        dtypes = name_of([value.dtype for value in values], "dtypes")
        names = ", ".join(map(value_text, values))
        yield f"given = [{names}]"
        yield f"if not {name_of(match_layout, 'is_as')}(given, {shapes}, {sizes}):"
        replacement = f"{name_of(check_and_copy, 'fitted')}(given, {shapes}, {dtypes})"
        yield f"    [{names}] = {replacement}"

    def _work_size(self) -> str:
        """Return the bytes of intermediate results as a Python expression."""
        sums = {0: ALIGNED - 1}
        for factor, power in self.work:
            sums[power] = sums.get(power, 0) + factor
        return " + ".join(f"{f} * n**{p}" if p else f"{f}" for p, f in sums.items())

    def _shape_text(self, value: Value) -> str:
        return f"[{', '.join(map(self._size_text, value.shape))}]"

    def _size_text(self, size: int) -> str:
        factor, power = self._shape_env.extent(size)
        return f"{factor} * n" if power and factor != 1 else "n" if power else f"{size}"


def match_layout(
    tensors: list[Tensor], shapes: list[list[int]], sizes: list[int]
) -> bool:
    """Tell whether tensors have these shapes and element sizes, and no gaps."""
    return (
        [*map(SHAPE, tensors)] == shapes
        and [*map(SIZE, tensors)] == sizes
        and all(map(WITHOUT_GAPS, tensors))
    )


def check_and_copy(
    tensors: list[Tensor], shapes: list[list[int]], dtypes: list[str]
) -> list[Tensor]:
    """Return the tensors, or copies without gaps.

    Raises:
        ValueError: one has another shape or dtype.
    """
    for i, x in enumerate(tensors):
        actual = f"{dtype_name(x.dtype)}{list(x.shape)}"
        if actual != (expected := f"{dtypes[i]}{shapes[i]}"):
            raise ValueError(
                f"a tensor that a program reads is {actual}, and was {expected} when "
                "it was captured; leave shapes and dtypes of parameters, constants and "
                "what a pullback needs as they are, or make new tensors"
            )
    return all_without_gaps(tensors)


def all_without_gaps(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors, or copies of those that have gaps between elements."""
    return [*map(without_gaps, tensors)]


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
