"""vmap beside loops over samples: where gradients end, pullbacks, dtypes, indices."""

import warnings

import paddle
import pytest
from paddle.nn import functional as F

from paddle_chainrules import (
    BatchWarning,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linearize,
    stack_params,
    stateless,
    vjp,
    vmap,
)


def drawn(*shape, seed=3):
    paddle.seed(seed)
    return paddle.randn(shape, dtype="float64")


def assert_equal(found, expected, atol=1e-12):
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert float((found - expected).abs().max()) <= atol


def looped(fn, *args):
    return paddle.stack([fn(*(a[k] for a in args)) for k in range(args[0].shape[0])])


@pytest.fixture(autouse=True)
def _no_loops_unseen(request):
    """Loops over samples are errors, but where a test says that there are some."""
    if request.node.get_closest_marker("filterwarnings"):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", BatchWarning)
        yield


# Where a function ends gradients, those from outside end too.


def detached(w, x):
    s = (w * x).sum()
    return s.detach() * s


def without_gradients(w, x):
    s = (w * x).sum()
    with paddle.no_grad():
        t = (w * x).sum() * 2.0
    return t * s


def stopped(w, x):
    s = (w * x).sum()
    t = s * 3.0
    t.stop_gradient = True
    return t * s


def straight_through(w, x):
    z = w * x
    return (z + (paddle.round(z) - z).detach()).sum() ** 2


STOPPING = (detached, without_gradients, stopped, straight_through)


@pytest.mark.parametrize("fn", STOPPING, ids=lambda fn: fn.__name__)
def test_gradients_end_where_the_function_ends_them(fn):
    w, xs = drawn(4), drawn(3, 4, seed=4)
    expected = sum(grad(fn)(w, x) for x in xs)

    def whole(w):
        return vmap(fn, (None, 0))(w, xs).sum()

    assert_equal(grad(whole)(w), expected)
    assert_equal(jit(grad(whole))(w), expected)
    assert_equal(grad(lambda w: vmap(lambda x: fn(w, x))(xs).sum())(w), expected)
    assert_equal(vmap(grad(fn), (None, 0))(w, xs).sum(0), expected)
    each = jacrev(lambda w: vmap(fn, (None, 0))(w, xs))(w)
    assert_equal(each.sum(0), expected)
    slope = jvp(whole, (w,), (xs[0],))[1]
    assert_equal(slope, (expected * xs[0]).sum())
    own = w.clone()
    own.stop_gradient = False
    vmap(fn, (None, 0))(own, xs).sum().backward()
    assert_equal(own.grad, expected)


@pytest.mark.parametrize("fn", STOPPING, ids=lambda fn: fn.__name__)
def test_gradients_of_gradients_that_end(fn):
    w, xs = drawn(4), drawn(3, 4, seed=4)
    inner = grad(fn, argnums=1)
    found = grad(lambda w: (vmap(inner, (None, 0))(w, xs) ** 2).sum())(w)
    assert_equal(found, grad(lambda w: sum((inner(w, x) ** 2).sum() for x in xs))(w))


# Pullbacks and pushforwards that were taken outside.


def both(x):
    return paddle.stack([(x**2).sum(), x.prod(), x.sin().sum()])


def by_pullback(x):
    y, back = vjp(both, x)
    return vmap(lambda v: back(v)[0])(paddle.eye(y.shape[0], dtype=y.dtype))


def by_pushforward(x):
    _, push = linearize(both, x)
    return vmap(push, out_axes=1)(paddle.eye(x.shape[0], dtype=x.dtype))


@pytest.mark.parametrize("jacobian", [by_pullback, by_pushforward])
def test_pullbacks_over_a_batch(jacobian):
    xs = drawn(4, 2)
    expected = looped(jacrev(both), xs)
    assert_equal(looped(jacobian, xs), expected)
    assert_equal(looped(jit(jacobian), xs), expected)
    assert_equal(vmap(jacobian)(xs), expected)
    assert_equal(jit(vmap(jacobian))(xs), expected)
    weights = drawn(4, 3, 2, seed=5)
    found = grad(lambda xs: (vmap(jacobian)(xs) * weights).sum())(xs)
    other = grad(lambda xs: (vmap(jacrev(both))(xs) * weights).sum())(xs)
    assert_equal(found, other)


