"""The programs of docs/c-and-fortran.md are compiled, and print what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from julia_at_hand import ENVIRONMENT, environ, needs_julia

pytest.importorskip("llvmlite.binding", reason="machine code is llvmlite's")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "c-and-fortran.md"
ENDINGS = {"c": ".c", "fortran": ".f90", "cpp": ".cpp"}
PROGRAM = re.compile(
    r"```(c|fortran|cpp)\n(.*?)```\n\n```sh\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL
)
PROGRAMS = PROGRAM.findall(PAGE.read_text())


@pytest.fixture(scope="module")
def heat(tmp_path_factory):
    """The folder with the library that the page's first block writes."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("libraries are linked on Linux by a C compiler")
    folder = tmp_path_factory.mktemp("heat")
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=folder, check=True)
    return folder


def test_the_page_has_a_program_of_each_language():
    assert [language for language, *_ in PROGRAMS] == [*ENDINGS]


@pytest.mark.parametrize(
    ("language", "code", "command", "expected"), PROGRAMS, ids=[p[0] for p in PROGRAMS]
)
def test_programs_of_the_page(heat, language, code, command, expected):
    compiler = command.split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    (heat / f"main{ENDINGS[language]}").write_text(code)
    strict = command.replace(compiler, f"{compiler} -Wall -Wextra -Werror", 1)
    done = subprocess.run(
        ["sh", "-c", strict],
        cwd=heat,
        env={k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == expected


@needs_julia
def test_the_julia_program_of_the_page(heat):
    pattern = r"```jl\n(.*?)```\n\n```text\n(.*?)```"
    ((code, expected),) = re.findall(pattern, PAGE.read_text(), re.DOTALL)
    (heat / "main.jl").write_text(code)
    done = subprocess.run(
        ENVIRONMENT.command(heat / "main.jl"),
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == expected
