"""Captured functions as straight lines of operators, and derivatives as formulas.

The other rooms import from here alone. Each name is loaded at its first use, so that
nobody waits for what he does not need.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from .batches.samples import run_for_samples
    from .captured import CapturedFunction
    from .capturing import OpenTrace, capture
    from .compiling.program import Program
    from .compiling.repeated_steps import RepeatedStep
    from .compiling.split import ForwardBackward
    from .cond_op import trace_cond
    from .derivatives.partials import partials, second_sums
    from .in_julia.function import JuliaFunction
    from .native.target import Target
    from .scan_op import trace_scan
    from .tracing.eager import EagerTracer
    from .while_op import trace_while

__all__ = [
    "CapturedFunction",
    "EagerTracer",
    "ForwardBackward",
    "JuliaFunction",
    "OpenTrace",
    "Program",
    "RepeatedStep",
    "Target",
    "capture",
    "partials",
    "run_for_samples",
    "second_sums",
    "trace_cond",
    "trace_scan",
    "trace_while",
]

_HOMES = {
    "CapturedFunction": "captured",
    "EagerTracer": "tracing.eager",
    "ForwardBackward": "compiling.split",
    "JuliaFunction": "in_julia.function",
    "OpenTrace": "capturing",
    "Program": "compiling.program",
    "RepeatedStep": "compiling.repeated_steps",
    "Target": "native.target",
    "capture": "capturing",
    "partials": "derivatives.partials",
    "run_for_samples": "batches.samples",
    "second_sums": "derivatives.partials",
    "trace_cond": "cond_op",
    "trace_scan": "scan_op",
    "trace_while": "while_op",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        result = getattr(_import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = result
        return result
