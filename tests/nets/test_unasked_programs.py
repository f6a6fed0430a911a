"""Nets that run as programs without being asked, and those that do not."""

import functools
from pathlib import Path

import optree
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import PROGRAMS, assert_same, programs_on, randn, run_code
from paddle_chainrules import FCNet, grad, stateless
from paddle_chainrules.nets.calls.programs import (
    CALLS_BEFORE_PROGRAM as CALLS,
)
from paddle_chainrules.nets.calls.programs import (
    programs_for_paddle_layers,
)
from paddle_chainrules.nets.layers.paddles_own import is_paddles_own
from paddle_chainrules.transforms.as_programs.program_recording import ProgramRecording

not_asked = pytest.mark.skipif(PROGRAMS, reason="all nets are asked to be programs")


class Mine(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) * 2


def hooked(hook):
    layer = nn.Sequential(nn.Linear(3, 3), nn.GELU())
    layer[0].register_forward_post_hook(hook)
    return layer


def with_another_forward():
    layer = nn.Linear(3, 3)
    layer.forward = lambda x: F.linear(x, layer.weight) * 2
    return layer


def with_an_attribute(value):
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    layer.activation = value
    return layer


OWN = {
    "a layer": lambda: nn.LayerNorm(3),
    "a Sequential": lambda: nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.LayerNorm(3)),
    "a Transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8),
    "a vision model": lambda: paddle.vision.models.LeNet(),
    "weight_norm": lambda: nn.utils.weight_norm(nn.Linear(3, 3)),
    "a function of Paddle's": lambda: with_an_attribute(
        functools.partial(F.gelu, approximate=True)
    ),
}
OTHERS = {
    "a class": Mine,
    "a class in a Sequential": lambda: nn.Sequential(nn.Linear(3, 3), Mine()),
    "a hook": lambda: hooked(lambda layer, given, found: found * 2),
    "another forward": with_another_forward,
    "a lambda": lambda: with_an_attribute(lambda x: x * 2),
    "a lambda in a partial": lambda: with_an_attribute(
        functools.partial(lambda x, y: x * y, 2.0)
    ),
}


ORDINALS = {4: "fourth", 5: "fifth", 6: "sixth"}
DOCS = Path(__file__).resolve().parents[2] / "docs"
SENTENCES = {
    "programs.md": "from the {layer} similar call on (`FCNet`: the {net})",
    "performance.md": "from the {layer} call of a kind on",
}


@programs_on
@not_asked
def test_the_docs_name_the_call_that_makes_a_program(monkeypatch):
    from paddle_chainrules.transforms.as_programs import program_cache

    capture, captures = program_cache.capture, []

    def noted(*args, **kwargs):
        captures.append(call)
        return capture(*args, **kwargs)

    monkeypatch.setattr(program_cache, "capture", noted)
    fc, layer = FCNet((3, 2)), stateless(nn.Linear(3, 2))
    first = {}
    for name, (net, params) in {"net": (fc, fc.init(0)), "layer": layer[:2]}.items():
        captures.clear()
        for call in range(1, 10):  # noqa: B007
            net.forward(params, randn([4, 3]))
        first[name] = ORDINALS[captures[0]]
    assert first["net"] == ORDINALS[CALLS + 1]
    for page, sentence in SENTENCES.items():
        assert sentence.format(**first) in (DOCS / page).read_text()


@pytest.mark.parametrize("name", OWN)
def test_layers_of_paddle_s_own(name):
    assert is_paddles_own(OWN[name]())


@programs_on
@pytest.mark.parametrize("name", OTHERS)
def test_layers_with_code_of_others(name):
    layer = OTHERS[name]()
    assert not is_paddles_own(layer)
    assert (
        "not all of its layers are Paddle's own"
        in stateless(layer, jit=None)[0].describe().runs
    )


