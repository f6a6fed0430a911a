"""Calls whose tensors lie on several devices: as Paddle's, and never a crash.

Each runs in a process of its own with the protected device: code that reads the
device's memory on the host ends it.
"""

import os
import subprocess
import sys

import pytest

from device import plugin

needs_device = pytest.mark.skipif(
    plugin.missing() is not None and "CI" not in os.environ,
    reason=f"there is no device to test: {plugin.missing()}",
)

BEGIN = """
import numpy as np
import paddle
from paddle_chainrules import FCNet, grad, jit, scan, stateless, vjp, vmap
from paddle_chainrules.optimizers import adam

DEVICE, OTHER = "fake_gpu:0", "fake_gpu:1"
paddle.set_device("cpu")
net = FCNet((3, 5, 2), "tanh")
params = net.init(0)
on_device = {name: value.to(DEVICE) for name, value in params.items()}
x, c = paddle.randn([4, 3]), paddle.randn([4, 2])
weight = paddle.randn([3, 3])
loss = jit(lambda p, x: (net.forward(p, x) ** 2).sum())
product = jit(lambda x: paddle.tanh(x @ weight).sum())
layer, layer_params, *_ = stateless(paddle.nn.Linear(3, 2))
layer_on_device = {name: value.to(DEVICE) for name, value in layer_params.items()}


def first(result):
    while not isinstance(result, paddle.Tensor):
        items = result.values() if isinstance(result, dict) else result
        result = next(item for item in items if item is not None)
    return result


def check(call, expected, place):
    for _ in range(40):
        result = first(call())
        assert str(result.place) == f"Place({place})", result.place
        found = result.numpy()
        assert np.allclose(found, first(expected()).numpy(), atol=1e-5), found
"""

CALLS = {
    "all on the device": (
        "lambda: loss(on_device, x.to(DEVICE))",
        "lambda: loss(params, x)",
        "fake_gpu:0",
    ),
    "parameters on the CPU": (
        "lambda: loss(params, x.to(DEVICE))",
        "lambda: loss(params, x)",
        "fake_gpu:0",
    ),
    "the batch on the CPU": (
        "lambda: loss(on_device, x)",
        "lambda: loss(params, x)",
        "fake_gpu:0",
    ),
    "a closed-over tensor on the CPU": (
        "lambda: product(x.to(DEVICE))",
        "lambda: product(x)",
        "fake_gpu:0",
    ),
    "one after the other": (
        "lambda: (loss(params, x), loss(on_device, x.to(DEVICE)))[1]",
        "lambda: loss(params, x)",
        "fake_gpu:0",
    ),
    "a cotangent from the device": (
        "lambda: net.pullback(params, x)[1](c.to(DEVICE))",
        "lambda: net.pullback(params, x)[1](c)",
        "fake_gpu:0",
    ),
    "a cotangent from the CPU": (
        "lambda: net.vjp(on_device, x.to(DEVICE), c)",
        "lambda: net.vjp(params, x, c)",
        "fake_gpu:0",
    ),
    "gradients": (
        "lambda: grad(loss)(on_device, x.to(DEVICE))",
        "lambda: grad(loss)(params, x)",
        "fake_gpu:0",
    ),
    "a layer": (
        "lambda: layer.vjp(layer_on_device, x.to(DEVICE), c.to(DEVICE))",
        "lambda: layer.vjp(layer_params, x, c)",
        "fake_gpu:0",
    ),
    "vmap": (
        "lambda: vmap(lambda x: (x @ weight).sum())(x.to(DEVICE))",
        "lambda: vmap(lambda x: (x @ weight).sum())(x)",
        "fake_gpu:0",
    ),
    "scan": (
        "lambda: scan(lambda s, x: (s + x @ weight, s), paddle.zeros([3]), "
        "x.to(DEVICE))",
        "lambda: scan(lambda s, x: (s + x @ weight, s), paddle.zeros([3]), x)",
        "fake_gpu:0",
    ),
    "the other device": (
        "lambda: loss({n: v.to(OTHER) for n, v in params.items()}, x.to(OTHER))",
        "lambda: loss(params, x)",
        "fake_gpu:1",
    ),
    "an optimizer's state on the device": (
        "lambda: adam(0.1).update(on_device, adam(0.1).init(on_device), on_device)[0]",
        "lambda: adam(0.1).update(params, adam(0.1).init(params), params)[0]",
        "fake_gpu:0",
    ),
}


@needs_device
@pytest.mark.parametrize("name", CALLS)
def test_tensors_of_several_devices(name):
    call, expected, place = CALLS[name]
    done = run_on_device(f"{BEGIN}\ncheck({call}, {expected}, {place!r})\nprint('ok')")
    assert done.stdout.split()[-1:] == ["ok"], done.stderr[-2000:]


@needs_device
def test_code_that_reads_the_memory_on_the_host_ends():
    code = "import ctypes, paddle; paddle.set_device('fake_gpu'); x = paddle.ones([3])"
    done = run_on_device(f"{code}; ctypes.string_at(x.data_ptr(), 4)")
    assert done.returncode < 0, done.stderr


def run_on_device(code):
    """What a process with the plugin has done."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={
            **os.environ,
            "CUSTOM_DEVICE_ROOT": str(plugin.folder()),
            "GLOG_minloglevel": "2",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
