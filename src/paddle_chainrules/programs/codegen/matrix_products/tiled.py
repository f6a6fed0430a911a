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
        ir = FunctionBuilder(
            f"internal i1 @tile.SUFFIX.{height}x{width}({TILE}) {SMALL}"
        )
        of = VectorType(ir, self._dtype, width)
        rows = [_times_constant(ir, "%down", i) for i in range(height)]
        starts = [_moved_pointer(ir, "%a", self._real, row) for row in rows]
        sums = [of.carried() for _ in range(height)]
        with ir.loop("%k", sums) as p:
            vector = of.loaded(
                _moved_pointer(ir, "%b", self._real, _mul(ir, p, "%ldb"))
            )
            along = _mul(ir, p, "%across")
            for start, each in zip(starts, sums, strict=True):
                x = of.of_one(_moved_pointer(ir, start, self._real, along))
                ir.line(f"{each.next} = {of.plus_as(each.phi, of.times(x, vector))}")
        ends = [_times_constant(ir, "%ldc", i) for i in range(height)]
        places = [_moved_pointer(ir, "%c", self._real, end) for end in ends]
        self._end(ir, of, places, [each.phi for each in sums])
        return ir

    def _end(
        self,
        ir: FunctionBuilder,
        of: VectorType,
        places: Sequence[str],
        sums: Sequence[str],
    ) -> None:
        """Write sums to their places, added to beta times the old content."""
        is_fresh = ir.emit(f"fcmp oeq {self._real} %beta, 0.0")
        with ir.if_then(is_fresh):
            for place, total in zip(places, sums, strict=True):
                of.stored(total, place)
        with ir.if_then(ir.emit(f"xor i1 {is_fresh}, true")):
            beta = of.repeated("%beta")
            for place, total in zip(places, sums, strict=True):
                old = of.times(of.loaded(place), beta)
                of.stored(of.plus(total, old), place)

    def _panel(self, width: int) -> FunctionBuilder:
        """Write a function of all rows, and as many columns of the result."""
        ir = FunctionBuilder(f"internal i1 @panel.SUFFIX.{width}({PANEL}) {SMALL}")
        room = TERMS * width * BYTES[self._dtype]
        copy = ir.alloca(room, 64)
        has_many = ir.emit(f"icmp sge i64 %m, {MANY_ROWS}")
        is_copied = ir.emit(f"or i1 %tb, {has_many}")
        with ir.if_then("%tb"):
            given = f"i64 %k, ptr %b, i64 %ldb, ptr {copy}, i64 {width}"
            ir.line(f"call i1 @turned.SUFFIX({given})")
        is_straight = ir.emit(f"xor i1 {is_copied}, %tb")
        with ir.if_then(is_straight):
            self._copied(ir, copy, width)
        b = ir.emit(f"select i1 {is_copied}, ptr {copy}, ptr %b")
        ldb = ir.emit(f"select i1 {is_copied}, i64 {width}, i64 %ldb")
        done = "0"
        for height in self._heights:
            left = ir.emit(f"sub i64 %m, {done}")
            count = ir.emit(f"udiv i64 {left}, {height}")
            with ir.loop(count) as i:
                row = ir.emit(f"add i64 {done}, {_mul(ir, i, height)}")
                a = _moved_pointer(ir, "%a", self._real, _mul(ir, row, "%down"))
                c = _moved_pointer(ir, "%c", self._real, _mul(ir, row, "%ldc"))
                given = (
                    f"i64 %k, ptr {a}, i64 %down, i64 %across, ptr {b}, i64 {ldb}, "
                    f"REAL %beta, ptr {c}, i64 %ldc"
                )
                ir.line(f"call i1 @tile.SUFFIX.{height}x{width}({given})")
            done = ir.emit(f"add i64 {done}, {_mul(ir, count, height)}")
        return ir

    def _copied(self, ir: FunctionBuilder, copy: str, width: int) -> None:
        """Write the copy of a panel, row by row."""
        of = VectorType(ir, self._dtype, width)
        with ir.loop("%k") as p:
            row = of.loaded(_moved_pointer(ir, "%b", self._real, _mul(ir, p, "%ldb")))
            of.stored(row, _moved_pointer(ir, copy, self._real, _mul(ir, p, width)))

    def _copied_turned(self) -> FunctionBuilder:
        """Write a function that copies a panel that lies transposed.

        It goes four by four, then over the rest.
        """
        ir = FunctionBuilder(f"internal i1 @turned.SUFFIX({TURNED}) {SMALL}")
        fours, wide = (ir.emit(f"udiv i64 {n}, {LEAST_WIDTH}") for n in ("%k", "%n"))
        with ir.loop(fours) as q, ir.loop(wide) as r:
            p, j = (_mul(ir, each, LEAST_WIDTH) for each in (q, r))
            self._turned(ir, p, j)
        done = _mul(ir, fours, LEAST_WIDTH)
        with ir.loop("%k", start=done) as p, ir.loop("%n") as j:
            place = ir.emit(f"add i64 {_mul(ir, j, '%ldb')}, {p}")
            one = VectorType(ir, self._dtype, 1)
            x = one.loaded(_moved_pointer(ir, "%b", self._real, place))
            to = ir.emit(f"add i64 {_mul(ir, p, '%n')}, {j}")
            one.stored(x, _moved_pointer(ir, "%copy", self._real, to))
        return ir

    def _turned(self, ir: FunctionBuilder, p: str, j: str) -> None:
        """Write the copy of four by four entries."""
        of = VectorType(ir, self._dtype, LEAST_WIDTH)
        rows = []
        for i in range(LEAST_WIDTH):
            row = ir.emit(f"add i64 {j}, {i}")
            place = ir.emit(f"add i64 {_mul(ir, row, '%ldb')}, {p}")
            rows.append(of.loaded(_moved_pointer(ir, "%b", self._real, place)))
        for _ in range(2):  # of two rows the first halves in turn, and the second ones
            pairs = [(rows[i], rows[i + 2]) for i in range(2)]
            rows = [of.mixed(*pair, first) for pair in pairs for first in (0, 2)]
        for i, row in enumerate(rows):
            line = ir.emit(f"add i64 {p}, {i}")
            to = ir.emit(f"add i64 {_mul(ir, line, '%n')}, {j}")
            of.stored(row, _moved_pointer(ir, "%copy", self._real, to))

    def _dots(self) -> FunctionBuilder:
        """Write a function of one column, whose terms lie one after another in a."""
        ir = FunctionBuilder(f"internal i1 @dots.SUFFIX({COLUMN}) {SMALL}")
        real, lanes = self._real, self._lanes
        copy = ir.alloca(TERMS * BYTES[self._dtype], 64)
        is_apart = ir.emit("icmp ne i64 %bdown, 1")
        with ir.if_then(is_apart), ir.loop("%k") as p:
            at = _moved_pointer(ir, "%b", real, _mul(ir, p, "%bdown"))
            x = ir.emit(f"load {real}, ptr {at}")
            ir.line(f"store {real} {x}, ptr {_moved_pointer(ir, copy, real, p)}")
        b = ir.emit(f"select i1 {is_apart}, ptr {copy}, ptr %b")
        vectors = ir.emit(f"udiv i64 %k, {lanes}")
        done = _mul(ir, vectors, lanes)
        start = "0"
        for height in (ROWS_OF_DOTS, 1):
            left = ir.emit(f"sub i64 %m, {start}")
            count = ir.emit(f"udiv i64 {left}, {height}")
            with ir.loop(count) as i:
                first = ir.emit(f"add i64 {start}, {_mul(ir, i, height)}")
                rows = [ir.emit(f"add i64 {first}, {h}") for h in range(height)]
                self._some_dots(ir, rows, b, (vectors, done))
            start = ir.emit(f"add i64 {start}, {_mul(ir, count, height)}")
        return ir

    def _some_dots(
        self,
        ir: FunctionBuilder,
        rows: Sequence[str],
        b: str,
        vectors: tuple[str, str],
    ) -> None:
        """Write the sums of some rows, by vectors and then by single terms."""
        real = self._real
        starts = [_moved_pointer(ir, "%a", real, _mul(ir, row, "%lda")) for row in rows]
        of, one = (VectorType(ir, self._dtype, n) for n in (self._lanes, 1))
        sums = [of.carried() for _ in rows]
        with ir.loop(vectors[0], sums) as q:
            p = _mul(ir, q, self._lanes)
            y = of.loaded(_moved_pointer(ir, b, real, p))
            for at, each in zip(starts, sums, strict=True):
                x = of.loaded(_moved_pointer(ir, at, real, p))
                ir.line(f"{each.next} = {of.plus_as(each.phi, of.times(x, y))}")
        totals = [one.carried(of.total(each.phi)) for each in sums]
        with ir.loop("%k", totals, start=vectors[1]) as p:
            y = one.loaded(_moved_pointer(ir, b, real, p))
            for at, each in zip(starts, totals, strict=True):
                x = one.loaded(_moved_pointer(ir, at, real, p))
                ir.line(f"{each.next} = {one.plus_as(each.phi, one.times(x, y))}")
        places = [_moved_pointer(ir, "%c", real, _mul(ir, row, "%ldc")) for row in rows]
        self._end(ir, one, places, [each.phi for each in totals])

    def _along_rows(self) -> FunctionBuilder:
        """Write a function of one column, where rows lie one after another in a."""
        ir = FunctionBuilder(f"internal i1 @along.SUFFIX({COLUMN}) {SMALL}")
        one = VectorType(ir, self._dtype, 1)
        copy = ir.alloca(self._lanes * 2 * BYTES[self._dtype], 64)
        start = "0"
        for width in (2 * self._lanes, self._lanes, 1):
            of = VectorType(ir, self._dtype, width)
            left = ir.emit(f"sub i64 %m, {start}")
            count = ir.emit(f"udiv i64 {left}, {width}")
            with ir.loop(count) as i:
                row = ir.emit(f"add i64 {start}, {_mul(ir, i, width)}")
                first = _moved_pointer(ir, "%a", self._real, row)
                total = of.carried()
                with ir.loop("%k", [total]) as p:
                    at = _moved_pointer(ir, first, self._real, _mul(ir, p, "%lda"))
                    y = _moved_pointer(ir, "%b", self._real, _mul(ir, p, "%bdown"))
                    term = of.times(of.loaded(at), of.of_one(y))
                    ir.line(f"{total.next} = {of.plus_as(total.phi, term)}")
                c = _moved_pointer(ir, "%c", self._real, _mul(ir, row, "%ldc"))
                of.stored(total.phi, copy)
                with ir.loop(str(width)) as k:
                    end = _moved_pointer(ir, c, self._real, _mul(ir, k, "%ldc"))
                    result = one.loaded(_moved_pointer(ir, copy, self._real, k))
                    self._end(ir, one, [end], [result])
            start = ir.emit(f"add i64 {start}, {_mul(ir, count, width)}")
        return ir

    def _product(self) -> FunctionBuilder:
        """Write the product of any sizes."""
        ir = FunctionBuilder("internal i1 @tiled.SUFFIX(PARAMETERS) noinline nounwind")
        real = self._real
        down = ir.emit("select i1 %ta, i64 1, i64 %lda")
        across = ir.emit("select i1 %ta, i64 %lda, i64 1")
        b_down = ir.emit("select i1 %tb, i64 1, i64 %ldb")
        b_along = ir.emit("select i1 %tb, i64 %ldb, i64 1")
        over = ir.emit(f"add i64 %k, {TERMS - 1}")
        with ir.loop(ir.emit(f"udiv i64 {over}, {TERMS}")) as block:
            first = _mul(ir, block, TERMS)
            left = ir.emit(f"sub i64 %k, {first}")
            is_last = ir.emit(f"icmp slt i64 {left}, {TERMS}")
            terms = ir.emit(f"select i1 {is_last}, i64 {left}, i64 {TERMS}")
            is_first = ir.emit(f"icmp eq i64 {block}, 0")
            beta = ir.emit(f"select i1 {is_first}, {real} %beta, {real} 1.0")
            a = _moved_pointer(ir, "%a", real, _mul(ir, first, across))
            b = _moved_pointer(ir, "%b", real, _mul(ir, first, b_down))
            done = "0"
            for width in self._widths:
                columns = ir.emit(f"sub i64 %n, {done}")
                count = ir.emit(f"udiv i64 {columns}, {width}")
                with ir.loop(count) as i:
                    j = ir.emit(f"add i64 {done}, {_mul(ir, i, width)}")
                    here = _moved_pointer(ir, b, real, _mul(ir, j, b_along))
                    c = _moved_pointer(ir, "%c", real, j)
                    given = (
                        f"i64 %m, i64 {terms}, ptr {a}, i64 {down}, i64 {across}, "
                        f"i1 %tb, ptr {here}, i64 %ldb, {real} {beta}, ptr {c}, "
                        "i64 %ldc"
                    )
                    ir.line(f"call i1 @panel.SUFFIX.{width}({given})")
                done = ir.emit(f"add i64 {done}, {_mul(ir, count, width)}")
            with ir.loop("%n", start=done) as j:
                here = _moved_pointer(ir, b, real, _mul(ir, j, b_along))
                c = _moved_pointer(ir, "%c", real, j)
                given = (
                    f"i64 %m, i64 {terms}, ptr {a}, i64 %lda, ptr {here}, "
                    f"i64 {b_down}, {real} {beta}, ptr {c}, i64 %ldc"
                )
                with ir.if_then("%ta"):
                    ir.line(f"call i1 @along.SUFFIX({given})")
                with ir.if_then(ir.emit("xor i1 %ta, true")):
                    ir.line(f"call i1 @dots.SUFFIX({given})")
        return ir


SMALL = "noinline nounwind"
"""Attributes of the functions that a product calls."""


def _mul(ir: FunctionBuilder, a: str, b: str | int) -> str:
    return ir.emit(f"mul i64 {a}, {b}")


def _times_constant(ir: FunctionBuilder, a: str, count: int) -> str:
    """Return a number times a fixed one."""
    return "0" if not count else a if count == 1 else _mul(ir, a, count)


def _moved_pointer(ir: FunctionBuilder, base: str, real: str, steps: str) -> str:
    if steps == "0":
        return base
    return ir.emit(f"getelementptr inbounds {real}, ptr {base}, i64 {steps}", "p")
