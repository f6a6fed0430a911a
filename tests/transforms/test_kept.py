"""Transforms become programs unasked, where nothing of a function's is lost by it."""

import copy
import functools
import gc
import itertools
import logging
import math
import pickle
import random
import time
import types
import weakref

import numpy as np
import paddle
import pytest

from conftest import assert_same, on_threads, programs_on, randn
from paddle_chainrules import (
    FCNet,
    explain,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jit,
    jvp,
    stateless,
    value_and_grad,
    vmap,
)
from paddle_chainrules.transforms.as_programs.auto_jit import eager_reason

pytestmark = programs_on

close = functools.partial(assert_same, rtol=1e-10, atol=1e-12)
NET = FCNet((3, 5, 1), "tanh", "float64")
ENOUGH = 8
"""Calls after which there is a program where there will be one."""


def cubes(x, w):
    return (w * x.sin() ** 3).sum()


TRANSFORMS = {
    "grad": lambda fn: grad(fn),
    "value_and_grad": lambda fn: value_and_grad(fn, (0, 1)),
    "jacrev": lambda fn: jacrev(fn, 1),
    "jacfwd": lambda fn: jacfwd(fn),
    "hessian": lambda fn: hessian(fn),
    "vmap": lambda fn: vmap(fn, (0, None)),
    "vmap of grad": lambda fn: vmap(grad(fn), (0, None)),
    "vmap of jacrev of grad": lambda fn: vmap(jacrev(grad(fn)), (0, None)),
    "jvp": lambda fn: lambda x, w: jvp(fn, (x, w), (x * 2.0, w)),
    "hvp": lambda fn: lambda x, w: hvp(lambda x: fn(x, w), x, x * 0.5),
}


def calls_of(fn):
    """A function that counts how often it is called, unseen by anybody."""
    seen = types.SimpleNamespace(count=0)
    code = fn.__code__

    def count(frame, event, arg):
        seen.count += event == "call" and frame.f_code is code

    class Counting:
        def __enter__(self):
            import sys

            sys.setprofile(count)
            return seen

        def __exit__(self, *_):
            import sys

            sys.setprofile(None)

    return Counting()


def runs_as_program(fn, call):
    """Whether calls leave the function alone by now."""
    for _ in range(ENOUGH):
        call()
    with calls_of(fn) as seen:
        call()
    return seen.count == 0


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_same_by_a_program(name):
    def fn(x, w):
        return (w * x.sin() ** 3).sum()

    transform = TRANSFORMS[name]
    x, w = randn([4, 3], "float64"), randn([3], "float64", 1)
    expected = jit(transform(cubes), strict=True)(x, w)
    for _ in range(ENOUGH):  # made anew each time, as users write it
        close(transform(fn)(x, w), expected)
    kept = runs_as_program(fn, lambda: transform(fn)(x, w))
    assert kept or name == "hvp"  # whose lambda is another each time
    other = randn([4, 3], "float64", 2)
    close(transform(fn)(other, w), jit(transform(cubes))(other, w))
    more = randn([6, 3], "float64", 2)
    close(transform(fn)(more, w), jit(transform(cubes))(more, w))


def test_a_jitted_function_is_part_of_the_program():
    jitted = jit(lambda x: (x.sin() ** 3).sum())
    x = randn([4, 3], "float64")
    for _ in range(ENOUGH):
        close(grad(jitted)(x), 3.0 * x.sin() ** 2 * x.cos())
    assert eager_reason(grad(jitted)) == ""


class Doubling:
    def __init__(self):
        self.times = 2.0

    def __get__(self, owner, kind=None):
        return self.times


class Scale:
    factor = 2.0
    described = Doubling()

    @functools.cached_property
    def cached(self):
        return self.own + FACTOR

    def __init__(self):
        self.own, self.items = 3.0, [1.0, 2.0]


FACTOR, TABLE, OBJECT = 2.0, {"a": [1.0, 2.0], "b": np.ones(3)}, Scale()
LAYER = paddle.nn.Sequential(paddle.nn.Linear(3, 3), paddle.nn.Dropout(0.5))
MODULE = types.ModuleType("a_module_of_the_users")
MODULE.number = 2.0


def helper(x):
    return x * FACTOR


