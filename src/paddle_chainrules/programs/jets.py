"""Derivatives of every order in one pass: jets carried through a fully connected net.

A jet is the value at a point and derivatives of it, by multi-index: ``(2, 1)`` is twice
along the first direction and once along the second. Affine maps act on each of them
alone, so all go through one matrix product; an activation mixes them by the formula of
Faa di Bruno. Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, SIAM
2008, chapter 13; Constantine and Savits, "A multivariate Faa di Bruno formula",
Transactions of the AMS 348, 1996.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import paddle
from paddle import Tensor

from .activation_derivatives import Derivatives
from .weights import Weights

MultiIndex = tuple[int, ...]

Jet = dict[MultiIndex, Tensor | None]
"""None where a derivative vanishes. The value has shape [n, width], a derivative that
or [k, n, width] for k directions side by side, n being 1 where all points share it."""


def indices_up_to(top: MultiIndex) -> list[MultiIndex]:
    """Every multi-index that is nowhere above the given one, lowest orders first."""
    every = itertools.product(*(range(m + 1) for m in top))
    return sorted(every, key=sum)


@cache
def partitions(
    index: MultiIndex,
) -> tuple[tuple[int, tuple[MultiIndex, ...]], ...]:
    """``(count, parts)`` of the ways to split derivatives into groups.

    The derivative of ``f(z)`` by ``index`` is the sum of ``count * f^(len(parts))(z)``
    times the product of the derivatives of z by the parts.
    """
    marks = [i for i, m in enumerate(index) for _ in range(m)]
    counts = Counter(
        tuple(sorted(tuple(map(block.count, range(len(index)))) for block in blocks))
        for blocks in _set_partitions(marks)
    )
    return tuple((count, parts) for parts, count in sorted(counts.items()))


def _set_partitions(marks: list[int]) -> Iterator[list[list[int]]]:
    if not marks:
        yield []
        return
    first, *rest = marks
    for blocks in _set_partitions(rest):
        for i, block in enumerate(blocks):
            yield [*blocks[:i], [first, *block], *blocks[i + 1 :]]
        yield [[first], *blocks]


def _activate(f: Sequence[Tensor | float], z: Jet) -> Jet:
    """The jet of ``f(z)`` from the derivatives of f at the value of z."""
    found: Jet = {}
    for index in z:
        if not any(index):
            assert isinstance(f[0], Tensor)
            found[index] = f[0]
            continue
        total: Any = None
        for count, parts in partitions(index):
            factors = [known for part in parts if (known := z[part]) is not None]
            outer = f[len(parts)]
            vanishes = isinstance(outer, float) and outer == 0.0
            if vanishes or len(factors) < len(parts):
                continue
            term: Any = outer if count == 1 else count * outer
            for factor in factors:
                term = term * factor
            total = term if total is None else total + term
        found[index] = total
    return found


def _affine(weight: Tensor, bias: Tensor, h: Jet) -> Jet:
    """The jet of ``h @ weight + bias``, by one product."""
    rows = {index: value for index, value in h.items() if value is not None}
    shapes = [list(value.shape) for value in rows.values()]
    flat = [value.reshape([-1, weight.shape[0]]) for value in rows.values()]
    sizes = [value.shape[0] for value in flat]
    product = paddle.concat(flat) @ weight if len(flat) > 1 else flat[0] @ weight
    parts = paddle.split(product, sizes) if len(flat) > 1 else [product]
    z: Jet = dict.fromkeys(h)
    for index, shape, part in zip(rows, shapes, parts, strict=True):
        z[index] = part.reshape([*shape[:-1], weight.shape[1]])
    value = z[next(iter(z))]
    assert value is not None
    return {**z, next(iter(z)): value + bias}


def propagate(
    derivatives: Derivatives,
    weights: Weights,
    x: Tensor,
    directions: dict[MultiIndex, Tensor],
    indices: Sequence[MultiIndex],
) -> Jet:
    """The jet of a net at ``x`` of shape [n, in].

    Args:
        derivatives: of the activation.
        weights: of each layer.
        directions: by multi-index of order one, of shape [1, in] or [k, 1, in].
        indices: the derivatives to carry, lowest orders first, with every lower one.
    """
    order = max(map(sum, indices))
    h: Jet = {index: directions.get(index) for index in indices}
    h[indices[0]] = x
    *hidden, last = weights
    for w, b in hidden:
        z = _affine(w, b, h)
        value = z[indices[0]]
        assert value is not None
        h = _activate(derivatives(value, order), z)
    return _affine(*last, h)
