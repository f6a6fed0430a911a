"""Products of matrices as machine code of our own: tiles that stay in registers.

A row of tiles goes over a panel of the second factor, as many columns as two vectors
hold. A factor that lies transposed is copied panel by panel, and so is one that many
rows need, whose own rows may share few places of the cache. Each entry adds its terms
in their order, one after another, so a row has the same bits among few rows and many.
Of the last one to three columns, sums go along the terms instead, or along the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir_builder import BYTES, TYPES, FunctionBuilder
from ..processor import VectorRegisters, registers
from .gemm import filled
from .vectors import VectorType

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
    writer = _KernelEmitter(dtype, registers())
    texts = "\n".join(map(str, writer.texts()))
    return filled(texts.replace("internal i1 @tiled.SUFFIX", f"i1 @{name}"), dtype)


class _KernelEmitter:
    """The functions of one dtype, for one kind of registers."""

    def __init__(self, dtype: str, kind: VectorRegisters) -> None:
        self._dtype, self._real = dtype, TYPES[dtype]
        self._lanes = kind.bytes // BYTES[dtype]
        self._heights = (6, 2, 1) if kind.number < 32 else (12, 4, 1)
        widths = [2 * self._lanes]
        while widths[-1] > LEAST_WIDTH:
            widths.append(widths[-1] // 2)
        self._widths = [w for w in widths if w >= LEAST_WIDTH]

    def texts(self) -> list[FunctionBuilder]:
        """Return the functions; the last one is ``@tiled``."""
        tiles = [self._tile(h, w) for w in self._widths for h in self._heights]
        panels = [self._panel(w) for w in self._widths]
        others = self._copied_turned(), self._dots(), self._along_rows()
        return [*tiles, *panels, *others, self._product()]

    def _tile(self, height: int, width: int) -> FunctionBuilder:
        """Write a function of some rows and columns of the result."""
        text = FunctionBuilder(
            f"internal i1 @tile.SUFFIX.{height}x{width}({TILE}) {SMALL}"
        )
        of = VectorType(text, self._dtype, width)
        rows = [_times_constant(text, "%down", i) for i in range(height)]
        starts = [_moved_pointer(text, "%a", self._real, row) for row in rows]
        sums = [of.carried() for _ in range(height)]
        with text.loop("%k", sums) as p:
            vector = of.loaded(
                _moved_pointer(text, "%b", self._real, _mul(text, p, "%ldb"))
            )
            along = _mul(text, p, "%across")
            for start, each in zip(starts, sums, strict=True):
                x = of.of_one(_moved_pointer(text, start, self._real, along))
                text.line(f"{each.next} = {of.plus_as(each.now, of.times(x, vector))}")
        ends = [_times_constant(text, "%ldc", i) for i in range(height)]
        places = [_moved_pointer(text, "%c", self._real, end) for end in ends]
        self._end(text, of, places, [each.now for each in sums])
        return text

    def _end(
        self,
        text: FunctionBuilder,
        of: VectorType,
        places: Sequence[str],
        sums: Sequence[str],
    ) -> None:
        """Write sums to their places, added to beta times the old content."""
        is_fresh = text.emit(f"fcmp oeq {self._real} %beta, 0.0")
        with text.where(is_fresh):
            for place, total in zip(places, sums, strict=True):
                of.stored(total, place)
        with text.where(text.emit(f"xor i1 {is_fresh}, true")):
            beta = of.repeated("%beta")
            for place, total in zip(places, sums, strict=True):
                old = of.times(of.loaded(place), beta)
                of.stored(of.plus(total, old), place)

    def _panel(self, width: int) -> FunctionBuilder:
        """Write a function of all rows, and as many columns of the result."""
        text = FunctionBuilder(f"internal i1 @panel.SUFFIX.{width}({PANEL}) {SMALL}")
        room = TERMS * width * BYTES[self._dtype]
        copy = text.on_stack(room, 64)
        has_many = text.emit(f"icmp sge i64 %m, {MANY_ROWS}")
        is_copied = text.emit(f"or i1 %tb, {has_many}")
        with text.where("%tb"):
            given = f"i64 %k, ptr %b, i64 %ldb, ptr {copy}, i64 {width}"
            text.line(f"call i1 @turned.SUFFIX({given})")
        is_straight = text.emit(f"xor i1 {is_copied}, %tb")
        with text.where(is_straight):
            self._copied(text, copy, width)
        b = text.emit(f"select i1 {is_copied}, ptr {copy}, ptr %b")
        ldb = text.emit(f"select i1 {is_copied}, i64 {width}, i64 %ldb")
        done = "0"
        for height in self._heights:
            left = text.emit(f"sub i64 %m, {done}")
            count = text.emit(f"udiv i64 {left}, {height}")
            with text.loop(count) as i:
                row = text.emit(f"add i64 {done}, {_mul(text, i, height)}")
                a = _moved_pointer(text, "%a", self._real, _mul(text, row, "%down"))
                c = _moved_pointer(text, "%c", self._real, _mul(text, row, "%ldc"))
                given = (
                    f"i64 %k, ptr {a}, i64 %down, i64 %across, ptr {b}, i64 {ldb}, "
                    f"REAL %beta, ptr {c}, i64 %ldc"
                )
                text.line(f"call i1 @tile.SUFFIX.{height}x{width}({given})")
            done = text.emit(f"add i64 {done}, {_mul(text, count, height)}")
        return text

    def _copied(self, text: FunctionBuilder, copy: str, width: int) -> None:
        """Write the copy of a panel, row by row."""
        of = VectorType(text, self._dtype, width)
        with text.loop("%k") as p:
            row = of.loaded(
                _moved_pointer(text, "%b", self._real, _mul(text, p, "%ldb"))
            )
            of.stored(row, _moved_pointer(text, copy, self._real, _mul(text, p, width)))

    def _copied_turned(self) -> FunctionBuilder:
        """Write a function that copies a panel that lies transposed.

        It goes four by four, then over the rest.
        """
        text = FunctionBuilder(f"internal i1 @turned.SUFFIX({TURNED}) {SMALL}")
        fours, wide = (text.emit(f"udiv i64 {n}, {LEAST_WIDTH}") for n in ("%k", "%n"))
        with text.loop(fours) as q, text.loop(wide) as r:
            p, j = (_mul(text, each, LEAST_WIDTH) for each in (q, r))
            self._turned(text, p, j)
        done = _mul(text, fours, LEAST_WIDTH)
        with text.loop("%k", start=done) as p, text.loop("%n") as j:
            place = text.emit(f"add i64 {_mul(text, j, '%ldb')}, {p}")
            one = VectorType(text, self._dtype, 1)
            x = one.loaded(_moved_pointer(text, "%b", self._real, place))
            to = text.emit(f"add i64 {_mul(text, p, '%n')}, {j}")
            one.stored(x, _moved_pointer(text, "%copy", self._real, to))
        return text

    def _turned(self, text: FunctionBuilder, p: str, j: str) -> None:
        """Write the copy of four by four entries."""
        of = VectorType(text, self._dtype, LEAST_WIDTH)
        rows = []
        for i in range(LEAST_WIDTH):
            row = text.emit(f"add i64 {j}, {i}")
            place = text.emit(f"add i64 {_mul(text, row, '%ldb')}, {p}")
            rows.append(of.loaded(_moved_pointer(text, "%b", self._real, place)))
        for _ in range(2):  # of two rows the first halves in turn, and the second ones
            pairs = [(rows[i], rows[i + 2]) for i in range(2)]
            rows = [of.mixed(*pair, first) for pair in pairs for first in (0, 2)]
        for i, row in enumerate(rows):
            line = text.emit(f"add i64 {p}, {i}")
            to = text.emit(f"add i64 {_mul(text, line, '%n')}, {j}")
            of.stored(row, _moved_pointer(text, "%copy", self._real, to))

    def _dots(self) -> FunctionBuilder:
        """Write a function of one column, whose terms lie one after another in a."""
        text = FunctionBuilder(f"internal i1 @dots.SUFFIX({COLUMN}) {SMALL}")
        real, lanes = self._real, self._lanes
        copy = text.on_stack(TERMS * BYTES[self._dtype], 64)
        is_apart = text.emit("icmp ne i64 %bdown, 1")
        with text.where(is_apart), text.loop("%k") as p:
            at = _moved_pointer(text, "%b", real, _mul(text, p, "%bdown"))
            x = text.emit(f"load {real}, ptr {at}")
            text.line(f"store {real} {x}, ptr {_moved_pointer(text, copy, real, p)}")
        b = text.emit(f"select i1 {is_apart}, ptr {copy}, ptr %b")
        vectors = text.emit(f"udiv i64 %k, {lanes}")
        done = _mul(text, vectors, lanes)
        start = "0"
        for height in (ROWS_OF_DOTS, 1):
            left = text.emit(f"sub i64 %m, {start}")
            count = text.emit(f"udiv i64 {left}, {height}")
            with text.loop(count) as i:
                first = text.emit(f"add i64 {start}, {_mul(text, i, height)}")
                rows = [text.emit(f"add i64 {first}, {h}") for h in range(height)]
                self._some_dots(text, rows, b, (vectors, done))
            start = text.emit(f"add i64 {start}, {_mul(text, count, height)}")
        return text

    def _some_dots(
        self,
        text: FunctionBuilder,
        rows: Sequence[str],
        b: str,
        vectors: tuple[str, str],
    ) -> None:
        """Write the sums of some rows, by vectors and then by single terms."""
        real = self._real
        starts = [
            _moved_pointer(text, "%a", real, _mul(text, row, "%lda")) for row in rows
        ]
        of, one = (VectorType(text, self._dtype, n) for n in (self._lanes, 1))
        sums = [of.carried() for _ in rows]
        with text.loop(vectors[0], sums) as q:
            p = _mul(text, q, self._lanes)
            y = of.loaded(_moved_pointer(text, b, real, p))
            for at, each in zip(starts, sums, strict=True):
                x = of.loaded(_moved_pointer(text, at, real, p))
                text.line(f"{each.next} = {of.plus_as(each.now, of.times(x, y))}")
        totals = [one.carried(of.total(each.now)) for each in sums]
        with text.loop("%k", totals, start=vectors[1]) as p:
            y = one.loaded(_moved_pointer(text, b, real, p))
            for at, each in zip(starts, totals, strict=True):
                x = one.loaded(_moved_pointer(text, at, real, p))
                text.line(f"{each.next} = {one.plus_as(each.now, one.times(x, y))}")
        places = [
            _moved_pointer(text, "%c", real, _mul(text, row, "%ldc")) for row in rows
        ]
        self._end(text, one, places, [each.now for each in totals])

    def _along_rows(self) -> FunctionBuilder:
        """Write a function of one column, where rows lie one after another in a."""
        text = FunctionBuilder(f"internal i1 @along.SUFFIX({COLUMN}) {SMALL}")
        one = VectorType(text, self._dtype, 1)
        copy = text.on_stack(self._lanes * 2 * BYTES[self._dtype], 64)
        start = "0"
        for width in (2 * self._lanes, self._lanes, 1):
            of = VectorType(text, self._dtype, width)
            left = text.emit(f"sub i64 %m, {start}")
            count = text.emit(f"udiv i64 {left}, {width}")
            with text.loop(count) as i:
                row = text.emit(f"add i64 {start}, {_mul(text, i, width)}")
                first = _moved_pointer(text, "%a", self._real, row)
                total = of.carried()
                with text.loop("%k", [total]) as p:
                    at = _moved_pointer(text, first, self._real, _mul(text, p, "%lda"))
                    y = _moved_pointer(text, "%b", self._real, _mul(text, p, "%bdown"))
                    term = of.times(of.loaded(at), of.of_one(y))
                    text.line(f"{total.next} = {of.plus_as(total.now, term)}")
                c = _moved_pointer(text, "%c", self._real, _mul(text, row, "%ldc"))
                of.stored(total.now, copy)
                with text.loop(str(width)) as k:
                    end = _moved_pointer(text, c, self._real, _mul(text, k, "%ldc"))
                    result = one.loaded(_moved_pointer(text, copy, self._real, k))
                    self._end(text, one, [end], [result])
            start = text.emit(f"add i64 {start}, {_mul(text, count, width)}")
        return text

    def _product(self) -> FunctionBuilder:
        """Write the product of any sizes."""
        text = FunctionBuilder(
            "internal i1 @tiled.SUFFIX(PARAMETERS) noinline nounwind"
        )
        real = self._real
        down = text.emit("select i1 %ta, i64 1, i64 %lda")
        across = text.emit("select i1 %ta, i64 %lda, i64 1")
        b_down = text.emit("select i1 %tb, i64 1, i64 %ldb")
        b_along = text.emit("select i1 %tb, i64 %ldb, i64 1")
        over = text.emit(f"add i64 %k, {TERMS - 1}")
        with text.loop(text.emit(f"udiv i64 {over}, {TERMS}")) as block:
            first = _mul(text, block, TERMS)
            left = text.emit(f"sub i64 %k, {first}")
            is_last = text.emit(f"icmp slt i64 {left}, {TERMS}")
            terms = text.emit(f"select i1 {is_last}, i64 {left}, i64 {TERMS}")
            is_first = text.emit(f"icmp eq i64 {block}, 0")
            beta = text.emit(f"select i1 {is_first}, {real} %beta, {real} 1.0")
            a = _moved_pointer(text, "%a", real, _mul(text, first, across))
            b = _moved_pointer(text, "%b", real, _mul(text, first, b_down))
            done = "0"
            for width in self._widths:
                columns = text.emit(f"sub i64 %n, {done}")
                count = text.emit(f"udiv i64 {columns}, {width}")
                with text.loop(count) as i:
                    j = text.emit(f"add i64 {done}, {_mul(text, i, width)}")
                    here = _moved_pointer(text, b, real, _mul(text, j, b_along))
                    c = _moved_pointer(text, "%c", real, j)
                    given = (
                        f"i64 %m, i64 {terms}, ptr {a}, i64 {down}, i64 {across}, "
                        f"i1 %tb, ptr {here}, i64 %ldb, {real} {beta}, ptr {c}, "
                        "i64 %ldc"
                    )
                    text.line(f"call i1 @panel.SUFFIX.{width}({given})")
                done = text.emit(f"add i64 {done}, {_mul(text, count, width)}")
            with text.loop("%n", start=done) as j:
                here = _moved_pointer(text, b, real, _mul(text, j, b_along))
                c = _moved_pointer(text, "%c", real, j)
                given = (
                    f"i64 %m, i64 {terms}, ptr {a}, i64 %lda, ptr {here}, "
                    f"i64 {b_down}, {real} {beta}, ptr {c}, i64 %ldc"
                )
                with text.where("%ta"):
                    text.line(f"call i1 @along.SUFFIX({given})")
                with text.where(text.emit("xor i1 %ta, true")):
                    text.line(f"call i1 @dots.SUFFIX({given})")
        return text


SMALL = "noinline nounwind"
"""Attributes of the functions that a product calls."""


def _mul(text: FunctionBuilder, a: str, b: str | int) -> str:
    return text.emit(f"mul i64 {a}, {b}")


def _times_constant(text: FunctionBuilder, a: str, count: int) -> str:
    """Return a number times a fixed one."""
    return "0" if not count else a if count == 1 else _mul(text, a, count)


def _moved_pointer(text: FunctionBuilder, base: str, real: str, steps: str) -> str:
    if steps == "0":
        return base
    return text.emit(f"getelementptr inbounds {real}, ptr {base}, i64 {steps}", "p")
