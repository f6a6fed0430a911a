"""Sparse matrices as arguments, compared with the same as dense tensors."""

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import paddle
import pytest
import scipy.sparse as sp

from paddle_chainrules import (
    CSR,
    FCNet,
    RowSparse,
    grad,
    hvp,
    jacfwd,
    jacrev,
    jit,
    jvp,
    stack_params,
    stateless,
    value_and_grad,
    vjp,
    vmap,
)
from paddle_chainrules.paddle_side import sparse_products
from trees import assert_near

close = partial(assert_near, rtol=1e-13, least=0.0)
N, D = 5, 7


@pytest.fixture(autouse=True, params=["scipy", "paddle"])
def kernels(request, monkeypatch):
    """By SciPy's kernels, as on a CPU, and by Paddle's, as on a GPU."""
    if request.param == "paddle":
        monkeypatch.setattr(sparse_products, "_uses_scipy", lambda values: False)


def matrix(dtype="float64", seed=0, n=N, d=D):
    rng = np.random.default_rng(seed)
    there = rng.random((n, d)) < 0.4
    there[1] = False  # a row without entries
    return sp.csr_array((there * rng.standard_normal((n, d))).astype(dtype))


class Layer(paddle.nn.Layer):
    """One with a forward of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.last = paddle.nn.Linear(D, 4), paddle.nn.Linear(4, 2)

    def forward(self, x):
        return self.last(paddle.tanh(self.first(x)))


def fcnet():
    net = FCNet((D, 4, 2), "tanh", "float64")
    return net, net.init(0)


def of(layer):
    def make():
        paddle.seed(0)
        paddle.set_default_dtype("float64")
        try:
            return stateless(layer())[:2]
        finally:
            paddle.set_default_dtype("float32")

    return make


def sequential():
    nn = paddle.nn
    return nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, 2))


NETS = {"chain": fcnet, "sequential": of(sequential), "own": of(Layer)}


def entries(dense, like):
    """A dense gradient at the places of the pattern."""
    rows = np.repeat(np.arange(len(like)), np.diff(like.crows.numpy()))
    return paddle.to_tensor(dense.numpy()[rows, like.cols.numpy()])


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_nets_and_their_gradients_are_those_of_the_dense_matrix(make):
    net, params = make()
    cotangent = paddle.randn([N, 2], "float64")
    for seed in range(6):  # other patterns, and programs after some calls
        x = CSR.of(matrix(seed=seed))
        y, pullback = net.pullback(params, x)
        expected, dense_pullback = net.pullback(params, x.to_dense())
        close(y, expected)
        grads, (grad_x,) = pullback(cotangent)
        dense_grads, (dense_x,) = dense_pullback(cotangent)
        close(grads, dense_grads)
        close(grad_x.values, entries(dense_x, x))
        assert grad_x.crows is None
        assert grad_x.cols is None
        close(net.forward(params, x), expected)


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_derivatives_of_derivatives(make):
    net, params = make()
    x = CSR.of(matrix())
    dense = x.to_dense()
    weight = paddle.randn([N, 2], "float64")
    tangent = {name: paddle.randn(p.shape, p.dtype) for name, p in params.items()}

    def loss(params, x):
        return (net.forward(params, x) ** 3 * weight).sum()

    def along(params, x):
        grads = grad(loss)(params, x)
        return sum((g * tangent[name]).sum() for name, g in grads.items())

    def by_x(params, x):
        found = grad(loss, argnums=1)(params, x)
        at = found.values if isinstance(found, CSR) else _at(found, CSR.of(matrix()))
        return (at**2).sum()

    for nested in (along, by_x):
        for run in (nested, jit(nested)):
            grads, grad_x = grad(run, argnums=(0, 1))(params, x)
            expected, dense_x = grad(nested, argnums=(0, 1))(params, dense)
            close(grads, expected, rtol=1e-12)
            close(grad_x.values, entries(dense_x, x), rtol=1e-12)
    found = hvp(lambda params: loss(params, x), params, tangent)
    close(found, hvp(lambda params: loss(params, dense), params, tangent), rtol=1e-12)
    theta = net.flatten(params)
    expected = jacrev(lambda theta: net.forward(theta, dense))(theta)
    close(jacrev(lambda theta: net.forward(theta, x))(theta), expected)
    close(jacfwd(lambda theta: net.forward(theta, x))(theta), expected)


def _at(dense, like):
    rows = np.repeat(np.arange(len(like)), np.diff(like.crows.numpy()))
    return dense[paddle.to_tensor(rows), like.cols.astype("int64")]


def test_forward_mode_by_values():
    x, weight = CSR.of(matrix()), paddle.randn([D, 3], "float64")
    values = paddle.randn([x.nnz], "float64")
    along = x.with_values(values)
    _, found = jvp(lambda x: paddle.tanh(x @ weight), (x,), (along,))
    dense = x.to_dense(), along.to_dense()
    _, expected = jvp(lambda x: paddle.tanh(x @ weight), *((d,) for d in dense))
    close(found, expected)


@pytest.mark.filterwarnings("error")
def test_many_nets_at_one_matrix():
    net, params = fcnet()
    x = CSR.of(matrix())
    ensemble = stack_params([params, net.init(1), net.init(2)])
    many = vmap(net.forward, (0, None))
    close(many(ensemble, x), many(ensemble, x.to_dense()))

    def loss(params, x):
        return (net.forward(params, x) ** 2).sum()

    grads = vmap(grad(loss), (0, None))
    close(grads(ensemble, x), grads(ensemble, x.to_dense()))


def test_a_bare_pattern_is_of_ones_and_has_no_gradient():
    x = CSR.of(matrix() != 0)
    assert x.values is None
    net, params, _ = stateless(paddle.nn.Embedding(D, 3))
    y, pullback = net.pullback(params, x)
    table = params["weight"]
    close(y, x.to_dense() @ table, rtol=1e-6)
    cotangent = paddle.randn(y.shape)
    grads, (grad_x,) = pullback(cotangent)
    close(grads["weight"], x.to_dense().T @ cotangent, rtol=1e-6)
    assert grad_x.values is None


def test_an_embedding_leaves_its_padding_out():
    x = CSR.of(matrix("float32"))
    net, params, _ = stateless(paddle.nn.Embedding(D, 3, padding_idx=2))
    without = x.to_dense().numpy()
    without[:, 2] = 0
    y, pullback = net.pullback(params, x)
    close(y, paddle.to_tensor(without) @ params["weight"], rtol=1e-6)
    grads, _ = pullback(paddle.ones_like(y))
    assert float(grads["weight"][2].abs().max()) == 0


def test_gradients_by_rows():
    net, params = fcnet()
    x = CSR.of(matrix())
    y, pullback = net.pullback(params, x)
    dense, _ = pullback(y)
    rows, _ = pullback(y, sparse="0.weight")
    assert isinstance(rows["0.weight"], RowSparse)
    assert {*rows["0.weight"].rows.tolist()} <= {*x.cols.tolist()}
    close(rows["0.weight"].to_dense(), dense["0.weight"])


def test_products_as_functions_of_paddle_and_with_vectors():
    x, weight = CSR.of(matrix()), paddle.randn([D, 3], "float64")
    bias = paddle.randn([3], "float64")
    dense = x.to_dense() @ weight
    close(x @ weight, dense)
    close(paddle.matmul(x, weight), dense)
    close(paddle.mm(x, weight), dense)
    close(paddle.matmul(x, weight.T, transpose_y=True), dense)
    close(paddle.nn.functional.linear(x, weight, bias), dense + bias)
    close(x @ weight[:, 0], dense[:, 0])
    close(vjp(lambda w: x @ w, weight)[1](dense)[0], x.to_dense().T @ dense)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "paddle csr", "coo of paddle"])
def test_made_of_what_there_is(kind, index):
    found = matrix().asformat(kind) if kind in ("csr", "csc", "coo") else None
    if found is None:
        dense = paddle.to_tensor(matrix().toarray())
        found = dense.to_sparse_csr() if "csr" in kind else dense.to_sparse_coo(2)
    x = CSR.of(found)
    x = CSR(x.crows.astype(index), x.cols.astype(index), x.values, x.shape)
    assert np.array_equal(x.to_dense().numpy(), matrix().toarray())
    assert repr(x) == f"CSR(5 x 7, {x.nnz} entries of float64)"
    close(x @ paddle.eye(D, dtype="float64"), x.to_dense())
    assert np.array_equal(x[1:4].to_dense().numpy(), matrix().toarray()[1:4])
    assert len(x[3:]) == 2


def test_entries_of_one_place_add_up_and_rows_may_be_empty():
    crows, cols = paddle.to_tensor([0, 3, 3]), paddle.to_tensor([1, 1, 0])
    x = CSR(crows, cols, paddle.to_tensor([1.0, 2.0, 5.0]), (2, 2))
    assert (x @ paddle.eye(2)).tolist() == [[5, 3], [0, 0]]
    assert x.to_dense().tolist() == [[5, 3], [0, 0]]
    none = CSR.of(sp.csr_array((3, 4), dtype="float32"))
    weight = paddle.ones([4, 2])
    weight.stop_gradient = False
    y = none @ weight
    assert y.tolist() == [[0, 0]] * 3
    assert float(paddle.grad(y.sum(), weight)[0].abs().max()) == 0


def test_the_live_layer_takes_one_and_backward_goes_through():
    layer, x = Layer(), CSR.of(matrix("float32"))
    layer(x).sum().backward()
    found = layer.first.weight.grad
    other = Layer()
    other.set_state_dict(layer.state_dict())
    other(x.to_dense()).sum().backward()
    close(found, other.first.weight.grad, rtol=1e-6)


def test_a_factor_written_into_is_told():
    x, weight = CSR.of(matrix("float32")), paddle.ones([D, 2])
    values = x.values * 1
    values.stop_gradient = weight.stop_gradient = False
    y = x.with_values(values * 1) @ (weight * 1)
    inner = x.with_values(values) @ weight
    with paddle.no_grad():
        weight.zero_()
    paddle.grad(y.sum(), values)
    with pytest.raises(Exception, match="written into between"):
        paddle.grad(inner.sum(), values)


def test_coordinates_in_any_order_and_by_names():
    at = [[1, 0, 1], [0, 1, 0]]
    coo = paddle.sparse.sparse_coo_tensor(at, [5.0, 7.0, 2.0], [2, 2])
    x = CSR.of(coo)
    assert x.to_dense().tolist() == [[0, 7], [7, 0]]
    weight = paddle.randn([2, 3])
    for found in (
        paddle.matmul(y=weight, x=x),
        paddle.matmul(input=x, other=weight),
        paddle.nn.functional.linear(weight=weight, x=x),
    ):
        close(found, x @ weight)


def test_one_read_in_another_process_is_taken_by_layers(tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(CSR.of(matrix("float32"))))
    code = (
        "import pickle, paddle, paddle_chainrules; "
        f"x = pickle.load(open({str(path)!r}, 'rb')); "
        "print(paddle.nn.Linear(7, 4)(x).shape[0])"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "5\n"


def test_a_pattern_written_into_is_told():
    x, weight = CSR.of(matrix("float32")), paddle.ones([D, 2])
    weight.stop_gradient = False
    y = x @ weight
    x.cols.zero_()
    with pytest.raises(Exception, match="written into between"):
        paddle.grad(y.sum(), weight)


REFUSED = {
    "half precision": lambda x: x.astype("float16") @ paddle.ones([D, 2], "float16"),
    "options of embeddings": lambda x: paddle.nn.functional.embedding(
        x, paddle.ones([D, 2], "float64"), max_norm=1.0
    ),
    "two of them": lambda x: x @ x,
    "a number": lambda x: x.astype("float64") @ np.float64(2),
    "activation": lambda x: stateless(paddle.nn.LayerNorm(D))[0].forward(
        stateless(paddle.nn.LayerNorm(D))[1], x
    ),
    "attribute": lambda x: x.reshape([3]),
    "width": lambda x: x @ paddle.ones([3, 2]),
    "dtype": lambda x: x @ paddle.ones([D, 2]),
    "no tensor": lambda x: x @ np.ones((D, 2)),
    "columns": lambda x: CSR(x.crows, x.cols + D, x.values, x.shape),
    "crows": lambda x: CSR(x.crows[:-1], x.cols, x.values, x.shape),
    "order": lambda x: CSR(x.crows.flip(0), x.cols, x.values, x.shape),
    "values": lambda x: CSR(x.crows, x.cols, x.values[:-1], x.shape),
    "whole numbers": lambda x: x.astype("int64"),
    "two dtypes": lambda x: CSR(x.crows.astype("int64"), x.cols, None, x.shape),
    "list": lambda x: CSR.of([[1.0]]),
    "three dimensions": lambda x: CSR.of(np.ones((2, 2, 2))),
    "step": lambda x: x[::2],
    "net": lambda x: fcnet()[0].forward(fcnet()[1], x.astype("float32")),
    "other net": lambda x: FCNet((9, 2)).forward(FCNet((9, 2)).init(0), x),
    "transposed": lambda x: paddle.matmul(x, x.to_dense(), transpose_x=True),
    "samples": lambda x: vmap(lambda x: x @ paddle.ones([D, 2]))(x),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_says_why_and_what_to_do(call):
    with pytest.raises((TypeError, ValueError, AttributeError), match=";"):
        call(CSR.of(matrix()))


def test_gradients_of_a_loss_in_a_trained_step():
    net, params = fcnet()
    x = CSR.of(matrix())

    def loss(params, x):
        return (net.forward(params, x) ** 2).mean()

    value, (grads, grad_x) = value_and_grad(jit(loss), argnums=(0, 1))(params, x)
    expected, (dense, dense_x) = value_and_grad(loss, argnums=(0, 1))(
        params, x.to_dense()
    )
    close(value, expected)
    close(grads, dense)
    close(grad_x.values, entries(dense_x, x))


def test_a_gradient_has_values_alone():
    x = CSR.of(paddle.to_tensor([[0.0, 2.0], [3.0, 0.0]]))
    gradient = grad(lambda x: (x @ paddle.ones([2, 1])).pow(2).sum())(x)
    for ask in (lambda g: g.to_dense(), len, lambda g: g.shape, lambda g: g.nnz):
        with pytest.raises(ValueError, match=r"x\.with_values\(grad\.values\)"):
            ask(gradient)
    dense = x.with_values(gradient.values).to_dense()
    np.testing.assert_array_equal(dense.numpy(), [[0.0, 4.0], [6.0, 0.0]])
