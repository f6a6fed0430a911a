"""PaddlePaddle nets as pure, differentiable functions.

Names are loaded at their first use, so that the import takes no longer than that of
Paddle.
"""

import sys as _sys
from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING
from typing import Any as _Any

from .paddle_side.process.first_import import paddle_import as _paddle_import

# The commands import Paddle when they have read their arguments.
if not (_sys.argv[:1] == ["-m"] and "paddle_chainrules" in _sys.orig_argv):
    with _paddle_import():
        import paddle as _paddle  # noqa: F401

from . import settings as _settings  # noqa: F401  # reads the environment
from .paddle_side.locks import new_lock as _new_lock

if TYPE_CHECKING:
    from . import optimizers
    from .errors import BatchWarning, CaptureError
    from .nets.activations import ACTIVATIONS
    from .nets.calls.pullback import NetPullback
    from .nets.derivatives.derivatives import derivative, derivatives, taylor
    from .nets.derivatives.laplacians import forward_laplacian, laplacian
    from .nets.derivatives.vector_fields import curl, divergence
    from .nets.fcnet import FCNet
    from .nets.files import load_params, save_params
    from .nets.layers.of_layer import stateless
    from .nets.layers.stateless import StatelessLayer
    from .nets.net import Net
    from .nets.parameters.params import ParamSpec
    from .paddle_side.autograd.row_sparse import RowSparse
    from .paddle_side.rules.graph_breaks import ConstantWarning
    from .paddle_side.workspace import empty_cache
    from .programs import Program
    from .transforms.as_programs.explain import explain
    from .transforms.as_programs.jit import jit, make_program
    from .transforms.as_programs.recompiling import EagerWarning, RecompileWarning
    from .transforms.containers.csr import CSR
    from .transforms.containers.packed_layers import Packed
    from .transforms.control_flow.conditionals import cond, while_loop
    from .transforms.control_flow.counted import fori_loop
    from .transforms.control_flow.scan import scan
    from .transforms.derivatives.hessian import hessian, hvp
    from .transforms.derivatives.jacobian import Jacobian, jacfwd, jacobian, jacrev
    from .transforms.derivatives.jvp import Pushforward, jvp, linearize
    from .transforms.derivatives.value_and_grad import grad, value_and_grad
    from .transforms.derivatives.vjp import Pullback, vjp
    from .transforms.vmap import stack_params, vmap
    from .tree_files import load, save

__version__ = _version("paddle-chainrules")

__all__ = [
    "ACTIVATIONS",
    "CSR",
    "BatchWarning",
    "CaptureError",
    "ConstantWarning",
    "EagerWarning",
    "FCNet",
    "Jacobian",
    "Net",
    "NetPullback",
    "Packed",
    "ParamSpec",
    "Program",
    "Pullback",
    "Pushforward",
    "RecompileWarning",
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
    "load",
    "load_params",
    "make_program",
    "optimizers",
    "save",
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
    "errors": "BatchWarning CaptureError",
    "nets.activations": "ACTIVATIONS",
    "nets.calls.pullback": "NetPullback",
    "nets.derivatives.derivatives": "derivative derivatives taylor",
    "nets.derivatives.laplacians": "forward_laplacian laplacian",
    "nets.derivatives.vector_fields": "curl divergence",
    "nets.fcnet": "FCNet",
    "nets.files": "load_params save_params",
    "nets.layers.of_layer": "stateless",
    "nets.layers.stateless": "StatelessLayer",
    "nets.net": "Net",
    "nets.parameters.params": "ParamSpec",
    "paddle_side.autograd.row_sparse": "RowSparse",
    "paddle_side.rules.graph_breaks": "ConstantWarning",
    "paddle_side.workspace": "empty_cache",
    "programs": "Program",
    "transforms.as_programs.explain": "explain",
    "transforms.as_programs.jit": "jit make_program",
    "transforms.as_programs.recompiling": "EagerWarning RecompileWarning",
    "transforms.containers.csr": "CSR",
    "transforms.containers.packed_layers": "Packed",
    "transforms.control_flow.conditionals": "cond while_loop",
    "transforms.control_flow.counted": "fori_loop",
    "transforms.control_flow.scan": "scan",
    "transforms.derivatives.hessian": "hessian hvp",
    "transforms.derivatives.jacobian": "Jacobian jacfwd jacobian jacrev",
    "transforms.derivatives.jvp": "Pushforward jvp linearize",
    "transforms.derivatives.value_and_grad": "grad value_and_grad",
    "transforms.derivatives.vjp": "Pullback vjp",
    "transforms.vmap": "stack_params vmap",
    "tree_files": "load save",
}
"""The names imported above for type checkers, listed by their home module."""

_MODULES = ("adapters", "distributed", "julia", "optimizers", "testing")
"""Modules that are imported where they are named."""

_importing = _new_lock(held_at_fork=True)
"""A lock that prevents a fork during an import, since a child could not finish it."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # type checkers would take any name to be here

    def __getattr__(name: str) -> _Any:
        if name in _MODULES:
            with _importing:
                return _import_module(f".{name}", __name__)
        if name not in _HOMES:
            from .paddle_side.near_names import FUNCTIONS, instead_of

            hint = instead_of(name, FUNCTIONS)
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}; {hint}"
            )
        with _importing:
            result = getattr(_import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = result
        return result


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
