"""Draw the pictures at the head of the README, and the card that links to it show.

Two drawings in SVG, each as wide as a phone: times of four gradients, and errors of one
differential equation against seconds. They hold the colours of a light and of a dark
page. ``make figures`` writes them from ``benchmarks/results``, and ``--check`` there
compares them. Nothing here is measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from PIL import Image

import run
import solved.page

mpl.use("Agg")
from matplotlib import pyplot as plt

Results = dict[str, Any]

WIDTH, HEIGHT = 400, 390
PROBLEM = "Helmholtz"
"""Among the problems that were solved the one whose gain is nearest to the median."""

LIGHT = {
    **{"ink": "#1f2328", "grey": "#8c959f", "red": "#cf5a3c", "purple": "#9a6dd7"},
    **{"green": "#3a8f4d", "orange": "#c98a00", "blue": "#0b62d6", "navy": "#4a9bff"},
    **{"pink": "#c2358a", "teal": "#1b8a91", "brown": "#9a5b2b", "rust": "#8f2f1a"},
}
DARK = {"ink": "#e6edf3", "blue": "#58a6ff", "navy": "#2f81f7"}
DARK |= {"orange": "#e3b341", "green": "#56b36a", "rust": "#d98a73"}


def coloured(colours: dict[str, str]) -> str:
    """Return rules for bars and lines, in plain colours, which all viewers know."""
    return "\n".join(
        f"rect.{name} {{ fill: {colour} }} "
        f"path.{name}, line.{name} {{ stroke: {colour} }}"
        for name, colour in colours.items()
    )


STYLE = f"""
svg {{ color-scheme: light dark }}
text {{ font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }}
.card {{ fill: #ffffff }} text {{ fill: #1f2328 }} .axis {{ stroke: #d0d7de }}
.title {{ font-weight: 600; font-size: 13.5px }}
.faint {{ fill: #59636e; font-size: 11px }}
.own {{ font-weight: 600 }} path.line {{ fill: none }}
{coloured(LIGHT)}
@media (prefers-color-scheme: dark) {{
.card {{ fill: #161b22 }} text {{ fill: #e6edf3 }} .axis {{ stroke: #3d444d }}
.faint {{ fill: #9198a1 }}
{coloured(DARK)}
}}
"""


class Bar(NamedTuple):
    """A side of a row: its label, its time relative to native Paddle, its colour."""

    label: str
    ratio: float
    colour: str


class Row(NamedTuple):
    """A task: its title, native Paddle's microseconds, and the sides' bars."""

    title: str
    native: float
    bars: tuple[Bar, ...]


class Curve(NamedTuple):
    """A method: its label, its colour, and its errors at seconds."""

    label: str
    colour: str
    points: tuple[tuple[float, float], ...]


def rows(bench: Results, side_by_side: Results) -> list[Row]:
    """Return what the bars show: a small net, then three of the table."""
    small = next(
        row["us"]
        for row in bench["tables"]["report"]
        if row["task"] == run.PULLBACK and row["batch"] == 1
    )
    made = [
        row(
            "small MLP 8-64-4, one sample",
            small,
            {"native Paddle": "Paddle", "PyTorch": "PyTorch", "JAX jit": "JAX, jit"}
            | {"ours, Python": "ours, Python", "ours, Zygote": "ours, Julia"},
        )
    ]
    names = {"native": "Paddle", "PyTorch": "PyTorch", "JAX jit": "JAX, jit"}
    names |= {"ours": "ours, Python"}
    for start in ("convolutional", "Transformer", "Burgers"):
        name = next(name for name in side_by_side["rows"] if name.startswith(start))
        made.append(row(name, side_by_side["rows"][name]["us"], names))
    return made


COLOURS = {"Paddle": "grey", "PyTorch": "red", "JAX, jit": "purple"}
COLOURS |= {"ours, Python": "navy", "ours, Julia": "blue"}


def row(title: str, us: dict[str, Any], names: dict[str, str]) -> Row:
    """Return a row of the minima of these sides, relative to the first."""
    native = us[next(iter(names))]["min"]
    bars = (
        Bar(label, us[side]["min"] / native, COLOURS[label])
        for side, label in names.items()
        if side in us
    )
    return Row(title[0].upper() + title[1:], native, tuple(bars))


METHODS = {
    "PaddleScience": ("PaddleScience", "orange"),
    "DeepXDE, Paddle": ("DeepXDE", "green"),
    "DeepXDE, PyTorch, L-BFGS": ("DeepXDE, L-BFGS", "red"),
    "PyTorch, Levenberg-Marquardt": ("PyTorch, Levenberg-M.", "rust"),
    "JAX, optax": ("JAX, Adam", "purple"),
    "JAX, L-BFGS": ("JAX, L-BFGS", "pink"),
    "JAX, self-scaled Broyden": ("JAX, Broyden", "teal"),
    "JAX, Levenberg-Marquardt": ("JAX, Levenberg-M.", "brown"),
    "ours, scan": ("ours, Adam", "navy"),
    "ours, self-scaled Broyden": ("ours, Broyden", "blue"),
    "ours, Levenberg-Marquardt": ("ours, Levenberg-M.", "ink"),
}


def curves(runs: Results, limit: float = 300.0) -> list[Curve]:
    """Return each method's errors, of the first seed's longest run up to a limit."""
    sides = solved.page.of(solved.page.read(runs["runs"]), PROBLEM)
    made = []
    for side, (label, colour) in METHODS.items():
        found = [r for r in sides[side] if r["seed"] == 0 and r["limit"] <= limit]
        longest = max(found, key=lambda r: r["limit"])
        points = ((s, e) for s, _, e in longest["curve"] if s >= 1)
        made.append(Curve(label, colour, tuple(points)))
    return made


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {at} class="{kind}">{escape(words)}</text>'


def drawing(title: str, told: str, parts: Iterable[str]) -> str:
    """Return an SVG file with a title for readers that see no picture."""
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}. {escape(told)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        text(14, 24, title, "title"),
        text(14, 41, told, "faint"),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def times(rows: list[Row]) -> str:
    """Return the drawing of times: a group of bars for each row."""
    left, room, y = 104.0, 236.0, 64.0
    longest = max(bar.ratio for row in rows for bar in row.bars)
    parts = []
    for row in rows:
        parts.append(text(14, y, row.title, "own"))
        native = f"Paddle: {row.native:,.0f} µs"
        parts.append(text(WIDTH - 14, y, native, "faint", "end"))
        for bar in row.bars:
            y += 14
            own = "own" if bar.label.startswith("ours") else ""
            width = bar.ratio / longest * room
            parts += [
                text(left - 6, y, bar.label, own, "end"),
                f'<rect class="bar {bar.colour}" x="{left}" y="{y - 9:.1f}" '
                f'width="{width:.1f}" height="10"/>',
                text(left + width + 5, y, f"{bar.ratio:.2f}", own),
            ]
        y += 24
    return drawing(
        "Time for a value and all gradients",
        "relative to native Paddle: shorter is faster",
        parts,
    )


def errors(curves: list[Curve]) -> str:
    """Return the drawing of errors against seconds, both logarithmic."""
    left, right, top, bottom = 46.0, WIDTH - 14.0, 54.0, HEIGHT - 40.0
    decades = -6, 0
    place_x = scale(0, math.log10(300), left, right)
    place_y = scale(decades[0] - 0.3, decades[1] + 0.25, bottom, top)
    parts = []
    for power in range(decades[0], decades[1] + 1):
        y = place_y(10.0**power)
        parts += [
            f'<path class="axis" d="M{left} {y:.1f}H{right}"/>',
            text(
                left - 6,
                y + 4,
                f"1e{power}" if power < -2 else f"{10.0**power:g}",
                "faint",
                "end",
            ),
        ]
    for seconds in (1, 10, 60, 300):
        x = place_x(seconds)
        end = "end" if seconds == 300 else "middle"
        parts += [
            f'<path class="axis" d="M{x:.1f} {top}V{bottom}"/>',
            text(x, bottom + 16, f"{seconds}", "faint", end),
        ]
    parts.append(text((left + right) / 2, bottom + 32, "seconds", "faint", "middle"))
    y = bottom - 14.0 * len(curves) + 4
    for curve in curves:
        way = "L".join(
            f"{min(place_x(s), right):.1f} {min(place_y(e), bottom):.1f}"
            for s, e in curve.points
        )
        own = curve.label.startswith("ours")
        width = 2.4 if own else 1.6
        stroke = f'stroke-width="{width}"'
        colour = f'class="line {curve.colour}"'
        dashes = "" if own else ' stroke-dasharray="5 3"'
        key = colour.replace("line", "key", 1)
        parts += [
            f'<path {colour} {stroke}{dashes} d="M{way}"/>',
            f'<line {key} {stroke}{dashes} x1="{left + 8}" x2="{left + 30}" '
            f'y1="{y - 4:.1f}" y2="{y - 4:.1f}"/>',
            text(left + 36, y, curve.label, "own" if own else ""),
        ]
        y += 14
    return drawing(
        f"{PROBLEM} equation: error against seconds",
        "relative error of the same net on one core: lower is better",
        parts,
    )


def scale(
    low: float, high: float, start: float, end: float
) -> Callable[[float], float]:
    """Return where a value lies between two places, by its logarithm."""

    def place(value: float) -> float:
        return start + (math.log10(value) - low) / (high - low) * (end - start)

    return place


def read(folder: Path) -> tuple[list[Row], list[Curve]]:
    """Return what the pictures show of the results in a folder."""

    def results(name: str) -> Results:
        found: Results = json.loads((folder / f"{name}.json").read_text())
        return found

    return rows(results("bench"), results("side_by_side")), curves(results("solved"))


def drawings(folder: Path) -> dict[str, str]:
    """Return the drawings by the names of their files."""
    found, methods = read(folder)
    return {"front-times.svg": times(found), "front-errors.svg": errors(methods)}


def on_card(folder: Path) -> str:
    """Return the figures that the card shows, in a line."""
    small = read(folder)[0][0]
    return ", ".join(f"{bar.label} {bar.ratio:.2f}" for bar in small.bars)


def card(folder: Path, path: Path) -> None:
    """Write the picture that a link to the site shows elsewhere: 1200 by 630 pixels."""
    small = read(folder)[0][0]
    figure = plt.figure(figsize=(12, 6.3), dpi=100, facecolor="#10172b")
    white, faint = "#ffffff", "#aab4cc"
    figure.text(0.06, 0.80, "PaddleChainRules", color=white, size=52, weight="bold")
    said = "PaddlePaddle nets as differentiable functions, in Julia and Python"
    figure.text(0.06, 0.695, said, color=white, size=24)
    title = f"Value and all gradients, {small.title[0].lower()}{small.title[1:]}"
    figure.text(0.06, 0.585, f"{title}: time / Paddle", color=faint, size=19)
    axes = figure.add_axes((0.2, 0.07, 0.68, 0.48), facecolor="none")
    places = range(len(small.bars))
    shades = [
        "#58a6ff" if b.label.startswith("ours") else "#5b6785" for b in small.bars
    ]
    axes.barh(places, [bar.ratio for bar in small.bars], color=shades, height=0.66)
    for place, bar in zip(places, small.bars, strict=True):
        axes.text(
            -0.015, place, bar.label, color=white, size=20, va="center", ha="right"
        )
        axes.text(
            bar.ratio + 0.015,
            place,
            f"{bar.ratio:.2f}",
            color=white,
            size=20,
            va="center",
        )
    axes.invert_yaxis()
    axes.set_xlim(0, 1.05 * max(bar.ratio for bar in small.bars))
    axes.axis("off")
    figure.savefig(
        path,
        facecolor=figure.get_facecolor(),
        metadata={"Description": on_card(folder)},
    )
    plt.close(figure)


def stale(results: Path, docs: Path) -> list[Path]:
    """Return the pictures that show other figures than the results."""
    found = [
        docs / name
        for name, text in drawings(results).items()
        if not (docs / name).exists() or (docs / name).read_text() != text
    ]
    shown = docs / "card.png"
    if not shown.exists():
        return [*found, shown]
    with Image.open(shown) as image:
        told = image.info.get("Description")
    return [*found, shown] if told != on_card(results) else found


def write(results: Path, docs: Path) -> None:
    """Write all pictures from the results."""
    for name, text in drawings(results).items():
        (docs / name).write_text(text)
    card(results, docs / "card.png")