def test_gradients_by_what_was_computed_outside():
    x, vs = drawn(3), drawn(4, 3, seed=5)

    def rows(x):
        h = paddle.tanh(x) * 2.0  # outside of the vmap below

        def of(v):
            z, back = vjp(lambda h: (h * h * v).sum(), h)
            return back(paddle.ones_like(z))[0]

        return vmap(of)(vs)

    expected = jacrev(
        lambda x: paddle.stack([2 * paddle.tanh(x) * 2.0 * v for v in vs])
    )
    assert_equal(jacrev(rows)(x), expected(x))
    assert_equal(jit(rows)(x), rows(x))


# Functions that are linear in what they are differentiated by.


def test_forward_mode_over_linear_functions():
    xs, w, v = drawn(4, 3), drawn(3, seed=4), drawn(3, seed=5)

    def f(w):
        return vmap(lambda x: (x * w).sum())(xs)

    def loss(w):
        return (f(w) ** 2).sum()

    assert_equal(jvp(f, (w,), (v,))[1], xs @ v)
    assert_equal(jacfwd(f)(w), xs)
    assert_equal(hessian(loss)(w), 2 * xs.T @ xs)
    assert_equal(hvp(loss, w, v), 2 * xs.T @ (xs @ v))


def test_one_tensor_for_two_arguments():
    xs = drawn(4, 3)

    def kernel(x, y):
        return paddle.exp(-((x - y) ** 2).sum())

    gram = vmap(vmap(kernel, (None, 0)), (0, None))(xs, xs)
    expected = paddle.stack([paddle.stack([kernel(a, b) for b in xs]) for a in xs])
    assert_equal(gram, expected)
    found = grad(lambda xs: (vmap(kernel)(xs, xs + 1.0) * vmap(kernel)(xs, xs)).sum())
    assert found(xs).shape == xs.shape
    squares = grad(lambda xs: vmap(lambda x, y: (x * y).sum())(xs, xs).sum())(xs)
    assert_equal(squares, 2 * xs)


# Dtypes: a number of each sample is still a number.


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, k: x * k,
        lambda x, k: k / x,
        lambda x, k: x > k,
        lambda x, k: x.sum() / (x > 0.1).sum(),
        lambda x, k: x * x.argmax(),
        lambda x, k: paddle.where(x > 0, x, k.astype("float32")),
    ],
)
def test_numbers_are_brought_to_one_dtype_as_without(fn):
    xs = drawn(4, 3).astype("float32")
    for ks in (
        paddle.arange(1, 5),
        drawn(4),
        paddle.to_tensor([True, False, True, True]),
    ):
        assert_equal(
            vmap(fn)(xs, ks).astype("float64"),
            looped(fn, xs, ks).astype("float64"),
            1e-6,
        )
        assert vmap(fn)(xs, ks).dtype == fn(xs[0], ks[0]).dtype


def test_integers_of_two_kinds():
    i, k = paddle.to_tensor([2**20, 3], dtype="int32"), paddle.to_tensor(2**20)
    assert vmap(lambda i: i * k)(i).tolist() == [2**40, 3 * 2**20]


# Random numbers.


def test_the_same_numbers_in_all_chunks():
    found = vmap(lambda x: x * 0 + paddle.rand([]), randomness="same", chunk_size=2)(
        paddle.ones([5])
    )
    assert len({*found.tolist()}) == 1


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_dropout_of_nets_that_are_trained():
    net = paddle.nn.Sequential(paddle.nn.Linear(3, 200), paddle.nn.Dropout(0.5))
    xs = paddle.ones([4, 3])
    found = vmap(net, randomness="different")(xs)
    masks = (found == 0).astype("float32")
    assert float((masks[0] - masks[1]).abs().sum()) > 20
    found.sum().backward()
    # Each kept unit passes the inputs, twice as much.
    expected = 2.0 * (1.0 - masks).sum(0)
    assert_equal(net[0].bias.grad, expected, 1e-5)


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_nested_draws():
    inner = vmap(lambda x: x + paddle.rand([]), randomness="different")
    found = vmap(inner, randomness="different")(paddle.zeros([3, 2]))
    assert len({*found.flatten().tolist()}) == 6


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_a_seed_gives_the_same_numbers_from_the_first_call_on():
    fn = jit(vmap(lambda x: x + paddle.rand([]), randomness="different"))
    rows = []
    for _ in range(3):
        paddle.seed(3)
        rows.append(fn(paddle.zeros([2])).tolist())
    assert rows[0] == rows[1] == rows[2]


