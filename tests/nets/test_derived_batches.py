"""Programs of derivatives serve any number of samples that does not go in blocks."""

import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import FCNet, stateless
from paddle_chainrules.nets.derivatives.derived import Derivative
from paddle_chainrules.nets.derivatives.per_sample import SampleJacobian
from paddle_chainrules.programs.batches import blocks
from paddle_chainrules.programs.batches.blocks import PROBE
from paddle_chainrules.transforms.as_programs.guarded_calls import GuardedCalls

DERIVED = {
    "laplacian": lambda net: Derivative(net, "laplacian"),
    "one": lambda net: Derivative(net, (0, 2, 0)),
    "several": lambda net: Derivative(net, ((0, 0, 0), (1, 0, 0), (0, 1, 1))),
    "by name": lambda net: Derivative(net, {"u": [None], "u_x": [None, 1]}),
    "Jacobians": lambda net: SampleJacobian(net, 1, None, (True,)),
}


def fc_net():
    net = FCNet((3, 5, 4, 2), "tanh", "float64")
    return net, net.init(0)


def layer_net():
    layers = nn.Linear(3, 6), nn.Silu(), nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 2)
    net, params, _ = stateless(nn.Sequential(*layers).to(dtype="float64"))
    return net, params


def programs_of(derived):
    (cache,) = derived._programs._caches.values()
    return cache


@pytest.mark.thinned(3)
@pytest.mark.parametrize("made", [fc_net, layer_net])
@pytest.mark.parametrize("what", DERIVED)
def test_values_and_gradients_of_any_number_of_samples(what, made, monkeypatch):
    monkeypatch.setattr(blocks, "WHOLE", 0)
    # A guarded function would serve other numbers without a look at the cache.
    monkeypatch.setattr(GuardedCalls, "result", lambda *_: None)
    paddle.seed(0)
    net, params = made()
    derived = DERIVED[what](net)
    for n in (7, 11, 2, 3, 12, 37, PROBE, 1, PROBE + 1):
        x = randn([n, 3], "float64", n)
        expected, back = DERIVED[what](net).pullback(params, x)
        for _ in range(2):
            value, own_back = derived.pullback(params, x)
            assert_same(derived.forward(params, x), expected, rtol=1e-12, atol=1e-12)
            assert_same(value, expected, rtol=1e-12, atol=1e-12)
        cotangent = paddle.utils.map_structure(lambda y: y * 2.0 + 1.0, expected)
        assert_same(own_back(cotangent), back(cotangent), rtol=1e-10, atol=1e-10)
    # Those of 7 or 11 samples serve the others; 1, and more than go at once, do not.
    for kind in ("value", "vjp"):
        kinds = [k for k in programs_of(derived)._entries if k[0] == kind]
        assert len(kinds) == 9
        found = {id(programs_of(derived)._entries[k]) for k in kinds}
        more = 0 if what == "Jacobians" else 1
        assert len(found) == 3 + more
