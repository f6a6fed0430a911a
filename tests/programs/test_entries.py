"""The builtin function by which calls enter a region."""

import ctypes
import gc
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import paddle
import pytest

from conftest import assert_same, loops_on, on_threads, products_on, programs_on, randn
from paddle_chainrules import (
    FCNet,
    jit,
    make_program,
    stateless,
    value_and_grad,
    vjp,
)
from paddle_chainrules.programs.codegen import jit_engine
from paddle_chainrules.programs.codegen.extents import ShapeEnv
from paddle_chainrules.programs.codegen.fused_kernels import entries, region
from paddle_chainrules.programs.codegen.fused_kernels.region import NEVER, Region

pytestmark = [loops_on, programs_on]


def entry_of(fn, *args, **how):
    """Return the builtin function of the function's region, and the region.

    Its results come in the function's order.
    """
    program = make_program(fn)(*args).with_loops
    (only,) = [op.operator for op in program.ops if isinstance(op.operator, Region)]
    inputs, outputs = only._inputs, only._outputs
    assert only.order == [*inputs, *outputs]
    enter = entries.entry(
        only.code,
        inputs,
        outputs,
        shape_env=how.pop("sizes", ShapeEnv(None)),
        work=how.pop("work", {}),
        flag=NEVER,
        may_bail_out=only.may_bail_out,
    )
    order = [outputs.index(value) for value in program.outputs]

    def in_order(*args):
        made = enter(*args)
        return None if made is None else [made[k] for k in order]

    return enter and in_order, only


def several(x, y):
    """Give results of several shapes and dtypes."""
    z = x * y + 1.0
    return z, z.sum(0), z.astype("float64").sum(), z > 0.5, (z * 2.0).T * 1.0


def by_numpy(x, y):
    z = x.numpy() * y.numpy() + np.float32(1)
    return z, z.sum(0), z.astype("float64").sum(), z > 0.5, (z * 2).T


def test_it_gives_what_the_operators_give():
    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    enter, _ = entry_of(several, x, y)
    for _ in range(3):
        found = enter(x, y)
        for one, other in zip(found, by_numpy(x, y), strict=True):
            assert one.numpy().dtype == other.dtype
            assert one.stop_gradient
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)


def test_it_refuses_whatever_is_not_as_it_was():
    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    enter, _ = entry_of(several, x, y)
    refused = [
        (x,),
        (x, y, y),
        (),
        (x, 1.0),
        (x, None),
        (x, y.numpy()),
        (x, "a string"),
        (x, [y]),
        (x, y.astype("float64")),
        (x, y.astype("int32")),
        (x, y.astype("bfloat16")),
        (x, y[:4]),
        (x, randn([7, 5], "float32")),
        (x, randn([5, 1, 7], "float32")),
        (x, randn([35], "float32")),
        (x, randn([7, 5], "float32").T),
        (x, randn([5, 14], "float32")[:, ::2]),
        (x, randn([5, 8], "float32")[:, :7]),
        (x, paddle.zeros([0, 7])),
        (x, paddle.to_tensor(1.0)),
        (x, paddle.Tensor()),
    ]
    for args in refused:
        assert enter(*args) is None
        assert enter(x, y) is not None  # and no error is left
    assert enter(x, randn([6, 7], "float32")[1:]) is not None  # has an offset alone


def test_strides_of_single_rows_are_no_matter():
    x, y = randn([1, 7], "float32"), randn([1, 7], "float32", 1)
    enter, _ = entry_of(several, x, y)
    assert enter(x, randn([3, 7], "float32")[1:2]) is not None
    assert enter(x, randn([7, 1], "float32").T) is not None


def test_results_are_tensors_like_others():
    """Each outlives the others, may be written to, copied, pickled and trained."""
    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    enter, _ = entry_of(several, x, y)
    want = by_numpy(x, y)
    for kept in range(5):
        made = enter(x, y)[kept]
        gc.collect()
        enter(x, y)
        np.testing.assert_allclose(made.numpy(), want[kept], rtol=1e-5, atol=1e-6)
    made = enter(x, y)
    others = [part.numpy().copy() for part in made[1:]]
    made[0].add_(paddle.full([5, 7], 100.0))
    made[0][1] = 3.0
    for part, other in zip(made[1:], others, strict=True):
        np.testing.assert_array_equal(part.numpy(), other)
    again = pickle.loads(pickle.dumps(made[1].clone().numpy()))
    np.testing.assert_array_equal(again, made[1].numpy())
    made[1].stop_gradient = False
    (made[1] ** 2).sum().backward()
    np.testing.assert_allclose(made[1].grad, 2 * others[0], rtol=1e-6)
    made[1].set_value(paddle.zeros([7]))
    assert float(made[1].abs().sum()) == 0
    view = made[4].T
    del made
    gc.collect()
    np.testing.assert_allclose(view.numpy(), want[4].T, rtol=1e-5, atol=1e-6)


