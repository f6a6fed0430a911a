"""Numbers of Python's that change from call to call, in jit: one program serves all."""

import math
from operator import itemgetter
from queue import SimpleQueue

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, programs_on, randn
from paddle_chainrules import CaptureError, grad, jit, stateless, value_and_grad, vmap
from paddle_chainrules.paddle_side.traced_numbers import (
    NumberUses,
    TracedNumber,
    number_to_tensor,
)

FLOATS, INTEGERS = (0.7, 1.9, 0.3, 2.25, 1e-3), (3, 5, 7, 2, 11)
TENSORS = {
    "float32": randn([29], "float32"),
    "float64": randn([5, 3], "float64"),
    "complex64": paddle.complex(randn([7]), randn([7], seed=1)),
}
ARITHMETIC = {
    "x * n": lambda x, n: x * n,
    "n * x": lambda x, n: n * x,
    "x + n": lambda x, n: x + n,
    "n + x": lambda x, n: n + x,
    "x - n": lambda x, n: x - n,
    "n - x": lambda x, n: n - x,
    "x / n": lambda x, n: x / n,
    "n / x": lambda x, n: n / x,
    "x * -n": lambda x, n: x * -n,
    "x * +n": lambda x, n: x * +n,
    "between numbers": lambda x, n: x * ((n * 2 - 1) / (3 + n)),
    "Adam's corrections": lambda x, n: x / (1 - 0.9**n) / (1 - 0.999**n),
    "two uses": lambda x, n: x * n + n,
}
REAL = {
    "x > n": lambda x, n: (x > n).astype(x.dtype),
    "n >= x": lambda x, n: (n >= x).astype(x.dtype),
    "x == n": lambda x, n: (x == n).astype(x.dtype),
    "a square": lambda x, n: x * (1.0 * n) ** 2,
}


class Calls(SimpleQueue):
    """Counts runs where jit does not look, which would undo those for comparison."""

    def __len__(self):
        return self.qsize()


def counted(fn):
    calls = Calls()

    def counting(*args, **kwargs):
        calls.put(1)
        return fn(*args, **kwargs)

    return counting, calls


@programs_on
@pytest.mark.parametrize("numbers", [FLOATS, INTEGERS], ids=["floats", "integers"])
@pytest.mark.parametrize("dtype", TENSORS)
@pytest.mark.parametrize("name", [*ARITHMETIC, *REAL])
def test_one_program_serves_all(name, dtype, numbers):
    if name in REAL and dtype == "complex64":
        return
    fn, calls = counted({**ARITHMETIC, **REAL}[name])
    x, called = TENSORS[dtype], jit(fn, strict=True)
    for number in (*numbers, *numbers):
        found, expected = called(x, number), {**ARITHMETIC, **REAL}[name](x, number)
        assert found.dtype == expected.dtype
        np.testing.assert_array_max_ulp(*map(parts, (found, expected)), 1)
    # The second program is compared with the function of numbers.
    assert len(calls) == 3


def parts(x):
    return (paddle.as_real(x) if x.is_complex() else x).numpy()


VALUES_NEEDED = {
    "range": (lambda x, n: sum((x * k for k in range(n)), x), INTEGERS),
    "a branch": (lambda x, n: x if n > 1 else -x, FLOATS),
    "math": (lambda x, n: x * math.sqrt(n), FLOATS),
    "a power": (lambda x, n: x.abs() ** n, FLOATS),
    "an attribute": (lambda x, n: x.clip(-n, n), FLOATS),
    "a fill": (lambda x, n: x + paddle.full([29], n), FLOATS),
    "a tensor made": (lambda x, n: x * paddle.to_tensor(n), FLOATS),
    "a slice": (lambda x, n: x[n:], INTEGERS),
    "an index": (lambda x, n: x[n], INTEGERS),
    "a shape": (lambda x, n: x[: 2 * n].reshape([n, -1]), INTEGERS),
    "text": (lambda x, n: x * len(f"{n}"), FLOATS),
    "a hash": (lambda x, n: x * (hash(n) % 7), FLOATS),
    "a swallowed hash": (lambda x, n: x * looked_up(n), INTEGERS),
    "the type": (lambda x, n: x * n if type(n) is float else x * 1000, FLOATS),
    "a name of the type": (lambda x, n: x * len(type(n).__name__), INTEGERS),
    "a key": (lambda x, n: x * {0.7: 1, 1.9: 2}.get(n, 3), FLOATS),
    "a swallowed error": (lambda x, n: x * (2 if large(n) else 3), FLOATS),
    "a float of an integer tensor": (
        lambda x, n: x + (paddle.arange(29) * n).sum(),
        FLOATS,
    ),
    "an integer too large": (lambda x, n: x * n, (3, 1 << 31, 5, 1 << 40)),
    "a product too large": (
        lambda x, n: x * ((n + (1 << 30)) * (n + (1 << 30)) * 16 % 7),
        INTEGERS,
    ),
}


