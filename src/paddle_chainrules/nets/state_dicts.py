"""Parameters by the names that a layer's state dict has."""

from __future__ import annotations

from collections.abc import Sequence


def numbered(names: Sequence[str]) -> list[tuple[int, str]] | None:
    """Names such as ``"2.weight"`` with the numbers replaced by their ranks.

    None where there are others, or the numbers do not go up.
    """
    parts = [name.partition(".") for name in names]
    if not all(number.isdigit() for number, _, _ in parts):
        return None
    numbers = [int(number) for number, _, _ in parts]
    ranks = {number: rank for rank, number in enumerate(dict.fromkeys(numbers))}
    if numbers != sorted(numbers):
        return None
    return [(ranks[n], rest) for n, (_, _, rest) in zip(numbers, parts, strict=True)]
