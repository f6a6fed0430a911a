"""Types of public functions: `make lint` checks the file, and it is true when run."""

import runpy
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parent / "typed" / "public_functions.py"


def check(*paths):
    command = [sys.executable, "-m", "mypy", *map(str, paths)]
    cwd = FILE.parents[2]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_editors_show_what_comes_out(tmp_path):
    runpy.run_path(str(FILE))
    text = FILE.read_text()
    before, after = "assert_type(grad(loss)(w, x), Weights)", "grad(loss)(w, x) + 1"
    assert before in text
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace(before, after))
    *errors, found = check(FILE, wrong).stdout.splitlines()
    assert found.startswith("Found 1 error in 1 file (checked 2 source files)"), errors
    assert errors[0].partition(":")[0].endswith("wrong.py")
    assert 'Unsupported operand types for + ("dict[str, Tensor]"' in errors[0]
