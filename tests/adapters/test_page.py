"""The examples of docs/libraries.md print what they say, where the libraries are."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import loops_on
from paddle_chainrules.settings import programs_are_on

PAGE = Path(__file__).resolve().parents[2] / "docs" / "libraries.md"
EXAMPLES = re.findall(
    r"```python\n(.*?)```\n\n```text\n(.*?)\n```", PAGE.read_text(), re.DOTALL
)
SECOND_ORDER = re.findall(
    r"```python\n(.*?)```",
    PAGE.read_text().partition("## Train by second-order methods")[2],
    re.DOTALL,
)[:2]
LOSSES = (
    "print(float(np.sum(model.train_state.loss_train)))",
    "print(float(solver.optimizer.loss.total()))",
)


@loops_on
@pytest.mark.parametrize(
    ("library", "example"),
    [*zip(("deepxde", "ppsci"), EXAMPLES, strict=True)],
    ids=("DeepXDE", "PaddleScience"),
)
def test_the_examples(tmp_path, library, example):
    code, expected = example
    assert f"import {library}" in code
    assert last_line(tmp_path, library, code) == expected


@pytest.mark.parametrize(
    ("library", "example", "second", "loss"),
    [*zip(("deepxde", "ppsci"), EXAMPLES, SECOND_ORDER, LOSSES, strict=True)],
    ids=("DeepXDE", "PaddleScience"),
)
def test_second_order_methods_after_the_examples(
    tmp_path, library, example, second, loss
):
    if not programs_are_on():
        pytest.skip("second-order methods need programs")
    code = "\n".join((FLOAT64[library], example[0], second, loss))
    assert float(last_line(tmp_path, library, code)) < 1e-4


FLOAT64 = {
    "deepxde": "import os; os.environ['DDE_BACKEND'] = 'paddle'\n"
    "import deepxde; deepxde.config.set_default_float('float64')",
    "ppsci": "import paddle; paddle.set_default_dtype('float64')",
}


def last_line(folder, library, code):
    """Run a script, and return what it has printed last."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.splitlines()[-1]
