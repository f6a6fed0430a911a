"""A loop that updates parameters and what an optimizer keeps for each element.

It serves any number of parameters of any sizes, whose addresses come in a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..codegen.elements.number import ElementValue
from ..codegen.ir_builder import BYTES, NO_VECTORIZE, TYPES, FunctionBuilder
from ..codegen.jit_engine import Code, machine_code
from ..codegen.matrix_products.vectors import VectorType
from ..codegen.processor import full_lanes


def update_code(
    numbers_of: Callable[[Any, Sequence[Any], list[Any]], Sequence[Any]],
    update: Callable[[Sequence[Any], Any, Any, Sequence[Any]], Sequence[Any]],
    counts: tuple[int, int, int],
    dtype: str,
    layout: tuple[int, int, int],
    marks: bool = False,
) -> Code:
    """Return a function of a block that updates all parameters.

    Args:
        numbers_of: from the learning rate, a parameter's powers and the settings to the
            numbers that are the same for all its elements.
        update: from these numbers, an element of the parameter, its gradient and its
            moments to the new element and moments.
        counts: the numbers of settings, moments and powers. As many settings as there
            are powers come first, and multiply these after the update.
        layout: offsets in the block, of eight bytes each: of the rate's address, of the
            entry that tells where the gradients' addresses begin, and of the first
            setting. The number of parameters comes first. After the settings there are
            for each parameter its size, whether it is marked, its address, and those of
            its moments and powers.
        marks: whether the last setting is zero for parameters that are not marked.
    """
    numbers, moments, powers = counts
    rate_offset, grads_offset, first_setting = layout
    text, kind = FunctionBuilder(), TYPES[dtype]

    def load(type: str, address: str) -> ElementValue:
        return ElementValue(text.emit(f"load {type}, ptr {address}"), type, text)

    def block_entry(type: str, row: str, address: object) -> str:
        index = text.emit(f"add i64 {row}, {address}")
        pointer = f"getelementptr inbounds i64, ptr %block, i64 {index}"
        return load(type, text.emit(pointer)).name

    rate = load(kind, text.load_slot(rate_offset, "ptr", "rate"))
    all_numbers = []
    for k in range(numbers):
        double_value = ElementValue(
            text.load_slot(first_setting + k, "double", "c"), "double", text
        )
        all_numbers.append(
            double_value if kind == "double" else double_value.to("fptrunc", kind)
        )
    grads = text.load_slot(grads_offset, "i64", "grads")
    first = first_setting + numbers
    unrolled_lanes = 2 * full_lanes(BYTES[dtype])
    with text.loop(text.load_slot(0, "i64", "count"), metadata=NO_VECTORIZE) as param:
        row = text.emit(f"mul i64 {param}, {3 + moments + powers}")
        size = block_entry("i64", row, first)
        pointers = [
            block_entry("ptr", row, first + 2 + i) for i in range(1 + moments + powers)
        ]
        tensors, scalars = pointers[: 1 + moments], pointers[1 + moments :]
        grad = block_entry("ptr", param, grads)
        mark = ElementValue(block_entry("i64", row, first + 1), "i64", text)
        old_scalars = [load(kind, address) for address in scalars]
        factors, settings = all_numbers[:powers], all_numbers[powers:]
        if marks:
            settings[-1] = settings[-1] * mark.to("sitofp", kind)
        shared_numbers = numbers_of(rate, old_scalars, settings)
        full_end = text.vector_loop_end("0", size, unrolled_lanes)
        for lanes, start, stop in (
            (unrolled_lanes, "0", full_end),
            (0, full_end, size),
        ):
            vector = VectorType(text, dtype, lanes or 1)
            with text.loop(stop, (), NO_VECTORIZE, start, lanes or 1) as i:
                element_pointer = f"getelementptr inbounds {kind}, ptr"
                addresses = [
                    text.emit(f"{element_pointer} {p}, i64 {i}")
                    for p in (*tensors, grad)
                ]
                p, *state, g = (
                    ElementValue(vector.load(address), kind, text, lanes=lanes)
                    for address in addresses
                )
                per_lane = [x.broadcast(lanes) for x in shared_numbers]
                results = update(per_lane, p, g, state)
                for address, x in zip(addresses, results, strict=False):
                    vector.store(x.name, address)
        for address, x, factor in zip(scalars, old_scalars, factors, strict=True):
            text.line(f"store {kind} {(x * factor).name}, ptr {address}")
    return machine_code([str(text)])[0]
