"""The comparisons for users' own layers: they pass what is right and nothing else."""

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.autograd import PyLayer

from conftest import assert_same, assert_unchanged, randn, snapshot
from layers import Tangled
from paddle_chainrules import FCNet, stateless
from paddle_chainrules.testing import TOLERANCES, check_vjp, compare
from paddle_chainrules.transforms.recordings.recording import Recording


class Several(nn.Layer):
    """Nested inputs, integers among them, and nested outputs."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.linear = nn.Linear(4, 2)
        self.unused = nn.Linear(2, 3)

    def forward(self, inputs, index):
        hidden = paddle.tanh(inputs["x"] * self.table(index) + inputs["shift"])
        return {"y": self.linear(hidden), "both": (hidden, index + 1)}


LAYERS = {
    "perceptron": lambda: (
        nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)),
        (randn([4, 3]),),
    ),
    "convolution, batch norm in training": lambda: (
        nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), nn.GELU(), nn.Flatten()),
        (randn([2, 3, 5, 6]),),
    ),
    "dropout in training": lambda: (
        nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5), nn.Linear(50, 2)),
        (randn([4, 3]),),
    ),
    "LSTM": lambda: (nn.LSTM(3, 4), (randn([2, 5, 3]),)),
    "several": lambda: (
        Several(),
        (
            {"x": randn([5, 4]), "shift": randn([4], seed=1)},
            paddle.to_tensor([0, 6, 2, 2, 1]),
        ),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_right_layers_pass_and_stay_as_they_are(name):
    layer, args = LAYERS[name]()
    before = snapshot(layer)
    paddle.seed(5)
    expected = paddle.rand([3])
    paddle.seed(5)
    report = check_vjp(layer, None, args)
    assert report.ok
    assert_unchanged(layer, before)
    assert_same(paddle.rand([3]), expected)
    tensors = {row.tensor for row in report.rows}
    trained = [n for n, p in layer.named_parameters() if not p.stop_gradient]
    used = {f"params[{n!r}]" for n in trained if not n.startswith("unused")}
    assert used | {"output 0", "argument 0"} <= tensors
    kinds = {(row.dtype, row.oracle) for row in report.rows}
    assert kinds == {
        ("float32", "native"),
        ("float32", "float64"),
        ("float64", "native"),
        ("float64", "differences"),
    }
    text = str(report)
    assert "output 0" in text
    assert "more than" not in text
    assert report.worst.error <= report.worst.tolerance


def test_a_net_with_parameters_of_its_own():
    layer, args = LAYERS["perceptron"]()
    net, params, _ = stateless(layer)
    other = {name: 2 * value for name, value in params.items()}
    before = snapshot(layer)
    for given in (other, net.flatten(other)):
        assert check_vjp(net, given, args, layer=layer, dtypes=["float32"]).ok
    assert_unchanged(layer, before)
    net = FCNet((3, 5, 2), "gelu")
    assert check_vjp(net, net.init(1), args).ok
    with pytest.raises(TypeError, match="its layer is needed too; give layer="):
        check_vjp(stateless(layer)[0], params, args)


def test_a_wrong_gradient_of_a_net_is_found(monkeypatch):
    net, x = FCNet((3, 3, 3), "tanh"), randn([3, 3])
    original = Recording.gradients

    def transposed(*args, **kwargs):
        first, *grads = original(*args, **kwargs)
        return [first.T.contiguous(), *grads]

    monkeypatch.setattr(Recording, "gradients", transposed)
    with pytest.raises(AssertionError) as error:
        check_vjp(net, net.init(0), (x,), dtypes=["float32"])
    bad = [line for line in str(error.value).splitlines() if "more than" in line]
    assert len(bad) == 2
    assert all("params['0.weight']" in line for line in bad)


class Wrong(PyLayer):
    """A square whose gradient forgets the two."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensor()
        return x * cotangent


