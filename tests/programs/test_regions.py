"""Regions write what they should and nothing else, whatever they are given."""

import ctypes
import gc
import os
import pickle
import struct
import threading
from itertools import pairwise

import numpy as np
import paddle
import pytest

from conftest import loops_on, native, on_threads, products_on, randn
from paddle_chainrules import (
    explain,
    grad,
    jit,
    make_program,
    stateless,
    value_and_grad,
    vjp,
)
from paddle_chainrules import settings as switch
from paddle_chainrules.programs.codegen import jit_engine
from paddle_chainrules.programs.codegen.fused_kernels import region as region_module
from paddle_chainrules.programs.compiling.source import compile_program
from programs.fenced import Fenced, assert_near, check, of_any_number, run_fenced


def assert_pullback(found, cotangent, expected):
    """A value and its pullback give what :func:`conftest.native` has found."""
    (y, back), (value, (by_name, (by_x,))) = found, expected
    grads, (slope,) = back(cotangent)
    assert_near(y, value)
    assert_near(slope, by_x, 5_000)
    sizes = [float(g.abs().max()) for g in by_name.values()]
    for name, g in by_name.items():  # one that is zero rounds as its terms do
        assert_near(grads[name], g, 5_000, 1e-2 * max(sizes))


@pytest.fixture
def off_stack(monkeypatch):
    monkeypatch.setattr(region_module, "MAX_STACK_BYTES", -1)


