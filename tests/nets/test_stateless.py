"""stateless(layer) against the untouched layer, for every kind of layer."""

import gc
import sys
import weakref

import optree
import paddle
import pytest
from paddle import nn

from conftest import (
    assert_same,
    assert_unchanged,
    native,
    on_threads,
    randn,
    random_like,
    snapshot,
)
from paddle_chainrules import stateless, vjp

TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


class Tied(nn.Layer):
    """One weight in two places, and one layer object used twice."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(3, 5)
        self.decode = nn.Linear(5, 3)
        self.decode.weight = self.encode.weight
        self.again = self.encode

    def forward(self, x):
        hidden = paddle.tanh(self.encode(x))
        return (
            paddle.nn.functional.linear(hidden, self.decode.weight.T, self.decode.bias)
            + self.again(x).sum()
        )


class Nested(nn.Layer):
    """Containers in containers, and a plain list that repeats a parameter."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.LayerList(
            [nn.Sequential(nn.Linear(3, 3), nn.GELU()) for _ in range(2)]
        )
        self.heads = nn.LayerDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 4)})
        self.scale = self.create_parameter([1])
        self.plain = [self.scale]

    def forward(self, x):
        for block in self.blocks:
            x = block(x) * self.plain[0]
        return {"a": self.heads["a"](x), "b": (self.heads["b"](x), x)}


class Unused(nn.Layer):
    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(3, 2), nn.Linear(3, 4)

    def forward(self, x, y):
        return self.used(x)


def frozen():
    layer = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    layer[0].weight.stop_gradient = True
    return layer


def evaluated(layer):
    layer.eval()
    return layer


IMAGE = [2, 3, 6, 7]
CASES = {
    "Linear": lambda: (nn.Linear(3, 2), [randn([4, 3])]),
    "Linear without bias": lambda: (nn.Linear(3, 2, bias_attr=False), [randn([4, 3])]),
    "without parameters": lambda: (nn.Softmax(), [randn([4, 3])]),
    "Identity": lambda: (nn.Identity(), [randn([4, 3])]),
    "Flatten, a view": lambda: (nn.Flatten(), [randn([4, 3, 2])]),
    "Sequential": lambda: (
        nn.Sequential(nn.Linear(3, 16), nn.Sigmoid(), nn.Linear(16, 2)),
        [randn([5, 3])],
    ),
    "tied": lambda: (Tied(), [randn([4, 3])]),
    "nested containers": lambda: (Nested(), [randn([4, 3])]),
    "unused parameters and input": lambda: (Unused(), [randn([4, 3]), randn([4, 3])]),
    "frozen parameter": lambda: (frozen(), [randn([4, 3])]),
    "Conv2D": lambda: (nn.Conv2D(3, 4, (2, 3), padding=1, stride=2), [randn(IMAGE)]),
    "Conv2DTranspose": lambda: (nn.Conv2DTranspose(3, 2, 3), [randn(IMAGE)]),
    "BatchNorm1D, training": lambda: (nn.BatchNorm1D(3), [randn([7, 3])]),
    "BatchNorm2D, evaluation": lambda: (evaluated(nn.BatchNorm2D(3)), [randn(IMAGE)]),
    "LayerNorm": lambda: (nn.LayerNorm(5), [randn([4, 5])]),
    "GroupNorm": lambda: (nn.GroupNorm(2, 4), [randn([2, 4, 3, 5])]),
    "Embedding": lambda: (
        nn.Embedding(6, 3),
        [paddle.to_tensor([[1, 4, 1], [0, 5, 2]])],
    ),
    "Bilinear": lambda: (nn.Bilinear(3, 4, 2), [randn([5, 3]), randn([5, 4], seed=2)]),
    "LSTM": lambda: (nn.LSTM(3, 5), [randn([2, 4, 3])]),
    "LSTM, two layers both ways": lambda: (
        nn.LSTM(3, 5, num_layers=2, direction="bidirect"),
        [randn([2, 4, 3])],
    ),
    "GRU with initial state": lambda: (
        nn.GRU(3, 5),
        [randn([2, 4, 3]), randn([1, 2, 5], seed=3)],
    ),
    "SimpleRNN": lambda: (nn.SimpleRNN(3, 5), [randn([2, 4, 3])]),
    "MultiHeadAttention": lambda: (
        nn.MultiHeadAttention(6, 2),
        [randn([2, 3, 6]), randn([2, 5, 6], seed=1), randn([2, 5, 6], seed=2)],
    ),
    "TransformerEncoderLayer": lambda: (
        evaluated(nn.TransformerEncoderLayer(6, 2, 10)),
        [randn([2, 3, 6])],
    ),
    "Dropout, evaluation": lambda: (
        evaluated(nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))),
        [randn([4, 3])],
    ),
    "weight_norm": lambda: (nn.utils.weight_norm(nn.Linear(3, 4)), [randn([5, 3])]),
    "PReLU": lambda: (nn.PReLU(3), [randn([4, 3])]),
}


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradients_equal_native(case):
    layer, args = CASES[case]()
    net, params, _ = stateless(layer)
    cotangent = random_like(_native_output(layer, args))
    before = snapshot(layer)
    y, pullback = net.pullback(params, *args)
    grad_params, grad_args = pullback(cotangent)
    again = pullback(cotangent)
    value = net.forward(params, *args)
    assert_unchanged(layer, before)

    expected, (by_name, by_arg) = native(layer, args, cotangent)
    assert_same(y, expected, **TOLERANCE)
    assert_same(value, expected, **TOLERANCE)
    assert list(params) == list(by_name)
    assert_same(grad_params, by_name, **TOLERANCE)
    assert_same(grad_args, by_arg, **TOLERANCE)
    assert_same(again, (grad_params, grad_args))
    assert_same(net.vjp(params, tuple(args), cotangent), again, **TOLERANCE)


