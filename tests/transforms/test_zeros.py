"""Gradients with respect to what a result does not depend on: zeros, as in JAX."""

import optree
import paddle
import pytest

from conftest import assert_same, randn
from paddle_chainrules import (
    CSR,
    FCNet,
    cond,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jit,
    jvp,
    linearize,
    optimizers,
    value_and_grad,
    vjp,
    vmap,
)

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
X, Y = randn([3], "float64"), randn([2, 4], "float64", 1)


def of_first(x, y):
    return (x**3).sum()


def rows(x, y):
    return paddle.stack([x.sum(), (x * x).sum()])


def pulled(x, y):
    return vjp(of_first, x, y)[1](paddle.ones([], "float64"))[1]


WAYS = {
    "grad": (grad(of_first, 1), [2, 4]),
    "several": (lambda x, y: grad(of_first, (0, 1))(x, y)[1], [2, 4]),
    "value_and_grad": (lambda x, y: value_and_grad(of_first, 1)(x, y)[1], [2, 4]),
    "vjp": (pulled, [2, 4]),
    "jacrev": (jacrev(rows, 1), [2, 2, 4]),
    "jacfwd": (jacfwd(rows, 1), [2, 2, 4]),
    "hessian": (hessian(of_first, 1), [2, 4, 2, 4]),
    "hessian, mixed": (lambda x, y: hessian(of_first, (0, 1))(x, y)[0][1], [3, 2, 4]),
    "hvp": (lambda x, y: hvp(lambda y: of_first(x, y), y, y), [2, 4]),
    "jvp": (lambda x, y: jvp(lambda y: rows(x, y), (y,), (y,))[1], [2]),
    "linearize": (lambda x, y: linearize(lambda y: rows(x, y), y)[1](y), [2]),
    "jacobian": (lambda x, y: jacobian(lambda y: rows(x, y), y).tensor(), [2, 2, 4]),
    "a row of it": (lambda x, y: jacobian(lambda y: rows(x, y), y)[1], [2, 4]),
    "linear, hessian": (hessian(lambda x, y: (y * 2.0).sum(), 1), [2, 4, 2, 4]),
    "linear, hvp": (lambda x, y: hvp(lambda y: (y * 2.0).sum(), y, y), [2, 4]),
    "linear, twice": (
        grad(lambda x, y: grad(lambda x, y: (y * 2.0).sum(), 1)(x, y).sum(), 1),
        [2, 4],
    ),
    "grad of grad": (grad(lambda x, y: grad(of_first)(x, y).sum(), 1), [2, 4]),
    "of the missing one": (
        grad(lambda x, y: grad(of_first, 1)(x, y).sum(), 1),
        [2, 4],
    ),
    "jacfwd of jacrev": (jacfwd(jacrev(rows, 1), 1), [2, 2, 4, 2, 4]),
    "jacrev of jacfwd": (jacrev(jacfwd(rows, 1), 1), [2, 2, 4, 2, 4]),
    "jacrev of grad": (jacrev(grad(of_first, 1), 0), [2, 4, 3]),
}
IN = {"as it is": lambda fn: fn, "jit": lambda fn: jit(fn, strict=True)}


@pytest.mark.parametrize("inside", IN)
@pytest.mark.parametrize("name", WAYS)
def test_of_every_transform_and_order(name, inside):
    fn, shape = WAYS[name]
    way = IN[inside](fn)
    for _ in range(4):  # by the tape or rules, then by a program
        assert_same(way(X, Y), paddle.zeros(shape, "float64"))


@pytest.mark.parametrize("inside", IN)
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("name", ["grad", "vjp", "jacrev", "hvp", "grad of grad"])
def test_of_each_sample(name, axes, inside):
    fn, shape = WAYS[name]
    each = IN[inside](vmap(fn, axes))
    pairs = zip((X, Y), axes, strict=True)
    x, y = (t.expand([5, *t.shape]) if a == 0 else t for t, a in pairs)
    for _ in range(3):
        assert_same(each(x, y), paddle.zeros([5, *shape], "float64"))


