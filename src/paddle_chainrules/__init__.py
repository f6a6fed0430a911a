"""PaddlePaddle nets as pure, differentiable functions."""

from importlib.metadata import version as _version

from .paddle_side.signals import julia_handlers_kept as _julia_handlers_kept

with _julia_handlers_kept():
    import paddle as _paddle  # noqa: F401

from .nets.derivatives import derivative, derivatives, laplacian, taylor
from .nets.fcnet import FCNet
from .nets.files import load_params, save_params
from .nets.net import Net
from .nets.params import ParamSpec
from .nets.pullback import NetPullback
from .nets.stateless import StatelessLayer, stateless
from .paddle_side.row_sparse import RowSparse
from .programs.activations import ACTIVATIONS
from .transforms.hessian import hessian, hvp
from .transforms.jacobian import Jacobian, jacfwd, jacobian, jacrev
from .transforms.jvp import Pushforward, jvp, linearize
from .transforms.value_and_grad import grad, value_and_grad
from .transforms.vjp import Pullback, vjp

__version__ = _version("paddle-chainrules")

__all__ = [
    "ACTIVATIONS",
    "FCNet",
    "Jacobian",
    "Net",
    "NetPullback",
    "ParamSpec",
    "Pullback",
    "Pushforward",
    "RowSparse",
    "StatelessLayer",
    "derivative",
    "derivatives",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "laplacian",
    "linearize",
    "load_params",
    "save_params",
    "stateless",
    "taylor",
    "value_and_grad",
    "vjp",
]
