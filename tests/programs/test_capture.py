"""What may be captured: every check has a function that it alone catches."""

import gc
import sys
import threading
import types
import weakref

import numpy as np
import paddle
import pytest
from paddle import nn

from conftest import assert_same, on_threads, programs_on, randn, run_code
from paddle_chainrules import (
    CaptureError,
    explain,
    grad,
    jit,
    jvp,
    make_program,
    stateless,
    value_and_grad,
)
from paddle_chainrules.paddle_side import interception, listener
from paddle_chainrules.paddle_side.compared_results import ComparedResult
from paddle_chainrules.paddle_side.patching import patch_sites
from paddle_chainrules.programs import capture
from paddle_chainrules.programs.comparison import other_numbers

X = randn([3, 4])


def counting():
    calls = []

    def fn(x):
        calls.append(1)
        return x * float(len(calls))

    return fn


def beforehand():
    w = randn([4])
    w.stop_gradient = False
    v = paddle.exp(w)
    return lambda x: x * v


def written():
    kept = paddle.zeros([3, 4])

    def fn(x):
        y = x + kept
        with paddle.no_grad():
            kept.fill_(1.0)
        return y

    return fn


def grows(x):
    return paddle.nonzero(x > 0)


def required(x):
    x.stop_gradient = False
    return x


