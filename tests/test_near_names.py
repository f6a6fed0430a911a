"""Names and habits from elsewhere, which errors answer with what there is here."""

import subprocess
import sys

import paddle
import pytest
from paddle import nn

from conftest import randn
from paddle_chainrules import (
    hessian,
    jacfwd,
    jacrev,
    optimizers,
    stateless,
)

X = randn([4, 3])
LAYERS = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
LAYER, ITS, _ = stateless(LAYERS)


def cubes(x):
    return (x**3).sum()


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
