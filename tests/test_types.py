"""Types of public functions: `make lint` checks the file, and it is true when run."""

import runpy
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parent / "typed" / "public_functions.py"


def check(path):
    command = [sys.executable, "-m", "mypy", str(path)]
    cwd = FILE.parents[2]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_editors_show_what_comes_out(tmp_path):
    runpy.run_path(str(FILE))
    text = FILE.read_text()
    before, after = "assert_type(grad(loss)(w, x), Weights)", "grad(loss)(w, x) + 1"
    assert before in text
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace(before, after))
    assert check(FILE).returncode == 0, check(FILE).stdout
    assert 'Unsupported operand types for + ("dict[str, Tensor]"' in check(wrong).stdout
