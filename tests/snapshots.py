"""A layer before and after: for the tests of both languages."""

import numpy as np


def snapshot(layer):
    """Everything of a layer that no call may change."""
    return {
        "tensors": {
            name: (id(value), value.numpy().copy(), value.stop_gradient)
            for name, value in (*layer.named_parameters(), *layer.named_buffers())
            if value._is_initialized()
        },
        "grads": {
            name: None if p.grad is None else p.grad.numpy().copy()
            for name, p in layer.named_parameters()
        },
        "modes": [sub.training for sub in layer.sublayers(include_self=True)],
        "hooks": [
            (len(sub._forward_pre_hooks), len(sub._forward_post_hooks))
            for sub in layer.sublayers(include_self=True)
        ],
    }


def assert_unchanged(layer, before):
    after = snapshot(layer)
    assert after["modes"] == before["modes"]
    assert after["hooks"] == before["hooks"]
    assert after["tensors"].keys() == before["tensors"].keys()
    for name, (identity, value, stop) in before["tensors"].items():
        assert after["tensors"][name][0] == identity
        assert after["tensors"][name][2] == stop
        np.testing.assert_array_equal(after["tensors"][name][1], value)
    for name, grad in before["grads"].items():
        if grad is None:
            assert after["grads"][name] is None
        else:
            np.testing.assert_array_equal(after["grads"][name], grad)
