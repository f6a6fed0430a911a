"""Wrong input: random calls of all that is public, and slips that were found."""

import re

import numpy as np
import paddle
import pytest

import paddle_chainrules as pc
from fuzz.calls import CALLS, MODULES
from fuzz.run import BAD, fuzz
from paddle_chainrules import FCNet, ParamSpec, optimizers, stateless
from paddle_chainrules.libraries import Export
from paddle_chainrules.optimizers import adam, schedules, sgd
from paddle_chainrules.testing import Report, Row

NET = FCNet((3, 5, 2))
PARAMS = NET.init(0)
X, POINTS = paddle.ones([5]), paddle.ones([4, 3])
NORM = stateless(paddle.nn.BatchNorm1D(3))[0]
LAYER, LAYER_PARAMS = stateless(paddle.nn.Linear(3, 2))[:2]
BY_THEMSELVES = {"start"}
"""What starts processes."""


def told(row):
    return f"{row['number']}: {row['verdict']} {row['where']} {row.get('error')}"


@pytest.mark.parametrize(
    ("count", "first"),
    [
        (1200, 0),
        pytest.param(20_000, 1200, marks=pytest.mark.slow),
    ],
    ids=["some", "many"],
)
def test_random_calls_end_in_a_result_or_a_typed_error(count, first):
    rows = fuzz(first, count)
    assert len(rows) == count
    bad = [told(row) for row in rows if row["verdict"] in BAD]
    assert not bad, "\n".join(bad)
    for verdict in ("ok", "typed"):
        assert sum(row["verdict"] == verdict for row in rows) > count / 20
    steps = " ".join(step for row in rows for step in row.get("call", ()))
    methods = {*re.findall(r"\bit\.(\w+)\(", steps)}
    assert methods >= {"__call__", "pullback", "or_none"}
    assert len(methods) > 40


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_function_and_class_is_called(module):
    tried = {name.rpartition(".")[2] for name in CALLS} | BY_THEMSELVES
    public = {name for name in module.__all__ if callable(getattr(module, name))}
    assert public <= tried


