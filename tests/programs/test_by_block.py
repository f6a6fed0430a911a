"""What a product larger than its factors is used up by goes block by block."""

import ctypes
import struct
import threading
from importlib.util import find_spec

import numpy as np
import optree
import paddle
import pytest

from conftest import native, products_on, randn
from paddle_chainrules import make_program, stateless, value_and_grad, vjp
from paddle_chainrules import settings as switch
from paddle_chainrules.programs.codegen.fused_kernels import (
    by_block,
    packing,
    tile_fusion,
)
from programs.fenced import assert_near, check, of_any_number, run_fenced
from programs.test_regions import assert_pullback

functional = paddle.nn.functional
attention = functional.scaled_dot_product_attention


def by_blocks_of(rows, monkeypatch, shared=1024):
    """Whatever is large goes by blocks of some rows, however small it is.

    Args:
        shared: bytes, of whose multiples rows are not apart.
    """
    monkeypatch.setattr(tile_fusion, "MIN_SAVED_BYTES", -(1 << 40))
    monkeypatch.setattr(tile_fusion, "MIN_ROW_ENTRIES", 1)
    monkeypatch.setattr(by_block, "MIN_TILE_ROWS", rows)
    monkeypatch.setattr(by_block, "MAX_TILE_BYTES", 1)
    monkeypatch.setattr(by_block, "TILE_ROWS_MULTIPLE", 1)
    monkeypatch.setattr(packing, "CACHE_ALIAS_STRIDE", shared)
    monkeypatch.setattr(by_block, "wanted_blas", lambda: "on")


BLOCKS = [(1, 1024), (8, 4), (1 << 20, 8)]


@pytest.fixture(params=BLOCKS, ids=["1 row", "8 rows, copies", "all rows, copies"])
def blocks(request, monkeypatch):
    rows, shared = request.param
    by_blocks_of(rows, monkeypatch, shared)


@pytest.fixture
def five_rows(monkeypatch):
    by_blocks_of(5, monkeypatch)


def slopes_of(fn, count):
    """A function of some tensors and a cotangent: value and gradients."""

    def slopes(*given):
        out, back = vjp(fn, *given[:count])
        return [out, *back(given[count])]

    return slopes


def count_of_blocks(program):
    return sum(region.text.count("icmp ne i64 %i.") for region in program.regions)


MASKS = {
    "no mask": None,
    "of truths": lambda b, h, n, m, dtype: randn([b, 1, n, m], seed=7) > -1.0,
    "of numbers": lambda b, h, n, m, dtype: randn([b, h, n, m], dtype, 7),
    "the same for heads": lambda b, h, n, m, dtype: randn([1, 1, n, m], dtype, 7),
    "the same for rows": lambda b, h, n, m, dtype: randn([b, 1, 1, m], dtype, 7),
    "triangular": "causal",
}


def given_of(mask, sizes, dtype):
    b, n, m, h, d, e = sizes
    q, k = randn([b, n, h, d], dtype), randn([b, m, h, d], dtype, 1)
    v, c = randn([b, m, h, e], dtype, 2), randn([b, n, h, e], dtype, 3)
    make = MASKS[mask]
    return q, k, v, c, make(b, h, n, m, dtype) if callable(make) else None


def of_mask(mask):
    is_causal = mask == "triangular"

    def fn(q, k, v, *given):
        return attention(q, k, v, *given, is_causal=is_causal)

    return fn


@products_on
@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask, dtype, blocks):
    m = 17 if mask == "triangular" else 13
    q, k, v, c, given = given_of(mask, (2, 17, m, 3, 4, 5), dtype)
    fn = of_mask(mask)
    every = [q, k, v] if given is None else [q, k, v, given]
    program = check(fn, *every)
    assert count_of_blocks(program) == 1
    floats = 4 if given is not None and given.is_floating_point() else 3

    def of_floats(*some):
        return fn(*some, *every[len(some) :])

    def slopes(*some):
        out, back = vjp(of_floats, *some[:floats])
        return [out, *back(some[floats])]

    program = check(slopes, *every[:floats], c)
    assert count_of_blocks(program) == 1
    with paddle.no_grad():
        found = program.function(*every[:floats], c)
    if find_spec("torch"):
        for a, b in zip(found, by_torch(mask, every, floats, c), strict=True):
            assert_near(a, b, 100)
    for a, b in zip(found, by_paddle(of_floats, every[:floats], c), strict=True):
        assert_near(a, b, 100)


