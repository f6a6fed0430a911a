"""A bar on work that takes more than a moment, where somebody looks."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], total: int, description: str) -> Iterable[T]:
    """Return the same items, with a bar of tqdm after one second.

    Without tqdm, and where standard error is no terminal, there is none.
    """
    if find_spec("tqdm") is None:
        return items
    from tqdm import tqdm

    bar: Iterable[T] = tqdm(
        items, desc=description, total=total, disable=None, delay=1, leave=False
    )
    return bar
