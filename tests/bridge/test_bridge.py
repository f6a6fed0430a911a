"""The entry points that Julia calls, from Python."""

import gc

import paddle
import pytest
from paddle import nn

from conftest import assert_same, native, randn, tape_only
from paddle_chainrules import (
    ACTIVATIONS,
    FCNet,
    bridge,
    derivative,
    derivatives,
    jvp,
    laplacian,
    vjp,
)
from paddle_chainrules.transforms.recordings.recording import Recording


def test_forward_and_pullback_with_one_tensor_per_parameter():
    layer = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    handle, params = bridge.layer(layer)
    assert handle.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert handle.shapes == ((3, 5), (5,), (5, 2), (2,))
    assert handle.dtypes == ("float32",) * 4
    x, cotangent = randn([4, 3]), randn([4, 2], seed=1)
    expected, (by_name, (by_x,)) = native(layer, [x], cotangent)

    forward, pullback, y = handle.bind_and("forward", False, *params, x)
    assert_same(y, expected, rtol=1e-6, atol=1e-6)
    assert_same(forward(x), y)
    y, back = pullback(x)
    assert_same(y, expected, rtol=1e-6, atol=1e-6)
    for _ in range(2):
        grads = list(back(True, True, False, cotangent))
        assert_same(grads, [*by_name.values(), by_x], rtol=1e-5, atol=1e-6)


def test_facts_are_one_string():
    handle, _ = bridge.fcnet((3, 5, 2), "tanh", "float64", 0)
    label, features, activation, *params = handle.facts.split("\x1f")
    assert label == "FCNet(3 => 5 => 2, tanh, float64)"
    assert (features, activation) == ("3", "tanh")
    assert params[:6] == ["0.weight", "float64", "3,5", "0.bias", "float64", "5"]
    assert params[1::3] == ["float64"] * 4
    handle, _ = bridge.layer(nn.ReLU())
    assert handle.facts.split("\x1f") == ["ReLU", "0", ""]
    assert bridge.activations().split(",") == sorted(ACTIVATIONS)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("shape", [[4, 3], [0, 3]])
@pytest.mark.parametrize(
    "layer",
    [
        nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)),
        nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2), nn.Softsign()),
    ],
    ids=["closed", "recorded"],
)
def test_back_gives_what_is_asked(layer, shape, flat):
    handle, params = bridge.layer(layer)
    named = dict(zip(handle.names, params, strict=True))
    tensors = [handle.net.flatten(named)] if flat else params
    _, _, (y, back) = handle.bind_and("pullback", flat, *tensors, randn(shape))
    cotangent = randn(list(y.shape), seed=1)
    *by_params, by_x = back(True, True, False, cotangent)
    none = [None] * len(by_params)
    assert_same(
        list(back(True, False, False, cotangent)), [*by_params, None], rtol=1e-6
    )
    assert_same(list(back(False, True, False, cotangent)), [*none, by_x], rtol=1e-6)
    assert list(back(False, False, False, cotangent)) == [*none, None]


@tape_only
def test_the_last_use_lets_go_of_the_graph_and_another_makes_it_anew():
    layer = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5), nn.LayerNorm(50))
    handle, params = bridge.layer(layer)
    x, cotangent = randn([4, 3]), randn([4, 50], seed=1)
    forward, pullback, _ = handle.bind_and("forward", False, *params, x)
    paddle.seed(1)
    others = count_recordings()
    for _ in range(3):
        _, back = pullback(x)
        first = list(back(True, True, False, cotangent))
        assert count_recordings() == others + 1
        assert_same(list(back(True, True, True, cotangent)), first)
        assert count_recordings() == others
        # The same mask again, and no random number of the program's used up.
        state = paddle.get_rng_state()
        assert_same(list(back(False, True, False, cotangent))[-1], first[-1])
        after = forward(x)
        paddle.set_rng_state(state)
        assert_same(forward(x), after)
        assert_same(list(back(True, True, False, cotangent)), first)
        del back


def count_recordings():
    gc.collect()
    return sum(issubclass(type(found), Recording) for found in gc.get_objects())