def by_torch(mask, every, floats, cotangent):
    """Value and gradients by PyTorch."""
    import torch

    given = [torch.from_numpy(t.numpy()) for t in every]
    for t in given[:floats]:
        t.requires_grad_()
    heads = [t.transpose(1, 2) for t in given[:3]]
    out = torch.nn.functional.scaled_dot_product_attention(
        *heads, *given[3:], is_causal=mask == "triangular"
    ).transpose(1, 2)
    back = torch.autograd.grad(out, given[:floats], torch.from_numpy(cotangent.numpy()))
    return [paddle.to_tensor(t.detach().numpy()) for t in (out, *back)]


def by_paddle(fn, given, cotangent):
    """Value and gradients by Paddle's tape."""
    leaves = [t.detach() for t in given]
    for t in leaves:
        t.stop_gradient = False
    out = fn(*leaves)
    return [out.detach(), *paddle.grad(out, leaves, [cotangent])]


SIZES = [
    (1, 2, 2, 1, 1, 1),
    (1, 31, 2, 1, 1, 3),
    (3, 2, 29, 1, 1, 2),
    (1, 11, 23, 5, 2, 3),
    (2, 16, 24, 1, 8, 7),
    (2, 1, 23, 3, 2, 5),
    (2, 23, 1, 3, 2, 5),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes, blocks):
    *given, c, _ = given_of("no mask", sizes, "float64")
    check(by_hand, *given)
    check(slopes_of(by_hand, 3), *given, c)


def by_hand(q, k, v):
    q, k, v = (t.transpose([0, 2, 1, 3]) for t in (q, k, v))
    scores = paddle.matmul(q, k, transpose_y=True) * 0.3
    return (functional.softmax(scores) @ v).transpose([0, 2, 1, 3])


def of_rows(q, k, v):
    """Of one matrix, and with a loss that the whole of it needs."""
    weights = functional.softmax(q @ k.T)
    return weights @ v + weights.sum()


def upside_down(q, k, v):
    """With rows that are columns."""
    return (v.T @ functional.softmax(k @ q.T, axis=0)).T


def with_scores(q, k, v):
    """Which are a result too."""
    scores = q @ k.T
    return [functional.softmax(scores) @ v, scores * 2.0]


def with_sums_of_columns(q, k, v):
    weights = functional.softmax(q @ k.T)
    return [weights @ v, weights.sum(0), weights.max(1)]


def of_slices(q, k, v):
    """Some of whose rows are used alone, and whose columns are."""
    scores = paddle.tanh(q @ k.T)
    return [scores[1:, 1:] @ v[1:], scores[:-1] @ v, scores.T @ q]


def of_itself(q, k, v):
    scores = paddle.tanh(q @ q.T)
    return [scores @ scores, scores @ q]


def turned(q, k, v):
    scores = paddle.exp(q @ k.T * 0.1)
    return [scores.T @ q, (scores.T * 2.0) @ q, (scores @ v).T]


def twice(q, k, v):
    first = functional.softmax(q @ k.T) @ v
    return functional.softmax(first @ k[:, : first.shape[1]].T) @ v


def side_by_side(q, k, v):
    first, second = functional.softmax(q @ k.T), functional.softmax(q * 2.0 @ k.T)
    return [first @ v, second @ v, (first - second) @ v]


def put_together(q, k, v):
    """Of which parts lie in one result, that is read too."""
    scores = paddle.tanh(q @ k.T)
    both = paddle.concat([scores @ v, paddle.exp(scores) @ v], 1)
    return [both, both.sum(1), both @ both.T]


def wide_classes(q, k, v):
    logits = q @ k.T
    label = paddle.arange(q.shape[0]) % k.shape[0]
    return functional.cross_entropy(logits, label) + (logits @ v).sum()


CHAINS = [
    of_rows,
    upside_down,
    with_scores,
    with_sums_of_columns,
    of_slices,
    of_itself,
    turned,
    twice,
    side_by_side,
    put_together,
    wide_classes,
]