def _native_output(layer, args):
    """The output's structure, without the statistics moving on."""
    saved = {k: v.clone() for k, v in layer.state_dict().items() if v._is_initialized()}
    output = layer(*args)
    layer.set_state_dict(saved)
    return output


@pytest.mark.parametrize("case", ["Sequential", "LSTM", "Conv2D", "tied"])
def test_theta_form(case):
    layer, args = CASES[case]()
    net, params, _ = stateless(layer)
    cotangent = random_like(layer(*args))
    theta = net.flatten(params)
    assert_same(net.unflatten(theta), params)
    assert_same(net.forward(theta, *args), net.forward(params, *args))
    grad, grad_args = net.vjp(theta, tuple(args), cotangent)
    by_name, by_arg = net.vjp(params, tuple(args), cotangent)
    assert_same(grad, net.flatten(by_name), **TOLERANCE)
    assert_same(grad_args, by_arg, **TOLERANCE)


@pytest.mark.parametrize("case", ["Sequential", "LSTM", "MultiHeadAttention", "tied"])
def test_other_parameters_than_the_layers_own(case):
    """What comes in is what is used, everywhere that the layer holds it."""
    layer, args = CASES[case]()
    net, params, _ = stateless(layer)
    other = {n: randn(p.shape, seed=i) for i, (n, p) in enumerate(params.items())}
    cotangent = random_like(layer(*args))
    found = net.pullback(other, *args)
    layer.set_state_dict(net.to_state_dict(other))
    expected, grads = native(layer, args, cotangent)
    assert_same(found[0], expected, **TOLERANCE)
    assert_same(found[1](cotangent), grads, rtol=1e-4, atol=1e-5)


CHAINS = {
    "one layer": (lambda: nn.Linear(3, 2), True),
    "relu": (lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), True),
    "gelu": (lambda: nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2)), True),
    "other constant": (
        lambda: nn.Sequential(nn.Linear(3, 5), nn.GELU(True), nn.Linear(5, 2)),
        False,
    ),
    "other slope": (
        lambda: nn.Sequential(nn.Linear(3, 5), nn.LeakyReLU(0.2), nn.Linear(5, 2)),
        False,
    ),
    "two activations": (
        lambda: nn.Sequential(
            nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)
        ),
        False,
    ),
    "activation last": (lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU()), False),
    "no bias": (
        lambda: nn.Sequential(
            nn.Linear(3, 5, bias_attr=False), nn.ReLU(), nn.Linear(5, 2)
        ),
        False,
    ),
    "frozen": (frozen, False),
    "dropout in training": (lambda: dropout_net(), False),
    "dropout in evaluation": (lambda: evaluated(dropout_net()), True),
    "dropout that scales": (
        lambda: evaluated(dropout_net(mode="downscale_in_infer")),
        False,
    ),
    "one activation layer twice": (lambda: same_activation(nn.Sigmoid()), True),
    "nothing but dropout": (lambda: evaluated(nn.Sequential(nn.Dropout())), False),
    "a subclass": (lambda: type("Mine", (nn.Linear,), {})(3, 2), False),
    "a hook": (lambda: hooked(nn.Linear(3, 2)), False),
    "tied": (lambda: same_twice(nn.Linear(3, 3)), False),
}


