"""One sample as vectors beside the batch of one, for layers that take batches alone."""

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import (
    CSR,
    derivatives,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    laplacian,
    stateless,
    vmap,
)

pytestmark = pytest.mark.usefixtures("in_double")

NEAR = {"rtol": 1e-11, "atol": 1e-13}


class Rows(nn.Layer):
    """Asks for rows, as nets of one's own do, of two arguments."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 4)

    def forward(self, x, y):
        rows, _ = x.shape
        assert rows == len(y)
        z = self.inner(x)
        return {"z": z, "all": (z.mean(), z @ z.T)}, y * 2


LAYERS = {
    "LayerNorm": lambda: nn.LayerNorm(3),
    "LayerNorm within": lambda: nn.Sequential(
        nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2)
    ),
    "BatchNorm": lambda: nn.Sequential(
        nn.Linear(3, 5), nn.BatchNorm1D(5), nn.Linear(5, 2)
    ).eval(),
    "drawn": lambda: nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.LayerNorm(5)),
}


def net_of(name, jit=None):
    paddle.seed(1)
    net, params, _ = stateless(LAYERS[name](), jit=jit)
    return net, params


@pytest.mark.parametrize("how", [None, True, False], ids=["", "jit", "eager"])
@pytest.mark.parametrize("name", LAYERS)
def test_value_and_gradients(name, how):
    net, params = net_of(name, how)
    x = randn([3], "float64", 1)
    for number in range(5):  # before it is a program, and then
        paddle.seed(number)
        y = net.forward(params, x)
        after = paddle.rand([2])
        paddle.seed(number)
        expected = net.forward(params, x.unsqueeze(0))
        assert_same(y, expected[0], **NEAR)
        assert_same(after, paddle.rand([2]), **NEAR)
        cotangent = randn(y.shape, "float64", number)
        paddle.seed(number)
        y, pullback = net.pullback(params, x)
        by_params, (by_x,) = pullback(cotangent)
        paddle.seed(number)
        rows, of_rows = net.pullback(params, x.unsqueeze(0))
        params_too, (by_rows,) = of_rows(cotangent.unsqueeze(0))
        assert_same([y, by_x], [rows[0], by_rows[0]], **NEAR)
        assert_same([*by_params.values()], [*params_too.values()], **NEAR)


def test_a_program_of_a_net_that_has_seen_batches_draws_once():
    net, params = net_of("drawn", jit=True)
    x = randn([4, 3], "float64")
    net.forward(params, x)
    for seed in range(3):
        paddle.seed(seed)
        y, after = net.forward(params, x[0]), paddle.rand([2])
        paddle.seed(seed)
        assert_same(y, net.forward(params, x[:1])[0], **NEAR)
        assert_same(after, paddle.rand([2]), **NEAR)


SEEN = []


class Seeing(nn.Layer):
    """Notes how many axes it is given."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        SEEN.append(x.ndim)
        return self.inner(x)


def test_what_was_refused_once_goes_straight():
    net, params, _ = stateless(Seeing(nn.BatchNorm1D(3).eval()), jit=False)
    SEEN.clear()
    for _ in range(3):
        net.forward(params, randn([3], "float64"))
    assert SEEN == [1, 2, 2, 2]


def test_a_layer_that_takes_vectors_gets_them():
    net, params, _ = stateless(Seeing(nn.Linear(3, 5)), jit=False)
    SEEN.clear()
    for _ in range(2):
        net.forward(params, randn([3], "float64"))
    assert SEEN == [1, 1]


def test_the_error_is_that_of_the_vector():
    with pytest.raises(ValueError, match="refused"):
        _refusing(lambda x: x.sum())
    with pytest.raises(ValueError, match="refused"):  # no result for a batch of one
        _refusing(lambda x: paddle.concat([x, x]))


def _refusing(of_rows):
    class Refusing(nn.Layer):
        def forward(self, x, w):
            if x.ndim == 1:
                raise ValueError("refused")
            assert w.ndim == 2, "and the batch too"
            return of_rows(x)

    net, params, _ = stateless(Refusing())
    net.forward(params, randn([3], "float64"), paddle.ones([1, 2]).sum())


def test_several_arguments_by_position_and_by_name():
    net, params, _ = stateless(Rows())
    x, y = randn([3], "float64", 1), randn([2], "float64", 2)
    expected, twice = net.forward(params, x.unsqueeze(0), y.unsqueeze(0))
    for found in (net.forward(params, x, y), net.forward(params, x=x, y=y)):
        assert_same(found[0]["z"], expected["z"][0], **NEAR)
        assert_same(found[0]["all"][0], expected["all"][0], **NEAR)
        assert_same(found[0]["all"][1], expected["all"][1][0], **NEAR)
        assert_same(found[1], twice[0], **NEAR)
    with pytest.raises(ValueError, match="not enough values"):  # not all are vectors
        net.forward(params, x, y.unsqueeze(0))


