"""Nets as people build them, against native Paddle."""

import paddle
import pytest

from conftest import assert_unchanged, snapshot
from paddle_chainrules.testing import check_vjp
from real_nets import NETS


@pytest.mark.parametrize("name", NETS)
def test_forward_and_gradients_equal_native(name):
    paddle.seed(7)
    layer, args = NETS[name]()
    before = snapshot(layer)
    dtypes = ["float32"] if name.startswith("ResNet") else ["float32", "float64"]
    report = check_vjp(layer, None, args, dtypes=dtypes)
    assert_unchanged(layer, before)
    native = [row for row in report.rows if row.oracle == "native"]
    trained = sum(not p.stop_gradient for p in layer.parameters())
    assert len(native) > trained * len(dtypes)
    assert max(row.error for row in native) < 1e-6