def hooked(layer):
    layer.register_forward_post_hook(lambda layer, inputs, output: output * 2)
    return layer


def dropout_net(**mode):
    return nn.Sequential(
        *(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.4, **mode), nn.Identity()),
        *(nn.Linear(5, 4), nn.Dropout(0.3, **mode), nn.ReLU(), nn.Linear(4, 2)),
    )


def same_activation(act):
    return nn.Sequential(nn.Linear(3, 5), act, nn.Linear(5, 4), act, nn.Linear(4, 2))


def same_twice(layer):
    return nn.Sequential(layer, nn.Tanh(), layer)


@pytest.mark.parametrize("case", CHAINS)
def test_what_is_a_chain(case):
    make, closed = CHAINS[case]
    layer = make()
    net, params, _ = stateless(layer)
    assert (net.chain is not None) == closed
    if case in ("dropout in training", "dropout that scales"):
        return  # random; and Paddle's own refuses the gradient of one sample
    for shape in ([4, 3], [3], [2, 4, 3], [0, 3]):
        x = randn(shape)
        cotangent = random_like(layer(x))
        before = snapshot(layer)
        y, pullback = net.pullback(params, x)
        found = pullback(cotangent)
        assert_unchanged(layer, before)
        expected, grads = native(layer, [x], cotangent)
        assert_same(y, expected, **TOLERANCE)
        assert_same(net.forward(params, x), expected, **TOLERANCE)
        assert_same(found, grads, **TOLERANCE)


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.SimpleRNN])
def test_part_of_the_gradients_where_paddle_gives_only_all(make, capfd):
    """Paddle's recurrent kernels fail where the input's gradient alone is asked for."""
    layer = make(3, 5)
    x, cotangent = randn([2, 4, 3]), randn([2, 4, 5], seed=1)
    net, params, _ = stateless(layer)
    (_, state), pullback = net.pullback(params, x)
    seed = (cotangent, optree.tree_map(lambda _: None, state))
    both = pullback(seed)
    leaf = x.clone()
    leaf.stop_gradient = False
    leaves = [leaf, *layer.parameters()]
    expected = paddle.grad([layer(leaf)[0]], leaves, [cotangent], allow_unused=True)
    assert_same(list(both[0].values()), list(expected[1:]), **TOLERANCE)
    assert_same(pullback(seed, wrt="params"), (both[0], None), **TOLERANCE)
    assert_same(pullback(seed, wrt="args"), (None, (expected[0],)), **TOLERANCE)
    assert capfd.readouterr().err == ""
    weights, inputs = vjp(net.forward, params, x)[1](seed)
    _, pullback = vjp(net.forward, params, x)
    assert_same(pullback(seed, wrt=[1]), (None, inputs), **TOLERANCE)
    assert_same(pullback(seed, wrt=[0]), (weights, None), **TOLERANCE)
    assert capfd.readouterr().err == ""


def test_params_are_copies_and_the_layer_may_go():
    layer = nn.Linear(3, 2)
    net, params, _ = stateless(layer)
    value = layer.weight.numpy().copy()
    params["weight"][0, 0] = 99.0
    assert (layer.weight.numpy() == value).all()
    gone = weakref.ref(layer.weight)
    del layer
    gc.collect()
    assert gone() is None  # the net keeps no parameter of the layer alive
    assert list(net.forward(params, paddle.ones([4, 3])).shape) == [4, 2]


