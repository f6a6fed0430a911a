"""Any paddle.nn.Layer as a net, its parameters and its buffers."""

from __future__ import annotations

import paddle
from paddle import Tensor

from ...paddle_side.static_graphs import need_tensors, sot
from ..calls.wrt import Wrt
from .stateless import StatelessLayer


def stateless(
    layer: paddle.nn.Layer, frozen: Wrt = (), jit: bool | None = None
) -> tuple[StatelessLayer, dict[str, Tensor], dict[str, Tensor]]:
    """Return ``(net, params, buffers)``: the layer as a function of its parameters.

    The net is a pure function. It copies the layer's structure once (not its tensors)
    and never touches the layer again: not its parameters, buffers, ``.grad``,
    ``stop_gradient``, hooks nor mode. The net keeps the mode, train or eval, that the
    layer has now.

    Like ``torch.func.functional_call``, with the bookkeeping done once.

    Args:
        layer: any layer.
        frozen: parameters not to train, by name, pattern such as ``"encoder.*"`` or
            predicate of names, or several of these; they join the buffers.
        jit: whether calls become programs, as :func:`.jit` makes them, where they can.
            Python state that the layer's code reads, such as a global, is compared at
            each call, as there. If None, only layers made of Paddle's classes alone
            become programs, after some calls.

    Returns:
        net: a :class:`StatelessLayer`.
        params: copies of the parameters, by the names and in the order of
            ``layer.named_parameters()``; a tied parameter comes once.
        buffers: copies of what the layer holds but does not train: its buffers, and
            the parameters with ``stop_gradient=True``, which are frozen weights and,
            in Paddle, BatchNorm's running statistics.

    Raises:
        TypeError: not a ``paddle.nn.Layer``, or one with state that can't be copied.
        ValueError: a name or pattern in frozen that no parameter has.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import stateless
        >>> net, params, buffers = stateless(paddle.nn.Linear(3, 2))
        >>> net.forward(params, paddle.ones([4, 3])).shape
        paddle.Size([4, 2])
    """
    need_tensors(sot.fallback(True))
    net = StatelessLayer(layer, frozen, jit)
    named = dict(layer.named_parameters())
    params = {name: named[name].detach().clone() for name in net.spec.names}
    return net, params, {name: value.clone() for name, value in net.buffers.items()}