VIEWS = {
    "transposed": lambda x: x.T * 2.0 + x.T,
    "a slice": lambda x: x[1:, :2] * 3.0 - x[:-1, 1:3],
    "steps": lambda x: x[::2] * x[::2] + 1.0,
    "steps within": lambda x: x[:, 1::2] * 2.0 + 1.0,
    "reshaped": lambda x: (x * 2.0).reshape([-1]) + x.flatten(),
    "transposed, reshaped": lambda x: x.T.reshape([-1]) * 2.0 + 1.0,
    "split": lambda x: [part * 2.0 - 1.0 for part in x.split([1, -1], 1)],
    "unbound": lambda x: sum(row * float(i + 1) for i, row in enumerate(x.unbind(0))),
    "one row and the last": lambda x: x[0] * x[-1] + x[1, None] * 2.0,
    "columns by ellipsis": lambda x: x[..., 0] * x[..., -1] + x[:, 1],
    "one in three": lambda x: x[1::3, ::2] * 2.0 + 1.0,
    "unsqueezed": lambda x: x.unsqueeze(1) * x.unsqueeze(0) + 1.0,
    "squeezed": lambda x: (x[:1] * 2.0).squeeze(0) * x[0],
    "expanded": lambda x: x[:1].expand([4, x.shape[1]]) * 2.0 + x[0],
    "joined": lambda x: paddle.concat([x * 2.0, x + 1.0, x[:1]], 0) * 1.0 + 0.5,
    "joined, an output": lambda x: paddle.concat([x * 2.0, x + 1.0, x[:1] * x[1]], 0),
    "joined along rows": lambda x: paddle.concat([x * 2.0, x + 1.0], 1),
    "joined twice": lambda x: paddle.concat(
        [(y := paddle.concat([x * 2.0, x + 1.0], 0)), y], 0
    ),
    "stacked": lambda x: paddle.stack([x * 2.0, x + 1.0, x], 1),
    "a view of a result": lambda x: [y := x * 2.0 + 1.0, y.reshape([-1]) * y.sum()],
    "views of one result": lambda x: [
        (y := x * 2.0 + 1.0)[0] * 1.0,
        y.T,
        y.reshape([-1]),
    ],
    "the same twice": lambda x: [y := x * 2.0 + 1.0, y],
    "an input too": lambda x: [x, x * 2.0 + 1.0],
    "choices": lambda x: paddle.where(x > 0.0, x * 2.0, x.abs() + 1.0),
    "booleans": lambda x: [(x > 0.0) & (x < 1.0), (x * 2.0 > x + 1.0)],
    "of both precisions": lambda x: (x.astype("float64") * 3.0 + 1.0).astype(x.dtype),
    "of integers": lambda x: x * paddle.arange(x.shape[1]).astype(x.dtype) + 1.0,
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("shape", [[3, 4], [2, 9], [7, 3], [5, 31]], ids=str)
@pytest.mark.parametrize("name", VIEWS)
def test_views_and_what_is_put_together(name, shape, off_stack):
    check(VIEWS[name], randn(shape))

    def slopes(x):
        outputs, back = vjp(VIEWS[name], x)
        many = isinstance(outputs, list)
        every = outputs if many else [outputs]
        ones = [o * 0.5 if o.is_floating_point() else None for o in every]
        return back(ones if many else ones[0])

    if name != "booleans":
        check(slopes, randn(shape, "float64", 1))


PRODUCTS = {
    "of matrices": ([5, 7], [7, 3], lambda x, w: x @ w + 1.0),
    "turned": ([7, 5], [3, 7], lambda x, w: paddle.matmul(x, w, True, True) * 2.0 + 1),
    "with gaps": ([10, 14], [7, 6], lambda x, w: x[::2, ::2] @ w[:, ::2] + 1.0),
    "of transposed slices": ([14, 5], [7, 6], lambda x, w: x.T[:, 3:10] @ w + 1.0),
    "by a vector": ([5, 7], [7], lambda x, w: x @ w + 1.0),
    "of a vector": ([7], [7, 3], lambda x, w: x @ w + 1.0),
    "of vectors": ([7], [7], lambda x, w: (x @ w) * 2.0 + 1.0),
    "of many": ([4, 5, 7], [4, 7, 3], lambda x, w: x @ w + 1.0),
    "of many by one": ([4, 5, 7], [7, 3], lambda x, w: x @ w + 1.0),
    "of one by many": ([5, 7], [4, 7, 3], lambda x, w: x @ w + 1.0),
    "broadcast": ([2, 1, 5, 7], [3, 7, 2], lambda x, w: x @ w + 1.0),
    "of heads": (
        [2, 5, 12],
        [2, 12, 5],
        lambda x, w: (
            x.reshape([2, 5, 3, 4]).transpose([0, 2, 1, 3]) @ w.reshape([2, 3, 4, 5])
            + 1.0
        ),
    ),
    "of an expanded one": ([1, 7], [7, 3], lambda x, w: x.expand([5, 7]) @ w + 1.0),
    "with itself": ([6, 6], [1], lambda x, w: x @ x + w),
    "of one row": ([1, 7], [7, 3], lambda x, w: x @ w + 1.0),
    "of one term": ([5, 1], [1, 3], lambda x, w: x @ w + 1.0),
}


@products_on
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, dtype, off_stack):
    x, w, fn = PRODUCTS[name]
    x, w = randn(x, dtype), randn(w, dtype, 1)
    program = check(fn, x, w)
    assert "matmul" not in [op.operator.name for op in program.ops]

    def slopes(x, w):
        out, back = vjp(fn, x, w)
        return back(out)

    check(slopes, x, w)