class Words(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rows, self.inner = nn.Embedding(9, 3), nn.LSTM(3, 4)

    def forward(self, words):
        return self.inner(self.rows(words))[0]


def test_a_sequence_of_words():
    net, params, _ = stateless(Words())
    words = paddle.to_tensor([3, 1, 4, 1, 5])
    expected = net.forward(params, words.unsqueeze(0))
    assert_same(net.forward(params, words), expected[0], **NEAR)


def test_a_layer_that_writes_into_what_it_is_given():
    class Writing(nn.Layer):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1D(3)

        def forward(self, x):
            return self.norm(x.add_(paddle.ones_like(x)))

    net, params, _ = stateless(Writing().eval())
    x = randn([3], "float64")
    kept = x.clone()
    for call in (net.forward, net.pullback):  # what is written is not written twice
        with pytest.raises(ValueError, match=r"of shape \[3\], it needs \[n, 3\]"):
            call(params, x)
    assert_same(x, kept)


def test_parts_of_a_sparse_matrix_are_no_samples():
    net, params, _ = stateless(Seeing(nn.Linear(3, 5)), jit=False)
    begins, columns = paddle.to_tensor([0, 1, 2]), paddle.to_tensor([3, 1])
    x = CSR(begins, columns, paddle.ones([2], "float64"), [2, 4])
    SEEN.clear()
    with pytest.raises((TypeError, ValueError)):
        net.forward(params, x)
    assert SEEN == [2]


@pytest.mark.parametrize("training", [False, True])
def test_buffers_are_those_of_a_batch_of_one(training):
    net, params = net_of("BatchNorm")
    net, x = net.in_mode(training), randn([3], "float64")
    y, found = net.forward(params, x, buffers=net.buffers)
    rows, expected = net.forward(params, x.unsqueeze(0), buffers=net.buffers)
    assert_same([y, *found.values()], [rows[0], *expected.values()], **NEAR)


def test_derivatives_by_one_point():
    net, params = net_of("LayerNorm within")
    x = randn([4, 3], "float64")
    direction = randn([3], "float64", 2)
    at = lambda x: net.forward(params, x)  # noqa: E731
    along = jvp(at, (x[1],), (direction,))[1]
    rows = jvp(at, (x[1:2],), (direction.unsqueeze(0),))[1]
    assert_same(along, rows[0], **NEAR)
    assert_same(laplacian(net, params, x[1]), laplacian(net, params, x)[1], **NEAR)
    for found, expected in zip(
        derivatives(net, params, x[1], [(2, 0, 0), (1, 1, 0)]),
        derivatives(net, params, x, [(2, 0, 0), (1, 1, 0)]),
        strict=True,
    ):
        assert_same(found, expected[1], **NEAR)


TRANSFORMED = {
    "value": lambda f: f,
    "jit": jit,
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "grad": lambda f: grad(lambda x: (f(x) ** 2).sum()),
    "jit of jacrev": lambda f: jit(jacrev(f)),
    "hessian": lambda f: hessian(lambda x: (f(x) ** 2).sum()),
}


def normed(*shape):
    norm = nn.LayerNorm(shape)
    for i, parameter in enumerate(norm.parameters()):
        parameter.set_value(randn(parameter.shape, "float64", i))
    return lambda x: norm(x.sin())


def at_params():
    net, params, _ = stateless(Rows())
    return lambda x: net.forward(params, x, x[:2])[0]["z"]


SAMPLES = {
    "layer": ([3], lambda: normed(3)),
    "of two axes": ([2, 3], lambda: normed(2, 3)),
    "function": ([3], lambda: lambda x: F.layer_norm(x * x, 3)),
    "by name": ([3], lambda: lambda x: F.layer_norm(x=x, normalized_shape=(3,))),
    "net": ([3], at_params),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("how", TRANSFORMED)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_in_vmap(name, how):
    shape, made = SAMPLES[name]
    f, transform = made(), TRANSFORMED[how]
    x = randn([5, *shape], "float64", 3)
    rows = transform(lambda row: f(row.unsqueeze(0)).squeeze(0))
    expected = paddle.stack([rows(row) for row in x])
    near = {"rtol": 1e-6, "atol": 1e-9}  # kernels round a norm's epsilon to float32
    assert_same(vmap(transform(f))(x), expected, **near)
    assert_same(jit(vmap(transform(f)))(x), expected, **near)
    if how != "value":  # where Paddle itself is called
        assert_same(paddle.stack([transform(f)(row) for row in x]), expected, **near)


def test_gradients_of_a_norm_of_each_sample():
    norm = nn.LayerNorm(3)
    net, params, _ = stateless(norm)
    x = randn([5, 3], "float64", 3)
    loss = lambda params, x: (net.forward(params, x) ** 3).sum()  # noqa: E731
    found = vmap(grad(loss), (None, 0))(params, x)
    for name in params:
        each = [grad(loss)(params, x[i : i + 1])[name] for i in range(5)]
        assert_same(found[name], paddle.stack(each), **NEAR)
