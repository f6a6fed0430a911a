"""Products of matrices as machine code of our own: tiles that stay in registers.

A row of tiles uses a panel of the second factor, as many columns as two vectors
hold. A transposed factor is copied panel by panel, and so is one that many
rows need, whose own rows may map to few sets of the cache. Each entry adds its terms
in their order, one after another, so a row has the same bits among few rows and many.
Of the last one to three columns, vectors go along the terms instead, or along the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir_builder import BYTES, TYPES, FunctionBuilder
from ..processor import VectorRegisters, registers
from .gemm import fill_placeholders
from .vectors import VectorType

MAX_PANEL_TERMS = 256
"""The most terms of a panel, so that it stays in the cache."""

MIN_COPY_ROWS = 48
"""The rows from which on a panel is copied though it is not transposed."""

MIN_PANEL_WIDTH = 4
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


def tiled_product_text(dtype: str, name: str) -> str:
    """Return the functions of a dtype; the one that others call has this name.

    It is ``i1 @name(i1 ta, i1 tb, i64 m, ...)``, with the parameters that
    :func:`.gemm.product_text` describes and at least one term.
    """
    emitter = _KernelEmitter(dtype, registers())
    texts = "\n".join(map(str, emitter.texts()))
    return fill_placeholders(
        texts.replace("internal i1 @tiled.SUFFIX", f"i1 @{name}"), dtype
    )


class _KernelEmitter:
    """The functions of one dtype, for one kind of registers."""

    def __init__(self, dtype: str, vector_registers: VectorRegisters) -> None:
        self._dtype, self._real = dtype, TYPES[dtype]
        self._lanes = vector_registers.bytes // BYTES[dtype]
        self._heights = (6, 2, 1) if vector_registers.number < 32 else (12, 4, 1)
        widths = [2 * self._lanes]
        while widths[-1] > MIN_PANEL_WIDTH:
            widths.append(widths[-1] // 2)
        self._widths = [w for w in widths if w >= MIN_PANEL_WIDTH]

    def texts(self) -> list[FunctionBuilder]:
        """Return the functions; the last one is ``@tiled``."""
        tiles = [self._build_tile(h, w) for w in self._widths for h in self._heights]
        panels = [self._build_panel(w) for w in self._widths]
        helpers = (
            self._build_transposing_copy(),
            self._build_dots(),
            self._build_row_sums(),
        )
        return [*tiles, *panels, *helpers, self._build_product()]

    def _build_tile(self, height: int, width: int) -> FunctionBuilder:
        """Emit a function of some rows and columns of the result."""
        ir = FunctionBuilder(
            f"internal i1 @tile.SUFFIX.{height}x{width}({TILE}) {HELPER_ATTRIBUTES}"
        )
        vec = VectorType(ir, self._dtype, width)
        rows = [_times_constant(ir, "%down", i) for i in range(height)]
        starts = [_element_address(ir, "%a", self._real, row) for row in rows]
        sums = [vec.carried_sum() for _ in range(height)]
        with ir.loop("%k", sums) as term:
            vector = vec.load(
                _element_address(ir, "%b", self._real, _mul(ir, term, "%ldb"))
            )
            term_offset = _mul(ir, term, "%across")
            for start, carry in zip(starts, sums, strict=True):
                x = vec.load_broadcast(
                    _element_address(ir, start, self._real, term_offset)
                )
                ir.line(
                    f"{carry.next} = "
                    f"{vec.add_instruction(carry.phi, vec.multiply(x, vector))}"
                )
        row_offsets = [_times_constant(ir, "%ldc", i) for i in range(height)]
        result_rows = [
            _element_address(ir, "%c", self._real, row_offset)
            for row_offset in row_offsets
        ]
        self._emit_result(ir, vec, result_rows, [carry.phi for carry in sums])
        return ir

    def _emit_result(
        self,
        ir: FunctionBuilder,
        vec: VectorType,
        addresses: Sequence[str],
        sums: Sequence[str],
    ) -> None:
        """Emit sums to the result, added to beta times the old content."""
        is_fresh = ir.emit(f"fcmp oeq {self._real} %beta, 0.0")
        with ir.if_then(is_fresh):
            for address, total in zip(addresses, sums, strict=True):
                vec.store(total, address)
        with ir.if_then(ir.emit(f"xor i1 {is_fresh}, true")):
            beta = vec.broadcast("%beta")
            for address, total in zip(addresses, sums, strict=True):
                old = vec.multiply(vec.load(address), beta)
                vec.store(vec.add(total, old), address)

    def _build_panel(self, width: int) -> FunctionBuilder:
        """Emit a function of all rows, and as many columns of the result."""
        ir = FunctionBuilder(
            f"internal i1 @panel.SUFFIX.{width}({PANEL}) {HELPER_ATTRIBUTES}"
        )
        copy_bytes = MAX_PANEL_TERMS * width * BYTES[self._dtype]
        copy = ir.alloca(copy_bytes, 64)
        has_many = ir.emit(f"icmp sge i64 %m, {MIN_COPY_ROWS}")
        is_copied = ir.emit(f"or i1 %tb, {has_many}")
        with ir.if_then("%tb"):
            args = f"i64 %k, ptr %b, i64 %ldb, ptr {copy}, i64 {width}"
            ir.line(f"call i1 @turned.SUFFIX({args})")
        is_straight = ir.emit(f"xor i1 {is_copied}, %tb")
        with ir.if_then(is_straight):
            self._emit_panel_copy(ir, copy, width)
        b = ir.emit(f"select i1 {is_copied}, ptr {copy}, ptr %b")
        ldb = ir.emit(f"select i1 {is_copied}, i64 {width}, i64 %ldb")
        first_row = "0"
        for height in self._heights:
            remaining = ir.emit(f"sub i64 %m, {first_row}")
            count = ir.emit(f"udiv i64 {remaining}, {height}")
            with ir.loop(count) as i:
                row = ir.emit(f"add i64 {first_row}, {_mul(ir, i, height)}")
                a = _element_address(ir, "%a", self._real, _mul(ir, row, "%down"))
                c = _element_address(ir, "%c", self._real, _mul(ir, row, "%ldc"))
                args = (
                    f"i64 %k, ptr {a}, i64 %down, i64 %across, ptr {b}, i64 {ldb}, "
                    f"REAL %beta, ptr {c}, i64 %ldc"
                )
                ir.line(f"call i1 @tile.SUFFIX.{height}x{width}({args})")
            first_row = ir.emit(f"add i64 {first_row}, {_mul(ir, count, height)}")
        return ir

    def _emit_panel_copy(self, ir: FunctionBuilder, copy: str, width: int) -> None:
        """Emit the copy of a panel, row by row."""
        vec = VectorType(ir, self._dtype, width)
        with ir.loop("%k") as p:
            row = vec.load(_element_address(ir, "%b", self._real, _mul(ir, p, "%ldb")))
            vec.store(row, _element_address(ir, copy, self._real, _mul(ir, p, width)))

    def _build_transposing_copy(self) -> FunctionBuilder:
        """Emit a function that copies a transposed panel.

        It copies blocks of four by four, then the remainder.
        """
        ir = FunctionBuilder(
            f"internal i1 @turned.SUFFIX({TURNED}) {HELPER_ATTRIBUTES}"
        )
        fours, wide = (
            ir.emit(f"udiv i64 {n}, {MIN_PANEL_WIDTH}") for n in ("%k", "%n")
        )
        with ir.loop(fours) as q, ir.loop(wide) as r:
            p, j = (_mul(ir, block_index, MIN_PANEL_WIDTH) for block_index in (q, r))
            self._emit_transposed_block(ir, p, j)
        first_term = _mul(ir, fours, MIN_PANEL_WIDTH)
        with ir.loop("%k", start=first_term) as p, ir.loop("%n") as j:
            source = ir.emit(f"add i64 {_mul(ir, j, '%ldb')}, {p}")
            scalar = VectorType(ir, self._dtype, 1)
            x = scalar.load(_element_address(ir, "%b", self._real, source))
            target = ir.emit(f"add i64 {_mul(ir, p, '%n')}, {j}")
            scalar.store(x, _element_address(ir, "%copy", self._real, target))
        return ir

    def _emit_transposed_block(self, ir: FunctionBuilder, p: str, j: str) -> None:
        """Emit the copy of four by four entries."""
        vec = VectorType(ir, self._dtype, MIN_PANEL_WIDTH)
        rows = []
        for i in range(MIN_PANEL_WIDTH):
            row = ir.emit(f"add i64 {j}, {i}")
            source = ir.emit(f"add i64 {_mul(ir, row, '%ldb')}, {p}")
            rows.append(vec.load(_element_address(ir, "%b", self._real, source)))
        for _ in range(2):  # of two rows the first halves in turn, and the second ones
            pairs = [(rows[i], rows[i + 2]) for i in range(2)]
            rows = [vec.interleave(*pair, first) for pair in pairs for first in (0, 2)]
        for i, row in enumerate(rows):
            target_row = ir.emit(f"add i64 {p}, {i}")
            target = ir.emit(f"add i64 {_mul(ir, target_row, '%n')}, {j}")
            vec.store(row, _element_address(ir, "%copy", self._real, target))

    def _build_dots(self) -> FunctionBuilder:
        """Emit a function of one column, whose terms are contiguous in a."""
        ir = FunctionBuilder(f"internal i1 @dots.SUFFIX({COLUMN}) {HELPER_ATTRIBUTES}")
        real, lanes = self._real, self._lanes
        copy = ir.alloca(MAX_PANEL_TERMS * BYTES[self._dtype], 64)
        is_strided = ir.emit("icmp ne i64 %bdown, 1")
        with ir.if_then(is_strided), ir.loop("%k") as p:
            source = _element_address(ir, "%b", real, _mul(ir, p, "%bdown"))
            x = ir.emit(f"load {real}, ptr {source}")
            ir.line(f"store {real} {x}, ptr {_element_address(ir, copy, real, p)}")
        b = ir.emit(f"select i1 {is_strided}, ptr {copy}, ptr %b")
        vectors = ir.emit(f"udiv i64 %k, {lanes}")
        vector_terms = _mul(ir, vectors, lanes)
        start = "0"
        for height in (ROWS_OF_DOTS, 1):
            remaining = ir.emit(f"sub i64 %m, {start}")
            count = ir.emit(f"udiv i64 {remaining}, {height}")
            with ir.loop(count) as i:
                first_row = ir.emit(f"add i64 {start}, {_mul(ir, i, height)}")
                rows = [ir.emit(f"add i64 {first_row}, {h}") for h in range(height)]
                self._emit_dot_rows(ir, rows, b, (vectors, vector_terms))
            start = ir.emit(f"add i64 {start}, {_mul(ir, count, height)}")
        return ir

    def _emit_dot_rows(
        self,
        ir: FunctionBuilder,
        rows: Sequence[str],
        b: str,
        vectors: tuple[str, str],
    ) -> None:
        """Emit the sums of some rows, by vectors and then by single terms."""
        real = self._real
        starts = [
            _element_address(ir, "%a", real, _mul(ir, row, "%lda")) for row in rows
        ]
        vec, scalar = (VectorType(ir, self._dtype, n) for n in (self._lanes, 1))
        sums = [vec.carried_sum() for _ in rows]
        with ir.loop(vectors[0], sums) as q:
            p = _mul(ir, q, self._lanes)
            y = vec.load(_element_address(ir, b, real, p))
            for row_start, carry in zip(starts, sums, strict=True):
                x = vec.load(_element_address(ir, row_start, real, p))
                ir.line(
                    f"{carry.next} = "
                    f"{vec.add_instruction(carry.phi, vec.multiply(x, y))}"
                )
        totals = [scalar.carried_sum(vec.sum_lanes(carry.phi)) for carry in sums]
        with ir.loop("%k", totals, start=vectors[1]) as p:
            y = scalar.load(_element_address(ir, b, real, p))
            for row_start, carry in zip(starts, totals, strict=True):
                x = scalar.load(_element_address(ir, row_start, real, p))
                ir.line(
                    f"{carry.next} = "
                    f"{scalar.add_instruction(carry.phi, scalar.multiply(x, y))}"
                )
        result_entries = [
            _element_address(ir, "%c", real, _mul(ir, row, "%ldc")) for row in rows
        ]
        self._emit_result(ir, scalar, result_entries, [carry.phi for carry in totals])

    def _build_row_sums(self) -> FunctionBuilder:
        """Emit a function of one column, where rows are contiguous in a."""
        ir = FunctionBuilder(f"internal i1 @along.SUFFIX({COLUMN}) {HELPER_ATTRIBUTES}")
        scalar = VectorType(ir, self._dtype, 1)
        copy = ir.alloca(self._lanes * 2 * BYTES[self._dtype], 64)
        start = "0"
        for width in (2 * self._lanes, self._lanes, 1):
            vec = VectorType(ir, self._dtype, width)
            remaining = ir.emit(f"sub i64 %m, {start}")
            count = ir.emit(f"udiv i64 {remaining}, {width}")
            with ir.loop(count) as i:
                row = ir.emit(f"add i64 {start}, {_mul(ir, i, width)}")
                column = _element_address(ir, "%a", self._real, row)
                total = vec.carried_sum()
                with ir.loop("%k", [total]) as p:
                    source = _element_address(
                        ir, column, self._real, _mul(ir, p, "%lda")
                    )
                    y = _element_address(ir, "%b", self._real, _mul(ir, p, "%bdown"))
                    term = vec.multiply(vec.load(source), vec.load_broadcast(y))
                    ir.line(f"{total.next} = {vec.add_instruction(total.phi, term)}")
                c = _element_address(ir, "%c", self._real, _mul(ir, row, "%ldc"))
                vec.store(total.phi, copy)
                with ir.loop(str(width)) as k:
                    target = _element_address(ir, c, self._real, _mul(ir, k, "%ldc"))
                    result = scalar.load(_element_address(ir, copy, self._real, k))
                    self._emit_result(ir, scalar, [target], [result])
            start = ir.emit(f"add i64 {start}, {_mul(ir, count, width)}")
        return ir

    def _build_product(self) -> FunctionBuilder:
        """Emit the product of any sizes."""
        ir = FunctionBuilder("internal i1 @tiled.SUFFIX(PARAMETERS) noinline nounwind")
        real = self._real
        down = ir.emit("select i1 %ta, i64 1, i64 %lda")
        across = ir.emit("select i1 %ta, i64 %lda, i64 1")
        b_down = ir.emit("select i1 %tb, i64 1, i64 %ldb")
        b_along = ir.emit("select i1 %tb, i64 %ldb, i64 1")
        rounded_up = ir.emit(f"add i64 %k, {MAX_PANEL_TERMS - 1}")
        with ir.loop(ir.emit(f"udiv i64 {rounded_up}, {MAX_PANEL_TERMS}")) as block:
            first_term = _mul(ir, block, MAX_PANEL_TERMS)
            remaining = ir.emit(f"sub i64 %k, {first_term}")
            is_last = ir.emit(f"icmp slt i64 {remaining}, {MAX_PANEL_TERMS}")
            terms = ir.emit(
                f"select i1 {is_last}, i64 {remaining}, i64 {MAX_PANEL_TERMS}"
            )
            is_first = ir.emit(f"icmp eq i64 {block}, 0")
            beta = ir.emit(f"select i1 {is_first}, {real} %beta, {real} 1.0")
            a = _element_address(ir, "%a", real, _mul(ir, first_term, across))
            b = _element_address(ir, "%b", real, _mul(ir, first_term, b_down))
            first_column = "0"
            for width in self._widths:
                columns = ir.emit(f"sub i64 %n, {first_column}")
                count = ir.emit(f"udiv i64 {columns}, {width}")
                with ir.loop(count) as i:
                    j = ir.emit(f"add i64 {first_column}, {_mul(ir, i, width)}")
                    panel = _element_address(ir, b, real, _mul(ir, j, b_along))
                    c = _element_address(ir, "%c", real, j)
                    args = (
                        f"i64 %m, i64 {terms}, ptr {a}, i64 {down}, i64 {across}, "
                        f"i1 %tb, ptr {panel}, i64 %ldb, {real} {beta}, ptr {c}, "
                        "i64 %ldc"
                    )
                    ir.line(f"call i1 @panel.SUFFIX.{width}({args})")
                first_column = ir.emit(
                    f"add i64 {first_column}, {_mul(ir, count, width)}"
                )
            with ir.loop("%n", start=first_column) as j:
                panel = _element_address(ir, b, real, _mul(ir, j, b_along))
                c = _element_address(ir, "%c", real, j)
                args = (
                    f"i64 %m, i64 {terms}, ptr {a}, i64 %lda, ptr {panel}, "
                    f"i64 {b_down}, {real} {beta}, ptr {c}, i64 %ldc"
                )
                with ir.if_then("%ta"):
                    ir.line(f"call i1 @along.SUFFIX({args})")
                with ir.if_then(ir.emit("xor i1 %ta, true")):
                    ir.line(f"call i1 @dots.SUFFIX({args})")
        return ir


HELPER_ATTRIBUTES = "noinline nounwind"
"""Attributes of the functions that a product calls."""


def _mul(ir: FunctionBuilder, a: str, b: str | int) -> str:
    return ir.emit(f"mul i64 {a}, {b}")


def _times_constant(ir: FunctionBuilder, a: str, count: int) -> str:
    """Return a number times a fixed one."""
    return "0" if not count else a if count == 1 else _mul(ir, a, count)


def _element_address(ir: FunctionBuilder, base: str, real: str, offset: str) -> str:
    if offset == "0":
        return base
    return ir.emit(f"getelementptr inbounds {real}, ptr {base}, i64 {offset}", "p")
