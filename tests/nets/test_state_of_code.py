"""Python state that a layer's own code reads, in all that runs its net as a program."""

import collections
import enum
import functools
import importlib
import operator
import sys
import types

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, programs_on, randn
from paddle_chainrules import FCNet, grad, jit, laplacian, stateless, value_and_grad
from paddle_chainrules import vmap as vmap_of

pytestmark = programs_on

SCALE = 2.0
ROWS = [2.0]
BESIDE = paddle.to_tensor([2.0])
calls = 0

settings = types.ModuleType("settings_of_a_test")
settings.k = 2.0
sys.modules["settings_of_a_test"] = settings
read_k = operator.attrgetter("k")


class Config:
    k = 2.0


class Kind(enum.Enum):
    FIRST = [2.0]  # noqa: RUF012


def scaled(y):
    return y * SCALE


@paddle.no_grad()
def without_gradients(y):
    return y.detach() * 0.0 + SCALE


class Base(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 1)
        self.read, self.fn, self.steps = read_k, lambda y: y * SCALE, 0

    def value(self, x):
        return paddle.tanh(self.inner(x))


class ReadsGlobal(Base):
    def forward(self, x):
        return self.value(x) * SCALE


class ReadsList(Base):
    def forward(self, x):
        return self.value(x) * ROWS[0]


class ReadsClass(Base):
    def forward(self, x):
        return self.value(x) * Config.k


class ReadsOwnClass(Base):
    k = 2.0

    def forward(self, x):
        return self.value(x) * self.k


class ReadsTensor(Base):
    def forward(self, x):
        return self.value(x) * BESIDE


class CallsHelper(Base):
    def forward(self, x):
        return scaled(self.value(x))


class CallsHelperWithoutGradients(Base):
    def forward(self, x):
        y = self.value(x)
        return y * without_gradients(y)


class ReadsModule(Base):
    def forward(self, x):
        return self.value(x) * self.read(settings)


class HoldsFunction(Base):
    def forward(self, x):
        return self.fn(self.value(x))


class InAnother(Base):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(ReadsGlobal(), nn.LeakyReLU(1.0))

    def forward(self, x):
        return self.body(x)


class Counts(Base):
    def forward(self, x):
        global calls
        calls += 1
        self.steps += 1
        return self.value(x) * SCALE


LAYERS = [
    *(ReadsGlobal, ReadsList, ReadsClass, ReadsOwnClass, ReadsTensor, CallsHelper),
    *(CallsHelperWithoutGradients, ReadsModule, HoldsFunction, InAnother, Counts),
]


def set_all(value):
    global SCALE
    SCALE = ROWS[0] = settings.k = Config.k = ReadsOwnClass.k = Kind.FIRST.value[0] = (
        value
    )
    BESIDE.set_value(paddle.to_tensor([value]))


@pytest.fixture(autouse=True)
def as_before():
    set_all(2.0)
    yield
    set_all(2.0)


def ways(net, params, x):
    """Return calls that give a value or gradient, all of them in proportion to it."""
    ones = paddle.ones([len(x), 1])
    loss = lambda p, x: net(p, x).sum()  # noqa: E731
    compiled, steps = jit(loss), jit(value_and_grad(loss))
    own, slope = jit(net), grad(lambda p: net(p, x).sum())
    rows = vmap_of(lambda row: net(params, row[None])[0])
    return {
        "value": lambda: net(params, x),
        "pullback": lambda: net.pullback(params, x)[1](ones)[1][0],
        "vjp": lambda: net.vjp(params, x, ones)[1],
        "jit": lambda: compiled(params, x),
        "jit(net)": lambda: own(params, x),
        "step": lambda: steps(params, x)[1]["inner.weight"],
        "grad": lambda: slope(params)["inner.weight"],
        "vmap": lambda: rows(x),
        "laplacian": lambda: laplacian(net, params, x),
    }


