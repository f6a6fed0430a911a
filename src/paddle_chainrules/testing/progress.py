"""A bar on work that takes more than a moment, where somebody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TypeVar

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 60
"""Where lines stand for a bar."""


def progress(items: Iterable[T], total: int, description: str) -> Iterable[T]:
    """Return the same items, with a bar of tqdm on standard error after one second.

    Where that is no terminal, or without tqdm, there is a line a minute, and one at the
    end.
    """
    if not sys.stderr.isatty() or find_spec("tqdm") is None:
        return _with_lines(items, total, description)
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(items, desc=description, total=total, delay=1, leave=False)
    return bar


def _with_lines(items: Iterable[T], total: int, description: str) -> Iterator[T]:
    start = written = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        is_last = count == total and now - start > 1
        if is_last or now - written > SECONDS_BETWEEN_LINES:
            written = now
            line = f"{description}: {count} of {total} after {now - start:.0f} s"
            print(line, file=sys.stderr, flush=True)
