"""The bytes of a program beside those that a call takes, as Paddle counts them."""

import optree
import paddle
import pytest

from conftest import products_on, randn
from paddle_chainrules import FCNet, grad, make_program, stateless, value_and_grad
from paddle_chainrules.paddle_side.workspace import empty_cache
from paddle_chainrules.programs.codegen.fused_kernels import entries
from paddle_chainrules.programs.compiling.source import compile_program

core = paddle.base.core
NET = FCNet((3, 64, 64, 2), "tanh")
ENCODER, ENCODERS, _ = stateless(
    paddle.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0)
)
WORDS, WORDS_PARAMS, _ = stateless(
    paddle.nn.Sequential(paddle.nn.Embedding(50, 16), paddle.nn.LayerNorm(16))
)


def squares(net):
    return value_and_grad(lambda p, x: (net(p, x) ** 2).mean())


def second(p, x):
    def slope(x):
        return grad(lambda x: NET(p, x).sum())(x)[:, 1].sum()

    return (grad(slope)(x)[:, 1] ** 2).mean()


P, X = NET.init(0), randn([500, 3])
CASES = {
    "gradients": (squares(NET), P, randn([1000, 3])),
    "few rows": (squares(NET), P, randn([7, 3])),
    "second derivatives": (value_and_grad(second), P, randn([50, 3])),
    "encoder": (squares(ENCODER), ENCODERS, randn([8, 10, 64])),
    "words": (squares(WORDS), WORDS_PARAMS, paddle.arange(40).reshape([8, 5])),
    "products": (lambda p, x: paddle.tanh(x @ x.T) @ x * 2.0, P, X),
    "transform of Fourier": (lambda p, x: paddle.fft.fft(NET(p, x)).abs().sum(), P, X),
    "turned slices": (
        lambda p, x: paddle.concat([x[:, 1:], x[:, :1] * 2], 1).T.reshape([-1]) * 3.0,
        P,
        X,
    ),
    "parts": (lambda p, x: sum(paddle.split(paddle.tanh(x), 3, 1)), P, X),
    "blocks of scores": (
        lambda p, x: paddle.nn.functional.softmax(x @ x.transpose([0, 2, 1])) @ x,
        P,
        randn([3, 517, 8]),
    ),
    "expanded": (lambda p, x: x.sum(1, keepdim=True).expand([500, 3]) * x, P, X),
}
OWN = {"words"}
"""With kernels of Paddle's that take memory of their own meanwhile."""


def taken(call):
    """The most bytes that a call had at a time."""
    call()  # what it has once
    empty_cache()
    before = core.host_memory_stat_current_value("Allocated", 0)
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    found = call()
    most = core.host_memory_stat_peak_value("Allocated", 0) - before
    del found
    return most


@products_on
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["operators", "machine code"])
def test_peak_bytes_are_those_of_a_call(name, kind, monkeypatch):
    # Results come from Paddle's memory, whose statistics are compared here.
    monkeypatch.setattr(entries, "exchange", lambda: None)
    fn, *args = CASES[name]
    program = make_program(fn)(*args)
    given = optree.tree_leaves((tuple(args), {}), none_is_leaf=True)
    with paddle.no_grad():
        if kind == "operators":
            run = compile_program(program)
            kernels = taken(lambda: run(*given)) - program.peak_bytes
            assert kernels > 0 if name in OWN else kernels == 0
            return
        program = program.with_loops
        on_stack = sum(r.work_bytes for r in program.regions if r.on_stack)
        heap = taken(lambda: program.function(*given))
        padding = 64 * len(program.regions)  # of the memory in between
        assert program.peak_bytes - on_stack <= heap
        if name != "transform of Fourier":  # whose kernel takes some beside
            assert heap <= program.peak_bytes + padding
