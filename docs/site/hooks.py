"""What MkDocs does beside: pages from outside ``docs``, and links to source files.

The first page is the README.
"""

from __future__ import annotations

import json
import os.path
import re
import sys
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent))

import julia_reference
import sources

ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):<code>([^<]*)</code>")
FROM = {page: file for file, page in sources.PAGES.items()}
JULIA = "reference/julia.md"
WIDE = {"hide": ["toc"]}
"""The metadata of the home page, which has two columns of code."""
UNSEARCHED = {"search": {"exclude": True}}
"""The metadata of source files, whose hits would hide those of pages."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README and others, the Julia reference, and linked source files."""
    pages = {
        f"docs/{file.src_uri}": file.content_string
        for file in files.documentation_pages()
    }
    for name, page in sources.PAGES.items():
        text = (sources.ROOT / name).read_text()
        if page == JULIA:
            text = julia_reference.page()
        pages[name] = text
        if not text.startswith("#"):
            text = f"# {name.capitalize()}\n\n{text}"
        files.append(File.generated(config, page, content=text))
    made: dict[str, str] = {}
    for page, text in pages.items():
        for path in sources.linked(page, text):
            made[sources.page_of(path)] = sources.shown(path)
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links to files outside ``docs`` to their pages."""
    here = page.file.src_uri
    if here == "index.md":
        page.meta.update(WIDE)
    if here.startswith("source/"):
        page.meta.update(UNSEARCHED)
    if here.startswith(("source/", "reference/")):
        return markdown
    origin = FROM.get(here, f"docs/{here}")

    def turned(found: re.Match[str]) -> str:
        path = sources.target(origin, found.group(1))
        if path.parts[:1] == ("docs",):
            there = str(PurePosixPath(*path.parts[1:]))
        elif sources.is_page(path):
            there = sources.PAGES[str(path)]
        else:
            there = sources.page_of(path)
        relative = os.path.relpath(there, os.path.dirname(here) or ".")
        return f"]({relative}{found.group(2) or ''})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else sources.LINK.sub(turned, part)
        for part in parts
    )


def described(html: str, notebook: Path) -> str:
    """Give a notebook's pictures the descriptions in the metadata of their cells."""
    cells = json.loads(notebook.read_text())["cells"]
    told = iter(
        [cell["metadata"]["alt"] for cell in cells if "alt" in cell["metadata"]]
    )
    default = r'alt="No description has been provided for this image"'
    return re.sub(default, lambda _: f'alt="{escape(next(told))}"', html)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Show roles of docstrings as the names that they mean; turn a notebook's links."""
    if page.file.src_uri.endswith(".ipynb"):
        html = re.sub(r'href="([\w/-]+)\.md', r'href="\1.html', html)
        html = described(html, Path(page.file.abs_src_path or ""))
    return ROLE.sub(lambda m: f"<code>{m.group(1).lstrip('~.')}</code>", html)
