"""Only the gradients that are asked for, new or in tensors of the caller's own.

By Paddle's own gradients of the untouched layer, in both kinds of pullback.
"""

import copy
import pickle
from collections import Counter

import numpy as np
import optree
import paddle
import pytest
from paddle import nn

from conftest import (
    as_programs,
    assert_same,
    assert_unchanged,
    native,
    programs_on,
    randn,
    snapshot,
)
from counts import operators_run
from paddle_chainrules import FCNet, linearize, stateless, vjp
from paddle_chainrules.paddle_side.autograd import engine
from paddle_chainrules.settings import programs_are_on
from paddle_chainrules.transforms.as_programs.program_recording import ProgramRecording


class Mixed(nn.Layer):
    """Several inputs of several kinds, one of them unused."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.encoder = nn.Linear(3, 4)
        self.decoder = nn.Linear(4, 2)

    def forward(self, inputs, index, unused):
        hidden = self.encoder(inputs["x"]) * inputs["scale"]
        return self.decoder(paddle.tanh(hidden + self.embedding(index)))


def mixed():
    paddle.seed(1)
    layer = Mixed().to(dtype="float64")
    inputs = {"x": randn([5, 3], "float64", 2), "scale": randn([5, 1], "float64", 3)}
    index = paddle.to_tensor([0, 6, 2, 2, 1])
    return layer, (inputs, index, randn([2], "float64", 4))


def chain():
    paddle.seed(1)
    first = nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh()
    layer = nn.Sequential(*first, nn.Linear(4, 2)).to(dtype="float64")
    return layer, (randn([6, 3], "float64", 2),)


@pytest.fixture(
    params=[(chain, False), (chain, True), (mixed, False), (mixed, True)],
    ids=["chain", "chain as a program", "mixed", "mixed as a program"],
)
def case(request):
    make, programs = request.param
    layer, args = make()
    net, params, _ = stateless(layer, jit=programs)
    before = snapshot(layer)
    if programs:
        as_programs(net, params, *args)
    y, pullback = net.pullback(params, *args)
    by_program = isinstance(pullback._recording, ProgramRecording)
    assert by_program == (programs and programs_are_on())
    cotangent = randn(y.shape, "float64", 5)
    _, (by_name, by_arg) = native(layer, args, cotangent)
    yield net, params, args, pullback, cotangent, by_name, by_arg
    assert_unchanged(layer, before)


def assert_gradients(found, expected):
    for one, other in zip(found, expected, strict=True):
        if other is None:
            assert one is None
        else:
            assert_same(one, other, rtol=1e-12, atol=1e-13)


def test_by_name_pattern_and_predicate(case):
    net, _, _, pullback, cotangent, by_name, _ = case
    first, *_, last = net.spec.names
    prefix = first.split(".", maxsplit=1)[0]
    for wrt, asked in (
        (first, [first]),
        (last, [last]),
        ((last, first), [first, last]),
        (f"{prefix}.*", [n for n in net.spec.names if n.startswith(prefix)]),
        ("*.bias", [n for n in net.spec.names if n.endswith("bias")]),
        (lambda n: n.endswith("weight"), [n for n in net.spec.names if "weight" in n]),
        ([lambda n: False, last], [last]),
    ):
        found, args = pullback(cotangent, wrt=wrt)
        assert args is None
        assert list(found) == list(net.spec.names)
        expected = [by_name[n] if n in asked else None for n in net.spec.names]
        assert_gradients(found.values(), expected)
    assert pullback(cotangent, wrt=lambda n: False) == (None, None)
    assert pullback(cotangent, wrt=()) == (None, None)


def test_by_position_of_an_argument():
    layer, args = mixed()
    net, params, _ = stateless(layer)
    y, pullback = net.pullback(params, *args)
    cotangent = randn(y.shape, "float64", 5)
    _, (by_name, (by_inputs, _, _)) = native(layer, args, cotangent)
    found, (inputs, index, unused) = pullback(cotangent, wrt=0)
    assert [found, index, unused] == [None] * 3
    assert_gradients([inputs["x"], inputs["scale"]], by_inputs.values())
    found, by_args = pullback(cotangent, wrt=("decoder.bias", 2))
    assert by_args == (None, None, None)  # it is not used
    assert_same(found["decoder.bias"], by_name["decoder.bias"], rtol=1e-12, atol=1e-13)
    assert found["encoder.weight"] is None
    found, by_args = pullback(cotangent, wrt=("params", "args"))
    assert_gradients(found.values(), by_name.values())


@programs_on
def test_the_work_is_that_of_what_is_asked():
    layer, args = chain()
    net, params, _ = stateless(layer, jit=True)
    as_programs(net, params, *args)
    y, pullback = net.pullback(params, *args)
    cotangent, before = randn(y.shape, "float64"), snapshot(layer)

    def count(wrt):
        with operators_run() as found:
            pullback(cotangent, wrt=wrt)
        return dict(sorted(Counter(found.names).items()))

    assert count("4.weight") == {"matmul": 1}
    assert count(("params", 0)) == {"matmul": 6, "sum": 3, "tanh_grad": 2}
    # Not the input's product in the first layer.
    assert count("params") == {"matmul": 5, "sum": 3, "tanh_grad": 2}
    assert count(0) == {"matmul": 3, "tanh_grad": 2}
    assert count("4.*") == {"matmul": 1, "sum": 1}
    assert count("2.bias") == {"matmul": 1, "sum": 1, "tanh_grad": 1}
    assert count(("0.weight", "4.bias")) == {"matmul": 3, "sum": 1, "tanh_grad": 2}
    assert count(()) == {}
    assert_unchanged(layer, before)


def test_paddle_is_asked_for_no_more(monkeypatch):
    layer, args = mixed()
    net, params, _ = stateless(layer)
    y, pullback = net.pullback(params, *args)
    asked = []
    original = engine._grad

    def grad(outputs, inputs, *rest, **kwargs):
        asked.append(len(inputs))
        return original(outputs, inputs, *rest, **kwargs)

    monkeypatch.setattr(engine, "_grad", grad)
    cotangent = randn(y.shape, "float64")
    pullback(cotangent, wrt="decoder.*")
    pullback(cotangent, wrt=0)
    pullback(cotangent)
    pullback(cotangent, wrt=1)  # integers
    assert asked == [2, 2, 8]


def zeros(tree):
    if isinstance(tree, dict):
        return {name: zeros(part) for name, part in tree.items()}
    return paddle.full_like(tree, 7.0) if tree.dtype == paddle.float64 else None


def test_into_tensors_of_the_callers(case):
    net, params, args, pullback, cotangent, by_name, by_arg = case
    into = zeros(params), tuple(map(zeros, args))
    flat = [*into[0].values(), *(into[1][0].values() if net.chain is None else into[1])]
    addresses = [buffer.data_ptr() for buffer in flat]
    expected = [*by_name.values(), *by_arg]
    if net.chain is None:
        flat.append(into[1][2])
        unused = paddle.zeros([2], "float64")
        expected = [*by_name.values(), *by_arg[0].values(), unused]
    assert pullback(cotangent, into=into) is into
    assert_gradients(flat, expected)
    pullback(cotangent, into=into, accumulate=True)
    assert_gradients(flat, [2 * grad for grad in expected])
    pullback(cotangent, into=into)
    assert_gradients(flat, expected)
    assert [buffer.data_ptr() for buffer in flat][: len(addresses)] == addresses


def test_into_some(case):
    net, _, args, pullback, cotangent, by_name, _ = case
    last = net.spec.names[-1]
    buffer = zeros(by_name[last])
    into = {name: buffer if name == last else None for name in by_name}, None
    assert pullback(cotangent, into=into) == into
    assert_gradients([buffer], [by_name[last]])
    assert pullback(cotangent, into=(None, None)) == (None, None)
    for none in (None, (None,) * len(args)):
        pullback(cotangent, into=(into[0], none), accumulate=True)
    assert_gradients([buffer], [3 * by_name[last]])


def test_into_what_requires_a_gradient_or_is_a_view():
    layer, (x,) = chain()
    net, params, _ = stateless(layer)
    y, pullback = net.pullback(params, x)
    cotangent = randn(y.shape, "float64")
    expected, (by_x,) = pullback(cotangent)
    into, _ = zeros(params), None
    for buffer in into.values():
        buffer.stop_gradient = False
    memory = paddle.zeros([3, 6], "float64")
    by_column = paddle.as_strided(memory, [6, 3], [1, 6])
    assert not by_column.is_contiguous()
    pullback(cotangent, into=(into, (by_column,)))
    assert_gradients([*into.values(), memory.T], [*expected.values(), by_x])
    assert not any(buffer.stop_gradient for buffer in into.values())


def test_into_theta():
    net = FCNet((3, 5, 2), "tanh", "float64")
    theta, x = net.flatten(net.init(0)), randn([4, 3], "float64")
    _, pullback = net.pullback(theta, x)
    cotangent = randn([4, 2], "float64", 1)
    expected, _ = pullback(cotangent)
    buffer = paddle.ones_like(theta)
    assert pullback(cotangent, into=(buffer, None), accumulate=True)[0] is buffer
    assert_same(buffer, expected + 1, rtol=1e-12, atol=1e-13)


def test_micro_batches_add_up_to_one_batch(case):
    layer, _ = mixed() if case[0].chain is None else chain()
    net, params, _ = stateless(layer)
    n, k = 12, 3
    if net.chain is None:
        x, index = randn([n, 3], "float64", 2), paddle.arange(n) % 7
        scale, unused = randn([n, 1], "float64", 3), randn([2], "float64", 4)

        def part(rows):
            return {"x": x[rows], "scale": scale[rows]}, index[rows], unused
    else:
        x = randn([n, 3], "float64", 2)

        def part(rows):
            return (x[rows],)

    cotangent = randn([n, 2], "float64", 6)
    _, whole = net.pullback(params, *part(slice(0, n)))
    expected, _ = whole(cotangent, wrt="params")
    into = zeros(params)
    for i in range(k):
        rows = slice(i * n // k, (i + 1) * n // k)
        _, pullback = net.pullback(params, *part(rows))
        pullback(cotangent[rows], into=(into, None), accumulate=i > 0)
    assert_gradients(into.values(), expected.values())


def test_bad_buffers_leave_all_as_it_was(case):
    _, params, args, pullback, cotangent, by_name, _ = case
    into = zeros(params)
    first, *_, last = into
    before = {name: buffer.numpy().copy() for name, buffer in into.items()}
    memory = paddle.zeros([into[last].size + into[first].size - 1], "float64")
    shared = {
        first: memory[: into[first].size].reshape(into[first].shape),
        last: memory[into[first].size - 1 :].reshape(into[last].shape),
    }
    none = (None,) * len(args)
    for given, error, words in (
        (into, TypeError, "must be a pair"),
        ((into,), TypeError, "must be a pair"),
        (({first: into[first]}, None), ValueError, "must be None or a dict"),
        (([*into.values()], None), ValueError, "must be None or a dict"),
        ((into, [*none]), ValueError, "None or a tuple of"),
        ((into, (*none, None)), ValueError, "None or a tuple of"),
        ((into, ([into[first]], *none[1:])), ValueError, "argument 0 is nested"),
        ((into | {last: 1.0}, None), TypeError, r"must be a paddle.Tensor or None"),
        ((into | {last: into[last].astype("float32")}, None), TypeError, "float32"),
        ((into | {last: paddle.zeros([3], "float64")}, None), ValueError, "has shape"),
        ((into | {last: params[last]}, None), ValueError, "overlap in memory"),
        ((into | shared, None), ValueError, "overlap in memory"),
    ):
        with pytest.raises(error, match=words):
            pullback(cotangent, into=given)
    with pytest.raises(ValueError, match="cotangent has shape"):
        pullback(cotangent[:2], into=(into, None))
    with pytest.raises(ValueError, match="wrt and into both"):
        pullback(cotangent, into=(into, None), wrt="params")
    with pytest.raises(ValueError, match="accumulate adds to the tensors of into"):
        pullback(cotangent, accumulate=True)
    for name, buffer in into.items():
        np.testing.assert_array_equal(buffer.numpy(), before[name])
    del by_name


def test_bad_wrt(case):
    _, _, args, pullback, cotangent, *_ = case
    for wrt, error, words in (
        ("weights", ValueError, "no such parameter; give 'params', 'args'"),
        ("nothing.*", ValueError, "no such parameter"),
        (("params", "nothing"), ValueError, "no such parameter"),
        (len(args), ValueError, "asks for argument"),
        (-1, ValueError, "asks for argument -1"),
        (True, TypeError, "patterns and predicates of them, and positions"),
        (1.5, TypeError, "patterns and predicates of them, and positions"),
        ((None,), TypeError, "patterns and predicates of them, and positions"),
    ):
        with pytest.raises(error, match=words):
            pullback(cotangent, wrt=wrt)


def recorded_things():
    x, y = randn([4, 3]), randn([4, 5], seed=1)
    layer = stateless(nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)))
    net = FCNet((3, 5), "tanh")
    return {
        "of a chain": (net.pullback(net.init(0), x)[1], (y,)),
        "of a layer": (layer[0].pullback(layer[1], x)[1], (y,)),
        "of a function": (vjp(lambda x: x * x, x)[1], (x,)),
        "pushforward": (linearize(lambda x: x * x, x)[1], (x,)),
    }


@pytest.mark.parametrize(
    "kind", ["of a chain", "of a layer", "of a function", "pushforward"]
)
def test_what_was_recorded_is_a_leaf_and_stays_in_its_process(kind):
    found, args = recorded_things()[kind]
    assert optree.tree_leaves({"a": found}) == [found]
    assert_same(copy.deepcopy(found)(*args), found(*args))
    with pytest.raises(TypeError, match=r"in this process alone.*pickle the net or"):
        pickle.dumps(found)
