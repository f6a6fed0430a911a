"""jit as a method, and Python state that a function reads besides its arguments."""

import argparse
import copy
import gc
import importlib
import operator
import os
import sys
import types
import weakref
from array import array
from collections import ChainMap, OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle
import pytest

from conftest import assert_same, programs_on, randn
from paddle_chainrules import (
    CaptureError,
    RecompileWarning,
    explain,
    grad,
    jit,
    value_and_grad,
)

pytestmark = programs_on

runs: list[int] = []
SCALE = 1.0


class Slots:
    __slots__ = ("k", "unset")

    def __init__(self) -> None:
        self.k = 1.5


class Model:
    factor = 0.5

    def __init__(self) -> None:
        self.scale: Any = 2.0
        self.w = paddle.rand([3], "float64")
        self.config = {"a": 0.7, "b": [1.0, 2.0]}
        self.slots = Slots()
        self.activation: Any = paddle.tanh
        self.array = np.float64([0.1, 0.2, 0.3])
        self.steps = 0

    def inner(self, x: Any) -> Any:
        return x * self.config["b"][1]  # type: ignore[index]

    @property
    def shift(self) -> Any:
        return getattr(self, "hidden", 0.25)

    def value(self, x: Any, power: int = 1) -> Any:
        found = self.inner(self.w * x**power * self.scale) * self.config["a"]
        found = found * self.slots.k * self.factor * SCALE + self.shift
        return (self.activation(found) + paddle.to_tensor(self.array)).sum()

    @jit
    def compiled(self, x: Any, power: int = 1) -> Any:
        runs.append(1)
        return self.value(x, power)


def check(model: Model, x: Any, most: int = 1) -> None:
    before = len(runs)
    for _ in range(4):
        found = model.compiled(x)
        np.testing.assert_allclose(float(found), float(model.value(x)), rtol=1e-12)
    assert len(runs) - before <= most


@pytest.fixture
def x() -> Any:
    return paddle.rand([3], "float64") + 0.5


def test_a_method_keeps_its_program(x: Any) -> None:
    model = Model()
    before = len(runs)
    for _ in range(5):
        model.steps += 1  # which the method does not read
        model.compiled(x)
    assert len(runs) - before <= 2  # arrays become tensors that no operator shows
    assert "compiled" in explain(model.compiled)
    assert explain(Model().compiled, x).startswith("It runs as a program")


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "scale", 3.0),
        lambda m: setattr(m, "scale", -0.0),
        lambda m: setattr(m, "scale", paddle.to_tensor(3.0, "float64")),
        lambda m: setattr(m, "w", paddle.rand([3], "float64")),
        lambda m: m.w.set_value(paddle.rand([3], "float64")),
        lambda m: m.config.__setitem__("a", 0.3),
        lambda m: m.config["b"].__setitem__(1, 0.2),
        lambda m: m.config.__setitem__("b", (0.4, 0.9)),
        lambda m: setattr(m.slots, "k", 0.1),
        lambda m: setattr(m, "slots", Slots()),
        lambda m: setattr(m, "hidden", 5.0),
        lambda m: setattr(m, "factor", 5.0),
        lambda m: setattr(m, "activation", m.inner),
        lambda m: setattr(m, "activation", lambda y: m.config["a"] * y),
        lambda m: setattr(m, "activation", partial(paddle.scale, scale=m.scale)),
        lambda m: m.array.__setitem__(1, 7.0),
    ],
)
def test_state_that_is_set_is_noticed(change: Any, x: Any) -> None:
    model = Model()
    check(model, x, 2)
    change(model)
    check(model, x, 2)
    model.config["a"] = 0.9
    check(model, x, 2)


