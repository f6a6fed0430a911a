"""PaddlePaddle nets as pure, differentiable functions."""

from importlib.metadata import version as _version

from .paddle_side.signals import julia_handlers_kept as _julia_handlers_kept

with _julia_handlers_kept():
    import paddle as _paddle  # noqa: F401

from .programs.activations import ACTIVATIONS
from .transforms.vjp import Pullback, value_and_grad, vjp
from .nets.fcnet import FCNet
from .nets.files import load_params, save_params
from .transforms.jvp import Jacobian, hessian, hvp, jacobian, jvp
from .nets.net import Net, NetPullback
from .nets.params import ParamSpec
from .paddle_side.row_sparse import RowSparse
from .nets.stateless import StatelessLayer, stateless
from .nets.derivatives import derivative, derivatives, laplacian, taylor

__version__ = _version("paddle-chainrules")

__all__ = [
    "ACTIVATIONS",
    "FCNet",
    "Jacobian",
    "Net",
    "NetPullback",
    "ParamSpec",
    "Pullback",
    "RowSparse",
    "StatelessLayer",
    "derivative",
    "derivatives",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "laplacian",
    "load_params",
    "save_params",
    "stateless",
    "taylor",
    "value_and_grad",
    "vjp",
]
