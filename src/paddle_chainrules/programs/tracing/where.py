"""The place in the user's code where an operator was called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paddle

_PADDLE = str(Path(paddle.__file__).parent)
_OWN = str(Path(__file__).parents[2])


def where_called(full: bool = False) -> str:
    """Return file and line of the code that is neither Paddle's nor ours."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        name = _names.get(file)
        if name is None:
            name = _names[file] = _name_of(file)
        if name:
            return f"{file if full else name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@contextmanager
def in_one_place(record: Any) -> Iterator[None]:
    """Give all operators within one place, since none of the user's code calls them."""
    before = record.place
    try:
        record.place = where_called() if before is None else before
        yield
    finally:
        record.place = before


_names: dict[str, str] = {}
"""Names by file. Each file is looked at once."""


def _name_of(file: str) -> str:
    """Return the name of the user's file, or nothing for Paddle's files and ours."""
    if file.startswith((_PADDLE, _OWN, "<frozen")) or "contextlib" in file:
        return ""
    return os.path.basename(file)
