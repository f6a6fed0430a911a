"""What a page names in backticks: files, and what is to be found in each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

FOLDERS = (ROOT, ROOT / "src" / "paddle_chainrules", ROOT / "julia" / "src")
"""Where paths begin; a file alone stands beside what was named before it."""


def named(text: str) -> Iterator[tuple[str, list[Path], list[str]]]:
    """Each file or folder in turn: its name, where it is, and the names that follow.

    What is no file, folder or name of code (``jit=True``) is left out, and so are names
    before the first file.
    """
    files: list[tuple[str, list[Path], list[str]]] = []
    beside: list[Path] = []
    for word in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w./]+(\.py|\.jl|/)", word):
            there = [f / word for f in (*FOLDERS, *beside) if (f / word).exists()]
            beside = [path if path.is_dir() else path.parent for path in there]
            files.append((word, there, []))
        elif files and re.fullmatch(r"[^\W\d][\w.]*!?", word):
            files[-1][2].append(word)
    yield from files


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Functions, classes and names of a module, those of a class as ``Class.name``."""
    text = path.read_text()
    return frozenset(_of_julia(text) if path.suffix == ".jl" else _of_python(text))


def _of_python(text: str) -> Iterator[str]:
    def within(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{prefix}{node.name}.")
            if isinstance(node, ast.AnnAssign):
                yield prefix + ast.unparse(node.target)
            if isinstance(node, ast.Assign):
                yield from (prefix + ast.unparse(target) for target in node.targets)

    yield from within(ast.parse(text).body, "")


DEFINITION = re.compile(
    r"(?m)^(?:@\w+ )?(?:(?:function|macro|(?:mutable )?struct|abstract type|const) "
    r"(?:\w+\.)*([^\W\d]\w*!?)|(?:\w+\.)*([^\W\d]\w*!?)[({])"
)
"""At the beginning of a line, where Julia's style has no calls but ``include``."""


def _of_julia(text: str) -> Iterator[str]:
    code = re.sub(r'"""(?s:.*?)"""', "", text)  # whose examples define names, too
    for match in DEFINITION.finditer(code):
        yield match[1] or match[2]
