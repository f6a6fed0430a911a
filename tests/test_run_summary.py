"""What a run says at its end, and the settings that stand for other machines."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import matrix
from julia_lane import Outcome
from run_summary import RunSummary


def test_the_summary_has_both_languages_and_skips_by_their_reason(request):
    summary = RunSummary(request.config)
    why = "Flux not here", "no such file"
    summary.julia = [Outcome(40, 1, (), "a"), Outcome(2, 0, why, "b")]
    report = SimpleNamespace(longrepr=("a.py", 1, "Skipped: no such file"))
    rows = [*summary.rows({"passed": [None] * 1234, "skipped": [report] * 2})]
    assert rows[:4] == [
        "Python    1,234 passed, 2 skipped",
        "Julia     42 passed, 1 broken, 2 skipped, in 2 files",
        "Skipped   3: no such file",
        "Skipped   1: Flux not here",
    ]
    assert rows[-1].startswith("Machine   ")
    assert f"Python {sys.version.split()[0]}" in rows[-1]


def test_a_required_julia_that_is_missing_ends_the_run_with_one_sentence(tmp_path):
    command = [sys.executable, "-m", "pytest", "--collect-only", __file__]
    environ = {**os.environ, "PATH": str(tmp_path), "JULIA": "required"}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    said = [row for row in done.stderr.splitlines() if "Julia" in row]
    assert len(said) == 1
    assert "JULIA=required, but Julia is not ready: no julia on the PATH" in said[0]
    assert not done.stdout.strip()


def test_cells_of_the_matrix_have_a_name_or_a_number():
    names, every = [*matrix.CELLS], matrix.NUMERIC
    assert matrix.cells([]) == [(name, every) for name in names]
    assert matrix.cells([names[2]]) == [(names[2], every)]
    with pytest.raises(SystemExit, match="no cell is called mkl-sse5; there are mkl-"):
        matrix.cells(["mkl-sse5"])


def test_numbers_in_turn_come_to_all_tests_of_all_cells():
    names, shares = [*matrix.CELLS], matrix.shares()
    numbers = range(1000, 1000 + len(names) * len(shares))
    found = [matrix.cells([str(number)])[0] for number in numbers]
    assert {(name, *files) for name, files in found} == {
        (name, *files) for name in names for files in shares
    }
    files = sorted(file for share in shares for file in share)
    assert len({*files}) == len(files) > 100
    for place in matrix.NUMERIC:
        assert any(file.startswith(place) for file in files)
