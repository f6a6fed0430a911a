"""Build the plugin, and have Paddle load it: ``pytest --device fake_gpu``.

Paddle looks for plugins while it is imported, so this module comes before it. The
plugin is compiled once for each version of its source and of Paddle.

    python tests/device/plugin.py       builds it, and prints its folder
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = [HERE / name for name in ("runtime.cc", "kernels.cc")]
CACHE = HERE.parents[1] / "output" / "device"
NAME = "fake_gpu"

VARIABLE = "TEST_DEVICE"
"""Holds the name of the device that tests run on, for the processes that they start."""

WARNINGS = "-Wall", "-Wextra", "-Werror"
OWN_WARNINGS = "-Wno-unused-parameter", "-Wno-deprecated-declarations"


def missing():
    """Say why the plugin cannot be built; None where it can."""
    if sys.platform != "linux":
        return "the plugin is for Linux"
    if compiler() is None:
        return "there is no C++ compiler on the PATH"
    return None


def compiler():
    """Return the C++ compiler, or None."""
    return os.environ.get("CXX") or shutil.which("g++")


def folder():
    """Return the folder with the plugin, which is built where it is not there."""
    spec = importlib.util.find_spec("paddle")
    paddle = Path(spec.submodule_search_locations[0])
    said = "\n".join(
        [
            importlib.metadata.version("paddlepaddle"),
            str(paddle),
            *(source.read_text() for source in SOURCES),
            Path(__file__).read_text(),
        ]
    )
    target = CACHE / hashlib.sha256(said.encode()).hexdigest()[:16]
    library = target / f"{NAME}.so"
    if not library.exists():
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as scratch:
            made = Path(scratch) / library.name
            build(paddle, made)
            made.replace(library)
    return target


def build(paddle, library):
    """Compile the plugin against Paddle's headers."""
    libraries = paddle / "libs"
    command = [
        *(compiler(), "-std=c++17", "-O1", "-fPIC", "-shared"),
        *(*WARNINGS, *OWN_WARNINGS),
        *("-DPADDLE_WITH_CUSTOM_DEVICE", "-DPADDLE_WITH_CUSTOM_KERNEL"),
        *("-isystem", str(paddle / "include")),
        *("-isystem", str(paddle / "include" / "third_party")),
        *map(str, SOURCES),
        *("-o", str(library)),
        *(str(libraries / f"lib{name}.so") for name in ("phi", "phi_core", "common")),
        f"-Wl,-rpath,{libraries}",
    ]
    subprocess.run(command, check=True)


def arrange(arguments):
    """Set the environment for Paddle's import, where a device is asked for."""
    asked = [
        *(a.partition("=")[2] for a in arguments if a.startswith("--device=")),
        *(b for a, b in pairwise(arguments) if a == "--device"),
    ]
    device = asked[-1] if asked else os.environ.get(VARIABLE)
    if device is None:
        return
    if device != NAME:
        raise SystemExit(f"--device {device}: the tests know {NAME} alone")
    if reason := missing():
        raise SystemExit(f"--device {device}: {reason}")
    os.environ[VARIABLE] = device
    os.environ["CUSTOM_DEVICE_ROOT"] = str(folder())
    os.environ.setdefault("GLOG_minloglevel", "2")


arrange(sys.argv)

if __name__ == "__main__":
    print(folder())
