"""Look at the site in a browser, where there is one: chromium without a window."""

import json
import shutil
import subprocess
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")

HEAD = """<!doctype html><body><script type="module">
const frame = document.body.appendChild(document.createElement("iframe"))
const pause = ms => new Promise(done => setTimeout(done, ms))
const open = page => new Promise(done => { frame.onload = done; frame.src = page })
const tell = found => fetch("/told", { method: "POST", body: JSON.stringify(found) })
"""
MEASURE = """
const found = {}
for (const page of PAGES) {
  frame.style = `width: ${WIDTH}px; height: 800px; border: 0`
  await open(page)
  await pause(60)
  const root = frame.contentDocument
  const right = e => e.getBoundingClientRect().right
  const scrolls = e => getComputedStyle(e).overflowX === "auto" && right(e) <= WIDTH + 1
  const cut = t => {
    let e = t
    while (e.tagName !== "ARTICLE" && !scrolls(e)) e = e.parentElement
    return e.tagName === "ARTICLE" && right(t) > WIDTH + 1
  }
  found[page] = {
    width: root.documentElement.scrollWidth,
    broken: [...root.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
    cut: [...root.querySelectorAll("article table")].filter(cut).map(t => t.innerText),
  }
}
tell(found)
"""
SEARCH = """
frame.style = "width: 1366px; height: 800px"
await open(`index.html?q=${WORD}`)
let links = []
for (let i = 0; i < 200 && !links.length; i++) {
  await pause(50)
  links = [...frame.contentDocument.querySelectorAll(".md-search-result__link")]
}
tell(links.map(link => link.getAttribute("href")))
"""


class Handler(SimpleHTTPRequestHandler):
    """Serve files, and take what a page tells."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.server.told = json.loads(
            self.rfile.read(int(self.headers["Content-Length"]))
        )
        self.send_response(204)
        self.end_headers()
        self.server.has_told.set()


def told(folder, script, **constants):
    """Return what a script tells, in a page beside those of a folder."""
    given = "".join(f"const {k} = {json.dumps(v)}\n" for k, v in constants.items())
    page = folder / "asked.html"
    page.write_text(f"{HEAD}{given}{script}</script>")
    handler = partial(Handler, directory=str(folder))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
    ):
        server.has_told = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{page.name}"
        options = (f"--user-data-dir={profile}", "--remote-debugging-port=0")
        process = subprocess.Popen(
            [CHROMIUM, *OPTIONS, *options, address], stderr=subprocess.DEVNULL
        )
        try:
            assert server.has_told.wait(200), "the page told nothing"
        finally:
            process.kill()
            process.wait()
            server.shutdown()
            page.unlink()
        return server.told


def measured(folder, pages, width):
    """Measure each page in a window so wide: its width, broken pictures, cut tables."""
    return told(folder, MEASURE, PAGES=pages, WIDTH=width)


def found(folder, word):
    """Return the links that the search box shows for a word, from a server."""
    return told(folder, SEARCH, WORD=word)


def dumped(address):
    """Return a page as HTML, after its scripts have run."""
    done = subprocess.run(
        [CHROMIUM, *OPTIONS, "--dump-dom", "--virtual-time-budget=30000", address],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
