"""A ``PyLayer`` keeps its own backward in every transform."""

import numpy as np
import paddle
import pytest
from paddle.autograd import PyLayer

from conftest import assert_same, randn
from layers import Square
from paddle_chainrules import (
    BatchWarning,
    CaptureError,
    cond,
    fori_loop,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    optimizers,
    scan,
    vmap,
)

pytestmark = pytest.mark.filterwarnings("ignore::paddle_chainrules.BatchWarning")

X, W = randn([3], "float64"), randn([3], "float64", 1)
ROWS = randn([5, 3], "float64", 2)


class Product(PyLayer):
    """``k x w`` and the sum of x, whose backward has a factor of its own."""

    @staticmethod
    def forward(ctx, x, w, k=1.0, factor=1.0):
        ctx.save_for_backward(x, w)
        ctx.k, ctx.factor = k, factor
        return k * (x * w), x.sum(), x.shape[0]

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensor()
        return ctx.factor * (ctx.k * g * w + h), ctx.k * g * x


class ByNumpy(PyLayer):
    """The cube, by numbers that leave Paddle."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.numpy()
        return paddle.to_tensor(ctx.x**3)

    @staticmethod
    def backward(ctx, g):
        return paddle.to_tensor(3 * ctx.x**2 * g.numpy())


class Other(PyLayer):
    """A gradient that is not that of its forward, so that nothing else can give it."""

    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return -7.0 * g


def layered(x, w):
    y, total, count = Product.apply(x, w, k=2.0)
    return (y**2).sum() * count + total


def plain(x, w):
    return ((2.0 * x * w) ** 2).sum() * 3 + x.sum()


def of_rows(transform):
    return lambda fn: lambda x, w: vmap(transform(fn), in_axes=(0, None))(ROWS, w)


def in_scan(fn):
    def loop(x, w):
        def step(c, _):
            return c - 1e-4 * fn(c, w), None

        return scan(step, x, length=120)[0].sum()

    return lambda x, w: grad(loop)(x, w)


def both(fn):
    return grad(fn, argnums=(0, 1))


TRANSFORMS = {
    "grad": both,
    "jit of grad": lambda fn: jit(both(fn), strict=True),
    "vmap of grad": of_rows(both),
    "grad of vmap": lambda fn: (
        lambda x, w: both(lambda rows, w: vmap(fn, in_axes=(0, None))(rows, w).sum())(
            ROWS, w
        )
    ),
    "jit of vmap": lambda fn: jit(of_rows(both)(fn), strict=True),
    "hessian": hessian,
    "jit of hessian": lambda fn: jit(hessian(fn), strict=True),
    "vmap of hessian": of_rows(hessian),
    "vmap of jacrev": of_rows(jacrev),
    "vmap of jacfwd": of_rows(jacfwd),
    "vmap of jvp": of_rows(lambda fn: lambda x, w: jvp(fn, (x, w), (w, x))),
    "third": lambda fn: jit(jacfwd(hessian(fn)), strict=True),
    "scan": in_scan,
    "jit of scan": lambda fn: jit(in_scan(fn), strict=True),
    "fori_loop": lambda fn: grad(
        lambda x, w: fori_loop(0, 120, lambda i, x: x - 1e-4 * fn(x, w), x).sum()
    ),
    "cond": lambda fn: jit(
        grad(
            lambda x, w: cond(
                x.sum() > -99, lambda x: fn(x, w), lambda x: ByNumpy.apply(x).sum(), x
            )
        ),
        strict=True,
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_beside_the_same_in_operators(name):
    transform = TRANSFORMS[name]
    expected = transform(plain)(X, W)
    for _ in range(2):
        found = transform(layered)(X, W)
        assert_same(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "slope"),
    [(ByNumpy, lambda x: 3 * x * x), (Other, lambda x: 0 * x - 7.0)],
)
def test_its_own_backward_is_what_counts(layer, slope):
    def fn(x):
        return x + layer.apply(x)

    def each(x):
        return fn(x).sum()

    expected = 1 + slope(ROWS)
    for found in (
        vmap(grad(each))(ROWS),
        grad(lambda rows: vmap(each)(rows).sum())(ROWS),
        jit(vmap(grad(each)), strict=True)(ROWS),
        grad(each)(ROWS),
        jit(grad(each), strict=True)(ROWS),
    ):
        assert_same(found, expected, rtol=1e-12, atol=1e-14)

    def loop(x):
        return scan(lambda c, _: (c + 1e-3 * layer.apply(c), None), x, length=101)[0]

    factor, c = paddle.ones_like(X), X
    for _ in range(101):
        factor, c = factor * (1 + 1e-3 * slope(c)), c + 1e-3 * layer.apply(c)
    assert_same(grad(lambda x: loop(x).sum())(X), factor, rtol=1e-10)


def test_least_squares():
    target = paddle.to_tensor([2.0, 6.0], "float64")

    found = optimizers.levenberg_marquardt(
        lambda p: Square.apply(p) + p - target, paddle.to_tensor([2.0, 3.0], "float64")
    )
    np.testing.assert_allclose(found.params, [1.0, 2.0], atol=1e-6)


def test_samples_go_one_after_another_with_a_warning():
    with pytest.warns(BatchWarning, match="py_layer"):
        vmap(lambda x: Other.apply(x))(ROWS)


class Draws(PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x * paddle.rand([3], "float64")

    @staticmethod
    def backward(ctx, g):
        return g


class Calls(PyLayer):
    @staticmethod
    def forward(ctx, x, fn):
        return fn(x)

    @staticmethod
    def backward(ctx, g):
        return g


class Writes(PyLayer):
    @staticmethod
    def forward(ctx, x):
        x.add_(paddle.ones_like(x))
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return g


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: Draws.apply(x).sum(), "the PyLayer Draws draws random numbers"),
        (
            lambda x: Calls.apply(x, lambda y: y * x).sum(),
            "uses a tensor of",
        ),
        (lambda x: Writes.apply(1 * x).sum(), "writes into an argument"),
        (
            lambda x: hessian(lambda x: ByNumpy.apply(x).sum())(x),
            "leaves Paddle",
        ),
    ],
)
def test_what_can_not_be_served_is_refused_by_name(fn, message):
    before = X.numpy().copy()
    for call in (
        jit(grad(fn), strict=True),
        lambda x: vmap(grad(fn))(x.reshape([1, 3])),
    ):
        with pytest.raises(
            (CaptureError, NotImplementedError, ValueError), match=message
        ):
            call(X)
    assert np.array_equal(X.numpy(), before)


def test_an_apply_that_was_stored():
    """As ``relu = MyReLU.apply`` is, before anybody listens."""
    apply, forward = Product.apply, vars(Product)["forward"]

    def fn(x):
        return (apply(x, paddle.sin(x))[0] * x).sum()

    def named(x):
        return (Product.apply(x, paddle.sin(x))[0] * x).sum()

    for transform in (grad, lambda fn: jit(grad(fn), strict=True), hessian):
        assert_same(transform(fn)(X), transform(named)(X))
    assert_same(jit(fn, strict=True)(X), named(X))
    assert_same(vmap(grad(fn))(X.reshape([1, -1])), grad(named)(X).reshape([1, -1]))
    assert vars(Product)["forward"] is forward


class Needed(PyLayer):
    """It asks which gradients are needed, as Paddle refuses others."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.needs = not x.stop_gradient, not w.stop_gradient
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensor()
        return g * w if ctx.needs[0] else None, g * x if ctx.needs[1] else None


