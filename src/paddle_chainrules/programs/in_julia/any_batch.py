"""One source text for any number of samples, from texts for three numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

WHOLE = r"(?<![\w.])(\d+)(?![\w.])"
"""A whole number that stands by itself."""


def of_any_batch(texts: Sequence[str], counts: Sequence[int]) -> str | None:
    """Return a text whose integers depend linearly on the number of samples ``n``.

    Args:
        texts: for each of three numbers of samples.
        counts: these numbers, all different.

    Returns:
        None where the texts differ otherwise.
    """
    parts = [re.split(WHOLE, text) for text in texts]
    first = parts[0]
    if any(len(part) != len(first) for part in parts):
        return None
    results = []
    for i, here in enumerate(zip(*parts, strict=True)):
        if i % 2 == 0 or len({*here}) == 1:
            if len({*here}) > 1:
                return None
            results.append(here[0])
            continue
        text = _linear([int(part) for part in here], counts)
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


def _linear(numbers: Sequence[int], counts: Sequence[int]) -> str | None:
    """Return ``a * n + b`` as text, if that fits the numbers."""
    by, rest = divmod(numbers[1] - numbers[0], counts[1] - counts[0])
    start = numbers[0] - by * counts[0]
    if rest or numbers[2] != by * counts[2] + start:
        return None
    times = "n" if by == 1 else f"{by}n"
    if not start:
        return times if by == 1 else f"({times})"
    return f"({times} {'+' if start > 0 else '-'} {abs(start)})"
