"""FCNet against the same net built from paddle.nn."""

import dataclasses

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import as_programs, assert_same, native, randn
from differences import slopes_of
from paddle_chainrules import ACTIVATIONS, FCNet, stateless
from paddle_chainrules.nets.calls.net_guards import GuardedPullback
from paddle_chainrules.nets.calls.programs import CALLS_BEFORE_PROGRAM
from paddle_chainrules.nets.chain import chain_of
from paddle_chainrules.settings import programs_are_on

RTOL = {"float32": 1e-5, "float64": 1e-12}

NATIVE_ACTIVATIONS = {
    "identity": paddle.nn.Identity,
    "sigmoid": paddle.nn.Sigmoid,
    "tanh": paddle.nn.Tanh,
    "relu": paddle.nn.ReLU,
    "gelu": paddle.nn.GELU,
    "silu": paddle.nn.Silu,
    "softplus": paddle.nn.Softplus,
    "elu": paddle.nn.ELU,
    "leaky_relu": paddle.nn.LeakyReLU,
    "mish": paddle.nn.Mish,
}


class Sin(paddle.nn.Layer):
    def forward(self, x):
        return paddle.sin(x)


def sequential(net, params):
    """The net as a paddle.nn.Sequential with the given parameters."""
    act = {**NATIVE_ACTIVATIONS, "sin": Sin}[net.activation]
    layers = []
    for i, (n_in, n_out) in enumerate(zip(net.sizes[:-1], net.sizes[1:], strict=True)):
        if i:
            layers.append(act())
        linear = paddle.nn.Linear(n_in, n_out)
        linear.to(dtype=net.dtype)
        linear.weight.set_value(params[f"{i}.weight"])
        linear.bias.set_value(params[f"{i}.bias"])
        layers.append(linear)
    return paddle.nn.Sequential(*layers)


def random_params(net, seed=3):
    rng = np.random.default_rng(seed)
    return {
        name: paddle.to_tensor(rng.standard_normal(shape)).astype(net.dtype)
        for name, shape in zip(net.spec.names, net.spec.shapes, strict=True)
    }


def check_against_native(net, n, seed=3):
    params = random_params(net, seed)
    layer = sequential(net, params)
    x = randn([n, net.sizes[0]], net.dtype, seed + 1)
    cotangent = randn([n, net.sizes[-1]], net.dtype, seed + 2)
    y, (grad_params, grad_args) = native(layer, (x,), cotangent)
    tolerance = {"rtol": RTOL[net.dtype], "atol": RTOL[net.dtype]}
    renamed = dict(zip(net.spec.names, grad_params.values(), strict=True))
    for _ in range(2):
        assert_same(net.forward(params, x), y, **tolerance)
        found, pullback = net.pullback(params, x)
        assert_same(found, y, **tolerance)
        got_params, got_args = pullback(cotangent)
        assert_same(got_params, renamed, **tolerance)
        assert_same(got_args, grad_args, **tolerance)
        as_programs(net, params, x)


def test_the_table_of_activations_is_covered():
    assert {*ACTIVATIONS} == {*NATIVE_ACTIVATIONS, "sin"}, "add Paddle's own layer here"


@pytest.mark.parametrize("activation", sorted({*NATIVE_ACTIVATIONS} - {"identity"}))
def test_paddles_layers_are_known_as_these(activation):
    net = FCNet((3, 5, 2), activation)
    layer = sequential(net, net.init(0))
    found = chain_of(layer, stateless(layer)[0].spec)
    assert found is not None
    assert found.activation == activation


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_value_and_gradients_equal_native(activation, dtype):
    check_against_native(FCNet((3, 7, 5, 2), activation, dtype), n=4)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6, unique=True),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    n=st.integers(0, 11),
    seed=st.integers(0, 2**16),
)
def test_programs_equal_paddle_grad(sizes, activation, n, seed):
    """Element by element, on random nets: the two ways that a pullback can go."""
    net = FCNet(tuple(sizes), activation, "float64")
    recorded = FCNet(tuple(sizes), ACTIVATIONS[activation], "float64")
    params = random_params(net, seed)
    x = randn([n, sizes[0]], "float64", seed + 1)
    cotangent = randn([n, sizes[-1]], "float64", seed + 2)
    as_programs(net, params, x)
    y, pullback = net.pullback(params, x)
    assert isinstance(pullback, GuardedPullback) == (n > 0 and programs_are_on())
    expected, expected_pullback = recorded.pullback(params, x)
    assert_same(y, expected, rtol=1e-12, atol=1e-12)
    for wrt in (("params", "args"), "params", "args"):
        found = pullback(cotangent, wrt=wrt)
        wanted = expected_pullback(cotangent, wrt=wrt)
        assert_same(found, wanted, rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6, unique=True),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    n=st.integers(1, 11),
    seed=st.integers(0, 2**16),
)
def test_random_nets_equal_native(sizes, activation, n, seed):
    check_against_native(FCNet(tuple(sizes), activation, "float64"), n, seed)


