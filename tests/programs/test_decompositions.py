"""Norms, softmax and losses in machine code give what Paddle's kernels give."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from conftest import native, products_on, randn
from paddle_chainrules import make_program, stateless, vjp
from paddle_chainrules import settings as switch
from paddle_chainrules.programs.compiling.decompositions import may_decompose
from paddle_chainrules.programs.compiling.source import compile_program
from programs.fenced import assert_near, check, of_any_number, run_fenced


def row(n, dtype, seed):
    return randn([n], dtype, seed)


def channels(x, *seeds):
    return [row(x.shape[1], x.dtype, seed) for seed in seeds]


def shares(x):
    """Numbers between 0 and 1."""
    return F.sigmoid(randn(x.shape, x.dtype, 7))


PARTS = {
    "softmax": lambda x: F.softmax(x),
    "softmax of rows": lambda x: F.softmax(x, axis=1),
    "softmax of the first": lambda x: F.softmax(x, axis=0),
    "log_softmax": lambda x: F.log_softmax(x),
    "log_softmax of rows": lambda x: F.log_softmax(x, axis=1),
    "logsumexp": lambda x: paddle.logsumexp(x, [0, 2]),
    "logsumexp of all": lambda x: paddle.logsumexp(x),
    "max": lambda x: paddle.max(x, 1),
    "max of all": lambda x: paddle.max(x),
    "amax": lambda x: paddle.amax(x, [0, -1]),
    "min, kept": lambda x: paddle.min(x, 2, keepdim=True),
    "amin": lambda x: paddle.amin(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[2]),
    "layer_norm, affine": lambda x: F.layer_norm(
        x, x.shape[2], row(x.shape[2], x.dtype, 1), row(x.shape[2], x.dtype, 2)
    ),
    "layer_norm of two": lambda x: F.layer_norm(x, x.shape[1:], epsilon=1e-3),
    "instance_norm": lambda x: F.instance_norm(x[..., None] * 2.0),
    "group_norm": lambda x: F.group_norm(
        paddle.concat([x, x * x], 1), 2, 1e-5, *channels(paddle.concat([x, x], 1), 1, 2)
    ),
    "batch_norm by what is stored": lambda x: F.batch_norm(
        x, *channels(x, 1), channels(x, 2)[0] ** 2, *channels(x, 3, 4), training=False
    ),
    "binary cross entropy": lambda x: F.binary_cross_entropy(F.sigmoid(x), shares(x)),
    "of logits": lambda x: F.binary_cross_entropy_with_logits(
        x, shares(x), pos_weight=row(x.shape[2], x.dtype, 3) ** 2, reduction="none"
    ),
    "huber": lambda x: F.smooth_l1_loss(x, shares(x), delta=0.7),
    "divergence": lambda x: F.kl_div(F.log_softmax(x), shares(x), "batchmean"),
    "log_loss": lambda x: F.log_loss(
        F.sigmoid(x).reshape([-1, 1]), shares(x).reshape([-1, 1])
    ),
    "norm": lambda x: paddle.linalg.norm(x * 2.0),
    "norm of rows": lambda x: paddle.linalg.norm(x * 2.0, axis=1, keepdim=True),
    "norm of one": lambda x: paddle.linalg.norm(x * 2.0, p=1, axis=-1),
    "norm of matrices": lambda x: paddle.linalg.norm(x * 2.0, p="fro", axis=[1, 2]),
    "distance": lambda x: paddle.dist(x, x.sin(), 2),
    "dot": lambda x: paddle.dot(x[0], x[0].sin()),
    "matrix and vector": lambda x: paddle.mv(x[0], x[0, 0].sin()),
    "products of matrices": lambda x: paddle.bmm(x, x.sin().transpose([0, 2, 1])),
    "einsum": lambda x: paddle.einsum("bij,kj->bik", x, x[0].sin()),
    "relu6": lambda x: F.relu6(x * 5.0) * 2.0,
    "hardswish": lambda x: F.hardswish(x * 4.0) * 2.0,
    "hardsigmoid": lambda x: F.hardsigmoid(x * 4.0) * 2.0,
    "hardtanh": lambda x: F.hardtanh(x) * 2.0,
    "softsign": lambda x: F.softsign(x) * 2.0,
    "mish": lambda x: F.mish(x) * 2.0,
    "selu": lambda x: F.selu(x) * 2.0,
    "celu": lambda x: F.celu(x) * 2.0,
    "softshrink": lambda x: F.softshrink(x) * 2.0,
    "fmax": lambda x: paddle.fmax(x, x.sin()) * 2.0,
    "sums of three": lambda x: paddle.add_n([x, x.sin(), x[:1].expand_as(x)]),
    "tiled": lambda x: paddle.tile(x, [2, 1, 3]) * 2.0,
    "tiled, with more axes": lambda x: paddle.tile(x, [2, 1, 1, 2]) * 2.0,
    "filled": lambda x: paddle.masked_fill(x, x > 0.0, 0.5) * 2.0,
    "lower triangles": lambda x: paddle.tril(x, 1) * 2.0,
    "upper triangles": lambda x: paddle.triu(x) * 2.0,
    "larger": lambda x: F.interpolate(x[..., None] * 2.0, scale_factor=2) * 2.0,
    "larger, between": lambda x: F.interpolate(
        x[..., None].tile([1, 1, 1, 3]), scale_factor=2, mode="bilinear"
    ),
    "with its corners": lambda x: F.interpolate(
        x[..., None].tile([1, 1, 1, 4]),
        size=[3, 9],
        mode="bilinear",
        align_corners=True,
    ),
    "larger, a row": lambda x: F.interpolate(
        x, scale_factor=2, mode="linear", data_format="NCW"
    ),
    "larger, in three": lambda x: F.interpolate(
        x[..., None, None].tile([1, 1, 1, 2, 3]),
        scale_factor=2,
        mode="trilinear",
        data_format="NCDHW",
    ),
    "smaller, by half": lambda x: F.interpolate(
        x[..., None].tile([1, 1, 4, 6]), scale_factor=0.5
    ),
    "smaller, between": lambda x: F.interpolate(
        x[..., None].tile([1, 1, 4, 6]), scale_factor=[0.25, 0.5], mode="bilinear"
    ),
    "smaller, the nearest": lambda x: F.interpolate(
        x[..., None].tile([1, 1, 4, 5]), size=[3, 2]
    ),
    "larger, by sizes": lambda x: F.interpolate(
        x[..., None] * 2.0, size=[x.shape[2] * 3, 2]
    ),
    "shuffled": lambda x: F.pixel_shuffle(
        paddle.concat([x, x.sin(), x.cos(), -x], 1)[..., None], 2
    ),
    "unshuffled": lambda x: F.pixel_unshuffle(
        paddle.stack([x, x.sin()], 3).tile([1, 1, 2, 1]), 2
    ),
    "all and any": lambda x: paddle.where(
        (x > -2.0).all(1, keepdim=True) & (x > 2.0).any(), x, x * 2.0
    ),
    "many products": lambda x: paddle.linalg.multi_dot([x[0], x[0].T, x[0]]),
    "a product of blocks": lambda x: paddle.kron(x[0], x[0, :2]),
    "shuffled channels": lambda x: F.channel_shuffle(
        paddle.concat([x, x.sin()], 1)[..., None], 2
    ),
    "products": lambda x: paddle.prod(x, 1) * 2.0,
    "reflected": lambda x: F.pad(x.tile([1, 1, 4]), [3, 2], "reflect") * 2.0,
    "with its edges": lambda x: F.pad(x[..., None], [1, 0, 2, 3], "replicate") * 2.0,
    "as on a ring": lambda x: F.pad(x.tile([1, 1, 4]), [1, 3], "circular") * 2.0,
    "label_smooth": lambda x: F.label_smooth(F.softmax(x), epsilon=0.2),
}


WHOLE = ("max", "amax", "min", "amin", "products")
"""Operators that are one."""


def with_gradient(fn):
    def both(x):
        y, back = vjp(fn, x)
        return y, *back(paddle.sin(y * 3.0 + 1.0))

    return both


KINDS = [([3, 5, 7], "float32"), ([2, 4, 33], "float64"), ([1, 3, 1], "float32")]


ONCE = [
    *("all and any", "many products", "a product of blocks", "shuffled channels"),
    *("products", "reflected", "with its edges", "as on a ring", "larger, between"),
    *("with its corners", "larger, a row", "larger, in three", "smaller, by half"),
    *("smaller, between", "smaller, the nearest"),
]
"""Of one kind each."""
CASES = [
    pytest.param(n, kind, marks=() if i == k % 3 else pytest.mark.slow)
    for k, n in enumerate(n for n in PARTS if n not in ONCE)
    for i, kind in enumerate(KINDS)
]
CASES += [(name, KINDS[k % 2]) for k, name in enumerate(ONCE)]


@products_on
@pytest.mark.parametrize(("name", "kind"), CASES, ids=str)
def test_values_and_gradients(name, kind, count_case):
    shape, dtype = kind
    if name == "log_loss" and dtype == "float64":
        pytest.skip("Paddle has no kernel of log_loss in float64")
    x = randn(shape, dtype)
    program = make_program(with_gradient(PARTS[name]))(x)
    assert may_decompose(program.ops) or name.startswith(WHOLE)
    # Paddle's group_norm subtracts the square of the mean from that of the squares,
    # and its gradients of norms add 1e-12 to what they divide by.
    eps = 200_000 if name == "group_norm" else 20_000 if "norm" in name else 2_000
    made = check(with_gradient(PARTS[name]), x, eps=eps)
    assert not may_decompose(made.ops)
    count_case("operators in parts")


@pytest.mark.parametrize("axis", [0, 1])
def test_entries_that_are_infinite_or_large(axis):
    x = randn([4, 6]).numpy()
    x[0, 1] = x[1, 1] = x[2, 4] = -np.inf
    x[3] *= 1e4
    x = paddle.to_tensor(x)
    check(lambda x: F.softmax(x, axis) * 2.0, x)
    check(lambda x: paddle.max(x, axis) * 2.0, x)
    check(lambda x: F.log_softmax(x, axis) * 2.0, x)
    x[1, 2] = float("nan")
    for fn in (F.relu6, F.hardtanh, F.log_softmax):
        check(lambda x, fn=fn: fn(x * 1.0) + 0.5, x)
    # Of infinite numbers these are none in Paddle.
    finite = paddle.where(paddle.isinf(x), paddle.zeros_like(x), x)
    for fn in (F.softshrink, F.thresholded_relu):
        check(lambda x, fn=fn: fn(x * 1.0) + 0.5, finite)
    check(lambda x: paddle.max(x, axis) * 2.0, x)
    check(lambda x: paddle.amin(x, axis) * 2.0, x)
    check(lambda x: F.softmax(x, axis) * 2.0, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_that_are_nearly_equal(dtype):
    x = paddle.to_tensor([1.0, 1e-7, 1e-16, 0.0, np.inf, -np.inf, np.nan], dtype)
    y = paddle.to_tensor([1.0, 2e-7, 2e-16, 1e-15, np.inf, np.inf, np.nan], dtype)
    check(lambda x, y: ((x == y).astype(dtype) * 2.0, (x * 1.0 == y)), x, y)


def test_integers_that_are_equal():
    def fn(x, i):
        return paddle.where(i == 2, x * 2.0, x) + (i != 3).astype("float32")

    check(fn, randn([3, 4]), paddle.arange(12).reshape([3, 4]) % 5)


LIKELIHOODS = {
    "means": {},
    "one by one": {"reduction": "none"},
    "sums": {"reduction": "sum", "ignore_index": 2},
    "weighted": {"weight": randn([6], seed=3) ** 2, "ignore_index": 0},
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods(name):
    labels = paddle.to_tensor([3, 0, 5, 2, 2])

    def both(x, labels):
        y, back = vjp(
            lambda x: F.nll_loss(F.log_softmax(x), labels, **LIKELIHOODS[name]) * 2.0, x
        )
        return y, *back(paddle.sin(y * 3.0 + 1.0))

    made = check(both, randn([5, 6]), labels)
    assert not may_decompose(made.ops)


EDGES = {
    "sums": lambda x, to: paddle.geometric.send_u_recv(x, to[0], to[1]) * 2.0,
    "sums in fewer": lambda x, to: paddle.geometric.send_u_recv(
        x, to[0], to[1] % 2, out_size=2
    ),
    "means": lambda x, to: paddle.geometric.send_u_recv(x, to[0], to[1], "mean") * 2.0,
    "with edges": lambda x, to: paddle.geometric.send_ue_recv(
        x, x[:4].sin(), to[0], to[1], "mul"
    ),
    "of edges": lambda x, to: paddle.geometric.send_uv(x, x.sin(), to[0], to[1]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EDGES)
def test_messages_along_edges(name, dtype):
    """Of which one row receives none, and one two."""
    to = paddle.to_tensor([[3, 0, 5, 3], [1, 4, 1, 0]])

    def both(x, to):
        y, back = vjp(lambda x: EDGES[name](x * 1.5, to), x)
        return y, *back(paddle.sin(y * 3.0 + 1.0))

    made = check(both, randn([6, 3], dtype), to)
    assert not may_decompose(made.ops)


def with_items(x, *puts):
    y = x * 1.5
    for index, value in puts:
        y[index] = value
    return y * 2.0


PUT = {
    "a number by slices": lambda x: with_items(x, ((slice(1, 3), slice(None)), 0.5)),
    "a number backwards": lambda x: with_items(x, (slice(None, None, -2), 0.5)),
    "a part": lambda x: with_items(x, ((slice(1, 4), slice(0, 6, 2)), x[:3, 1:4])),
    "a row": lambda x: with_items(x, (2, x[0]), (-1, 2.0)),
    "a column": lambda x: with_items(x, ((slice(None), 3), x[:, 0].sin())),
    "one row to many": lambda x: with_items(x, (slice(1, 3), x[0])),
    "by a mask": lambda x: with_items(x, (x > 0.0, 0.5)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PUT)
def test_what_is_put_by_brackets(name, dtype):
    made = check(with_gradient(PUT[name]), randn([5, 7], dtype))
    assert not may_decompose(made.ops)


class Normalized(paddle.nn.Layer):
    def __init__(self, norm):
        super().__init__()
        self.first, self.norm = paddle.nn.Linear(3, 6), norm
        self.last = paddle.nn.Linear(6, 2)

    def forward(self, x):
        return F.softmax(self.last(F.tanh(self.norm(self.first(x)))))


NORMS = {
    "LayerNorm": lambda: paddle.nn.LayerNorm(6),
    "GroupNorm": lambda: paddle.nn.GroupNorm(2, 6),
    "BatchNorm": lambda: paddle.nn.BatchNorm1D(6),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_batches_that_change(name, training, monkeypatch):
    """Also where a size of the batch is one of the net, or a part of it."""
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 1)
    paddle.seed(0)
    layer = Normalized(NORMS[name]())
    if not training:
        layer.eval()
    net, params, buffers = stateless(layer, jit=True)
    for n in (3, 5, 2, 6, 5, 16, 13, 3, 64):
        x, c = randn([n, 3], seed=n), randn([n, 2], seed=n + 1)
        for _ in range(3):
            before = {k: v.clone() for k, v in layer.state_dict().items()}
            expected, (by_name, (by_x,)) = native(layer, (x,), c)
            moved = {k: v.clone() for k, v in layer.state_dict().items()}
            layer.set_state_dict(before)
            if buffers:
                y, back, found = net.pullback(params, x, buffers=buffers)
                for key, each in found.items():
                    assert_near(each, moved[key])
            else:
                y, back = net.pullback(params, x)
            grads, (slope,) = back(c)
            assert_near(y, expected)
            assert_near(slope, by_x, 5_000)
            # What is zero but for rounding, as a bias before a norm is.
            largest = max(float(each.abs().max()) for each in by_name.values())
            for key, each in grads.items():
                off = float((each - by_name[key]).abs().max())
                assert off <= 1e-5 * largest, key


def test_sizes_of_a_formula_that_are_the_number_of_samples():
    """Groups of five channels each do not go along with five samples."""

    def fn(x):
        return F.group_norm(x * 2.0, 2)

    program = of_any_number(fn, randn([5, 10, 3]), randn([8, 10, 3]))
    assert program is None or "group_norm" in {op.operator.name for op in program.ops}
    program = of_any_number(fn, randn([7, 10, 3]), randn([8, 10, 3]))
    for n in (7, 1, 5, 12):
        x = randn([n, 10, 3], seed=n)
        (found,), _ = run_fenced(program, [x], n)
        assert_near(found, fn(x))


PADDED = {
    "around": lambda x: F.pad(x[:, :, None, :], [1, 2, 0, 1]),
    "in three dimensions": lambda x: F.pad(x[:, :, None, :, None], [1, 0, 0, 2, 3, 0]),
    "of each dimension": lambda x: F.pad(x, [0, 1, 2, 0, 1, 1]),
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_by_numbers(name):
    made = check(with_gradient(lambda x: PADDED[name](x * 2.0)), randn([3, 4, 5]))
    assert [op.operator.name for op in made.ops] == ["region"]
    for value in (0.1, -np.inf):
        made = check(
            with_gradient(lambda x, v=value: F.pad(x * 2.0, [1, 2], value=v)),
            randn([3, 4, 5]),
        )
        assert [op.operator.name for op in made.ops] == ["region"]


@pytest.mark.parametrize("mode", ["upscale_in_train", "downscale_in_infer"])
def test_dropout_draws_what_paddle_draws(mode):
    """Forward and back, whatever the input holds, call after call."""

    def fn(x):
        y = F.dropout(F.tanh(x), 0.3, mode=mode)
        return F.dropout(y * 2.0 + x, 0.6, mode=mode) * 2.0

    x = randn([7, 9])
    program = make_program(with_gradient(fn))(x)
    made = program.with_loops
    names = [op.operator.name for op in made.ops]
    assert names == ["dropout_of_ones", "dropout_of_ones", "region"]
    x[0, 0] = float("inf")
    found = []
    for run in (compile_program(made), compile_program(program)):
        paddle.seed(5)
        found.append([y for _ in range(3) for y in run(x)])
    for a, b in zip(*found, strict=True):
        assert_near(a, b)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.7, 0.999])
def test_dropout_in_float64(p):
    """Its gradients are rounded as Paddle rounds them."""
    x = randn([40, 50], "float64")
    program = make_program(with_gradient(lambda x: F.dropout(x * 2.0, p) * 3.0))(x)
    found = []
    for run in (compile_program(program.with_loops), compile_program(program)):
        paddle.seed(3)
        found.append(run(x))
    for a, b in zip(*found, strict=True):
        assert_near(a, b)


@pytest.mark.parametrize("fn", [paddle.maximum, paddle.minimum, paddle.fmax])
def test_gradients_of_the_larger_of_two(fn):
    x = randn([6, 1])
    y = paddle.concat([x[:3, 0], randn([3], seed=1)])
    x[1] = y[4] = float("nan")
    x[2] = float("inf")

    def both(x, y):
        z, back = vjp(lambda x, y: fn(x * 1.0, y * 1.0), x, y)
        return z, *back(paddle.ones_like(z))

    made = check(both, x, y)
    assert [op.operator.name for op in made.ops] == ["region"]


def test_dropout_of_all():
    x = randn([4, 3])
    made = check(with_gradient(lambda x: F.dropout(x * 2.0, 1.0) * 2.0), x)
    assert "dropout" not in {op.operator.name for op in made.ops}


def test_statistics_of_a_batch_in_float64():
    """Paddle's momentum is a float32 one."""
    layer = paddle.nn.BatchNorm1D(4).to(dtype="float64")
    net, params, buffers = stateless(layer, jit=True)
    x = randn([6, 4], "float64")
    layer(x)
    moved = {k: v.clone() for k, v in layer.state_dict().items()}
    program = make_program(lambda x: [*net(params, x, buffers=buffers)[1].values()])(x)
    for key, each in zip(buffers, compile_program(program.with_loops)(x), strict=True):
        np.testing.assert_allclose(each.numpy(), moved[key].numpy(), rtol=1e-13)
    assert program.with_loops.regions
