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
    ends_well(f"check({call}, {expected}, {place!r})")


def ends_well(code):
    """Run code after BEGIN in a process of its own."""
    done = run_on_device(f"{BEGIN}\n{code}\nprint('ok')")
    assert done.stdout.split()[-1:] == ["ok"], done.stderr[-2000:]


REFUSED = {
    "parameters on two devices": (
        "net.forward(on_device | {'1.bias': params['1.bias'].to(OTHER)}, x)",
        r"params\['0.weight'\] is on fake_gpu:0, and params\['1.bias'\] is on "
        r"fake_gpu:1.*Move params\['1.bias'\] with .to\('fake_gpu:0'\)",
    ),
    "the input on the other device": (
        "net.pullback(on_device, x.to(OTHER))",
        r"params\['0.weight'\] is on fake_gpu:0, and input 1 is on fake_gpu:1",
    ),
    "a layer": (
        "layer.forward(layer_on_device, x.to(OTHER))",
        r"params\['weight'\] is on fake_gpu:0, and input 1 is on fake_gpu:1",
    ),
    "a gradient of the net": (
        "grad(lambda p: net.forward(p, x.to(OTHER)).sum())(on_device)",
        r"params\['0.weight'\] is on fake_gpu:0, and input 1 is on fake_gpu:1",
    ),
    "a Laplacian": (
        "laplacian(net, on_device, x.to(OTHER))",
        r"params\['0.weight'\] is on fake_gpu:0, and input 1 is on fake_gpu:1",
    ),
    "memory to write to": (
        "net.pullback(on_device, x.to(DEVICE))[1](c, into=(params, None))",
        r"into for params\['0.weight'\] is on cpu, the gradient on fake_gpu:0; move it "
        r"with .to\('fake_gpu:0'\)",
    ),
    "a device that is not there": ("x.to('fake_gpu:7')", "use wrong place"),
    "a device of another name": ("x.to('no_such')", "device must be a string"),
}


@needs_device
def test_tensors_that_no_call_can_take_are_refused():
    ends_well(
        f"""
import re
from paddle_chainrules import laplacian

for name, (call, message) in {REFUSED!r}.items():
    try:
        eval(call)
    except ValueError as error:
        assert re.search(message, str(error)), (name, str(error))
    else:
        raise AssertionError(name)
assert paddle.get_device() == "cpu"
check(lambda: net.forward(on_device, x), lambda: net.forward(params, x), DEVICE)
"""
    )


@needs_device
def test_parameters_that_every_call_copies_are_told_of_once():
    ends_well(
        """
import warnings

def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(40):
            call()
    return [str(w.message) for w in caught if "copies all param" in str(w.message)]

(message,) = told(lambda: layer.forward(layer_params, x.to(DEVICE)))
assert "input 1 is on fake_gpu:0" in message, message
exec(message.partition("once with ")[2], {"params": layer_params}, moved := {})
assert str(moved["params"]["weight"].place) == "Place(fake_gpu:0)"
(message,) = told(lambda: net.vjp(net.flatten(params), x.to(DEVICE), c))
assert "theta = theta.to('fake_gpu:0')" in message, message
assert not told(lambda: net.forward(on_device, x))
assert not told(lambda: net.forward(params, x))
"""
    )


@needs_device
def test_layers_that_move_tensors_themselves_are_left_to_it():
    ends_well(
        """
class Halves(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = paddle.nn.Linear(3, 5), paddle.nn.Linear(5, 2)

    def forward(self, x):
        y = self.first(x.to(DEVICE))
        return self.second(paddle.tanh(y).to(OTHER))

halves, values, *_ = stateless(Halves())
moved = {n: v.to(DEVICE if "first" in n else OTHER) for n, v in values.items()}
places = [f"Place({DEVICE})", f"Place({OTHER})"]
check(lambda: halves.forward(moved, x), lambda: halves.forward(values, x), OTHER)
grads, _ = halves.vjp(moved, x, c.to(OTHER))
assert [str(grads[f"{n}.weight"].place) for n in ("first", "second")] == places

class Sum(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(3, 5)

    def forward(self, x, y):
        return self.linear(x.cpu() + y.cpu())

added, values, *_ = stateless(Sum())
call = lambda: added.forward(values, x.to(DEVICE), x.to(OTHER))
check(call, lambda: added.forward(values, x, x), "cpu")
"""
    )


@needs_device
def test_moves_within_a_function_pass_gradients_back():
    ends_well(
        """
from paddle_chainrules import CaptureError

def moved(x):
    return (x * x + (2 * x).to(DEVICE).pow(3).cpu()).sum()

def plain(x):
    return (x * x + (2 * x).pow(3)).sum()

check(lambda: grad(moved)(x), lambda: grad(plain)(x), "cpu")
check(lambda: jit(grad(moved))(x), lambda: grad(plain)(x), "cpu")
check(lambda: vjp(moved, x)[1](paddle.ones([])), lambda: grad(plain)(x), "cpu")
for call in (lambda: grad(lambda x: grad(moved)(x).sum())(x), lambda: vmap(moved)(x)):
    try:
        call()
    except (NotImplementedError, CaptureError) as error:
        assert "x.to(device) or x.cpu()" in str(error), error
    else:
        raise AssertionError("a derivative without a rule")
"""
    )


@needs_device
def test_a_seed_leaves_the_generators_of_all_devices_alone():
    ends_well(
        """
def states():
    kinds = "cpu", "fake_gpu"
    return [s.current_seed() for kind in kinds for s in paddle.get_rng_state(kind)]

dropout = stateless(paddle.nn.Dropout(0.5))[0]
for current in ("cpu", DEVICE):
    paddle.set_device(current)
    paddle.seed(11)
    before = states()
    for seed in range(40):
        dropout.forward({}, x.to(DEVICE), seed=seed)
    assert len(before) == 3 and states() == before, (before, states())
"""
    )


@needs_device
def test_files_come_onto_the_current_device():
    ends_well(
        """
import tempfile
from paddle_chainrules import distributed, load, load_params, save, save_params

with tempfile.TemporaryDirectory() as folder:
    for name in ("net.npz", "net.safetensors"):
        save_params(f"{folder}/{name}", on_device)
    state = adam(0.1).init(on_device)
    save(f"{folder}/state.safetensors", (state, 1j * on_device["0.bias"]))
    distributed.save_checkpoint(f"{folder}/run.safetensors", on_device)
    for current in ("cpu", DEVICE, OTHER):
        paddle.set_device(current)
        loaded = [
            load_params(f"{folder}/net.npz", net),
            load_params(f"{folder}/net.safetensors", net),
            distributed.load_checkpoint(f"{folder}/run.safetensors"),
        ]
        for found in loaded:
            for name, value in found.items():
                assert str(value.place) == f"Place({current})", (current, value.place)
                assert np.array_equal(value.numpy(), params[name].numpy()), name
        like = state, loaded[0]["0.bias"] * 1j
        found, number = load(f"{folder}/state.safetensors", like)
        assert str(first(found).place) == str(number.place) == f"Place({current})"
"""
    )


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