def looked_up(n):
    try:
        return {3: 1, 5: 2}.get(n, 3)
    except TypeError:
        return 1000


def large(n):
    try:
        return float(n) > 1
    except Exception:
        return False


@programs_on
@pytest.mark.parametrize("name", VALUES_NEEDED)
def test_where_the_value_is_needed_it_is_part_of_the_program(name):
    fn, numbers = VALUES_NEEDED[name]
    x, (fn, calls) = TENSORS["float32"], counted(fn)
    called = jit(fn, strict=True)
    for number in numbers:
        assert_same(called(x, number), fn(x, number))
    before = len(calls)
    for number in numbers:
        called(x, number)
    assert len(calls) == before


@programs_on
def test_of_several_numbers_each_is_served_as_it_can_be():
    fn, calls = counted(lambda x, rate, power: x.abs() ** power * rate)
    x, called = TENSORS["float64"], jit(fn, strict=True)
    for k in range(6):
        rate, power = 0.5 + k, 2.0 + k % 2
        assert_same(called(x, rate, power=power), x.abs() ** power * rate)
    # Two as numbers, one try with both as inputs, then two for each power.
    assert len(calls) <= 7
    before = len(calls)
    for k in range(6):
        called(x, 7.5 + k, power=2.0 + k % 2)
    assert len(calls) == before


@programs_on
def test_a_learning_rate_that_falls():
    x = randn([5, 3])

    def step(w, rate):
        return w - rate * grad(lambda w: ((x @ w) ** 2).mean())(w)

    fn, calls = counted(step)
    jitted, w = jit(fn, strict=True), randn([3], seed=2)
    for k in range(8):
        rate = 0.1 / (1 + k)
        expected = step(w, rate)
        w = jitted(w, rate)
        np.testing.assert_allclose(w, expected.numpy(), 1e-6)
    assert len(calls) == 3


@programs_on
def test_truths_none_and_text_stay_part_of_programs():
    def fn(x, flag, how):
        assert type(flag) is bool
        return x * 2 if flag else x + 1 if how is None else x * len(how)

    fn, calls = counted(fn)
    x, called = TENSORS["float32"], jit(fn, strict=True)
    for flag, how in [(True, None), (False, None), (False, "abc"), (False, "ab")] * 2:
        assert_same(called(x, flag, how), fn(x, flag, how))
    assert len(calls) == 4 + 8


def test_of_an_argument_that_is_an_input_an_integer_and_a_float_are_told_apart():
    x, called = paddle.arange(4), jit(lambda x, n: x * n)
    for n in (2, 3, 0.5, 1.5, 4):
        expected = x * n
        assert called(x, n).dtype == expected.dtype
        assert_same(called(x, n), expected)


def test_it_is_the_type_of_number_that_it_stands_for():
    noted = NumberUses(set(), [])
    floating, whole = (
        TracedNumber(
            number_to_tensor(each), type(each), frozenset({i}), itemgetter(i), noted
        )
        for i, each in enumerate((0.5, 2))
    )
    assert isinstance(floating, float)
    assert isinstance(whole, int)
    assert not isinstance(whole, float)
    total = floating + whole
    assert isinstance(total, float)
    assert total.origins == {0, 1}


DIVISIONS = {
    "1 / n": (lambda x, n: x * (1 / n), 0.0),
    "of an int": (lambda x, n: x * (x.shape[0] / n), 0),
    "of what is computed": (lambda x, n: x / ((2 * n - 3) / (1 - 0.5**n)), 0.0),
    "a power": (lambda x, n: x * (n - 2.0) ** -2, 2.0),
    "a large power": (lambda x, n: x * (n + 1e300) ** 3, 2.5),
}