def test_batch_norm_buffers_come_back_and_the_layers_stay():
    layer = nn.BatchNorm2D(3, momentum=0.8)
    net, params, buffers = stateless(layer)
    assert list(params) == ["weight", "bias"]
    assert sorted(buffers) == ["_mean", "_variance"]
    x, cotangent = randn(IMAGE), randn(IMAGE, seed=1)
    before = snapshot(layer)
    given = {name: value.clone() for name, value in buffers.items()}
    y, new = net.forward(params, x, buffers=given)
    y2, pullback, new2 = net.pullback(params, x, buffers=given)
    second = net.forward(params, x, buffers=new)[1]
    net.forward(params, x)
    assert_unchanged(layer, before)
    assert_same(given, buffers)  # what was handed in stays too
    assert_same(dict(net.buffers), buffers)

    expected, grads = native(layer, [x], cotangent)
    assert_same(y, expected, **TOLERANCE)
    assert_same(y2, expected, **TOLERANCE)
    assert_same(pullback(cotangent), grads, **TOLERANCE)
    assert_same(new["_mean"], layer._mean.detach(), **TOLERANCE)
    assert_same(new["_variance"], layer._variance.detach(), **TOLERANCE)
    assert_same(new2, new)
    layer(x)
    assert_same(second["_mean"], layer._mean.detach(), **TOLERANCE)
    assert all(value.stop_gradient for value in new.values())
    with pytest.raises(ValueError, match=r"missing: \['_variance'\]"):
        net.forward(params, x, buffers={"_mean": given["_mean"]})
    wrong = {**given, "_mean": paddle.zeros([5])}
    with pytest.raises(
        ValueError, match=r"buffers\['_mean'\].*\[5\].*needs \[\d\]"
    ) as e:
        net.forward(params, x, buffers=wrong)
    assert ".T" not in str(e.value)


def test_spectral_norm_has_its_power_iteration_in_the_buffers():
    layer = nn.utils.spectral_norm(nn.Linear(3, 4))
    net, params, buffers = stateless(layer)
    before = snapshot(layer)
    y, new = net.forward(params, randn([5, 3]), buffers=buffers)
    assert_unchanged(layer, before)
    assert_same(y, layer(randn([5, 3])), **TOLERANCE)
    assert_same(new["weight_u"], layer.weight_u.detach(), **TOLERANCE)


def test_dropout_in_training_mode_agrees_between_value_and_gradient():
    layer = nn.Dropout(0.5)
    net, params, _ = stateless(layer)
    assert net.training
    x = randn([40, 30])
    y, pullback = net.pullback(params, x)
    kept = (y != 0).astype("float32")
    assert 0.3 < float(kept.mean()) < 0.7
    assert_same(y, x * kept * 2, rtol=1e-6)
    _, (grad,) = pullback(paddle.ones_like(x))
    assert_same(grad, kept * 2)
    paddle.seed(5)
    drawn = net.forward(params, x)
    paddle.seed(5)
    assert_same(net.forward(params, x), drawn)
    layer.eval()  # the net keeps the mode it was made in
    assert not paddle.equal_all(net.forward(params, x), x)


def test_frozen_parameters_are_buffers():
    layer, args = CASES["frozen parameter"]()
    net, params, buffers = stateless(layer)
    assert "0.weight" not in params
    assert_same(buffers["0.weight"], layer[0].weight.detach())
    changed = {**buffers, "0.weight": buffers["0.weight"] * 2}
    y, _ = net.forward(params, *args, buffers=changed)
    layer[0].weight.set_value(changed["0.weight"])
    assert_same(y, layer(*args).detach(), **TOLERANCE)


def test_frozen_by_name():
    layer = nn.Sequential(
        nn.Linear(3, 5), nn.Tanh(), nn.BatchNorm1D(5), nn.Linear(5, 2)
    )
    x, cotangent = randn([4, 3]), randn([4, 2], seed=1)
    before = snapshot(layer)
    _, (by_name, by_arg) = native(layer, (x,), cotangent)
    layer.set_state_dict({n: v for n, (_, v, _) in before["tensors"].items()})
    for frozen, expected in (
        ("0.weight", ["0.weight"]),
        ("0.*", ["0.weight", "0.bias"]),
        (["*.bias", "3.weight"], ["0.bias", "2.bias", "3.weight", "3.bias"]),
        (lambda name: name.startswith("3"), ["3.weight", "3.bias"]),
        ("params", list(by_name)),
    ):
        net, params, buffers = stateless(layer, frozen)
        assert list(params) == [n for n in by_name if n not in expected]
        assert set(expected) <= set(buffers)
        y, pullback = net.pullback(params, x)
        assert_same(y, layer(x), **TOLERANCE)
        layer.set_state_dict({n: v for n, (_, v, _) in before["tensors"].items()})
        grads, (by_x,) = pullback(cotangent)
        assert_same(grads, {n: by_name[n] for n in params}, **TOLERANCE)
        assert_same(by_x, by_arg[0], **TOLERANCE)
    assert_unchanged(layer, before)


