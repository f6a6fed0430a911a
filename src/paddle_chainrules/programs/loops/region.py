"""A stretch of a program as one function of machine code."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from struct import Struct
from typing import Any

import paddle

from ...paddle_side.interception import RAW
from ..operations import Operation, Value
from ..operators.entry import TABLE, Operator
from ..samples import Samples
from .extents import Sizes
from .groups import Group, grouped
from .plan import Plan, planned
from .scalars import OVER_COUNT, NoLoop, kept_dims
from .steps import Steps
from .text import Text
from .views import RULES, Memory, View

CPU = paddle.CPUPlace()

ADDRESS = paddle.Tensor.data_ptr

ON_STACK = 1 << 15
"""Bytes of results in between that lie on the stack."""

ALIGNED = 64


class Region(Operator):
    """An operator that is one function of machine code.

    It takes the address of a block of eight bytes each: the number of samples, then the
    addresses of inputs, of outputs, and of memory for what is in between.

    Attributes:
        ops: what it does.
        text: how, in LLVM's language.
        code: which does it.
        work: the bytes of memory that it needs besides, of so many samples.
    """

    def __init__(
        self, steps: Steps, outputs: Sequence[Value], samples: Samples | None
    ) -> None:
        super().__init__("region", "", run=_no_operator)
        self.ops = tuple(steps.ops)
        self._inputs, self._outputs = [*steps.inputs], [*outputs]
        self._order = [v for v in (*steps.inputs, *outputs) if 0 not in v.shape]
        self._samples = samples
        self._sizes = steps.sizes
        given = {view.memory for view in steps.inputs.values()}
        ends = [steps.views[value].memory for value in outputs]
        self._placed = steps.placed(ends)
        plan = planned(steps.found, {*given, *self._placed}, ends)
        self.work = plan.bytes
        n = samples.size if samples else 0
        self.work_bytes = sum(each.at(n) + ALIGNED - 1 for each in self.work)
        self.on_stack = samples is None and self.work_bytes <= ON_STACK
        self.text = self._written(steps, plan)
        self.code: Callable[[bytes], None] = _no_operator

    def _written(self, steps: Steps, plan: Plan) -> str:
        text = Text()
        names: dict[Memory, str] = {}
        for value in (*self._inputs, *self._outputs):
            names[steps.views[value].memory] = "null"  # where it has no elements
        for place, value in enumerate(self._order, 1):
            memory = steps.views[value].memory
            names[memory] = text.argument(place, "ptr", f"t{value.number}")
        slots = self._slots(text, len(self._order) + 1, plan)

        def address(view: View) -> str:
            memory = view.memory
            if memory in self._placed:
                base = address(self._placed[memory])
            else:
                base = names.get(memory) or slots[plan.slots[memory]]
            return text.moved(base, memory.dtype, view.offset)

        for step in steps.found:
            step.write(text, address)
        return str(text)

    def _slots(self, text: Text, place: int, plan: Plan) -> list[str]:
        """Pointers to the parts of the memory for what is in between."""
        if not plan.bytes:
            return []
        if self.on_stack:
            return [text.on_stack(size.factor, ALIGNED) for size in plan.bytes]
        at = text.argument(place, "ptr", "work")
        found = []
        for size in plan.bytes:
            found.append(at := text.aligned(at, ALIGNED))
            at = text.moved(at, "bool", (size,))
        return found

    def lines(
        self,
        named: Callable[[Any, str], str],
        text: Callable[[Any], str],
        overwritten: Any = None,
    ) -> Iterator[str]:
        """Of Python's, that run it.

        Args:
            named: a name for something.
            text: of a value.
        """
        cpu, empty = named(CPU, "cpu"), named(RAW.empty, "empty")
        samples = "0"
        if self._samples is not None:
            samples = "n"
            yield f"n = {self._number_of_samples(text)}"
        for out in self._outputs:
            sizes = ", ".join(self._size(size) for size in out.shape)
            dtype = named(getattr(paddle, out.dtype), out.dtype)
            yield f"{text(out)} = {empty}([{sizes}], {dtype}, {cpu})"
        tensors = [text(v) for v in self._order]
        if self.work and not self.on_stack:
            byte = named(paddle.uint8, "uint8")
            yield f"work = {empty}([{self._work_size()}], {byte}, {cpu})"
            tensors.append("work")
        pack = named(_pack(1 + len(tensors)), f"pack{1 + len(tensors)}")
        places = f"*map({named(ADDRESS, 'address')}, [{', '.join(tensors)}])"
        yield f"{named(self.code, 'region')}({pack}({samples}, {places}))"

    def _work_size(self) -> str:
        """The bytes of what is in between, as Python has it."""
        sums = {0: len(self.work) * (ALIGNED - 1)}
        for factor, power in self.work:
            sums[power] = sums.get(power, 0) + factor
        return " + ".join(f"{f} * n**{p}" if p else f"{f}" for p, f in sums.items())

    def _size(self, size: int) -> str:
        factor, power = self._sizes.of(size)
        return f"{factor} * n" if power and factor != 1 else "n" if power else f"{size}"

    def _number_of_samples(self, text: Callable[[Any], str]) -> str:
        for value in self._inputs:
            for k, size in enumerate(value.shape):
                factor, power = self._sizes.of(size)
                if power:
                    return f"{text(value)}.shape[{k}] // {factor}"
        return "0"  # no size within goes along with it


@cache
def _pack(count: int) -> Callable[..., bytes]:
    return Struct(f"{count}q").pack


def _no_operator(*_: Any) -> Any:
    raise NotImplementedError(
        "a region runs within its program alone; call the program instead"
    )


def with_regions(
    ops: Sequence[Operation],
    given: Sequence[Value],
    outputs: Sequence[Value],
    samples: Samples | None,
    has_products: bool,
) -> list[Operation]:
    """The same operations, in regions where they have rules.

    Args:
        given: values that are there before, which the caller keeps.
        has_products: whether products may be part of regions.
    """
    sizes = Sizes(samples)
    numbers = [v.number for v in given]
    numbers += [v.number for op in ops for v in (*op.inputs, *op.outputs)]
    fresh = itertools.count(1 + max(numbers, default=0))
    parts = grouped([*_apart(ops, sizes, fresh, has_products)], given, outputs)
    return _Regions(parts, outputs, sizes, has_products).found


def _apart(
    ops: Iterable[Operation], sizes: Sizes, fresh: Iterator[int], has_products: bool
) -> Iterator[Operation]:
    """Operations that do one thing each."""

    def like(value: Value) -> Value:
        return Value(next(fresh), value.shape, value.dtype, value.bytes)

    for op in ops:
        name, out = op.operator.name, op.outputs[0] if op.outputs else None
        if name == "linear" and has_products and out is not None:
            x, weight, bias = op.args
            made = like(out) if bias is not None else out
            args = x, weight, False, False
            yield replace(op, operator=TABLE["matmul"], args=args, outputs=(made,))
            if bias is not None:
                yield replace(op, operator=TABLE["add"], args=(made, bias))
        elif name == "addmm" and has_products and op.args[3:] == (1.0, 1.0):
            given, x, y, *_ = op.args
            made, args = like(out), (x, y, False, False)
            yield replace(op, operator=TABLE["matmul"], args=args, outputs=(made,))
            yield replace(op, operator=TABLE["add"], args=(made, given))
        elif name in ("mean", "mean_all") and out is not None:
            x, axes, keepdim = op.args if name == "mean" else (*op.args, None, False)
            made, args = like(out), (x, axes, None, keepdim)
            total = replace(op, operator=TABLE["sum"], args=args, outputs=(made,))
            kept = kept_dims(total)
            count = sizes.product(n for k, n in enumerate(x.shape) if k not in kept)
            yield total
            yield replace(op, operator=OVER_COUNT, args=(made, count))
        else:
            yield op


class _Regions:
    """Parts of a program in their order, as many in one region as can be."""

    def __init__(
        self,
        parts: Sequence[Operation | Group],
        outputs: Sequence[Value],
        sizes: Sizes,
        has_products: bool,
    ) -> None:
        self._found: dict[Operation, None] = {}  # in their order, each of them once
        self._sizes = sizes
        self._users: Counter[Value] = Counter(outputs)
        """How many parts, and outputs of the program, are still to come that read it."""
        for part in parts:
            self._users.update({*part.inputs})
        self._has_products = has_products
        self._steps = Steps(sizes, has_products)
        self._parts: list[Operation | Group] = []
        for part in parts:
            try:
                self._steps.add(part)
            except NoLoop:
                self._end([part])
            else:
                self._parts.append(part)
        self._end([])
        self.found = [*self._found]

    def _end(self, after: Sequence[Operation | Group]) -> None:
        """Close a region, after which come parts that are in none."""
        steps, parts = self._steps, self._parts
        self._steps, self._parts = Steps(self._sizes, self._has_products), []
        for part in parts:
            self._users.subtract({*part.inputs})
        if sum(op.operator.name not in RULES for op in steps.ops) > 1:
            self._put(steps)
        else:
            after = [*parts, *after]
        for part in after:
            ops = part.ops if isinstance(part, Group) else (part,)
            self._found.update(dict.fromkeys(ops))

    def _put(self, steps: Steps) -> None:
        """A region, and after it the views of what it gives that others need."""
        needed = [
            v for v in steps.views if v not in steps.inputs and self._users[v] > 0
        ]
        made = {v: op for op in steps.ops for v in op.outputs}
        alone = Counter(steps.views[v].memory for v in needed)
        outputs: dict[Value, None] = {}
        after: set[Operation] = set()
        given = {view.memory for view in steps.inputs.values()}
        for value in needed:
            memory = steps.views[value].memory
            is_whole = steps.is_whole(steps.views[value]) and memory not in given
            if made[value].operator.name not in RULES or (
                is_whole and alone[memory] == 1
            ):
                outputs[value] = None
                continue
            while value not in steps.inputs:
                op = made[value]
                if op.operator.name not in RULES:
                    outputs[value] = None
                    break
                after.add(op)
                value = op.inputs[0]
        region = Region(steps, [*outputs], self._sizes.samples)
        inputs, where = tuple(steps.inputs), steps.ops[-1].where
        self._found[Operation(region, inputs, (*outputs,), True, where)] = None
        self._found.update((op, None) for op in steps.ops if op in after)
