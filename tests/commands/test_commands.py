"""``python -m paddle_chainrules``, run as users run it."""

import itertools
import json
import os
import re
import subprocess
import sys

import pytest

from julia_at_hand import needs_julia
from paddle_chainrules.__main__ import main
from paddle_chainrules.commands.bench import table, three_digits
from paddle_chainrules.commands.doctor import products
from paddle_chainrules.testing import progress as progress_module
from paddle_chainrules.testing.timings import interleave, scatter

MODEL = """
import paddle
from paddle import nn

def net():
    return nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 2))

def words():
    return nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 3))

def two():
    return nn.Bilinear(3, 5, 2), paddle.ones([4, 3]), paddle.ones([4, 5])

class Branching(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        return self.inner(x) if float(x.sum()) > 0 else -self.inner(x)

def needs(width):
    return nn.Linear(3, width)

number = 7
"""


@pytest.fixture
def here(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def call(folder, *args, **environ):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "paddle_chainrules", *args],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_explain_says_what_runs_as_a_program(here):
    done = call(here, "explain", "model.py:net", "--input", "5x3", "--program")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Its forward pass as a program: 3 operators", done.stdout)
    assert re.search(r"^  linear +2$", done.stdout, re.MULTILINE)
    assert re.search(r"float32\[5, 2\] = linear\(", done.stdout)
    assert "5x3" not in done.stdout


def test_explain_names_the_line_that_stands_in_the_way(here):
    done = call(here, "explain", "model:Branching", "--input", "5x3")
    assert done.returncode == 1
    line = MODEL[: MODEL.index("float(x.sum())")].count("\n") + 1
    assert f"model.py:{line}: " in done.stdout
    assert "not all of its layers are Paddle's own" in done.stdout


def test_bench_compares_and_writes_its_figures(here):
    args = ("--input", "6x3", "--rounds", "2", "--json", "found.json")
    args += ("--picture", "p.png")
    done = call(here, "bench", "model.py:net", *args)
    assert done.returncode == 0, done.stderr
    assert not re.findall(r"^[IWE]\d{4} .*", done.stderr, re.MULTILINE)  # Paddle's log
    found = json.loads((here / "found.json").read_text())
    assert [*found["us"]] == ["forward", "forward and gradients"]
    for sides in found["us"].values():
        assert len(sides) + len(found["missing"]) == 4
        for us in sides.values():
            assert 0 < us["min"] <= us["median"]
            assert us["min"] <= us["mean"] * (1 + 1e-9)
    assert found["error"] < 1e-6
    assert (here / "p.png").read_bytes().startswith(b"\x89PNG")
    ratio = re.search(r"forward +native Paddle +\S+ +\S+ +(\S+)", done.stdout)
    assert ratio.group(1) == "1.00"


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["--help"], 0, "examples:"),
        ([], 0, "examples:"),
        (["bench", "--help"], 0, "--rounds"),
        (["bench"], 2, "required: layer"),
        (["explain", "model:net", "--nonsense"], 2, "unrecognized arguments"),
        (["nonsense"], 2, "invalid choice"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_help_and_slips_do_not_wait_for_paddle(here, args, status, says):
    (here / "paddle.py").write_text("raise AssertionError('Paddle is imported')")
    done = call(here, *args, PYTHONPATH=f"{here}:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == status
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_another_module_that_is_run_imports_paddle_in_time(here):
    (here / "tool").mkdir()
    (here / "tool" / "__init__.py").write_text("import paddle_chainrules\n")
    text = "import sys\nprint('paddle' in sys.modules)\n"
    (here / "tool" / "__main__.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tool"],
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0123456, "0.0123"),
        (1, "1.00"),
        (0.99996, "1.000"),
        (12.34, "12.3"),
        (1234.5, "1234"),
        (0.000123, "0.000123"),
        (0, "0.00"),
    ],
)
def test_ratios_have_three_digits(ratio, text):
    assert three_digits(ratio) == text


def test_a_busy_machine_is_told_of():
    def result(median):
        us = {"native Paddle": {"min": 2.0, "median": median, "mean": median}}
        return {"us": {"forward": us}, "missing": {}, "error": 1e-7}

    assert "scatter" not in table(result(2.5))
    assert "a median is 4.0 times the minimum" in table(result(8.0))


def test_sides_take_turns_in_both_orders_and_one_lucky_turn_does_not_count():
    turns = []
    seconds = {"a": iter([9, 5, 1, 4, 7, 6]), "b": iter([9, 2, 2, 2, 2, 2])}

    def side(name):
        def timed(calls):
            turns.append(name)
            return next(seconds[name]) * calls

        return timed

    found = interleave({"a": side("a"), "b": side("b")}, 5, 10)
    assert "".join(turns) == "ab" + "abbaabbaab"
    assert found["a"] == {"min": 4e6, "median": 5e6, "mean": 4.6e6}
    assert found["b"] == {"min": 2e6, "median": 2e6, "mean": 2e6}
    assert scatter(found.values()) == 1.25


