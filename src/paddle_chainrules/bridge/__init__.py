"""Entry points for Julia: handles of nets, bytes behind pullbacks, a lock of threads.

May import all rooms but :mod:`paddle_chainrules.testing`. Julia hands over tensors on
its own memory and takes tensors back. The layout law makes that safe: a Julia array of
size ``(d, n)`` and the tensor of shape ``[n, d]`` are the same bytes, so shapes are
reversed and nothing is permuted. Arrays lent by Julia must stay alive in Julia until
the call returns, and for as long as a pullback made from them. Arguments are checked on
the Julia side, in Julia's terms.
"""

from ..paddle_side.process.random_state import random_state
from ..transforms.containers.csr import of_parts as csr
from ..transforms.containers.packed import of_parts as packed
from ..transforms.containers.packed_layers import Packed
from .bound import BoundNet
from .code import patience
from .described import described, of_description
from .handles import (
    Called,
    Handle,
    activations,
    chosen,
    fcnet,
    layer,
    of_layer,
    save_arrays,
)
from .julia_lock import start_lock
from .refusals import refusal
from .retained_bytes import retained_bytes_address
from .training import Gradients, Training, facts, own

__all__ = [
    "BoundNet",
    "Called",
    "Gradients",
    "Handle",
    "Packed",
    "Training",
    "activations",
    "chosen",
    "csr",
    "described",
    "facts",
    "fcnet",
    "layer",
    "of_description",
    "of_layer",
    "own",
    "packed",
    "patience",
    "random_state",
    "refusal",
    "retained_bytes_address",
    "save_arrays",
    "start_lock",
]
