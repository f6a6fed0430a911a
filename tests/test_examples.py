"""The differential equations of the examples, which assert their own results."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SCRIPTS = ("burgers_1d.py", "euler_beam.py", "poisson_2d.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_example(script):
    done = subprocess.run(
        [sys.executable, EXAMPLES / script],
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    assert "error" in done.stdout
