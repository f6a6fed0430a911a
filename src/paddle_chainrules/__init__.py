"""PaddlePaddle nets as pure, differentiable functions."""

from importlib.metadata import version as _version

from ._signals import julia_handlers_kept as _julia_handlers_kept

with _julia_handlers_kept():
    import paddle as _paddle  # noqa: F401

from ._activations import ACTIVATIONS
from ._autodiff import Pullback, value_and_grad, vjp
from ._fcnet import FCNet
from ._files import load_params, save_params
from ._nested import Jacobian, hessian, hvp, jacobian, jvp
from ._net import Net, NetPullback
from ._params import ParamSpec
from ._sparse import RowSparse
from ._stateless import StatelessLayer, stateless
from ._taylor import derivative, derivatives, laplacian, taylor

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
