"""Captured functions as straight lines of operators, and derivatives as formulas.

The other rooms import from here alone. Each name is loaded at its first use, so that
nobody waits for what he does not need.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from .batches.samples import run_for_samples as run_for_samples
    from .captured import CapturedFunction as CapturedFunction
    from .capturing import OpenTrace as OpenTrace
    from .capturing import capture as capture
    from .compiling.program import Program as Program
    from .compiling.repeated_steps import RepeatedStep as RepeatedStep
    from .compiling.split import ForwardBackward as ForwardBackward
    from .cond_op import trace_cond as trace_cond
    from .derivatives.partials import partials as partials
    from .derivatives.partials import second_sums as second_sums
    from .in_julia.function import JuliaFunction as JuliaFunction
    from .native.target import Target as Target
    from .scan_op import trace_scan as trace_scan
    from .tracing.eager import EagerTracer as EagerTracer
    from .while_op import trace_while as trace_while

_NAMES = {
    "batches.samples": "run_for_samples",
    "captured": "CapturedFunction",
    "capturing": "OpenTrace capture",
    "compiling.program": "Program",
    "compiling.repeated_steps": "RepeatedStep",
    "compiling.split": "ForwardBackward",
    "cond_op": "trace_cond",
    "derivatives.partials": "partials second_sums",
    "in_julia.function": "JuliaFunction",
    "native.target": "Target",
    "scan_op": "trace_scan",
    "tracing.eager": "EagerTracer",
    "while_op": "trace_while",
}
"""The names imported above for type checkers, listed by their home module."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        for home, names in _NAMES.items():
            if name in names.split():
                result = getattr(_import_module(f".{home}", __name__), name)
                globals()[name] = result
                return result
        names = ", ".join(sorted(" ".join(_NAMES.values()).split()))
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; use one of {names}"
        )
