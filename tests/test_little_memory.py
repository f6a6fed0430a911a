"""A process that may have only so much memory goes without machine code, and lives."""

import json
import sys

import pytest

from conftest import loops_on, programs_on, run_code
from paddle_chainrules.programs.codegen import headroom, jit_engine
from paddle_chainrules.programs.codegen.matrix_products import blas

pytestmark = [
    programs_on,
    loops_on,
    pytest.mark.skipif(sys.platform != "linux", reason="limits are told on Linux"),
]

LIMITED = """
import json, resource, warnings
import paddle
from paddle_chainrules import FCNet, scan, value_and_grad
from paddle_chainrules.programs.codegen import headroom

net = FCNet((64, 128, 128, 10), "tanh")
params, x = net.init(0), paddle.ones([256, 64])
step = value_and_grad(lambda p, x: (net(p, x) ** 2).mean())
first = float(step(params, x)[0])
step(params, x)
body = lambda carry, x: (paddle.tanh(carry + x), carry)
rows = paddle.ones([200, 8])
ends = float(scan(body, paddle.zeros([8]), rows)[0].sum())
pages = headroom.STATM.read_text().split()
most = int(pages[PLACE]) * 4096 + (LEFT << 20)
resource.setrlimit(resource.KIND, (most, most))
told = []
warnings.showwarning = lambda message, *_: told.append(str(message))
warnings.simplefilter("always")
for _ in range(50):
    value, grads = step(params, x)
    carry, _ = scan(body, paddle.zeros([8]), rows)
assert abs(float(value) - first) < 1e-5 and abs(float(carry.sum()) - ends) < 1e-4
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("kind", "left"),
    [("AS", 8), ("AS", 30), ("AS", 195), ("AS", 450), ("DATA", 8), ("AS", 3000)],
)
def test_a_net_runs_on_without_machine_code(kind, left):
    place = {"AS": headroom.SIZE, "DATA": headroom.DATA}[kind]
    code = LIMITED.replace("PLACE", str(place)).replace("LEFT", str(left))
    done = run_code(
        code.replace("KIND", f"RLIMIT_{kind}"), PADDLE_CHAINRULES_LOOPS="on"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    if left > 1000:
        assert not told
    else:
        assert told
        assert all("ulimit" in t and "LOOPS=off" in t for t in told)
        assert all("reinstall" not in t for t in told)


def test_who_asks_for_machine_code_is_told(monkeypatch):
    monkeypatch.setattr(headroom, "headroom", lambda: 100 << 20)
    with pytest.raises(MemoryError, match=r"leaves 100 MB; raise it .*LOOPS=off"):
        jit_engine.machine_code(["a text that nobody has compiled"])
    monkeypatch.setattr(blas, "_process_library", [])
    with pytest.raises(MemoryError, match=r"may need 512 MB"):
        blas.library()


def test_without_a_limit_nothing_is_read(monkeypatch):
    unlimited = headroom.resource.RLIM_INFINITY
    monkeypatch.setattr(headroom.resource, "getrlimit", lambda kind: (unlimited, 0))
    assert headroom.headroom() is None


COMPILED = '''
import gc, json, os
from paddle_chainrules.programs.codegen import jit_engine as machine

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

TEXT = """define i1 @NAME(ptr %p) {
  %a = load double, ptr %p
  %b = call double @llvm.exp.f64(double %a)
  %c = fmul double %b, NUMBER
  store double %c, ptr %p
  ret i1 false
}"""

def compiled(count, begin):
    for k in range(begin, begin + count):
        machine.machine_code([TEXT.replace("NUMBER", f"{k}.5")])

machine.MAX_RECENT_FUNCTIONS = 60
compiled(10, 0)
sizes = [resident()]
compiled(50, 1_000)  # all of them stay
sizes.append(resident())
compiled(machine.MAX_RECENT_FUNCTIONS, 2_000)
sizes.append(resident())
compiled(100, 3_000)  # for each, another one goes
sizes.append(resident())
print(json.dumps([b - a for a, b in zip(sizes, sizes[1:])]))
'''


def test_compiled_functions_are_small_and_go():
    done = run_code(COMPILED, PADDLE_CHAINRULES_LOOPS="on")
    assert done.returncode == 0, done.stderr
    kept, _, gone = json.loads(done.stdout)
    assert kept < 50 * 250_000  # 700 kB each, with the compiler's tables
    assert gone < 100 * 20_000  # 30 to 70 kB each, with the passes
