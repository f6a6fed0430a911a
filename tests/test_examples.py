"""Examples, which assert their own results, with fewer steps than in make examples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from julia_at_hand import ENVIRONMENT, environ, needs_julia

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
QUICK = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "QUICK": "1"}
SCRIPTS = (
    *("many_steps.py", "euler_beam.py", "poisson_2d.py", "shared_encoder.py"),
    *(f"gallery/{n}.py" for n in ("maml", "ensemble", "neural_ode", "inverse", "flow")),
    *(f"gallery/{n}.py" for n in ("per_sample", "gan", "burgers")),
)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("script", SCRIPTS)
def test_example(script):
    done = subprocess.run(
        [sys.executable, EXAMPLES / script],
        env={**os.environ, **QUICK},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    assert done.stdout


@needs_julia
@pytest.mark.slow
def test_example_in_julia():
    done = subprocess.run(
        ENVIRONMENT.command(EXAMPLES / "attention.jl"),
        env=environ(**QUICK),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    assert "read rightly" in done.stdout