def changing():
    """By name a function, what it depends on is changed by, and what puts it back."""
    cell, default, box = 2.0, [1.5], {"k": (1.0, [2.0])}
    array = np.array([1.0, 2.0, 3.0])
    tensor = [randn([3], "float64", 3)]
    point = types.SimpleNamespace(x=1.0)

    def close_over(value):
        nonlocal cell
        cell = value

    def by_cell(x):
        return (x**2).sum() * cell

    def by_default(x, y=default):
        return (x**2).sum() * y[0]

    def by_box(x):
        return (x**2).sum() * box["k"][1][0]

    def by_array(x):
        return (x**2 * paddle.to_tensor(array)).sum()

    def by_tensor(x):
        return (x**2 * tensor[0]).sum()

    def by_global(x):
        return (helper(x) ** 2).sum()

    def by_table(x):
        return (x**2 * paddle.to_tensor(TABLE["b"])).sum() * TABLE["a"][1]

    def by_object(x):
        return (x**2).sum() * OBJECT.own * OBJECT.items[0] * OBJECT.factor

    def by_descriptor(x):
        return (x**2).sum() * OBJECT.described

    def by_cached(x):
        return (x**2).sum() * OBJECT.cached

    def by_module(x):
        return (x**2).sum() * MODULE.number

    def by_point(x):
        return (x**2).sum() * point.x

    def by_part(x):
        return part(x)

    part = functools.partial(lambda x, k: (x**2).sum() * k["k"], k={"k": 2.0})
    now = [by_cell]

    def by_function(x):
        return now[0](x) * 2.0

    def by_lengths(x):
        return (x**2).sum() * len(TABLE)

    def swap(holder, key, value):
        before = holder[key]
        return lambda: holder.__setitem__(key, value), lambda: holder.__setitem__(
            key, before
        )

    space = globals()
    return {
        "cell": (by_cell, lambda: close_over(5.0), lambda: close_over(2.0)),
        "default": (by_default, *swap(default, 0, 4.0)),
        "nested": (by_box, *swap(box["k"][1], 0, 7.0)),
        "array": (by_array, *swap(array, 1, 9.0)),
        "tensor": (by_tensor, *swap(tensor, 0, randn([3], "float64", 4))),
        "written": (
            by_tensor,
            lambda: tensor[0].scale_(2.0),
            lambda: tensor[0].scale_(0.5),
        ),
        "global": (by_global, *swap(space, "FACTOR", 3.0)),
        "helper": (by_global, *swap(space, "helper", lambda x: x * 0.5)),
        "table": (by_table, *swap(TABLE["a"], 1, 5.0)),
        "array of a table": (by_table, *swap(TABLE["b"], 2, 5.0)),
        "attribute": (by_object, *swap(vars(OBJECT), "own", 5.0)),
        "item of an attribute": (by_object, *swap(OBJECT.items, 0, 5.0)),
        "class": (
            by_object,
            lambda: setattr(Scale, "factor", 5.0),
            lambda: setattr(Scale, "factor", 2.0),
        ),
        "descriptor": (
            by_descriptor,
            *swap(vars(vars(Scale)["described"]), "times", 5.0),
        ),
        "cached": (
            by_cached,
            lambda: vars(OBJECT).update(cached=7.0),
            lambda: vars(OBJECT).pop("cached"),
        ),
        "module": (by_module, *swap(vars(MODULE), "number", 5.0)),
        "namespace": (by_point, *swap(vars(point), "x", 5.0)),
        "partial": (by_part, *swap(part.keywords["k"], "k", 5.0)),
        "function": (by_function, *swap(now, 0, by_default)),
        "length": (
            by_lengths,
            lambda: TABLE.update(c=1),
            lambda: TABLE.pop("c"),
        ),
    }


COMPARED = {
    *("cell", "default", "nested", "array", "tensor", "written", "global", "helper"),
    *("table", "array of a table", "function", "length"),
}
"""What is compared; where there is more than that, functions are called each time."""