@programs_on
@pytest.mark.parametrize("calls", [0, 1, 2, 45])
@pytest.mark.parametrize("name", DIVISIONS)
def test_python_divides_by_zero(name, calls):
    fn, zero = DIVISIONS[name]
    x = randn([3])
    with pytest.raises(ArithmeticError) as expected:
        fn(x, zero)
    slope = lambda x, n: grad(lambda x: fn(x, n).sum())(x)  # noqa: E731
    for compiled, plain in ((jit(fn), fn), (jit(slope), slope)):
        for k in range(calls if name != "a large power" else 0):
            n = type(zero)(5 + k)
            assert_same(compiled(x, n), plain(x, n), rtol=1e-5)
        with pytest.raises(type(expected.value)):
            compiled(x, zero)


@programs_on
def test_numbers_come_back_as_numbers():
    fn, calls = counted(lambda x, step, rate: (x * rate, step + 1, {"rate": rate / 2}))
    x, called = TENSORS["float32"], jit(fn, strict=True)
    step, rate = 0, 0.5
    for k in range(8):
        y, step, more = called(x, step, rate)
        assert_same(y, x * rate)
        assert (type(step), step) == (int, k + 1)
        assert (type(more["rate"]), more["rate"]) == (float, rate / 2)
        rate = more["rate"]
    assert len(calls) <= 4


@programs_on
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_numbers_of_numpy(kind):
    fn, calls = counted(lambda x, n: x * n + n)
    x, called = TENSORS["float32"], jit(fn, strict=True)
    for k in range(1, 8):
        expected = x * kind(k) + kind(k)
        assert_same(called(x, kind(k)), expected)
    assert len(calls) == 3


@programs_on
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_numbers_of_numpy_come_back_as_such(kind):
    called = jit(lambda x, n: (x * n, n + 1, -n, 2.0 * n, n))
    x = TENSORS["float32"]
    for k in range(1, 8):
        found = called(x, kind(k))[1:]
        expected = kind(k) + 1, -kind(k), 2.0 * kind(k), kind(k)
        assert [*map(type, found)] == [*map(type, expected)]
        assert found == expected


def matched(n):
    match n:
        case bool():
            return 1.0
        case int():
            return 2.0
        case float():
            return 3.0
    return 4.0


KINDS_ASKED_FOR = {
    "an integer": lambda n: isinstance(n, int),
    "a float": lambda n: isinstance(n, float),
    "an integer of NumPy": lambda n: isinstance(n, np.integer),
    "a number of NumPy": lambda n: isinstance(n, np.generic),
    "one of two": lambda n: isinstance(n, int | str),
    "its class": lambda n: n.__class__ is int,
    "its type": lambda n: type(n) is float,
    "an attribute": lambda n: hasattr(n, "dtype"),
    "a pattern": matched,
}


@programs_on
@pytest.mark.parametrize("question", KINDS_ASKED_FOR)
def test_numbers_of_other_types_are_other_calls(question):
    """What code asks of the type of a number is answered for each call."""
    ask, x = KINDS_ASKED_FOR[question], TENSORS["float32"]
    kinds = [int, np.int64, float, np.float64, np.int32, np.float32]
    called = jit(lambda x, n: x * (2.0 + ask(n)))
    gradient = jit(grad(lambda x, n: (x * (2.0 + ask(n))).sum()))
    order = np.random.default_rng(3).permutation(np.repeat(range(6), 8))
    for k, index in enumerate(order):
        n = kinds[index](k % 5 + 1)
        assert_same(called(x, n), x * (2.0 + ask(n)))
        assert_same(gradient(x, n), paddle.full_like(x, 2.0 + ask(n)))


@programs_on
def test_an_error_of_another_call_leaves_the_numbers_inputs():
    def fn(x, rate):
        if x.shape == [7]:
            raise ValueError("not seven")
        return x * rate if x.ndim < 3 else x * float(x.sum()) * rate

    fn, calls = counted(fn)
    x, called = TENSORS["float32"], jit(fn)
    for rate in FLOATS:
        called(x, rate)
    with pytest.raises(ValueError, match="not seven"):
        called(paddle.ones([7]), 0.7)
    for rate in FLOATS:
        called(paddle.ones([1, 2, 3]), rate)
    before = len(calls)
    for k in range(8):
        assert_same(called(x, 0.1 * k), x * (0.1 * k))
    assert len(calls) == before


def dropping():
    paddle.seed(3)
    layer = nn.Sequential(nn.Linear(3, 17), nn.Dropout(0.5), nn.Linear(17, 2))
    return stateless(layer)


SEEDS = {
    "numbers": int,
    "large numbers": lambda k: (1 << 40) + k,
    "numbers of NumPy": np.int64,
    "tensors": paddle.to_tensor,
}


