"""Julia's own tests, and Julia started from Python, as part of the same run."""

import subprocess
import sys
from itertools import permutations

import pytest

import julia_lane
from julia_at_hand import by_juliacall as by_juliacall
from julia_at_hand import environ, needs_julia
from julia_lane import compiling_julia as compiling_julia
from julia_lane import own_julia as own_julia
from paddle_chainrules import julia

COMPILED, LONG = julia_lane.names("COMPILED"), julia_lane.names("LONG")
INTERPRETED = [n for n in julia_lane.names("FILES") if n not in {*COMPILED, *LONG}]


@needs_julia
@pytest.mark.parametrize("name", INTERPRETED)
def test_the_julia_package_passes_its_own_tests(name, own_julia, record_julia):
    record_julia(own_julia.test(name))


@needs_julia
@pytest.mark.parametrize("name", COMPILED)
def test_what_counts_memory_or_takes_long(name, compiling_julia, record_julia):
    record_julia(compiling_julia.test(name))


@needs_julia
@pytest.mark.slow
@pytest.mark.parametrize("name", [*julia_lane.names("SLOW"), *LONG, *INTERPRETED])
def test_all_of_it_compiled(name, compiling_julia, record_julia):
    record_julia(compiling_julia.test(name))


START = """
import importlib, sys, threading
order, threads = sys.argv[1].split(), sys.argv[2]
for name in order:
    importlib.import_module(name)
from paddle_chainrules.julia import start, lock
joins = "juliacall" in order
module = start() if joins else start(threads, handle_signals=True)
import juliacall
import numpy as np
jl = juliacall.Main
assert str(jl.Threads.nthreads()) == threads
jl.seval('''
function storm()
    Threads.@threads for i in 1:64
        for k in 1:3000
            v = rand(100)
            k % 500 == 0 && GC.gc(false)
        end
    end
    GC.gc()
end
''')
net = module.PaddleFCNet(3, 2, 2, 16)
x = jl.rand(jl.Float32, 3, 4)
y = np.asarray(net(x)).copy()
for _ in range(3):
    jl.storm()
    assert np.allclose(net(x), y, atol=1e-6)
assert start() == module
# Threads of Python's, each of which calls nets and collects, while this one waits.
right, refused = [], []
def work():
    with lock: # raises where Julia is for the main thread alone: it is not entered then
        pass
    try:
        net(x)
    except juliacall.JuliaError as error:
        with lock: # the text of an error of Julia's is made in Julia
            refused.append("with julia.lock" in str(error))
    for i in range(30):
        with lock:
            value, back = module.pullback(net, x)
            back(value)
            right.append(np.allclose(value, y, atol=1e-6))
        if i % 10 == 0:
            with lock:
                jl.GC.gc(False)
with lock, lock: # which may be entered again, and the first call compiles
    module.pullback(net, x)
sys.setswitchinterval(1e-4)
workers = [threading.Thread(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert len(right) == 90 and all(right)
assert len(refused) == 3 and all(refused)
print("lives")
"""

ORDERS = [
    *map(" ".join, permutations(("paddle", "paddle_chainrules", "juliacall"))),
    "paddle paddle_chainrules",
    "",
]
FEW = ("paddle paddle_chainrules juliacall", "juliacall paddle paddle_chainrules", "")


def start(order, threads, **env):
    return run_python(START, order, threads, **env)


def run_python(script, *args, **env):
    return subprocess.run(
        [sys.executable, "-c", script, *args],
        env=environ(**env),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def assert_ends(done, word):
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith(word)


@needs_julia
@pytest.mark.parametrize(
    "threads", [pytest.param("1", marks=pytest.mark.slow), "4"]
)  # four may crash where one does not
@pytest.mark.parametrize(
    "order",
    [pytest.param(o, marks=() if o in FEW else pytest.mark.slow) for o in ORDERS],
)
def test_every_order_of_imports_survives_threads_that_collect(
    order, threads, by_juliacall
):
    env = {}
    if "juliacall" in order:
        env = {**by_juliacall, "PYTHON_JULIACALL_THREADS": threads}
        env["PYTHON_JULIACALL_HANDLE_SIGNALS"] = "yes"
    done = start(order, threads, **env)
    if order == "juliacall paddle paddle_chainrules":
        # Paddle took Julia's handlers before anybody could save them.
        why = "this Julia is for the main thread alone"
        if threads != "1":
            why = "its handler of SIGSEGV is not in place"
        assert why in done.stderr
        return
    assert_ends(done, "lives\n")


@needs_julia
def test_the_deadly_combination_is_refused(by_juliacall):
    begin = "from paddle_chainrules import julia; julia.start(4)"
    done = run_python(begin, PYTHON_JULIACALL_HANDLE_SIGNALS="no")
    assert "needs PYTHON_JULIACALL_HANDLE_SIGNALS=yes" in done.stderr
    done = start("juliacall", "4", **by_juliacall, PYTHON_JULIACALL_THREADS="4")
    assert "its handler of SIGSEGV is not in place" in done.stderr
    assert done.returncode == 1


def test_no_julia_on_the_path_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match=r"no julia on the PATH.*julialang"):
        julia.environment()
    assert julia.requirement() == "juliacall"


ENDING = """
import sys, threading, time
from paddle_chainrules.julia import start, lock
start(handle_signals=True)
import juliacall
jl = juliacall.Main
def work():
    with lock:
        jl.rand(10)
def collect():
    for _ in range(500):
        with lock:
            jl.GC.gc(False)
        time.sleep(5e-4)
collector = threading.Thread(target=collect)
collector.start()
ended = 0
while collector.is_alive():
    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    ended += 3
assert ended > 100
print("lives")
"""


@needs_julia
def test_threads_may_end_while_another_collects():
    """A thread that has used Julia enters it again when it ends, without the lock."""
    assert_ends(run_python(ENDING), "lives\n")


MAIN_ALONE = """
import threading
from paddle_chainrules.julia import start, lock
net = start(1).PaddleFCNet(3, 2, 2, 16)
why = []
def work():
    try:
        with lock:
            net
    except RuntimeError as error:
        why.append(str(error))
with lock:
    print(net)
worker = threading.Thread(target=work)
worker.start()
worker.join()
assert "handle_signals=True" in why[0]
print("refused")
"""


@needs_julia
def test_julia_without_handlers_is_for_the_main_thread():
    assert_ends(run_python(MAIN_ALONE), "refused\n")


@needs_julia
def test_missing_julia_packages_are_named():
    with pytest.raises(
        FileNotFoundError, match=r"(?s)lacks NoSuchPackage.*Pkg\.add"
    ) as info:
        julia.environment("NoSuchPackage")
    assert "Zygote" not in str(info.value)


def test_missing_juliacall_is_named(monkeypatch):
    monkeypatch.setattr(julia, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"paddle-chainrules\[julia\]"):
        julia.start()