@pytest.mark.parametrize("name", changing())
def test_what_changes_is_seen(name):
    fn, change, put_back = changing()[name]
    x = randn([3], "float64")

    def fresh():  # the same function, of which nothing is kept
        found = types.FunctionType(
            fn.__code__, fn.__globals__, "fresh", fn.__defaults__, fn.__closure__
        )
        return value_and_grad(found)(x)

    assert runs_as_program(fn, lambda: value_and_grad(fn)(x)) == (name in COMPARED)
    before = fresh()
    close(value_and_grad(fn)(x), before)
    change()
    try:
        for _ in range(ENOUGH):
            close(value_and_grad(fn)(x), fresh())
        assert abs(float(fresh()[0] - before[0])) > 1e-3
    finally:
        put_back()
    for _ in range(ENOUGH):
        close(value_and_grad(fn)(x), before)


def test_modes_of_layers_are_seen():
    def fn(x):
        return (LAYER(x) ** 2).sum()

    x = randn([64, 3])
    LAYER.eval()
    for _ in range(ENOUGH):
        still = grad(fn)(x)
    LAYER.train()
    try:
        drawn = [grad(fn)(x) for _ in range(ENOUGH)]
        assert not np.array_equal(drawn[-1].numpy(), still.numpy())
        assert not np.array_equal(drawn[-1].numpy(), drawn[-2].numpy())
    finally:
        LAYER.eval()
    np.testing.assert_allclose(grad(fn)(x).numpy(), still.numpy(), rtol=1e-5)


def test_nets_and_their_layers_code():
    """A net of Paddle's layers, and one whose forward reads a global variable."""
    net, params, _ = stateless(paddle.nn.Linear(3, 2))

    def fn(params, x):
        return (net(params, x) ** 2).sum()

    x = randn([4, 3])
    assert runs_as_program(fn, lambda: grad(fn)(params, x))

    class Reading(paddle.nn.Layer):
        def forward(self, x):
            return x * FACTOR

    reading, none, _ = stateless(Reading())

    def by_layer(x):
        return reading(none, x).sum()

    assert not runs_as_program(by_layer, lambda: grad(by_layer)(x))
    assert float(grad(by_layer)(x)[0, 0]) == 2.0
    globals()["FACTOR"] = 4.0
    try:
        assert float(grad(by_layer)(x)[0, 0]) == 4.0
    finally:
        globals()["FACTOR"] = 2.0


LOG, SEEN, COUNTER = logging.getLogger("here"), [], itertools.count()
GENERATOR = np.random.default_rng(0)


def saying(x):
    print("called")
    return x.sum()


def logging_it(x):
    LOG.warning("called")
    return x.sum()


def counting(x):
    return x.sum() * next(COUNTER)


def drawing(x):
    return x.sum() * random.random()


def of_numpy(x):
    return x.sum() * np.random.rand()  # noqa: NPY002


def of_a_generator(x):
    return x.sum() * GENERATOR.standard_normal()


def of_the_clock(x):
    return x.sum() * (1.0 + math.fmod(time.time(), 1.0))


def importing(x):
    import os

    return x.sum() * len(os.environ)


def setting(x):
    global FACTOR
    FACTOR = FACTOR + 0.0
    return x.sum()


def yielding(x):
    def parts():
        yield x

    return sum(p.sum() for p in parts())


def noting(x):
    SEEN.append(1)
    return x.sum()


def setting_an_attribute(x):
    OBJECT.calls = getattr(OBJECT, "calls", 0) + 1
    return x.sum()


IMPURE = (
    *(saying, logging_it, counting, drawing, of_numpy, of_a_generator, of_the_clock),
    *(importing, setting, yielding, noting, setting_an_attribute),
)


@pytest.mark.parametrize("fn", IMPURE, ids=lambda fn: fn.__name__)
def test_who_does_more_is_called_each_time(fn, caplog):
    x = randn([3])
    for _ in range(ENOUGH):
        with calls_of(fn) as seen:
            grad(fn)(x)
        assert seen.count >= 1
    reason = explain(grad(fn), x)
    assert "Without jit its calls run without a program" in reason or fn is noting


def test_what_changes_all_the_time_runs_as_ever():
    scale = [0.0]

    def fn(x):
        return (x**2).sum() * scale[0]

    x = randn([3], "float64")
    for step in range(4 * ENOUGH):
        scale[0] = float(step)
        close(grad(fn)(x), 2.0 * x * step)
    assert "changes from call to call" in explain(grad(fn), x)