# Indices, numbers alone, images with weights of their own: rules, not loops.


TAKING = {
    "gather": lambda x, i: paddle.gather(x, i),
    "index_select": lambda x, i: paddle.index_select(x, i),
    "getitem": lambda x, i: x[i],
    "getitem, negative": lambda x, i: x[i - 3],
    "getitem, with a slice": lambda x, i: x[i, 1:],
    "embedding": lambda x, i: F.embedding(i, x),
}


@pytest.mark.parametrize("which", ["both", "indices", "tensor"])
@pytest.mark.parametrize("name", TAKING)
def test_taking_by_indices(name, which):
    fn = TAKING[name]
    xs, i = drawn(4, 3, 5), paddle.to_tensor([[0, 2, 1, 2], [1, 1, 0, 2]] * 2)
    axes = {"both": (0, 0), "indices": (None, 0), "tensor": (0, None)}[which]
    x = xs if axes[0] == 0 else xs[0]
    at = i if axes[1] == 0 else i[0]
    expected = paddle.stack(
        [
            fn(xs[k] if axes[0] == 0 else x, i[k] if axes[1] == 0 else at)
            for k in range(4)
        ]
    )
    assert_equal(vmap(fn, axes)(x, at), expected)
    weights = drawn(*expected.shape, seed=6)
    found = grad(lambda x: (vmap(fn, axes)(x, at) * weights).sum())(x)
    rows = [
        grad(lambda x, k=k: (fn(x, i[k] if axes[1] == 0 else at) * weights[k]).sum())(
            xs[k] if axes[0] == 0 else x
        )
        for k in range(4)
    ]
    assert_equal(found, paddle.stack(rows) if axes[0] == 0 else sum(rows))


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x[:, i],
        lambda x, i: x[0, i],
        lambda x, i: x[..., i],
        lambda x, i: x[i, None],
        lambda x, i: x[i, 1],
    ],
)
def test_an_index_of_tensors_and_more(fn):
    xs, i = drawn(4, 3, 3), paddle.to_tensor([0, 1, 2, 0])
    assert_equal(vmap(fn)(xs, i), looped(fn, xs, i))
    assert_equal(vmap(lambda x: fn(x, i[1]))(xs), looped(lambda x: fn(x, i[1]), xs))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: ((x[0] - 0.3) ** 2).mean(),
        lambda x: x[0].sum() + x[1].max() + x[2].prod(),
        lambda x: x.norm(),
        lambda x: F.normalize(x, axis=0).sum(),
        lambda x: x.prod(),
        lambda x: x.cumsum().sin().sum(),
        lambda x: paddle.cross(x, x[::-1] * 2.0, axis=0).sum(),
        lambda x: paddle.logsumexp(x[0]) * x[1:].norm(p=1),
    ],
)
def test_numbers_alone_and_all_axes_as_one(fn):
    xs = drawn(5, 3)
    assert_equal(vmap(fn)(xs), looped(fn, xs))
    assert_equal(vmap(grad(fn))(xs), looped(grad(fn), xs), 1e-10)


def test_any_and_all_of_samples():
    xs = drawn(5, 3, 2) > 0.3
    for fn in (paddle.any, paddle.all, lambda x: paddle.any(x, axis=0)):
        assert vmap(fn)(xs).tolist() == [fn(x).tolist() for x in xs]