UNSAFE = {
    "leaves by float": (
        lambda x: x * float(x.sum()),
        r"leaves the program by float\(x\)",
    ),
    "leaves by numpy": (
        lambda x: x * x.numpy().max(),
        r"leaves the program by x\.numpy\(\)",
    ),
    "leaves by item": (lambda x: x * x.max().item(), "leaves the program by"),
    "leaves by if": (
        lambda x: x if x.sum() > 0 else -x,
        "decides by a value: use cond",
    ),
    "an unknown operator": (grows, r"the operator nonzero is not in the table"),
    "computed beforehand": (beforehand(), "no operator that programs know"),
    "written in place": (
        written(),
        r"fill_ writes into a tensor that the function has not made",
    ),
    "backward": (
        lambda x: (required(x) ** 2).sum().backward(),
        "leaves the program by backward",
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_is_no_program_is_said_and_runs_as_it_is(name):
    fn, why = UNSAFE[name]
    with pytest.raises(CaptureError, match=why):
        make_program(fn)(X)
    said = explain(fn, X)
    assert "test_capture.py" in said
    with pytest.raises(CaptureError, match=why):
        jit(fn, strict=True)(X)
    if name in ("written in place", "backward"):
        return
    np.testing.assert_array_equal(jit(fn)(X).numpy(), fn(X).numpy())


def test_automatic_casting_is_no_program(monkeypatch):
    # Paddle's CPU build does not cast.
    module = sys.modules[capture.__module__]
    monkeypatch.setattr(module, "casts_automatically", lambda: True)
    with pytest.raises(CaptureError, match="automatic casting"):
        capture(lambda leaves: [leaves[0] * 2], [X])


def test_a_program_is_read_and_runs_by_itself():
    layer = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    program = make_program(layer)(X)
    assert [op.operator.name for op in program.ops] == ["linear", "tanh", "linear"]
    text = repr(program)
    assert "t0: float32[3, 4]" in text
    assert "tanh(t" in text
    assert "test_capture.py:" in text
    source = program.python()
    assert source.startswith("def program(t0):\n")
    assert "    del t" in source  # tensors go at their last use
    assert_same(program(X), [layer(X)])
    # The one of 3 x 5, which tanh overwrites, beside the result of 3 x 2.
    assert "tanh_(t" in source
    assert program.peak_bytes == 4 * (3 * 5 + 3 * 2)


def test_what_is_not_needed_and_what_is_there_twice_goes():
    def fn(x):
        _ = paddle.exp(x)
        a, b = paddle.tanh(x), paddle.tanh(x)
        return a * b

    names = [op.operator.name for op in make_program(fn)(X).ops]
    assert names == ["tanh", "multiply"]


def test_results_share_no_memory_with_arguments_or_each_other():
    def fn(x):
        y = x * 2
        return x, x.reshape([12]), y, y.reshape([2, 6]), x.detach()

    before = X.numpy()
    results = jit(fn, strict=True)(X)
    for i, result in enumerate(results):
        with paddle.no_grad():
            result.fill_(float(i))
    np.testing.assert_array_equal(X.numpy(), before)
    for i, result in enumerate(results):
        assert (result.numpy() == i).all()


def current_value():
    """What stands in all places of operators."""
    interception._operator_slots()  # looks for new ones
    return {
        key: id(patch_sites.current_value(p.owner, p.name))
        for key, p in interception._all_slots.items()
    }


class Stop(BaseException):
    pass


@pytest.mark.parametrize("how", ["returns", "fails", "stops"])
def test_nothing_of_a_capture_stays(how):
    def fn(x):
        y = paddle.tanh(x)
        if how == "fails":
            raise LookupError(how)
        if how == "stops":
            raise Stop
        return y

    jit(fn) if how != "returns" else jit(fn)(X)  # all places have been looked at
    before = current_value()
    enabled = paddle.is_grad_enabled()
    if how == "returns":
        jit(lambda x: paddle.tanh(x) + 1)(X)
    else:
        with pytest.raises(LookupError if how == "fails" else Stop):
            jit(fn)(X)
    assert current_value() == before
    assert not patch_sites.listener_slots
    assert listener.local.listener is None
    assert paddle.is_grad_enabled() == enabled
    assert gc.isenabled()


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_afterwards_where_it_was_before(enabled):
    within = []

    def fn(x):
        within.append(gc.isenabled())
        return paddle.tanh(x)

    try:
        gc.enable() if enabled else gc.disable()
        jit(fn, strict=True)(X)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
    assert within == [False]


def test_what_was_recorded_is_gone_when_it_is_compared():
    """Whose memory the function takes then."""
    met, alive = [], []

    def fn(x):
        hidden = paddle.tanh(x)
        alive.append([ref() is not None for ref in met])
        met.append(weakref.ref(hidden))
        return (hidden * x).sum()

    capture(lambda leaves: value_and_grad(fn)(*leaves), [X])
    assert alive == [[], [False]]


def test_a_function_that_nobody_asked_to_capture_is_compared_on_other_numbers():
    fn = counting()
    with pytest.raises(CaptureError, match="from the function's on other numbers"):
        capture(lambda leaves: [fn(*leaves)], [X])


def test_operators_are_where_somebody_calls_them():
    def loss(x):
        return paddle.tanh(x).sum()

    ops = make_program(grad(loss))(X).ops
    assert {"tanh", "tanh_grad"} <= {op.operator.name for op in ops}
    assert {op.where.split(":")[0] for op in ops} <= {"test_capture.py", "watching.py"}


def test_no_other_thread_is_recorded_or_changed():
    stop, wrong, calls = threading.Event(), [], [0]
    w = randn([4, 4], seed=3)
    expected = paddle.tanh(paddle.matmul(w, w)).numpy()

    def work():
        while not stop.is_set():
            found = paddle.tanh(paddle.matmul(w, w)).numpy()
            calls[0] += 1
            if not (found == expected).all():
                wrong.append(found)

    def nested():
        # Its rules for nested derivatives come and go meanwhile.
        from paddle_chainrules import hessian

        h = hessian(lambda x: (x**3 / 3).sum())
        while not stop.is_set():
            if not np.allclose(
                np.diagonal(h(w[0]).numpy()), 2 * w[0].numpy(), atol=1e-5
            ):
                wrong.append("hessian")

    threads = [threading.Thread(target=f) for f in (work, work, nested)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        for i in range(60):
            program = make_program(lambda x, i=i: paddle.tanh(x) * i + x)(X)
            names = [op.operator.name for op in program.ops]
            assert names == ["tanh", "Tensor.__mul__", "add"]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not wrong
    assert calls[0] > 60


def test_a_net_reached_by_a_weak_reference_is_refused_as_on_the_tape():
    import weakref

    class Hidden(nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 2)
            self.by = weakref.ref(self.inner)

        def forward(self, x):
            return self.by()(x)

    layer = Hidden()
    net, params, _ = stateless(layer, jit=True)
    with pytest.raises(TypeError, match="weak reference"):
        net.forward(params, X)


FIRST = """
import paddle
from paddle_chainrules import jit, value_and_grad

step = jit(value_and_grad(lambda x: (x * x).sum()))
x = paddle.ones([2])
step(x)
wrote = []

def write(x):
    if wrote:
        x.set_value(paddle.zeros([2]))
    wrote.append(1)
    return (x * x).sum()

call = value_and_grad(write)
call(x)
try:
    call(x)
except RuntimeError as error:
    print("refused:", "written into one of its arguments" in str(error))
"""


def test_writes_are_counted_after_a_capture_was_the_first_of_a_process():
    done = run_code(FIRST)
    assert done.stdout == "refused: True\n", done.stderr


def of_a_shape_in_a_tensor(x, n):
    return x.reshape(n).mean(0).sum()


def expanded_as_a_tensor_says(x, n):
    return x.expand(n).sum(0).mean()


def filled_with_a_number_of_a_tensor(x, n):
    return (x * paddle.full_like(x, n[0])).sum()


@pytest.mark.parametrize(
    "fn",
    [
        of_a_shape_in_a_tensor,
        expanded_as_a_tensor_says,
        filled_with_a_number_of_a_tensor,
    ],
)
def test_what_a_tensor_says_of_shapes_and_constants_is_read_at_every_call(fn):
    x = randn([12], "float64")
    step = jit(value_and_grad(fn))
    for n in ([3, 12], [12, 12], [2, 12]):
        n = n if fn is expanded_as_a_tensor_says else [n[0], 12 // n[0]]
        given = paddle.to_tensor(n)
        for found, like in zip(
            step(x, given), value_and_grad(fn)(x, given), strict=True
        ):
            np.testing.assert_allclose(found.numpy(), like.numpy(), rtol=1e-12)
    compiles = fn is filled_with_a_number_of_a_tensor  # which is an input of it
    assert ("program of" in explain(fn, x, paddle.to_tensor([3, 4]))) is compiles


@pytest.mark.parametrize(
    "fn",
    [
        lambda m, x: x.data + 1,
        lambda m, x: x * x.data[0],
        lambda m, x: paddle.where(m.data, x, x * 2),
    ],
)
def test_the_data_of_a_tensor_is_the_tensor(fn):
    step = jit(fn, strict=True)
    for seed in range(3):
        x = randn([4], seed=seed)
        np.testing.assert_array_equal(step(x > 0, x).numpy(), fn(x > 0, x).numpy())


def test_other_numbers_are_other_also_for_scalars_integers_and_masks():
    for x in (
        *(paddle.to_tensor(3.0), paddle.zeros([1]), randn([3, 4]), paddle.arange(5)),
        *(paddle.to_tensor(3.0 + 0j), paddle.complex(randn([3]), randn([3], seed=1))),
        paddle.to_tensor([[True, False], [False, False]]),
    ):
        moved = other_numbers(x)
        assert moved.shape == x.shape
        assert moved.dtype == x.dtype
        same = (moved == x).astype("int64")
        assert int(same.sum()) == (2 if x.dtype == paddle.bool else 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [[], [1], [4092], [4093], [2, 4093], [3, 61, 137]])
def test_other_numbers_of_many_are_near_and_others_in_every_place(shape, dtype):
    x = randn(shape, dtype)
    x = paddle.where(x.abs() < 0.1, paddle.zeros_like(x), x)
    before, moved = x.numpy().copy(), other_numbers(x)
    assert moved.dtype == x.dtype
    assert moved.shape == x.shape
    np.testing.assert_array_equal(x.numpy(), before)
    found = moved.numpy()
    assert (found != before).all()
    assert (abs(found - before) <= 0.2101 * abs(before) + 0.1051).all()
    assert (found[before != 0] * before[before != 0] > 0).all()


def test_results_are_compared_with_the_largest_of_their_entries():
    one = ComparedResult(paddle.to_tensor([1.0, -8.0, 0.0]))
    assert one.largest == 8
    assert (
        ComparedResult(paddle.to_tensor([1.0, float("nan"), -float("inf")])).largest
        == 1
    )
    near, far = (paddle.to_tensor([1.0 + by, -8.0, 0.0]) for by in (0.015, 0.02))
    assert ComparedResult(near).is_close(one, 8.0)
    assert not ComparedResult(far).is_close(one, 8.0)
    none = ComparedResult(paddle.to_tensor([float("nan"), -8.0, 0.0]))
    assert none.is_close(none, 8.0)
    assert not none.is_close(one, 8.0)
    assert not one.is_close(none, 8.0)
    whole = [ComparedResult(paddle.to_tensor([1, n])) for n in (2, 2, 3)]
    assert whole[0].is_close(whole[1], 8.0)
    assert not whole[0].is_close(whole[2], 8.0)
    tiny = [ComparedResult(paddle.to_tensor([by])) for by in (1e-9, -1e-9)]
    assert tiny[0].is_close(tiny[1], 1.0)  # zero but for rounding of others
    assert not tiny[0].is_close(tiny[1], 1e-9)


@programs_on
@pytest.mark.parametrize("name", ["roll", "cumsum", "real", "conj"])
def test_slopes_of_linear_functions_are_these_functions_of_tangents(name):
    # Whose derivative is of nothing but a leaf that is made while they are captured.
    def fn(x):
        z = paddle.complex(x, x * 0.5)
        linear = getattr(paddle, name)
        return linear(x, 0) if name in ("roll", "cumsum") else linear(z)

    x, v = randn([3, 4], "float64"), randn([3, 4], "float64", seed=1)
    for call in (fn, jit(fn, strict=True)):
        _, found = jvp(call, (x,), (v,))
        np.testing.assert_allclose(found.numpy(), fn(v).numpy(), rtol=1e-12)


def test_selu_and_roll_are_programs():
    x = randn([3, 4], "float64")
    for fn in (
        paddle.nn.functional.selu,
        lambda x: paddle.roll(x * x, 1),
        lambda x: paddle.roll(x * x, 1, 0),
    ):
        found = jit(grad(lambda x, fn=fn: (fn(x) * x).sum()), strict=True)(x)
        like = grad(lambda x, fn=fn: (fn(x) * x).sum())(x)
        np.testing.assert_allclose(found.numpy(), like.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("act", ["relu", "sigmoid", "tanh"])
def test_operators_of_paddle_s_older_interface(act):
    layer = paddle.nn.BatchNorm(3, act=act).eval()
    x = randn([2, 3, 4, 5])
    program = make_program(layer)(x)
    assert [op.operator.name for op in program.ops] == ["batch_norm", act]
    assert_same(program(x), [layer(x)])
    assert "built-in" in repr(paddle._legacy_C_ops.relu)


def test_captures_of_several_threads_leave_the_collector_as_it_was():
    def captures(number):
        w = paddle.full([3, 4], float(number))
        w.stop_gradient = False
        for _ in range(12):
            x = paddle.ones([5, 3])
            x.stop_gradient = False
            jit(lambda x: paddle.tanh(x @ w).sum())(x)

    assert gc.isenabled()
    on_threads(captures, [(1,), (2,), (3,), (4,)])
    assert gc.isenabled()


def test_a_function_that_wraps_itself_is_looked_at_once(monkeypatch):
    module = types.ModuleType("a_module_of_somebody")
    module.itself = lambda x: x
    module.itself.__wrapped__ = module.itself
    monkeypatch.setitem(sys.modules, module.__name__, module)
    program = make_program(lambda x: x * 2)(X)
    assert_same(program(X), [X * 2])