def test_derivatives_of_derivatives_on_the_tape():
    def fn(x, w):
        return (w * x.sin() ** 3).sum()

    x, w = randn([3], "float64"), randn([3], "float64", 1)
    expected = jit(hessian(cubes))(x, w)
    for _ in range(ENOUGH):
        grad(fn)(x, w)
    for _ in range(3):
        leaf = x.clone()
        leaf.stop_gradient = False
        rows = [
            paddle.grad(part, leaf, retain_graph=True)[0]
            for part in vjp_rows(lambda x: grad(fn)(x, w), leaf)
        ]
        close(paddle.stack(rows), expected)
        found = jit(jacrev(lambda x: grad(fn)(x, w)))(x)
        close(found, expected)


def vjp_rows(fn, leaf):
    found = fn(leaf)
    return [found[i] for i in range(3)]


def test_live_parameters_on_the_tape():
    """Gradients of what a function closes over are there as ever."""
    layer = paddle.nn.Linear(3, 1)

    def fn(x):
        return (layer(x) ** 3).sum()

    x = randn([4, 3])
    kept = []
    for _ in range(ENOUGH):
        found = grad(fn)(x)
        layer.clear_gradients()
        (found**2).sum().backward()
        kept.append(layer.weight.grad.numpy())
    for other in kept[1:]:
        np.testing.assert_allclose(other, kept[0], rtol=1e-4)


def test_functions_are_let_go_of():
    def made():
        data = randn([5])

        def fn(x):
            return (x * data).sum()

        for _ in range(ENOUGH):
            grad(fn)(data)
        return weakref.ref(fn)

    found = made()
    gc.collect()
    assert found() is None


def test_copies_have_programs_of_their_own():
    def fn(x):
        return (x**2).sum()

    x = randn([3], "float64")
    for _ in range(ENOUGH):
        grad(fn)(x)

    @functools.wraps(fn)
    def other(x):
        return (x**3).sum()

    for _ in range(ENOUGH):
        close(grad(other)(x), 3.0 * x**2)
        close(grad(fn)(x), 2.0 * x)
    net = copy.deepcopy(NET)
    params = net.init(0)
    for _ in range(ENOUGH):
        vmap(net, (None, 0))(params, x.reshape([1, 3]))
    assert pickle.loads(pickle.dumps(net)) == net


def test_bound_methods_and_callables():
    class Loss:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return (x**2).sum() * self.k

        def method(self, x):
            return (x**3).sum() * self.k

    x = randn([3], "float64")
    loss = Loss(2.0)
    one, two = grad(loss), grad(loss.method)
    for _ in range(ENOUGH):
        close(one(x), 4.0 * x)
        close(two(x), 6.0 * x**2)
    loss.k = 3.0
    for _ in range(ENOUGH):
        close(one(x), 6.0 * x)
        close(two(x), 9.0 * x**2)
    another = Loss(5.0)
    for _ in range(ENOUGH):
        close(grad(another)(x), 10.0 * x)
        close(grad(loss)(x), 6.0 * x)
        close(grad(another.method)(x), 15.0 * x**2)


def test_threads():
    scale = {"k": 2.0}

    def fn(x, w):
        return (w * x.sin() ** 3).sum() * scale["k"]

    w = randn([3], "float64", 1)
    wrong = []

    def work(seed):
        x = randn([3], "float64", seed)
        expected = jit(grad(cubes))(x, w) * 2.0
        for _ in range(30):
            found = grad(fn)(x, w)
            if not np.allclose(found.numpy(), expected.numpy(), rtol=1e-9):
                wrong.append(seed)

    on_threads(work, [(k,) for k in range(4)])
    assert not wrong


def test_two_functions_that_wrap_one_are_two():
    g = grad(lambda x: x**3)

    @functools.wraps(g)
    def h(x):
        return 2 * g(x)

    x = paddle.to_tensor(2.0, "float64")
    for _ in range(ENOUGH):
        assert (float(grad(g)(x)), float(grad(h)(x))) == (12.0, 24.0)


def test_what_arguments_hold_is_no_program():
    k = {"v": 1.0}

    def fn(x, act):
        return (act(x) ** 2).sum()

    x = randn([3], "float64")
    for factor in (1.0, 5.0):
        k["v"] = factor
        for _ in range(ENOUGH):
            close(grad(fn)(x, lambda x: x * k["v"]), 2 * x * factor**2)
    kept = []
    for _ in range(ENOUGH):
        big = paddle.zeros([10])
        act = lambda x, big=big: x * big.sum()  # noqa: E731
        grad(fn)(x, act)
        kept.append(weakref.ref(act))
    del act, big
    gc.collect()
    assert not any(ref() is not None for ref in kept[:-1])


