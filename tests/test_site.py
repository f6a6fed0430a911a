"""The documentation site builds without a warning, and the notebook runs."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import julia_reference
import nbformat
import pytest
import run_notebook
from PIL import Image

import browser

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "https://example.org/docs/"
KINDS = ("tutorials", "how-to-guides", "reference", "explanation")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "SITE_URL": ADDRESS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Page(HTMLParser):
    """The addresses that a page links to, its anchors, pictures and metadata."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.images, self.meta, self.loaded = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "img":
            self.images.append(found)
        if tag == "meta" and "content" in found:
            self.meta[found.get("property") or found.get("name")] = found["content"]
        if tag == "script" and "src" in found:
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(found["href"])
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


def article(path):
    """Return the HTML of a page without header, navigation and footer."""
    return path.read_text().partition("<article")[2].partition("</article>")[0]


def of_readers(site):
    """List the pages of the site without the source files."""
    found = sorted(site.rglob("*.html"))
    return [p for p in found if "source" not in p.relative_to(site).parts]


def test_the_first_page_shows_what_it_is_before_where_to_go(site):
    text = article(site / "index.html")
    order = ["<h1", *('src="front-times.svg', 'id="install', 'id="from-python')]
    order += [*('id="from-julia', *(f'id="{kind}"' for kind in KINDS))]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    before = Page(text[: places[order.index('id="install')]]).links
    assert len({link for link in before if link.endswith(".html")}) <= 3


def test_the_first_page_leads_to_every_page(site):
    links = Page(article(site / "index.html")).links
    found = {str(p.relative_to(site)) for p in of_readers(site)}
    assert len(found) > 30
    assert found - links <= {"404.html", "index.html"}


def test_the_navigation_has_the_kinds_of_pages_that_readers_look_for(site):
    text = (site / "index.html").read_text()
    sections = re.findall(
        r'class="md-nav__link" for="__nav_\d+".*?</label>', text, re.S
    )
    names = [
        " ".join(re.sub("<.*?>", " ", section + ">").split()) for section in sections
    ]
    for kind in KINDS:
        assert kind in "\n".join(names).lower().replace(" ", "-")


def test_examples_of_the_first_page_fit_a_column_and_a_phone():
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```(?:python|julia|text)\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    for line in "".join(blocks).splitlines():
        assert len(line) <= 48, line


def test_code_fits_the_column_of_a_desktop():
    """Allow 106 characters, which need no scroll to the side; output wraps."""
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
    ]
    texts = {path.name: path.read_text() for path in pages}
    texts["reference/julia.md"] = julia_reference.page()
    seen = 0
    for name, text in texts.items():
        for language, code in re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M):
            if language not in ("text", "mermaid", ""):
                seen += 1
                assert max(map(len, code.splitlines())) <= 106, (name, code)
    assert seen > 100


def test_the_search_index_has_pages_and_no_source_files(site):
    made = (site / "search" / "search_index.js").read_text()
    index = json.loads(made.removeprefix("var __index = "))
    there = {entry["location"].partition("#")[0] for entry in index["docs"]}
    found = {str(p.relative_to(site)) for p in of_readers(site)}
    assert found - there <= {"404.html"}
    assert not {entry for entry in there if entry.startswith("source/")}
    by_name = [e for e in index["docs"] if "PaddleModuleWrapper" in e["title"]]
    assert by_name[0]["location"].startswith("reference/julia.html#")


def test_no_page_loads_what_is_not_of_the_site(site):
    """Use our own script for search from files: the theme loads one from elsewhere."""
    for path in of_readers(site):
        loaded = Page(path.read_text()).loaded
        own = [urlsplit(link).netloc in ("", "example.org") for link in loaded]
        assert len(own) > 4
        assert all(own), loaded
        assert any("iframe-worker.js" in link for link in loaded)


REFERENCE = r"(^|/)reference/julia.html\?h=paddlemodulewrapper"


@browser.needs_chromium
def test_the_search_box_finds_a_name(site):
    links = browser.found(site, "PaddleModuleWrapper")
    assert any(re.search(REFERENCE, link) for link in links), links


@browser.needs_chromium
def test_the_search_box_finds_a_name_where_pages_are_read_from_files(site):
    text = browser.dumped(f"{(site / 'index.html').as_uri()}?q=PaddleModuleWrapper")
    results = text.partition("md-search-result__list")[2]
    links = re.findall(r'href="([^"]*)" class="md-search-result__link"', results)
    assert any(re.search(REFERENCE, link) for link in links), links


@pytest.mark.slow
@browser.needs_chromium
@pytest.mark.parametrize("width", [390, 1366])
def test_no_page_is_wider_than_its_window(site, width):
    pages = [str(p.relative_to(site)) for p in of_readers(site) if p.name != "404.html"]
    found = browser.measured(site, pages, width)
    assert set(found) == set(pages)
    for page, seen in found.items():
        assert seen["width"] <= width, page
        assert not seen["broken"], page
        assert not seen["cut"], page


def test_who_follows_an_old_link_is_helped(site):
    page = Page((site / "404.html").read_text())
    inside = Page(article(site / "404.html")).links
    assert {f"/docs/{p}" for p in ("index.html", "reference/python.html")} <= inside
    for link in page.links:
        if link.startswith("/"):  # its address is of any depth
            assert (site / link.removeprefix("/docs/").partition("#")[0]).exists(), link
        else:
            assert re.match(r"https?:|#|data:", link), link


def test_a_link_to_a_page_shows_a_card(site):
    with Image.open(site / "card.png") as card:
        assert card.size == (1200, 630)
    for path in of_readers(site):
        meta = Page(path.read_text()).meta
        assert meta["og:image"] == f"{ADDRESS}card.png"
        assert meta["og:title"]
        assert len(meta["og:description"]) > 30
    titles = [Page(p.read_text()).meta["og:title"] for p in of_readers(site)]
    assert len(set(titles)) > 0.9 * len(titles)
    assert (
        Page((site / "index.html").read_text()).meta["og:title"] == "PaddleChainRules"
    )


def test_every_page_has_the_icon(site):
    for path in of_readers(site):
        icons = [x for x in Page(path.read_text()).loaded if x.endswith("logo.svg")]
        assert icons, path.name
    drawn = ElementTree.parse(site / "logo.svg").getroot()
    assert not [part for part in drawn.iter() if part.tag.endswith("}text")]


def test_pictures_are_described_and_readable_in_the_dark(site):
    seen = set()
    for path in of_readers(site):
        for image in Page(article(path)).images:
            told = image.get("alt", "")
            assert len(told) > 9, (path.name, image["src"][:80])
            assert "No description" not in told, path.name  # the notebook's default
            if not image["src"].startswith("data:"):
                seen.add((path.parent / image["src"]).resolve())
    assert len(seen) > 20
    css = (ROOT / "docs" / "site.css").read_text()
    assert re.search(r"\.md-typeset img \{[^}]*background: white", css)
    for picture in seen:
        if picture.suffix == ".svg":
            drawn = picture.read_text()
            assert "prefers-color-scheme: dark" in drawn
            assert "<title>" in drawn


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