@pytest.mark.parametrize("compiled", [None, True])
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_programs_see_state_that_a_layer_reads(kind, compiled):
    layer = kind()
    net, params, _ = stateless(layer, jit=compiled)
    if kind is InAnother:
        params = {
            name: randn(p.shape, seed=k) for k, (name, p) in enumerate(params.items())
        }
    x = randn([4, 3])
    for name, call in ways(net, params, x).items():
        if kind is InAnother and name in ("step", "grad"):
            continue
        set_all(2.0)
        for _ in range(40):
            before = call()
        for value in (20.0, 2.0, 6.0):
            set_all(value)
            for _ in range(2):
                np.testing.assert_allclose(
                    call().numpy(), before.numpy() * value / 2, 1e-5, 1e-6, err_msg=name
                )


def test_an_activation_of_ones_own_is_read():
    net = FCNet((3, 5, 1), lambda y: paddle.tanh(y) * SCALE)
    params, x = net.init(0), randn([4, 3])
    compiled = jit(lambda p, x: net(p, x))
    for value in (2.0, 20.0, 3.0):
        set_all(value)
        for _ in range(3):
            np.testing.assert_allclose(compiled(params, x), net(params, x), 1e-5, 1e-6)


def test_a_layer_that_changes_state_at_each_call_makes_few_programs():
    net, params, _ = stateless(Counts(), jit=True)
    for _ in range(30):
        net(params, randn([4, 3]))
    assert len(net._programs._caches) <= 3


method = operator.methodcaller("get")
bound = functools.partial(getattr, settings, "k")


class Object:
    def __init__(self):
        self.k = 2.0

    def get(self):
        return self.k

    def times(self, factor, x):
        return x * self.k * factor

    twice = functools.partialmethod(times, 2.0)


held = Object()

READS = {
    "vars of a module": lambda x: x * vars(settings)["k"],
    "the dict of a module": lambda x: x * settings.__dict__["k"],
    "getattr of a module": lambda x: x * getattr(settings, "k"),  # noqa: B009
    "an attrgetter from outside": lambda x: x * read_k(settings),
    "a methodcaller from outside": lambda x: x * method(held),
    "a partial of getattr": lambda x: x * bound(),
    "a list in an enumeration": lambda x: x * Kind.FIRST.value[0],
    "a partialmethod": lambda x: held.twice(x),
}


@pytest.mark.parametrize("name", READS)
def test_jit_sees_state_that_is_read_by_ways_round(name):
    fn, x = READS[name], randn([3])
    compiled = jit(fn)
    for value in (2.0, 20.0, 3.0):
        set_all(value)
        held.k = value
        for _ in range(3):
            np.testing.assert_allclose(compiled(x), fn(x))
    held.k = 2.0


def alias_of_a_list():
    first, second = [2.0], [3.0]
    which = {"now": first}
    return lambda x: x * (first[0] + 10 * second[0] + 100 * which["now"][0]), (
        lambda: which.update(now=second),
        lambda: which.update(now=first),
    )


def alias_of_an_array():
    first, second = np.float64([2.0]), np.float64([3.0])
    which = {"now": first}
    return lambda x: x * float(first[0] + 10 * second[0] + 100 * which["now"][0]), (
        lambda: which.update(now=second),
        lambda: which.update(now=first),
    )


def shape_of_an_array():
    box = {"a": np.ones([2, 3])}
    return lambda x: x * box["a"].shape[0], (
        lambda: box.update(a=np.ones([3, 2])),
        lambda: box.update(a=np.ones([6])),
        lambda: setattr(box["a"], "shape", (1, 6)),
    )


def dtype_of_an_array():
    box = {"a": np.float64([1.5])}
    return lambda x: x * float(box["a"][0]), (
        lambda: box.update(a=box["a"].view("int64")),
        lambda: box.update(a=np.float32([1.5, 2.0])),
    )


class Multiplies:
    def __init__(self, k):
        self.k = k

    def times(self, x):
        return x * self.k


def instance_of_a_method():
    first, second = Multiplies(2.0), Multiplies(3.0)
    which = {"now": first.times}
    return lambda x: which["now"](x) + x * (first.k - second.k), (
        lambda: which.update(now=second.times),
        lambda: which.update(now=first.times),
    )


