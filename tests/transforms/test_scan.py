"""Loops of steps give what the steps give, by machine code or without."""

import contextlib
import copy
import gc
import signal
import sys
import threading
import time
import weakref
from functools import partial

import numpy as np
import optree
import paddle
import pytest

from conftest import loops_on, on_threads, products_on, randn
from paddle_chainrules import (
    FCNet,
    fori_loop,
    grad,
    jit,
    optimizers,
    scan,
    stateless,
    value_and_grad,
    vjp,
    vmap,
    while_loop,
)
from paddle_chainrules.programs import scan_op
from paddle_chainrules.programs.compiling import repeated_steps
from paddle_chainrules.programs.compiling.repeated_steps import MAX_EAGER_STEPS as FEW
from trees import assert_near

scan_module = sys.modules["paddle_chainrules.transforms.control_flow.scan"]

assert_same = partial(assert_near, rtol=1e-5)
NET = FCNet((3, 8, 2), "tanh")
MANY = FEW + 24


@pytest.fixture
def made(monkeypatch):
    """How many loops ran as machine code."""
    found = []
    start = repeated_steps.RepeatedStep.__init__

    def init(self, *args, **kwargs):
        start(self, *args, **kwargs)
        found.append(self)

    monkeypatch.setattr(repeated_steps.RepeatedStep, "__init__", init)
    return found


def one_by_one(step, carry, xs, length):
    """The oracle: Python's loop."""
    ys = []
    for t in range(length):
        part = optree.tree_map(lambda x, t=t: x[t], xs)
        carry, y = step(carry, part)
        ys.append(y)
    return carry, optree.tree_map(lambda *row: paddle.stack([*row]), *ys)


def training(optimizer):
    def step(carry, x):
        params, state = carry

        def loss(params):
            return ((NET(params, x) - x[:, :2].sin()) ** 2).mean()

        value, grads = value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        params = optimizers.apply_updates(params, updates)
        return (params, state), {"loss": value, "largest": grads["0.weight"].max()}

    return step


def of_places(carry, x):
    """Places change, one is given and kept, one comes back as it was."""
    total, factor, count = carry
    total = total * factor + x["a"].sum(0) * x["b"]
    return (total, factor, count + 1), (total.sin(), x["a"] + 1.0)


CASES = {
    "training": (
        training(optimizers.adam(optimizers.schedules.cosine_annealing(0.1, 30))),
        lambda: (
            NET.init(0),
            optimizers.adam(0.1).init(NET.init(0)),
        ),
        lambda: randn([MANY, 16, 3]),
    ),
    "what is given and kept": (
        of_places,
        lambda: (randn([4]), paddle.full([4], 0.9), paddle.zeros([], "int64")),
        lambda: {"a": randn([MANY, 3, 4]), "b": randn([MANY], seed=1)},
    ),
    "without xs": (
        lambda c, _: (c * 0.5 + c.sin(), None),
        lambda: randn([5], "float64"),
        lambda: None,
    ),
    "words": (
        lambda c, i: (c + paddle.gather(c, i).mean(0), c[i]),
        lambda: randn([6, 3]),
        lambda: paddle.randint(0, 6, [MANY, 2]),
    ),
}


@products_on
@loops_on
@pytest.mark.parametrize("name", CASES)
def test_steps_as_one_function_of_machine_code(name, made):
    paddle.seed(0)
    step, carry, xs = CASES[name]
    carry, xs = carry(), xs()
    before = [x.clone() for x in optree.tree_leaves((carry, xs))]
    expected = one_by_one(step, carry, xs, MANY)
    for _ in range(2):
        assert_same(scan(step, carry, xs, MANY), expected)
    assert len(made) == 2
    for x, own in zip(optree.tree_leaves((carry, xs)), before, strict=True):
        np.testing.assert_array_equal(x.numpy(), own.numpy())


BY_PROGRAMS = {
    "places that change": (
        lambda c, _: ((c[1], c[0] * 0.5 + c[1].sin()), c[0] * 2.0),
        lambda: (randn([3]), randn([3], seed=1)),
    ),
    "the carry as what a step gives": (
        lambda c, _: ((d := c * 0.5 + 1.0), d),
        lambda: randn([3]),
    ),
    "random numbers": (
        lambda c, _: (c + paddle.nn.functional.dropout(c, 0.5), c.sum()),
        lambda: randn([3]),
    ),
    "an operator of Paddle's alone": (
        lambda c, _: (paddle.asinh(c * 1.5) * 0.9, c.sum()),
        lambda: randn([3, 4]),
    ),
    "of no elements": (
        lambda c, _: ((c[0] * 2.0, c[1] * 0.5 + 1.0), c[1]),
        lambda: (paddle.zeros([0, 3]), randn([2])),
    ),
}


