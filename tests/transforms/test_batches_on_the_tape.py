"""Operators of batches go by the tape's rules: parts of results, and no crash."""

import numpy as np
import paddle
import pytest

from conftest import randn
from paddle_chainrules import grad, vmap

X = randn([5, 3, 3], "float64")
INDEX = paddle.to_tensor(1)

PARTLY_USED = {
    "unstack": lambda x: paddle.unstack(x)[1] ** 2,
    "meshgrid": lambda x: paddle.meshgrid(x[0], x[1] ** 2)[1] ** 2,
    "broadcast_tensors": lambda x: paddle.broadcast_tensors([x[:1], x])[0] ** 2,
    "qr": lambda x: paddle.linalg.qr(x)[1] ** 2,
    "svd": lambda x: paddle.linalg.svd(x)[1] ** 2,
    "layer_norm": lambda x: paddle.nn.functional.layer_norm(x, [3]) ** 2,
    "a number as an index": lambda x: x[INDEX] ** 2,
    "a number as an index of columns": lambda x: x[:, INDEX] ** 2,
    "gather": lambda x: paddle.gather(x, INDEX, 1) ** 2,
}


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
@pytest.mark.parametrize("name", PARTLY_USED)
def test_gradients_equal_differences_of_each_sample(name):
    one = PARTLY_USED[name]
    weights = randn(vmap(one)(X).shape, "float64", seed=1)
    found = grad(lambda x: (vmap(one)(x) * weights).sum())(X)
    for k in range(len(X)):
        for at in np.ndindex(3, 3):
            step = np.zeros([3, 3])
            step[at] = 1e-6
            up, down = (one(X[k] + paddle.to_tensor(s)) for s in (step, -step))
            wanted = float(((up - down) * weights[k]).sum()) / 2e-6
            assert float(found[k][at]) == pytest.approx(wanted, rel=1e-5, abs=1e-7)
