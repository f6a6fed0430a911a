"""Julia's nets from Python threads through juliacall, compared with plain numpy.

``python from_python.py CALLS SEED LOG KINDS JULIA_THREADS PYTHON_THREADS``; LOG, KINDS
and what it prints are as in stress.jl. Half of the calls are of the Python package
itself, in the same threads.
"""

import ctypes
import gc
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np

CALLS, SEED = int(sys.argv[1]), int(sys.argv[2])
LOG, KINDS, JULIA_THREADS = sys.argv[3:6]
PYTHON_THREADS = int(sys.argv[6])
TOLERANCE = 20_000
ROWS = 20  # of the log

from paddle_chainrules.julia import lock, start  # noqa: E402

MODULE = start(JULIA_THREADS)

import juliacall  # noqa: E402
import paddle  # noqa: E402

from paddle_chainrules import FCNet  # noqa: E402

JULIA = juliacall.Main
LIBC = ctypes.CDLL(None)
ACTIVATIONS = {
    "tanh": (np.tanh, lambda h: 1 - np.tanh(h) ** 2),
    "sin": (np.sin, np.cos),
    "relu": (lambda h: np.maximum(h, 0), lambda h: (h > 0).astype(h.dtype)),
}


def chain(act, params, x):
    """Output and tape of a net on rows, in numpy."""
    pairs, tape = list(zip(params[::2], params[1::2], strict=True)), []
    for i, (w, b) in enumerate(pairs):
        h = x @ w + b
        tape.append((x, h))
        x = act[0](h) if i + 1 < len(pairs) else h
    return x, tape


def reverse(act, params, tape, y_bar):
    """Gradients of the parameters, and of the rows."""
    grads = []
    for i in reversed(range(len(tape))):
        x, h = tape[i]
        if i + 1 < len(tape):
            y_bar = y_bar * act[1](h)
        grads = [x.T @ y_bar, y_bar.sum(0), *grads]
        y_bar = y_bar @ params[2 * i].T
    return grads, y_bar


