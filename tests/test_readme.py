"""The examples of README and docs print what they say, and links lead somewhere."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from julia_at_hand import OPTIONAL_PACKAGES, lacks, needs_julia
from julia_lane import own_julia as own_julia
from paddle_chainrules.settings import loops_are_on, wanted_blas

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in (ROOT / "docs").glob("*.md")),
    ROOT / "CONTRIBUTING.md",
]
ELSEWHERE = ("CONTRIBUTING.md", "libraries.md")  # see tests/adapters/test_page.py
WITH_EXAMPLES = [p for p in PAGES if p.name not in ELSEWHERE]
IN_ONE_SESSION = ("first-net-python.md", "first-net-julia.md")
"""Pages whose blocks go on with what those before have made."""


def examples(language):
    """The code blocks of a language, each with the text block after it."""
    pattern = rf"```{language}\n(.*?)```\n\n```text\n(.*?)```"
    every = []
    for page in WITH_EXAMPLES:
        text = page.read_text()
        found = re.findall(pattern, text, re.DOTALL)
        assert len(found) == text.count(f"```{language}\n"), page
        if found and page.name in IN_ONE_SESSION:
            found = [tuple(map("".join, zip(*found, strict=True)))]
        every += [
            pytest.param(*block, id=f"{page.stem}-{i}") for i, block in enumerate(found)
        ]
    assert len(every) > 1
    return every


PYTHON, JULIA = examples("python"), examples("julia")


def libraries(code):
    """Those it imports that may be missing."""
    return {"torch", "jax"} & {*re.findall(r"^import (\w+)", code, re.MULTILINE)}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each block of Python prints that can run here, in one process for all."""
    blocks = [param.values[0] for param in PYTHON]
    able = [code for code in blocks if all(map(find_spec, libraries(code)))]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).with_name("blocks.py")],
        input=json.dumps(able),
        cwd=tmp_path_factory.mktemp("blocks"),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(able, json.loads(done.stdout), strict=True))


def skip_without_machine_code(expected):
    is_off = not loops_are_on() or wanted_blas() == "off"
    if "machine code" in expected and is_off:
        pytest.skip("there is no machine code to look at")


@pytest.mark.parametrize(("code", "expected"), PYTHON)
def test_the_python_examples(printed, code, expected):
    for library in libraries(code):
        pytest.importorskip(library, reason=f"{library} is not installed")
    skip_without_machine_code(expected)
    output, error = printed[code]
    assert not error
    assert output == expected


@needs_julia
@pytest.mark.parametrize(("code", "expected"), JULIA)
def test_the_julia_examples(tmp_path, own_julia, code, expected):
    used = re.findall(r"^using (.*)$", code, re.MULTILINE)
    if lacking := lacks(*{*OPTIONAL_PACKAGES} & {*re.findall(r"\w+", " ".join(used))}):
        pytest.skip(lacking)
    skip_without_machine_code(expected)
    block = tmp_path / "block.jl"
    block.write_text(code)
    assert own_julia.printed(block) == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())
    for link in links:
        assert (page.parent / link).exists(), link


def test_the_tests_that_the_features_name_are_there():
    text = (ROOT / "docs" / "reliability.md").read_text()
    rows = [line for line in text.splitlines() if re.search(r"/tests/|/julia/t", line)]
    named = 0
    for file, names in re.findall(
        r"\]\(\.\./((?:tests|julia/test)/[^)]+)\): ((?:`[^`]+`(?:, )?)+)",
        "\n".join(rows),
    ):
        text = (ROOT / file).read_text()
        for name in re.findall(r"`([^`]+)`", names):
            named += 1
            found = f"def {name}(" if file.endswith(".py") else f'@testset "{name}"'
            assert found in text, f"{name} in {file}"
    assert named > 30


def test_the_table_of_cotangents_is_that_of_the_tests():
    tests = (ROOT / "julia/test/rules/cotangents.jl").read_text()
    tried = set(re.findall(r'^    \("([^"]+)",', tests, re.MULTILINE))
    text = (ROOT / "docs/reliability.md").read_text()
    table = text[text.index("## Cotangents") : text.index("## Inputs")]
    rows = {line.split(" | ")[0].removeprefix("| ") for line in table.split("\n")}
    assert len(tried) > 15
    assert tried <= rows


def test_no_figure_is_stale():
    """What is marked as a figure is what the results of the benchmarks say."""
    command = [sys.executable, "-W", "ignore", ROOT / "benchmarks" / "figures.py"]
    done = subprocess.run(
        [*command, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES:  # a line that begins with a comment ends a paragraph
        begun = re.findall(r"^<!-- figure [\w.]+ -->.", page.read_text(), re.MULTILINE)
        assert not begun, page
    marked = [page.read_text().count("<!-- figure ") for page in PAGES]
    assert marked[0] >= 5
    assert sum(marked) > 25


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
