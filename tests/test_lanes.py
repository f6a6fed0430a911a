"""What runs where, and which tests are near to a change."""

import os
import subprocess
import sys
from itertools import chain

import pytest

import lanes
import minutes_left
import quick
from lanes import PARTS, parts, unit
from minutes_left import MinutesLeft


def test_every_slow_test_is_in_one_part_and_parts_are_alike(monkeypatch):
    times = {f"tests/test_a.py::test_{i}": float(i) for i in range(1, 40)}
    monkeypatch.setattr(lanes, "SECONDS", times)
    names = [*times, "tests/test_b.py::test_new"]
    found = parts(names)
    assert len(found) == PARTS
    assert sorted(chain(*found)) == sorted(names)
    sums = [sum(times.get(name, 1.0) for name in part) for part in found]
    assert max(sums) - min(sums) <= 39
    assert parts(names[::-1]) == found


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", range(7))
def test_of_cases_that_are_thinned_each_third_stays(request, case):
    assert (request.node.get_closest_marker("slow") is None) == (case % 3 == 0)


def test_slow_tests_are_named_with_their_time(request):
    plugins = request.config.pluginmanager.get_plugins()
    (summary,) = (p for p in plugins if type(p).__name__ == "RunSummary")
    names = {name for n in summary.left_out for name in (n, lanes.function_of(n))}
    told = {lanes.function_of(name) for name in names & {*lanes.SECONDS}}
    assert {*map(lanes.function_of, summary.left_out)} == told


def test_a_file_is_a_unit_but_for_what_takes_long(monkeypatch):
    long, many = "tests/test_a.py::test_long[1-x::y]", "tests/test_a.py::test_many"
    times = {long: 40.0, "tests/test_a.py": 2.0, many: 30.0}
    monkeypatch.setattr(lanes, "SECONDS", times)
    assert unit("tests/test_a.py::test_one") == "tests/test_a.py"
    assert unit(long) == long
    assert unit(f"{many}[3]") == many
    known = lanes.seconds_of({long, "tests/test_a.py", "tests/test_new.py"})
    assert known == {long: 40.0, "tests/test_a.py": 2.0, "tests/test_new.py": 0.0}
    assert unit("tests/test_stress.py::test_a") == unit(
        "tests/distributed/test_b.py::c"
    )


def near(*names):
    """Distances by test, where files changed."""
    found = quick.candidates([quick.ROOT / name for name in names])
    return {test: away for away, test in found}


def test_tests_are_as_near_as_their_imports():
    found = near("src/paddle_chainrules/nets/derivatives/columns.py")
    assert found["tests/nets/test_derivatives.py"] == 2  # by derivatives.py there
    assert "tests/test_lanes.py" not in found
    assert min(found.values()) == 2
    assert near("tests/test_lanes.py") == {"tests/test_lanes.py": 0}
    assert near("tests/quick.py")["tests/test_lanes.py"] == 1
    assert near("tests/layers.py")["tests/nets/test_arguments.py"] == 1
    assert not near("LICENSE")


def test_a_change_of_julia_chooses_its_folders_tests():
    found = near("julia/src/lowering/loops.jl", "julia/test/names.jl")
    names = {name.partition("[")[2].removesuffix("]") for name in found}
    assert {"lowering/embedding", "names"} <= names
    assert not {name for name in names if name.startswith("rules/")}
    assert near("julia/ext/PaddleChainRulesOptimisersExt.jl")


def test_the_nearest_fit_into_the_budget(monkeypatch):
    monkeypatch.setattr(lanes, "SECONDS", {"a": 30.0, "b": 50.0, "c": 10.0})
    fit, rest = quick.chosen([(0, "a"), (1, "b"), (2, "c")], 45.0)
    assert fit == ["a", "c"]
    assert rest == [(1, "b")]
    assert quick.chosen([(0, "b")], 45.0) == (["b"], [])  # what changed runs anyway


TIMES = {"a.py": 100.0, "a.py::long[1]": 300.0, "a.py::slow": 60.0}


def run_of_seven_minutes(monkeypatch, lines):
    monkeypatch.setattr(lanes, "SECONDS", TIMES)
    left = MinutesLeft(2, lines.append, is_terminal=False)
    names = ["a.py::long[1]", "a.py::slow[1]", "a.py::slow[2]", "b.py::new"]
    left.expect([*names, *(f"a.py::short[{k}]" for k in range(4))])
    return left


def test_a_test_has_its_own_seconds_or_its_share(monkeypatch):
    left = run_of_seven_minutes(monkeypatch, [])
    assert left.seconds["a.py::long[1]"] == 300
    assert left.seconds["a.py::slow[2]"] == 30
    assert left.seconds["a.py::short[3]"] == 25
    assert left.seconds["b.py::new"] == lanes.UNKNOWN
    assert sum(left.seconds.values()) == 460 + lanes.UNKNOWN


def test_some_cases_have_a_part_of_the_seconds_of_all(monkeypatch):
    monkeypatch.setattr(lanes, "CASES", {"a.py::slow": 30})
    left = run_of_seven_minutes(monkeypatch, [])
    assert left.seconds["a.py::slow[1]"] == 2
    assert left.seconds["a.py::short[3]"] == 25


def test_a_long_run_says_how_long_it_takes_and_what_is_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(minutes_left.time, "monotonic", lambda: now[0])
    lines = []
    left = run_of_seven_minutes(monkeypatch, lines)
    assert lines == ["8 tests, about 4 minutes in 2 processes, as they took before"]
    for name, seconds in (("a.py::slow[1]", 20), ("a.py::slow[2]", 41)):
        now[0] += seconds
        left.note(name, "passed")
    assert lines[1:] == ["1 min, 7 left: 2 passed"]  # at this run's pace
    now[0] += 300
    left.note("a.py::long[1]", "failed")
    assert lines[2:] == [
        "failed: a.py::long[1]",
        "6 min, 2 left: 2 passed, 1 failed",
    ]


def test_a_short_run_keeps_its_dots(monkeypatch):
    lines = []
    monkeypatch.setattr(lanes, "SECONDS", TIMES)
    left = MinutesLeft(2, lines.append, is_terminal=False)
    left.expect(["a.py::slow[1]"])
    assert not left.is_long
    assert not lines


WAYS_TO_END = """
import pytest

def test_passes(): pass
def test_fails(): raise AssertionError
def test_skips(): pytest.skip("why not")
@pytest.mark.xfail(strict=True)
def test_fails_as_known(): raise AssertionError
@pytest.fixture
def broken(): raise ValueError
def test_breaks(broken): pass
"""
LONG_RUN = """
import lanes, minutes_left
minutes_left.SECONDS_BETWEEN_LINES = 0
pytest_configure = minutes_left.register
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_each_way_to_end_is_counted_in_place_of_dots(tmp_path, processes):
    (tmp_path / "test_ways.py").write_text(WAYS_TO_END)
    (tmp_path / "conftest.py").write_text(LONG_RUN)
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "test_ways.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(lanes.HERE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = done.stdout.splitlines()
    assert "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in said[-1], done.stdout
    assert "failed: test_ways.py::test_fails" in said
    assert "error: test_ways.py::test_breaks" in said
    assert any("5 tests, about 0 minutes" in line for line in said)
    last = [line for line in said if " left: " in line][-1]
    kinds = dict(row.split()[::-1] for row in last.partition("left: ")[2].split(", "))
    assert {*kinds} == {"passed", "failed", "skipped", "xfailed", "error"}
    assert not any(set(line) <= set(".FsxE ") and line.strip() for line in said)