def test_gradients_equal_finite_differences():
    net = FCNet((2, 5, 3), "gelu", "float64")
    params, x = random_params(net), randn([4, 2], "float64", 5)
    cotangent = randn([4, 3], "float64", 6)
    theta = net.flatten(params)
    grad, grad_x = net.vjp(theta, x, cotangent)

    def value(theta, x):
        return (net.forward(theta, x) * cotangent).sum()

    expected = slopes_of(value, theta, x)
    assert_same([grad, grad_x], expected, rtol=1e-7, atol=1e-8)


def test_a_callable_is_an_activation():
    net = FCNet((3, 6, 2), lambda x: paddle.square(paddle.tanh(x)), "float64")
    params, x = random_params(net), randn([5, 3], "float64")
    weights = [params[name].clone() for name in net.spec.names]
    leaves = [*weights, x.clone()]
    for leaf in leaves:
        leaf.stop_gradient = False
    hidden = paddle.tanh(leaves[4] @ leaves[0] + leaves[1])
    y = hidden**2 @ leaves[2] + leaves[3]
    cotangent = randn([5, 2], "float64", 7)
    expected = paddle.grad([y], leaves, [cotangent])
    grad_params, grad_x = net.vjp(params, x, cotangent)
    assert_same([*grad_params.values(), grad_x], list(expected), rtol=1e-12, atol=1e-13)


def test_one_layer_maps_input_to_output_directly():
    net = FCNet((3, 2), "relu", "float64")
    assert net.spec.names == ("0.weight", "0.bias")
    params, x = random_params(net), randn([4, 3], "float64")
    y = x @ params["0.weight"] + params["0.bias"]
    assert_same(net.forward(params, x), y, rtol=1e-14)
    assert float(y.min()) < 0  # no activation after the last layer


def test_empty_batch():
    net = FCNet((3, 5, 2))
    params, x = net.init(0), paddle.zeros([0, 3])
    y, pullback = net.pullback(params, x)
    assert list(y.shape) == [0, 2]
    grad_params, (grad_x,) = pullback(paddle.zeros([0, 2]))
    assert list(grad_x.shape) == [0, 3]
    for name, shape in zip(net.spec.names, net.spec.shapes, strict=True):
        assert_same(grad_params[name], paddle.zeros(list(shape)))


def test_one_sample_without_batch_dimension():
    net = FCNet((3, 5, 2), "tanh", "float64")
    params, x, cotangent = (
        random_params(net),
        randn([3], "float64"),
        randn([2], "float64"),
    )
    y, pullback = net.pullback(params, x)
    batched, batched_pullback = net.pullback(params, x.reshape([1, 3]))
    assert_same(y, batched[0], rtol=1e-14)
    grad_params, (grad_x,) = pullback(cotangent)
    expected_params, (expected_x,) = batched_pullback(cotangent.reshape([1, 2]))
    assert_same(grad_params, expected_params, rtol=1e-13, atol=1e-14)
    assert_same(grad_x, expected_x[0], rtol=1e-13, atol=1e-14)


def test_further_leading_dimensions():
    net = FCNet((3, 5, 2), "tanh", "float64")
    params, x = random_params(net), randn([4, 6, 3], "float64")
    y = net.forward(params, x.reshape([24, 3])).reshape([4, 6, 2])
    assert_same(net.forward(params, x), y, rtol=1e-13)


def test_theta_form_gives_a_flat_gradient():
    net = FCNet((3, 5, 2), "silu", "float64")
    params, x, cotangent = (
        random_params(net),
        randn([4, 3], "float64"),
        randn([4, 2], "float64"),
    )
    theta = net.flatten(params)
    assert_same(net.unflatten(theta), params)
    assert_same(net.forward(theta, x), net.forward(params, x))
    grad, grad_x = net.vjp(theta, x, cotangent)
    grad_params, expected_x = net.vjp(params, x, cotangent)
    assert_same(grad, net.flatten(grad_params), rtol=1e-14)
    assert_same(grad_x, expected_x, rtol=1e-14)


def test_params_are_taken_by_name_not_by_position():
    net = FCNet((3, 5, 2), "tanh", "float64")
    params, x, cotangent = (
        random_params(net),
        randn([4, 3], "float64"),
        randn([4, 2], "float64"),
    )
    shuffled = {name: params[name] for name in reversed(net.spec.names)}
    assert_same(net.forward(shuffled, x), net.forward(params, x))
    grad, _ = net.vjp(shuffled, x, cotangent)
    expected, _ = net.vjp(params, x, cotangent)
    assert list(grad) == list(shuffled)
    assert_same({name: grad[name] for name in expected}, expected)


