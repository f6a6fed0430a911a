"""The Julia on the PATH, for the tests that need one, and how to start it."""

import os
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import pytest

from paddle_chainrules import julia

REQUIRED = os.environ.get("JULIA", "") == "required"
TEST_PACKAGES = (
    "AbstractFFTs",
    "Aqua",
    "ChainRulesTestUtils",
    "ComponentArrays",
    "ExplicitImports",
    "FillArrays",
    "FFTW",
    "FiniteDifferences",
    "ForwardDiff",
    "LuxCore",
    "NNlib",
    "Optimisers",
    "SpecialFunctions",
    "Zygote",
)
OPTIONAL_PACKAGES = (
    "DifferentiationInterface",
    "EnzymeCore",
    "FiniteDiff",
    "Flux",
    "JLArrays",
    "JLD2",
    "Lux",
    "Mooncake",
    "MPI",
    "Optimization",
    "OptimizationOptimJL",
    "OptimizationOptimisers",
    "ReverseDiff",
    "Tracker",
)
"""What tests use where it is there, and else say that they are skipped."""

try:
    ENVIRONMENT = julia.environment(
        *TEST_PACKAGES, *(f"{name}?" for name in OPTIONAL_PACKAGES)
    )
    WHY = ""
except FileNotFoundError as error:
    ENVIRONMENT, WHY = None, str(error)

needs_julia = pytest.mark.skipif(
    ENVIRONMENT is None and not REQUIRED, reason=f"no Julia: {WHY}"
)


def lacks(*packages):
    """Which optional packages Julia's environment has not, or nothing."""
    assert ENVIRONMENT is not None, WHY
    project = (ENVIRONMENT.project / "Project.toml").read_text()
    missing = [name for name in sorted(packages) if f"\n{name} = " not in project]
    return f"{' and '.join(missing)} not in Julia's environment" if missing else ""


def environ(**more):
    """The environment variables for Julia, without stray settings."""
    assert ENVIRONMENT is not None, WHY
    variables = ENVIRONMENT.variables().items()
    kept = {k: v for k, v in variables if not k.startswith("PYTHON_JULIA")}
    kept.pop("JULIA_NUM_THREADS", None)
    return {**kept, **more}


@cache
def julia_version():
    """Its numbers, zeros where there is none."""
    if ENVIRONMENT is None:
        return 0, 0, 0
    said = subprocess.run(
        [ENVIRONMENT.julia, "--version"], capture_output=True, text=True, check=True
    ).stdout  # julia version 1.10.8
    return tuple(map(int, re.findall(r"\d+", said)[:3]))


@cache
def precompile():
    """Have the package, and what it adds to others, compiled once for every Julia.

    What a Julia of -O2 has compiled serves those of -O0 and -O1, which else compile it
    each for themselves, and for none of a higher level.
    """
    names = ", ".join(("PaddleChainRules", *TEST_PACKAGES))
    command = ENVIRONMENT.command("-e", f"import {names}")
    subprocess.run(command, env=environ(), capture_output=True, check=False)


@pytest.fixture
def by_juliacall():
    """Settings that make juliacall itself start the Julia at hand."""
    assert ENVIRONMENT is not None, WHY
    try:
        found = version("juliacall")
    except PackageNotFoundError:
        found = None
    if found != ENVIRONMENT.pythoncall:
        reason = f"juliacall is {found}, PythonCall is {ENVIRONMENT.pythoncall}"
        assert not REQUIRED, reason
        pytest.skip(reason)
    precompile()
    return {
        "PYTHON_JULIACALL_EXE": str(ENVIRONMENT.julia),
        "PYTHON_JULIACALL_PROJECT": str(ENVIRONMENT.project),
    }