@programs_on
@not_asked
def test_a_net_becomes_a_program_after_some_calls():
    layer = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 2))
    net, params, _ = stateless(layer)
    assert "after 3 calls" in str(net.describe())
    x, cotangent = randn([4, 3]), randn([4, 2], seed=1)
    found = [net.pullback(params, x) for _ in range(CALLS + 3)]
    kinds = [isinstance(back._recording, ProgramRecording) for _, back in found]
    # The first call of all learns what the layer does.
    assert kinds == [False] * (CALLS + 1) + [True] * 2
    assert "runs as a program" in net.describe().runs
    (y, first), *others = found
    for value, pullback in others:
        assert_same(value, y, rtol=1e-6, atol=1e-6)
        expected = first(cotangent)[0]
        for name, part in pullback(cotangent)[0].items():
            assert_same(part, expected[name], rtol=1e-5, atol=1e-6)
    # Another shape is another kind.
    _, pullback = net.pullback(params, randn([5, 3]))
    assert not isinstance(pullback._recording, ProgramRecording)


class Writes(nn.Layer):
    def forward(self, x):
        x.add_(paddle.ones_like(x))
        return x


class Asks(nn.Layer):
    def forward(self, x):
        x.stop_gradient = False
        return x * 2


@programs_on
@pytest.mark.parametrize(
    ("kind", "said"), [(Writes, "writes into"), (Asks, "changes stop_gradient")]
)
def test_a_net_says_why_it_never_runs_as_a_program(kind, said):
    net, params, _ = stateless(kind(), jit=True)
    for _ in range(3):
        net.forward(params, randn([2, 3]))
    assert said in net.describe().runs


@programs_on
@not_asked
def test_many_shapes_are_not_remembered_for_ever():
    net, params, _ = stateless(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)))
    for n in range(1, 60):
        net.pullback(params, randn([n, 3]))
    (cache,) = net._programs._caches.values()
    assert not cache.entries


CODE = """
import paddle
from paddle import nn
from paddle_chainrules import jit, jvp, stateless, make_program
calls = []
def fn(x):
    calls.append(1)
    return paddle.triu(x) * x
x = paddle.randn([3, 3])
f = jit(fn)
for _ in range(5): f(x)
assert len(calls) == 5, calls
net, params, _ = stateless(nn.LayerNorm(3), jit=True)
assert "since programs are off" in str(net.describe())
for _ in range(5): net.forward(params, x)
slope = jvp(fn, (x,), (x,))[1]
assert (slope - 2 * paddle.triu(x) * x).abs().max() < 1e-5
assert len(make_program(fn)(x).ops) == 2
assert jit(fn, strict=True)(x).shape == [3, 3]
print("fine")
"""


@pytest.mark.parametrize(("value", "said"), [("off", "fine"), ("maybe", "set it to")])
def test_programs_off(value, said):
    found = run_code(CODE, PADDLE_CHAINRULES_PROGRAMS=value)
    assert said in found.stdout + found.stderr, found.stderr


def test_buffers_come_back_where_there_are_none():
    net, params, buffers = stateless(nn.Linear(3, 2))
    x = randn([4, 3])
    for _ in range(CALLS + 3):
        y, new = net.forward(params, x, buffers=buffers, seed=1)
        z, _, again = net.pullback(params, x, buffers=buffers)
        assert new == again == {}
        assert_same(y, z, rtol=1e-6, atol=1e-7)


@programs_on
@not_asked
def test_any_number_of_samples():
    """Two captures show that a program holds for any; a third is not made."""
    layer = nn.Sequential(
        nn.Conv2D(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 2)
    )
    net, params, _ = stateless(layer)
    plain, _, _ = stateless(layer, jit=False)
    for n in [4] * (CALLS + 2) + [6] * (CALLS + 2) + [7, 12, 2, 5]:
        x, cotangent = randn([n, 3, 5, 5], seed=n), randn([n, 2], seed=n + 1)
        y, pullback = net.pullback(params, x)
        z, expected = plain.pullback(params, x)
        assert_same(y, z, rtol=1e-5, atol=1e-6)
        assert_same(net.forward(params, x), z, rtol=1e-5, atol=1e-6)
        assert_same(pullback(cotangent), expected(cotangent), rtol=1e-4, atol=1e-5)
        if n not in (4, 6):
            assert isinstance(pullback._recording, ProgramRecording)
    assert "of which there are 4" in net.describe().runs  # values, and with gradients


