"""Pages of the source files that others link to, so that no link leaves the site."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
LANGUAGES = {
    ".cpp": "cpp",
    ".f90": "fortran",
    ".jl": "julia",
    ".json": "json",
    ".py": "python",
    ".toml": "toml",
}


def target(page: str, link: str) -> PurePosixPath:
    """The file that a link of a page means, both relative to the repository."""
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / link).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def page_of(path: PurePosixPath) -> str:
    """Where the site shows a source file, relative to ``docs``."""
    return f"source/{path}.md"


def shown(path: PurePosixPath) -> str:
    """A source file, or the names in a folder, in Markdown."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(p.name for p in file.iterdir() if not p.name.startswith("_"))
        lines = [f"- `{name}`" for name in names]
        return "\n".join([f"# {path.name}", "", f"The folder `{path}`:", "", *lines])
    text = file.read_text().rstrip("\n")
    fence = "`" * (max(map(len, re.findall("`+", text)), default=2) + 3)
    language = LANGUAGES.get(file.suffix, "text")
    return f"# {path.name}\n\n`{path}`\n\n{fence}{language}\n{text}\n{fence}\n"


def linked(page: str, text: str) -> set[PurePosixPath]:
    """The files outside ``docs`` that a page links to, where they are there."""
    found = {target(page, link) for link, _ in LINK.findall(text)}
    return {
        path
        for path in found
        if path.parts[0] != "docs" and not is_page(path) and (ROOT / path).exists()
    }


def is_page(path: PurePosixPath) -> bool:
    """Whether the site has a page of its own for a file outside ``docs``."""
    return str(path) in PAGES


PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "licence.md",
    "SECURITY.md": "security.md",
    "julia/README.md": "reference/julia.md",
}
"""Files outside ``docs`` that are pages of the site; Julia's is the reference."""
