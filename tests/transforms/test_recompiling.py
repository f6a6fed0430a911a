"""Programs that pile up, and jit of methods, and jit within loops."""

import gc
import re
import warnings

import numpy as np
import paddle
import pytest

from conftest import assert_same, programs_on, randn
from paddle_chainrules import EagerWarning, RecompileWarning, explain, grad, jit, vmap
from paddle_chainrules.transforms.as_programs.recompiling import (
    MAX_EAGER,
    MAX_PROGRAMS,
)

X = randn([4, 3])


def raised_to(numbers):
    raised = jit(lambda x, power: x.abs() ** power)
    for power in numbers:
        assert_same(raised(X, power), X.abs() ** power)


@programs_on
def test_a_number_that_changes_is_named():
    with pytest.warns(
        RecompileWarning, match=r"argument 1 went from 6\.0 to 7"
    ) as said:
        raised_to(map(float, range(20)))
    assert len(said) == 1
    assert "test_recompiling.py" in str(said[0].message)


@programs_on
def test_values_of_static_arguments_are_a_choice(recwarn):
    powers(12, static_argnums=1)
    assert not [w for w in recwarn if w.category is RecompileWarning]


@programs_on
def test_few_programs_are_no_matter(recwarn):
    raised_to([*range(7)] * 20)
    assert not [w for w in recwarn if w.category is RecompileWarning]


def decided(x):
    return x * 2 if float(x.mean()) > 0 else x


EAGER = {
    "a decision by a value": (
        decided,
        (X,),
        r"a value leaves the program by float\(x\)",
    ),
    "a NumPy array": (
        lambda x: paddle.to_tensor(x) * 2,
        (np.ones(3),),
        r"\(a NumPy array\); give a tensor, paddle\.to_tensor\(x\)",
    ),
    "a set": (lambda x, of: x * len(of), (X, {1, 2}), "unhashable type: 'set'"),
}


@programs_on
@pytest.mark.parametrize("name", EAGER)
def test_a_function_that_has_no_program_says_so_once(name):
    fn, args, why = EAGER[name]
    run = jit(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerWarning)
        for _ in range(MAX_EAGER - 1):
            run(*args)
    assert re.search(rf"runs eagerly: .*{why}", explain(run))
    message = f"runs eagerly.*{why}.*strict=True"
    with pytest.warns(EagerWarning, match=message) as said:
        run(*args)
    for _ in range(5):
        assert_same(run(*args), fn(*args))
    assert len(said) == 1
    assert said[0].filename == __file__


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
        return x**power + x.clip(max=shift)

    raised = jit(fn, **options)
    for k in range(count):
        how = (k, 0.5) if options else (2, k / 10)
        raised(X, how[0], shift=how[1])


@programs_on
def test_a_keyword_is_named():
    with pytest.warns(RecompileWarning, match=r"argument 'shift' went from 0\.6 to 0"):
        powers(9)


@programs_on
def test_jit_in_a_loop_finds_the_program_of_a_function():
    calls = []

    def fn(x):
        calls.append(1)
        return x * 3

    for _ in range(12):
        assert_same(jit(fn)(X), X * 3)
    assert len(calls) == 2  # kept from the second time on
    assert jit(fn) is jit(fn)
    assert jit(fn) is not jit(fn, strict=True)


def made_anew(count):
    for _ in range(count):
        jit(lambda x: x + 1)(X)
        gc.collect()


@programs_on
def test_functions_that_stay_are_no_matter(recwarn):
    def plus(k):
        return jit(lambda x: x + k)

    several = [plus(k) for k in range(10)]
    for _ in range(3):
        for k, added in enumerate(several):
            assert_same(added(X), X + k)
    assert not [w for w in recwarn if w.category is RecompileWarning]


@programs_on
def test_jit_in_a_loop_of_new_functions_warns():
    with pytest.warns(RecompileWarning, match=r"called 8 times for <lambda>.*before"):
        made_anew(12)


def test_methods_are_right_whatever_they_do():
    """They run as they are where an instance has attributes, and say so."""

    class Model:
        def __init__(self):
            self.hidden, self.calls = paddle.zeros([3]), 0

        @jit
        def step(self, x):
            self.calls += 1
            self.hidden = self.hidden + x
            return self.hidden * self.calls

    model = Model()
    with pytest.warns(EagerWarning, match=r"it sets self\.calls at each call"):
        found = [float(model.step(paddle.ones([3]))[0]) for _ in range(4)]
    assert found == [1.0, 4.0, 9.0, 16.0]
    assert_same(model.hidden, paddle.full([3], 4.0))


def test_static_arguments_by_name():
    counted = []

    def fn(x, power, *, mode="a"):
        counted.append(1)
        assert isinstance(power, int)
        return x**power if mode == "a" else x + power

    named = jit(fn, static_argnames=("power", "mode"), strict=True)
    for _ in range(3):
        assert_same(named(X, 2), X**2)
        assert_same(named(X, power=2), X**2)
        assert_same(named(X, 3, mode="b"), X + 3)
    assert len(counted) == 3
    same = jit(fn, 1, static_argnames="mode", strict=True)
    assert same.options == named.options
    for bad in (3, (1,)):
        with pytest.raises(TypeError, match="static_argnames holds names"):
            jit(fn, static_argnames=bad)


@programs_on
def test_programs_are_listed_by_what_told_them_apart():
    scaled = jit(lambda x, rate, power=2: x**power * rate)
    assert "missing 2 required" in explain(scaled)
    scaled(X, 1.5)
    assert explain(scaled).endswith(
        " has 1 program.\n"
        "  argument 0: a float32 tensor of shape [4, 3], in each\n"
        "  argument 1: 1.5, in each"
    )
    scaled(X, 2.5)
    scaled(X, 7.5)
    scaled(X, 7)
    scaled(X[:2], 7, power=3)
    named, *lines = explain(scaled).split("\n")
    assert named.startswith("<lambda> (")
    assert named.endswith("has 4 programs.")
    assert [line.strip() for line in lines] == [
        "1. argument 0: a float32 tensor of shape [4, 3]; argument 1: 1.5",
        "2. argument 0: a float32 tensor of shape [4, 3]; argument 1: any float",
        "3. argument 0: a float32 tensor of shape [4, 3]; argument 1: any int",
        "4. argument 0: a float32 tensor of shape [2, 3]; argument 1: 7; "
        "argument 'power': 3",
    ]
    assert "runs as a program" in explain(scaled, X, 2.5)


@programs_on
def test_gradients_of_different_losses_are_different_functions():
    losses = [
        lambda x: (x**2).sum(),
        lambda x: (x**3).sum(),
        lambda x: (x**4).sum(),
        lambda x: paddle.tanh(x).sum(),
        lambda x: paddle.exp(x).sum(),
        lambda x: paddle.sin(x).sum(),
        lambda x: paddle.cos(x).sum(),
        lambda x: x.mean(),
        lambda x: (x * x.sum()).sum(),
        lambda x: paddle.sqrt(x).sum(),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecompileWarning)
        for loss in losses:
            jit(vmap(grad(loss)))(paddle.ones([2, 3]))


@programs_on
def test_gradients_of_one_loss_in_a_loop_are_named_by_the_loss():
    def step(k):
        def loss(x):
            return (x * k).sum()

        jit(grad(loss))(paddle.ones([3]))

    def loop():
        for k in range(MAX_PROGRAMS + 1):
            step(k)
            gc.collect()

    with pytest.warns(RecompileWarning, match="8 times for loss .*test_recompiling"):
        loop()
