"""PaddlePaddle nets as pure, differentiable functions.

Names are loaded at their first use, so that the import takes as long as Paddle's.
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING
from typing import Any as _Any

from .paddle_side.signals import julia_handlers_kept as _julia_handlers_kept

with _julia_handlers_kept():
    import paddle as _paddle  # noqa: F401

from .programs import switch as _switch  # noqa: F401  # reads the environment

if TYPE_CHECKING:
    from . import optimizers
    from .nets.derivatives import derivative, derivatives, taylor
    from .nets.fcnet import FCNet
    from .nets.files import load_params, save_params
    from .nets.laplacians import forward_laplacian, laplacian
    from .nets.net import Net
    from .nets.of_layer import stateless
    from .nets.params import ParamSpec
    from .nets.pullback import NetPullback
    from .nets.stateless import StatelessLayer
    from .nets.vector_fields import curl, divergence
    from .paddle_side.row_sparse import RowSparse
    from .paddle_side.rules.ways_out import ConstantWarning
    from .programs.activations import ACTIVATIONS
    from .programs.batching import BatchWarning
    from .programs.capture_error import CaptureError
    from .programs.loops.workspace import empty_cache
    from .programs.program import Program
    from .transforms.control_flow import cond, while_loop
    from .transforms.csr import CSR
    from .transforms.explain import explain
    from .transforms.hessian import hessian, hvp
    from .transforms.jacobian import Jacobian, jacfwd, jacobian, jacrev
    from .transforms.jit import jit, make_program
    from .transforms.jvp import Pushforward, jvp, linearize
    from .transforms.packed_layers import Packed
    from .transforms.scan import fori_loop, scan
    from .transforms.value_and_grad import grad, value_and_grad
    from .transforms.vjp import Pullback, vjp
    from .transforms.vmap import stack_params, vmap

__version__ = _version("paddle-chainrules")

__all__ = [
    "ACTIVATIONS",
    "CSR",
    "BatchWarning",
    "CaptureError",
    "ConstantWarning",
    "FCNet",
    "Jacobian",
    "Net",
    "NetPullback",
    "Packed",
    "ParamSpec",
    "Program",
    "Pullback",
    "Pushforward",
    "RowSparse",
    "StatelessLayer",
    "cond",
    "curl",
    "derivative",
    "derivatives",
    "divergence",
    "empty_cache",
    "explain",
    "fori_loop",
    "forward_laplacian",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "laplacian",
    "linearize",
    "load_params",
    "make_program",
    "optimizers",
    "save_params",
    "scan",
    "stack_params",
    "stateless",
    "taylor",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]

_NAMES = {
    "nets.derivatives": "derivative derivatives taylor",
    "nets.fcnet": "FCNet",
    "nets.files": "load_params save_params",
    "nets.laplacians": "forward_laplacian laplacian",
    "nets.net": "Net",
    "nets.of_layer": "stateless",
    "nets.params": "ParamSpec",
    "nets.pullback": "NetPullback",
    "nets.stateless": "StatelessLayer",
    "nets.vector_fields": "curl divergence",
    "paddle_side.row_sparse": "RowSparse",
    "paddle_side.rules.ways_out": "ConstantWarning",
    "programs.activations": "ACTIVATIONS",
    "programs.batching": "BatchWarning",
    "programs.capture_error": "CaptureError",
    "programs.loops.workspace": "empty_cache",
    "programs.program": "Program",
    "transforms.control_flow": "cond while_loop",
    "transforms.csr": "CSR",
    "transforms.hessian": "hessian hvp",
    "transforms.jacobian": "Jacobian jacfwd jacobian jacrev",
    "transforms.explain": "explain",
    "transforms.jit": "jit make_program",
    "transforms.jvp": "Pushforward jvp linearize",
    "transforms.packed_layers": "Packed",
    "transforms.scan": "fori_loop scan",
    "transforms.value_and_grad": "grad value_and_grad",
    "transforms.vjp": "Pullback vjp",
    "transforms.vmap": "stack_params vmap",
}
"""What is imported above for type checkers, by the module that it is from."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # type checkers would take any name to be here

    def __getattr__(name: str) -> _Any:
        if name == "optimizers":
            return _import_module(".optimizers", __name__)
        if name not in _HOMES:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}; dir() has all"
            )
        found = getattr(_import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