MADE = ("places that change", "the carry as what a step gives")
"""Which copies make one function of."""


@pytest.mark.parametrize("name", BY_PROGRAMS)
def test_other_steps(name, made):
    step, carry = BY_PROGRAMS[name]
    carry = carry()
    paddle.seed(3)
    expected = one_by_one(step, carry, None, MANY)
    paddle.seed(3)
    assert_same(scan(step, carry, length=MANY), expected)
    assert not made or name in MADE


@pytest.mark.parametrize("how", ["programs", "loops"])
def test_switched_off(how, made, monkeypatch):
    monkeypatch.setattr(scan_module, f"{how}_are_on", lambda: False)
    step, carry, xs = CASES["what is given and kept"]
    carry, xs = carry(), xs()
    found = scan(step, carry, xs)
    assert_same(found, one_by_one(step, carry, xs, MANY))
    assert not made


@pytest.mark.parametrize(
    "count",
    [
        0,
        1,
        2,
        5,
        FEW,
        FEW + 1,
        FEW + 2,
        FEW + 3,
    ],
)
def test_any_number_of_steps(count):
    step, carry, _ = CASES["what is given and kept"]
    carry, xs = carry(), {"a": randn([count, 3, 4]), "b": randn([count], seed=1)}
    found = scan(step, carry, xs)
    if count:
        assert_same(found, one_by_one(step, carry, xs, count))
    else:
        assert_same(found[0], carry)
        assert [y.shape for y in found[1]] == [[0, 4], [0, 3, 4]]


@loops_on
@pytest.mark.parametrize("length", [1, 2, 5])
def test_few_steps_again_and_again(made, length):
    """A program that is kept is machine code after so many steps of all loops."""
    step, carry, _ = CASES["what is given and kept"]
    kept, carry = jit(lambda c, x: step(c, x)), carry()  # whose programs are its own
    before = FEW // length
    for k in range(before + 3):
        xs = {"a": randn([length, 3, 4], seed=k), "b": randn([length], seed=k + 9)}
        expected = one_by_one(step, carry, xs, length)
        start = [x.numpy() for x in carry]
        found = scan(kept, carry, xs)
        assert_same(found, expected)
        assert all((a == b.numpy()).all() for a, b in zip(start, carry, strict=True))
        assert len(made) == max(0, k + 1 - before)
        carry = found[0]
    other = carry[0], carry[1].astype("float64"), carry[2]
    xs = {"a": randn([MANY, 3, 4]), "b": randn([MANY])}
    with pytest.raises(
        ValueError, match=r"from float32\[4\] to float64\[4\] at leaf 0"
    ):
        scan(kept, other, xs)


@loops_on
def test_few_steps_that_others_read_numbers_of(made):
    """What a step closes over is as it is at each loop, and another shape is another
    program."""
    scale = paddle.to_tensor(0.5)

    @jit
    def step(c, x):
        return c * scale + x, {"sum": c.sum(), "none": None}

    for k in range(FEW + 5):
        paddle.assign(paddle.to_tensor(0.5 + 0.01 * k), scale)
        carry, xs = randn([2 + k % 2, 3], seed=k), randn([4, 3], seed=k + 1)
        found, ys = scan(step, carry, xs)
        assert ys["none"] is None
        last, sums = carry.numpy(), []
        for x in xs.numpy():
            sums.append(last.sum())
            last = last * np.float32(0.5 + 0.01 * k) + x
        np.testing.assert_allclose(found.numpy(), last, rtol=0, atol=1e-5)
        np.testing.assert_allclose(ys["sum"].numpy(), sums, rtol=0, atol=1e-5)
    assert len(made) > FEW // 2


