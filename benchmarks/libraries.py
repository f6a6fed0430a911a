"""Saved nets beside those of other frameworks: make bench-libraries.

Each side saves a net, then loads it and calls it: ours as a shared library from C and
from Python (ctypes), ONNX Runtime, PyTorch by AOTInductor, and JAX by ``jax.export``.
The tasks are the value, the gradient by the input along a cotangent, and the Jacobian
of each sample. Compares numbers first. Prints Markdown, leaves JSON in output/.
``QUICK=1`` for less.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np
import paddle
from paddle import nn
from tqdm import tqdm

from machine import save
from paddle_chainrules import stateless
from paddle_chainrules.libraries import save_library
from paddle_chainrules.testing.timings import Timer, interleave, timer

QUICK = "QUICK" in os.environ
ROUNDS = 8 if QUICK else 60
STARTS = 3 if QUICK else 9
BATCHES = (1, 64, 1024)
NETS = ("MLP 3-64-64-64-1", "modified MLP 3-64-64-64-1")
TASKS = ("value", "gradient", "jacobian")
OURS = "ours, from C"
SIDES = (OURS, "ours, from Python", "ONNX Runtime", "PyTorch AOTInductor", "JAX export")
SIZES = (3, 64, 64, 64, 1)
NAMES = {NETS[0]: "mlp", NETS[1]: "modified"}

Weights = list[tuple[np.ndarray, np.ndarray]]
Call = Callable[[], Any]


def weights_of(name: str) -> Weights:
    """The layers' weights [in, out] and biases, the encoders' last."""
    rng = np.random.default_rng(0)
    pairs = [*pairwise(SIZES)]
    pairs += [SIZES[:2]] * 2 * (name == NETS[1])
    return [
        (
            (rng.standard_normal(pair) / pair[0] ** 0.5).astype("float32"),
            (0.1 * rng.standard_normal(pair[1])).astype("float32"),
        )
        for pair in pairs
    ]


def formula(name: str, layers: Sequence[tuple[Any, Any]], x: Any, tanh: Any) -> Any:
    """The net: tanh layers, mixed by two encoders where it is the modified MLP."""
    *hidden, (last, bias) = layers[: len(SIZES) - 1]
    encoders = [tanh(x @ w + b) for w, b in layers[len(SIZES) - 1 :]]
    for w, b in hidden:
        x = tanh(x @ w + b)
        if name == NETS[1]:
            x = x * encoders[0] + (1 - x) * encoders[1]
    return x @ last + bias


class PaddleNet(nn.Layer):
    """The net as a layer of Paddle's."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.layers = nn.LayerList()
        for weight, bias in weights_of(name):
            layer = nn.Linear(*weight.shape)
            layer.weight.set_value(weight)
            layer.bias.set_value(bias)
            self.layers.append(layer)

    def forward(self, x: Any) -> Any:
        rows = [(layer.weight, layer.bias) for layer in self.layers]
        return formula(self.name, rows, x, paddle.tanh)


