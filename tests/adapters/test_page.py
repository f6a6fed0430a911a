"""The examples of docs/libraries.md print what they say, where the libraries are."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import loops_on

PAGE = Path(__file__).resolve().parents[2] / "docs" / "libraries.md"
EXAMPLES = re.findall(
    r"```python\n(.*?)```\n\n```text\n(.*?)\n```", PAGE.read_text(), re.DOTALL
)


@loops_on
@pytest.mark.parametrize(
    ("library", "example"),
    [*zip(("deepxde", "ppsci"), EXAMPLES, strict=True)],
    ids=("DeepXDE", "PaddleScience"),
)
def test_the_examples(tmp_path, library, example):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    code, expected = example
    assert f"import {library}" in code
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines()[-1] == expected