@products_on
@loops_on
def test_a_body_that_is_kept(made):
    """Of jit(body) loops of any number of steps keep the program, and its gradients."""
    calls, w = [], randn([3, 3])

    @jit
    def body(i, c):
        calls.append(i)
        return {"c": (c["c"] @ w).tanh() * (1.0 + 0.1 * i.astype("float32"))}

    def expected(n, c):
        for i in range(n):
            c = np.tanh(c @ w.numpy()) * np.float32(1.0 + 0.1 * i)
        return c

    for n in (5, 3, 0, 9, 2, FEW + 4, 1):
        c = randn([2, 3], seed=n)
        found = fori_loop(0, n, body, {"c": c})["c"].numpy()
        np.testing.assert_allclose(found, expected(n, c.numpy()), rtol=0, atol=1e-5)
    assert len(made) == 4
    assert len(calls) <= 4  # captured once, with a comparison, and for no steps
    c, seen = randn([2, 3]), len(calls)
    for _ in range(3):
        g = grad(lambda c: fori_loop(0, FEW + 4, body, {"c": c})["c"].sum())(c)
    seen = len(calls) - seen
    assert seen < 3 * (FEW + 4)
    h = 1e-2
    up, down = c.numpy(), c.numpy()
    up[1, 2] += h
    down[1, 2] -= h
    ends = (
        expected(FEW + 4, up).sum(),
        expected(FEW + 4, down).sum(),
    )
    np.testing.assert_allclose(float(g[1, 2]), (ends[0] - ends[1]) / (2 * h), atol=2e-3)


