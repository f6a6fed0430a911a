"""Loops of machine code give the bits that Paddle's operators give, one by one."""

import gc
import linecache
from dataclasses import replace

import numpy as np
import paddle
import pytest

from conftest import loops_on, on_threads, products_on, randn
from paddle_chainrules import FCNet, laplacian, make_program, stateless, vjp
from paddle_chainrules import settings as switch
from paddle_chainrules.paddle_side.interception import RAW
from paddle_chainrules.programs import Program
from paddle_chainrules.programs import captured as program_cache
from paddle_chainrules.programs.codegen import jit_engine
from paddle_chainrules.programs.codegen.fusion import MAX_LIVE_LEAVES, MAX_SIBLINGS
from paddle_chainrules.programs.compiling import program as program_module
from paddle_chainrules.programs.compiling import source
from paddle_chainrules.programs.compiling.common_subkernels import share_subkernels
from paddle_chainrules.programs.compiling.source import compile_program
from paddle_chainrules.programs.operators.table import TABLE
from paddle_chainrules.programs.tracing.operations import (
    Operation,
    Value,
    values_in,
    with_values,
)
from paddle_chainrules.transforms.as_programs.program_cache import ProgramCache
from programs.test_loop_functions import AS_PADDLE, NEAR_PADDLE, TRUE, TRUE_SINGLE

FUNCTIONS = {case[0] for case in (*TRUE, *TRUE_SINGLE, *AS_PADDLE, *NEAR_PADDLE)} | {
    *("Tensor.__pow__", "elementwise_pow")
}
FULL, ROW, COLUMN = (5, 7), (7,), (5, 1)
NUMBERS = (2, -0.1, 1.0)
INTEGERS = ("integers", 5, 7)
PLACES = [(FULL, FULL), (FULL, ROW), (COLUMN, FULL), ((), FULL), (COLUMN, ROW)]
INFIX = ("add", "sub", "mul", "truediv", "lt", "le", "gt", "ge")
TURNED = ("radd", "rsub", "rmul", "rtruediv")
ARGUMENTS = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), PLACES),
    **dict.fromkeys(("less_than", "less_equal"), PLACES),
    **dict.fromkeys(("greater_than", "greater_equal"), PLACES),
    **{
        f"Tensor.__{name}__": [*PLACES, *((FULL, n) for n in NUMBERS)] for name in INFIX
    },
    **{f"Tensor.__{name}__": [(FULL, n) for n in NUMBERS] for name in TURNED},
    **dict.fromkeys(("square", "reciprocal", "abs", "isnan"), ((FULL,),)),
    **dict.fromkeys(("isinf", "isfinite"), ((FULL,),)),
    **dict.fromkeys(("square_grad", "tanh_grad", "sigmoid_grad"), ((FULL, FULL),)),
    "abs_grad": [(FULL, FULL)],
    "relu_grad": [(FULL, FULL)],
    "scale": [
        *((FULL, factor, bias, True) for factor in NUMBERS for bias in (0.0, 0.3)),
        *((FULL, factor, 0.3, False) for factor in NUMBERS),
    ],
    "where": [("bool", FULL, FULL)],
    "logical_not": [("bool",)],
    **{
        name: [("bool", "bool")]
        for kind in ("and", "or", "xor")
        for name in (f"logical_{kind}", f"Tensor.__{kind}__")
    },
    **dict.fromkeys(
        ("bitwise_and", "bitwise_or", "bitwise_xor"),
        (("bool", "bool"), (INTEGERS, INTEGERS)),
    ),
    "bitwise_not": [("bool",), (INTEGERS,)],
    "cast": [
        *((FULL, dtype) for dtype in (paddle.float32, paddle.float64, paddle.int64)),
        ("bool", paddle.float32),
    ],
    **dict.fromkeys(("equal", "Tensor.__eq__"), (*PLACES, (FULL, "same"))),
    **dict.fromkeys(("not_equal", "Tensor.__ne__"), ((INTEGERS, INTEGERS),)),
    **dict.fromkeys(
        ("max", "amax", "min", "amin"),
        (
            ((64, 21), [0], False),
            ((12, 30, 7), [1, 2], True),
            ((5, 40), [1], False),
            ((7, 9), [], False),
        ),
    ),
    "expand": [(ROW, [5, 7]), (COLUMN, [5, 7])],
    "sum": [
        *(
            ((64, 21), axes, None, keep)
            for axes in ([0], 0, -2)
            for keep in (False, True)
        ),
        ((12, 30, 7), [-3], None, False),
        ((1501, 1), [0], None, False),
        (INTEGERS, [1], paddle.int64, False),
        ("bool", [0], paddle.int64, True),
    ],
    "prod": [
        *(((7, 9), axes, False, False) for axes in ([0], [1], [0, 1])),
        ((5, 3), [0], False, True),
    ],
    "matmul": [
        (COLUMN, (1, 7), False, False),
        (COLUMN, (7, 1), False, True),
        ((1, 5), (1, 7), True, False),
        ((1, 5), (7, 1), True, True),
    ],
}
"""Of each operator with a rule, by shapes."""