def test_gradients_come_in_the_order_of_the_names_beyond_ten_layers():
    """Sorted names would put "10.weight" before "2.weight"."""
    sizes = tuple(range(2, 15))
    for activation in ("tanh", paddle.tanh):  # in closed form, and recorded
        net = FCNet(sizes, activation, "float64")
        handle, params = bridge.fcnet(net.sizes, activation, "float64", 3)
        assert_same(list(params), list(net.init(3).values()))
        x, cotangent = randn([3, 2], "float64"), randn([3, 14], "float64", 1)
        _, _, (_, back) = handle.bind_and("pullback", False, *params, x)
        expected, by_x = net.vjp(net.init(3), x, cotangent)
        assert_same(
            list(back(True, True, False, cotangent)),
            [*expected.values(), by_x],
            rtol=1e-12,
        )


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("shape", [[4, 3], [1, 3], [3], [2, 4, 3], [0, 3]])
def test_flat_parameters(activation, shape):
    handle, params = bridge.fcnet((3, 5, 2), activation, "float64", 0)
    named = dict(zip(handle.names, params, strict=True))
    theta = handle.net.flatten(named)
    x = randn(shape, "float64")
    cotangent = randn([*shape[:-1], 2], "float64", 1)
    forward, _, (y, back) = handle.bind_and("pullback", True, theta, x)
    assert_same(y, handle.net.forward(named, x), rtol=1e-14)
    assert_same(forward(x), y, rtol=1e-14)
    *grads, grad_x = back(True, True, False, cotangent)
    expected, expected_x = handle.net.vjp(named, x, cotangent)
    assert_same(grads, list(expected.values()), rtol=1e-13, atol=1e-14)
    assert_same(grad_x, expected_x, rtol=1e-13, atol=1e-14)
    assert back(True, True, False, None) == (None,) * 5


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda: bridge.fcnet((3, 5, 2), "tanh", "float32", 0),
        lambda: bridge.layer(nn.Linear(3, 5)),
    ],
)
def test_bound_parameters_are_shared_not_copied(make, flat):
    handle, params = make()
    named = dict(zip(handle.names, params, strict=True))
    tensors = [handle.net.flatten(named)] if flat else list(params)
    x = randn([4, 3])
    forward, _, y = handle.bind_and("forward", flat, *tensors, x)
    for tensor in tensors:
        tensor.scale_(2.0)
    changed = tensors[0] if flat else named
    assert_same(forward(x), handle.net.forward(changed, x), rtol=1e-6)
    assert not paddle.equal_all(forward(x), y)


def test_structures_and_missing_cotangents():
    handle, params = bridge.layer(nn.LSTM(3, 5))
    x = randn([2, 4, 3])
    _, _, (packed, back) = handle.bind_and("pullback", False, *params, x)
    assert packed[0] == (None, (None, None))
    assert len(packed) == 4
    grads = back(True, True, False, None, randn([1, 2, 5]), None)
    assert [list(g.shape) for g in grads] == [[20, 3], [20, 5], [20], [20], [2, 4, 3]]
    assert back(True, True, False, None, None, None) == (None,) * 5


def test_views_leave_as_contiguous_memory():
    class Turn(nn.Layer):
        def forward(self, x):
            return x.transpose([1, 0])

    handle, _ = bridge.layer(Turn())
    _, _, y = handle.bind_and("forward", False, randn([3, 4]))
    assert y.is_contiguous()
    assert_same(y, randn([3, 4]).transpose([1, 0]).contiguous())


def test_what_is_no_tensor_passes():
    class Chatty(nn.Layer):
        def forward(self, x):
            return x * 2, {"word": "done", "count": 3}

    handle, _ = bridge.layer(Chatty())
    x = randn([3])
    _, _, (packed, back) = handle.bind_and("pullback", False, x)
    structure, y, *rest = packed
    assert structure == (None, {"count": None, "word": None})
    assert_same(y, 2 * x)
    assert rest == [3, "done"]
    (grad,) = back(True, True, False, x, None, None)
    assert_same(grad, 2 * x)


def test_handles_hold_no_tensor_of_a_call():
    handle, params = bridge.layer(nn.Linear(3, 2))
    x = randn([4, 3])
    address = x.data_ptr()
    handle.bind_and("forward", False, *params, x)
    alive = [
        t
        for t in gc.get_objects()
        if issubclass(type(t), paddle.Tensor) and t is not x and t._is_initialized()
    ]
    assert all(t.data_ptr() != address for t in alive)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("shape", [[4, 3], [3], [2, 4, 3]])
