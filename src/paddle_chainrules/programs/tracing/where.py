"""The location in the user's code where an operator was called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paddle

_PADDLE = str(Path(paddle.__file__).parent)
_PACKAGE = str(Path(__file__).parents[2])


def where_called(full: bool = False) -> str:
    """Return file and line of the code that is neither Paddle's nor ours."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        name = _name_by_file.get(file)
        if name is None:
            name = _name_by_file[file] = _user_file_name(file)
        if name:
            return f"{file if full else name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@contextmanager
def at_one_location(tracer: Any) -> Iterator[None]:
    """Trace all operators within at one location: no user code calls them."""
    outer_location = tracer.location
    try:
        tracer.location = where_called() if outer_location is None else outer_location
        yield
    finally:
        tracer.location = outer_location


_name_by_file: dict[str, str] = {}
"""Names by file. Each file is looked at once."""


def _user_file_name(file: str) -> str:
    """Return the name of the user's file, or nothing for Paddle's files and ours."""
    if file.startswith((_PADDLE, _PACKAGE, "<frozen")) or "contextlib" in file:
        return ""
    return os.path.basename(file)
