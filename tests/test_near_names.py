"""Names and habits from elsewhere, which errors answer with what there is here."""

import subprocess
import sys

import numpy as np
import paddle
import pytest
from paddle import nn

import paddle_chainrules
from conftest import randn
from paddle_chainrules import (
    FCNet,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    linearize,
    load_params,
    optimizers,
    stateless,
    vmap,
)

X = randn([4, 3])
NET = FCNet((3, 5, 2), "tanh")
PARAMS = NET.init(0)
LAYERS = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
LAYER, ITS, _ = stateless(LAYERS)
NORMED, ITS_PARAMS, BUFFERS = stateless(nn.Sequential(nn.BatchNorm1D(3)))
BY_NAME = r"the buffers \['0._mean', '0._variance'\] .* net\(params, x, buffers=buff"


def cubes(x):
    return (x**3).sum()


SAID = {
    "functional_call": (lambda: paddle_chainrules.functional_call, "stateless.layer"),
    "grad_and_value": (lambda: paddle_chainrules.grad_and_value, "value_and_grad"),
    "of no meaning": (lambda: paddle_chainrules.of_no_meaning, "dir.. has all"),
    "vmap in_dims": (
        lambda: vmap(cubes, in_dims=0),
        "in_dims; in its place give in_a",
    ),
    "vmap out_dims": (lambda: vmap(cubes, out_dims=0), "place give out_axes"),
    "adam lr": (
        lambda: optimizers.adam(lr=0.1),
        "no argument lr; .* learning_rate",
    ),
    "adam betas": (lambda: optimizers.adam(0.1, betas=(0.9, 0.99)), "beta1 and beta2"),
    "optimizers.Adam": (lambda: optimizers.Adam, "here it is the function adam"),
    "optimizers.no": (lambda: optimizers.no, "__all__ has all"),
    "net.eval": (lambda: LAYER.eval(), "in_mode"),
    "FCNet.eval": (lambda: FCNet((2, 3)).eval(), "the same in training and evaluation"),
    "net.apply": (lambda: NET.apply, r"here it is net\(params, x\)"),
    "net.state_dict": (lambda: LAYER.state_dict, "to_state_dict"),
    "load_params": (lambda: load_params("net.npz"), r"give load_params\(path, net\)"),
    "activation Tanh": (lambda: FCNet((3, 2), "Tanh"), "give 'tanh', or one of"),
    "activation nn.Tanh": (lambda: FCNet((3, 2), nn.Tanh), "is the class Tanh.*'tanh'"),
    "activation nn.Hardtanh": (
        lambda: FCNet((3, 2), nn.Hardtanh),
        r"give 'Hardtanh\(\)'",
    ),
    "hvp of tuples": (lambda: hvp(cubes, (X,), (X,)), r"give hvp\(fn, x, v\)"),
    "linearize at a number": (lambda: linearize(cubes, 1.0), "of tensors, got float"),
    "grad of integers": (
        lambda: grad(lambda x: (x * 2.0).sum())(paddle.arange(3)),
        r"got paddle.int64 as argument 0, .* by .astype\('float32'\), close over",
    ),
    "flatten without a gradient": (
        lambda: NET.flatten({**PARAMS, "0.bias": None}),
        "or give paddle.zeros_like of it where nothing flows",
    ),
    "FCNet without parameters": (lambda: NET(X), r"first, as net\(params, x\)"),
    "a layer without parameters": (lambda: LAYER(X), r"calls are net\(params, x\)"),
    "a width": (
        lambda: LAYER(ITS, randn([5, 7])),
        r'layer "0" \(Linear\) got a tensor of shape \[5, 7\], it needs \[n, 3\] for n',
    ),
    "turned": (lambda: LAYER(ITS, randn([3, 5])), "x.T is so"),
    "a dtype": (
        lambda: LAYER(ITS, randn([5, 3], "float64")),
        r"a tensor of float64, it needs float32; convert it, such as x\.astype",
    ),
    "numpy": (
        lambda: LAYER(ITS, np.ones((5, 3))),
        "a ndarray, it needs a tensor.*makes one",
    ),
    "buffers second": (lambda: NORMED(ITS_PARAMS, BUFFERS, X), BY_NAME),
    "buffers last": (lambda: NORMED(ITS_PARAMS, X, {**NORMED.buffers}), BY_NAME),
    "buffers in a pair": (lambda: NORMED((ITS_PARAMS, BUFFERS), X), BY_NAME),
    "buffers among parameters": (
        lambda: NORMED.pullback({**ITS_PARAMS, **BUFFERS}, X),
        BY_NAME,
    ),
    "a list": (lambda: LAYER(ITS, [[1.0]]), "got a list, it needs a tensor of shape"),
}


@pytest.mark.parametrize("name", SAID)
def test_errors_name_what_there_is(name):
    call, words = SAID[name]
    with pytest.raises((TypeError, ValueError, AttributeError), match=words):
        call()


def test_arguments_may_have_the_names_of_buffers():
    class Scaled(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.register_buffer("t", paddle.full([1], 2.0))

        def forward(self, given):
            return self.linear(given["x"]) * given["t"] + self.t

    layer = Scaled()
    net, params, _ = stateless(layer)
    given = {"x": X, "t": randn([4, 1])}
    assert net(params, given).equal_all(layer(given))
    assert net.pullback(params, given)[0].equal_all(layer(given))


def test_errors_of_layers_keep_paddles_own():
    with pytest.raises(ValueError, match='layer "0"') as error:
        LAYER.pullback(ITS, randn([5, 7]))
    assert "InvalidArgument" in str(error.value.__cause__)
    assert isinstance(error.value, TypeError)


@pytest.mark.parametrize("transform", [jacrev, jacfwd, hessian])
def test_rows_at_a_time_are_taken(transform):
    row = X[0]
    whole = transform(cubes)(row)
    assert transform(cubes, chunk_size=2)(row).equal_all(whole)
    for bad in (0, -1, True, "2"):
        with pytest.raises(ValueError, match="chunk_size must be an integer from 1 on"):
            transform(cubes, chunk_size=bad)


def test_results_of_searches_are_shown_in_a_line():
    found = optimizers.lbfgs(lambda p: cubes(p["a"] ** 2), {"a": X})
    text = repr(found)
    assert text.startswith("Minimum(value=")
    assert "reason=" in text
    assert "\n" not in text
    assert "Tensor" not in text


def test_the_command_alone_prints_its_help():
    run = [sys.executable, "-W", "ignore", "-m", "paddle_chainrules"]
    found = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "doctor" in found.stdout
    assert "examples:" in found.stdout