def test_a_net_describes_itself():
    layer = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1D(5), nn.Linear(5, 2))
    net, _, _ = stateless(layer.eval(), "0.weight")
    found = net.describe()
    assert str(found).splitlines() == [
        "StatelessLayer(Sequential, 5 parameters of 27 elements)",
        "y = Sequential(...) in evaluation",
        "        name         shape   dtype",
        "        0.bias       [5]     float32",
        "        1.weight     [5]     float32",
        "        1.bias       [5]     float32",
        "        2.weight     [5, 2]  float32",
        "        2.bias       [2]     float32",
        "frozen  0.weight     [3, 5]  float32",
        "buffer  1._mean      [5]     float32",
        "buffer  1._variance  [5]     float32",
        f"27 parameters. {found.runs}",
    ]
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + len(found.rows)
    assert "<td>frozen</td><td>0.weight</td><td>[3, 5]</td><td>float32</td>" in page
    chain, _, _ = stateless(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))
    assert chain.describe().formula == "y = W2' tanh(W1' x + b1) + b2"


def test_keyword_arguments_reach_the_layer():
    class Scaled(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x, *, scale, shift=None):
            y = self.linear(x) * scale
            return y if shift is None else y + shift

    layer = Scaled()
    net, params, _ = stateless(layer)
    x, shift, cotangent = randn([4, 3]), randn([4, 2], seed=1), randn([4, 2], seed=2)
    y, pullback = net.pullback(params, x, scale=3.0, shift=shift)
    expected, grads = native(layer, [x], cotangent, {"scale": 3.0, "shift": shift})
    assert_same(y, expected, **TOLERANCE)
    assert_same(pullback(cotangent), grads, **TOLERANCE)
    with pytest.raises(TypeError, match="scale"):
        net.forward(params, x)
    with pytest.raises(TypeError, match="gain"):
        net.forward(params, x, scale=1.0, gain=2.0)


def test_results_never_show_a_later_change_of_the_inputs():
    for layer in (nn.Identity(), nn.Flatten()):
        net, params, _ = stateless(layer)
        x = randn([4, 3])
        value, (y, pullback) = net.forward(params, x), net.pullback(params, x)
        cotangent = paddle.ones([4, 3])
        _, (grad,) = pullback(cotangent)
        kept = x.clone()
        x[0, 0] = 99.0
        cotangent[0, 0] = 99.0
        assert_same(value, kept)
        assert_same(y, kept)
        assert float(grad[0, 0]) == 1.0


def test_hooks_of_the_layer_run_and_stay():
    layer = nn.Linear(3, 2)
    layer.register_forward_post_hook(lambda layer, inputs, output: output * 2)
    net, params, _ = stateless(layer)
    before = snapshot(layer)
    x = randn([4, 3])
    assert_same(net.forward(params, x), layer(x).detach(), **TOLERANCE)
    assert_unchanged(layer, before)


def test_an_exception_in_the_layer_leaves_everything_usable():
    class Moody(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            y = self.linear(x)
            if x.sum() > 100:
                raise RuntimeError("moody")
            return y

    layer = Moody()
    net, params, _ = stateless(layer)
    before = snapshot(layer)
    with pytest.raises(RuntimeError, match="moody"):
        net.pullback(params, paddle.full([4, 3], 100.0))
    assert_unchanged(layer, before)
    assert_same(net.forward(params, randn([4, 3])), layer(randn([4, 3])).detach())


def test_threads_take_turns():
    layer = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 2))
    net, params, _ = stateless(layer)
    x = randn([64, 3])
    scaled = [{n: p * k for n, p in params.items()} for k in range(1, 5)]
    expected = [net.forward(p, x) for p in scaled]
    failures = []

    def work(k):
        for _ in range(100):
            if not paddle.allclose(net.forward(scaled[k], x), expected[k], 1e-5, 1e-6):
                failures.append(k)

    on_threads(work, [(k,) for k in range(4)])
    assert not failures


