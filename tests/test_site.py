"""The documentation site builds without a warning, and the notebook runs."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import julia_reference
import nbformat
import pytest
import run_notebook

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Page(HTMLParser):
    """The addresses that a page links to, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.links |= {found[k] for k in ("href", "src") if found.get(k)}
        self.anchors |= {found[k] for k in ("id", "name") if found.get(k)}


def test_no_link_of_the_site_leads_nowhere(site):
    pages = {p: Page(p.read_text()) for p in site.rglob("*.html")}
    assert len(pages) > 60
    followed = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            if re.match(r"https?:|mailto:|data:|javascript:", link):
                continue
            file, _, anchor = link.partition("#")
            there = (path.parent / file).resolve() if file else path
            assert there.exists(), f"{path.relative_to(site)} links to {link}"
            if anchor and there in pages and not anchor.startswith("__codelineno"):
                assert anchor in pages[there].anchors, f"{path.name} links to {link}"
            followed += 1
    assert followed > 1000


def test_the_first_page_shows_each_reader_a_path(site):
    text = (site / "index.html").read_text()
    head = Page(text[text.index("<article") : text.index('id="install"')])
    pages = {"julia", "lux", "python", "training", "pde", "limits", "contributing"}
    assert {f"{page}.html" for page in pages} <= head.links


def test_the_references_hold_every_public_name(site):
    import paddle_chainrules

    python = Page((site / "reference" / "python.html").read_text()).anchors
    for name in paddle_chainrules.__all__:
        assert f"paddle_chainrules.{name}" in python
    julia = Page((site / "reference" / "julia.html").read_text()).anchors
    names = {*julia_reference.exported(), *julia_reference.public()}
    assert len(names) > 25
    assert {name.lower().rstrip("!") for name in names} <= julia


def test_the_notebook_shows_what_it_says(tmp_path):
    kept = nbformat.read(run_notebook.PATH, as_version=4)
    found = run_notebook.executed(tmp_path)
    nbformat.validate(found)
    for cell, now in zip(kept.cells, found.cells, strict=True):
        if cell.cell_type == "code":
            assert shown(now) == shown(cell)
    assert sum("image/png" in shown(cell) for cell in found.cells) == 1


def shown(cell):
    """What a cell prints, and the kinds of what it displays."""
    outputs = cell.get("outputs", [])
    printed = "".join(o.text for o in outputs if o.get("name") == "stdout")
    return [printed] + [kind for o in outputs for kind in sorted(o.get("data", {}))]
