"""One source text for any number of samples, from texts for three numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

INTEGER = r"(?<![\w.])(\d+)(?![\w.])"
"""A pattern of an integer that is a token of its own."""


def of_any_batch(texts: Sequence[str], counts: Sequence[int]) -> str | None:
    """Return a text whose integers depend linearly on the number of samples ``n``.

    Args:
        texts: for each of three numbers of samples.
        counts: these numbers, all different.

    Returns:
        None where the texts differ otherwise.
    """
    rows = [re.split(INTEGER, text) for text in texts]
    first = rows[0]
    if any(len(item) != len(first) for item in rows):
        return None
    results = []
    for i, column in enumerate(zip(*rows, strict=True)):
        if i % 2 == 0 or len({*column}) == 1:
            if len({*column}) > 1:
                return None
            results.append(column[0])
            continue
        text = _linear_text([int(item) for item in column], counts)
        if text is None:
            return None
        results.append(text)
    return without_unused("".join(results))


def without_unused(text: str) -> str:
    """Return the text without the line of ``n``, where no other needs it."""
    lines = text.splitlines(keepends=True)
    code = "".join(line.partition(" # ")[0] for line in lines)
    if len(re.findall(r"(?<![A-Za-z_.])n\b", code)) > 1:
        return text
    return "".join(line for line in lines if not line.startswith("    n = "))


def _linear_text(numbers: Sequence[int], counts: Sequence[int]) -> str | None:
    """Return ``a * n + b`` as text, if that fits the numbers."""
    slope, remainder = divmod(numbers[1] - numbers[0], counts[1] - counts[0])
    intercept = numbers[0] - slope * counts[0]
    if remainder or numbers[2] != slope * counts[2] + intercept:
        return None
    times = "n" if slope == 1 else f"{slope}n"
    if not intercept:
        return times if slope == 1 else f"({times})"
    return f"({times} {'+' if intercept > 0 else '-'} {abs(intercept)})"
