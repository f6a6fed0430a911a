"""This machine in one line, so that a failure elsewhere can be understood."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from ..programs import Target
from ..settings import loops_are_on

PREFIXES = ("MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "PADDLE_CHAINRULES_")
"""Prefixes of environment variables that change results or speed."""


def machine() -> str:
    """Describe the processor, what multiplies, versions, and settings, in one line."""
    cores = len(os.sched_getaffinity(0))
    facts = [f"{processor_name()}, {cores} core{'s' * (cores > 1)}"]
    if loops_are_on():
        result = Target().products()
        pairs = result.names.items() if result is not None else ()
        choices = ", ".join(f"{dtype} by {name}" for dtype, name in pairs)
        facts[0] += f", {Target().level()}"
        facts += [f"products in machine code: {choices or 'none'}"]
    packages = [f"{name} {version(name)}" for name in ("paddlepaddle", "numpy")]
    facts += [f"Python {platform.python_version()}, {', '.join(packages)}"]
    names = sorted(name for name in os.environ if name.startswith(PREFIXES))
    if settings := [f"{name}={os.environ[name]}" for name in names]:
        facts += [" ".join(settings)]
    return "; ".join(facts)


def processor_name() -> str:
    """Return the processor's name, as it tells the system."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.split(":")[1] for line in lines if line.startswith("model name")]
    return names[0].strip() if names else platform.processor() or platform.machine()