@products_on
@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_small_products_of_one_row_or_one_column(turned, dtype, off_stack):
    sizes = [(1, k, n) for k in (1, 3, 8, 17, 65, 131) for n in (1, 2, 5, 33, 64, 130)]
    sizes += [(n, k, 1) for _, k, n in sizes]
    for m, k, n in sizes:
        x = randn([k, m] if turned[0] else [m, k], dtype)
        y = randn([n, k] if turned[1] else [k, n], dtype, 1)

        def fn(x, y):
            return paddle.matmul(x, y, *map(bool, turned)) * 2.0

        program = make_program(fn)(x, y).with_loops
        (found,), _ = run_fenced(program, [x, y])
        a, b = x.numpy().astype("float64"), y.numpy().astype("float64")
        a, b = (t.T if flag else t for t, flag in zip((a, b), turned, strict=True))
        most = 8 * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b))
        assert (np.abs(found.numpy() - 2.0 * (a @ b)) <= most).all()


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape", [[3, 5, 4], [1, 7, 1], [6, 1, 9], [2, 3, 129]])
def test_sums_and_means_over_any_dimensions(shape, keepdim, off_stack):
    x = randn(shape)
    for axes in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2], [-1, 0], None):
        for reduced in (paddle.sum, paddle.mean):
            check(lambda x: reduced(x * x + 1.0, axes, keepdim=keepdim) * 2.0, x)  # noqa: B023
            check(lambda x: (x * 2.0, reduced(x * 2.0, axes, keepdim=keepdim)), x)  # noqa: B023


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 64, 65, 257])
def test_sizes_around_those_of_vectors(n, off_stack):
    def fn(x, w):
        y = paddle.tanh(x @ w)
        return y * y + x.sum(0), y.sum(1), paddle.exp(-y).mean()

    check(fn, randn([n, 3]), randn([3, 3], seed=1))
    check(fn, randn([3, n], "float64"), randn([n, n], "float64", 1) * 0.1, eps=5000)


@pytest.mark.parametrize("n", [5, 64, 1000])
def test_what_is_in_between_may_lie_anywhere(n, monkeypatch):
    """On the stack and elsewhere the numbers are the same."""
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 17), paddle.nn.Tanh())
    net, params, _ = stateless(layer)
    x, found = randn([n, 3]), []

    def loss(params, x):
        return (net.forward(params, x) ** 2).mean()

    for limit in (-1, 1 << 40):
        monkeypatch.setattr(region_module, "MAX_STACK_BYTES", limit)
        program = make_program(value_and_grad(loss))(params, x)
        run = compile_program(program.with_loops)
        found.append(run(*(params[name] for name in sorted(params)), x))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def mlp(features, dtype="float32"):
    paddle.seed(0)
    layers = []
    for i, o in pairwise(features):
        layers += [paddle.nn.Linear(i, o), paddle.nn.Tanh()]
    layer = paddle.nn.Sequential(*layers[:-1])
    return layer.astype(dtype) if dtype != "float32" else layer


@pytest.mark.parametrize("features", [(3, 8, 2), (5, 5, 5), (4, 3, 8, 16, 1)], ids=str)
def test_batches_that_change(features, monkeypatch):
    """Also where a size of the batch is one of the net, or a multiple."""
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    layer = mlp(features)
    net, params, _ = stateless(layer, jit=True)
    theta = net.flatten(params)
    for n in (3, 5, 8, 1, 5, 16, 13, 3, 2, 64, 8, 5):
        x, c = randn([n, features[0]], seed=n), randn([n, features[-1]], seed=n + 1)
        expected, (by_name, (by_x,)) = native(layer, (x,), c)
        for given in (params, theta):
            for _ in range(2):
                y, back = net.pullback(given, x)
                grads, (slope,) = back(c)
                assert_near(y, expected)
                assert_near(slope, by_x)
                if given is theta:
                    grads = net.unflatten(grads)
                for name, each in grads.items():
                    assert_near(each, by_name[name])


def test_a_mean_over_samples_of_any_number(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)

    class Centred(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = paddle.nn.Linear(3, 4)

        def forward(self, x):
            y = self.linear(x)
            return paddle.concat([y - y.mean(0), y.sum(1, keepdim=True)], 1) * 2.0

    layer = Centred()
    net, params, _ = stateless(layer, jit=True)
    for n in (6, 9, 7, 6, 2, 31):
        x, c = randn([n, 3], seed=n), randn([n, 5], seed=n + 1)
        expected, (by_name, (by_x,)) = native(layer, (x,), c)
        for _ in range(3):
            y, back = net.pullback(params, x)
            grads, (slope,) = back(c)
            assert_near(y, expected)
            assert_near(slope, by_x)
            for name, each in grads.items():
                assert_near(each, by_name[name])


@pytest.fixture
def first(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 0)


def test_the_call_at_which_a_program_goes_over_to_machine_code(monkeypatch):
    """Which runs operators to its end, with constants of its own.

    What these stand for is numbered, and a number may be another constant's in the
    program with regions.
    """
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 3)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 4),
        paddle.nn.ReLU6(),
        paddle.nn.Hardswish(),
        paddle.nn.SELU(),
    )
    net, params, _ = stateless(layer, jit=True)
    x, c = randn([5, 3]), randn([5, 4], seed=1)
    expected = native(layer, (x,), c)
    for _ in range(8):
        assert_pullback(net.pullback(params, x), c, expected)