def test_a_wrong_gradient_of_the_layers_own_is_found_by_differences():
    class Layer(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(Wrong.apply(x))

    with pytest.raises(AssertionError) as error:
        check_vjp(Layer(), None, (randn([4, 3]),))
    bad = [line for line in str(error.value).splitlines() if "more than" in line]
    assert len(bad) == 1
    assert "differences" in bad[0]
    assert "argument 0" in bad[0]


def test_keyword_arguments_and_nesting():
    layer = Tangled()
    scales = {"b": randn([5, 1], seed=2), "a": randn([4], seed=3)}
    index = paddle.to_tensor([0, 4, 2, 2, 1, 3])
    args = ((randn([5, 3]), scales), [index]), ("plain", 7)
    kwargs = {"gain": randn([6, 1]), "shift": {"by": (randn([2]),)}, "twice": True}
    before = snapshot(layer)
    report = check_vjp(layer, None, args, kwargs)
    assert_unchanged(layer, before)
    assert report.ok
    compared = [(row.oracle, row.dtype, row.tensor) for row in report.rows]
    for i in (0, 1, 2, 6, 7):  # x, a, b; then gain and by
        assert ("native", "float32", f"argument {i}") in compared
        assert ("differences", "float64", f"argument {i}") in compared
    assert len(set(compared)) == len(compared) == 3 * 13 + 9


def test_compare():
    x = randn([4, 3])
    layer = nn.Linear(3, 2)

    def by_hand(x):
        return x @ layer.weight + layer.bias

    assert compare(layer, by_hand, (x,)).ok
    dropout = nn.Dropout()
    assert compare(dropout, lambda x: dropout(x), (x,)).ok
    with pytest.raises(AssertionError, match=r"output 0 .*\[2, 1\] +more than 1e-04"):
        compare(lambda x: x, lambda x: x + 0.1 * (x == x[2, 1]), (x,))
    assert compare(lambda x: x, lambda x: x * 1.001, (x,), tolerance=0.01).ok
    for other in (lambda x: (x,), lambda x: x.astype("float64")):
        with pytest.raises(AssertionError):
            compare(lambda x: x, other, (x,))


def test_what_is_no_number_differs():
    def broken(x):
        return x / paddle.zeros_like(x)

    nan = paddle.to_tensor([np.nan, 1.0])
    assert compare(lambda x: x, lambda x: x + 0, (nan,)).ok
    with pytest.raises(AssertionError, match=r"inf  +\[1\]"):
        compare(broken, lambda x: x, (nan,))
    assert set(TOLERANCES) == {"float16", "bfloat16", "float32", "float64"}


@pytest.mark.parametrize("how", ["frozen", "buffer", "attribute"])
def test_a_norm_whose_scale_is_not_trained(how):
    """Paddle alone gives its input a wrong gradient; the oracle does not."""

    class Normed(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(3, 4), nn.LayerNorm(4)
            self.norm.weight.set_value(paddle.to_tensor([0.5, -1.0, 2.0, 1.5]))
            if how == "frozen":
                self.norm.weight.stop_gradient = True
            scale = self.norm.weight.detach().clone()
            if how == "buffer":
                self.register_buffer("scale", scale)
            self.scale = scale

        def forward(self, x):
            h = self.linear(x)
            if how == "frozen":
                return self.norm(h)
            return paddle.nn.functional.layer_norm(h, [4], self.scale, self.norm.bias)

    check_vjp(Normed(), None, (randn([5, 3]),))


class Indexed(nn.Layer):
    """With buffers of integers and Booleans, which have one dtype only."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("order", paddle.to_tensor([1, 0]))
        self.register_buffer("mask", paddle.to_tensor([True, False]))

    def forward(self, x):
        h = self.linear(x)[:, self.order]
        return paddle.where(self.mask, h, paddle.tanh(h))


def test_buffers_that_are_no_floats():
    check_vjp(Indexed(), None, (randn([4, 3]),))


def test_a_tensor_beside_a_number_is_told():
    with pytest.raises(AssertionError, match=r"(?s)output 0 is .* and 1.0"):
        compare(lambda x: x, lambda x: 1.0, (paddle.ones([3]),))