def test_globals_and_class_variables_are_noticed(
    x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model()
    check(model, x, 2)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    check(model, x, 2)
    monkeypatch.setattr(Model, "factor", 0.1)
    check(model, x, 2)
    monkeypatch.setattr(Model, "inner", lambda self, x: x * 7)
    check(model, x, 2)
    monkeypatch.undo()
    check(model, x, 0)  # the first program again


def test_what_the_function_itself_changes_makes_no_programs(x: Any) -> None:
    seen: list[Any] = []
    count = {"calls": 0}

    def fn(x: Any) -> Any:
        count["calls"] += 1
        seen.append(count["calls"])
        return x * 2

    compiled = jit(fn)
    for _ in range(5):
        compiled(x)
    assert seen == [1]


def test_a_method_that_changes_its_instance_runs_as_it_is(x: Any) -> None:
    class Counts:
        def __init__(self) -> None:
            self.calls, self.cache = 0, None
            self.seen: list[Any] = []

        @jit
        def counted(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

        @jit
        def listed(self, x: Any) -> Any:
            self.seen.append(1)
            return x * len(self.seen)

        @jit
        def cached(self, x: Any) -> Any:
            runs.append(1)
            if self.cache is None:
                self.cache = 3.0
            return x * self.cache

        @partial(jit, strict=True)
        def strictly(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    counts = Counts()
    for call in range(1, 6):
        np.testing.assert_allclose(counts.counted(x), x * call)
        np.testing.assert_allclose(counts.listed(x), x * call)
    assert "sets self.calls at each call" in explain(counts.counted, x)
    before = len(runs)
    for _ in range(5):
        np.testing.assert_allclose(counts.cached(x), x * 3)
    assert len(runs) - before == 2
    for _ in range(2):
        counts.strictly(x)
    with pytest.raises(CaptureError, match=r"sets self\.calls at each call"):
        counts.strictly(x)


def test_a_closed_over_layer_may_be_set_to_evaluation() -> None:
    layer = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.Dropout(0.5))
    compiled = jit(lambda x: layer(x))
    x = paddle.rand([5, 3])
    compiled(x)
    compiled(x)
    layer.eval()
    for _ in range(2):
        assert_same(compiled(x), layer(x), rtol=1e-6)
    layer.train()
    assert (compiled(paddle.ones([50, 3])) == 0).any()
    layer.eval()
    layer[0] = paddle.nn.Linear(3, 4)
    assert_same(compiled(x), layer(x), rtol=1e-6)
    layer[0].weight = paddle.create_parameter([3, 4], "float32")
    assert_same(compiled(x), layer(x), rtol=1e-6)


def test_forward_of_a_layer_is_a_method() -> None:
    class Scaled(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = paddle.nn.Linear(3, 4), 2.0

        @jit
        def forward(self, x: Any) -> Any:
            runs.append(1)
            return self.linear(x) * self.scale

    layer, x = Scaled(), paddle.rand([5, 3])
    before = len(runs)
    for _ in range(4):
        assert_same(layer(x), layer.linear(x) * 2, rtol=1e-6)
    assert len(runs) == before + 1
    layer.scale = 3.0
    assert_same(layer(x), layer.linear(x) * 3, rtol=1e-6)
    cotangent = paddle.rand([5, 4])
    (layer(x) * cotangent).sum().backward()
    want = 3 * x.T @ cotangent
    assert_same(layer.linear.weight.grad, want, rtol=1e-5)
    assert_same(copy.deepcopy(layer)(x), layer(x), rtol=1e-6)


def test_instances_have_their_own_programs_and_go(x: Any) -> None:
    models = [Model() for _ in range(3)]
    for i, model in enumerate(models):
        model.scale = float(i + 1)
        check(model, x, 2)
    np.testing.assert_allclose(Model.compiled(models[1], x), models[1].value(x))
    gone = weakref.ref(models.pop())
    del model
    gc.collect()
    assert gone() is None


def test_classes_that_python_compares_by_value(x: Any) -> None:
    @dataclass(frozen=True)
    class Frozen:
        scale: float

        @jit
        def times(self, x: Any) -> Any:
            runs.append(1)
            return x * self.scale

    @dataclass
    class Open:
        scale: float

        @jit
        def times(self, x: Any) -> Any:
            runs.append(1)
            return x * self.scale

    before = len(runs)
    for _ in range(4):
        Frozen(2.0).times(x)
    assert len(runs) == before + 1
    np.testing.assert_allclose(Frozen(3.0).times(x), x * 3)
    model = Open(2.0)
    before = len(runs)
    for _ in range(4):
        model.times(x)
    assert len(runs) == before + 1
    model.scale = 5.0
    np.testing.assert_allclose(model.times(x), x * 5)


def test_static_class_and_optioned_methods(x: Any) -> None:
    class Functions:
        scale = 2.0

        @staticmethod
        @jit
        def static(x: Any) -> Any:
            runs.append(1)
            return x * 2

        @classmethod
        @jit
        def of_class(cls, x: Any) -> Any:
            runs.append(1)
            return x * cls.scale

        @jit(static_argnums=(0, 2), strict=True)
        def powers(self, x: Any, power: int) -> Any:
            runs.append(1)
            return x**power if power > 2 else x

    for _ in range(3):
        Functions.static(x), Functions().static(x)
        Functions.of_class(x), Functions().of_class(x)
    assert len(runs) >= 2
    Functions.scale = 3.0
    np.testing.assert_allclose(Functions.of_class(x), x * 3)
    functions = Functions()
    for _ in range(3):
        np.testing.assert_allclose(functions.powers(x, 3), x**3)
        np.testing.assert_allclose(functions.powers(x, power=2), x)


def test_derivatives_of_a_method(x: Any) -> None:
    model = Model()
    for _ in range(4):
        found = grad(model.compiled)(x)
        want = grad(model.value)(x)
        np.testing.assert_allclose(found, want, rtol=1e-12)
    value, _ = jit(value_and_grad(model.value))(x)
    np.testing.assert_allclose(value, model.value(x), rtol=1e-12)


def test_the_warning_names_the_state() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.rate = 0.0

        @jit
        def step(self, x: Any) -> Any:
            return x * self.rate

    def train(trainer: Trainer) -> None:
        for i in range(9):
            trainer.rate = float(i)
            trainer.step(paddle.ones([3]))

    with pytest.warns(RecompileWarning, match=r"self\.rate went from 6\.0 to 7\.0"):
        train(Trainer())


def check_changes(fn: Any, *changes: Any) -> None:
    """Compare a jitted function with the function itself, after each change."""
    compiled, x = jit(fn), paddle.to_tensor([1.5, 0.5, -2.0])
    for change in (lambda: None, *changes):
        change()
        for _ in range(3):
            np.testing.assert_array_equal(compiled(x), fn(x))


class Special:
    """Reads its state in methods that no code names."""

    def __init__(self) -> None:
        self.data = {"k": 1.0}

    def __getitem__(self, name: str) -> float:
        return self.data[name]

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or name == "data":
            raise AttributeError(name)
        return self.data[name]

    def __float__(self) -> float:
        return self.data["k"]

    def __mul__(self, other: Any) -> Any:
        return other * self.data["k"]

    def __len__(self) -> int:
        return int(self.data["k"])


@pytest.mark.parametrize(
    "use",
    [
        lambda held, x: x * held["k"],
        lambda held, x: x * held.k,
        lambda held, x: x * float(held),
        lambda held, x: held * x,
        lambda held, x: x * len(held),
    ],
)
def test_special_methods_are_followed(use: Any) -> None:
    held = Special()
    check_changes(partial(use, held), lambda: held.data.update(k=3.0))


@pytest.mark.parametrize(
    "held",
    [
        UserDict(k=1.0),
        ChainMap({"k": 1.0}),
        {"k": 1.0},
        OrderedDict(k=1.0),
        defaultdict(float, k=1.0),
    ],
)
def test_mappings_are_compared(held: Any) -> None:
    check_changes(lambda x: x * held["k"], lambda: held.__setitem__("k", 2.0))


@pytest.mark.parametrize("kind", [types.SimpleNamespace, argparse.Namespace])
def test_namespaces_are_compared(kind: Any) -> None:
    held = kind(k=1.0)
    check_changes(lambda x: x * held.k, lambda: setattr(held, "k", 2.0))


def test_bytes_that_change_are_compared() -> None:
    held, more = bytearray(b"\x01\x02"), array("d", [1.0, 2.0])
    check_changes(lambda x: x * held[0], lambda: held.__setitem__(0, 7))
    check_changes(lambda x: x * more[0], lambda: more.__setitem__(0, 7.0))


def test_attributes_by_computed_names() -> None:
    class Held:
        def __init__(self) -> None:
            self.k1, self.at = 1.0, 1

        def scaled(self, x: Any) -> Any:
            return x * getattr(self, f"k{self.at}")

    held = Held()
    check_changes(held.scaled, lambda: setattr(held, "k1", 4.0))


def test_static_methods_and_classes_through_an_instance() -> None:
    config = {"k": 1.0}

    class Held:
        k = 1.0

        @staticmethod
        def times(x: Any) -> Any:
            return x * config["k"]

        def by_static(self, x: Any) -> Any:
            return self.times(x)

        def by_type(self, x: Any) -> Any:
            return x * type(self).k

    held = Held()
    check_changes(held.by_static, lambda: config.update(k=9.0))
    check_changes(held.by_type, lambda: setattr(Held, "k", 5.0))


def test_objects_of_paddle_are_compared() -> None:
    layer = paddle.nn.LeakyReLU(0.1)
    loss = paddle.nn.MSELoss()
    optimizer = paddle.optimizer.SGD(
        0.1, parameters=[paddle.create_parameter([1], "float32")]
    )
    schedule = paddle.optimizer.lr.StepDecay(0.5, 1)
    check_changes(layer, lambda: setattr(layer, "_negative_slope", 0.5))
    check_changes(lambda x: loss(x, x + 1), lambda: setattr(loss, "reduction", "sum"))
    check_changes(lambda x: x * optimizer.get_lr(), lambda: optimizer.set_lr(0.5))
    check_changes(lambda x: x * schedule.last_lr, schedule.step, schedule.step)


def test_hooks_and_replaced_methods_of_layers() -> None:
    layer, handles = paddle.nn.Linear(3, 3), []

    def triple(layer: Any, given: Any, output: Any) -> Any:
        return output * 3

    check_changes(
        lambda x: layer(x),
        lambda: handles.append(layer.register_forward_post_hook(triple)),
        lambda: handles[0].remove(),
        lambda: setattr(layer, "forward", lambda x: x * 2),
    )


def test_a_refused_program_leaves_no_effects() -> None:
    """What the function did while it was captured is undone before it runs as it is."""

    class Counts:
        def __init__(self) -> None:
            self.calls, self.seen = 0, [0]

        @jit
        def decides(self, x: Any) -> Any:
            self.calls += 1
            self.seen.append(self.calls)
            return x * self.calls if x.sum() > 0 else x

        @jit
        def makes_tensors(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls * paddle.to_tensor([1.0, 1.0, 1.0])

    x, appended = paddle.ones([3]), []
    for name in ("decides", "makes_tensors"):
        counts = Counts()
        for call in range(1, 6):
            assert float(getattr(counts, name)(x)[0]) == call
            assert counts.calls == call
    decides = Counts()
    for _ in range(3):
        decides.decides(x)
    assert decides.seen == [0, 1, 2, 3]

    def leaves(x: Any) -> Any:
        appended.append(1)
        return x * float(x.sum())

    compiled = jit(leaves)
    for _ in range(4):
        compiled(x)
    assert len(appended) == 4


def test_large_and_deep_state(x: Any) -> None:
    large = list(range(100_000))
    deep: Any = None
    for _ in range(20_000):
        deep = (deep, 1.0)
    check_changes(lambda x: x * large[3])
    check_changes(lambda x: x * deep[1])
    assert "nested too deep" in explain(jit(lambda x: x * deep[1]), x)


class Raises:
    """An object whose attributes can't be asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Unread(dict[str, float]):
    def __len__(self) -> int:
        raise RuntimeError("closed")


class NoName:
    pass


NoName.__module__ = None  # type: ignore[assignment]


class Fresh(ChainMap[str, Any]):
    """A mapping that reads its values from elsewhere."""

    def __getitem__(self, key: str) -> Any:
        return np.arange(3.0)


def gone() -> Any:
    return weakref.proxy(NoName())


@pytest.mark.parametrize(
    "make", [Raises, lambda: Unread(a=1.0), NoName, lambda: Fresh({"a": 1.0}), gone]
)
def test_objects_that_can_not_be_read_raise_nothing(make):
    odd = make()
    x = paddle.rand([3], "float64")
    double = jit(lambda x: x * 2.0 if odd is not None else x)
    for _ in range(3):
        np.testing.assert_array_equal(double(x), x.numpy() * 2)
        explain(double, x)


def test_what_mappings_and_arrays_of_objects_hold_is_compared():
    inner, numbers = [2.0], np.array([3.0])
    frozen = types.MappingProxyType({"list": inner, "array": numbers})
    objects = np.array([5.0, None], dtype=object)
    x = paddle.rand([3], "float64")

    @jit
    def scaled(x):
        return x * frozen["list"][0] * float(frozen["array"][0]) * objects[0]

    np.testing.assert_allclose(scaled(x), x.numpy() * 30)
    inner[0] = 7.0
    np.testing.assert_allclose(scaled(x), x.numpy() * 105)
    numbers[0] = 11.0
    np.testing.assert_allclose(scaled(x), x.numpy() * 385)
    objects[0] = 2.0
    np.testing.assert_allclose(scaled(x), x.numpy() * 154)


@pytest.mark.parametrize("of", [list, deque], ids=lambda of: of.__name__)
def test_items_beside_one_that_the_function_changes_are_compared(of):
    held, x = of([0, 1.0, [2.0]]), paddle.rand([3], "float64")

    @jit
    def scaled(x):
        held[0] += 1
        return x * held[1] + held[2][0]

    for k in range(1, 8):
        held[1] = float(k)
        np.testing.assert_allclose(scaled(x), x.numpy() * k + held[2][0])
        held[2][0] = 2.0 + k % 3
        np.testing.assert_allclose(scaled(x), x.numpy() * k + 2.0 + k % 3)
        if k == 4:
            held.append(None)


def test_each_kind_of_state_changes_once_a_call_where_there_is_no_program():
    members: set[int] = set()
    content, numbers, slots = bytearray(), np.zeros(2), Slots()
    typed, objects = array("d"), np.array([0, None], dtype=object)
    count = 0

    @jit
    def step(x):
        nonlocal count
        count += 1
        members.add(len(members))
        content.append(1)
        typed.append(1.0)
        numbers[1] += 1
        objects[0] += 1
        slots.k += 1
        return x * 2 if float(x.sum()) > 0 else x

    for k in range(1, 4):
        step(paddle.ones([3]))
        assert members == {*range(k)}
        assert len(content) == len(typed) == k
        assert numbers.tolist() == [0, k]
        assert objects[0] == k
        assert slots.k == 1.5 + k
        assert count == k


def test_state_of_all_of_many_layers_is_compared():
    net = paddle.nn.Sequential(*(paddle.nn.Linear(3, 3) for _ in range(80)))
    run = jit(net)
    x = paddle.rand([2, 3])

    def check():
        np.testing.assert_allclose(run(x), net(x), rtol=1e-5, atol=1e-6)

    with paddle.no_grad():
        check()
        net[77].weight = paddle.create_parameter([3, 3], "float32")
        check()
        net[78] = paddle.nn.Linear(3, 3)
        check()
        net[79].register_forward_post_hook(lambda layer, given, out: out * 3)
        check()


def test_state_that_can_no_longer_be_read_ends_programs_without_an_error():
    class Closing(dict[str, float]):
        closed = False

        def __len__(self) -> int:
            if self.closed:
                raise RuntimeError("closed")
            return super().__len__()

    held = Closing(a=2.0)
    x = paddle.rand([3], "float64")
    scaled = jit(lambda x: x * held["a"] + 1.0)
    for _ in range(60):
        scaled(x)
    held.closed = True
    np.testing.assert_allclose(scaled(x), x.numpy() * 2 + 1)


def test_a_layer_that_keeps_a_tensor() -> None:
    """Paddle moves such an attribute to the layer's buffers."""

    class Keeps(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.last: Any = None

        @jit
        def forward(self, x: Any) -> Any:
            if self.last is not None:
                x = x + self.last
            self.last = x * 2.0
            return x

    layer, x = Keeps(), paddle.ones([3])
    assert [float(layer(x)[0]) for _ in range(5)] == [1.0, 3.0, 7.0, 15.0, 31.0]


def test_a_class_may_have_no_module() -> None:
    """As functions of SymPy's have none."""
    kind = type("Symbol", (), {"__module__": None, "factor": 2.0})
    symbol: Any = kind()
    run = jit(lambda x: x * symbol.factor)
    x = paddle.rand([3])
    for factor in (2.0, 3.0):
        symbol.factor = factor
        for _ in range(2):
            np.testing.assert_allclose(run(x), x * factor, rtol=1e-6)
    assert explain(run, x).startswith("It runs as a program")


class Stored:
    """A data descriptor that keeps its value under another name."""

    def __get__(self, owner, kind=None):
        return owner.__dict__["stored"]

    def __set__(self, owner, value):
        owner.__dict__["stored"] = value


class WithStored:
    rate = Stored()


class Meta(type):
    factor = 2.0


class OfMeta(metaclass=Meta):
    @classmethod
    def scaled(cls, x):
        return x * cls.factor


class FirstState:
    factor = 2.0


class SecondState:
    factor = 5.0


class Derived(FirstState):
    pass


def through_a_descriptor():
    owner = WithStored()
    owner.rate = 2.0
    return lambda x: x * owner.rate, lambda: setattr(owner, "rate", 5.0)


def through_a_metaclass():
    return OfMeta.scaled, lambda: setattr(Meta, "factor", 5.0)


def through_another_class():
    owner = FirstState()
    return lambda x: x * owner.factor, lambda: setattr(owner, "__class__", SecondState)


def through_other_bases():
    owner = Derived()
    return (
        lambda x: x * owner.factor,
        lambda: setattr(Derived, "__bases__", (SecondState,)),
    )


def through_a_module_s_getattr():
    module = types.ModuleType("with_getattr")
    exec(
        "values = {'factor': 2.0}\ndef __getattr__(name): return values[name]",
        vars(module),
    )
    return lambda x: x * module.factor, lambda: module.values.update(factor=5.0)


def through_a_memoryview():
    content = bytearray([2])
    view = memoryview(content)
    return lambda x: x * float(view[0]), lambda: content.__setitem__(0, 5)


def a_module(name, **values):
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(values)
    return module


def through_an_import():
    settings = a_module("settings_of_a_test", factor=2.0)

    def fn(x):
        import settings_of_a_test

        return x * settings_of_a_test.factor

    return fn, lambda: setattr(settings, "factor", 5.0)


def through_an_import_from():
    settings = a_module("settings_of_a_test", factor=2.0)

    def fn(x):
        from settings_of_a_test import factor

        return x * factor

    return fn, lambda: setattr(settings, "factor", 5.0)


def through_an_import_of_a_submodule():
    inner = types.ModuleType("package_of_a_test.inner")
    inner.factor = 2.0
    sys.modules["package_of_a_test.inner"] = inner
    a_module("package_of_a_test", inner=inner, __path__=[])

    def fn(x):
        import package_of_a_test.inner as settings

        return x * settings.factor

    return fn, lambda: setattr(inner, "factor", 5.0)


def through_another_module():
    a_module("settings_of_a_test", factor=2.0)

    def fn(x):
        import settings_of_a_test

        return x * settings_of_a_test.factor

    return fn, lambda: a_module("settings_of_a_test", factor=5.0)


def through_a_methodcaller():
    owner = Derived()
    owner.factor = 2.0
    owner.scaled = lambda x: x * owner.factor
    return (
        lambda x: operator.methodcaller("scaled", x)(owner),
        lambda: setattr(owner, "scaled", lambda x: x * 5.0),
    )


@pytest.mark.parametrize(
    "make",
    [
        *(through_an_import, through_an_import_from, through_an_import_of_a_submodule),
        *(through_another_module, through_a_methodcaller),
        *(through_a_descriptor, through_a_metaclass, through_another_class),
        *(through_other_bases, through_a_module_s_getattr, through_a_memoryview),
    ],
)
def test_state_that_is_reached_by_a_detour_is_noticed(make):
    fn, change = make()
    run, x = jit(fn), randn([3])
    for _ in range(40):
        assert_same(run(x), x * 2.0)
    change()
    for _ in range(40):
        assert_same(run(x), x * 5.0)


def test_what_no_name_tells_is_no_program():
    def fn(x):
        return x * globals()["SCALE"]

    def imported(x):
        return x * importlib.import_module(__name__).SCALE

    for function in (fn, imported):
        with pytest.raises(CaptureError, match="does not tell which variables or"):
            jit(function, strict=True)(randn([3]))


def test_a_module_that_the_first_call_imports(tmp_path, monkeypatch):
    (tmp_path / "late_settings_of_a_test.py").write_text("factor = 2.0")
    monkeypatch.syspath_prepend(tmp_path)

    def fn(x):
        import late_settings_of_a_test

        return x * late_settings_of_a_test.factor

    run, x = jit(fn), randn([3])
    for _ in range(5):
        assert_same(run(x), x * 2.0)
    sys.modules["late_settings_of_a_test"].factor = 5.0
    for _ in range(40):
        assert_same(run(x), x * 5.0)


def by_the_flag_of_a_tensor():
    w = randn([3])
    fn = lambda x: x * 2.0 if w.stop_gradient else x * 5.0  # noqa: E731
    return fn, [lambda: setattr(w, "stop_gradient", False)]


def by_trainable_parameters():
    layer = paddle.nn.Linear(3, 3)

    def fn(x):
        pairs = layer.named_parameters()
        return x * sum((p**2).sum() for _, p in pairs if p.trainable)

    return fn, [
        lambda: setattr(layer.bias, "trainable", False),
        lambda: setattr(layer.bias, "trainable", True),
    ]


def by_an_attribute_of_a_tensor():
    w = randn([3])
    fn = lambda x: x * getattr(w, "tag", 2.0)  # noqa: E731
    return fn, [
        lambda: setattr(w, "tag", 5.0),
        lambda: setattr(w, "tag", 6.0),
        lambda: delattr(w, "tag"),
    ]


def by_a_bound_method_of_a_dict():
    settings = {"k": 2.0}
    get = settings.get
    return lambda x: x * get("k"), [lambda: settings.update(k=5.0)]


def by_a_bound_method_of_a_list():
    items = [1.0, 2.0]
    index = items.index
    return lambda x: x * index(2.0), [lambda: items.insert(0, 7.0)]


def by_views_of_a_dict():
    settings = OrderedDict(k=2.0)
    values, pairs = settings.values(), settings.items()
    return (
        lambda x: x * sum(values) + dict(pairs)["k"],
        [lambda: settings.update(k=5.0), lambda: settings.update(j=7.0)],
    )


def by_all_variables_of_a_class():
    class Settings:
        k = 2.0

    settings = Settings()
    return lambda x: x * vars(type(settings))["k"], [lambda: setattr(Settings, "k", 5)]


def by_a_polynomial():
    polynomial = np.poly1d([1.0, 2.0])
    return (
        lambda x: x * float(polynomial(1.0)),
        [lambda: polynomial.coeffs.__setitem__(0, 5.0)],
    )


def by_the_environment():
    os.environ["FACTOR_OF_A_TEST"] = "2"
    return (
        lambda x: x * float(os.getenv("FACTOR_OF_A_TEST", "1")),
        [lambda: os.environ.update(FACTOR_OF_A_TEST="5")],
    )


class Terms:
    def __init__(self):
        self.twice = lambda x: x * 2.0

    def total(self, x):
        return sum(term(x) for term in vars(self).values())

    def counted(self, x):
        return x * float(len(self.__dict__) + len(dir(self)))

    def asked(self, x):
        return x * (2.0 if "thrice" in self.__dict__ else 3.0)


def by_added_attributes(method):
    terms = Terms()
    run = getattr(terms, method)
    return lambda x: run(x), [lambda: setattr(terms, "thrice", lambda x: x * 3.0)]


def by_variables_added_to_a_module():
    module = types.ModuleType("of_a_test")
    module.first = 2.0

    def fn(x):
        return x * float(sum(n in ("first", "second") for n in vars(module)))

    return fn, [lambda: setattr(module, "second", 5.0)]


def test_code_that_imports_a_package_runs_as_a_program():
    """Though the package loads its parts by names that it computes."""
    importlib.import_module("scipy.interpolate")

    def solved(x):  # is read, since what holds it is
        from scipy.interpolate import BarycentricInterpolator

        return BarycentricInterpolator(x, x)

    problem = {"solution": solved, "factor": 2.0}

    def fn(x):
        return x * problem["factor"]

    run, x = jit(fn, strict=True), randn([3])
    assert_same(run(x), x * 2.0)
    problem["factor"] = 5.0
    assert_same(run(x), x * 5.0)


def by_a_flag_of_paddle():
    def flag():
        return paddle.get_flags("FLAGS_sort_sum_gradient")["FLAGS_sort_sum_gradient"]

    return (
        lambda x: x * (2.0 if flag() else 3.0),
        [
            lambda: paddle.set_flags({"FLAGS_sort_sum_gradient": True}),
            lambda: paddle.set_flags({"FLAGS_sort_sum_gradient": False}),
        ],
    )


@pytest.mark.parametrize(
    "make",
    [
        *(by_the_environment, by_a_flag_of_paddle, by_variables_added_to_a_module),
        *(partial(by_added_attributes, m) for m in ("total", "counted", "asked")),
        *(by_the_flag_of_a_tensor, by_trainable_parameters, by_views_of_a_dict),
        *(by_an_attribute_of_a_tensor, by_a_bound_method_of_a_dict, by_a_polynomial),
        *(by_a_bound_method_of_a_list, by_all_variables_of_a_class),
    ],
)
def test_state_of_tensors_and_of_what_is_bound(make):
    fn, changes = make()
    x = randn([3])
    run, gradient = jit(fn), grad(lambda x: fn(x).sum())
    for change in (lambda: None, *changes):
        change()
        ones = paddle.ones_like(x)
        for _ in range(12):
            assert_same(run(x), fn(x))
            assert_same(gradient(x), fn(ones) - fn(paddle.zeros_like(x)))


def test_gradients_of_tensors_are_no_part_of_a_program():
    layer = paddle.nn.Linear(3, 2)
    parameters, one = layer.parameters(), paddle.ones([])

    def norm(scale):
        return sum((p.grad**2).sum() for p in parameters).sqrt() * scale

    @jit
    def step(x):
        loss = (layer(x) ** 2).mean()
        for p, gradient in zip(parameters, paddle.grad(loss, parameters), strict=True):
            p.grad = gradient
        return loss.detach()

    run = jit(norm)
    for i in range(12):
        layer.clear_gradients()
        step(randn([4, 3], seed=i))
        assert_same(run(one), norm(one))
    with pytest.raises(CaptureError, match="a value leaves the program by x.grad"):
        jit(norm, strict=True)(one)


def test_an_import_in_a_long_function_is_a_program():
    """It names more than a byte can count, so its instructions have a prefix."""
    settings = a_module("settings_of_a_test", factor=2.0)
    lines = [f"    if x is None: x.name_{i}" for i in range(300)]
    lines += [
        "    import settings_of_a_test",
        "    return x * settings_of_a_test.factor",
    ]
    scope = {"__name__": __name__}
    exec("\n".join(["def fn(x):", *lines]), scope)
    run, x = jit(scope["fn"], strict=True), randn([3])
    assert_same(run(x), x * 2.0)
    settings.factor = 5.0
    assert_same(run(x), x * 5.0)
