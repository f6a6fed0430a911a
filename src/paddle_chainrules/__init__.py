"""PaddlePaddle nets as pure, differentiable functions."""

from importlib.metadata import version as _version

from .paddle_side.signals import julia_handlers_kept as _julia_handlers_kept

with _julia_handlers_kept():
    import paddle as _paddle  # noqa: F401

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
from .paddle_side.row_sparse import RowSparse
from .paddle_side.rules.ways_out import ConstantWarning
from .programs.activations import ACTIVATIONS
from .programs.batching import BatchWarning
from .programs.capture_error import CaptureError
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
    "derivative",
    "derivatives",
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
