"""A function of tensors as a straight line of Paddle's operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from paddle import Tensor

from ...paddle_side.arguments import checked_flag, refuse_hand_made
from ...paddle_side.dtypes import dtype_name
from ...settings import loops_are_on
from ..codegen.extents import ShapeEnv, SymInt
from ..codegen.fused_kernels.entries import prepare_entries
from ..codegen.fused_kernels.region import Region
from ..codegen.fused_kernels.regions import (
    copied_views,
    has_products_among,
    may_have_regions,
    with_regions,
)
from ..codegen.jit_engine import begin_machine_code, machine_code
from ..codegen.matrix_products.blas import library
from ..codegen.views import VIEW_LOWERINGS
from ..sizes.samples import Samples
from ..tracing.operations import Operation, Value
from ..tracing.reach import inputs_reached
from .common_subkernels import share_subkernels
from .decompositions import decompose_for_regions, may_decompose
from .reuse import BufferReuse, peak_memory
from .source import compile_program, entered, source


@dataclass(frozen=True, eq=False)
class Program:
    """Operations from inputs and constants to outputs; immutable.

    Attributes:
        inputs: the arguments of a call.
        constants: tensors that the function found elsewhere, held by reference.
        ops: in the order in which they run.
        outputs: the results of a call.
        samples: what it was captured for, where it serves any number of samples.
    """

    inputs: tuple[Value, ...]
    constants: dict[Value, Tensor]
    ops: tuple[Operation, ...]
    outputs: tuple[Value, ...]
    name: str = field(default="program")
    samples: Samples | None = field(default=None)

    def __post_init__(self) -> None:
        rows = self.inputs, self.constants, self.outputs, self.ops
        if {*map(type, rows)} <= {tuple, list, dict}:
            values = {*map(type, (*self.inputs, *self.constants, *self.outputs))}
            if values <= {Value} and {*map(type, self.ops)} <= {Operation}:
                return
        refuse_hand_made(Program, "make_program(fn)(*args)")

    def __getstate__(self) -> dict[str, Any]:
        # Cached properties are computed anew.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Return the outputs at tensors of the inputs' shapes and dtypes.

        Raises:
            TypeError: there are more or fewer of them, or one is not a tensor.
            ValueError: one is of another shape or dtype.
        """
        if len(inputs) != len(self.inputs):
            raise TypeError(
                f"the program takes {len(self.inputs)} tensors, got {len(inputs)}; "
                "give one for each of its inputs"
            )
        for i, (x, value) in enumerate(zip(inputs, self.inputs, strict=True)):
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"argument {i} is a {type(x).__name__}, and a program takes "
                    "tensors; give the leaves of a tree one by one"
                )
            if tuple(x.shape) != value.shape or dtype_name(x.dtype) != value.dtype:
                raise ValueError(
                    f"tensor {i} is {dtype_name(x.dtype)}{list(x.shape)}, the program "
                    f"is for {value.dtype}{list(value.shape)}; make one for the other"
                )
        results: list[Tensor] = self.function(*inputs)
        return results

    @cached_property
    def draws(self) -> bool:
        """Tells whether it draws random numbers."""
        return any(op.operator.random for op in self.ops)

    @cached_property
    def may_not_end(self) -> bool:
        """Tells whether at other values a loop in it might go on for ever."""
        callables = [op.args[0] for op in self.ops if op.operator.opaque]
        nested_programs = [
            p for holder in callables for p in getattr(holder, "programs", ())
        ]
        return any(op.operator.untaken is not None for op in self.ops) or any(
            program.may_not_end for program in nested_programs
        )

    @cached_property
    def reached(self) -> list[set[int]]:
        """For each output, the positions of the inputs that its gradient may reach."""
        return inputs_reached(self.ops, self.inputs, self.outputs)

    @cached_property
    def function(self) -> Callable[..., list[Tensor]]:
        """The compiled source, which switches to that with loops after some calls."""
        may_switch = self._may_have_code and loops_are_on()
        if not may_switch:
            return compile_program(self)
        return compile_program(
            self, lambda: self.with_loops, lambda: self._pending_code
        )

    @property
    def entered(self) -> Callable[..., list[Tensor] | None] | None:
        """The function that looks at its inputs itself, once there is machine code.

        It gives None if one is not as it was at the capture.
        """
        return self.function.entered  # type: ignore[attr-defined]

    def begin_code(self) -> None:
        """Begin to make machine code for :attr:`entry`, on a thread of its own."""
        _ = self._pending_code

    @cached_property
    def entry(self) -> Callable[..., list[Tensor] | None] | None:
        """The function :attr:`entered`, at once. Waits for machine code.

        Raises:
            ImportError: llvmlite is not installed.
        """
        return entered(self.with_loops)

    @property
    def _may_have_code(self) -> bool:
        return may_have_regions(self.ops) or may_decompose(self.ops)

    def python(self, loops: bool = False) -> str:
        """Return the source that runs, at first or with regions of machine code."""
        with_loops = checked_flag("loops", loops)
        return source(self.with_loops if with_loops else self)[0]

    def machine(self) -> str:
        """Return its regions as functions in LLVM's language, a comment an operation.

        Raises:
            ImportError: llvmlite is not installed.
        """
        texts = (region.text for region in self.with_loops.regions)
        return "\n\n".join(t.replace("@NAME", f"@_{i}") for i, t in enumerate(texts))

    @cached_property
    def regions(self) -> list[Region]:
        """The regions among its operators."""
        return [op.operator for op in self.ops if isinstance(op.operator, Region)]

    @property
    def operators_left(self) -> list[str]:
        """The operators, as users call them, that are no regions."""
        pairs = ((op, op.args[0] if op.args else None) for op in self.ops)
        return [
            getattr(holder, "description", op.operator.name)
            for op, holder in pairs
            if not isinstance(op.operator, Region)
        ]

    def extents_of(self, value: Value) -> tuple[SymInt, ...]:
        """Return a value's shape, each size by the number of samples.

        Raises:
            TypeError: it is no value of a program.
        """
        if not isinstance(value, Value):
            raise TypeError(
                f"extents_of takes a value of the program, got {type(value).__name__}; "
                "give one of program.inputs or program.outputs"
            )
        return tuple(map(ShapeEnv(self.samples).extent, value.shape))

    def explain_machine(self) -> str:
        """Say in a sentence how much of it is machine code, and what is not.

        Raises:
            ImportError: llvmlite is not installed.
        """
        looped = self if self.regions else self.with_loops
        count = len(looped.regions)
        paddle_operators = Counter(
            op.operator.name
            for op in looped.ops
            if not isinstance(op.operator, Region)
            and op.operator.name not in VIEW_LOWERINGS
        )
        if not count:
            return "No machine code: no two operators that meet have rules for it."
        code = f"{count} functions" if count > 1 else "one function"
        if not paddle_operators:
            return f"As machine code it is {code}."
        names = ", ".join(
            f"{n} x {k}" if k > 1 else n for n, k in paddle_operators.most_common()
        )
        left_out = f"these operators run in Paddle: {names}"
        return f"As machine code it is {code}, and {left_out}."

    @cached_property
    def with_loops(self) -> Program:
        """The program with regions of machine code.

        Raises:
            ImportError: llvmlite is not installed.
        """
        result, wait = self._pending_code
        return _with_code(result, wait())

    @cached_property
    def _pending_code(self) -> tuple[Program, Callable[[], list[Any]]]:
        """The program with its regions in compilation, and a function that waits."""
        has_products = has_products_among(self.ops) and library() is not None
        result = self._divided_into_regions(2, has_products)
        texts = [region.text for region in result.regions]
        return result, begin_machine_code(texts, then=prepare_entries)

    @cached_property
    def as_code(self) -> Program:
        """The program as one region where possible, whose results are not views.

        Raises:
            ImportError: llvmlite is not installed.
        """
        looped = self.with_loops if self._may_have_code else self
        if len(looped.ops) == 1 and looped.regions:
            return looped
        has_products = has_products_among(self.ops) and library() is not None
        result = self._as_one_region(has_products)
        return _with_code(result, machine_code([r.text for r in result.regions]))

    def _as_one_region(self, has_products: bool) -> Program:
        """Return the program as one region where possible, without machine code.

        Args:
            has_products: whether the region may contain matrix products.
        """
        live_ins = (*self.inputs, *self.constants)
        ops, outputs = copied_views(self.ops, live_ins, self.outputs)
        return replace(self, ops=ops, outputs=outputs)._divided_into_regions(
            1, has_products
        )

    def _divided_into_regions(self, min_ops: int, has_products: bool) -> Program:
        """Return the program divided into regions, which have no machine code yet.

        Args:
            min_ops: the fewest operations of a region.
        """
        live_ins, outputs = (*self.inputs, *self.constants), self.outputs
        settings = self.samples, has_products
        shared = share_subkernels(self.ops)
        ops, new_constants = decompose_for_regions(shared, live_ins, outputs, *settings)
        live_ins = (*live_ins, *new_constants)
        return replace(
            self,
            ops=tuple(with_regions(ops, live_ins, outputs, *settings, min_ops)),
            constants={**self.constants, **new_constants},
        )

    @cached_property
    def last_uses(self) -> list[list[Value]]:
        """After each operation, its inputs and outputs that are not used again."""
        live = {*self.outputs, *self.inputs, *self.constants}
        results: list[list[Value]] = []
        for op in reversed(self.ops):
            touched = [*op.inputs, *op.outputs]
            results.append([v for v in dict.fromkeys(touched) if v not in live])
            live.update(touched)
        return results[::-1]

    @cached_property
    def reused(self) -> dict[Operation, int]:
        """By operation, the index of the argument that the result is written into."""
        persistent = (*self.inputs, *self.constants, *self.outputs)
        return BufferReuse(self.ops, persistent).overwritten_args()

    @cached_property
    def peak_bytes(self) -> int:
        """The most bytes of memory that the program's results take at a time.

        This includes a region's results on the stack. It excludes the memory that
        Paddle's kernels take while they run.
        """
        live_ins = (*self.inputs, *self.constants)
        return peak_memory(self.ops, live_ins, self.outputs, self.reused)

    def __repr__(self) -> str:
        """Return a line for each operation: result, operator, arguments, and origin."""
        rows = [f"{op!r}" for op in self.ops]
        width = min(max(map(len, rows), default=0), 88)
        head = ", ".join(map(repr, self.inputs))
        lines = [f"program({head}):"]
        for value, tensor in self.constants.items():
            lines.append(f"  {value!r} = constant {tensor.name}")
        for row, op in zip(rows, self.ops, strict=True):
            lines.append(f"  {row:{width}}  # {op.where}" if op.where else f"  {row}")
        lines.append(f"  return {', '.join(f't{v.number}' for v in self.outputs)}")
        return "\n".join(lines)


def _with_code(program: Program, codes: list[Any]) -> Program:
    """Return the program with machine code in its regions."""
    for region, code in zip(program.regions, codes, strict=True):
        region.code = code
    return program
