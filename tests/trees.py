"""Trees of tensors: the tensors of one, and two that are to be near each other."""

import numpy as np
import optree
import paddle


def tensors_of(tree):
    """Return the tensors among the leaves."""
    return [x for x in optree.tree_leaves(tree) if isinstance(x, paddle.Tensor)]


def assert_near(found, expected, rtol=1e-11, least=1e-3):
    """Trees equal in structure, shape and dtype, and in value to a part of the largest
    entry of each tensor, taken as ``least`` or more."""
    a, b = (optree.tree_flatten(tree) for tree in (found, expected))
    assert a[1] == b[1]
    for x, y in zip(a[0], b[0], strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        atol = rtol * max(float(np.abs(y.numpy()).max(initial=0.0)), least)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=0, atol=atol)