@pytest.mark.parametrize("groups", [1, 2])
def test_images_with_weights_of_their_own(groups):
    images, weights = drawn(3, 2, 4, 7, 6), drawn(3, 6, 4 // groups, 3, 2, seed=4)

    def loss(x, w):
        y = F.conv2d(x, w, stride=2, padding=1, groups=groups)
        return (y.sin() * y).sum()

    assert_equal(vmap(loss)(images, weights), looped(loss, images, weights), 1e-10)
    found = vmap(grad(loss, argnums=(0, 1)))(images, weights)
    for part, k in zip(found, (0, 1), strict=True):
        expected = looped(grad(loss, argnums=k), images, weights)
        assert_equal(part, expected, 1e-10)
    shared = vmap(grad(loss, argnums=1), (0, None))(images, weights[0])
    each = paddle.stack([grad(loss, argnums=1)(x, weights[0]) for x in images])
    assert_equal(shared, each, 1e-10)


def test_an_ensemble_of_convolutions():
    layers = [paddle.nn.Conv2D(2, 3, 3) for _ in range(4)]
    nets = [stateless(layer) for layer in layers]
    images = drawn(5, 2, 6, 6).astype("float32")
    found = vmap(nets[0][0], (0, None))(stack_params([p for _, p, _ in nets]), images)
    assert_equal(found, paddle.stack([layer(images) for layer in layers]), 1e-5)


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_recurrent_layers_at_their_first_call():
    xs = drawn(4, 1, 5, 3).astype("float32")
    layer = paddle.nn.LSTM(3, 2)
    net, params, _ = stateless(layer)
    expected = looped(lambda x: layer(x)[0], xs)
    assert_equal(vmap(lambda x: net(params, x)[0])(xs), expected, 1e-6)
    assert_equal(vmap(lambda x: layer(x)[0])(xs), expected, 1e-6)


# Messages.


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (
            lambda x, w: F.conv3d_transpose(x, w, data_format="NDHWC"),
            ((1, 2, 2, 3, 2), (2, 3, 1, 2, 1)),
        ),
        (
            lambda x, w: F.conv3d_transpose(x, w, data_format="NDHWC"),
            ((1, 2, 3, 4, 5), (5, 2, 1, 1, 2)),
        ),
        (
            lambda x: F.interpolate(
                x, scale_factor=2, mode="nearest", data_format="NCDHW"
            ),
            ((2, 3, 1, 2, 3),),
        ),
    ],
    ids=["as many channels as slices", "channels last", "nearest of volumes"],
)
@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_volumes(fn, shapes):
    samples = [drawn(3, *shape, seed=k) for k, shape in enumerate(shapes)]
    weights = drawn(*fn(*(x[0] for x in samples)).shape, seed=9)
    slope = grad(lambda *xs: (fn(*xs) * weights).sum(), tuple(range(len(samples))))
    for f in (fn, lambda *xs: slope(*xs)[0]):
        each = paddle.stack([f(*xs) for xs in zip(*samples, strict=True)])
        found = vmap(f)(*samples)
        assert float((found - each).abs().max()) < 1e-12


@pytest.mark.filterwarnings("ignore:The shape of broadcast output")
@pytest.mark.parametrize(
    "fn",
    [
        *(paddle.maximum, paddle.minimum, paddle.fmax, paddle.fmin),
        *(paddle.floor_divide, paddle.copysign, paddle.add, paddle.atan2),
    ],
)
def test_a_number_of_a_wider_dtype_promotes_as_for_one_sample(fn):
    a = paddle.to_tensor([0.1, 0.7], "float64")
    b = paddle.to_tensor([[3.0, -1.0, 0.2], [0.0, 5.0, 0.7]], "float32")
    each = [fn(x, y) for x, y in zip(a, b, strict=True)]
    found = vmap(fn)(a, b)
    assert found.dtype == each[0].dtype
    assert found.tolist() == [y.tolist() for y in each]


@pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")
def test_the_gradient_of_one_pixel_of_a_sequence():
    """Paddle's own has the first pixel alone."""
    weights = drawn(2, 3, 1)
    x = drawn(2, 3, 4, seed=1)
    for data_format, swap in (("NCW", False), ("NWC", True)):

        def fn(x, data_format=data_format, swap=swap):
            x = x.transpose([0, 2, 1]) if swap else x
            y = F.interpolate(x, [1], mode="linear", data_format=data_format)
            return ((y.transpose([0, 2, 1]) if swap else y) * weights).sum()

        expected = weights * paddle.to_tensor([0.0, 0.5, 0.5, 0.0], "float64")
        stacked = paddle.stack([x, 2.0 * x])
        for found in (grad(fn)(x), jit(grad(fn))(x), vmap(grad(fn))(stacked)[1]):
            assert float((found - expected).abs().max()) < 1e-15