CASES = [
    (name, row, dtype)
    for name, rows in ARGUMENTS.items()
    for row in rows
    for dtype in ("float32", "float64")
]
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, 3e38, -1e-40)


def numbers(shape, dtype, rng):
    found = rng.standard_normal(shape)
    if found.size > 1:
        places = rng.choice(found.size, max(1, found.size // 4), replace=False)
        found.flat[places] = rng.choice(SPECIAL, places.size)
    with np.errstate(over="ignore"):
        return paddle.to_tensor(found.astype(dtype))


def value(number, tensor):
    size = tensor.size * tensor.element_size()
    return Value(number, tensor.shape, tensor.dtype.name.lower(), size)


def assert_same_bits(found, expected):
    """But for the signs of zeros, which programs do not keep."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_all_operators_with_a_rule_have_arguments():
    ruled = {n for n, entry in TABLE.items() if entry.loop is not None}
    assert ruled == {*ARGUMENTS, *FUNCTIONS}


@pytest.mark.parametrize(("name", "row", "dtype"), CASES)
def test_an_operator_gives_its_bits(name, row, dtype, count_case):
    rng = np.random.default_rng(3)
    entry, tensors, args = TABLE[name], [], []
    for arg in row:
        if arg in ("bool", "same") or type(arg) is tuple:
            if arg == "bool":
                made = paddle.to_tensor(rng.random(FULL) < 0.5)
            elif arg == "same":
                made = tensors[0] * 1.0
            elif arg[:1] == INTEGERS[:1]:
                made = paddle.to_tensor(rng.integers(0, 4, arg[1:]))
            else:
                made = numbers(arg, dtype, rng)
            tensors.append(made)
            arg = value(len(tensors), made)
        args.append(arg)
    inputs = values_in(args)
    known = dict(zip(inputs, tensors, strict=True))
    expected = entry.run(*(with_values(arg, known.__getitem__) for arg in args))
    out = value(50, expected)
    if expected.dtype == paddle.bool:
        then, more, back = "logical_not", (), paddle.logical_not
    elif expected.dtype == paddle.int64:
        then, more, back = "cast", (paddle.float64,), lambda found: found
        expected = expected.astype("float64")
    else:
        tensors.append(paddle.ones_like(expected))
        then, more, back = "multiply", (value(52, expected),), lambda found: found
    last = value(51, expected)
    ops = (
        Operation(entry, tuple(args), (out,), False, ""),
        Operation(TABLE[then], (out, *more), (last,), False, ""),
    )
    given = values_in([*inputs, *more])
    program = Program(tuple(given), {}, ops, (last,)).with_loops
    names = [op.operator.name for op in program.ops]
    assert names == ["region"] or name == "expand"  # which costs nothing
    (found,) = compile_program(program)(*tensors)
    same = assert_close if name in ("sum", "prod") else assert_same_bits
    same(back(found), expected)
    count_case("operators in loops")


def assert_close(found, expected, eps=8):
    """Equal but for rounding, of the largest entry."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    a, b = found.numpy(), expected.numpy()
    finite = np.isfinite(b)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    if a.dtype == bool or not finite.any():
        np.testing.assert_array_equal(a, b)
        return
    np.testing.assert_array_equal(a[~finite], b[~finite])
    largest = max(np.abs(b[finite]).max(), np.finfo(b.dtype).tiny)
    off = np.abs(a[finite] - b[finite]).max() / largest
    assert off <= eps * np.finfo(b.dtype).eps, off


def assert_same_as_plain(fn, *args, loops=True, eps=0):
    """What a function's program gives in regions and without, to so many roundings.

    Returns:
        The program with loops, of which there are some, or none.
    """
    program = make_program(fn)(*args)
    tensors = [arg for arg in args if isinstance(arg, paddle.Tensor)]
    with paddle.no_grad():
        expected = compile_program(program)(*tensors)
        found = compile_program(program.with_loops)(*tensors)
    for a, b in zip(found, expected, strict=True):
        if eps:
            assert_close(a, b, eps)
        else:
            assert_same_bits(a, b)
    looped = [op for op in program.with_loops.ops if op.operator.name == "region"]
    assert bool(looped) == loops
    return program.with_loops


def test_what_is_broadcast_three_ways():
    x, y, z = randn([3, 5, 7]), randn([5, 1], seed=1), randn([3, 1, 7], seed=2)
    assert_same_as_plain(lambda x, y, z: (x * y + z) * x - 2.0 * z, x, y, z)


def test_where_nothing_read_has_the_shape_of_the_result():
    x, y = randn([3, 1, 7]), randn([5, 1], seed=1)
    assert_same_as_plain(lambda x, y: (x * y) * (x + y), x, y)


def test_what_is_broadcast_in_five_ways():
    x, y = randn([2, 1, 3, 1, 4]), randn([2, 5, 1, 6, 1], seed=1)
    z = randn([5, 1, 6, 4], seed=2)
    assert_same_as_plain(lambda x, y, z: x * y + z, x, y, z)


def test_numbers_by_themselves():
    x, y = randn([]), randn([], seed=1)
    assert_same_as_plain(lambda x, y: (x * y + 1.0) * x - y, x, y)
    assert_same_as_plain(lambda x, y: (x * y + 1.0) * x - y, randn([1]), randn([1, 1]))


def test_results_of_another_shape_go_into_another_loop():
    x, y = randn([5, 7]), randn([7], seed=1)

    def function(x, y):
        small = y * y + 1.0
        return x * small + small * 2.0 - x

    program = assert_same_as_plain(function, x, y)
    assert [op.operator.name for op in program.ops] == ["region"]


def test_strided_memory():
    def function(x, w):
        a, b = x.transpose([1, 0]), x[:, ::2]
        c, d = paddle.split(w, 2)
        parts = x.T[1:3]
        return a * a + 1.0, b * b - b, c * d - c, parts * 2.0 + parts * parts

    assert_same_as_plain(function, randn([5, 7]), randn([6, 2], seed=1))


def test_arguments_in_strided_memory():
    x = randn([7, 5]).T
    assert not x.is_contiguous()
    assert_same_as_plain(lambda x: (x * x + 1.0) * x, x)


def test_constants_in_strided_memory():
    c = randn([7, 5]).T
    assert not c.is_contiguous()
    assert_same_as_plain(lambda x: (x * c + 1.0) * c - x, randn([5, 7], seed=1))


def test_a_constant_that_is_written_into():
    c = randn([5, 7])
    x = randn([5, 7], seed=1)
    run = compile_program(make_program(lambda x: (x * c + 1.0) * c)(x).with_loops)
    before = run(x)[0].numpy()
    c.set_value(c * 2.0)
    after = run(x)[0].numpy()
    np.testing.assert_array_equal(after, ((x * c + 1.0) * c).numpy())
    assert not np.array_equal(before, after)


def test_choices_and_comparisons():
    def function(x, y):
        is_less, is_large = x < y, x.abs() > 0.5
        chosen = paddle.where(is_less, x * 2.0, y - x)
        return chosen * is_large.astype(x.dtype), is_less, chosen >= 0.1

    assert_same_as_plain(function, randn([5, 7]), randn([5, 7], seed=1))


def test_both_precisions_in_one_loop():
    def function(x):
        return (x.astype("float64") * 0.1 + 1.0).astype("float32") * x

    assert_same_as_plain(function, randn([5, 7]))


def test_what_is_repeated_alone_stays_with_paddle():
    def function(x):
        return paddle.expand(x, [5, 7]) + 1.0

    assert_same_as_plain(function, randn([7]), loops=False)
    assert_same_as_plain(function, randn([5, 1]), loops=False)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers(dtype):
    """Those that are too large go around, as Paddle's do; what is no integer, and
    large numbers, stay Paddle's."""
    x = paddle.to_tensor([[3, -7, 2**31 - 1], [0, 5, -(2**31)]], dtype)
    y = paddle.to_tensor([[5, -(2**31), 9]], dtype)
    fns = (
        lambda x, y: (x * x + 1) * y - (7 - x) * 3,
        lambda x, y: paddle.where((x < y) | (x >= 3), x + y, y * 2),
        lambda x, y: (x > 2) & (y <= x),
    )
    for fn in fns:
        assert_same_as_plain(fn, x, y)
    for fn in (lambda x, y: (x / y) * 2.0, lambda x, y: (x + 1.5) * 2.0):
        program = make_program(fn)(x, y)
        for a, b in zip(compile_program(program)(x, y), program(x, y), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_truths_beside_numbers(number):
    truth, x = paddle.to_tensor([True, False, True]), randn([3])
    for fn in (
        lambda t, x: paddle.where(t == number, x, -x) * 2.0,
        lambda t, x: paddle.where(t != number, x, -x) * 2.0,
    ):
        program = make_program(fn)(truth, x)
        found = compile_program(program.with_loops)(truth, x)[0]
        np.testing.assert_array_equal(found.numpy(), fn(truth, x).numpy())


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_formula_keeps_the_dtype_of_integers(dtype):
    x = paddle.to_tensor([[3, -7, 2], [0, 5, -1]], dtype)
    for fn in (lambda x: x.trace() * 3, lambda x: paddle.dot(x[0], x[1]) + 1):
        program = make_program(fn)(x)
        found = compile_program(program.with_loops)(x)[0]
        assert found.dtype == fn(x).dtype
        np.testing.assert_array_equal(found.numpy(), fn(x).numpy())


def test_a_trace_beside_infinities():
    x = paddle.to_tensor([[3.0, float("inf")], [float("nan"), 2.0]])
    program = make_program(lambda x: x.trace() * 2.0)(x)
    assert float(compile_program(program.with_loops)(x)[0]) == 10.0


def test_no_argument_is_overwritten():
    x, y = randn([5, 7]), randn([5, 7], seed=1)
    before = x.numpy().copy(), y.numpy().copy()
    run = compile_program(make_program(lambda x, y: (x * y + x) * y)(x, y).with_loops)
    first = run(x, y)[0]
    kept = first.numpy().copy()
    run(x, y)
    np.testing.assert_array_equal(first.numpy(), kept)
    np.testing.assert_array_equal(x.numpy(), before[0])
    np.testing.assert_array_equal(y.numpy(), before[1])


def random_function(seed, curve):
    """A function of a table, a row and a column in operators at random.

    Args:
        curve: one of them.
    """
    rng = np.random.default_rng(seed)
    steps = [(int(rng.integers(12)), *rng.integers(0, 1 << 30, 2)) for _ in range(40)]

    def function(x, row, column, w):
        known = [x, row, column, x * 0.5]
        for kind, i, j in steps:
            a, b = known[i % len(known)], known[j % len(known)]
            if kind == 0:
                a = curve(a)
            elif kind == 1:
                a = a - b
            elif kind == 2:
                a = a * b
            elif kind == 3:
                a = paddle.where(a > b, a, b * 0.5)
            elif kind == 4 and a.shape == x.shape:
                a = paddle.matmul(a, w)
            elif kind == 5:
                a = 1.0 - paddle.square(a)
            elif kind == 6 and a.shape == x.shape:
                a = a.T.reshape([5, 7])
            elif kind == 7:
                a = a / (1.0 + b * b)
            elif kind == 8 and a.shape == x.shape:
                a = a.sum(axis=1, keepdim=True)
            elif kind == 9:
                a = paddle.expand(a, x.shape) + 1.0
            elif kind == 10:
                a = paddle.matmul(a[:, :1], w[:1]) if a.shape == x.shape else a * 1.5
            else:
                a = a + b * 0.25
            known.append(a)
        return known[-1], known[-2], known[len(known) // 2]

    return function


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed, count_case):
    dtype = ("float32", "float64")[seed % 2]
    x, row = randn([5, 7], dtype, seed), randn([7], dtype, seed + 1)
    column, w = randn([5, 1], dtype, seed + 2), randn([7, 7], dtype, seed + 3)
    # Of tanh, loops have Paddle's bits in float32 alone.
    curves = {"float32": paddle.tanh, "float64": paddle.nn.functional.softsign}
    function = random_function(seed, curves[dtype])
    assert_same_as_plain(function, x, row, column, w, eps=1000)

    def gradients(x, row, column, w):
        outputs, back = vjp(function, x, row, column, w)
        return back(outputs)

    assert_same_as_plain(gradients, x, row, column, w, eps=10000)
    count_case("random programs with loops")


def test_sums_of_many_tensors_do_not_keep_them_all():
    def function(x, w):
        total = x
        for _ in range(60):
            x = paddle.tanh(paddle.matmul(x, w))
            total = total + x * x
        return total

    x, w = randn([50, 50]), randn([50, 50], seed=1) * 0.1
    program = assert_same_as_plain(function, x, w, eps=100)
    plain = make_program(function)(x, w)
    assert program.peak_bytes <= plain.peak_bytes + (MAX_LIVE_LEAVES + 1) * 50 * 50 * 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_silu_and_its_sigmoid_share(dtype):
    rng = np.random.default_rng(0)
    x = paddle.concat([numbers((400,), dtype, rng), randn([100], dtype) * 100])
    for both in (
        lambda x: (paddle.nn.functional.silu(x), paddle.nn.functional.sigmoid(x)),
        lambda x: (paddle.nn.functional.sigmoid(x), paddle.nn.functional.silu(x)),
    ):
        program = make_program(both)(x)
        shared = replace(program, ops=tuple(share_subkernels(program.ops)))
        for a, b in zip(compile_program(shared)(x), both(x), strict=True):
            assert_same_bits(a, b)
        names = sorted(op.operator.name for op in shared.ops)
        assert names == ["multiply", "sigmoid"]
    z = paddle.complex(randn([5], dtype), randn([5], dtype, 1))
    program = make_program(lambda z: (paddle.nn.functional.silu(z), z))(z)
    assert "silu" in program.python()


def test_what_is_repeated_but_fits_no_loop_runs_once():
    def function(p, q, x):
        w = paddle.tanh(x)
        v = w * x  # cheap, in two groups of too many ways of broadcasting
        s = paddle.sin(v + p + q)
        return v * s + p - q

    p, q = randn([3, 1, 4, 1]), randn([1, 5, 1, 2], seed=1)
    x = randn([3, 5, 4, 2], seed=2)
    program = assert_same_as_plain(function, p, q, x, eps=8)
    assert len({*program.ops}) == len(program.ops)


def test_numbers_that_paddle_has_equal():
    x = paddle.to_tensor([1e-17, 2.0, -1e-20, 0.0], dtype="float64")
    assert_same_as_plain(
        lambda x: (
            paddle.where(x == 0.0, x * 7.0 + 1.0, x * 2.0)
            + (x != 0.0).astype(x.dtype) * x
        ),
        x,
    )


def test_sums_of_several_dimensions_and_of_none():
    x = randn([3, 5, 40])
    assert_same_as_plain(lambda x: (x * x - x).sum([0, 1]), x, eps=8)
    assert_same_as_plain(lambda x: (x * x - x).sum([0, 2], keepdim=True), x, eps=8)
    assert_same_as_plain(lambda x: (x * x - x).sum([1, 2]) * 3.0, x, eps=8)
    assert_same_as_plain(lambda x: (x * x - x).sum(), x, eps=8)
    assert_same_as_plain(lambda x: (x * x - x).mean([1], keepdim=True) * x, x, eps=8)
    assert_same_as_plain(lambda x: (x * x - x).mean() - x, x, eps=8)
    assert_same_as_plain(lambda x: (x * x - x).sum(0) * x, x)
    assert_same_as_plain(lambda x: (x * 2.0 + 1.0).sum(0) * 3.0 + 1.0, randn([]))
    assert_same_as_plain(lambda x: (x * 2.0).sum(0), randn([9000, 2]), eps=64)


def test_what_comes_early_takes_little_memory():
    def terms(x, c):
        total = c
        for i in range(60):
            y = paddle.nn.functional.softsign(x * (0.001 * i) + 1.0)  # is in no loop
            total = total + y * c
        return total

    def results(x, c):
        return [x * float(i) + c for i in range(200)]

    x, c = randn([50, 50]), randn([50, 50], seed=1)
    plain = make_program(terms)(x, c)
    program = assert_same_as_plain(terms, x, c, eps=32)
    assert (
        program.peak_bytes
        <= plain.peak_bytes + (MAX_LIVE_LEAVES + MAX_SIBLINGS + 1) * 50 * 50 * 4
    )
    assert_same_as_plain(results, x, c)


def test_long_chains_and_many_terms():
    x = randn([5, 7])

    def chain(x):
        y = x
        for _ in range(1500):
            y = y * 0.999 + x
        return y

    def terms(*xs):
        total = xs[0]
        for y in xs[1:]:
            total = total + y * 0.5
        return total

    assert_same_as_plain(chain, x)
    assert_same_as_plain(terms, *(randn([5, 7], seed=i) for i in range(300)))


@products_on
@loops_on
def test_cheap_results_are_not_kept_for_the_way_back(monkeypatch):
    net = FCNet((2, 20, 20, 1), "tanh")
    params, x = net.init(0), randn([9, 2])
    names, leaves = [*params], [*params.values()]

    def residual(leaves):
        return [laplacian(net, dict(zip(names, leaves, strict=True)), x)], None

    def way():
        found = ProgramCache(residual).compile_vjp(leaves)
        saved, _ = found.forward_backward.residuals_and_backward
        return found, sum(v.bytes for v in saved)

    ours, kept = way()
    monkeypatch.setattr(program_cache, "loops_are_on", lambda: False)
    plain, kept_without = way()
    assert kept < 0.75 * kept_without
    found = [
        compile_program(way.forward_backward.combined.with_loops)
        for way in (ours, plain)
    ]
    cotangent = randn([9, 1], seed=1)
    outputs = [run(*leaves, cotangent) for run in found]
    count = (
        ours.forward_backward.count,
        len(ours.forward_backward.residuals_and_backward[0]),
        len(plain.forward_backward.residuals_and_backward[0]),
    )
    first = outputs[0][count[0] + count[1] :], outputs[1][count[0] + count[2] :]
    assert len(first[0]) == len(first[1]) > 3
    for a, b in zip(*first, strict=True):
        assert_same_bits(a, b)


@loops_on
def test_functions_go_over_after_some_calls(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 3)
    x = randn([5, 7])
    program = make_program(lambda x: paddle.tanh((x * x + 1.0) * x) * 2.0 - x)(x)
    run = program.function  # which was called once, to be compared
    assert run is program.function
    found = []
    for _ in range(5):
        found.append((run(x)[0], "region" in run.__code__.co_names))
    assert [flag for _, flag in found] == [False] * 2 + [True] * 3
    for tensor, _ in found:
        assert_same_bits(tensor, found[0][0])


@loops_on
def test_after_an_interrupt_the_next_call_goes_over(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 2)
    native = jit_engine._compile

    def interrupted(kernels):
        raise KeyboardInterrupt

    x = randn([5, 7])
    run = make_program(lambda x: (x * x + 1.75) * x)(x).function
    monkeypatch.setattr(jit_engine, "_compile", interrupted)
    expected = run(x)[0]
    with pytest.raises(KeyboardInterrupt):
        run(x)
    monkeypatch.setattr(jit_engine, "_compile", native)
    assert "region" not in run.__code__.co_names
    for _ in range(2):
        assert_same_bits(run(x)[0], expected)
        assert "region" in run.__code__.co_names


@loops_on
def test_errors_of_the_machine_are_told_once_and_change_nothing(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 2)

    def broken(kernels, then):
        raise RuntimeError("no such processor")

    monkeypatch.setattr(program_module, "begin_machine_code", broken)
    x = randn([5, 7])
    run = make_program(lambda x: (x * x + 1.0) * x)(x).function
    expected = run(x)[0]
    with pytest.warns(UserWarning, match="no such processor.*PADDLE_CHAINRULES_LOOPS"):
        assert_same_bits(run(x)[0], expected)
    assert_same_bits(run(x)[0], expected)


def test_lines_of_what_is_gone_go_with_the_next_function():
    """Not in the midst of a collection, where a debugger may go through them."""
    program = make_program(lambda x: x * x + 1.0)(randn([5, 7]))
    run = compile_program(program)
    file = run.__code__.co_filename
    assert "t0" in linecache.getline(file, 2)
    del run
    gc.collect()
    assert file in linecache.cache
    compile_program(program)
    assert file not in linecache.cache


@loops_on
def test_threads_that_call_while_a_function_goes_over(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 50)
    x = randn([50, 7])
    program = make_program(lambda x: paddle.tanh((x * x + 1.0) * x) * 2.0 - x)(x)
    run = program.function
    expected, wrong = run(x)[0].numpy(), []

    def calls():
        for _ in range(200):
            if not np.array_equal(run(x)[0].numpy(), expected):
                wrong.append(1)

    on_threads(calls, [()] * 4)
    assert not wrong
    assert "region" in run.__code__.co_names


def test_loops_of_the_same_arithmetic_are_compiled_once(monkeypatch):
    made = []
    native = jit_engine._compile

    def compile_them(kernels):
        made.append(len(kernels))
        return native(kernels)

    monkeypatch.setattr(jit_engine, "_compile", compile_them)
    programs = [  # who are let go of, and their loops, would be compiled anew
        assert_same_as_plain(
            lambda x: (x * 0.625 + 1.125) * x, randn([5, 9], seed=seed)
        )
        for seed in range(3)
    ]
    assert sum(made) <= 1 < len(programs)


def test_any_number_of_samples(monkeypatch):
    monkeypatch.setattr(switch, "CALLS_BEFORE_CODE", 2)
    paddle.seed(0)
    layer = paddle.nn.Sequential(
        paddle.nn.Linear(3, 11), paddle.nn.Tanh(), paddle.nn.Linear(11, 1)
    )
    net, params, _ = stateless(layer, jit=True)
    for _ in range(5):
        for n in (4, 9, 6, 13):
            x, c = randn([n, 3], seed=n), randn([n, 1], seed=n + 1)
            _, back = net.pullback(params, x)
            found = back(c)[1][0]
            x.stop_gradient = False
            (expected,) = paddle.grad(layer(x), x, c)
            np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("name", sorted(source.DENSE))
def test_results_that_are_not_looked_at_have_no_gaps(name):
    """Whatever the arguments' strides are."""
    x, w, g = randn([4, 6]).T[::2], randn([5, 4]).T, randn([5, 3]).T
    bias = randn([5]).expand([3, 5])
    vectors = randn([4]), w, randn([5])
    stacks = randn([2, 3, 4]), w, randn([2, 5, 3]).transpose([0, 2, 1])
    given = {
        "matmul": [
            (x, w, False, False),
            (x, w.T, False, True),
            (*stacks[:2], False, False),
        ],
        "matmul_grad": [
            (x, w, g, False, False),
            (x.T, w.T, g, True, True),
            (*vectors, False, False),
            (*stacks, False, False),
        ],
        "addmm": [(bias, x, w, 1.0, 1.0)],
        "addmm_grad": [(bias, x, w, g, 1.0, 1.0), (bias[0], x, w, g, 1.0, 1.0)],
    }
    for args in given[name]:
        results = getattr(RAW, name)(*args)
        for result in results if isinstance(results, list | tuple) else [results]:
            assert result.is_contiguous()


def test_a_program_prints_its_loops():
    program = make_program(lambda x: (x * x + 1.0) * x)(randn([5, 7]))
    assert "region(pack4(0, never, *map(address, [t0, " in program.python(loops=True)
    assert "region" not in program.python()