@programs_on
@pytest.mark.parametrize("kind", SEEDS)
def test_one_program_serves_all_seeds(kind):
    (net, params, _), x = dropping(), randn([5, 3])

    def loss(params, x, seed):
        return (net(params, x, seed=seed) ** 2).sum()

    fn, calls = counted(value_and_grad(loss))
    called = jit(fn, strict=True)
    paddle.seed(11)
    following = [paddle.rand([2]) for _ in range(6)]
    paddle.seed(11)
    drawn = set()
    for k in range(6):
        value, grads = called(params, x, SEEDS[kind](3 * k + 1))
        seed = int(SEEDS[kind](3 * k + 1))
        expected, expected_grads = value_and_grad(loss)(params, x, seed)
        np.testing.assert_allclose(float(value), float(expected), 1e-6)
        for name, found in grads.items():
            np.testing.assert_allclose(
                found.numpy(), expected_grads[name].numpy(), 1e-5, 1e-6
            )
        drawn.add(float(value))
        # The program's own numbers go on as if none had been drawn.
        assert_same(paddle.rand([2]), following[k])
    assert len(drawn) == 6
    assert len(calls) == (1 if kind == "tensors" else 3)


@programs_on
def test_a_seed_that_is_part_of_a_program_leaves_the_generator_alone():
    (net, params, _), x = dropping(), randn([5, 3])
    called = jit(lambda p, x: net(p, x, seed=4), strict=True)
    paddle.seed(11)
    following = [paddle.rand([2]) for _ in range(3)]
    paddle.seed(11)
    for expected in following:
        called(params, x)
        assert_same(paddle.rand([2]), expected)


@programs_on
def test_a_seed_out_of_range_is_refused_and_the_generator_is_as_before():
    (net, params, _), x = dropping(), randn([5, 3])
    called = jit(lambda p, x, seed: net(p, x, seed=seed), strict=True)
    called(params, x, paddle.to_tensor(3))
    paddle.seed(5)
    expected = paddle.rand([2])
    paddle.seed(5)
    with pytest.raises(ValueError, match="got -9; take it modulo"):
        called(params, x, paddle.to_tensor(-9))
    assert_same(paddle.rand([2]), expected)
    with pytest.raises(TypeError, match=r"a float32 tensor of shape \[\]"):
        net(params, x, seed=paddle.to_tensor(3.0))
    with pytest.raises(CaptureError, match="random numbers of a seed"):
        vmap(lambda seed: net(params, x, seed=seed))(paddle.arange(3))


@pytest.mark.parametrize("p", [np.float32(0.1), np.float16(300.0), np.int32(7), True])
def test_a_number_of_another_type_stays_of_its_type(p):
    """Where numbers of Python's were inputs before."""

    def powers(x, p, n):
        for _ in range(n):
            x = x * p
        return x * (p * p), p * p

    by_program, x = jit(powers), paddle.ones([2], "float64")
    for number, count in ((0.5, 1), (2.0, 2), (3.0, 1)):
        by_program(x, number, count)
    with np.errstate(over="ignore"):
        for _ in range(2):
            (expected, square), found = powers(x, p, 1), by_program(x, p, 1)
            assert_same(found[0], expected)
            assert type(found[1]) is type(square)
            assert found[1] == square


def test_code_that_asks_for_a_type_gets_the_number_itself():
    """Also where the answer is no tensor."""

    def asked(x, a):
        return x * a, type(a) is float, type(a).__name__

    by_program, x = jit(asked), paddle.ones([2])
    for a in (2.0, 3.0, 4.0, 5.0):
        found, is_float, name = by_program(x, a)
        assert_same(found, x * a)
        assert (is_float, name) == (True, "float")


@pytest.mark.parametrize("odd", [2 + 1j, "ab", paddle.to_tensor([1.0, 2.0, 3.0])])
def test_what_is_no_number_in_the_place_of_one(odd):
    """Where another number keeps its value."""

    def fn(x, a, b):
        return (x * 2 if isinstance(a, str) else x * a) * b, a

    by_program, x = jit(fn), paddle.full([1], 5.0)
    for a in (2.0, 3.0, 4.0):
        by_program(x, a, 1.0)
    for _ in range(2):
        expected, found = fn(x, odd, 1.0)[0], by_program(x, odd, 1.0)
        assert_same(found[0], expected)
        assert type(found[1]) is type(odd)
    if isinstance(odd, paddle.Tensor):
        by_a = grad(lambda a: by_program(x, a, 1.0)[0].sum())(odd)
        assert_same(by_a, paddle.full([3], 5.0))
