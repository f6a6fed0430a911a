"""The entry points that Julia calls, from Python, on capsules."""

import paddle
import pytest
from paddle import nn
from paddle.utils import dlpack

from conftest import assert_same, native, randn
from paddle_chainrules import FCNet, bridge


def capsules(*tensors):
    return [dlpack.to_dlpack(tensor) for tensor in tensors]


def receive(capsule):
    """The tensor of a capsule, in memory of its own.

    Paddle 3.3.1 deadlocks when a tensor that came by DLPack leaves by DLPack and comes
    in again: freeing the second one frees the first inside a lock that both take.
    """
    return dlpack.from_dlpack(capsule).clone()


def test_forward_and_pullback_with_one_capsule_per_parameter():
    layer = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    handle, initial = bridge.layer(layer)
    params = [receive(capsule) for capsule in initial]
    assert handle.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert handle.shapes == ((3, 5), (5,), (5, 2), (2,))
    assert handle.dtypes == ("float32",) * 4
    x, cotangent = randn([4, 3]), randn([4, 2], seed=1)
    expected, (by_name, (by_x,)) = native(layer, [x], cotangent)

    structure, y = handle.forward(False, *capsules(*params, x))
    assert structure is None
    assert_same(receive(y), expected, rtol=1e-6, atol=1e-6)
    (_, y), pullback = handle.pullback(False, *capsules(*params, x))
    assert_same(receive(y), expected, rtol=1e-6, atol=1e-6)
    for _ in range(2):
        grads = [receive(g) for g in pullback(*capsules(cotangent))]
        assert_same(grads, [*by_name.values(), by_x], rtol=1e-5, atol=1e-6)


def test_gradients_come_in_the_order_of_the_names_beyond_ten_layers():
    """Sorted names would put "10.weight" before "2.weight"."""
    net = FCNet(tuple(range(2, 15)), "tanh", "float64")
    handle, initial = bridge.fcnet(net.sizes, "tanh", "float64", 3)
    params = [receive(capsule) for capsule in initial]
    assert_same(params, list(net.init(3).values()))
    x, cotangent = randn([3, 2], "float64"), randn([3, 14], "float64", 1)
    _, pullback = handle.pullback(False, *capsules(*params, x))
    grads = [receive(g) for g in pullback(*capsules(cotangent))]
    expected, by_x = net.vjp(net.init(3), x, cotangent)
    assert_same(grads, [*expected.values(), by_x])


def test_flat_parameters():
    handle, initial = bridge.fcnet((3, 5, 2), "tanh", "float64", 0)
    params = dict(
        zip(handle.names, (receive(capsule) for capsule in initial), strict=True)
    )
    theta = handle.net.flatten(params)
    x, cotangent = randn([4, 3], "float64"), randn([4, 2], "float64", 1)
    (_, y), pullback = handle.pullback(True, *capsules(theta, x))
    assert_same(receive(y), handle.net.forward(params, x))
    grad, grad_x = (receive(g) for g in pullback(*capsules(cotangent)))
    expected, expected_x = handle.net.vjp(theta, x, cotangent)
    assert_same(grad, expected)
    assert_same(grad_x, expected_x)


def test_structures_and_missing_cotangents():
    handle, initial = bridge.layer(nn.LSTM(3, 5))
    x = randn([2, 4, 3])
    packed, pullback = handle.pullback(False, *initial, *capsules(x))
    assert packed[0] == (None, (None, None))
    assert len(packed) == 4
    grads = pullback(None, *capsules(randn([1, 2, 5])), None)
    assert [list(receive(g).shape) for g in grads] == [
        [3, 20][::-1],
        [5, 20][::-1],
        [20],
        [20],
        [2, 4, 3],
    ]
    assert pullback(None, None, None) == (None,) * 5


def test_views_leave_as_contiguous_memory():
    class Turn(nn.Layer):
        def forward(self, x):
            return x.transpose([1, 0])

    handle, _ = bridge.layer(Turn())
    _, y = handle.forward(False, *capsules(randn([3, 4])))
    y = receive(y)
    assert y.is_contiguous()
    assert_same(y, randn([3, 4]).transpose([1, 0]).contiguous())


def test_what_is_no_tensor_is_refused():
    class Chatty(nn.Layer):
        def forward(self, x):
            return x, "done"

    handle, _ = bridge.layer(Chatty())
    with pytest.raises(TypeError, match="must return tensors.*returns a str"):
        handle.forward(False, *capsules(randn([3])))


def test_handles_hold_no_capsule_or_tensor_of_a_call():
    handle, initial = bridge.layer(nn.Linear(3, 2))
    x = randn([4, 3])
    address = x.data_ptr()
    handle.forward(False, *initial, *capsules(x))
    import gc

    alive = [
        t
        for t in gc.get_objects()
        if isinstance(t, paddle.Tensor) and t is not x and t._is_initialized()
    ]
    assert all(t.data_ptr() != address for t in alive)
