"""What a way back needs, in few tensors."""

import paddle
import pytest

from conftest import loops_on, native, randn
from paddle_chainrules import FCNet, jit, make_program, stateless, vjp
from paddle_chainrules import settings as switch
from paddle_chainrules.programs import captured as program_cache
from paddle_chainrules.programs.compiling import residuals
from paddle_chainrules.transforms.as_programs.program_cache import ProgramCache
from programs.fenced import assert_near
from programs.test_regions import assert_pullback

nn = paddle.nn


def compile_vjp(fn, *tensors):
    return ProgramCache(lambda leaves: ([fn(*leaves)], None)).compile_vjp([*tensors])


def deep(x):
    for k in range(6):
        x = paddle.tanh(x * (1.0 + 0.1 * k)).sin()
    return x


@loops_on
def test_small_results_are_one_tensor():
    way = compile_vjp(deep, randn([5, 7]))
    (block,) = (
        v for v in way.forward_backward.forward.outputs[1:] if len(v.shape) == 1
    )
    saved, _ = way.forward_backward.residuals_and_backward
    assert block in saved
    assert len(saved) <= 3
    apart, _ = way.forward_backward.unpacked.residuals_and_backward
    assert sum(v.bytes for v in apart) == sum(v.bytes for v in saved)
    regions = way.forward_backward.forward.with_loops.regions
    assert len(regions) == len(way.forward_backward.forward.with_loops.ops) == 1


def test_large_results_and_few_are_their_own():
    n = residuals.MAX_PACKED_BYTES // 4 + 1
    large = compile_vjp(deep, randn([n])).forward_backward
    assert large.unpacked is large
    few = compile_vjp(lambda x: x.sin().tanh(), randn([5])).forward_backward
    assert few.unpacked is few


def test_where_loops_are_off(monkeypatch):
    monkeypatch.setattr(program_cache, "loops_are_on", lambda: False)
    forward_backward = compile_vjp(deep, randn([5, 7])).forward_backward
    assert forward_backward.unpacked is forward_backward


def test_what_the_caller_has_stays_apart():
    """Written into, it is noticed as ever; the block is nobody's."""

    @jit
    def fn(x):
        y = deep(x)
        return y, y.sin() * 2.0

    x = randn([4, 3])
    for _ in range(40):
        (y, z), back = vjp(fn, x)
        kept = z.clone()
        grads = back((paddle.ones_like(y), paddle.ones_like(z)))
        paddle.assign(paddle.zeros_like(z), z)
        again = back((paddle.ones_like(y), paddle.ones_like(kept)))
        assert_near(again[0], grads[0])  # code may round otherwise
    paddle.assign(paddle.zeros_like(y), y)
    with pytest.raises(RuntimeError, match="inplace"):
        back((paddle.ones_like(y), paddle.ones_like(kept)))


def test_sizes_that_meet_others():
    """Five samples of three and seven numbers are 15 and 35, which a layer has too."""
    layer = nn.Sequential(
        *(nn.Linear(3, 15), nn.Tanh(), nn.Linear(15, 7), nn.Sigmoid()),
        *(nn.Linear(7, 35), nn.Tanh(), nn.Linear(35, 3), nn.Tanh(), nn.Linear(3, 2)),
    )
    net, params, _ = stateless(layer, jit=True)
    for n in (5, 7, 1, 3, 15, 2, 105, 5):
        x, c = randn([n, 3], seed=n), randn([n, 2], seed=n + 1)
        expected = native(layer, (x,), c)
        for _ in range(3):
            assert_pullback(net.pullback(params, x), c, expected)


@pytest.mark.parametrize("patience", [1, 3])
def test_there_by_operators_and_back_by_code(patience, monkeypatch):
    """And the other way round: what is kept is the same."""
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", patience)
    net = FCNet((3, 8, 8, 8, 2), "tanh")
    params, x, c = net.init(0), randn([6, 3]), randn([6, 2], seed=1)
    fn = jit(lambda params, x: net(params, x))
    y, back = vjp(fn, params, x)
    first = back(c)
    for _ in range(patience + 3):
        later = back(c)
        assert_near(later[1], first[1])
    for _ in range(patience + 3):
        y, back = vjp(fn, params, x)
        assert_near(back(c)[1], first[1])
    assert y.shape == [6, 2]


@loops_on
def test_programs_that_repeat_themselves_go_over_early():
    def long(x):
        for _ in range(200):
            x = paddle.tanh(x * 1.01)
        return x

    run = jit(long)
    x = randn([3])
    for _ in range(4):
        found = run(x)
    assert_near(found, long(x))
    program = run._fixed_size_program(x).captured.program
    assert "region" in program.function.__code__.co_names


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("way", ["forward", "bidirect"])
def test_recurrent_layers(kind, way, monkeypatch):
    """From states that are given, to all results, by operators and by code."""
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    paddle.seed(0)
    layer = getattr(nn, kind)(3, 4, 2, direction=way)
    net, params, _ = stateless(layer, jit=True)
    ways = 1 + (way == "bidirect")
    for n, steps in ((5, 6), (1, 1), (2, 9), (7, 2)):
        x = randn([n, steps, 3], seed=n)
        first = randn([2 * ways, n, 4], seed=1)
        given = (first, first * 0.5) if kind == "LSTM" else first
        cotangent = paddle.utils.map_structure(
            lambda y: randn(y.shape, seed=2), layer(x, given)
        )
        expected, (by_name, by_args) = native(layer, (x, given), cotangent)
        for _ in range(3):
            y, back = net.pullback(params, x, given)
            grads, slopes = back(cotangent)
            rows = ((y, expected), (slopes, by_args))
            for found, right in rows:
                pairs = zip(*map(paddle.utils.flatten, (found, right)), strict=True)
                for a, b in pairs:
                    assert_near(a, b, 5_000)
            for name, g in by_name.items():
                assert_near(grads[name], g, 5_000)


@loops_on
def test_long_sequences_stay_with_paddle():
    layer = nn.LSTM(3, 4)
    net, params, _ = stateless(layer, jit=True)
    x = randn([2, 81, 3])
    (y, _), _ = net.pullback(params, x)
    assert_near(y, layer(x)[0])
    program = make_program(lambda x: net(params, x)[0])(x)
    assert "rnn" in {op.operator.name for op in program.ops}
    program = make_program(lambda x: net(params, x)[0])(x[:, :80])
    assert "rnn" not in {op.operator.name for op in program.ops}
