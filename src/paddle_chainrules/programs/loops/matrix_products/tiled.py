"""Products of matrices as machine code of our own: tiles that stay in registers.

A row of tiles goes over a panel of the second factor, as many columns as two vectors
hold. A factor that lies transposed is copied panel by panel, and so is one that many
rows need, whose own rows may share few places of the cache. Each entry adds its terms
in their order, one after another, so a row has the same bits among few rows and many.
Of the last one to three columns, sums go along the terms instead, or along the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..processor import Registers, registers
from ..text import BYTES, TYPES, Text
from .gemm import filled
from .vectors import Vectors

TERMS = 256
"""The most terms that go over a panel at a time, so that it stays in the cache."""

MANY_ROWS = 48
"""The rows from which on a panel is copied though it does not lie transposed."""

LEAST_WIDTH = 4
"""Fewer columns than these are no panel."""

ROWS_OF_DOTS = 4
"""The number of rows whose sums along the terms are computed at a time."""

PANEL = (
    "i64 %m, i64 %k, ptr %a, i64 %down, i64 %across, i1 %tb, ptr %b, i64 %ldb, "
    "REAL %beta, ptr %c, i64 %ldc"
)
TURNED = "i64 %k, ptr %b, i64 %ldb, ptr %copy, i64 %n"
TILE = (
    "i64 %k, ptr %a, i64 %down, i64 %across, ptr %b, i64 %ldb, REAL %beta, ptr %c, "
    "i64 %ldc"
)
COLUMN = (
    "i64 %m, i64 %k, ptr %a, i64 %lda, ptr %b, i64 %bdown, REAL %beta, ptr %c, i64 %ldc"
)


def tiled_text(dtype: str, name: str) -> str:
    """Return the functions of a dtype; the one that others call has this name.

    It is ``i1 @name(i1 ta, i1 tb, i64 m, ...)``, with the parameters that
    :func:`.gemm.product_text` describes and at least one term.
    """
    writer = _Writer(dtype, registers())
    texts = "\n".join(map(str, writer.texts()))
    return filled(texts.replace("internal i1 @tiled.SUFFIX", f"i1 @{name}"), dtype)


class _Writer:
    """The functions of one dtype, for one kind of registers."""

    def __init__(self, dtype: str, kind: Registers) -> None:
        self._dtype, self._real = dtype, TYPES[dtype]
        self._lanes = kind.bytes // BYTES[dtype]
        self._heights = (6, 2, 1) if kind.number < 32 else (12, 4, 1)
        widths = [2 * self._lanes]
        while widths[-1] > LEAST_WIDTH:
            widths.append(widths[-1] // 2)
        self._widths = [w for w in widths if w >= LEAST_WIDTH]

    def texts(self) -> list[Text]:
        """Return the functions; the last one is ``@tiled``."""
        tiles = [self._tile(h, w) for w in self._widths for h in self._heights]
        panels = [self._panel(w) for w in self._widths]
        others = self._copied_turned(), self._dots(), self._along_rows()
        return [*tiles, *panels, *others, self._product()]

    def _tile(self, height: int, width: int) -> Text:
        """Write a function of some rows and columns of the result."""
        text = Text(f"internal i1 @tile.SUFFIX.{height}x{width}({TILE}) {SMALL}")
        of = Vectors(text, self._dtype, width)
        rows = [_times(text, "%down", i) for i in range(height)]
        starts = [_moved(text, "%a", self._real, row) for row in rows]
        sums = [of.carried() for _ in range(height)]
        with text.loop("%k", sums) as p:
            vector = of.loaded(_moved(text, "%b", self._real, _mul(text, p, "%ldb")))
            along = _mul(text, p, "%across")
            for start, each in zip(starts, sums, strict=True):
                x = of.of_one(_moved(text, start, self._real, along))
                text.line(f"{each.next} = {of.plus_as(each.now, of.times(x, vector))}")
        ends = [_times(text, "%ldc", i) for i in range(height)]
        places = [_moved(text, "%c", self._real, end) for end in ends]
        self._end(text, of, places, [each.now for each in sums])
        return text

    def _end(
        self, text: Text, of: Vectors, places: Sequence[str], sums: Sequence[str]
    ) -> None:
        """Write sums to their places, added to beta times the old content."""
        is_fresh = text.put(f"fcmp oeq {self._real} %beta, 0.0")
        with text.where(is_fresh):
            for place, total in zip(places, sums, strict=True):
                of.stored(total, place)
        with text.where(text.put(f"xor i1 {is_fresh}, true")):
            beta = of.repeated("%beta")
            for place, total in zip(places, sums, strict=True):
                old = of.times(of.loaded(place), beta)
                of.stored(of.plus(total, old), place)

    def _panel(self, width: int) -> Text:
        """Write a function of all rows, and as many columns of the result."""
        text = Text(f"internal i1 @panel.SUFFIX.{width}({PANEL}) {SMALL}")
        room = TERMS * width * BYTES[self._dtype]
        copy = text.on_stack(room, 64)
        has_many = text.put(f"icmp sge i64 %m, {MANY_ROWS}")
        is_copied = text.put(f"or i1 %tb, {has_many}")
        with text.where("%tb"):
            given = f"i64 %k, ptr %b, i64 %ldb, ptr {copy}, i64 {width}"
            text.line(f"call i1 @turned.SUFFIX({given})")
        is_straight = text.put(f"xor i1 {is_copied}, %tb")
        with text.where(is_straight):
            self._copied(text, copy, width)
        b = text.put(f"select i1 {is_copied}, ptr {copy}, ptr %b")
        ldb = text.put(f"select i1 {is_copied}, i64 {width}, i64 %ldb")
        done = "0"
        for height in self._heights:
            left = text.put(f"sub i64 %m, {done}")
            count = text.put(f"udiv i64 {left}, {height}")
            with text.loop(count) as i:
                row = text.put(f"add i64 {done}, {_mul(text, i, height)}")
                a = _moved(text, "%a", self._real, _mul(text, row, "%down"))
                c = _moved(text, "%c", self._real, _mul(text, row, "%ldc"))
                given = (
                    f"i64 %k, ptr {a}, i64 %down, i64 %across, ptr {b}, i64 {ldb}, "
                    f"REAL %beta, ptr {c}, i64 %ldc"
                )
                text.line(f"call i1 @tile.SUFFIX.{height}x{width}({given})")
            done = text.put(f"add i64 {done}, {_mul(text, count, height)}")
        return text

    def _copied(self, text: Text, copy: str, width: int) -> None:
        """Write the copy of a panel, row by row."""
        of = Vectors(text, self._dtype, width)
        with text.loop("%k") as p:
            row = of.loaded(_moved(text, "%b", self._real, _mul(text, p, "%ldb")))
            of.stored(row, _moved(text, copy, self._real, _mul(text, p, width)))

    def _copied_turned(self) -> Text:
        """Write a function that copies a panel that lies transposed.

        It goes four by four, then over the rest.
        """
        text = Text(f"internal i1 @turned.SUFFIX({TURNED}) {SMALL}")
        fours, wide = (text.put(f"udiv i64 {n}, {LEAST_WIDTH}") for n in ("%k", "%n"))
        with text.loop(fours) as q, text.loop(wide) as r:
            p, j = (_mul(text, each, LEAST_WIDTH) for each in (q, r))
            self._turned(text, p, j)
        done = _mul(text, fours, LEAST_WIDTH)
        with text.loop("%k", start=done) as p, text.loop("%n") as j:
            place = text.put(f"add i64 {_mul(text, j, '%ldb')}, {p}")
            one = Vectors(text, self._dtype, 1)
            x = one.loaded(_moved(text, "%b", self._real, place))
            to = text.put(f"add i64 {_mul(text, p, '%n')}, {j}")
            one.stored(x, _moved(text, "%copy", self._real, to))
        return text

    def _turned(self, text: Text, p: str, j: str) -> None:
        """Write the copy of four by four entries."""
        of = Vectors(text, self._dtype, LEAST_WIDTH)
        rows = []
        for i in range(LEAST_WIDTH):
            row = text.put(f"add i64 {j}, {i}")
            place = text.put(f"add i64 {_mul(text, row, '%ldb')}, {p}")
            rows.append(of.loaded(_moved(text, "%b", self._real, place)))
        for _ in range(2):  # of two rows the first halves in turn, and the second ones
            pairs = [(rows[i], rows[i + 2]) for i in range(2)]
            rows = [of.mixed(*pair, first) for pair in pairs for first in (0, 2)]
        for i, row in enumerate(rows):
            line = text.put(f"add i64 {p}, {i}")
            to = text.put(f"add i64 {_mul(text, line, '%n')}, {j}")
            of.stored(row, _moved(text, "%copy", self._real, to))

    def _dots(self) -> Text:
        """Write a function of one column, whose terms lie one after another in a."""
        text = Text(f"internal i1 @dots.SUFFIX({COLUMN}) {SMALL}")
        real, lanes = self._real, self._lanes
        copy = text.on_stack(TERMS * BYTES[self._dtype], 64)
        is_apart = text.put("icmp ne i64 %bdown, 1")
        with text.where(is_apart), text.loop("%k") as p:
            at = _moved(text, "%b", real, _mul(text, p, "%bdown"))
            x = text.put(f"load {real}, ptr {at}")
            text.line(f"store {real} {x}, ptr {_moved(text, copy, real, p)}")
        b = text.put(f"select i1 {is_apart}, ptr {copy}, ptr %b")
        vectors = text.put(f"udiv i64 %k, {lanes}")
        done = _mul(text, vectors, lanes)
        start = "0"
        for height in (ROWS_OF_DOTS, 1):
            left = text.put(f"sub i64 %m, {start}")
            count = text.put(f"udiv i64 {left}, {height}")
            with text.loop(count) as i:
                first = text.put(f"add i64 {start}, {_mul(text, i, height)}")
                rows = [text.put(f"add i64 {first}, {h}") for h in range(height)]
                self._some_dots(text, rows, b, (vectors, done))
            start = text.put(f"add i64 {start}, {_mul(text, count, height)}")
        return text

    def _some_dots(
        self, text: Text, rows: Sequence[str], b: str, vectors: tuple[str, str]
    ) -> None:
        """Write the sums of some rows, by vectors and then by single terms."""
        real = self._real
        starts = [_moved(text, "%a", real, _mul(text, row, "%lda")) for row in rows]
        of, one = (Vectors(text, self._dtype, n) for n in (self._lanes, 1))
        sums = [of.carried() for _ in rows]
        with text.loop(vectors[0], sums) as q:
            p = _mul(text, q, self._lanes)
            y = of.loaded(_moved(text, b, real, p))
            for at, each in zip(starts, sums, strict=True):
                x = of.loaded(_moved(text, at, real, p))
                text.line(f"{each.next} = {of.plus_as(each.now, of.times(x, y))}")
        totals = [one.carried(of.total(each.now)) for each in sums]
        with text.loop("%k", totals, start=vectors[1]) as p:
            y = one.loaded(_moved(text, b, real, p))
            for at, each in zip(starts, totals, strict=True):
                x = one.loaded(_moved(text, at, real, p))
                text.line(f"{each.next} = {one.plus_as(each.now, one.times(x, y))}")
        places = [_moved(text, "%c", real, _mul(text, row, "%ldc")) for row in rows]
        self._end(text, one, places, [each.now for each in totals])

    def _along_rows(self) -> Text:
        """Write a function of one column, where rows lie one after another in a."""
        text = Text(f"internal i1 @along.SUFFIX({COLUMN}) {SMALL}")
        one = Vectors(text, self._dtype, 1)
        copy = text.on_stack(self._lanes * 2 * BYTES[self._dtype], 64)
        start = "0"
        for width in (2 * self._lanes, self._lanes, 1):
            of = Vectors(text, self._dtype, width)
            left = text.put(f"sub i64 %m, {start}")
            count = text.put(f"udiv i64 {left}, {width}")
            with text.loop(count) as i:
                row = text.put(f"add i64 {start}, {_mul(text, i, width)}")
                first = _moved(text, "%a", self._real, row)
                total = of.carried()
                with text.loop("%k", [total]) as p:
                    at = _moved(text, first, self._real, _mul(text, p, "%lda"))
                    y = _moved(text, "%b", self._real, _mul(text, p, "%bdown"))
                    term = of.times(of.loaded(at), of.of_one(y))
                    text.line(f"{total.next} = {of.plus_as(total.now, term)}")
                c = _moved(text, "%c", self._real, _mul(text, row, "%ldc"))
                of.stored(total.now, copy)
                with text.loop(str(width)) as k:
                    end = _moved(text, c, self._real, _mul(text, k, "%ldc"))
                    found = one.loaded(_moved(text, copy, self._real, k))
                    self._end(text, one, [end], [found])
            start = text.put(f"add i64 {start}, {_mul(text, count, width)}")
        return text

    def _product(self) -> Text:
        """Write the product of any sizes."""
        text = Text("internal i1 @tiled.SUFFIX(PARAMETERS) noinline nounwind")
        real = self._real
        down = text.put("select i1 %ta, i64 1, i64 %lda")
        across = text.put("select i1 %ta, i64 %lda, i64 1")
        b_down = text.put("select i1 %tb, i64 1, i64 %ldb")
        b_along = text.put("select i1 %tb, i64 %ldb, i64 1")
        over = text.put(f"add i64 %k, {TERMS - 1}")
        with text.loop(text.put(f"udiv i64 {over}, {TERMS}")) as block:
            first = _mul(text, block, TERMS)
            left = text.put(f"sub i64 %k, {first}")
            is_last = text.put(f"icmp slt i64 {left}, {TERMS}")
            terms = text.put(f"select i1 {is_last}, i64 {left}, i64 {TERMS}")
            is_first = text.put(f"icmp eq i64 {block}, 0")
            beta = text.put(f"select i1 {is_first}, {real} %beta, {real} 1.0")
            a = _moved(text, "%a", real, _mul(text, first, across))
            b = _moved(text, "%b", real, _mul(text, first, b_down))
            done = "0"
            for width in self._widths:
                columns = text.put(f"sub i64 %n, {done}")
                count = text.put(f"udiv i64 {columns}, {width}")
                with text.loop(count) as i:
                    j = text.put(f"add i64 {done}, {_mul(text, i, width)}")
                    here = _moved(text, b, real, _mul(text, j, b_along))
                    c = _moved(text, "%c", real, j)
                    given = (
                        f"i64 %m, i64 {terms}, ptr {a}, i64 {down}, i64 {across}, "
                        f"i1 %tb, ptr {here}, i64 %ldb, {real} {beta}, ptr {c}, "
                        "i64 %ldc"
                    )
                    text.line(f"call i1 @panel.SUFFIX.{width}({given})")
                done = text.put(f"add i64 {done}, {_mul(text, count, width)}")
            with text.loop("%n", start=done) as j:
                here = _moved(text, b, real, _mul(text, j, b_along))
                c = _moved(text, "%c", real, j)
                given = (
                    f"i64 %m, i64 {terms}, ptr {a}, i64 %lda, ptr {here}, "
                    f"i64 {b_down}, {real} {beta}, ptr {c}, i64 %ldc"
                )
                with text.where("%ta"):
                    text.line(f"call i1 @along.SUFFIX({given})")
                with text.where(text.put("xor i1 %ta, true")):
                    text.line(f"call i1 @dots.SUFFIX({given})")
        return text


SMALL = "noinline nounwind"
"""Attributes of the functions that a product calls."""


def _mul(text: Text, a: str, b: str | int) -> str:
    return text.put(f"mul i64 {a}, {b}")


def _times(text: Text, a: str, count: int) -> str:
    """Return a number times a fixed one."""
    return "0" if not count else a if count == 1 else _mul(text, a, count)


def _moved(text: Text, base: str, real: str, steps: str) -> str:
    if steps == "0":
        return base
    return text.put(f"getelementptr inbounds {real}, ptr {base}, i64 {steps}", "p")
