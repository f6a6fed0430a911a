"""Where in somebody's code an operator was called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import paddle

_PADDLE = str(Path(paddle.__file__).parent)
_OWN = str(Path(__file__).parents[1])


def where_called(full: bool = False) -> str:
    """File and line of the code that is neither Paddle's nor ours."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PADDLE, _OWN, "<frozen")) and "contextlib" not in file:
            name = file if full else os.path.basename(file)
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