def given(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Input and cotangent."""
    rng = np.random.default_rng(batch)
    shapes = (batch, SIZES[0]), (batch, SIZES[-1])
    x, bar = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    return x, bar


DRIVER = """
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "NAME.h"
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
int main(void) {
  enum { MOST = 1024 };
  static float x[3 * MOST], bar[MOST], y[MOST], grad[3 * MOST];
  for (int i = 0; i < 3 * MOST; i++) x[i] = (float)(i % 17) / 17.0f - 0.5f;
  for (int i = 0; i < MOST; i++) bar[i] = (float)(i % 13) / 13.0f;
  int task;
  long n, calls;
  while (scanf("%d %ld %ld", &task, &n, &calls) == 3) {
    double start = seconds();
    for (long i = 0; i < calls; i++) {
      int status = task == 0   ? NAME(n, x, y)
                   : task == 1 ? NAME_vjp(n, x, bar, grad)
                               : NAME_jacobian(n, x, grad);
      if (status) return status;
    }
    printf("%.9f\\n", seconds() - start);
    fflush(stdout);
  }
  return 0;
}
"""


class Saved:
    """A net saved by every side that is installed, in a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.short = name, folder, NAMES[name]
        self.files: dict[str, list[Path]] = {}
        self._library()
        if find_spec("onnxruntime") and find_spec("torch"):
            self._onnx()
        if find_spec("torch"):
            self._torch()
        if find_spec("jax"):
            self._jax()

    def _library(self) -> None:
        net, params, _ = stateless(PaddleNet(self.name))
        path = self.folder / f"{self.short}.so"
        x = paddle.to_tensor(given(5)[0])
        wanted = ["vjp", "jacobian"]
        save_library(path, net, params, x, derivatives=wanted, params="inside")
        source = self.folder / f"{self.short}.c"
        source.write_text(DRIVER.replace("NAME", self.short))
        program = self.folder / f"{self.short}_driver"
        command = [
            "cc",
            "-O2",
            "-o",
            program,
            source,
            path,
            f"-Wl,-rpath,{self.folder}",
        ]
        subprocess.run(command, check=True)
        self.files[OURS] = self.files["ours, from Python"] = [path]

    def _module(self) -> Any:
        import torch

        layers = [(torch.tensor(w), torch.tensor(b)) for w, b in weights_of(self.name)]
        name = self.name

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for i, (w, b) in enumerate(layers):
                    self.register_buffer(f"w{i}", w)
                    self.register_buffer(f"b{i}", b)

            def forward(self, x: Any) -> Any:
                count = range(len(layers))
                rows = [(getattr(self, f"w{i}"), getattr(self, f"b{i}")) for i in count]
                return formula(name, rows, x, torch.tanh)

        return Net().eval()

    def _onnx(self) -> None:
        import torch

        path = self.folder / f"{self.short}.onnx"
        x = torch.tensor(given(5)[0])
        shapes = {"x": {0: torch.export.Dim("n")}}
        torch.onnx.export(
            *(self._module(), (x,), str(path)),
            input_names=["x"],
            dynamo=True,
            dynamic_shapes=shapes,
            external_data=False,
            verbose=False,
        )
        self.files["ONNX Runtime"] = [path]

    def _torch(self) -> None:
        """AOTInductor of the value, and of gradients where ``torch.export`` can."""
        import torch

        net = self._module()

        class Gradient(torch.nn.Module):
            def forward(self, x: Any, bar: Any) -> Any:
                return torch.func.vjp(net, x)[1](bar)[0]

        class Jacobian(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                one = torch.func.jacrev(lambda row: net(row[None])[0])
                return torch.func.vmap(one)(x)

        x, bar = map(torch.tensor, given(5))
        tasks = [(net, (x,)), (Gradient(), (x, bar)), (Jacobian(), (x,))]
        self.files["PyTorch AOTInductor"] = []
        for task, (module, args) in zip(TASKS, tasks, strict=True):
            path = self.folder / f"{self.short}_{task}.pt2"
            n = torch.export.Dim("n", min=1)
            try:
                shapes = tuple({0: n} for _ in args)
                program = torch.export.export(module, args, dynamic_shapes=shapes)
                torch._inductor.aoti_compile_and_package(
                    program, package_path=str(path)
                )
            except Exception as error:
                print(f"PyTorch exports no {task}: {str(error)[:200]}", file=sys.stderr)
            else:
                self.files["PyTorch AOTInductor"].append(path)

    def _jax(self) -> None:
        import jax
        from jax import numpy as jnp

        layers = [(jnp.asarray(w), jnp.asarray(b)) for w, b in weights_of(self.name)]

        def net(x: Any) -> Any:
            return formula(self.name, layers, x, jnp.tanh)

        (n,) = jax.export.symbolic_shape("n")
        x = jax.ShapeDtypeStruct((n, SIZES[0]), jnp.float32)
        bar = jax.ShapeDtypeStruct((n, SIZES[-1]), jnp.float32)
        tasks = {
            "value": (net, (x,)),
            "gradient": (lambda x, bar: jax.vjp(net, x)[1](bar)[0], (x, bar)),
            "jacobian": (
                jax.vmap(jax.jacrev(lambda row: net(row[None])[0])),
                (x,),
            ),
        }
        self.files["JAX export"] = []
        for task, (fn, args) in tasks.items():
            path = self.folder / f"{self.short}_{task}.jax"
            path.write_bytes(jax.export.export(jax.jit(fn))(*args).serialize())
            self.files["JAX export"].append(path)

    def calls(self, task: str, batch: int) -> dict[str, Call]:
        """A call by each side from Python, that gives its result."""
        x, bar = given(batch)
        found = {"ours, from Python": self._by_ctypes(task, x, bar)}
        if task == "value" and "ONNX Runtime" in self.files:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            session = onnxruntime.InferenceSession(
                str(self.files["ONNX Runtime"][0]), options
            )
            found["ONNX Runtime"] = lambda: session.run(None, {"x": x})[0]
        path = self.folder / f"{self.short}_{task}.pt2"
        if path.exists():
            import torch

            torch.set_num_threads(1)
            loaded = torch._inductor.aoti_load_package(str(path))
            args = [*map(torch.tensor, (x, bar))][: 2 if task == "gradient" else 1]
            found["PyTorch AOTInductor"] = lambda: loaded(*args)
        path = self.folder / f"{self.short}_{task}.jax"
        if path.exists():
            import jax

            exported = jax.export.deserialize(bytearray(path.read_bytes()))
            call = jax.jit(exported.call)
            given_ = [*map(jax.numpy.asarray, (x, bar))][
                : 2 if task == "gradient" else 1
            ]
            found["JAX export"] = lambda: jax.block_until_ready(call(*given_))
        return found

    def _by_ctypes(self, task: str, x: np.ndarray, bar: np.ndarray) -> Call:
        library = ctypes.CDLL(str(self.files[OURS][0]))
        ending = {"value": "", "gradient": "_vjp", "jacobian": "_jacobian"}[task]
        function = getattr(library, f"{self.short}{ending}")
        rows = [x, bar] if task == "gradient" else [x]
        shape = {"value": bar.shape, "gradient": x.shape}
        shape["jacobian"] = (len(x), SIZES[-1], SIZES[0])
        out = np.empty(shape[task], "float32")
        pointers = [a.ctypes.data for a in (*rows, out)]
        function.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * len(pointers)]

        def call() -> np.ndarray:
            if status := function(len(x), *pointers):
                raise ValueError(f"the library gives error {status}")
            return out

        return call


@contextmanager
def driver(saved: Saved) -> Iterator[Callable[[str, int], Timer]]:
    """A C program that times calls of the library."""
    program = saved.folder / f"{saved.short}_driver"
    process = subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to, back = process.stdin, process.stdout

    def of(task: str, batch: int) -> Timer:
        def seconds(calls: int) -> float:
            to.write(f"{TASKS.index(task)} {batch} {calls}\n")
            to.flush()
            return float(back.readline())

        return seconds

    yield of
    to.close()
    process.wait()


def measured(saved: Saved, task: str, batch: int) -> dict[str, Any]:
    """Microseconds a call of all sides, after a comparison."""
    calls = saved.calls(task, batch)
    ours = np.array(calls["ours, from Python"]())
    for side, call in calls.items():
        found = np.asarray(call()).reshape(ours.shape)
        np.testing.assert_allclose(found, ours, 1e-3, 1e-4, err_msg=side)
    with driver(saved) as of:
        timers = {OURS: of(task, batch)} | {s: timer(c) for s, c in calls.items()}
        once = timers["ours, from Python"](3) / 3
        us = interleave(timers, ROUNDS, max(1, int(0.01 / once)))
    return {"net": saved.name, "task": task, "batch": batch, "us": us}


STARTED = {
    "ours, from Python": """
import ctypes, sys
x, y = (ctypes.c_float * 3)(1, 2, 3), (ctypes.c_float * 1)()
assert ctypes.CDLL(sys.argv[1]).mlp(ctypes.c_int64(1), x, y) == 0
""",
    "ONNX Runtime": """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
session.run(None, {"x": numpy.ones((1, 3), "float32")})
""",
    "PyTorch AOTInductor": """
import sys, torch
torch._inductor.aoti_load_package(sys.argv[1])(torch.ones(1, 3))
""",
    "JAX export": """
import sys, jax
exported = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
jax.block_until_ready(jax.jit(exported.call)(jax.numpy.ones((1, 3))))
""",
}


def starts(saved: Saved) -> dict[str, float]:
    """Milliseconds from the start of a process to the end of its first call."""
    found: dict[str, float] = {}
    program = str(saved.folder / f"{saved.short}_driver")
    commands = {OURS: [program]}
    for side, code in STARTED.items():
        if saved.files.get(side):
            commands[side] = [sys.executable, "-c", code, str(saved.files[side][0])]
    for _ in range(STARTS):
        for side, command in commands.items():
            start = time.perf_counter()
            subprocess.run(
                command, input="0 1 1\n", text=True, check=True, capture_output=True
            )
            ms = 1e3 * (time.perf_counter() - start)
            found[side] = min(found.get(side, ms), ms)
    return found


RUNTIMES = {
    "ONNX Runtime": ("onnxruntime",),
    "PyTorch AOTInductor": ("torch",),
    "JAX export": ("jax", "jaxlib"),
}


def sizes(saved: Saved) -> dict[str, dict[str, int]]:
    """Bytes of the saved files of all tasks, and of the packages that run them."""
    found = {}
    for side, files in saved.files.items():
        runtime = 0
        for name in RUNTIMES.get(side, ()):
            spec = find_spec(name)
            folder = Path(spec.origin).parent if spec and spec.origin else Path()
            runtime += sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        found[side] = {
            "files": sum(f.stat().st_size for f in files),
            "runtime": runtime,
        }
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds a call."""
    sides = [side for side in SIDES if any(side in row["us"] for row in rows)]
    lines = [f"| net, samples | task | {' | '.join(sides)} |"]
    lines.append("|" + "---|" * (len(sides) + 2))
    for row in rows:
        cells = [f"{row['net']}, {row['batch']:,}", row["task"]]
        for side in sides:
            us = row["us"].get(side, {}).get("min")
            text = "" if us is None else f"{us:.2f}" if us < 10 else f"{us:.0f}"
            cells.append(f"**{text}**" if side == OURS else text)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shipped(found: dict[str, Any]) -> str:
    """What has to be installed beside a program, and when the first call is over."""
    lines = [
        "| | saved files | runtime | first call of a process |",
        "|---|---|---|---|",
    ]
    for side in SIDES:
        if side in found["starts"]:
            size = found["sizes"][side]
            runtime = f"{size['runtime'] / 1e6:.0f} MB" if size["runtime"] else "none"
            files = f"{size['files'] / 1e3:.0f} kB"
            lines.append(
                f"| {side} | {files} | {runtime} | {found['starts'][side]:.1f} ms |"
            )
    return "\n".join(lines)


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        saved = [Saved(name, folder) for name in tqdm(NETS, desc="save")]
        places = [(s, t, b) for s in saved for t in TASKS for b in BATCHES]
        found: dict[str, Any] = {"rows": [measured(*place) for place in tqdm(places)]}
        found |= {"starts": starts(saved[0]), "sizes": sizes(saved[0])}
    save("libraries", found)
    print(table(found["rows"]))
    print()
    print(shipped(found))


if __name__ == "__main__":
    main()