def test_several_pullbacks_from_one_forward():
    net = FCNet((3, 5, 2), "tanh", "float64")
    params, x = random_params(net), randn([4, 3], "float64")
    _, pullback = net.pullback(params, x)
    first, second = randn([4, 2], "float64", 1), randn([4, 2], "float64", 2)
    one, two, both = pullback(first), pullback(second), pullback(first + second)
    assert_same(pullback(first), one)
    for name in net.spec.names:
        assert_same(both[0][name], one[0][name] + two[0][name], rtol=1e-12, atol=1e-13)
    assert_same(both[1][0], one[1][0] + two[1][0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("programs", [False, True])
@pytest.mark.parametrize("what", ["0.weight", "1.weight", "x"])
def test_a_pullback_after_an_update_in_place_is_refused(what, programs):
    net = FCNet((3, 4, 2), "tanh")
    params, x = net.init(0), randn([5, 3])
    if programs:
        as_programs(net, params, x)
    y, pullback = net.pullback(params, x)
    before = pullback(y)
    (x if what == "x" else params[what]).scale_(2.0)
    for cotangent in (y, paddle.to_tensor(y.numpy(), stop_gradient=False)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            pullback(cotangent)
    assert_same(net.pullback(net.init(0), randn([5, 3]))[1](y), before)


def test_wrt_computes_what_is_asked():
    net = FCNet((3, 5, 2), "tanh", "float64")
    params, x, cotangent = (
        random_params(net),
        randn([4, 3], "float64"),
        randn([4, 2], "float64"),
    )
    _, pullback = net.pullback(params, x)
    both = pullback(cotangent)
    assert_same(pullback(cotangent, wrt="params"), (both[0], None))
    assert_same(pullback(cotangent, wrt="args"), (None, both[1]))
    assert_same(pullback(cotangent, wrt=("args", "params")), both)
    with pytest.raises(ValueError, match="wrt names 'weights', but there is no such"):
        pullback(cotangent, wrt="weights")


def test_no_graph_unless_asked():
    net = FCNet((3, 5, 2), "tanh", "float64")
    params, x = random_params(net), randn([4, 3], "float64")
    assert net.forward(params, x).stop_gradient
    y, pullback = net.pullback(params, x)
    assert y.stop_gradient
    assert all(g.stop_gradient for g in pullback(paddle.ones_like(y))[0].values())
    for value in params.values():
        assert value.stop_gradient
        assert value.grad is None

    params["0.weight"].stop_gradient = False
    y = net.forward(params, x)
    assert not y.stop_gradient
    y.sum().backward()
    expected, _ = net.vjp(params, x, paddle.ones_like(y))
    assert_same(params["0.weight"].grad, expected["0.weight"], rtol=1e-13)
    with paddle.no_grad():
        assert net.forward(params, x).stop_gradient


def test_gradients_are_differentiable_where_the_inputs_ask():
    net = FCNet((2, 6, 1), "tanh", "float64")
    params, x = random_params(net), randn([5, 2], "float64")
    x.stop_gradient = False
    y, pullback = net.pullback(params, x)
    _, (grad_x,) = pullback(paddle.ones_like(y), wrt="args")
    (second,) = paddle.grad([grad_x[:, 0].sum()], [x])
    step = 1e-5
    shift = paddle.to_tensor([[step, 0.0]], dtype="float64")

    def slope(x):
        return net.vjp(params, x.detach(), paddle.ones([5, 1], "float64"))[1]

    expected = (slope(x + shift) - slope(x - shift)) / (2 * step)
    assert_same(second, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_the_pullback_is_differentiable_in_its_cotangent(activation):
    net = FCNet((3, 5, 2), activation, "float64")
    params, x = random_params(net), randn([4, 3], "float64")
    if activation in ("gelu", "mish"):  # whose kernels end there
        if not programs_are_on():
            pytest.skip("the tape ends there")
        as_programs(net, params, x)
    cotangent, tangent = randn([4, 2], "float64", 1), randn([4, 3], "float64", 2)
    cotangent.stop_gradient = False
    _, pullback = net.pullback(params, x)
    grad_params, (grad_x,) = pullback(cotangent)
    weight = randn([3, 5], "float64", 3)
    total = (grad_x * tangent).sum() + (grad_params["0.weight"] * weight).sum()
    (found,) = paddle.grad([total], [cotangent])
    # Linear in the cotangent: the derivative is the forward derivative of the net.
    step = 1e-6

    def at(sign):
        moved = {**params, "0.weight": params["0.weight"] + sign * step * weight}
        return net.forward(moved, x + sign * step * tangent)

    expected = (at(1) - at(-1)) / (2 * step)
    assert_same(found, expected, rtol=1e-6, atol=1e-8)


def test_init_depends_on_the_seed_alone():
    net = FCNet((3, 5, 2))
    paddle.seed(1)
    drawn = paddle.rand([3])
    paddle.seed(1)
    first = net.init(4)
    assert_same(paddle.rand([3]), drawn)
    paddle.seed(2)
    assert_same(net.init(4), first)
    assert not paddle.equal_all(net.init(5)["0.weight"], first["0.weight"])
    assert float(first["0.weight"].abs().max()) <= np.sqrt(6 / 8)
    assert_same(first["0.bias"], paddle.zeros([5]))


def test_frozen_and_equal_by_value():
    net = FCNet([3, 5, 2], "tanh")
    assert net == FCNet((3, 5, 2), "tanh")
    assert hash(net) == hash(FCNet((3, 5, 2), "tanh"))
    assert net != FCNet((3, 5, 2), "relu")
    with pytest.raises(dataclasses.FrozenInstanceError):
        net.sizes = (1, 2)


def test_describe():
    net = FCNet((2, 16, 1), "tanh", "float64")
    runs = f"It will run as a program after {CALLS_BEFORE_PROGRAM} calls of a kind."
    if not programs_are_on():
        runs = "It runs as Paddle runs it, since programs are off."
    assert str(net.describe()).splitlines() == [
        "FCNet(sizes=(2, 16, 1), activation='tanh', dtype='float64')",
        "y = W2' tanh(W1' x + b1) + b2",
        "  name      shape    dtype",
        "  0.weight  [2, 16]  float64",
        "  0.bias    [16]     float64",
        "  1.weight  [16, 1]  float64",
        "  1.bias    [1]      float64",
        f"65 parameters. {runs}",
    ]
    formulas = {
        (3, 2): "y = W1' x + b1",
        (3, 4, 4, 2): "y = W3' relu(W2' relu(W1' x + b1) + b2) + b3",
        (3, 4, 4, 4, 2): "y = W4' relu(... relu(W1' x + b1) ...) + b4",
    }
    for sizes, formula in formulas.items():
        assert FCNet(sizes, "relu").describe().formula == formula
    own = FCNet((3, 4, 2), lambda z: z * z).describe()
    assert own.formula == "y = W2' activation(W1' x + b1) + b2"
    assert "<td>0.weight</td>" in own._repr_html_()


class Named(paddle.nn.Layer):
    """Layers of one shape, kept in an order that is not that of their use."""

    def __init__(self):
        super().__init__()
        self.last, self.first = paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3)

    def forward(self, x):
        return self.last(paddle.tanh(self.first(x)))


def test_layers_of_one_shape_are_never_swapped():
    net, layer, x = FCNet((3, 3, 3), "tanh"), Named(), randn([4, 3])
    params, state = net.init(0), layer.state_dict()
    for call in (
        lambda: net.from_state_dict(state),
        lambda: net.to_state_dict(params, like=layer),
        lambda: net.from_state_dict(dict(reversed(net.to_state_dict(params).items()))),
    ):
        if call.__code__.co_freevars == ("net", "params"):  # by name, in any order
            assert_same(call(), params)
            continue
        with pytest.raises(ValueError, match=r"last\.weight.*0\.weight.*names="):
            call()
    names = ["first.weight", "first.bias", "last.weight", "last.bias"]
    found = net.from_state_dict(state, names)
    assert_same(net.forward(found, x), layer(x), rtol=1e-6, atol=1e-7)
    layer.set_state_dict(net.to_state_dict(params, like=layer, names=names))
    assert_same(net.forward(params, x), layer(x), rtol=1e-6, atol=1e-7)
    numbered = {f"{3 - i}.{n[2:]}": v for i, (n, v) in enumerate(params.items())}
    with pytest.raises(ValueError, match="numbered alike"):
        net.from_state_dict(numbered)
    with pytest.raises(ValueError, match="names="):
        net.from_state_dict(state, names[:3])


def test_state_dict_round_trip_with_a_sequential():
    net = FCNet((3, 5, 2), "relu")
    params = net.init(7)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 5), paddle.nn.ReLU(), paddle.nn.Linear(5, 2)
    )
    layer.set_state_dict(net.to_state_dict(params, like=layer))
    x = randn([4, 3])
    assert_same(layer(x), net.forward(params, x), rtol=1e-6, atol=1e-7)
    back = net.from_state_dict(layer.state_dict())
    assert_same(back, params)
    back["0.weight"][0, 0] = 99.0  # copies: the layer doesn't see it
    assert float(layer[0].weight[0, 0]) != 99.0
    assert_same(net.from_state_dict(net.to_state_dict(params)), params)