KINDS_OF_STATE = {
    f.__name__: f
    for f in (
        *(alias_of_a_list, alias_of_an_array, shape_of_an_array, dtype_of_an_array),
        instance_of_a_method,
    )
}


@pytest.mark.parametrize("transform", ["jit", "grad"])
@pytest.mark.parametrize("name", KINDS_OF_STATE)
def test_changes_of_what_names_stand_for_are_seen(name, transform):
    fn, changes = KINDS_OF_STATE[name]()
    x = randn([3], "float64")
    if transform == "jit":
        compiled, want = jit(fn), fn
    else:
        compiled = grad(lambda x: fn(x).sum())
        want = lambda x: fn(paddle.ones_like(x))  # noqa: E731
    for change in (lambda: None, *changes, *changes):
        change()
        for _ in range(8):
            np.testing.assert_allclose(compiled(x).numpy(), want(x).numpy())


def test_orders_of_dicts_in_a_queue_of_arguments_count():
    def first(queue, x):
        return x * next(iter(queue[0].values()))

    compiled, x = jit(first), randn([3])
    a, b = paddle.to_tensor(2.0), paddle.to_tensor(3.0)
    for tree in ({"a": a, "b": b}, {"b": b, "a": a}, {"a": a, "b": b}):
        for _ in range(8):
            found = compiled(collections.deque([tree]), x)
            np.testing.assert_allclose(found, first([tree], x), 1e-6)


def test_members_of_sets_are_told_apart_by_their_types():
    members = {1}
    compiled, x = (
        jit(lambda x: x * (1.0 if int in map(type, members) else 2.0)),
        randn([3]),
    )
    for now in ({1}, {1.0}, {1}, {1.0}):
        members.clear()
        members.update(now)
        for _ in range(3):
            factor = 1.0 if type(next(iter(now))) is int else 2.0
            np.testing.assert_allclose(compiled(x).numpy(), x.numpy() * factor)


class TakesTrees(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, tree, scale=None, **more):
        first = next(iter(tree.values()))
        y = self.inner(first) * 2.0 + sum(more.values(), 0.0)
        return y if scale is None else y * scale


@pytest.mark.parametrize("compiled", [None, True])
def test_orders_of_dicts_and_keywords_count_for_nets(compiled):
    net, params, _ = stateless(TakesTrees(), jit=compiled)
    other = stateless(TakesTrees(), jit=False)[0]
    a, b, scale = randn([4, 3]), randn([4, 3], seed=1), randn([2], seed=2)
    c = randn([4, 2], seed=3)
    calls = [
        (({"a": a, "b": b},), {}),
        (({"b": b, "a": a},), {}),
        (({"a": a, "b": b},), {"scale": scale}),
        (({"b": b, "a": a}, scale), {}),
        (({"a": a},), {"z": scale, "scale": scale}),
    ]
    for k in range(40):
        for args, kwargs in calls:
            value, back = net.pullback(params, *args, **kwargs)
            if k > 36 or k < 6:
                want, own = other.pullback(params, *args, **kwargs)
                np.testing.assert_allclose(value.numpy(), want.numpy(), 1e-5, 1e-6)
                again = net(params, *args, **kwargs)
                np.testing.assert_allclose(again.numpy(), want.numpy(), 1e-5, 1e-6)
                assert_same(back(c), own(c), rtol=1e-4, atol=1e-5)
                wrt = ("params", "kwargs") if kwargs else "params"
                assert_same(back(c, wrt=wrt), own(c, wrt=wrt), rtol=1e-4, atol=1e-5)
                grads = net.vjp(params, args, c, **kwargs)
                assert_same(
                    grads, other.vjp(params, args, c, **kwargs), rtol=1e-4, atol=1e-5
                )


@functools.wraps(paddle.nn.functional.relu)
def activation(y):
    return paddle.nn.functional.relu(y) * SCALE