def test_a_mean_over_samples_that_goes_into_a_later_region():
    def fn(x):
        mean = x.mean(0)
        return mean * 2.0 + paddle.erfinv(paddle.tanh(mean)) * 3.0

    program = of_any_number(fn, randn([5, 4]), randn([8, 4]))
    for n in (5, 1, 13):
        x = randn([n, 4], seed=n)
        assert_near(compile_program(program)(x)[0], fn(x))
        (found,), count = run_fenced(program, [x], n)
        assert_near(found, fn(x))
        assert count == 2


def test_some_of_the_samples_are_no_program_for_any_number():
    def fn(x):
        return paddle.slice(x, [0], [0], [3]) * 2.0 + 1.0

    assert of_any_number(fn, randn([5, 4]), randn([8, 4])) is None
    assert of_any_number(lambda x: x[:3] * 2.0, randn([5]), randn([8])) is None
    assert of_any_number(lambda x: x[:, 0] * 2.0, randn([5, 3]), randn([8, 3]))


def test_a_mean_that_is_alone_in_its_part():
    def fn(x):
        products = paddle.matmul(x, x, transpose_y=True)
        return x.mean(), products * (products > 0.0)

    check(fn, randn([2], "float64"))


def test_results_in_float64_of_float32(first):
    f = jit(lambda x: (x.sum(1) * x.mean()).astype("float64") * 2.0, strict=True)
    x = randn([5, 300])
    assert f(x).dtype == paddle.float64
    assert_near(f(x).astype("float32"), (x.sum(1) * x.mean() * 2.0))


def test_a_part_of_no_places():
    check(lambda x: paddle.split(x * 2.0 + 1.0, [3, 0])[0] * 2.0, randn([3, 2]))


@products_on
def test_a_view_of_what_was_expanded_within_a_loop():
    check(lambda x: paddle.expand((x @ x) * 0.3, [3, 3]).T, randn([3, 3]))


@products_on
def test_regions_of_a_program_have_one_memory_after_another():
    def fn(x):
        first = paddle.sort(paddle.tanh(x @ x) @ x, 0) * 1e-3
        return paddle.sort(paddle.exp(first.T @ first) @ x, 0)

    text = check(fn, randn([120, 120]) * 0.1).python()
    assert text.count("memory = borrowed(") == text.count("give_back(memory)") == 2