class Plain:
    k = 1.0


class Nested:
    inner = Plain()


class Base:
    k = 1.0


class Below(Base):
    pass


LATE = types.ModuleType("late")
PLAIN, BELOW, ONES, ONE = Plain(), Below(), np.ones(1), paddle.ones([1], "float64")
WAYS = {
    "an object without attributes": (
        lambda x, o=PLAIN: (x**2).sum() * o.k,
        lambda fn: setattr(fn.__defaults__[0], "k", 5.0),
    ),
    "an object of a class": (
        lambda x: (x**2).sum() * Nested.inner.k,
        lambda fn: setattr(Nested.inner, "k", 5.0),
    ),
    "an attribute that shadows": (
        lambda x, o=BELOW: (x**2).sum() * o.k,
        lambda fn: setattr(Below, "k", 5.0),
    ),
    "a module that gets a name": (
        lambda x: (x**2).sum() * (LATE.k if hasattr(LATE, "k") else 1.0),
        lambda fn: setattr(LATE, "k", 5.0),
    ),
    "a name that shadows Python's": (
        lambda x: (x**2).sum() * max(1.0, 0.0),
        lambda fn: globals().update(max=lambda *_: 5.0),
    ),
    "the order of a dict": (
        lambda x, d={"a": 1.0, "b": 5.0}: (x**2).sum() * [*d.values()][0],  # noqa: RUF015
        lambda fn: fn.__defaults__[0].update(a=fn.__defaults__[0].pop("a")),
    ),
    "an array in a default": (
        lambda x, a=ONES: (x**2).sum() * float(a[0]),
        lambda fn: fn.__defaults__[0].fill(5.0),
    ),
    "another default": (
        lambda x, k=1.0: (x**2).sum() * k,
        lambda fn: setattr(fn, "__defaults__", (5.0,)),
    ),
    "an attribute of a tensor": (
        lambda x, w=ONE: (x**2).sum() * getattr(w, "factor", 1.0),
        lambda fn: setattr(fn.__defaults__[0], "factor", 5.0),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_change_that_are_odd(way):
    fn, change = WAYS[way]
    x = randn([3], "float64")
    for _ in range(ENOUGH):
        close(grad(fn)(x), 2.0 * x)
    change(fn)
    try:
        for _ in range(ENOUGH):
            close(grad(fn)(x), 10.0 * x)
    finally:
        globals().pop("max", None)


def test_an_attribute_of_a_function():
    def fn(x):
        return (x**2).sum() * fn.k

    x = randn([3], "float64")
    for k in (1.0, 5.0):
        fn.k = k
        for _ in range(ENOUGH):
            close(grad(fn)(x), 2.0 * k * x)


def test_tensors_in_a_tuple_that_is_another():
    state = [(paddle.zeros([3], "float64"), paddle.ones([3], "float64"))]

    def fn(x):
        return (x * state[0][1]).sum()

    x = randn([3], "float64")
    for _ in range(ENOUGH):
        close(grad(fn)(x), paddle.ones([3], "float64"))
    state[0] = (state[0][1], paddle.full([3], 5.0, "float64"))
    for _ in range(ENOUGH):
        close(grad(fn)(x), paddle.full([3], 5.0, "float64"))


@pytest.mark.parametrize("length", [1_500, 3_000])
def test_each_item_of_a_long_list_counts(length):
    numbers = [1.0] * length

    def weighted(x):
        return (x**2).sum() * numbers[-1]

    slope, x = grad(weighted), randn([3], "float64")
    for value in (1.0, 2.0, 3.0):
        numbers[-1] = value
        for _ in range(ENOUGH):
            close(slope(x), x * 2 * value)


def test_the_order_of_a_dict_counts_in_jit():
    weights = {"a": 2.0, "b": 5.0}

    def first(x):
        return x * next(iter(weights.values()))

    compiled, x = jit(first), randn([3], "float64")
    for _ in range(2):
        close(compiled(x), x * 2.0)
    weights["a"] = weights.pop("a")
    for _ in range(2):
        close(compiled(x), x * 5.0)
