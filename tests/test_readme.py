"""The README's examples print what it says, and its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_julia import ENVIRONMENT, environ, needs_julia

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def example(language):
    """The code block of a language, and the text block after it."""
    pattern = rf"```{language}\n(.*?)```\n\n```text\n(.*?)```"
    (found,) = re.findall(pattern, README, re.DOTALL)
    return found


def output(command, **kwargs):
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, **kwargs
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_example(tmp_path):
    code, expected = example("python")
    command = [sys.executable, "-W", "ignore", "-c", code]
    assert output(command, cwd=tmp_path) == expected


@needs_julia
def test_the_julia_example(tmp_path):
    code, expected = example("julia")
    command = ENVIRONMENT.command("-e", code)
    assert output(command, cwd=tmp_path, env=environ()) == expected


@pytest.mark.parametrize("page", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text())
    for link in links:
        assert (page.parent / link).exists(), link