class Named(PyLayer):
    @staticmethod
    def forward(ctx, x, w=None, b=None):
        ctx.save_for_backward(x, w, b)
        return x * w + b * b

    @staticmethod
    def backward(ctx, g):
        x, w, b = ctx.saved_tensor()
        return g * w, g * x, 2 * g * b


class Marked(PyLayer):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        total = x + w
        ctx.mark_non_differentiable(total)
        return x * w, total

    @staticmethod
    def backward(ctx, g, other):
        x, w = ctx.saved_tensor()
        return g * w + other, g * x + other


class Listed(PyLayer):
    @staticmethod
    def forward(ctx, parts, k):
        ctx.save_for_backward(*parts)
        ctx.k = k
        return ctx.k * parts[0] * parts[1]

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensor()
        return [ctx.k * g * w, ctx.k * g * x]


class Shorter(PyLayer):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensor()[1]


class AsItIs(PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


def _sines_of_marked(x, w):
    y, total = Marked.apply(x, w)
    return (y * y + paddle.sin(total)).sum()


CALLED = {
    "flags": (lambda x, w: (Needed.apply(x, w) ** 2).sum(), (0, 1)),
    "keywords": (lambda x, w: (Named.apply(x, w=w, b=x * w) ** 2).sum(), (0, 1)),
    "marked": (_sines_of_marked, (0, 1)),
    "fewer gradients": (lambda x, w: (Shorter.apply(x, w) ** 2).sum(), (0,)),
    "its argument": (lambda x, w: (AsItIs.apply(x * w) * x).sum(), (0, 1)),
    "a list": (lambda x, w: (Listed.apply([x, w], 3.0) ** 2).sum(), (0, 1)),
}


@pytest.mark.parametrize("name", CALLED)
def test_ways_to_write_one(name):
    """As native Paddle has them."""
    fn, wanted = CALLED[name]
    leaves = [t.detach().clone() for t in (X, W)]
    for i in wanted:
        leaves[i].stop_gradient = False
    expected = paddle.grad(fn(*leaves), [leaves[i] for i in wanted])
    gradient = grad(fn, argnums=wanted)
    for call in (gradient, jit(gradient, strict=True)):
        for _ in range(4):
            assert_same(tuple(call(X, W)), tuple(expected), rtol=1e-12)
    rows = vmap(gradient)(paddle.stack([X, W]), paddle.stack([W, X]))
    assert_same(tuple(r[0] for r in rows), tuple(expected), rtol=1e-12)


def test_what_gives_no_gradient():
    class Stops(PyLayer):
        @staticmethod
        def forward(ctx, x, w):
            return x * w

        @staticmethod
        def backward(ctx, g):
            return None, g

    def fn(x, w):
        return Stops.apply(x, w).sum()

    for call in (both(fn), jit(both(fn), strict=True)):
        for _ in range(4):
            of_x, of_w = call(X, W)
            assert not of_x.any()
            assert_same(of_w, paddle.ones_like(W))


class Exponential(PyLayer):
    """It keeps its result for the backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        (y,) = ctx.saved_tensor()
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensor()[0]


class OfAttribute(PyLayer):
    """It keeps its argument, as an attribute."""

    @staticmethod
    def forward(ctx, x):
        ctx.kept = {"x": x}
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2.0 * g * ctx.kept["x"]


def result_overwritten(x):
    y = Exponential.apply(1.0 * x)
    y.add_(x)
    return y.sum(), (x.exp() + 1.0)


def argument_overwritten(x):
    u = 1.0 * x
    y = OfAttribute.apply(u)
    u.add_(x)
    return (y + u).sum(), 2.0 * x + 2.0


def returned(result):
    """A layer that gives back its argument, in some way, with the gradient of 5 x."""

    class Returned(PyLayer):
        @staticmethod
        def forward(ctx, x):
            return result(x)

        @staticmethod
        def backward(ctx, g, *others):
            return 5.0 * g.reshape([3])

    def fn(x):
        found = Returned.apply(x)
        found = found[0] if isinstance(found, tuple) else found
        return (found**2).sum() + (x**3).sum(), 10.0 * x + 3.0 * x**2

    return fn


class Doubling(PyLayer):
    """Its backward writes into the gradient that it is given."""

    @staticmethod
    def forward(ctx, x):
        return 1.0 * x

    @staticmethod
    def backward(ctx, g):
        g.scale_(2.0)
        return g


class WithoutFirst(PyLayer):
    """Its backward has no gradient by its first argument."""

    @staticmethod
    def forward(ctx, x, w):
        return x * w

    @staticmethod
    def backward(ctx, g):
        return None, g


def in_forward(transform):
    """A layer whose forward uses a transform that gives twice its argument."""

    class Within(PyLayer):
        @staticmethod
        def forward(ctx, x):
            return transform(x)

        @staticmethod
        def backward(ctx, g):
            return 7.0 * g

    return lambda x: (Within.apply(x).sum(), paddle.full_like(x, 7.0))


LAYERS = {
    "result overwritten": result_overwritten,
    "argument overwritten": argument_overwritten,
    "its argument": returned(lambda x: x),
    "a view": returned(lambda x: x.reshape([-1])),
    "a slice": returned(lambda x: x[:]),
    "detached": returned(lambda x: x.detach()),
    "twice": returned(lambda x: (x, x)),
    "written gradient": lambda x: (Doubling.apply(x).sum(), paddle.full_like(x, 2.0)),
    "written gradient, shared": lambda x: (
        (Doubling.apply(x) + x).sum(),
        paddle.full_like(x, 3.0),
    ),
    "no gradient of a result": lambda x: (
        WithoutFirst.apply(2.0 * x, 3.0 * x).sum(),
        paddle.full_like(x, 3.0),
    ),
    "cond": in_forward(lambda x: cond(x.sum() > -99, lambda t: 2 * t, lambda t: t, x)),
    "vmap": in_forward(vmap(lambda t: 2.0 * t)),
    "jvp": in_forward(lambda x: jvp(lambda t: t**2, (x,), (paddle.ones_like(x),))[1]),
    "grad": in_forward(grad(lambda t: (t**2).sum())),
    "a long loop": in_forward(lambda x: fori_loop(0, 40, lambda i, t: t + x / 40, x)),
    "scan": in_forward(lambda x: scan(lambda c, _: (c + x / 40, c), x, None, 40)[0]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_gradient_in_every_transform(name):
    fn, slope = (lambda x: LAYERS[name](x)[0]), LAYERS[name](X)[1]
    compiled, v = jit(grad(fn)), randn([3], "float64", 8)
    for _ in range(12):
        assert_same(compiled(X), slope, rtol=1e-12)
    assert_same(grad(fn)(X), slope, rtol=1e-12)
    assert_same(jvp(fn, (X,), (v,))[1], (slope * v).sum(), rtol=1e-12)
    assert_same(jit(lambda x: jvp(fn, (x,), (v,))[1])(X), (slope * v).sum(), rtol=1e-12)
    rows = paddle.stack([X, X + 1.0])
    slopes = paddle.stack([LAYERS[name](row)[1] for row in rows])
    assert_same(vmap(grad(fn))(rows), slopes, rtol=1e-12)
    summed = grad(lambda x: scan(lambda c, _: (c, fn(c)), x, None, 2)[1].sum())
    assert_same(summed(X), 2.0 * slope, rtol=1e-12)


def test_writes_into_an_argument_of_the_layer_are_refused():
    class Writes(PyLayer):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 2.0 * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensor()
            x.zero_()
            return 2.0 * g

    before = X.numpy().copy()
    fn = grad(lambda x: Writes.apply(1.0 * x).sum())
    with pytest.raises(CaptureError, match="writes into an argument of its forward"):
        jit(fn, strict=True)(X)
    with pytest.raises(ValueError, match="writes into what its forward has saved"):
        fn(X)
    np.testing.assert_array_equal(X.numpy(), before)


class ByGrad(PyLayer):
    """Its backward asks Paddle's engine, whose answer has no graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x**3

    @staticmethod
    def backward(ctx, g):
        with paddle.enable_grad():
            y = ctx.x.detach()
            y.stop_gradient = False
            (y**3).backward(g)
        return y.grad


class Rounded(Square):
    """Its backward gives another dtype."""

    @staticmethod
    def backward(ctx, g):
        return Square.backward(ctx, g).astype("float32")


class OfDict(PyLayer):
    """A dict of tensors is an argument that has no gradient."""

    @staticmethod
    def forward(ctx, given, x):
        ctx.given = given
        return given["w"] * x

    @staticmethod
    def backward(ctx, g):
        return ctx.given["w"] * g


def test_a_backward_by_the_engine_is_differentiated_once():
    fn = lambda x: ByGrad.apply(1.0 * x).sum() + (x**2).sum()  # noqa: E731
    slope = 3.0 * X**2 + 2.0 * X
    assert_same(grad(fn)(X), slope, rtol=1e-12)
    assert_same(jit(grad(fn))(X), slope, rtol=1e-12)
    for second in (lambda: jvp(fn, (X,), (X,)), lambda: hessian(fn)(X)):
        with pytest.raises(NotImplementedError, match="leaves Paddle"):
            second()


def test_a_gradient_of_another_dtype_keeps_its_derivative():
    fn = lambda x: Rounded.apply(x).sum()  # noqa: E731
    assert_same(jvp(fn, (X,), (X,))[1], (2.0 * X * X).sum(), rtol=1e-6)
    assert_same(hessian(fn)(X), paddle.diag(paddle.full([3], 2.0, "float64")))


def test_a_dict_among_the_arguments():
    fn = lambda x: OfDict.apply({"w": W}, x).sum()  # noqa: E731
    assert_same(grad(fn)(X), W)
    assert_same(jit(grad(fn))(X), W)
    assert_same(jvp(fn, (X,), (X,))[1], (W * X).sum(), rtol=1e-12)
    assert_same(vmap(grad(fn))(ROWS), paddle.stack([W] * 5))


def by_index(x, g):
    d = 3.0 * x * x * g
    d[paddle.to_tensor([0])] = (3.0 * x * x * g)[:1]
    return d


def by_unbind(x, g):
    d = x * 1.0
    rows = d.unbind(0)
    d.multiply_(x * 3.0)
    return paddle.stack(rows) * g


def into_the_whole(x, g):
    d = 3.0 * x * x
    d.multiply_(g)
    return d


def through_rows(x, g):
    d = 3.0 * x
    d[0].multiply_(x[0])
    d[1].multiply_(x[1])
    return g * d


def through_the_transposed(x, g):
    d = g * x * 1.5 * x
    d.T.scale_(2.0)
    return d


def into_out(x, g):
    y = paddle.empty_like(x)
    paddle.multiply(x, x, out=y)
    return 3.0 * g * y


def cube_with(backward):
    class Cube(PyLayer):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return backward(*ctx.saved_tensor(), g)

    return lambda x: Cube.apply(x).sum()


@pytest.mark.parametrize("write", [by_index, by_unbind, into_the_whole])
def test_writes_in_a_backward_have_derivatives(write):
    cube, x = cube_with(write), randn([2, 3], "float64", 5)
    slopes = lambda x: grad(cube)(x).sum()  # noqa: E731
    assert_same(grad(cube)(x), 3.0 * x * x, rtol=1e-12)
    for fn in (grad(slopes), jit(grad(slopes))):
        assert_same(fn(x), 6.0 * x, rtol=1e-12)
    third = grad(lambda x: grad(slopes)(x).sum())
    assert_same(third(x), paddle.full_like(x, 6.0), rtol=1e-12)
    assert_same(jvp(cube, (x,), (x,))[1], (3.0 * x**3).sum(), rtol=1e-12)


@pytest.mark.parametrize("write", [through_rows, through_the_transposed, into_out])
def test_writes_in_a_backward_that_paddle_would_lose_are_refused(write):
    cube, x = cube_with(write), randn([2, 3], "float64", 5)
    assert_same(grad(cube)(x), 3.0 * x * x, rtol=1e-12)
    slopes = lambda x: grad(cube)(x).sum()  # noqa: E731
    for fn in (grad(slopes), jit(grad(slopes)), hessian(cube)):
        with pytest.raises(NotImplementedError, match="in place|out=y"):
            fn(x)
