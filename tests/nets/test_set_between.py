"""Values that are set between a call and its way back, which Paddle does not count."""

import paddle
import pytest
from paddle import nn

from conftest import assert_same, randn
from paddle_chainrules import FCNet, jit, linearize, stateless, vjp

X = randn([4, 3], "float64")


class Own(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        return paddle.tanh(self.inner(x))


def of_layer(make):
    def made():
        layer = make().to(dtype="float64")
        net, _, _ = stateless(layer)
        return layer, net, dict(layer.named_parameters())

    return made


def of_fcnet():
    net = FCNet((3, 5, 2), "tanh", "float64")
    return None, net, net.init(0)


NETS = {
    "FCNet": of_fcnet,
    "layers": of_layer(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    ),
    "of one's own": of_layer(Own),
}


def step(layer, params, make):
    optimizer = make(learning_rate=0.1, parameters=layer.parameters())
    layer(X).sum().backward()
    optimizer.step()


WRITES = {
    "set_value": lambda layer, params: [p.set_value(p * 2) for p in params.values()],
    "copy_": lambda layer, params: [p.copy_(p * 2, True) for p in params.values()],
}
OF_LAYERS = {
    "set_state_dict": lambda layer, params: layer.set_state_dict(
        {name: value * 2 for name, value in layer.state_dict().items()}
    ),
    **{
        name: lambda layer, params, name=name: step(
            layer, params, getattr(paddle.optimizer, name)
        )
        for name in ("SGD", "Momentum", "Adam", "AdamW", "RMSProp")
    },
}
CASES = [(net, write) for net in NETS for write in WRITES]
CASES += [(net, write) for net in ("layers", "of one's own") for write in OF_LAYERS]


@pytest.mark.parametrize("calls", [1, 7])
@pytest.mark.parametrize(("name", "write"), CASES)
def test_the_way_back_is_refused(name, write, calls):
    layer, net, params = NETS[name]()
    with paddle.no_grad():
        for _ in range(calls):
            y, pullback = net.pullback(params, X)
        before = pullback(paddle.ones_like(y))
        held = {key: p.clone() for key, p in params.items()}
    (WRITES | OF_LAYERS)[write](layer, params)
    with paddle.no_grad():
        with pytest.raises(RuntimeError, match="since the forward"):
            pullback(paddle.ones_like(y))
        for key, p in params.items():
            p.set_value(held[key])
        y, pullback = net.pullback(params, X)
        assert_same(pullback(paddle.ones_like(y)), before)


def test_writes_elsewhere_are_no_matter():
    _, net, params = of_fcnet()
    y, pullback = net.pullback(params, X)
    expected = pullback(paddle.ones_like(y))
    for value in (randn([4, 3]), X.clone(), *of_fcnet()[2].values()):
        value.set_value(value * 2)
    step(layer := nn.Linear(3, 2).to(dtype="float64"), None, paddle.optimizer.SGD)
    assert_same(pullback(paddle.ones_like(y)), expected)
    assert layer.weight.grad is not None


def test_a_view_of_what_was_given():
    _, net, params = of_fcnet()
    theta = net.flatten(params)
    y, pullback = net.pullback(theta, X)
    theta[3:5].set_value(paddle.zeros([2], "float64"))
    with pytest.raises(RuntimeError, match="set to other values"):
        pullback(paddle.ones_like(y))


def function(w, x):
    return paddle.tanh(x @ w)


TRANSFORMS = {
    "vjp": lambda w: (lambda y, back: lambda: back(paddle.ones_like(y)))(
        *vjp(function, w, X)
    ),
    "linearize": lambda w: (lambda y, push: lambda: push(w, X))(
        *linearize(function, w, X)
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functions(name):
    w = randn([3, 2], "float64")
    for _ in range(4):
        back = TRANSFORMS[name](w)
        back()
        w.set_value(w * 0.5)
        with pytest.raises(RuntimeError, match="take the gradient before the update"):
            back()


def test_a_program_on_the_callers_graph():
    program = jit(function, strict=True)
    w = randn([3, 2], "float64")
    w.stop_gradient = False
    for _ in range(3):
        y = program(w, X)
        w.set_value(w * 0.5)
        with pytest.raises((RuntimeError, OSError), match="set to other values"):
            y.sum().backward()


def test_training_by_paddles_optimizer_goes_on():
    layer = nn.Linear(3, 2).to(dtype="float64")
    net, _, _ = stateless(layer)
    params = dict(layer.named_parameters())
    optimizer = paddle.optimizer.Adam(0.01, parameters=layer.parameters())
    losses = []
    for _ in range(30):
        loss = (net(params, X) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
