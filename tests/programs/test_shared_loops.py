"""Loops that several threads share: the same bits as by one."""

import pytest

from conftest import run_code
from paddle_chainrules.programs.codegen import threads
from paddle_chainrules.programs.codegen.extents import SymInt

BEGIN = """
import json, os, threading
import numpy as np
import paddle
import paddle.nn.functional as F
import paddle_chainrules as pc
from paddle_chainrules.programs.codegen import threads

shared = []
threads.MIN_PARALLEL_OPS = threads.least.value = 1
emit_parallel_call = threads.emit_parallel_call
def counted(text, function, *rest):
    shared.append(function)
    emit_parallel_call(text, function, *rest)
threads.emit_parallel_call = counted
paddle.seed(7)

def both(function, *given):
    "Numbers by all threads, and by one."
    found = []
    for alone in (False, True):
        now = threads.threads
        if alone:
            threads.threads = lambda: 1
        shared.clear()
        call = pc.jit(pc.value_and_grad(function, argnums=tuple(range(len(given)))))
        out = [call(*given) for _ in range(3)][-1]
        # Of one sample, what is added up may be all that there is.
        assert not (alone and shared) and (alone or shared or 1 in given[0].shape)
        threads.threads = now
        found.append([np.asarray(t) for t in (out[0], *out[1])])
    return found

def assert_same(function, *given):
    for ours, other in zip(*both(function, *given)):
        assert ours.tobytes() == other.tobytes()
"""

THREE = {
    "OMP_NUM_THREADS": "3",
    "MKL_NUM_THREADS": "1",
    "PADDLE_CHAINRULES_LOOPS": "first",
    "PADDLE_CHAINRULES_BLAS": "mkl",
    "PADDLE_CHAINRULES_CODE": "",
}


def run(code, **more):
    done = run_code(BEGIN + code + "\nprint('done')", **{**THREE, **more})
    assert done.stdout.split()[-1:] == ["done"], done.stdout + done.stderr


def test_bits_of_rows_of_one_vector():
    run("""
for dtype in ("float32", "float64"):
    for width in (2, 4, 8, 16, 32, 33):
        x, b = (paddle.randn([n, width]).astype(dtype) for n in (101, 1))
        assert_same(lambda x, b: (paddle.tanh(x * b + b) * x).sum(0).norm(), x, b)
        assert_same(lambda x, b: (x * b).max(0).sum() * (x - b).mean(), x, b)
        assert_same(lambda x: (paddle.exp(x).sum(1) * 2).square().sum(), x)
        assert_same(lambda x: (x.reshape([1, -1, width]).sum([0, 1]) ** 3).sum(), x)
""")


def test_bits():
    """Elementwise, broadcast, summed along either side, by lines, many products."""
    run("""
for dtype, sizes in {"float32": (101,), "float64": (1, 6)}.items():
    for n in sizes:
        x, b = paddle.randn([n, 13]).astype(dtype), paddle.randn([13]).astype(dtype)
        c = paddle.randn([n, 1]).astype(dtype)
        assert_same(lambda x, b: (paddle.tanh(x * b + b) * x).sum(0).norm(), x, b)
        assert_same(lambda x, c: (paddle.exp(x) * c).sum(1).square().sum(), x, c)
        assert_same(lambda x: (F.softmax(x, -1) * F.softmax(x, 0)).sum(), x)
        assert_same(lambda x, b: (F.layer_norm(x, [13], b) ** 3).sum(), x, b)
        assert_same(lambda x: (paddle.cumsum(x, -1) * paddle.cumsum(x, 0)).sum(), x)
        assert_same(lambda x: (x.max(1) * x.min(1)).sum() + x.T.reshape([-1])[3], x)
        q, k = (paddle.randn([2, 3, n, 5]).astype(dtype) for _ in range(2))
        assert_same(lambda q, k: paddle.tanh(q @ k.transpose([0, 1, 3, 2])).sum(), q, k)
        h = paddle.randn([2, n, 3, 4]).astype(dtype)
        assert_same(lambda q: F.scaled_dot_product_attention(q, q, q).square().sum(), h)
""")


def test_calls():
    """Of any number of samples, of a fork's child, and of several threads at a time."""
    run("""
layer = paddle.nn.Sequential(paddle.nn.Linear(3, 17), paddle.nn.GELU(),
                             paddle.nn.LayerNorm(17), paddle.nn.Linear(17, 2))
net, params, *_ = pc.stateless(layer, jit=True)
for n in (4, 9, 1, 33, 301, 5):
    x, v = paddle.randn([n, 3]), paddle.randn([n, 2])
    out, pullback = net.pullback(params, x)
    found, _ = pullback(v)
    own = dict(layer.named_parameters())
    layer.clear_gradients()
    (layer(x) * v).sum().backward()
    for name, grad in found.items():
        expected = own[name].grad.numpy()
        assert np.abs(grad.numpy() - expected).max() <= 2e-6 * np.abs(expected).max()
assert shared
x = paddle.randn([501, 11])
call = pc.jit(lambda x: (paddle.tanh(x) * paddle.sin(x)).sum(0))
expected = [call(x) for _ in range(3)][-1].numpy().tobytes()
for _ in range(20):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"1" if call(x).numpy().tobytes() == expected else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"1"
    os.close(read)
    os.close(write)
    call(x)
wrong = []
def work():
    for _ in range(200):
        if call(x).numpy().tobytes() != expected:
            wrong.append(1)
workers = [threading.Thread(target=work) for _ in range(4)]
[w.start() for w in workers]
[w.join() for w in workers]
assert not wrong
""")


def test_what_several_threads_of_paddle_s_lose():
    """Sums at the same places, and gradients of what was taken there."""
    run(
        """
x = paddle.zeros([4, 3], "float64")
put = pc.jit(lambda i, j, v: paddle.index_put(x, (i, j), v, accumulate=True))
back = pc.jit(lambda x, i, j, v: pc.vjp(lambda x: x[i, j], x)[1](v))
for _ in range(60):
    i, j = paddle.randint(0, 4, [3000]), paddle.randint(0, 3, [3000])
    v = paddle.randn([3000], "float64")
    expected = np.zeros([4, 3])
    np.add.at(expected, (i.numpy(), j.numpy()), v.numpy())
    for found in (put(i, j, v), back(x, i, j, v)):
        assert np.abs(np.asarray(found).reshape([4, 3]) - expected).max() < 1e-9
""",
        PADDLE_CHAINRULES_LOOPS="off",
    )


@pytest.mark.parametrize("count", [1, 2])
def test_is_as_set(count, monkeypatch):
    """What is large is shared, if there are threads."""
    monkeypatch.setattr(threads, "threads", lambda: count)
    large, small = (
        SymInt(threads.MIN_PARALLEL_OPS),
        SymInt(threads.MIN_PARALLEL_OPS - 1),
    )
    found = [threads.may_share(each) for each in (large, SymInt(1, 1), small, None)]
    assert found == [count > 1, count > 1, False, False]
