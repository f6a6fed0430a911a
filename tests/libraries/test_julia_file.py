"""The Julia files of libraries, included in one Julia without Python."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

from conftest import randn
from julia_at_hand import ENVIRONMENT, environ, needs_julia
from paddle_chainrules import FCNet, jvp, stateless
from paddle_chainrules.libraries import Export, save_library

pytest.importorskip("llvmlite.binding", reason="machine code is llvmlite's")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="libraries are linked on Linux by a C compiler",
)
SCRIPT = Path(__file__).with_name("julia_file.jl")


class Pair(paddle.nn.Layer):
    """Two inputs, two outputs of different rank."""

    def __init__(self):
        super().__init__()
        self.of_u = paddle.nn.Linear(3, 4)
        self.of_v = paddle.nn.Linear(2, 4)

    def forward(self, u, v):
        hidden = paddle.tanh(self.of_u(u) * self.of_v(v))
        return hidden, (hidden * hidden).sum(1)


class Words(paddle.nn.Layer):
    """Integers among the inputs and outputs, and an input without influence."""

    def __init__(self):
        super().__init__()
        self.table = paddle.nn.Embedding(7, 3)

    def forward(self, ids, scale, unused):
        return ids * 2, self.table(ids) * scale


def in_doubles(layer):
    """A layer as a net, and its parameters in a vector of float64."""
    net, params, _ = stateless(layer.to(dtype="float64"))
    theta = net.flatten(params)
    return net, randn(theta.shape, "float64", 3)


class Numbers:
    """A folder of arrays, whose files say in their names how Julia reads them."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, **arrays):
        for name, tensor in arrays.items():
            array = tensor.numpy()
            size = "x".join(map(str, reversed(array.shape)))
            file = f"{name}.{array.dtype.name.capitalize()}.{size}.bin"
            array.tofile(self.folder / file)


def save_all(folder):
    """Save the libraries that the script includes, and numbers of Python's."""
    numbers = Numbers(folder)
    net = FCNet((3, 8, 2), "tanh", "float64")
    theta, x, dot = net.flatten(net.init(0)), randn([5, 3], "float64"), randn([5, 3])
    dot = dot.astype("float64") * 2
    derivatives = ["vjp", "jvp", "jacobian"]
    save_library(folder / "heat.so", net, theta, x, derivatives=derivatives)
    save_library(
        folder / "sealed.so", net, theta, x, params="inside", derivatives=["vjp", "jvp"]
    )
    save_library(folder / "net.so", net, theta, x)
    (folder / "other").mkdir()
    save_library(folder / "other" / "heat.so", net, theta, x)
    save_library(folder / "six.so", net, theta, randn([6, 3], "float64"), batched=())
    y, y_dot = jvp(lambda x: net(theta, x), (x,), (dot,))
    units = [paddle.to_tensor(np.tile(row, (5, 1))) for row in np.eye(3)]
    columns = [jvp(lambda x: net(theta, x), (x,), (unit,))[1] for unit in units]
    jacobian = paddle.stack(columns, axis=2)
    numbers.write(theta=theta, x=x, y=y, x_dot=dot, y_dot=y_dot, jacobian=jacobian)

    pair, pair_theta = in_doubles(Pair())
    u, v = randn([4, 3], "float64", 5), randn([4, 2], "float64", 6)
    y0, y1 = pair(pair_theta, u, v)
    numbers.write(pair_theta=pair_theta, u=u, v=v, y0=y0, y1=y1)
    save_library(folder / "pair.so", pair, pair_theta, u, v, derivatives=["vjp", "jvp"])

    words, table = in_doubles(Words())
    ids, unused = paddle.to_tensor([0, 3, 6, 3]), randn([4, 1], "float64")
    scale = paddle.to_tensor(1.5, dtype="float64")
    doubled, rows = words(table, ids, scale, unused)
    numbers.write(table=table, ids=ids, doubled=doubled, rows=rows)
    save_library(
        folder / "words.so",
        words,
        table,
        ids,
        scale,
        unused,
        batched=(1, 3),
        derivatives=["vjp", "jvp"],
    )

    def wave(k, x):
        return (k * x).sin(), k * x > 0, x.sum(0) * k

    k = paddle.to_tensor(0.75, dtype="float64")
    sine, sign, total = wave(k, u)
    numbers.write(k=k, sine=sine, sign=sign, total=total, energy=(k * u * u).mean())
    save_library(
        folder / "own.so",
        {
            "wave": Export(wave, k, u, batched=1),
            "energy": Export(lambda k, x: (k * x * x).mean(), k, u, batched=1),
        },
    )


@needs_julia
def test_julia_files(tmp_path):
    save_all(tmp_path)
    command = ENVIRONMENT.command("-t", "4", SCRIPT, tmp_path)
    done = subprocess.run(
        command, env=environ(), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert done.stdout.endswith("all passed\n")
