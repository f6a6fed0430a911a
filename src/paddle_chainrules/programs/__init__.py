"""Captured functions as straight lines of operators, and derivatives as formulas.

The other rooms import from here alone. Each name is loaded at its first use, so that
nobody waits for what he does not need.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from .captured import CapturedFunction
    from .capturing import OpenTrace, capture
    from .compiling.program import Program
    from .compiling.split import ForwardBackward
    from .tracing.eager import EagerTracer

__all__ = [
    "CapturedFunction",
    "EagerTracer",
    "ForwardBackward",
    "OpenTrace",
    "Program",
    "capture",
]

_HOMES = {
    "CapturedFunction": "captured",
    "EagerTracer": "tracing.eager",
    "ForwardBackward": "compiling.split",
    "OpenTrace": "capturing",
    "Program": "compiling.program",
    "capture": "capturing",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        result = getattr(_import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = result
        return result