def test_functions_that_wrap_those_of_paddle_are_read():
    x = paddle.to_tensor([1.0, 2.0])
    compiled, slope = jit(lambda x: activation(x)), grad(lambda x: activation(x).sum())
    for value in (2.0, 5.0, 2.0, 7.0):
        set_all(value)
        for _ in range(6):
            np.testing.assert_allclose(compiled(x).numpy(), [value, 2 * value])
            np.testing.assert_allclose(slope(x).numpy(), [value, value])


class TakesFunction(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x, fn):
        return fn(self.inner(x))


def test_functions_among_the_arguments_of_nets_are_read():
    net, params, _ = stateless(TakesFunction(), jit=True)
    rows, x = [2.0], randn([2, 3])
    fn = lambda y: y * rows[0]  # noqa: E731
    for _ in range(40):
        before = net(params, x, fn).numpy()
    for value in (6.0, 2.0, 10.0):
        rows[0] = value
        for _ in range(3):
            after = net(params, x, fn).numpy()
            np.testing.assert_allclose(after, before * value / 2.0, 1e-5, 1e-6)


def test_shared_buffers_are_read_from_then_on():
    layer = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1D(5))
    layer.eval()
    x = randn([4, 3])
    net, params, _ = stateless(layer)
    compiled = jit(lambda p, x: net(p, x))
    slope = grad(lambda x: net(params, x).sum())
    calls = {
        "value": lambda: net(params, x),
        "jit": lambda: compiled(params, x),
        "vjp": lambda: net.vjp(params, x, paddle.ones([4, 5]))[1],
        "grad": lambda: slope(x),
    }
    for mean, variance in ((0.0, 1.0), (100.0, 4.0), (3.0, 9.0)):
        shared = {"1._mean": paddle.full([5], mean)}
        shared["1._variance"] = paddle.full([5], variance)
        net.share_buffers(shared)
        other = stateless(layer, jit=False)[0]
        other.share_buffers(shared)
        want = other(params, x).numpy()
        wanted_slope = other.vjp(params, x, paddle.ones([4, 5]))[1].numpy()
        for name, call in calls.items():
            for _ in range(8):
                found = call().numpy()
            right = want if name in ("value", "jit") else wanted_slope
            np.testing.assert_allclose(found, right, 1e-4, 1e-4, err_msg=name)


def module_with(text, name):
    module = types.ModuleType(name)
    exec(text, vars(module))
    return module


def test_variables_of_one_name_in_two_modules_are_two():
    inner = module_with("scale = 2.0\ndef helper(v): return v * scale", "inner_of_test")
    outer = module_with(
        "scale = 0\ndef f(v):\n    global scale\n    scale = scale + 1\n"
        "    return helper(v)",
        "outer_of_test",
    )
    outer.helper = inner.helper
    compiled, x = jit(outer.f), randn([3])
    for value in (2.0, 5.0, 3.0):
        inner.scale = value
        for _ in range(3):
            np.testing.assert_allclose(compiled(x).numpy(), x.numpy() * value)


def test_a_module_of_ones_own_that_is_called_as_one_of_python(tmp_path, monkeypatch):
    text = "SPEED = 2.0\ndef loss(x):\n    return (x * x * SPEED).sum()\n"
    (tmp_path / "this.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "this", raising=False)
    module = importlib.import_module("this")
    assert module.__file__.startswith(str(tmp_path))
    x = paddle.to_tensor([1.0, 2.0])
    compiled, slope = jit(module.loss), grad(module.loss)
    for value in (2.0, 5.0, 3.0):
        module.SPEED = value
        for _ in range(6):
            assert float(compiled(x)) == 5 * value
            np.testing.assert_allclose(slope(x).numpy(), [2 * value, 4 * value])
    monkeypatch.delitem(sys.modules, "this")


def test_minus_zero_is_another_number_in_all_types():
    x = paddle.ones([2])
    for kind in (float, np.float64, np.float32):
        compiled = jit(lambda x, n: x / paddle.full([2], float(n)))
        for sign in (1.0, -1.0, 1.0):
            for _ in range(3):
                found = compiled(x, kind(sign * 0.0)).numpy()
                np.testing.assert_array_equal(
                    found, np.full(2, sign * np.inf, "float32")
                )