@pytest.mark.parametrize("what", ["laplacian", (1, 0, 1)])
def test_derivatives_of_a_net_are_nets(what, shape, flat):
    handle, params = bridge.fcnet((3, 5, 4, 2), "tanh", "float64", 0)
    named = dict(zip(handle.names, params, strict=True))
    tensors = [handle.net.flatten(named)] if flat else params
    x = randn(shape, "float64")

    def by_hand(params, x):
        if what == "laplacian":
            return laplacian(handle.net, params, x)
        return derivative(handle.net, params, x, what)

    operator = handle.operator(what)
    forward, _, (y, back) = operator.bind_and("pullback", flat, *tensors, x)
    expected, pullback = vjp(by_hand, named, x)
    assert_same(y, expected, rtol=1e-12, atol=1e-13)
    assert_same(forward(x), expected, rtol=1e-12, atol=1e-13)
    cotangent = randn(list(y.shape), "float64", 3)
    by_name, by_x = pullback(cotangent)
    by_name["2.bias"] = paddle.zeros([2], "float64") if flat else None  # no part in it
    both = [*by_name.values(), by_x]
    assert_same(list(back(True, True, False, cotangent)), both, rtol=1e-11, atol=1e-12)
    none = [None] * len(both)
    some = [*both[:6], *none[6:]]
    assert_same(list(back(True, False, False, cotangent)), some, rtol=1e-11, atol=1e-12)
    some = [*none[:6], *both[6:]]
    assert_same(list(back(False, True, False, cotangent)), some, rtol=1e-11, atol=1e-12)
    assert list(back(True, True, False, None)) == none


@pytest.mark.parametrize("flat", [True, False])
def test_derivatives_along_directions(flat):
    layer = nn.Sequential(nn.Linear(3, 4), nn.Silu(), nn.Linear(4, 2), nn.Tanh())
    handle, params = bridge.layer(layer)
    x, dx = randn([5, 3]), randn([2, 5, 3], seed=1)
    tangents = [randn([2, *p.shape], seed=i) for i, p in enumerate(params)]
    named = dict(zip(handle.names, params, strict=True))
    row = [*params], [*tangents]
    if flat:
        row = (
            [handle.net.flatten(named)],
            [paddle.concat([t.reshape([2, -1]) for t in tangents], 1)],
        )
    moved = (True,) * (len(row[0]) + 1)
    pushed = handle.jvp(1, moved, flat)
    _, _, (_, y, slopes) = pushed.bind_and("forward", flat, *row[0], x, *row[1], dx)
    for k in range(2):
        along = {n: t[k] for n, t in zip(named, tangents, strict=True)}
        expected = jvp(handle.net.forward, (named, x), (along, dx[k]))
        assert_same((y, slopes[k]), expected, rtol=1e-5, atol=1e-6)


def test_derivatives_by_coordinates_of_any_kind():
    """By keyword, by position, and with arguments that are held constant."""

    class Wave(nn.Layer):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(2, 3)

        def forward(self, x, t, gain=None):
            u = paddle.tanh(self.last(paddle.concat([x, t], -1)))
            return {"u": u if gain is None else u * gain}

    handle, params = bridge.layer(Wave())
    x, t, gain = randn([5, 1]), randn([5, 1], seed=1), randn([3], seed=2)
    named = dict(zip(handle.names, params, strict=True))

    def by_hand(params, coords):
        return handle.net.forward(params, *coords, gain=gain)

    expected = derivatives(by_hand, named, (x, t), {"u_xt": ("u", 0, 1)})
    whole = laplacian(by_hand, named, (x, t))
    for names, args, kwargs, row in (
        ((), (0, 1), {"gain": 2}, (x, t, gain)),
        (("x", "t"), (), {"x": 1, "t": 0, "gain": 2}, (t, x, gain)),
    ):
        first, second = ("x", "t") if names else (0, 1)
        for what, y in (
            ({"u_xt": ("u", first, second)}, expected["u_xt"]),
            ("laplacian", whole["u"]),
        ):
            operator = handle.operator(what, names).called(args, kwargs)
            _, _, (_, found) = operator.bind_and("forward", False, *params, *row)
            assert_same(found, y, rtol=1e-6, atol=1e-6)
    seeded = handle.operator("laplacian").called((0, 1), {"seed": 2})
    with pytest.raises(TypeError, match="leave seed out"):
        seeded.bind_and("forward", False, *params, x, t, 3)


def test_fresh_parameters():
    handle, params = bridge.fcnet((3, 5, 2), "tanh", "float64", 7)
    assert_same(list(handle.init(7)), list(params))
    assert bridge.layer(nn.Linear(3, 2))[0].init(7) is None