class Worker:
    """One thread, with nets of its own."""

    def __init__(self, seed):
        self.calls = self.wrong = 0
        self.error = 0.0
        self.rng = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        # Made once: juliacall loses some 200 bytes with every array that it takes from
        # numpy, Paddle two small objects with every tensor.
        self.nets = []
        dtypes = ("float32", "float64") if KINDS == "all" else ("float64",)
        for name in ACTIVATIONS:
            for dtype in dtypes:
                n, m, layers, width = (self.rng.randint(1, 6) for _ in range(4))
                sizes = [n, *[width] * (layers - 1), m]
                net = MODULE.PaddleFCNet(
                    n, m, layers, width, dtype=dtype, activation=name, seed=seed
                )
                params = [np.asarray(p).T.copy() for p in net.params]
                own = FCNet(sizes, name, dtype)
                named = dict(zip(own.spec.names, params, strict=True))
                tensors = {k: paddle.to_tensor(v) for k, v in named.items()}
                given = [self.draw(n, dtype) for _ in range(20)]
                to_y = [self.draw(m, dtype, len(x)) for x, *_ in given]
                both = list(zip(given, to_y, strict=True))
                self.nets.append((name, net, params, own, tensors, both))

    def draw(self, width, dtype, rows=None):
        """Random rows in numpy, the same in Julia and in Paddle."""
        rows = self.rng.randint(1, 20) if rows is None else rows
        x = self.numpy.standard_normal((rows, width)).astype(dtype)
        return x, JULIA.Array(x.T), paddle.to_tensor(x)

    def compare(self, found, expected):
        found = np.asarray(found)
        unit = np.finfo(expected.dtype).eps
        scale = max(1, abs(expected).max(initial=0))
        same = found.shape == expected.shape
        error = abs(found - expected).max(initial=0) / scale / unit if same else np.inf
        self.error = max(self.error, float(error))
        self.wrong += not error < TOLERANCE

    def step(self):
        name, net, params, own, tensors, both = self.rng.choice(self.nets)
        act = ACTIVATIONS[name]
        given, to_y = self.rng.choice(both)
        (x, _, x_tensor), (y_bar, _, y_bar_tensor) = given, to_y
        y, tape = chain(act, params, x)
        kind = self.rng.randint(0, 5)
        if kind <= 2:
            with lock:
                self.in_julia(net, act, params, y, tape, given, to_y, kind)
        elif kind == 3:
            self.compare(own.forward(tensors, x_tensor).numpy(), y)
        else:
            value, pullback = own.pullback(tensors, x_tensor)
            self.compare(value.numpy(), y)
            if kind == 4:
                found, (x_bar,) = pullback(y_bar_tensor)
                expected, rows_bar = reverse(act, params, tape, y_bar)
                self.compare(x_bar.numpy(), rows_bar)
                for a, b in zip(found.values(), expected, strict=True):
                    self.compare(a.numpy(), b)
                self.calls += 1
        self.calls += 1
        roll = self.rng.random()
        if roll < 2e-3:
            with lock:
                JULIA.GC.gc(roll < 2e-4)
        if roll < 2e-4:
            gc.collect()

    def in_julia(self, net, act, params, y, tape, given, to_y, kind):
        """The same bytes in Julia are (features, samples)."""
        if kind == 0:
            self.compare(np.asarray(net(given[1])).T, y)
            return
        value, back = MODULE.pullback(net, given[1])
        self.compare(np.asarray(value).T, y)
        if kind == 1:
            found, x_bar = back(to_y[1])
            expected, rows_bar = reverse(act, params, tape, to_y[0])
            self.compare(np.asarray(x_bar).T, rows_bar)
            for a, b in zip(found, expected, strict=True):
                self.compare(np.asarray(a).T, b)
            self.calls += 1

    def run(self, calls):
        while self.calls < calls:
            self.step()


class Mallinfo(ctypes.Structure):
    """Of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


LIBC.mallinfo2.restype = Mallinfo


def memory():
    """Bytes resident and in use, as in stress.jl."""
    for _ in range(2):
        with lock:
            JULIA.GC.gc()
            juliacall.PythonCall.GC.gc()
            live = JULIA.Base.gc_live_bytes()
        gc.collect()
    LIBC.malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    rows = {label: int(size) for label, size, _ in map(str.split, lines)}
    resident = 1024 * (rows["Rss:"] - rows["LazyFree:"])
    allocated = LIBC.mallinfo2()
    return resident, allocated.uordblks + allocated.hblkhd + live


def main():
    sys.setswitchinterval(1e-4)  # fifty times as many changes of thread as usual
    share = CALLS // PYTHON_THREADS
    workers = [Worker(SEED + i) for i in range(PYTHON_THREADS)]
    workers[0].run(min(200, share))
    failures = []

    def work(worker):
        try:
            worker.run(share)
        except BaseException as error:
            failures.append(error)

    begin = time.perf_counter()
    threads = [threading.Thread(target=work, args=(w,)) for w in workers[1:]]
    for thread in threads:
        thread.start()
    with open(LOG, "w") as log:
        first, due = workers[0], 0.0
        while first.calls < share or any(t.is_alive() for t in threads):
            if first.calls < share:
                first.step()
            else:
                time.sleep(0.01)
            calls = sum(w.calls for w in workers)
            if calls >= due:
                due += CALLS / ROWS
                seconds = time.perf_counter() - begin
                with lock:
                    held = MODULE.RETAINED_BYTES[()]
                row = f"{seconds:.2f}", calls, *memory(), held
                print(*row, file=log, flush=True)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    print(
        f"calls {sum(w.calls for w in workers)} wrong {sum(w.wrong for w in workers)} "
        f"error {max(w.error for w in workers)} "
        f"seconds {time.perf_counter() - begin}"
    )


main()