def test_gradients_may_be_given_to_an_optimizer():
    net = FCNet((3, 5, 2))
    x, c = randn([7, 3], "float32"), randn([7, 2], "float32", 2)
    params = net.init(0)
    for _ in range(60):
        grads, _ = net.vjp(params, x, c)
    trained = [paddle.create_parameter(p.shape, "float32") for p in params.values()]
    optimizer = paddle.optimizer.SGD(0.5, parameters=trained)
    before = [p.numpy().copy() for p in trained]
    for p, g in zip(trained, grads.values(), strict=True):
        p.grad = g
    optimizer.step()
    for p, b, g in zip(trained, before, grads.values(), strict=True):
        np.testing.assert_allclose(p.numpy(), b - 0.5 * g.numpy(), rtol=1e-5)


def resident():
    """Return the bytes that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_given_back():
    x, y = randn([50, 70], "float32"), randn([50, 70], "float32", 1)
    enter, _ = entry_of(several, x, y)
    wrong = y.astype("float64")
    for _ in range(300):
        enter(x, y)
        enter(x, wrong)
    before = resident()
    kept = enter(x, y)[2]  # a number, which keeps no other result
    for _ in range(5000):
        enter(x, y)
        enter(x, wrong)
    assert resident() - before < 12 << 20  # of 200 MB that went through
    small = [enter(x, y)[2] for _ in range(3000)]
    assert resident() - before < 60 << 20  # of 135 MB, with what lies between
    assert all(float(one) == float(kept) for one in small)


def test_threads_have_results_of_their_own():
    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    enter, _ = entry_of(several, x, y)
    want = by_numpy(x, y)

    right = []

    def work():
        kept = []
        for _ in range(300):
            kept = [*kept[-20:], enter(x, y)]
        for made in kept:
            for one, other in zip(made, want, strict=True):
                np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
        right.append(True)

    on_threads(work, [()] * 4)
    assert len(right) == 4


def test_large_results_are_left_to_paddle():
    x = randn([300, 300], "float32")
    enter, _ = entry_of(lambda x: x * 2.0 + 1.0, x)
    assert x.numel() * 4 > entries.MAX_RESULT_BYTES
    assert enter(x) is None
    compiled = jit(lambda x: x * 2.0 + 1.0)
    for _ in range(50):
        np.testing.assert_allclose(compiled(x), x * 2.0 + 1.0, rtol=1e-6)


def test_without_an_exchange_table(monkeypatch):
    monkeypatch.setattr(entries, "exchange", lambda: None)
    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    assert entry_of(several, x, y)[0] is None
    compiled = jit(several)
    for _ in range(60):
        found = compiled(x, y)
    for one, other in zip(found, by_numpy(x, y), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)


def test_any_number_of_samples():
    w = randn([3, 4], "float64", 5)

    def fn(x):
        return paddle.tanh(x @ w) * x.sum(1, keepdim=True), x.T * 2.0

    compiled = jit(fn)
    for n in (5, 8):
        compiled(randn([n, 3], "float64"))
    for _ in range(20):
        for n in (2, 5, 8, 11, 17):
            x = randn([n, 3], "float64", n)
            for one, other in zip(compiled(x), fn(x), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-10)


def test_an_index_out_of_range_raises_as_without():
    table, ids = randn([5, 3], "float32"), paddle.to_tensor([1, 4, 2])

    def fn(table, ids):
        return paddle.nn.functional.embedding(ids, table) * 2.0

    compiled = jit(fn)
    for _ in range(60):
        np.testing.assert_allclose(compiled(table, ids), fn(table, ids))
    with pytest.raises(ValueError, match="expected >= 0 and < 5, but got 7"):
        compiled(table, paddle.to_tensor([1, 7, 2]))
    np.testing.assert_allclose(compiled(table, ids), fn(table, ids))


RANDOM = """
    import numpy as np, paddle
    from paddle_chainrules import FCNet, jit, value_and_grad, vjp
    rng = np.random.default_rng(3)
    for case in range(25):
        sizes = tuple(map(int, rng.integers(1, 40, rng.integers(2, 6))))
        dtype = ["float32", "float64"][case % 2]
        net = FCNet(sizes, dtype=dtype)
        params = net.init(case)
        n = int(rng.integers(1, 50))
        x = paddle.to_tensor(rng.standard_normal((n, sizes[0])), dtype)
        c = paddle.to_tensor(rng.standard_normal((n, sizes[-1])), dtype)
        step = jit(value_and_grad(lambda p, x: (net(p, x) * c).sum()))
        first = None
        for call in range(45):
            value, (grads, slope) = net(params, x), net.vjp(params, x, c)
            total, by_step = step(params, x)
            found = [value, slope, *grads.values(), total, *by_step.values()]
            found = [part.numpy().copy() for part in found]
            if first is None:
                first = found
            eps = 2e-4 if dtype == "float32" else 1e-11
            for one, other in zip(found, first):
                scale = np.abs(other).max() + 1
                np.testing.assert_allclose(one, other, rtol=eps, atol=eps * scale)
    print("all equal")
