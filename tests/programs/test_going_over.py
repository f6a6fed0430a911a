"""Machine code is made on a thread of its own, and is there at a certain call."""

import os
import threading

import paddle
import pytest

from conftest import assert_same, programs_on, randn
from paddle_chainrules import make_program
from paddle_chainrules import settings as switch
from paddle_chainrules.programs.codegen import jit_engine

pytestmark = [
    programs_on,
    pytest.mark.skipif(
        switch.CALLS_BEFORE_CODE == 0, reason="machine code is there at once"
    ),
]
X = randn([4, 3])
HALF, WHOLE = switch.CALLS_BEFORE_CODE // 2, switch.CALLS_BEFORE_CODE


def fresh(factor):
    """A program whose machine code nobody has made before; it was called once."""
    return make_program(lambda x: paddle.tanh(x * factor) + paddle.exp(-x * x))(X)


def threads():
    return [t for t in threading.enumerate() if t.name == "machine code"]


@pytest.fixture(autouse=True)
def no_thread_of_an_earlier_test():
    """Wait for what earlier tests of this process still compile."""
    for thread in threads():
        thread.join()


def has_gone_over(program):
    return "reached" not in program.function.__code__.co_names


@pytest.fixture
def gate(monkeypatch):
    """An event for which the thread waits before it compiles."""
    found, compiled = threading.Event(), jit_engine._compile

    def waiting(texts):
        if threading.current_thread().name == "machine code":
            assert found.wait(60)
        return compiled(texts)

    monkeypatch.setattr(jit_engine, "_compile", waiting)
    yield found
    found.set()
    for thread in threads():
        thread.join()


def test_calls_go_on_while_it_is_made(gate):
    program, expected = fresh(1.25), (paddle.tanh(X * 1.25) + paddle.exp(-X * X))
    for call in range(1, WHOLE):
        assert len(threads()) == (call > HALF)
        assert_same(program(X)[0], expected)
    gate.set()
    assert not has_gone_over(program)
    found = program(X)[0]
    assert has_gone_over(program)
    assert not threads()
    assert float((found - expected).abs().max()) < 1e-6


def test_it_is_there_at_the_same_call_however_soon_it_was_made():
    program = fresh(1.5)
    for _ in range(1, WHOLE + 1):
        assert not has_gone_over(program)
        program(X)
        for thread in threads():
            thread.join()
    assert has_gone_over(program)


def test_what_fails_on_the_thread_is_met_at_the_call(monkeypatch):
    def failing(texts):
        raise OSError("no LLVM today")

    program = fresh(1.75)
    monkeypatch.setattr(jit_engine, "_compile", failing)
    for _ in range(1, WHOLE):
        program(X)
    with pytest.warns(UserWarning, match="without loops of machine code: no LLVM"):
        program(X)
    assert_same(program(X)[0], paddle.tanh(X * 1.75) + paddle.exp(-X * X))


def test_a_child_of_a_fork_makes_what_its_parent_had_begun():
    program = fresh(2.25)
    for _ in range(HALF + 1):
        program(X)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for _ in range(WHOLE - HALF):
                program(X)
            status = 0 if has_gone_over(program) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(WHOLE - HALF):
        program(X)
    assert has_gone_over(program)
