"""Convolutions in machine code give what Paddle's kernels give, and their gradients."""

import paddle
import paddle.nn.functional as F
import pytest

from conftest import native, products_on, randn
from paddle_chainrules import settings as switch
from paddle_chainrules import stateless, vjp
from paddle_chainrules.programs.codegen.images import convolution
from programs.fenced import assert_near, check, cotangent


def conv(x, filters, by=F.conv2d, **how):
    return by(x, filters, **how)


CASES = {
    "plain": ([2, 3, 7, 5], [4, 3, 3, 2], {}),
    "padded": ([2, 3, 7, 5], [4, 3, 3, 3], {"padding": 1}),
    "steps and dilations": (
        [2, 3, 11, 13],
        [4, 3, 3, 2],
        {"padding": [1, 2], "stride": [2, 3], "dilation": [2, 1]},
    ),
    "padded on some sides": ([2, 3, 7, 5], [4, 3, 3, 3], {"padding": [0, 1, 2, 0]}),
    "the same size": ([2, 3, 7, 6], [4, 3, 3, 3], {"padding": "SAME", "stride": 2}),
    "the same size, dilated": (
        [2, 3, 9, 8],
        [4, 3, 3, 2],
        {"padding": "SAME", "dilation": 2},
    ),
    "valid": ([2, 3, 7, 6], [4, 3, 3, 3], {"padding": "VALID"}),
    "points": ([2, 3, 7, 6], [4, 3, 1, 1], {}),
    "points at steps": ([2, 3, 7, 6], [4, 3, 1, 1], {"stride": 2}),
    "points, padded": ([2, 3, 4, 5], [4, 3, 1, 1], {"padding": 1}),
    "groups": ([2, 6, 7, 6], [4, 3, 3, 3], {"groups": 2, "padding": 1}),
    "groups of points": ([2, 40, 5, 3], [4, 20, 1, 1], {"groups": 2}),
    "depthwise": ([2, 3, 7, 6], [3, 1, 3, 2], {"groups": 3}),
    "depthwise, padded": (
        [2, 3, 7, 6],
        [3, 1, 3, 3],
        {"groups": 3, "padding": [1, 2], "stride": 2},
    ),
    "depthwise, dilated": (
        [2, 5, 9, 8],
        [5, 1, 3, 2],
        {"groups": 5, "dilation": 2, "padding": [1, 0, 0, 2]},
    ),
    "depthwise of one place": ([2, 3, 4, 2], [3, 1, 4, 2], {"groups": 3}),
    "depthwise in one dimension": (
        [2, 3, 7],
        [3, 1, 3],
        {"by": F.conv1d, "groups": 3, "padding": 1},
    ),
    "one place": ([3, 2, 3, 4], [5, 2, 3, 4], {}),
    "one image, one filter": ([1, 1, 9, 1], [1, 1, 3, 1], {}),
    "in one dimension": ([2, 6, 7], [4, 6, 3], {"by": F.conv1d, "padding": 1}),
    "in three": (
        [2, 3, 5, 6, 7],
        [4, 3, 3, 2, 3],
        {"by": F.conv3d, "padding": 1, "stride": 2},
    ),
    "turned": (
        [2, 3, 5, 6],
        [3, 4, 3, 2],
        {"by": F.conv2d_transpose, "padding": 1, "stride": 2},
    ),
    "turned, longer": (
        [2, 3, 5, 6],
        [3, 4, 3, 3],
        {"by": F.conv2d_transpose, "padding": 1, "stride": 2, "output_padding": 1},
    ),
    "turned, dilated": (
        [2, 3, 5, 6],
        [3, 4, 2, 3],
        {"by": F.conv2d_transpose, "dilation": [3, 2]},
    ),
    "turned, groups": (
        [2, 6, 5, 6],
        [6, 8, 3, 3],
        {"by": F.conv2d_transpose, "stride": 2, "groups": 3},
    ),
    "turned, depthwise": (
        [2, 3, 5, 6],
        [3, 1, 3, 2],
        {"by": F.conv2d_transpose, "stride": 2, "groups": 3, "padding": 1},
    ),
    "turned, in one dimension": (
        [2, 3, 5],
        [3, 4, 3],
        {"by": F.conv1d_transpose, "stride": 2},
    ),
    "turned, in three": (
        [2, 3, 3, 4, 3],
        [3, 4, 3, 2, 3],
        {"by": F.conv3d_transpose, "stride": 2},
    ),
}
"""By name the shapes of images and filters, and how."""