class Averaged(nn.Layer):
    """Its numbers depend on how many samples there are."""

    def forward(self, x):
        return x / x.shape[0] + paddle.ones([x.shape[0], 1, 1])


@not_asked
@pytest.mark.parametrize("make", [lambda: nn.LSTM(3, 4), Averaged])
def test_not_any_number_where_the_number_counts(make):
    layer = make()
    net, params, _ = stateless(layer)
    net._own_programs = programs_for_paddle_layers(net)  # as if the code were Paddle's
    for n in [4] * (CALLS + 2) + [6] * (CALLS + 2) + [7, 5, 8]:
        x = randn([n, 2, 3], seed=n)
        found, expected = net.forward(params, x), layer(x)
        for a, b in zip(*map(optree.tree_leaves, (found, expected)), strict=True):
            assert_same(a, b.detach(), rtol=1e-5, atol=1e-6)


def test_an_order_of_parameters_does_not_change_what_others_are_given():
    net, params, _ = stateless(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), jit=True)
    turned, x = dict(reversed(params.items())), randn([4, 3])
    for given in [turned, turned, turned, params, params, turned]:
        y, pullback = net.pullback(given, x)
        for found in (pullback(y)[0], pullback(y, wrt=("params", "args"))[0]):
            assert list(found) == list(given)
            assert_same(net.spec.as_dict(found), net.vjp(params, x, y)[0], rtol=1e-6)


def test_trees_of_parameters_do_not_change_what_others_are_given():
    net, params, _ = stateless(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), jit=True)
    row, theta, x = [*params.values()], net.flatten(params), randn([4, 3])
    for given in [row, row, row, params, params, theta, theta, row, params, theta]:
        y, pullback = net.pullback(given, x)
        found = pullback(y)[0]
        assert type(found) is type(given)
        named = net.spec.as_dict(found)
        assert_same(named, net.vjp(params, x, y)[0], rtol=1e-6, atol=1e-7)


def test_the_only_parameter_alone_or_in_a_dict():
    net, params, _ = stateless(nn.PReLU())
    theta, x = net.flatten(params), -paddle.ones([4, 3])
    for given in [theta, theta, theta, theta, theta, params, params, theta]:
        y, pullback = net.pullback(given, x)
        by_weight = paddle.to_tensor([12 * 0.25])
        expected = by_weight if given is theta else {"_weight": by_weight}
        assert_same(pullback(y)[0], expected)


@pytest.mark.parametrize("deep", [False, True])
def test_any_number_of_samples_on_the_caller_s_graph(deep):
    net = FCNet((3, 5, 2), "tanh", "float64")
    plain = FCNet((3, 5, 2), paddle.tanh, "float64")
    params = net.init(0)

    def loss(net):
        def of(params, x):
            y = net.forward(params, x)
            return (y**2).sum() + (y[:1] ** 3).sum()

        return grad(lambda p, x: (grad(of, 1)(p, x) ** 2).sum()) if deep else grad(of)

    for n in [4] * (CALLS + 3) + [6] * (CALLS + 3) + [7, 5, 4, 2, 1]:
        x = randn([n, 3], "float64", n)
        found, expected = loss(net)(params, x), loss(plain)(params, x)
        assert_same(found, expected, rtol=1e-9, atol=1e-11)
        leaf = {k: v.clone() for k, v in params.items()}
        for value in leaf.values():
            value.stop_gradient = False
        net.forward(leaf, x).sum().backward()
        ones = paddle.ones([n, 2], "float64")
        expected, _ = plain.vjp(params, x, ones)
        grads = {k: v.grad for k, v in leaf.items()}
        assert_same(grads, expected, rtol=1e-10, atol=1e-12)
