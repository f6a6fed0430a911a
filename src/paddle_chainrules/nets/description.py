"""A net described in a short table, for the terminal and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """The result of ``net.describe()``: printed it is a table, in notebooks too."""

    title: str
    formula: str
    rows: tuple[tuple[str, str, str, str], ...]
    """Kind, name, shape and dtype of each tensor."""
    size: int
    """Number of elements of all parameters together."""
    runs: str = ""
    """A sentence that says how its calls run."""

    @property
    def _summary(self) -> str:
        count = f"{self.size:,} parameters"
        return f"{count}. {self.runs}" if self.runs else count

    def __str__(self) -> str:
        head = ("", "name", "shape", "dtype")
        table = aligned([head, *self.rows])
        return "\n".join([self.title, self.formula, table, self._summary])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table that Jupyter shows."""

        def row(cells: tuple[str, ...], tag: str) -> str:
            cells_html = (f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
            return f"<tr>{''.join(cells_html)}</tr>"

        body = "".join(row(cells, "td") for cells in self.rows)
        head = row(("", "name", "shape", "dtype"), "th")
        return (
            f"<p><b>{html.escape(self.title)}</b><br>{html.escape(self.formula)}<br>"
            f"{html.escape(self._summary)}</p><table>{head}{body}</table>"
        )


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines, their cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def chain_formula(activation: str, layers: int) -> str:
    """Return the formula of a chain of affine maps with one activation between them."""
    if layers > 3:
        return (
            f"y = W{layers}' {activation}(... {activation}(W1' x + b1) ...) + b{layers}"
        )
    inner = "x"
    for i in range(1, layers + 1):
        inner = f"W{i}' {inner} + b{i}"
        if i < layers:
            inner = f"{activation}({inner})"
    return f"y = {inner}"