SLIPS = {
    "a count for a state": lambda: adam(0.1).update({"a": X}, 5, {"a": X}),
    "a text for parameters": lambda: adam(0.1).init("abc"),
    "sgd with a text for parameters": lambda: sgd(0.1).init("abc"),
    "a text for a rate": lambda: sgd("0.1"),
    "a class for a rate": lambda: sgd(float),
    "a text for a beta": lambda: adam(0.1, "0.9"),
    "a number for a flag": lambda: adam(0.1, amsgrad=1),
    "another's state": lambda: adam(0.1).update([X], sgd(0.1).init([X]), [X]),
    "numbers for gradients": lambda: sgd(0.1).update([1.0], sgd(0.1).init([X])),
    "no optimizer in a chain": lambda: optimizers.chain(adam),
    "a text for steps": lambda: schedules.step_decay(0.1, "3"),
    "no optimizer of Paddle's": lambda: optimizers.from_paddle({}, paddle.nn.ReLU()),
    "no scheduler": lambda: optimizers.schedule_of(0.1),
    "half a step": lambda: optimizers.lbfgs(lambda p: p.sum(), X, steps=2.5),
    "a number for theta": lambda: NET.unflatten(5),
    "a tensor for a state dict": lambda: LAYER.from_state_dict(X),
    "a text for a spec": lambda: ParamSpec.of("a"),
    "another dtype's name": lambda: NET.spec.in_dtype("float31"),
    "a tensor for a mode": lambda: LAYER.in_mode(X),
    "a tensor for wrt": lambda: NET.pullback(PARAMS, POINTS, wrt=X),
    "a tensor for jit": lambda: stateless(paddle.nn.Linear(3, 2), jit=X),
    "part of a length": lambda: pc.scan(lambda c, x: (c, c), X, length=2.999),
    "True for a length": lambda: pc.scan(lambda c, x: (c, c), X, length=True),
    "a number for xs": lambda: pc.scan(lambda c, x: (c, x), X, np.float32(1), 3),
    "part of a bound": lambda: pc.fori_loop(0, 2.5, lambda i, c: c, X),
    "a tensor for a bound": lambda: pc.fori_loop(X, 3, lambda i, c: c, X),
    "no function for a step": lambda: pc.scan(np.ones(3), X, X),
    "no function": lambda: pc.grad({}),
    "a tensor for has_aux": lambda: pc.vjp(lambda x: x, X, has_aux=X),
    "no pair": lambda: pc.vjp(lambda x: x, X, has_aux=True),
    "a tensor for batched": lambda: pc.jacobian(lambda x: x, X, X),
    "a tensor for an order": lambda: pc.taylor(NET, PARAMS, X, X, X),
    "names that are tensors": lambda: pc.curl(
        NET, PARAMS, POINTS, of=(X, X), by=(0, 1)
    ),
    "a point without axes": lambda: pc.derivatives(LAYER, LAYER_PARAMS, X[0], [0]),
    "no function to jit": lambda: pc.jit("0.1"),
    "a part of a position": lambda: pc.jit(lambda x: x, static_argnums=0.5),
    "a pullback by hand": lambda: pc.Pullback(X, X, X),
    "a pushforward by hand": lambda: pc.Pushforward("abc", None, 1),
    "a program by hand": lambda: pc.Program(X, {}, (len,), "abc"),
    "a report by hand": lambda: Report([1.0]),
    "a row by hand": lambda: Row("cpu", "float32", "other", "x", X, 1.0, None, 0.1),
    "a text for buffers": lambda: LAYER.share_buffers("abc"),
    "numbers for buffers": lambda: NORM.share_buffers({"_mean": 1.0}),
    "numbers in a state dict": lambda: NET.from_state_dict(dict.fromkeys(PARAMS, 1.0)),
    "numbers to fill": lambda: NET.to_state_dict(PARAMS, dict.fromkeys(PARAMS, 1.0)),
    "a number to fill": lambda: NET.to_state_dict(PARAMS, 5),
    "a function for an order": lambda: NET.spec.order_of(len),
    "a tensor for names": lambda: Export(len, X, results=X),
    "a dict for a program": lambda: pc.make_program(lambda x: x)(X)({}),
}
VALUES = {
    "another's buffer": lambda: NORM.share_buffers({"weight": X}),
    "a tensor for a dtype": lambda: NET.in_dtype(X),
    "numbers for names": lambda: NET.from_state_dict({1: X}),
    "a condition of several": lambda: pc.while_loop(lambda c: c < 3, lambda c: c, X),
    "more than memory has": lambda: optimizers.lbfgs(
        lambda p: p.sum(), X, memory=2**63
    ),
    "a negative rate": lambda: adam(-1.0),
    "no number for a rate": lambda: sgd(float("nan")),
    "a negative decay": lambda: sgd(0.1, weight_decay=-0.1),
    "too many steps": lambda: pc.fori_loop(0, 2**31, lambda i, c: c, X),
    "beyond 64 bits": lambda: pc.fori_loop(2**63, 2**63 + 1, lambda i, c: c, X),
    "several truths": lambda: pc.cond(X, lambda x: x, lambda x: x, X),
    "an array of several": lambda: pc.cond(np.ones(5), lambda x: x, lambda x: x, X),
    "a position from the last": lambda: pc.jit(lambda x: x, static_argnums=(-1,)),
    "a factor of zero": lambda: schedules.one_cycle(0.1, 100, 0.0),
    "a sequence without length": lambda: pc.Packed.of([paddle.to_tensor(1.0)]),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_what_is_of_a_wrong_kind_is_told(slip):
    with pytest.raises(TypeError) as told:
        SLIPS[slip]()
    assert type(told.value) is TypeError
    assert len(str(told.value)) > 40, told.value


@pytest.mark.parametrize("slip", VALUES)
def test_what_is_of_a_wrong_value_is_told(slip):
    with pytest.raises(ValueError, match=".{40}"):
        VALUES[slip]()


@pytest.mark.parametrize("index", [5, (0, 5), (0, 0, 0), "abc", {}])
def test_entries_that_a_jacobian_lacks_are_told(index):
    entries = pc.jacobian(lambda x: x * 2.0, X)
    with pytest.raises(IndexError, match=r"Jacobian of shape \[5, 5\] has no entries"):
        entries[index]
    assert len([*entries]) == 5


def test_one_static_argument_needs_no_brackets():
    fn = pc.jit(lambda n, x: x * n, static_argnums=0)
    assert [fn(2.0, X).sum().item() for _ in range(3)] == [10.0] * 3
    assert fn(3.0, X).sum().item() == 15.0


def test_loops_take_integers_of_all_kinds():
    def body(i, total):
        return total + i.astype("float32")

    for lower, upper in ((np.int32(1), 4), (1, paddle.to_tensor(4)), (-2, -5), (4, 4)):
        expected = float(sum(range(int(lower), int(upper))))
        assert float(pc.fori_loop(lower, upper, body, 0.0)) == expected


def test_long_loops_have_some_numbers_in_memory_at_a_time(monkeypatch):
    from paddle_chainrules.transforms.control_flow import counted

    monkeypatch.setattr(counted, "STEPS_AT_ONCE", 7)
    x = paddle.to_tensor(1.0)

    def total(x):
        return pc.fori_loop(3, 25, lambda i, c: c + x * i.astype("float32"), x * 0.0)

    assert float(total(x)) == sum(range(3, 25))
    assert float(pc.grad(total)(x)) == sum(range(3, 25))
    assert float(pc.jit(total)(x)) == sum(range(3, 25))


def test_arrays_are_steps_too():
    found, each = pc.scan(lambda c, x: (c + x, c), 0.0, np.arange(4.0, dtype="float32"))
    assert (float(found), each.tolist()) == (6.0, [0.0, 0.0, 1.0, 3.0])
