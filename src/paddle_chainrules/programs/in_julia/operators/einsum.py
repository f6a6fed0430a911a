"""Sums of products by an equation, in Julia as products of matrices."""

from __future__ import annotations

import math

from ...operators.calls import NoRule
from .call import JuliaCall, Shape, julia_of, row


@julia_of("einsum")
def _einsum_julia(call: JuliaCall) -> str:
    operands, equation = call.args
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(operands) != 2 or _repeats(*terms, out):
        raise NoRule(
            f"einsum {equation} in Julia; write it of two operands, with -> and "
            "without dots or letters that are there twice"
        )
    one, other = terms
    shapes = call.shapes[0]
    pairs = [
        (letter, n)
        for term, shape in zip(terms, shapes, strict=True)
        for letter, n in zip(term, shape, strict=True)
    ]
    lengths = dict(pairs)
    if any(lengths[letter] != n for letter, n in pairs):
        raise NoRule(f"einsum {equation} that broadcasts in Julia; expand before it")
    shared = [letter for letter in one if letter in other]
    batch = [letter for letter in out if letter in shared]
    summed = [letter for letter in shared if letter not in out]
    rows = [letter for letter in one if letter not in shared]
    columns = [letter for letter in other if letter not in shared]
    if any(letter not in out for letter in rows + columns):
        raise NoRule(f"einsum {equation} in Julia; sum over single letters before it")

    def size(letters: list[str]) -> int:
        return math.prod(lengths[letter] for letter in letters)

    def arranged(text: str, term: str, *groups: list[str]) -> str:
        order = [letter for group in groups for letter in group]
        text = _permuted(text, term[::-1], "".join(order))
        full = [size(group) for group in groups]
        return f"reshape({text}, {row(full if batch else full[:2])})"

    x = arranged(operands[0], one, rows, summed, batch)
    y = arranged(operands[1], other, summed, columns, batch)
    product = f"batched_mul({x}, {y})" if batch else f"{x} * {y}"
    found = [*rows, *columns, *batch]
    shape: Shape = tuple(lengths[letter] for letter in found)
    return _permuted(f"reshape({product}, {row(shape)})", "".join(found), out[::-1])


def _permuted(text: str, have: str, want: str) -> str:
    if have == want:
        return text
    return f"permutedims({text}, {row([have.index(letter) + 1 for letter in want])})"


def _repeats(*terms: str) -> bool:
    return any(len({*term}) < len(term) for term in terms)