@products_on
def test_what_is_long_is_several_functions():
    def fn(x, w):
        for _ in range(40):
            x = paddle.tanh(x @ w)
        return x

    program = check(fn, randn([7, 5]), randn([5, 5], seed=1), eps=5000)
    (region,) = program.regions
    assert region.text.count("define internal") > 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_amid_compiling():
    begun, ended = threading.Event(), threading.Event()

    def compiling():
        with jit_engine._lock:
            begun.set()
            ended.wait(0.3)

    thread = threading.Thread(target=compiling)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(0 if jit_engine._lock.acquire(timeout=10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ended.set()
    thread.join()


SLIPS = {
    "fewer elements": (
        lambda p: setattr(p, "data", paddle.rand([2, 2])),
        r"float32\[2, 2\], and was float32\[3, 4\]",
    ),
    "another dtype": (
        lambda p: setattr(p, "data", paddle.rand([3, 4]).astype("float64")),
        r"is float64\[3, 4\], and was float32",
    ),
    "no memory": (lambda p: p._clear_data(), "has no memory any more"),
}


@products_on
@loops_on
@pytest.mark.parametrize("slip", SLIPS)
def test_a_parameter_that_is_another_before_the_way_back(slip, first):
    change, said = SLIPS[slip]
    net, params, _ = stateless(mlp((3, 4, 2)), jit=True)
    params = {name: value.clone() for name, value in params.items()}
    for _ in range(3):
        y, back = net.pullback(params, randn([5, 3]))
        back(y)
    change(params["0.weight"])
    with pytest.raises(ValueError, match=said):
        back(y)


def test_a_constant_that_is_another(first):
    c = paddle.rand([3])
    f = jit(lambda x: (x * c + 1.0) * c)
    x = paddle.rand([3])
    f(x)
    c.data = paddle.rand([1])
    assert_near(f(x), (x * c + 1.0) * c)


def test_parameters_with_gaps(first):
    layer = mlp((3, 4, 2))
    net, params, _ = stateless(layer, jit=True)
    x, c = randn([5, 3]), randn([5, 2], seed=1)
    _, (expected, _) = native(layer, (x,), c)
    turned = {n: p.T.clone().T if p.ndim == 2 else p for n, p in params.items()}
    assert not turned["0.weight"].is_contiguous()
    wide = paddle.zeros([5, 6])
    wide[:, ::2] = x
    for _ in range(3):
        _, back = net.pullback(turned, wide[:, ::2])
        for name, each in back(c)[0].items():
            assert_near(each, expected[name])


def test_threads_with_numbers_of_their_own(first):
    net, params, _ = stateless(mlp((3, 16, 2)), jit=True)
    inputs = [randn([7, 3], seed=seed) for seed in range(4)]
    for x in inputs:
        net.forward(params, x)  # the first is Paddle's own
    expected = [net.forward(params, x).numpy() for x in inputs]
    wrong = []

    def calls(x, right):
        for _ in range(300):
            if not np.array_equal(net.forward(params, x).numpy(), right):
                wrong.append(1)

    on_threads(calls, zip(inputs, expected, strict=True))
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_goes_on(first):
    net, params, _ = stateless(mlp((3, 16, 2)), jit=True)
    x = randn([7, 3])
    net.forward(params, x)
    expected = net.forward(params, x).numpy()
    child = os.fork()
    if not child:
        same = np.array_equal(net.forward(params, x).numpy(), expected)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_net_is_pickled_and_makes_its_code_anew(first):
    net, params, _ = stateless(mlp((3, 16, 2)), jit=True)
    x = randn([7, 3])
    expected = net.forward(params, x)
    other = pickle.loads(pickle.dumps(net))
    for _ in range(2):
        assert_near(other.forward(params, x), expected)
    program = make_program(lambda x: (x * 2.0 + 1.0) * x)(x)
    again = pickle.loads(pickle.dumps(program))
    assert_near(again(x)[0], program(x)[0], 1)


def test_results_are_tensors_of_their_own(first):
    f = jit(lambda x: [y := x * 2.0 + 1.0, y.T, y[:2], paddle.concat([y, y], 0)])
    x = randn([3, 4])
    found = f(x)
    kept = [part.numpy().copy() for part in found]
    for part in f(x):
        part.zero_()
    for part, before in zip(found, kept, strict=True):
        np.testing.assert_array_equal(part.numpy(), before)
    found[0].zero_()
    for part, before in zip(found[1:], kept[1:], strict=True):
        np.testing.assert_array_equal(part.numpy(), before)


@products_on
def test_a_region_ends_before_its_next_step_once_its_flag_is_set(off_stack):
    x = randn([5, 3])
    program = make_program(lambda x: paddle.tanh(x @ x.T) @ x)(x).with_loops
    (region,) = program.regions
    run = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_char_p)(region.address)
    given, out = Fenced([5, 3], x.numpy().dtype, x.numpy()), Fenced([5, 3], "float32")
    work = Fenced([region.work_bytes // 8 + 8], "float64")
    flag = np.zeros(1, np.int32)
    places = [flag.ctypes.data, given.address, out.address, work.address]
    block = struct.pack("5q", 0, *places)
    flag[0] = 2
    assert run(block)
    assert np.isnan(out.array).all()
    flag[0] = 0
    assert not run(block)
    assert_near(paddle.to_tensor(out.array), program.function(x)[0])


def test_what_is_made_again_is_not_compiled_again(monkeypatch):
    def made():
        fn = make_program(lambda x: paddle.tanh(x * 1.1875) * 0.8125 + x)
        return fn(randn([13, 11])).with_loops.regions[0].address

    first = made()
    gc.collect()
    monkeypatch.setattr(jit_engine, "_compile", lambda texts: pytest.fail("compiled"))
    assert made() == first
    monkeypatch.undo()
    monkeypatch.setattr(jit_engine, "MAX_RECENT_FUNCTIONS", 1)
    other = make_program(lambda x: paddle.tanh(x * 1.25) * 0.75 + x)(randn([13, 11]))
    assert other.with_loops.regions
    assert len(jit_engine._recent) == 1


@products_on
def test_memory_in_between_is_used_again():
    def chain(x, w):
        for _ in range(20):
            x = paddle.tanh(x @ w) + 0.5
        return x

    weight = randn([64, 64], seed=1) / 8.0  # rounding does not grow from step to step
    program = make_program(chain)(randn([64, 64]), weight)
    (op,) = program.with_loops.ops
    assert op.operator.work_bytes <= 2 * 64 * 64 * 4
    assert program.with_loops.peak_bytes <= program.peak_bytes + 64 * 64 * 4 + 3 * 64


@products_on
def test_a_gradient_in_one_piece_is_computed_in_its_place():
    net, params, _ = stateless(mlp((3, 16, 16, 2)), jit=True)
    theta, x = net.flatten(params), randn([7, 3])

    def loss(theta):
        return (net.forward(theta, x) ** 2).sum()

    program = make_program(grad(loss))(theta)
    text = program.machine()
    assert "concat" in {op.operator.name for op in program.ops}
    assert len(program.with_loops.ops) == 1
    assert "concat" not in text


@loops_on
def test_what_is_machine_code_and_what_is_not():
    x = randn([17, 7])

    def sorting(x):
        return paddle.sort(x * 2.0 + 1.0, 0) * 3.0 + x

    said = explain(sorting, x)
    assert "2 functions, and these operators run in Paddle: argsort" in said
    assert "As machine code it is one function." in explain(lambda x: x * x + 1.0, x)
    assert "No machine code" in explain(lambda x: paddle.sort(x, 0), x)
    program = make_program(lambda x: x * x + 1.0)(x)
    assert "define zeroext i1 @_0(" in program.machine()
    assert "multiply(t0, t0)  test_regions.py" in program.machine()


@products_on
def test_steps_that_do_the_same_are_one_function():
    layers = [(randn([6, 6], seed=k) / 3, randn([6], seed=k + 50)) for k in range(40)]

    def deep(x):
        for k, (weight, bias) in enumerate(layers):
            x = paddle.tanh(x @ weight + bias) + (x if k % 2 else x.T.reshape([4, 6]))
        return x, x.sum(0)

    made = check(deep, randn([4, 6]))
    (region,) = made.regions
    functions = region.text.count("define ")
    assert len(set(region.text.split("define "))) == functions + 1
    assert functions < 20
    assert region.text.count("call i1 @NAME.step") >= 80


def test_what_is_zero_but_for_many_roundings_is_captured(first):
    """The gradient of a number that softmax takes away, by 153,600 terms."""

    def attend(q, k, shift):
        return paddle.nn.functional.softmax(q @ k.T + shift, -1) @ k

    def step(q, k, shift, cotangent):
        out, pullback = vjp(attend, q, k, shift)
        return [out, *pullback(cotangent)]

    paddle.seed(0)
    shapes = [300, 16], [512, 16], [1], [300, 16]
    given = [paddle.randn(shape, "float64") for shape in shapes]
    *_, by_shift = jit(step, strict=True)(*given)
    assert abs(by_shift.item()) < 1e-9