@loops_on
@pytest.mark.parametrize("count", [5, MANY])
def test_memory_that_is_exchanged_meanwhile(count):
    """Addresses are of memory that the loop holds, whatever others do with theirs."""
    w, xs = paddle.full([3], 0.5), paddle.ones([count, 3])
    step, spoiled = jit(lambda c, x: (c * w + x, c)), []
    for _ in range(MANY // count):
        scan(step, paddle.zeros([3]), xs)

    def report(done, *_):
        if done == 1:
            w.data, xs.data = paddle.full([3], 9.0), paddle.full([count, 3], 9.0)
            spoiled.extend(paddle.full([count, 3], 1e6) for _ in range(50))

    last, _ = scan(step, paddle.zeros([3]), xs, on_step=report)
    np.testing.assert_allclose(last.numpy(), 2.0 * (1.0 - 0.5**count), rtol=1e-6)
    assert w.tolist() == [9.0] * 3


@pytest.mark.parametrize("count", [5, FEW + 1, 101])
@pytest.mark.parametrize("kept", [True, False])
def test_reports_of_what_has_gradients_are_refused(count, kept):
    """Also where only what the step closes over requires them."""
    w = paddle.create_parameter([3], "float32")
    step, seen = (lambda c, x: (c * w + x, None)), []
    step = jit(step) if kept else step
    args = step, paddle.zeros([3]), paddle.ones([count, 3])
    with pytest.raises(NotImplementedError, match="under paddle.no_grad"):
        scan(*args, on_step=lambda *given: seen.append(given))
    assert not seen
    with paddle.no_grad():
        scan(*args, on_step=lambda *given: seen.append(given))
    assert len(seen) == count


def test_what_steps_may_give():
    """Numbers and arrays are tensors, nothing else is; by machine code or not."""
    step = jit(lambda c, x: (c + x, (1j, np.arange(2.0), True)))
    wrong = jit(lambda c, x: (c + x, "a"))
    for _ in range(FEW // 4 + 2):
        _, (a, b, c) = scan(step, randn([3]), randn([4, 3]))
        assert (a.shape, a.dtype, a.numpy()[2]) == ([4], paddle.complex64, 1j)
        assert b.tolist() == [[0.0, 1.0]] * 4
        assert c.tolist() == [True] * 4
        with pytest.raises(ValueError, match="'a' besides its carry.*tensors, numbers"):
            scan(wrong, randn([3]), randn([4, 3]))
    last, _ = scan(lambda c, _: (c * 2j, None), 1j, length=3)
    assert last.item() == 8.0


def test_the_result_of_no_turns_is_the_callers():
    v = paddle.ones([2])
    found = while_loop(lambda v: v.sum() < 0, lambda v: v + 1, v)
    paddle.assign(paddle.zeros([2]), found)
    assert v.tolist() == [1.0, 1.0]


def test_results_are_the_callers():
    """What is written into one changes neither another nor a later call."""
    step, carry, xs = CASES["what is given and kept"]
    carry, xs = carry(), xs()
    expected = one_by_one(step, carry, xs, MANY)
    first = scan(step, carry, xs)
    for x in optree.tree_leaves(first):
        paddle.assign(paddle.full_like(x, 7), x)
    assert_same(scan(step, carry, xs), expected)


def test_reports():
    step, carry, xs = CASES["training"]
    carry, xs = carry(), xs()
    seen = []

    def report(count, carry, y):
        seen.append((count, carry, y))

    every = 7
    found = scan(step, carry, xs, on_step=report, every=every)
    assert [count for count, _, _ in seen] == [*range(every, MANY, every), MANY]
    for count, own, y in seen:
        part = optree.tree_map(lambda x, count=count: x[:count], xs)
        expected, ys = one_by_one(step, carry, part, count)
        assert_same(own, expected, rtol=1e-4)
        assert_same(y, optree.tree_map(lambda y: y[-1], ys), rtol=1e-4)
        for x in optree.tree_leaves(own):
            paddle.assign(paddle.zeros_like(x), x)
    assert_same(found, one_by_one(step, carry, xs, MANY), rtol=1e-4)


def test_an_error_in_a_report_ends_the_loop():
    step, carry, xs = CASES["what is given and kept"]
    seen = []

    def report(count, carry, _):
        seen.append(carry)
        if count == FEW + 9:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        scan(step, carry(), xs(), on_step=report)
    assert len(seen) == FEW + 9


@pytest.fixture
def _interruptible():
    """Interrupts are heard, also where tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_in_the_midst():
    """Of ten million steps; what was reported is there, and goes on."""
    last = []
    timer = threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT))
    carry = randn([3], "float64")

    def report(count, c, _):
        last.append((count, c))
        if len(last) == 3:
            timer.start()

    def step(c, _):
        return c * 0.999 + 0.5, None

    scan(step, carry, length=MANY)  # compiled before
    with pytest.raises(KeyboardInterrupt):
        scan(step, carry, length=10_000_000, on_step=report, every=1000)
    timer.join()
    count, own = last[-1]
    expected = carry * 0.999**count + 0.5 * (1.0 - 0.999**count) / 0.001
    assert_same(own, expected, rtol=1e-9)
    assert_same(scan(step, own, length=MANY)[0], one_by_one(step, own, None, MANY)[0])


def test_a_number_out_of_range_in_the_midst():
    step, carry, xs = CASES["words"]
    carry, xs = carry(), xs()
    xs[FEW + 5, 0] = 6
    seen = []
    with pytest.raises(IndexError, match="index"):
        scan(step, carry, xs, on_step=lambda count, *_: seen.append(count))
    assert seen == [*range(1, FEW + 6)]
    xs[FEW + 5, 0] = -1  # counts from the end
    assert_same(scan(step, carry, xs), one_by_one(step, carry, xs, MANY))


def test_within_programs_and_derivatives(made):
    """A few steps are themselves there."""
    xs, w = randn([5, 3]), randn([3], seed=1)

    def loss(w):
        last, ys = scan(lambda c, x: (c * x.sin() + w, (c * w).sum()), w * 2.0, xs)
        return (last**2).sum() + ys.sum()

    def by_hand(w):
        c, total = w * 2.0, 0.0
        for x in xs:
            total = total + (c * w).sum()
            c = c * x.sin() + w
        return (c**2).sum() + total

    for fn in (value_and_grad, lambda f: jit(value_and_grad(f))):
        assert_same(fn(loss)(w), value_and_grad(by_hand)(w))
    assert_same(
        grad(lambda w: grad(loss)(w).sum())(w),
        grad(lambda w: grad(by_hand)(w).sum())(w),
    )
    many = randn([4, 3], seed=2)
    assert_same(
        jit(vmap(grad(loss)))(many), paddle.stack([grad(by_hand)(w) for w in many])
    )
    leaf = w.clone()
    leaf.stop_gradient = False
    assert_same(paddle.grad(loss(leaf), leaf)[0], grad(by_hand)(w))
    assert not made
    with pytest.raises(NotImplementedError, match="call scan by itself"):
        vjp(lambda w: scan(lambda c, x: (c * x, None), w, xs, on_step=print)[0], w)


def test_gradients_of_what_a_step_closes_over():
    """Native, by Paddle's tape."""
    w = randn([3])
    w.stop_gradient = False
    xs = randn([MANY, 3], seed=1)
    last, _ = scan(lambda c, x: (c * 0.5 + w * x, None), paddle.zeros([3]), xs)
    (found,) = paddle.grad(last.sum(), w)
    factors = paddle.to_tensor([0.5 ** (MANY - 1 - t) for t in range(MANY)])
    assert_same(found, (factors[:, None] * xs).sum(0))


def test_threads(made):
    step, carry, xs = CASES["training"]
    carry, xs = carry(), xs()
    expected = scan(step, carry, xs)
    found, failed = [], []

    def work():
        try:
            found.extend(scan(step, carry, xs) for _ in range(5))
        except BaseException as error:
            failed.append(error)

    on_threads(work, [()] * 4)
    assert not failed
    assert len(found) == 20
    for each in found:
        assert_same(each, expected, rtol=1e-7)


def test_a_step_is_let_go():
    def once():
        big = paddle.zeros([100])

        def step(c, _):
            return c * 0.5 + big.sum(), None

        scan(step, paddle.ones([3]), length=MANY)
        fori_loop(
            0, MANY, step_of := (lambda i, c: c * 0.5 + big.sum() * i), paddle.ones([3])
        )
        return [weakref.ref(step), weakref.ref(step_of)]

    held = once()
    for _ in range(3):
        gc.collect()
    assert [ref() for ref in held] == [None, None]


def test_memory_is_flat():
    def step(c, _):
        return c * 0.999 + 0.5, None

    scan(step, randn([3]), length=MANY)
    start = time.perf_counter()
    last, none = scan(step, randn([3]), length=300_000)
    assert none is None
    assert float(last[0]) == pytest.approx(500.0, rel=1e-3)
    assert time.perf_counter() - start < 60  # some half a microsecond each


def test_other_loops():
    i_sum = fori_loop(2, 30, lambda i, c: c + i.astype("float32") * 0.5, 1.0)
    assert float(i_sum) == 1.0 + 0.5 * sum(range(2, 30))
    assert float(fori_loop(5, 2, lambda i, c: c + 1.0, 3.0)) == 3.0
    halves = while_loop(
        lambda c: c["x"].sum() > 1e-3,
        lambda c: {"x": c["x"] * 0.5, "n": c["n"] + 1},
        {"x": paddle.ones([4]), "n": 0},
    )
    assert int(halves["n"]) == 12


@products_on
@loops_on
def test_a_net_that_holds_state(made):
    """Its statistics go along in the carry, and are those of native training."""
    paddle.seed(0)

    layer = paddle.nn.Sequential(  # a bias before a norm moves by rounding alone
        paddle.nn.Linear(3, 8, bias_attr=False),
        *(paddle.nn.BatchNorm1D(8), paddle.nn.ReLU(), paddle.nn.Linear(8, 2)),
    )
    net, params, buffers = stateless(layer)
    xs, adam = randn([MANY, 16, 3]), optimizers.adam(1e-2)

    def step(carry, x):
        params, buffers, state = carry

        def loss(params):
            y, moved = net(params, x, buffers=buffers)
            return ((y - x[:, :2].sin()) ** 2).mean(), moved

        (value, buffers), grads = value_and_grad(loss, has_aux=True)(params)
        updates, state = adam.update(grads, state, params)
        return (optimizers.apply_updates(params, updates), buffers, state), value

    start = params, buffers, adam.init(params)
    (params, moved, _), losses = scan(step, start, xs)
    assert made
    native = paddle.optimizer.Adam(1e-2, parameters=layer.parameters())
    for x, found in zip(xs, losses, strict=True):
        value = ((layer(x) - x[:, :2].sin()) ** 2).mean()
        value.backward()
        native.step()
        native.clear_grad()
        assert float(found) == pytest.approx(float(value), rel=1e-4)
    state = net.to_state_dict(params, like=layer, buffers=moved)
    for name, value in layer.state_dict().items():
        np.testing.assert_allclose(value.numpy(), state[name].numpy(), atol=2e-4)


class Moved(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = paddle.nn.Linear(3, 3), paddle.nn.Dropout(0.5)
        self.rate = 1.0

    def forward(self, carry, x):
        return self.dropout(self.linear(carry)) * self.rate + x, None


def test_what_python_holds_is_as_it_is_now():
    """A layer's mode, an attribute, a number of a closure; a copy of the layer."""
    layer = Moved()
    layer.eval()
    for p in layer.parameters():
        p.stop_gradient = True
    start, xs = randn([3]), randn([MANY, 3], seed=1)
    first = scan(layer, start, xs)[0]
    assert_same(first, one_by_one(layer, start, xs, MANY)[0])
    layer.rate = 0.5
    assert_same(scan(layer, start, xs)[0], one_by_one(layer, start, xs, MANY)[0])
    assert_same(scan(copy.deepcopy(layer), start, xs)[0], scan(layer, start, xs)[0])
    layer.train()
    paddle.seed(1)
    drawn = scan(layer, start, xs)[0]
    paddle.seed(1)
    assert_same(drawn, one_by_one(layer, start, xs, MANY)[0])
    factor = 1.0

    def step(c, x):
        return c * 0.5 + factor * x, None

    ones = scan(step, start * 0.0, xs)[0]
    factor = 2.0
    assert_same(scan(step, start * 0.0, xs)[0], ones * 2.0)


@pytest.mark.parametrize("count", [3, MANY])
def test_steps_that_write_in_place(count):
    """Are refused, and what the caller has is as it was; as programs they are right."""
    start, xs = paddle.zeros([2]), paddle.ones([count, 2])

    def native(c, x):
        c.add_(x * float(x.numpy()[0]))  # a value that leaves, so no program
        return c, c

    with pytest.raises(NotImplementedError, match="give new tensors"):
        scan(native, start, xs)
    with pytest.raises(NotImplementedError, match="give new tensors"):
        while_loop(
            lambda c: c.sum() < 5.0, lambda c: c.add_(xs[0]) + float(c[0]) * 0, start
        )

    def step(c, x):
        x.multiply_(paddle.full([2], 2.0))
        return c + x, c * 1.0

    with contextlib.suppress(NotImplementedError):
        last, ys = scan(step, start, xs)
        assert float(last[0]) == 2.0 * count
        assert ys[:, 0].tolist() == [2.0 * k for k in range(count)]
    assert float(start.abs().sum()) == 0.0
    assert float((xs - 1.0).abs().sum()) == 0.0


@pytest.mark.parametrize("count", [5, MANY])
def test_reports_are_the_callers(count):
    def spoil(_, carry, y):
        for x in optree.tree_leaves((carry, y)):
            paddle.assign(paddle.full_like(x, -7.0), x)

    def step(c, x):
        return (c[0] + x * c[1], c[1]), c[0] * 1.0

    start, xs = (paddle.zeros([2]), paddle.ones([2])), paddle.ones([count, 2])
    found = scan(step, start, xs, on_step=spoil)
    assert_same(found, one_by_one(step, start, xs, count))
    carry, _ = scan(step, start, xs[:0])
    paddle.assign(paddle.ones([2]), carry[0])
    assert float(start[0].sum()) == 0.0


@pytest.mark.parametrize("count", [3, MANY])
def test_numbers_that_a_step_gives(count):
    """As a carry, and as what it gives, whose places in memory are their own."""
    x = randn([4])

    def fixed(c, _):
        return (c[0] * 0.9, 1), (c[1], 3.0)

    found = scan(fixed, (x, 0), length=count)
    (last, one), (before, threes) = found
    np.testing.assert_allclose(last.numpy(), 0.9**count * x.numpy(), rtol=1e-5)
    assert int(one) == 1
    assert before.tolist() == [0] + [1] * (count - 1)
    assert threes.tolist() == [3.0] * count
    swapped = fori_loop(0, count, lambda i, v: (1, v[1] * 0.9), (0, x))
    np.testing.assert_allclose(swapped[1].numpy(), last.numpy(), rtol=1e-6)
    assert int(swapped[0]) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_without_machine_code_are_those_with_it(monkeypatch, reverse):
    """By themselves, within a program, and on the way back."""

    def step(carry, x):
        carry = (carry @ w).tanh() + x
        return carry, (carry * x).sum(-1)

    def ran(w_, xs):
        return scan(step, paddle.zeros([3, 4], "float64"), xs, reverse=reverse)

    def loss(xs):
        carry, ys = ran(w, xs)
        return (carry**2).sum() + (ys**3).sum()

    w, xs = randn([4, 4], "float64"), randn([21, 3, 4], "float64")

    def found():
        return [*ran(w, xs), *jit(ran)(w, xs), jit(grad(loss))(xs), grad(loss)(xs)]

    by_code = found()
    counts = []
    for module in (scan_module, scan_op):
        monkeypatch.setattr(module, "loops_are_on", lambda: counts.append(1))
    for one, other in zip(found(), by_code, strict=True):
        apart = (one - other).abs().max()
        assert float(apart) <= 1e-12 * float(other.abs().max())
    assert counts  # it was asked, and said no