@products_on
@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fn", CHAINS)
def test_what_goes_over_rows(fn, dtype, blocks):
    given = randn([19, 3], dtype), randn([23, 3], dtype, 1), randn([23, 3], dtype, 2)
    check(fn, *given)

    outs = fn(*given)
    shapes = [o.shape for o in (outs if isinstance(outs, list) else [outs])]
    seeds = [randn(shape, dtype, 5 + i) for i, shape in enumerate(shapes)]

    def slopes(*given):
        _, back = vjp(fn, *given)
        return back(seeds if isinstance(outs, list) else seeds[0])

    check(slopes, *given)


@products_on
def test_any_number_of_samples(five_rows):
    def fn(x):
        y, back = vjp(lambda x: functional.softmax(x @ x.transpose([0, 2, 1])) @ x, x)
        return [y, *back(y * 0.5 + 1.0)]

    found = of_any_number(fn, randn([5, 19, 3]), randn([7, 19, 3]))
    assert count_of_blocks(found)
    for n in (2, 7, 13):
        x = randn([n, 19, 3], seed=n)
        outputs, _ = run_fenced(found, [x], n)
        for a, b in zip(outputs, fn(x), strict=True):
            assert_near(a, b)


def attention_of(heads, steps):
    q, k, v, c = (randn([1, steps, heads, 64], seed=i) for i in range(4))
    slopes = slopes_of(attention, 3)
    return make_program(slopes)(q, k, v, c).with_loops, (q, k, v, c)


@products_on
def test_memory_is_that_of_a_block(monkeypatch):
    monkeypatch.setattr(by_block, "wanted_blas", lambda: "on")
    found, _ = attention_of(4, 1024)
    given = 4 * 1024 * 64 * 4
    scores = 4 * 1024 * 1024 * 4
    assert found.peak_bytes < 5 * given + scores // 8


def test_few_scores_stay_together():
    found, _ = attention_of(2, 128)
    assert not count_of_blocks(found)


@products_on
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_library_asked_for_by_its_name_has_whole_products(dtype, monkeypatch):
    """The numbers are those of one call for each, to the last bit."""
    by_blocks_of(5, monkeypatch)
    monkeypatch.setattr(by_block, "wanted_blas", lambda: "mkl")
    *given, c, _ = given_of("no mask", (2, 24, 24, 3, 4, 4), dtype)
    slopes = slopes_of(attention, 3)
    found = make_program(slopes)(*given, c).with_loops
    assert count_of_blocks(found)
    monkeypatch.setattr(tile_fusion, "MIN_SAVED_BYTES", 1 << 40)
    whole = make_program(slopes)(*given, c).with_loops
    assert not count_of_blocks(whole)
    with paddle.no_grad():
        pairs = zip(found.function(*given, c), whole.function(*given, c), strict=True)
        for a, b in pairs:
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@products_on
def test_an_interrupt_ends_it():
    """Before the next block."""
    found, given = attention_of(4, 1024)
    (region,) = found.regions
    known = dict(zip(found.inputs, given, strict=True)) | found.constants
    for value in region.order:
        known.setdefault(value, paddle.zeros(value.shape, value.dtype))
    places = [known[value].data_ptr() for value in region.order]
    work = np.empty(region.work_bytes + 64, np.uint8)
    flag = ctypes.c_int32(0)
    head = 0, ctypes.addressof(flag)
    block = struct.pack(f"{3 + len(places)}q", *head, *places, work.ctypes.data)
    run = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_char_p)(region.address)

    def stop():
        flag.value = 1

    timer = threading.Timer(0.01, stop)
    timer.start()
    is_left = run(block)
    timer.join()
    assert is_left
    flag.value = 0
    assert not run(block)


class Heads(paddle.nn.Layer):
    """Attention in a layer, with other layers around it."""

    def __init__(self):
        super().__init__()
        self.heads = paddle.nn.MultiHeadAttention(12, 3)
        self.norm = paddle.nn.LayerNorm(12)

    def forward(self, x):
        return x + self.heads(self.norm(x))


@products_on
def test_layers(five_rows):
    paddle.seed(3)
    layer = Heads()
    net, params, _ = stateless(layer, jit=True)
    x, c = randn([2, 23, 12]), randn([2, 23, 12], seed=1)
    expected = native(layer, (x,), c)
    for _ in range(switch.CALLS_BEFORE_CODE + 2):
        assert_pullback(net.pullback(params, x), c, expected)
    step = value_and_grad(lambda p, x: (net(p, x) ** 2).mean())
    found = check(lambda x: optree.tree_leaves(step(params, x), none_is_leaf=True), x)
    assert count_of_blocks(found)
