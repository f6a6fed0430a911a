"""Programs that pile up, and jit of methods, and jit within loops."""

import copy
import gc
import weakref

import paddle
import pytest
from paddle import nn

from conftest import assert_same, programs_on, randn
from paddle_chainrules import CaptureError, RecompileWarning, jit

X = randn([4, 3])


def scaled_by(numbers):
    scaled = jit(lambda x, rate: x * rate)
    for rate in numbers:
        assert_same(scaled(X, rate), X * rate)


@programs_on
def test_a_number_that_changes_is_named():
    with pytest.warns(
        RecompileWarning, match=r"argument 1 went from 6\.0 to 7"
    ) as said:
        scaled_by(map(float, range(20)))
    assert len(said) == 1
    assert "test_recompiling.py" in str(said[0].message)


@programs_on
def test_few_programs_are_no_matter(recwarn):
    scaled_by([*range(7)] * 20)
    assert not [w for w in recwarn if w.category is RecompileWarning]


def squares(widths):
    summed = jit(lambda tree, scale: (tree["a"].T @ tree["a"]).sum(0) * scale)
    for n in widths:
        summed({"a": paddle.ones([3, n])}, 2.0)


@programs_on
def test_a_shape_that_changes_is_named():
    with pytest.warns(RecompileWarning, match=r"argument 0\['a'\] went from a float32"):
        squares(range(2, 12))


def powers(count, **options):
    def fn(x, power, *, shift):
        return x**power + shift

    raised = jit(fn, **options)
    for k in range(count):
        how = (k, 0.5) if options else (2, k / 10)
        raised(X, how[0], shift=how[1])


@programs_on
def test_a_keyword_and_a_static_argument_are_named():
    with pytest.warns(RecompileWarning, match=r"argument 'shift' went from 0\.6 to 0"):
        powers(9)
    with pytest.warns(RecompileWarning, match="static argument 1 went from 6 to 7"):
        powers(9, static_argnums=1)


@programs_on
def test_jit_in_a_loop_finds_the_program_of_a_function():
    calls = []

    def fn(x):
        calls.append(1)
        return x * 3

    for _ in range(12):
        assert_same(jit(fn)(X), X * 3)
    assert len(calls) == 4  # kept from the second time on
    assert jit(fn) is jit(fn)
    assert jit(fn) is not jit(fn, strict=True)


def made_anew(count):
    for _ in range(count):
        jit(lambda x: x + 1)(X)


@programs_on
def test_jit_in_a_loop_of_new_functions_warns():
    with pytest.warns(RecompileWarning, match=r"called 8 times for <lambda>.*before"):
        made_anew(9)


class Model:
    def __init__(self, factor=2):
        self.w, self.factor, self.calls = paddle.ones([3]), factor, 0

    @jit
    def scaled(self, x, power=1):
        COUNT.append(1)
        return (x * self.w * self.factor) ** power


COUNT = []


@pytest.fixture
def counted():
    COUNT.clear()
    return COUNT


@programs_on
def test_a_method_keeps_its_program(counted):
    model = Model()
    for _ in range(5):
        assert_same(model.scaled(X), X * 2)
    assert len(counted) == 2
    assert_same(model.scaled(X, power=2), (X * 2) ** 2)
    assert model.scaled.__name__ == "scaled"


@programs_on
def test_attributes_that_change_are_seen(counted):
    model = Model()
    model.scaled(X)
    model.w.set_value(paddle.full([3], 5.0))  # read at every call
    assert_same(model.scaled(X), X * 10)
    assert len(counted) == 2
    model.factor = 3
    assert_same(model.scaled(X), X * 15, rtol=1e-6)
    model.w = paddle.full([3], 2.0)
    assert_same(model.scaled(X), X * 6, rtol=1e-6)
    model.factor = 2
    assert_same(model.scaled(X), X * 4)


@programs_on
def test_instances_have_programs_of_their_own(counted):
    one, other = Model(2), Model(7)
    for _ in range(3):
        assert_same(one.scaled(X), X * 2)
        assert_same(other.scaled(X), X * 7)
    assert len(counted) == 4
    assert_same(copy.deepcopy(other).scaled(X), X * 7)


@programs_on
def test_a_program_does_not_keep_its_instance_alive():
    model = Model()
    model.itself = model
    model.scaled(X)
    known = weakref.ref(model)
    del model
    gc.collect()
    assert known() is None


class Counter:
    count = 0

    def step(self, x):
        self.count += 1
        return x * 2

    often, strictly = jit(step), jit(step, strict=True)


def stepped(counter, step):
    for _ in range(30):
        assert_same(step(counter, X), X * 2)


@programs_on
def test_a_method_that_counts_its_calls_runs_as_it_is():
    counter = Counter()
    with pytest.warns(RecompileWarning, match="the attribute count went from"):
        stepped(counter, lambda counter, x: counter.often(x))
    before = counter.count
    counter.often(X)
    assert counter.count == before + 1


@programs_on
@pytest.mark.filterwarnings("ignore::paddle_chainrules.RecompileWarning")
def test_a_strict_method_says_why():
    with pytest.raises(CaptureError, match="change from call to call"):
        stepped(Counter(), lambda counter, x: counter.strictly(x))


def test_layers_and_what_has_slots():
    class Own(nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)

        @jit
        def forward(self, x):
            return self.inner(x)

    layer = Own()
    for _ in range(4):
        assert_same(layer(X), layer.inner(X))

    class Slotted:
        __slots__ = ()

        @jit
        def plus(self, x):
            return x + 1

    assert_same(Slotted().plus(X), X + 1)
    assert isinstance(Slotted.plus, type(jit(abs)))


def test_static_arguments_by_name(counted):
    def fn(x, power, *, mode="a"):
        counted.append(1)
        assert isinstance(power, int)
        return x**power if mode == "a" else x + power

    named = jit(fn, static_argnames=("power", "mode"), strict=True)
    for _ in range(3):
        assert_same(named(X, 2), X**2)
        assert_same(named(X, power=2), X**2)
        assert_same(named(X, 3, mode="b"), X + 3)
    assert len(counted) == 6
    same = jit(fn, 1, static_argnames="mode", strict=True)
    assert same.options == named.options
    for bad in (3, (1,)):
        with pytest.raises(TypeError, match="static_argnames holds names"):
            jit(fn, static_argnames=bad)
