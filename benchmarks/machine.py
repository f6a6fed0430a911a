"""What ran where, beside the figures of every run."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from paddle_chainrules.commands.machine import processor_name

OUTPUT = Path(__file__).resolve().parent.parent / "output"
SETTLED = 34
"""Calls after which a side runs as ever: programs become machine code after 32."""

LESS = ("QUICK", "ONLY", "TIMES", "MINUTES", "SEEDS", "SIDES", "STEPS")
"""Variables of the environment by which a benchmark does less than the docs show."""

PACKAGES = (
    *("paddlepaddle", "numpy", "scipy", "torch", "jax", "onnxruntime"),
    *("deepxde", "paddlesci"),
    "juliacall",
)


def machine(julia_version: str | None = None) -> dict[str, Any]:
    """Date, processor, and versions; None of what is not installed."""
    found: dict[str, Any] = {"date": date.today().isoformat(), "cpu": processor_name()}
    found |= {"cores": os.cpu_count(), "threads": 1}
    if kernels := os.environ.get("MKL_DEBUG_CPU_TYPE"):
        found["MKL_DEBUG_CPU_TYPE"] = kernels
    if less := [name for name in LESS if name in os.environ]:
        found["less"] = less
    found |= {"python": platform.python_version(), "julia": julia_version}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def save(name: str, found: dict[str, Any], julia_version: str | None = None) -> Path:
    """Write what was found to output/NAME.json, with the machine's description."""
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / f"{name}.json"
    results = {"machine": machine(julia_version), **found}
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path
