"""Derivatives of nets from layers that slice, normalize and convolve, as libraries."""

import ctypes
import shutil
import sys

import numpy as np
import paddle
import pytest
from paddle import nn

from paddle_chainrules import stateless
from paddle_chainrules.libraries import Export, load_library, save_library

pytest.importorskip("llvmlite.binding", reason="machine code is llvmlite's")
pytestmark = [
    pytest.mark.usefixtures("in_double"),
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None,
        reason="libraries are linked on Linux by a C compiler",
    ),
]
DERIVATIVES = ["jacobian", "hessian"]


class Sliced(nn.Layer):
    """A net that takes the columns of its input apart."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 4), nn.Linear(2, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        gate = nn.functional.sigmoid(self.a(x[:, :1]))
        return self.last(gate * paddle.tanh(self.b(x[:, 1:])))


class Normalized(nn.Layer):
    """A net with batch norm, whose statistics are no ones and zeros."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.norm = nn.BatchNorm1D(4)
        self.norm._mean.set_value(paddle.to_tensor([0.3, -0.2, 0.1, 0.5]))
        self.norm._variance.set_value(paddle.to_tensor([0.5, 1.5, 2.0, 0.7]))

    def forward(self, x):
        return self.last(paddle.tanh(self.norm(self.first(x))))


class Convolved(nn.Layer):
    """A net that convolves its input."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1D(1, 4, 3, padding=1), nn.Linear(12, 2)

    def forward(self, x):
        return self.last(paddle.tanh(self.first(x.unsqueeze(1))).flatten(1))


class Standardized(nn.Layer):
    """A net with layer norm, whose second derivatives take powers of -1/2."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.last(paddle.tanh(self.norm(self.first(x))))


@pytest.mark.parametrize("layer", [Sliced, Normalized, Convolved])
def test_jacobian_and_hessian_of_any_number_of_samples(layer, tmp_path):
    paddle.seed(3)
    net, params, _ = stateless(layer().eval())
    x = paddle.randn([4, 3])
    path = tmp_path / "layers.so"
    save_library(path, net, params, x, params="inside", derivatives=DERIVATIVES)
    library, step = load_library(path), 1e-6
    for n in (1, 6):
        x = np.random.default_rng(n).standard_normal([n, 3])

        def value(x):
            return net(params, paddle.to_tensor(x)).numpy()

        for found, of in (
            (library.layers_jacobian(x), value),
            (library.layers_hessian(x), library.layers_jacobian),
        ):
            moves = step * np.eye(3)
            slopes = [(of(x + move) - of(x - move)) / (2 * step) for move in moves]
            np.testing.assert_allclose(
                found, np.stack(slopes, -1), rtol=1e-6, atol=1e-8
            )


class Scaled(nn.Layer):
    """A net of indices and points, scaled by numbers that all samples share."""

    def __init__(self):
        super().__init__()
        self.rows, self.last = nn.Embedding(5, 3), nn.Linear(3, 2)

    def forward(self, index, x, scales):
        return self.last(paddle.tanh(self.rows(index) * x)) * scales


def test_tangents_of_an_input_without_samples(tmp_path):
    paddle.seed(5)
    net, params, _ = stateless(Scaled())
    index, x, scales = (
        paddle.to_tensor([1, 4, 0]),
        paddle.randn([3, 3]),
        paddle.ones([2]),
    )
    path, given = tmp_path / "scaled.so", (index, x, scales)
    how = {"params": "inside", "derivatives": ["jvp"], "batched": (1, 2)}
    save_library(path, net, params, *given, **how)
    rng, step = np.random.default_rng(2), 1e-6
    index = rng.integers(0, 5, [6])
    x, x_dot = rng.standard_normal([2, 6, 3])
    scales, scales_dot = rng.standard_normal([2, 2])

    def value(t):
        moved = (index, x + t * x_dot, scales + t * scales_dot)
        return net(params, *map(paddle.to_tensor, moved)).numpy()

    found = load_library(path).scaled_jvp(index, x, scales, x_dot, scales_dot)
    np.testing.assert_allclose(found[0], value(0.0), rtol=1e-12)
    slope = (value(step) - value(-step)) / (2 * step)
    np.testing.assert_allclose(found[1], slope, rtol=1e-6, atol=1e-8)


def test_bytes_may_have_samples(tmp_path):
    flags, x = paddle.to_tensor([0, 1, 2], "uint8"), paddle.rand([3])
    doubled = Export(lambda flags, x: (flags, x * 2), flags, x, batched=(0, 1))
    save_library(tmp_path / "bytes.so", {"doubled": doubled})
    given = np.array([7, 255, 0, 3], "uint8"), np.arange(4.0)
    found = load_library(tmp_path / "bytes.so").bytes_doubled(*given)
    assert found[0].tolist() == given[0].tolist()
    assert found[1].tolist() == [0.0, 2.0, 4.0, 6.0]


def test_laplacian_of_a_net_with_layer_norm(tmp_path):
    paddle.seed(6)
    net, params, _ = stateless(Standardized())
    how = {"params": "inside", "derivatives": ["jacobian", "laplacian"]}
    save_library(tmp_path / "norm.so", net, params, paddle.randn([4, 3]), **how)
    library, step = load_library(tmp_path / "norm.so"), 1e-6
    for n in (1, 6):
        x = np.random.default_rng(n).standard_normal([n, 3])
        expected = np.zeros([n, 2])
        for i, move in enumerate(step * np.eye(3)):
            above, below = (library.norm_jacobian(x + m) for m in (move, -move))
            expected += (above - below)[..., i] / (2 * step)
        found = library.norm_laplacian(x)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_tensors_inside_may_require_gradients(tmp_path):
    paddle.seed(7)
    layer = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    assert not layer[0].weight.stop_gradient
    save_library(tmp_path / "inside.so", layer, paddle.randn([4, 3]), batched=0)
    x = np.random.default_rng(1).standard_normal([6, 3])
    found = load_library(tmp_path / "inside.so").inside(x)
    np.testing.assert_allclose(found, layer(paddle.to_tensor(x)).numpy(), rtol=1e-12)


def test_sizes_in_bytes_stay_within_64_bits(tmp_path):
    def attended(x):
        return paddle.nn.functional.softmax(x @ x.T, -1) @ x

    save_library(tmp_path / "wide.so", attended, paddle.randn([4, 3]), batched=0)
    wide = ctypes.CDLL(str(tmp_path / "wide.so")).wide
    x, y = (np.zeros([4, 3]) for _ in range(2))
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (x, y)]
    for n in (1_518_500_250, 2**31 - 1):  # whose squares times 8 are 2**64 and more
        assert wide(ctypes.c_int64(n), *pointers) == 2
    assert wide(ctypes.c_int64(4), *pointers) == 0