def test_state_dict_round_trip_with_tied_names():
    layer = nn.LSTM(3, 5)
    net, params, buffers = stateless(layer)
    exported = net.to_state_dict({n: p * 2 for n, p in params.items()}, buffers=buffers)
    wanted = {n for n, v in layer.state_dict().items() if v._is_initialized()}
    assert set(exported) == wanted
    assert_same(net.from_state_dict(exported), {n: p * 2 for n, p in params.items()})


@pytest.mark.parametrize("frozen", [(), "0.*"])
def test_state_dicts_of_other_layers_are_filled_with_buffers(frozen):
    def make(*between):
        return nn.Sequential(nn.Linear(3, 4), *between, nn.BatchNorm1D(4))

    layer, other = make(), make(nn.Tanh())
    net, params, buffers = stateless(layer, frozen=frozen)
    _, moved = net(params, randn([6, 3]), buffers=buffers)
    for like in (other, other.state_dict()):
        found = net.to_state_dict(params, like=like, buffers=moved)
        assert other.set_state_dict(found) == ([], [])
        held = net.to_state_dict(params, buffers=moved)
        assert_same([*other.state_dict().values()], [*held.values()])
    assert [*found] == [*other.state_dict()]
    assert [*held] == [*layer.state_dict()]
    with pytest.raises(ValueError, match=r"has the tensors.*_mean.*names="):
        net.to_state_dict(params, like=nn.Linear(3, 4), buffers=moved)


def test_a_first_call_with_the_layers_own_parameters():
    layer = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    net, _, _ = stateless(layer)
    x = randn([4, 3])
    assert_same(net(dict(layer.named_parameters()), x), layer(x))


def test_a_layer_that_makes_layers_at_its_first_call():
    class Inner(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", paddle.full([2], 3.0))

        def forward(self, x):
            return x * self.scale

    class Cached(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.cache = nn.LayerDict()

        def forward(self, x):
            if "inner" not in self.cache:
                self.cache["inner"] = Inner()
            return self.cache["inner"](self.linear(x))

    layer = Cached()
    net, params, _ = stateless(layer)
    x, cotangent = randn([4, 3]), randn([4, 2], seed=1)
    for _ in range(3):
        y, pullback = net.pullback(params, x)
        assert_same(y, layer.linear(x).detach() * 3.0, **TOLERANCE)
        assert_same(pullback(cotangent)[1][0], 3 * cotangent @ layer.linear.weight.T)


class Lazy(nn.Layer):
    """Makes what it trains when it sees the first input."""

    def __init__(self, how):
        super().__init__()
        self.how, self.last = how, None

    def forward(self, x):
        if self.how == "layer" and self.last is None:
            self.last = nn.Linear(x.shape[-1], 2)
        if self.how == "parameter" and not hasattr(self, "weight"):
            self.weight = self.create_parameter([x.shape[-1], 2])
        return self.last(x) if self.how == "layer" else x @ self.weight


@pytest.mark.parametrize("jit", [None, True, False])
@pytest.mark.parametrize("how", ["layer", "parameter"])
def test_parameters_made_by_the_first_call_are_refused(how, jit):
    """Each call drew them anew, and none trained them."""
    layer, x = Lazy(how), randn([4, 3])
    net, params, _ = stateless(layer, jit=jit)
    for _ in range(2):
        for call in (net.forward, net.pullback):
            with pytest.raises(TypeError, match=r"made the parameters .*weight"):
                call(params, x)
    expected = layer(x)
    net, params, _ = stateless(layer, jit=jit)
    assert "weight" in " ".join(params)
    for _ in range(3):
        assert_same(net.forward(params, x), expected, rtol=1e-6)


def test_layers_that_are_nested_very_deeply():
    layer = paddle.nn.Linear(3, 2)
    for _ in range(240):
        layer = paddle.nn.Sequential(layer)
    x = paddle.ones([4, 3])
    limit = sys.getrecursionlimit()
    with pytest.raises(RecursionError, match=r"too deeply .*call sys\.setrec"):
        stateless(layer)
    try:
        sys.setrecursionlimit(10_000)
        net, params, _ = stateless(layer)
        assert net(params, x).tolist() == layer(x).tolist()
    finally:
        sys.setrecursionlimit(limit)
