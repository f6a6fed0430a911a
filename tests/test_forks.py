"""Children of a fork, made while other threads work."""

import json
import os

import pytest

from conftest import run_code

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")

FORKS = """
import gc, json, math, os, signal, sys, threading, time
import paddle
from paddle_chainrules import hessian, jit, jvp, stateless, value_and_grad, vmap

layer = paddle.nn.Sequential(
    paddle.nn.Linear(3, 7),
    paddle.nn.Tanh(),
    paddle.nn.Dropout(0.5),
    paddle.nn.Linear(7, 2),
)
net, params, _ = stateless(layer)
x = paddle.rand([5, 3])


def loss(p, x):
    return (net(p, x, seed=3) ** 2).mean()


def work():
    '''All kinds of locks: of captures, compiling, seeds, nets and caches.'''
    values = [
        value_and_grad(loss)(params, x)[0],
        jit(value_and_grad(lambda p, x: loss(p, x)))(params, x)[0],
        hessian(lambda y: (y**3).sum())(x).sum(),
        vmap(lambda y: (y**2).sum())(x).sum(),
        jvp(lambda y: paddle.tanh(y).sum(), (x,), (x,))[1],
    ]
    return [float(value) for value in values]


def in_child():
    '''What is wrong there.'''
    found = work()
    if not all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(found, expected)):
        return 3
    return 0 if gc.isenabled() else 4


expected, stop, results = work(), [], []
threads = [
    threading.Thread(target=lambda: [work() for _ in iter(lambda: bool(stop), True)])
    for _ in range(2)
]
for thread in threads:
    thread.start()
time.sleep(0.2)
for i in range(FORKS):
    time.sleep(0.01 * (i % 7))
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(in_child())
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(2)
    results.append(os.waitpid(child, 0)[1])
stop.append(True)
for thread in threads:
    thread.join()
print(json.dumps(results))
"""


def outcomes(forks, loops):
    code = FORKS.replace("FORKS", str(forks))
    done = run_code(code, PADDLE_CHAINRULES_LOOPS=loops, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize(
    ("forks", "loops"),
    [(12, "on"), (8, "first"), pytest.param(80, "on", marks=pytest.mark.slow)],
)
def test_a_child_differentiates_though_its_parents_threads_did(forks, loops):
    found, told = outcomes(forks, loops)
    assert found == [0] * forks, told


WITHIN = """
import os, signal
import paddle
from paddle_chainrules import make_program, value_and_grad

children = []


def fn(x):
    children.append(os.fork())
    if not children[-1]:
        signal.alarm(60)
    return (x**2).sum()


x = paddle.to_tensor([3.0, 4.0])
program = make_program(fn)(x)
ok = float(program.function(x)[0]) == 25.0
ok = ok and value_and_grad(lambda x: (x**3).sum())(x)[1].tolist() == [27.0, 48.0]
if not all(children):
    os._exit(0 if ok else 3)
assert ok
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_a_fork_within_what_is_captured():
    """The child goes on with the capture, whose locks are its own."""
    done = run_code(WITHIN)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {0}


SEEDS = """
import json, os, threading, time
import paddle
from paddle_chainrules import stateless

net, params, _ = stateless(
    paddle.nn.Sequential(paddle.nn.Linear(64, 64), paddle.nn.Dropout(0.5))
)
x = paddle.ones([256, 64])
paddle.seed(123)
state = paddle.get_rng_state("cpu")
expected = float(paddle.rand([]))
paddle.set_rng_state(state, "cpu")
stop = []


def seeded():
    while not stop:
        net(params, x, seed=7)


thread = threading.Thread(target=seeded)
thread.start()
found = []
for i in range(15):
    time.sleep(0.005)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr(float(paddle.rand([]))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    found.append(float(os.read(read, 100)))
stop.append(True)
thread.join()
print(json.dumps([expected, found]))
"""


def test_a_child_draws_the_program_s_own_numbers():
    """And not those of a seed that another thread was drawing from."""
    done = run_code(SEEDS)
    assert done.returncode == 0, done.stderr
    expected, found = json.loads(done.stdout)
    assert found == [expected] * 15


LISTENING = """
import os, signal, threading
import paddle
from paddle_chainrules import jit
from paddle_chainrules.paddle_side import interception

inside, go = threading.Event(), threading.Event()


def slow(x):
    inside.set()
    go.wait(60)
    return (x * x).sum()


other = threading.Thread(target=lambda: jit(slow)(paddle.ones([2])))
other.start()
inside.wait(60)
children = []


def fn(x):
    if not children:
        children.append(os.fork())
    return paddle.sin(x).sum()


jit(fn)(paddle.ones([2]))
if children == [0]:
    os._exit(len(interception._listening) + len(interception.listener_slots))
go.set()
other.join()
print(os.waitpid(children[0], 0)[1], len(interception._listening))
"""


def test_captures_of_other_threads_do_not_go_on_in_the_child():
    done = run_code(LISTENING)
    assert done.stdout == "0 0\n", done.stderr


INTERRUPTED = """
import os, signal, threading, time
import paddle
from paddle_chainrules import jit
from paddle_chainrules.programs.codegen import jit_engine as machine

jit(lambda x: x * 2)(paddle.ones([2]))


def compiling():
    with machine._lock:
        time.sleep(1.5)


threading.Thread(target=compiling).start()
time.sleep(0.2)


def interrupt(*_):
    raise KeyboardInterrupt


signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.5)
child = os.fork()
if child == 0:
    signal.alarm(0)
    os._exit(int(float(jit(lambda x: x.sum() * 5)(paddle.ones([2])))))
status = os.waitpid(child, 0)[1]
done = []
work = lambda: done.append(float(jit(lambda x: x.sum() * 3)(paddle.ones([2]))))
thread = threading.Thread(target=work, daemon=True)
thread.start()
thread.join(60)
print(os.waitstatus_to_exitcode(status), done, flush=True)
os._exit(0)
"""


def test_an_interrupt_while_a_fork_waits_leaves_all_locks_free():
    done = run_code(INTERRUPTED)
    assert done.stdout == "10 [6.0]\n", (done.stdout, done.stderr)


IMPORTING = """
import os, signal, threading, time
import paddle
import paddle_chainrules as pc

thread = threading.Thread(target=lambda: pc.jit)  # whose import takes a while
thread.start()
time.sleep(WAIT)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(int(float(pc.jit(lambda x: x.sum())(paddle.ones([2])))))
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("wait", [0.01, 0.1])
def test_a_fork_waits_for_the_import_of_what_is_imported_late(wait):
    done = run_code(IMPORTING.replace("WAIT", str(wait)))
    assert done.stdout == "2\n", (done.stdout, done.stderr)