"""


def test_random_nets_on_memory_that_is_checked_and_filled():
    """glibc fills memory that is taken and given back, and checks its borders."""
    filled = {"MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"}
    filled["GLIBC_TUNABLES"] = "glibc.malloc.check=3"
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RANDOM)],
        env={**os.environ, **filled, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "all equal" in ran.stdout


@pytest.mark.parametrize("counts", [(0, 1), (2, 5), (3, 17)])
def test_nothing_outside_of_the_results_is_written(counts):
    """A region that writes a mark everywhere it may leaves fences alone."""
    inputs, outputs = counts
    given = [randn([k + 1, 3], "float32", k) for k in range(inputs)]
    ones = paddle.ones([2, 3])

    def fn(*args):
        whole = sum((a.sum() for a in args), ones.sum())
        return [whole * paddle.ones([k + 1]) * 1.0 for k in range(outputs)]

    compiled = jit(fn)
    fences = [paddle.full([64], 7.0) for _ in range(50)]
    for _ in range(60):
        found = compiled(*given)
    for one, other in zip(found, fn(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert all((fence == 7.0).all() for fence in fences)


def test_the_code_is_kept_by_its_function():
    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    enter, owner = entry_of(several, x, y)
    del owner
    jit_engine._recent.clear()
    gc.collect()
    for one, other in zip(enter(x, y), by_numpy(x, y), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
    assert ctypes.pythonapi is not None


def test_pullbacks_and_gradients_go_through_it(monkeypatch):
    entered = []
    real = entries.entry

    def noting(*args, **kwargs):
        made = real(*args, **kwargs)
        entered.append(made)
        return made

    monkeypatch.setattr(region, "entry", noting)
    w, x = randn([3, 4], "float64", 5), randn([6, 3], "float64")

    def fn(w, x):
        return paddle.tanh(x @ w) * 1.5

    step = jit(value_and_grad(lambda w, x: fn(w, x).sum()))
    for _ in range(60):
        step(w, x)
    y, pullback = vjp(fn, w, x)
    c = randn([6, 4], "float64", 9)
    found = pullback(c)
    slope = 1.5 * (1 - np.tanh(x.numpy() @ w.numpy()) ** 2)
    np.testing.assert_allclose(found[0], x.numpy().T @ (c.numpy() * slope), rtol=1e-9)
    np.testing.assert_allclose(step(w, x)[1], x.numpy().T @ slope, rtol=1e-9)
    assert any(entered)
    assert y.shape == [6, 4]


class Optional(paddle.nn.Layer):
    """A layer with an argument that need not be given."""

    def __init__(self):
        super().__init__()
        self.inner = paddle.nn.Linear(3, 2)

    def forward(self, x, y=None):
        out = paddle.tanh(self.inner(x))
        return out if y is None else out + y


@products_on
def test_the_last_program_serves_no_other_number_of_arguments():
    net, params, _ = stateless(Optional(), jit=True)
    x, y = randn([5, 3], "float32"), randn([5, 2], "float32", 1)
    for _ in range(60):
        alone, _ = net.pullback(params, x)
        net.forward(params, x)
    assert net._programs.values.result(params, (x,), {}) is not None
    assert_same(net.forward(params, x, y), alone + y, rtol=1e-6)
    net.pullback(params, x)
    assert_same(net.pullback(params, x, y)[0], alone + y, rtol=1e-6)
    net.forward(params, x)
    with pytest.raises(TypeError, match="required positional argument"):
        net.forward(params)


def of_rows():
    """Return a tensor of selected rows, of the shape of the embedding's weight."""
    layer = paddle.nn.Embedding(5, 7, sparse=True)
    layer(paddle.to_tensor([1, 3])).sum().backward()
    return layer.weight.grad


def cleared():
    """Return a tensor that has no shape nor dtype any more."""
    x = randn([5, 7], "float32")
    x._clear()
    return x


class Pretender:
    """An object that says it is a tensor."""

    __class__ = paddle.Tensor  # type: ignore[assignment]


@pytest.mark.parametrize(
    "make",
    [
        cleared,
        of_rows,
        lambda: randn([5, 7], "float32").to_sparse_coo(2),
        lambda: randn([5, 7], "float32").to_sparse_csr(),
        Pretender,
        object,
        lambda: paddle.Tensor,
    ],
)
def test_it_reads_dense_tensors_alone(make):
    """Paddle reads others as if they were dense, and crashes where nothing is."""
    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    enter, _ = entry_of(several, x, y)
    other = make()
    assert enter(x, other) is None
    assert enter(other, y) is None
    assert enter(x, y) is not None


def test_it_takes_parameters_and_other_kinds_of_tensors():
    class Own(paddle.Tensor):
        pass

    x, y = randn([5, 7], "float32"), randn([5, 7], "float32", 1)
    enter, _ = entry_of(several, x, y)
    parameter = paddle.create_parameter([5, 7], "float32")
    parameter.set_value(x)
    for one, other in zip(enter(parameter, Own(y)), by_numpy(x, y), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
