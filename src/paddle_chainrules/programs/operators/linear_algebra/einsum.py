"""Sums of products in Einstein's notation."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Sequence
from typing import Any

from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.rules.derivatives.formulas import by_rules
from ....paddle_side.shared_memory import share_memory
from ..axes import ANYWHERE
from ..calls import BatchCall, NoRule
from ..entry import TABLE, batch_of, define, formula_of, holds_for_complex
from ..shared import ops
from .adjoints import identity_like, reordered

Term = tuple[Tensor, list[str]]
"""A tensor, and a letter for each of its axes, no two the same."""


def _run_einsum(x: Sequence[Tensor], equation: str) -> list[Tensor]:
    # Without what is kept for Paddle's own way back.
    result = RAW.einsum(x, equation)[0]
    # Paddle gives the memory of a single operand whose axes stay as they are.
    return [result.clone() if len(x) == 1 and share_memory(result, x[0]) else result]


define(
    "einsum",
    "x equation",
    run=_run_einsum,
    axes=ANYWHERE,
    tape=by_rules("einsum", of_complex=True),
)
holds_for_complex("einsum")


@formula_of("einsum")
def _einsum_formula(x: Sequence[Tensor], equation: str) -> Tensor:
    """Compute by matrix products over the letters that two tensors share."""
    left, _, right = equation.replace(" ", "").partition("->")
    if "." in equation:
        raise NoRule("an ellipsis given to the operator; call paddle.einsum")
    subscripts = left.split(",")
    terms = [
        _without_repeated_letters(t, letters)
        for t, letters in zip(x, subscripts, strict=True)
    ]
    result = terms[0]
    for k, term in enumerate(terms[1:], 1):
        later_letters = {letter for _, letters in terms[k + 1 :] for letter in letters}
        result = _contract(result, term, {*right} | later_letters)
    y, letters = _sum_unneeded(result, {*right})
    return reordered(y, letters, [*right])


def _without_repeated_letters(x: Tensor, letters: str) -> Term:
    """Return a term without repeated letters: take their diagonals."""
    axis_letters = [*letters]
    while len({*axis_letters}) < len(axis_letters):
        second = next(k for k, c in enumerate(axis_letters) if c in axis_letters[:k])
        first, n = axis_letters.index(axis_letters[second]), x.shape[second]
        shape = [n if k in (first, second) else 1 for k in range(x.ndim)]
        mask = ops.reshape(identity_like(x, n), shape)
        x = ops.sum(x * mask, [second], None, False)
        del axis_letters[second]
    return x, axis_letters


def _sum_unneeded(term: Term, needed: Iterable[str]) -> Term:
    """Sum over the letters that no later product and no output needs."""
    x, letters = term
    axes = [k for k, letter in enumerate(letters) if letter not in needed]
    if axes:
        x = ops.sum(x, axes, None, False)
    return x, [letter for letter in letters if letter in needed]


def _contract(first: Term, second: Term, needed: set[str]) -> Term:
    """Multiply two tensors, and sum over letters that are not needed any more."""
    x, of_x = _sum_unneeded(first, needed | {*second[1]})
    y, of_y = _sum_unneeded(second, needed | {*of_x})
    common = [c for c in of_x if c in of_y]
    batch, contracted = (
        [c for c in common if c in needed],
        [c for c in common if c not in needed],
    )
    x, y = _sum_over_ones(x, of_x, y, of_y, contracted)
    free_x = [c for c in of_x if c not in common]
    free_y = [c for c in of_y if c not in common]
    x = reordered(x, of_x, batch + free_x + contracted)
    y = reordered(y, of_y, batch + contracted + free_y)
    n, width = len(batch), len(contracted)
    lead_x, lead_y = x.shape[:n], y.shape[:n]
    sizes_x, sizes_y = x.shape[n : n + len(free_x)], y.shape[n + width :]
    if contracted:
        size = math.prod(y.shape[n : n + width])
        x = ops.reshape(x, [*lead_x, math.prod(sizes_x), size])
        y = ops.reshape(y, [*lead_y, size, math.prod(sizes_y)])
        result = ops.matmul(x, y, False, False)
        lead = [max(a, b) for a, b in zip(lead_x, lead_y, strict=True)]
        result = ops.reshape(result, [*lead, *sizes_x, *sizes_y])
    else:
        x = ops.reshape(x, [*lead_x, *sizes_x, *(1 for _ in sizes_y)])
        y = ops.reshape(y, [*lead_y, *(1 for _ in sizes_x), *sizes_y])
        result = x * y
    return result, batch + free_x + free_y


def _sum_over_ones(
    x: Tensor, of_x: list[str], y: Tensor, of_y: list[str], letters: list[str]
) -> tuple[Tensor, Tensor]:
    """Sum each over a letter for which the other has one element."""
    for letter in letters:
        i, j = of_x.index(letter), of_y.index(letter)
        if x.shape[i] != y.shape[j]:
            if x.shape[i] == 1:
                y = ops.sum(y, [j], None, True)
            else:
                x = ops.sum(x, [i], None, True)
    return x, y


@batch_of("einsum")
def _einsum_batch(call: BatchCall) -> list[Any]:
    operands, equation = call.args
    left, arrow, right = equation.replace(" ", "").partition("->")
    if "." in equation or not arrow:
        raise NoRule("an equation without all of its letters; write them")
    sample_letter = next(c for c in string.ascii_letters if c not in equation)
    terms = ",".join(sample_letter + term for term in left.split(","))
    return TABLE["einsum"].bind([operands, f"{terms}->{sample_letter}{right}"])