def test_progress_is_lines_where_nobody_looks(capfd, monkeypatch):
    clock = itertools.count(0, 25)
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: float(next(clock)))
    assert [*progress_module.progress(range(6), 6, "nets")] == [*range(6)]
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["nets: 3 of 6 after 75 s", "nets: 6 of 6 after 150 s"]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "args",
    [("model:words", "--input", "5x2:int64:11"), ("model:two",)],
    ids=["integers", "inputs of the factory"],
)
def test_bench_takes_inputs_of_other_kinds(here, args):
    done = call(here, "bench", *args, "--rounds", "1", "--train")
    assert done.returncode == 0, done.stderr
    assert "stateless(layer, jit=True)" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("model.py", "--input", "5x3"), "a layer is named as module:factory"),
        (("nowhere:net", "--input", "5x3"), "No module named 'nowhere'"),
        (("model.py:net", "--input", "5x4"), "itself refuses inputs of shape [5, 4]"),
        (("nowhere.py:net", "--input", "5x3"), "there is no file nowhere.py"),
        (("model:absent", "--input", "5x3"), "no attribute 'absent'"),
        (("model:needs", "--input", "5x3"), "missing 1 required positional"),
        (("model:number", "--input", "5x3"), "takes no arguments"),
        (("model:net",), "here neither"),
        (("model:two", "--input", "5x3"), "here both"),
        (("model:net", "--input", "5,3"), "an input is like 64x3"),
        (("model:net", "--input", "5x3:int64"), "an input is like 64x3"),
        (("model:net", "--input", "5x3:floaty"), "an input is like 64x3"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_slip_on_the_command_line_gets_a_sentence(
    here, monkeypatch, capsys, args, says
):
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "model", raising=False)
    with pytest.raises(SystemExit) as exit:
        main(["explain", *args])
    assert exit.value.code == 2
    assert says in capsys.readouterr().err


def test_doctor_says_what_python_has(here):
    done = call(here, "doctor", PATH="", PADDLE_CHAINRULES_PROGRAMS="off")
    assert done.returncode == 0, done.stderr
    lines = dict(line[7:].split(": ", 1) for line in done.stdout.splitlines())
    marks = {line[:5].strip() for line in done.stdout.splitlines()}
    assert marks == {"ok", "note"}
    assert lines["Programs"].startswith("off, by PADDLE_CHAINRULES_PROGRAMS; unset ")
    assert lines["Julia"] == (
        "not used; no julia on the PATH; install Julia 1.10 or newer from julialang.org"
    )
    assert lines["Python"].endswith(sys.executable)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("loops", "told"),
    [
        ("on", r"on, with loops by llvmlite [\d.]+, kept in code$"),
        ("off", "on, without loops of machine"),
    ],
)
def test_doctor_says_how_programs_run(here, loops, told):
    variables = {"PADDLE_CHAINRULES_LOOPS": loops, "PADDLE_CHAINRULES_CODE": "code"}
    done = call(here, "doctor", PATH="", **variables)
    lines = dict(line[7:].split(": ", 1) for line in done.stdout.splitlines())
    assert re.match(told, lines["Programs"])


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("blas", "told"),
    [
        ("on", r"float32 by \w+ \(.*\), float64 by \w+ \(.*\)"),
        ("off", "none, they are Paddle's operators; unset PADDLE_CHAINRULES_BLAS"),
        ("openblas", r"float32 by openblas \(by PADDLE_CHAINRULES_BLAS\), float64 by"),
    ],
)
def test_doctor_says_what_multiplies(here, blas, told):
    environ = {"PADDLE_CHAINRULES_BLAS": blas, "PADDLE_CHAINRULES_LOOPS": "on"}
    environ["PADDLE_CHAINRULES_PROGRAMS"] = "on"
    done = call(here, "doctor", PATH="", **environ)
    lines = dict(line[7:].split(": ", 1) for line in done.stdout.splitlines())
    assert re.match(told, lines["Products in machine code"])


def test_doctor_knows_the_processors_that_mkl_does_not():
    amd = "vendor_id : AuthenticAMD\nflags : sse avx avx2 fma\n"
    assert products(amd, None).mark == "note"
    assert "MKL_DEBUG_CPU_TYPE=5" in products(amd, None).remedy
    assert products(amd, "5").mark == "ok"
    assert products(amd.replace("AuthenticAMD", "GenuineIntel"), None) is None


@needs_julia
def test_doctor_starts_each_language_from_the_other(here):
    done = call(here, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Julia starts Python, A net: tensors cross by DLPack's ex" in done.stdout
    assert re.search(r"Python starts Julia(, A net: |: juliacall is m)", done.stdout)


@needs_julia
def test_doctor_finds_a_juliacall_of_another_version(here):
    (here / "juliacall-0.0.1.dist-info").mkdir()
    (here / "juliacall-0.0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: juliacall\nVersion: 0.0.1\n"
    )
    done = call(here, "doctor", PYTHONPATH=str(here))
    assert done.returncode == 1
    fault = [line for line in done.stdout.splitlines() if line.startswith("FAULT")]
    assert len(fault) == 1
    assert re.search(r"juliacall 0\.0\.1, .*; pip install juliacall==", fault[0])
