"""Programs captured, run and dropped on four threads, beside the tape and bare Paddle.

``python tests/stress/programs.py [CALLS]``: every result is compared with one made
before the threads began. Prints counts, and the growth of memory over the second half.
"""

from __future__ import annotations

import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import optree
import paddle
from paddle import nn
from tqdm import tqdm

from paddle_chainrules import grad, hessian, jit, stateless, value_and_grad
from paddle_chainrules.paddle_side import listener
from paddle_chainrules.paddle_side.patching import patch_sites
from paddle_chainrules.transforms.as_programs import program_cache

THREADS = 4
SIZES = range(1, 40)


def made() -> dict[str, Callable[[Any], Any]]:
    """Calls by name, of one tensor of 3 columns."""
    paddle.seed(0)
    mlp = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))
    plain = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    net, params, _ = stateless(mlp, jit=True)
    tape, _, _ = stateless(mlp)

    def gradients(net: Any) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            y, back = net.pullback(params, x)
            return y, back(y)

        return call

    def loss(x: Any) -> Any:
        return (paddle.sin(x) * paddle.exp(-x * x)).sum()

    def nested(x: Any) -> Any:
        return grad(lambda x: (grad(loss)(x) ** 2).sum())(x)

    def eager(x: Any) -> Any:
        x = x.detach()
        x.stop_gradient = False
        u = plain(x)
        return paddle.grad(u, x, create_graph=True)[0].sum()

    def leaving(x: Any) -> Any:
        return x * float(x.sum())

    return {
        "net as a program": gradients(net),
        "net on the tape": gradients(tape),
        "value and gradient": jit(value_and_grad(loss)),
        "nested, inside": jit(nested),
        "nested, outside": lambda x: grad(lambda x: (grad(jit(loss))(x) ** 2).sum())(x),
        "eager step": jit(eager),
        "what is no program": jit(leaving),
        "nested on the tape": lambda x: hessian(lambda x: (x[0] ** 3).sum())(x),
        "bare Paddle": lambda x: paddle.tanh(x @ x.T) + 1,
    }


def same(found: Any, expected: Any) -> bool:
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    return all(bool(paddle.allclose(a, b, 1e-5, 1e-6)) for a, b in pairs)


def main(total: int) -> int:
    program_cache.MAX_PROGRAMS_PER_FUNCTION = 16  # so that programs go and come
    calls, xs = made(), {n: paddle.randn([n, 3]) for n in SIZES}
    expected = {(k, n): call(xs[n]) for k, call in calls.items() for n in SIZES}
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    bar = tqdm(total=total, unit="call")

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for i in range(total // THREADS):
            name, n = rng.choice([*calls]), rng.choice(SIZES)
            try:
                if not same(calls[name](xs[n]), expected[name, n]):
                    wrong.append(f"{name} of {n} rows")
            except Exception as error:
                wrong.append(f"{name} of {n} rows: {type(error).__name__}: {error}")
            counts[name] += 1
            if i % 50 == 0:
                bar.update(50)

    sys.setswitchinterval(1e-4)
    threads = [threading.Thread(target=work, args=[seed]) for seed in range(THREADS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    half = None
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        if half is None and sum(counts.values()) > total / 2:
            half = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bar.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - (half or 0)
    assert not patch_sites.listener_slots
    assert listener.local.listener is None
    seconds = time.perf_counter() - start
    print(f"{sum(counts.values())} calls in {seconds:.0f} s, {len(wrong)} wrong,")
    print(f"memory grew by {grown / 1000:.1f} MB in the second half; {dict(counts)}")
    print(*wrong[:10], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
