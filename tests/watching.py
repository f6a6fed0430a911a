"""Watches every call of the suite: no byte of the caller's tensors changes."""

import functools
import sys

import optree
import paddle

import paddle_chainrules.bridge
from paddle_chainrules import FCNet, Net, StatelessLayer
from paddle_chainrules.paddle_side.listener import listener
from paddle_chainrules.transforms.recordings import dispatch, recording

SMALL = 1_000_000
"""Bytes; larger tensors are not looked at."""

watched = {"calls": 0, "tensors": 0}


def _bytes(tree):
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [
        (leaf, leaf.detach().numpy().tobytes())
        for leaf in leaves
        if isinstance(leaf, paddle.Tensor)
        and leaf._is_initialized()
        and not leaf.is_selected_rows()
        and leaf.size * leaf.element_size() < SMALL
    ]


def _watch(function, given):
    @functools.wraps(function)
    def call(*args, **kwargs):
        if listener() is not None:  # part of a capture, whose whole call is watched
            return function(*args, **kwargs)
        before = _bytes(given(args, kwargs))
        found = function(*args, **kwargs)
        watched["calls"] += 1
        watched["tensors"] += len(before)
        for leaf, kept in before:
            assert leaf.detach().numpy().tobytes() == kept, (
                f"{function.__qualname__} has changed a tensor of its caller's"
            )
        return found

    return call


def _of_net(args, kwargs):
    net, *rest = args
    buffers = dict(net.buffers) if isinstance(net, StatelessLayer) else {}
    return [list(map(_plain, rest)), dict(kwargs), buffers]


def _plain(part):
    return dict(part) if isinstance(part, dict) else part


def install(patch):
    """Watch forward, pullback, recordings and gradients, by ``patch.setattr``."""
    for owner in (Net, FCNet, StatelessLayer):
        for name in ("forward", "pullback", "vjp"):
            if name in vars(owner):
                patch.setattr(owner, name, _watch(vars(owner)[name], _of_net))
    original = dispatch.record
    record = _watch(original, lambda args, kwargs: list(args[1]))
    for name, module in [*sys.modules.items()]:
        ours = name.startswith(paddle_chainrules.__name__) and module is not dispatch
        if ours and getattr(module, "record", None) is original:
            patch.setattr(module, "record", record)
    gradients = recording.Recording.gradients
    patch.setattr(
        recording.Recording,
        "gradients",
        _watch(gradients, lambda args, kwargs: [list(args[0].leaves), list(args[1])]),
    )


def leave_nets(patch):
    """Calls of nets as they are, for what reads their code."""
    for owner in (Net, FCNet, StatelessLayer):
        for name, function in [*vars(owner).items()]:
            if name in ("forward", "pullback", "vjp"):
                patch.setattr(owner, name, function.__wrapped__)
