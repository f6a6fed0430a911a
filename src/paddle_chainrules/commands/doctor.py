"""A check of the installation: one line for each part, with the remedy."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import paddle
import paddle.version

from .. import julia
from ..paddle_side.process.openmp import threads
from ..programs import Target
from ..settings import BLAS, LOOPS, VARIABLE, code_folder, loops_are_on, programs_are_on
from .machine import machine

OK, NOTE, FAULT = "ok", "note", "FAULT"
MAX_JULIA_SECONDS = 600
"""The longest that a Julia may take which compiles its packages for the first time."""

FROM_PYTHON = """
from paddle_chainrules import julia
julia.start().doctor()
"""


class Finding(NamedTuple):
    """One finding."""

    mark: str
    """``ok``, ``note``, for what some may miss, or ``FAULT``."""
    subject: str
    fact: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.mark:5}  {self.subject}: {self.fact}{remedy}"


def doctor() -> Iterator[Finding]:
    """Look at everything, from Python to Julia; lines come as they are found."""
    yield _machine()
    yield from _python()
    yield from _paddle()
    yield from _threads()
    cpuinfo, mkl = Path("/proc/cpuinfo"), Path(paddle.__file__).parent / "libs"
    if cpuinfo.exists() and (mkl / "libmklml_intel.so").exists():
        line = products(cpuinfo.read_text(), os.environ.get("MKL_DEBUG_CPU_TYPE"))
        yield from [line] if line else []
    if programs_are_on() and loops_are_on():
        yield products_of_machine_code()
        yield loops_of_machine_code()
    yield from _julia()


def _machine() -> Finding:
    try:
        return Finding(OK, "Machine", machine())
    except ValueError as error:  # the environment asks for what is not here
        return Finding(FAULT, "Machine", str(error))


def _python() -> Iterator[Finding]:
    fact = f"{platform.python_version()}, {sys.executable}"
    yield Finding(OK, "Python", fact)
    names = ("paddle-chainrules", "numpy", "optree")
    yield Finding(
        OK, "Packages", ", ".join(f"{name} {version(name)}" for name in names)
    )


def _paddle() -> Iterator[Finding]:
    result = paddle.version.full_version
    numbers = tuple(int(n) for n in result.split(".")[:3] if n.isdigit())
    if numbers >= (3, 3, 1):
        yield Finding(OK, "paddlepaddle", result)
    else:
        remedy = "pip install 'paddlepaddle>=3.3.1'"
        yield Finding(
            FAULT, "paddlepaddle", f"{result}, needed is 3.3.1 or newer", remedy
        )
    table = hasattr(paddle.Tensor, "__dlpack_c_exchange_api__")
    yield (
        Finding(OK, "DLPack", "tensors cross by its exchange table")
        if table
        else Finding(
            NOTE,
            "DLPack",
            "no exchange table; tensors cross by capsules, more slowly",
            "pip install 'paddlepaddle>=3.3.1'",
        )
    )
    if not paddle.device.is_compiled_with_cuda():
        remedy = "for CUDA pip install paddlepaddle-gpu in place of paddlepaddle"
        yield Finding(NOTE, "GPU", "this Paddle is built for the CPU", remedy)
    elif (count := paddle.device.cuda.device_count()) == 0:
        remedy = "see whether nvidia-smi lists one, and CUDA_VISIBLE_DEVICES"
        yield Finding(
            NOTE, "GPU", "Paddle is built for CUDA but finds no device", remedy
        )
    else:
        yield Finding(OK, "GPU", f"{count}, {paddle.device.cuda.get_device_name(0)}")
    if programs_are_on() and loops_are_on():
        folder = f", kept in {code_folder()}" if code_folder() else ""
        fact = f"on, with loops by llvmlite {version('llvmlite')}{folder}"
        yield Finding(OK, "Programs", fact)
    elif programs_are_on():
        remedy = f"pip install llvmlite, unset {LOOPS}"
        yield Finding(NOTE, "Programs", "on, without loops of machine code", remedy)
    else:
        remedy = f"unset {VARIABLE}, unless you suspect them"
        yield Finding(NOTE, "Programs", f"off, by {VARIABLE}", remedy)


def products(cpuinfo: str, kernels: str | None) -> Finding | None:
    """Check whether MKL, which multiplies Paddle's matrices, uses this processor well.

    Paddle's MKL, of 2019, mistakes AMD's processors for old ones. Its products then
    take twice to three times as long, unless MKL_DEBUG_CPU_TYPE tells it that they have
    AVX2.

    Args:
        cpuinfo: the text of /proc/cpuinfo.
        kernels: MKL_DEBUG_CPU_TYPE of the environment.
    """
    if "AuthenticAMD" not in cpuinfo or " avx2 " not in cpuinfo:
        return None
    if kernels == "5":
        return Finding(
            OK, "Products", "MKL_DEBUG_CPU_TYPE=5, so that MKL has AVX2 on AMD"
        )
    return Finding(
        NOTE,
        "Products",
        "Paddle's MKL has no AVX2 on AMD's processors by itself",
        "set MKL_DEBUG_CPU_TYPE=5 before Python starts: half of the time",
    )


def products_of_machine_code() -> Finding:
    """Say which libraries multiply matrices in machine code, and why."""
    subject = "Products in machine code"
    try:
        result = Target().products()
    except (ValueError, MemoryError) as error:
        return Finding(FAULT, subject, str(error))
    if result is None:
        remedy = f"unset {BLAS}, unless you suspect the others; Paddle's wheel has MKL"
        return Finding(NOTE, subject, "none, they are Paddle's operators", remedy)
    choices = [
        f"{dtype} by {name} ({result.reasons[dtype]})"
        for dtype, name in result.names.items()
    ]
    return Finding(OK, subject, ", ".join(choices))


def loops_of_machine_code() -> Finding:
    """Report how many threads share the loops of machine code."""
    count = threads()
    if count == 1:
        return Finding(OK, "Loops in machine code", "by one thread")
    fact = f"shared by {count} threads, from {Target.MIN_PARALLEL_OPS:,} operations on"
    return Finding(OK, "Loops in machine code", fact)


def _threads() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    settings = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    fact = f"{cores} core{'s' * (cores > 1)}, " + (
        ", ".join(settings) or "BLAS and OpenMP choose"
    )
    if settings or cores == 1:
        yield Finding(OK, "Threads", fact)
    else:
        remedy = "small nets are often fastest with OMP_NUM_THREADS=1"
        yield Finding(NOTE, "Threads", fact, remedy)


def _julia() -> Iterator[Finding]:
    """Check that each language starts the other, in processes of their own."""
    try:
        result = julia.environment()
    except FileNotFoundError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        yield Finding(NOTE, "Julia", "not used", " ".join(lines))
        return
    julia_version = _run_checks([str(result.julia), "--version"], {}).stdout.strip()
    yield Finding(
        OK, "Julia", f"{julia_version}, {shutil.which('julia')}, {result.project}"
    )
    command = result.command("-e", "using PaddleChainRules; PaddleChainRules.doctor()")
    yield from _check_findings(
        _run_checks(command, result.variables()), "Julia starts Python"
    )
    try:
        juliacall = version("juliacall")
    except PackageNotFoundError:
        remedy = f"pip install {julia.requirement()}"
        yield Finding(NOTE, "Python starts Julia", "juliacall is missing", remedy)
        return
    if juliacall != result.pythoncall:
        fact = f"juliacall {juliacall}, but Julia has PythonCall {result.pythoncall}"
        remedy = f"pip install {julia.requirement()}"
        yield Finding(FAULT, "Python starts Julia", fact, remedy)
        return
    command = [sys.executable, "-W", "ignore", "-c", FROM_PYTHON]
    yield from _check_findings(
        _run_checks(command, dict(os.environ)), "Python starts Julia"
    )


SAYS_NOTHING = re.compile(r"[IWEF]\d{4} |Traceback| |$")
"""Lines that do not say what is wrong: of Paddle's log, and of where an error was."""


def _run_checks(
    command: list[str], environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environ or None,
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_JULIA_SECONDS,
    )


def _check_findings(
    completed: subprocess.CompletedProcess[str], subject: str
) -> Iterator[Finding]:
    """Yield the lines that the other side's doctor printed, and whether it failed."""
    marks = {OK, NOTE, FAULT}
    for text in completed.stdout.splitlines():
        mark, _, text_after = text.partition("  ")
        if mark.strip() in marks:
            check_name, _, fact = text_after.strip().partition(": ")
            yield Finding(mark.strip(), f"{subject}, {check_name}", fact)
    if completed.returncode != 0:
        lines = [*completed.stderr.strip().splitlines(), "it said nothing"]
        text = next(line for line in lines if not SAYS_NOTHING.match(line))
        yield Finding(FAULT, subject, f"failed ({completed.returncode}): {text}")
