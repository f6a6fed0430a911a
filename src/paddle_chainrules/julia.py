"""Julia from Python: start it safely beside Paddle and load PaddleChainRules.jl.

Needs the extra ``paddle-chainrules[julia]``. Nothing else in this package imports it.

Where several threads of Python use Julia, each holds the lock for its calls::

    julia.start(handle_signals=True)
    ...
    with julia.lock:
        y = np.asarray(net(x))

Without the lock a collection of Julia's garbage, which waits for a thread that waits
for Python's lock, may wait for ever; so a net called without it raises an error.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .bridge.julia_lock import lock as lock

SOURCE = Path(__file__).resolve().with_name("_julia").resolve()
"""The Julia package, which travels with this one."""


def start(
    threads: int | str | None = None, *, handle_signals: bool | None = None
) -> Any:
    """Start Julia, or join it where it runs, and give the module PaddleChainRules.

    It starts the Julia of ``PYTHON_JULIACALL_EXE`` and ``PYTHON_JULIACALL_PROJECT`` if
    these are set. Otherwise it takes the ``julia`` on the PATH if its environment has
    the packages, and PythonCall in juliacall's version. Otherwise it takes the one that
    juliapkg finds or installs.

    Julia's garbage collector needs its own signal handlers as soon as more than one
    thread uses Julia. With them Ctrl-C no longer raises KeyboardInterrupt. So they are
    on by default only if Julia itself has several threads; threads of Python need
    ``handle_signals=True``.

    From then on Julia's garbage collector need not wait for this thread while it is in
    Python, so that other threads may call Julia meanwhile, each with the :data:`lock`.

    Args:
        threads: number of Julia threads, or "auto"; if None, the value of
            ``PYTHON_JULIACALL_THREADS`` or ``JULIA_NUM_THREADS``, or else 1. It has no
            effect if Julia runs already.
        handle_signals: whether Julia has its own handlers; if None, the value of
            ``PYTHON_JULIACALL_HANDLE_SIGNALS``, or else whether Julia has several
            threads. It has no effect if Julia runs already.

    Returns:
        The Julia module; ``juliacall.Main`` is Julia's Main.

    Raises:
        ModuleNotFoundError: juliacall is missing.
        RuntimeError: Julia's threads and signal handlers are in a combination that
            would kill the process, or PaddleChainRules.jl can't be loaded.

    Examples:
        ``start().PaddleFCNet(3, 2, 2, 16)`` is a Julia callable on arrays.
    """
    if find_spec("juliacall") is None:
        raise ModuleNotFoundError(
            "paddle_chainrules.julia needs juliacall; install it with "
            "pip install 'paddle-chainrules[julia]'",
            name="juliacall",
        )
    if "juliacall" not in sys.modules:
        _prepare(threads, handle_signals)
    try:
        import juliacall
    except subprocess.CalledProcessError as error:
        raise RuntimeError(
            "juliapkg could not install the Julia packages; to use the Julia on the "
            f"PATH, give it the packages and run: pip install {requirement()}"
        ) from error

    try:
        module = juliacall.Main.seval("import PaddleChainRules; PaddleChainRules")
    except juliacall.JuliaError as error:
        raise RuntimeError(
            "Julia runs, but its project lacks the package PaddleChainRules; add "
            f"it with Pkg.develop(path={str(SOURCE)!r}), or let start() be "
            "the first to start Julia"
        ) from error
    try:
        module.bridge()
    except juliacall.JuliaError as error:
        raise RuntimeError(str(error)) from error
    _count_thread_as_safe(juliacall.Main)
    return module


def _count_thread_as_safe(main: Any) -> None:
    """Count this thread, in Python, among those a collection need not wait for.

    Calls of Julia count the thread out and in again. The thread that starts Julia is
    out at first. If another thread collected while this one waited for it, the two
    would wait forever.
    """

    def function(name: str, *types: Any) -> Any:
        address = main.seval(f"Int(cglobal(:{name}))")
        return ctypes.PYFUNCTYPE(*types)(int(address))

    enter = function("jl_gc_safe_enter", ctypes.c_int8)
    leave = function("jl_gc_safe_leave", None, ctypes.c_int8)
    previous_state = enter()
    if previous_state == 0:
        atexit.register(leave, previous_state)  # before Julia's own end


def _prepare(threads: int | str | None, handle_signals: bool | None) -> None:
    """Set what juliacall reads when it is imported."""
    env = os.environ
    if threads is not None:
        env["PYTHON_JULIACALL_THREADS"] = str(threads)
    count = env.get("PYTHON_JULIACALL_THREADS", env.get("JULIA_NUM_THREADS", "1"))
    default = "no" if count == "1" else "yes"
    if handle_signals is not None:
        handles = "yes" if handle_signals else "no"
    else:
        handles = env.get("PYTHON_JULIACALL_HANDLE_SIGNALS", default)
    if count != "1" and handles != "yes":
        raise RuntimeError(
            f"Julia with {count} threads needs PYTHON_JULIACALL_HANDLE_SIGNALS=yes:"
            " without its handler of SIGSEGV a threaded garbage collection kills "
            "the process. Set it, or use start(threads=1)"
        )
    env["PYTHON_JULIACALL_HANDLE_SIGNALS"] = handles
    if "PYTHON_JULIACALL_EXE" in env or "PYTHON_JULIACALL_PROJECT" in env:
        return
    try:
        result = environment()
    except FileNotFoundError:
        return  # juliapkg finds or installs Julia, by juliapkg.json
    if result.pythoncall == version("juliacall"):
        env["PYTHON_JULIACALL_EXE"] = str(result.julia)
        env["PYTHON_JULIACALL_PROJECT"] = str(result.project)


class Environment(NamedTuple):
    """A Julia and a project in which PaddleChainRules loads."""

    julia: Path
    project: Path
    pythoncall: str
    """Version of PythonCall.jl there; juliacall must have the same."""

    def command(self, *args: str | Path) -> list[str]:
        """Return the command line that runs Julia there."""
        options = ["--startup-file=no", f"--project={self.project}"]
        return [str(self.julia), *options, *map(str, args)]

    def variables(self) -> dict[str, str]:
        """Return this process's environment variables, for a Julia with this Python."""
        return {
            **os.environ,
            "JULIA_PYTHONCALL_EXE": sys.executable,
            "JULIA_CONDAPKG_BACKEND": "Null",
            "PYTHONWARNINGS": "ignore::UserWarning",
        }


def environment(*packages: str) -> Environment:
    """Return the ``julia`` on the PATH, and a project in which PaddleChainRules loads.

    The project is Julia's active environment with this package added by path; nothing
    is downloaded and nothing of the user's is changed.

    Args:
        *packages: names of further Julia packages that must be there.

    Raises:
        FileNotFoundError: no julia, or packages missing; the message says which and
            how to get them.
    """
    julia = shutil.which("julia")
    if julia is None:
        raise FileNotFoundError(
            "no julia on the PATH; install Julia 1.10 or newer from julialang.org"
        )
    completed = subprocess.run(
        [julia, "--startup-file=no", str(SOURCE / "environment.jl"), *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        raise FileNotFoundError(completed.stderr.strip())
    project, pythoncall = completed.stdout.splitlines()
    return Environment(Path(julia), Path(project), pythoncall)


def requirement() -> str:
    """Return the juliacall to install: of the local PythonCall's version, or any."""
    try:
        return f"juliacall=={environment().pythoncall}"
    except FileNotFoundError:
        return "juliacall"