@pytest.mark.parametrize("shape", [[], [3], [0, 2]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_every_dtype_and_shape(dtype, shape):
    unused = paddle.ones(shape).astype(dtype)
    found = grad(of_first, (0, 1))(X, unused)
    assert_same(found[0], 3 * X * X, rtol=1e-15)
    assert (found[1].dtype, found[1].shape) == (unused.dtype, unused.shape)
    assert not found[1].astype("complex128").numpy().any()
    assert found[1].stop_gradient


def test_a_tree_is_moved_by_its_gradients():
    """Also with what only one function of cond uses, and with None in its place."""
    params = {
        "used": X,
        "there": [Y, None],
        "unused": (paddle.to_tensor(2.0), paddle.zeros([0, 2])),
    }

    def loss(params, is_positive):
        rest = cond(
            is_positive,
            lambda y: (y**2).sum(),
            lambda y: paddle.zeros([], "float64"),
            params["there"][0],
        )
        return (params["used"] ** 2).sum() + rest

    for way in (grad(loss), jit(grad(loss)), grad(jit(loss))):
        for flag in (True, False, True):
            grads = way(params, paddle.to_tensor(flag))
            found = optree.tree_map(lambda p, g: p - 0.5 * g, params, grads)
            assert_same(found["used"], 0 * X)
            assert_same(found["there"], [0 * Y if flag else Y, None])
            assert_same(found["unused"], params["unused"])


def test_each_call_gives_zeros_of_its_own():
    for way in (grad(of_first, 1), jit(grad(of_first, 1))):
        for _ in range(4):
            found = way(X, Y)
            assert_same(found, 0 * Y)
            found.add_(paddle.ones_like(found))


def test_what_was_not_asked_for_stays_out():
    _, pullback = vjp(lambda x, y, n: x * 2.0, X, {"y": Y}, paddle.arange(3))
    assert_same(pullback(X), (2 * X, {"y": 0 * Y}, None))
    assert_same(pullback(X, wrt=[1]), (None, {"y": 0 * Y}, None))
    assert_same(pullback(X, wrt=[0]), (2 * X, None, None))
    assert_same(pullback.or_none(X), (2 * X, {"y": None}, None))


def test_a_flat_vector_of_gradients():
    net = FCNet((3, 4, 2), "tanh", "float64")
    params = net.init(0)

    def loss(params):
        return (params["0.weight"] ** 2).sum()

    grads = grad(loss)(params)
    expected = net.flatten({n: paddle.zeros_like(p) for n, p in params.items()})
    expected[:12] = 2 * params["0.weight"].flatten()
    assert_same(net.flatten(grads), expected)


def test_optimizers_take_them_as_gradients():
    """Weights decay that nothing depends on, as in optax."""
    rule = optimizers.adamw(0.1, weight_decay=0.5)
    params = {"x": X, "y": Y}
    grads = grad(lambda p: (p["x"] ** 2).sum())(params)
    updates, _ = rule.update(grads, rule.init(params), params)
    assert_same(updates["y"], -0.05 * Y, rtol=1e-12)


LEAVES = {
    "paddle.int64": paddle.arange(3),
    "paddle.bool": paddle.to_tensor([True]),
    "float": 2.0,
    "str": "tanh",
    "numpy.ndarray": X.numpy(),
}


@pytest.mark.parametrize("kind", LEAVES)
def test_a_leaf_without_a_derivative_is_named(kind):
    tree = {"w": X, "rest": [None, LEAVES[kind]]}

    def fn(n, tree):
        return (tree["w"] ** 2).sum() * n

    where = rf"got {kind} as argument 1\['rest'\]\[1\], and differentiates with"
    for transform in (grad, value_and_grad, hessian):
        for call in (transform(fn, -1), jit(transform(fn, 1))):
            for _ in range(3):
                with pytest.raises(TypeError, match=f"{transform.__name__} {where}"):
                    call(3.0, tree)
    with pytest.raises(TypeError, match=r"hvp got .* as argument 0\['rest'\]\[1\]"):
        hvp(lambda tree: fn(3.0, tree), tree, {"w": X, "rest": [None, None]})
    assert_same(grad(fn, 1)(3.0, {"w": X, "rest": [None]})["rest"], [None])


def test_indices_of_a_matrix_are_no_leaves_without_a_derivative():
    """And ``vjp`` and Jacobians pass integers on."""
    x = CSR.of(randn([3, 4], "float64"))
    found = grad(lambda x, w: (x @ w).sum(), (0, 1))(x, randn([4, 2], "float64"))
    assert found[0].crows is None
    assert found[0].values.shape == [12]
    pattern = CSR(x.crows, x.cols, None, x.shape)
    found = grad(lambda tree: (tree["x"] @ tree["w"]).sum())({"x": pattern, "w": Y.T})
    assert found["x"].values is None
    assert jacrev(lambda x, n: x * 2.0, (0, 1))(X, paddle.arange(3))[1] is None


@pytest.mark.parametrize("inside", IN)
def test_of_any_number_of_samples(inside):
    """By one program for all of them, from some calls on."""
    net = FCNet((3, 4, 2), "tanh", "float64")
    params = net.init(0)
    way = IN[inside](grad(lambda params, x, y: (net(params, x) ** 2).sum(), (1, 2)))
    for n in (4, 7, 9, 5, 1, 33, 33):
        x, y = randn([n, 3], "float64", n), randn([n, 5], "float64", n)
        found = way(params, x, y)
        expected = net.vjp(params, (x,), 2 * net(params, x))[1][0]
        assert_same(found[0], expected, rtol=1e-9, atol=1e-12)
        assert_same(found[1], 0 * y)
