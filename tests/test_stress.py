"""A short form of the stress programs, which `make stress` runs for minutes."""

import importlib.util
import sys
from pathlib import Path

import pytest

from julia_at_hand import by_juliacall as by_juliacall
from julia_at_hand import needs_julia

PATH = Path(__file__).parent / "stress" / "run.py"
spec = importlib.util.spec_from_file_location("stress_run", PATH)
stress = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = stress
spec.loader.exec_module(stress)


CALLS = [2_000, 12_000]


@needs_julia
@pytest.mark.slow
@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("run", stress.RUNS[1:2], ids=lambda run: run.name)
def test_random_calls_from_julia_neither_crash_nor_err(run, calls):
    outcome = stress.perform(run, calls, kinds="few", limit=300)
    assert not outcome.crash, outcome.crash
    assert (outcome.calls >= calls, outcome.wrong) == (True, 0)
    assert outcome.error > 0


# Calls of both languages beside one another in make test, all others in make slow.
@needs_julia
@pytest.mark.thinned(4)
@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("run", stress.RUNS[:-3:-1], ids=lambda run: run.name)
def test_random_calls_from_python_neither_crash_nor_err(run, calls, by_juliacall):
    outcome = stress.perform(run, calls, limit=300)
    assert not outcome.crash, outcome.crash
    assert (outcome.calls >= calls - 10, outcome.wrong) == (True, 0)
    assert outcome.error > 0


def test_a_crash_and_an_endless_loop_are_told(monkeypatch, tmp_path):
    for code, limit in (("import os; os.abort()", 60), ("while True: pass", 1)):
        monkeypatch.setattr(
            stress.Run, "command", lambda *args, code=code: [sys.executable, "-c", code]
        )
        monkeypatch.setattr(stress.Run, "variables", lambda self: {})
        outcome = stress.perform(stress.RUNS[0], 10, limit=limit)
        assert "status -" in outcome.crash
        assert not outcome.ok
