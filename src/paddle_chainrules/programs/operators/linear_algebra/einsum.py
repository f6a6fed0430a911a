"""Sums of products in Einstein's notation."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Sequence
from typing import Any

from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.shared_memory import share_memory
from ..axes import ANYWHERE
from ..calls import BatchCall, NoRule
from ..entry import TABLE, batch_of, define, formula_of, holds_for_complex
from ..shared import ops
from .adjoints import reordered, unit

Term = tuple[Tensor, list[str]]
"""A tensor, and a letter for each of its axes, no two the same."""


def _run(x: Sequence[Tensor], equation: str) -> list[Tensor]:
    # Without what is kept for Paddle's own way back.
    result = RAW.einsum(x, equation)[0]
    # Paddle gives the memory of a single operand whose axes stay as they are.
    return [result.clone() if len(x) == 1 and share_memory(result, x[0]) else result]


define("einsum", "x equation", run=_run, axes=ANYWHERE)
holds_for_complex("einsum")


@formula_of("einsum")
def _einsum_formula(x: Sequence[Tensor], equation: str) -> Tensor:
    """Compute by matrix products over the letters that two tensors share."""
    left, _, right = equation.replace(" ", "").partition("->")
    if "." in equation:
        raise NoRule("an ellipsis given to the operator; call paddle.einsum")
    rows = left.split(",")
    terms = [_term(t, letters) for t, letters in zip(x, rows, strict=True)]
    result = terms[0]
    for k, term in enumerate(terms[1:], 1):
        later = {letter for _, letters in terms[k + 1 :] for letter in letters}
        result = _contracted(result, term, {*right} | later)
    y, letters = _summed(result, {*right})
    return reordered(y, letters, [*right])


def _term(x: Tensor, letters: str) -> Term:
    """Return a term. For a repeated letter take the diagonal."""
    left = [*letters]
    while len({*left}) < len(left):
        second = next(k for k, c in enumerate(left) if c in left[:k])
        first, n = left.index(left[second]), x.shape[second]
        shape = [n if k in (first, second) else 1 for k in range(x.ndim)]
        mask = ops.reshape(unit(x, n), shape)
        x = ops.sum(x * mask, [second], None, False)
        del left[second]
    return x, left


def _summed(term: Term, kept: Iterable[str]) -> Term:
    """Sum over the letters that nothing else has."""
    x, letters = term
    axes = [k for k, letter in enumerate(letters) if letter not in kept]
    if axes:
        x = ops.sum(x, axes, None, False)
    return x, [letter for letter in letters if letter in kept]


def _contracted(first: Term, second: Term, kept: set[str]) -> Term:
    """Multiply two tensors, and sum over letters that are not needed any more."""
    x, of_x = _summed(first, kept | {*second[1]})
    y, of_y = _summed(second, kept | {*of_x})
    both = [c for c in of_x if c in of_y]
    batch, gone = [c for c in both if c in kept], [c for c in both if c not in kept]
    x, y = _of_one_size(x, of_x, y, of_y, gone)
    own_x = [c for c in of_x if c not in both]
    own_y = [c for c in of_y if c not in both]
    x = reordered(x, of_x, batch + own_x + gone)
    y = reordered(y, of_y, batch + gone + own_y)
    n, width = len(batch), len(gone)
    lead_x, lead_y = x.shape[:n], y.shape[:n]
    sizes_x, sizes_y = x.shape[n : n + len(own_x)], y.shape[n + width :]
    if gone:
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
    return result, batch + own_x + own_y


def _of_one_size(
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
    parts, equation = call.args
    left, arrow, right = equation.replace(" ", "").partition("->")
    if "." in equation or not arrow:
        raise NoRule("an equation without all of its letters; write them")
    fresh = next(c for c in string.ascii_letters if c not in equation)
    terms = ",".join(fresh + term for term in left.split(","))
    return TABLE["einsum"].every([parts, f"{terms}->{fresh}{right}"])