@products_on
@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 1 << 18], ids=["a row", "all rows"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, columns, dtype, monkeypatch):
    monkeypatch.setattr(convolution, "COLUMN_MATRIX_BYTES", columns)
    shape, kernel, how = CASES[name]
    x, filters = randn(shape, dtype), randn(kernel, dtype, seed=1)

    def both(x, filters):
        y, back = vjp(lambda *given: conv(*given, **how) * 2.0, x, filters)
        return y, *back(cotangent(y))

    made = check(both, x, filters)
    assert [op.operator.name for op in made.ops] == ["region"]


def test_convolutions_of_views():
    def fn(x, filters):
        y = F.conv2d(x.transpose([0, 1, 3, 2]), filters.transpose([1, 0, 2, 3]))
        return y[:, 1:] * 2.0

    check(fn, randn([2, 3, 7, 5]), randn([3, 4, 3, 3], seed=1))


def test_what_stays_with_paddle():
    made = check(
        lambda x, w: F.conv2d(x * 2.0 + 1.0, w, groups=3) * 2.0 + 1.0,
        randn([2, 6, 6, 6]),
        randn([6, 2, 1, 1], seed=1),
    )
    names = [op.operator.name for op in made.ops]
    assert names.count("region") == 2
    assert len(names) == 3


LAST = {
    "plain": ([2, 7, 5, 3], [4, 3, 3, 2], {"data_format": "NHWC", "padding": 1}),
    "depthwise": ([2, 7, 6, 3], [3, 1, 3, 2], {"data_format": "NHWC", "groups": 3}),
    "in one dimension": (
        [2, 7, 6],
        [4, 6, 3],
        {"by": F.conv1d, "data_format": "NLC", "stride": 2},
    ),
    "in three": (
        [2, 5, 6, 4, 3],
        [4, 3, 3, 2, 3],
        {"by": F.conv3d, "data_format": "NDHWC"},
    ),
    "turned": (
        [2, 5, 6, 3],
        [3, 4, 3, 2],
        {"by": F.conv2d_transpose, "data_format": "NHWC", "stride": 2},
    ),
}


@products_on
@pytest.mark.parametrize("name", LAST)
def test_channels_that_are_last(name):
    shape, kernel, how = LAST[name]

    def both(x, filters):
        y, back = vjp(lambda *given: conv(*given, **how) * 2.0, x, filters)
        by_x, by_filters = back(cotangent(y))
        return y, by_x * 2.0, by_filters

    made = check(both, randn(shape), randn(kernel, seed=1))
    assert [op.operator.name for op in made.ops] == ["region"]


class Images(paddle.nn.Layer):
    """With sizes that numbers of samples are, too."""

    def __init__(self, norm=None):
        super().__init__()
        self.first = paddle.nn.Conv2D(3, 5, 3, padding=1)
        self.norm = norm or paddle.nn.Identity()
        self.second = paddle.nn.Conv2D(5, 4, 2, stride=2)
        self.last = paddle.nn.Linear(4 * 9, 2)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        return self.last(F.tanh(self.second(y)).flatten(1))


@pytest.mark.parametrize("norm", [None, lambda: paddle.nn.BatchNorm2D(5)])
def test_batches_that_change(norm, monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    paddle.seed(0)
    layer = Images(norm and norm())
    layer.eval()
    net, params, buffers = stateless(layer, jit=True)
    given = {"buffers": buffers} if buffers else {}
    for n in (3, 5, 2, 6, 45, 36, 1, 8, 3):
        x, c = randn([n, 3, 6, 6], seed=n), randn([n, 2], seed=n + 1)
        expected, (by_name, (by_x,)) = native(layer, (x,), c)
        for _ in range(3):
            y, back, *_ = net.pullback(params, x, **given)
            grads, (slope,) = back(c)
            assert_near(y, expected)
            assert_near(slope, by_x)
            for key, each in grads.items():
                assert_near(each, by_name[key], 2_000)
