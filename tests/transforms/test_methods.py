"""jit of methods: programs of each instance, for what it holds at the call."""

import copy
import functools
import gc
import pickle
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, programs_on, randn
from paddle_chainrules import CaptureError, RecompileWarning, explain, jit

X = randn([5, 3])
CALLS = []


@dataclass
class Model:
    """Attributes of every kind that counts."""

    weight: paddle.Tensor
    scale: float = 2.0
    sizes: list = field(default_factory=lambda: [1, 2])
    options: dict = field(default_factory=lambda: {"shift": 0.5, "names": ("a",)})
    array: Any = field(default_factory=lambda: np.ones(3, "float32"))
    chosen: set = field(default_factory=lambda: {1})
    inner: Any = None

    def plain(self, x, rate=1.0):
        y = x * self.weight * self.scale * sum(self.sizes) + self.options["shift"]
        y = y * paddle.to_tensor(self.array) * len(self.chosen) * rate
        return y if self.inner is None else y * self.inner.factor

    @jit
    def step(self, x, rate=1.0):
        CALLS.append(1)
        return self.plain(x, rate)


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor


def model(**kwargs):
    return Model(randn([3], seed=1), **kwargs)


def new_calls(own, *args):
    """How often a call captures; it is right at any rate."""
    before = len(CALLS)
    assert_same(own.step(X, *args), own.plain(X, *args))
    return len(CALLS) - before


def appended(m):
    m.sizes.append(4)


CHANGES = {
    "a number": lambda m: setattr(m, "scale", 3.0),
    "a list": appended,
    "a dict": lambda m: m.options.update(shift=1.5),
    "an array in place": lambda m: m.array.fill(2.0),
    "a set": lambda m: m.chosen.add(7),
    "another tensor": lambda m: setattr(m, "weight", randn([3], seed=2)),
    "a slot of an object": lambda m: setattr(m.inner, "factor", 4.0),
    "another object": lambda m: setattr(m, "inner", Slotted(5.0)),
}


@programs_on
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_set_from_outside_is_seen(name):
    own = model(inner=Slotted(3.0))
    assert [new_calls(own) for _ in range(4)] == [1, 0, 0, 0]
    CHANGES[name](own)
    assert [new_calls(own) for _ in range(3)] == [1, 0, 0]


@programs_on
def test_what_is_as_before_finds_its_program():
    own = model()
    assert new_calls(own) == 1
    own.scale = 3.0
    assert new_calls(own) == 1
    own.scale = float("2.0")  # another object
    own.sizes = [1, 2]
    assert new_calls(own) == 0
    own.weight.set_value(randn([3], seed=5))
    assert new_calls(own) == 0
    assert [new_calls(own, 0.1 * k) for k in range(1, 5)] == [1, 1, 0, 0]


@programs_on
def test_each_instance_has_its_own():
    first, second = model(), model(scale=5.0)
    assert [new_calls(m) for m in (first, second, first, second)] == [1, 1, 0, 0]
    for twin in (copy.copy(first), copy.deepcopy(first)):
        assert [new_calls(twin) for _ in range(2)] == [1, 0]
        twin.scale = 7.0
        new_calls(twin)
    assert new_calls(first) == 0
    assert Model.step(first, X).shape == X.shape


@programs_on
def test_an_instance_goes_when_nobody_has_it():
    own = model()
    new_calls(own)
    gone = weakref.ref(own)
    del own
    gc.collect()
    assert gone() is None


def test_instances_and_their_methods_are_pickled():
    own = model()
    own.step(X)
    again = pickle.loads(pickle.dumps(own))
    assert_same(again.step(X), again.plain(X))
    assert_same(pickle.loads(pickle.dumps(own.step))(X), own.plain(X))


def test_a_method_keeps_its_instance():
    expected = model().plain(X)
    assert_same(model().step(X), expected)
    step = model().step
    gc.collect()
    assert_same(step(X), expected)
    assert step.__name__ == "step"


class Counting:
    def __init__(self):
        self.hidden, self.calls, self.log = paddle.zeros([3]), 0, []

    @jit
    def step(self, x):
        self.calls += 1
        self.log.append(self.calls)
        self.hidden = self.hidden + x
        return self.hidden * self.calls


def test_a_method_that_sets_attributes_runs_as_it_is():
    own = Counting()
    found = [float(own.step(paddle.ones([3]))[0]) for _ in range(4)]
    assert found == [1.0, 4.0, 9.0, 16.0]
    assert own.log == [1, 2, 3, 4]
    assert_same(own.hidden, paddle.full([3], 4.0))


@programs_on
def test_it_says_that_attributes_are_set():
    own = Counting()
    assert "Counting.step sets what its instance holds" in explain(own.step, X[0])
    assert own.log == []
    strict = functools.partial(jit, strict=True)

    class Strict(Counting):
        step = strict(Counting.__dict__["step"].__wrapped__)

    own = Strict()
    with pytest.raises(CaptureError, match="return the new values"):
        own.step(X[0])
    assert own.log == []
    assert own.calls == 0


@programs_on
def test_too_much_to_compare_runs_as_it_is():
    own = model()
    own.options["data"] = [[k] for k in range(5000)]
    assert new_calls(own) == 1
    assert new_calls(own) == 1
    assert "more than 2000 things" in explain(own.step, X)
    own.options["data"] = np.zeros(1 << 20)
    assert "an array of 8388608 bytes" in explain(own.step, X)


@programs_on
def test_programs_of_one_instance_pile_up():
    own = model()
    weights = [randn([3], seed=k) for k in range(10)]

    def run():
        for own.weight in weights:
            new_calls(own)

    with pytest.warns(RecompileWarning, match="attribute 'weight' went from a float32"):
        run()


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.one, self.drop, self.two = (
            nn.Linear(3, 4),
            nn.Dropout(0.5),
            nn.Linear(4, 2),
        )

    @jit
    def forward(self, x):
        CALLS.append(1)
        return self.two(self.drop(paddle.tanh(self.one(x))))


@programs_on
def test_layers_in_both_modes_with_gradients():
    paddle.seed(0)
    net = Net()
    net.eval()
    for _ in range(3):
        before = len(CALLS)
        loss = (net(X) ** 2).sum()
        loss.backward()
    assert len(CALLS) == before
    plain = net.two(paddle.tanh(net.one(X)))
    np.testing.assert_allclose(net(X).numpy(), plain.numpy(), 1e-5, 1e-6)
    expected = paddle.grad((plain**2).sum(), net.parameters())
    for p, e in zip(net.parameters(), expected, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), 3 * e.numpy(), 1e-4, 1e-5)
    net.train()
    paddle.seed(4)
    found = [net(X) for _ in range(2)]
    paddle.seed(4)
    for y in found:
        expected = net.two(net.drop(paddle.tanh(net.one(X))))
        np.testing.assert_allclose(y.numpy(), expected.numpy(), 1e-5, 1e-6)
