"""Products of matrices as LLVM text, each a call of a library's function."""

from __future__ import annotations

import re
from typing import NamedTuple

TYPES = {"float32": ("float", "f32"), "float64": ("double", "f64")}
"""LLVM's types, and the endings of its function names."""


class Convention(NamedTuple):
    """The calling convention of a library's function.

    Attributes:
        flag: the type of the flags that tell whether a matrix is transposed.
        order: the value of that type for matrices stored row by row, if there is one.
        plain, transposed: the values of a flag.
        size: the type of sizes and leading dimensions.
        result: ``i32`` where a result other than zero tells that nothing was done.
    """

    flag: str
    order: int | None
    plain: int
    transposed: int
    size: str
    result: str


CBLAS = Convention("i32", 101, 111, 112, "i32", "void")
CONVENTIONS = {
    "mkl": CBLAS,
    "onednn": Convention("i8 signext", None, ord("N"), ord("T"), "i64", "i32"),
    "openblas": CBLAS._replace(size="i64"),
}
"""Conventions by library. oneDNN's matrices are always row-major."""

PARAMETERS = (
    "i1 %ta, i1 %tb, i64 %m, i64 %n, i64 %k, ptr %a, i64 %lda, ptr %b, i64 %ldb, "
    "REAL %beta, ptr %c, i64 %ldc"
)
BATCH_ENTRY_ARGUMENTS = re.sub(r"ptr (%.)", r"ptr \1.here", PARAMETERS)
"""The parameters of one among many products."""

LARGEST = 2**31 - 1


def symbol(name: str, dtype: str) -> str:
    """Return the name by which texts call a library's function."""
    return f"paddle_chainrules.{name}.{TYPES[dtype][1]}"


def signature(name: str, dtype: str) -> list[str]:
    """Return the types that a library's function takes."""
    real, _ = TYPES[dtype]
    convention = CONVENTIONS[name]
    flags = [convention.flag] * (2 if convention.order is None else 3)
    matrix = ["ptr", convention.size]
    return [*flags, *[convention.size] * 3, real, *matrix, *matrix, real, *matrix]


OWN = "own"
"""The name of the products of :mod:`.tiled`, which replace a library's."""

SMALL_GEMM_TWO_DIMS = 64
"""The most rows, columns or terms of a small product: two of these are no more."""

SMALL_GEMM_ALL_DIMS = 256
"""The same of all three, where the library would take one thread."""


def product_text(
    name: str,
    dtype: str,
    has_tiles: bool = False,
    max_small_size: int = SMALL_GEMM_TWO_DIMS,
) -> str:
    """Return functions that multiply by a library: one product, or many of one shape.

    ``void @product.f32(i1 ta, i1 tb, i64 m, i64 n, i64 k, ptr a, i64 lda, ptr b, i64
    ldb, float beta, ptr c, i64 ldc)`` makes ``c = op(a) @ op(b) + beta * c`` of
    row-major matrices, ``op(a)`` of shape (m, k) and ``op(b)`` of (k, n).
    With ``ta`` the matrix at ``a`` is (k, m), with ``tb`` the matrix at ``b`` is (n,
    k). ``c`` overlaps neither. Its old content does not matter where beta is zero. The
    leading dimension of a single row does not matter; rows that overlap (a smaller one
    than they are long) are multiplied slowly, but right.

    ``void @products.f32(i64 count, i64 stride_a, i64 stride_b, i64 stride_c, ...)``
    computes ``count`` products, of matrices that are these numbers of entries apart.

    For float64 they are ``@product.f64`` and ``@products.f64``. Plain loops compute
    products that a library can't compute (no terms, sizes beyond its integers) or
    refuses.

    Args:
        name: the library, or ``own`` for none.
        has_tiles: whether small products are those of :mod:`.tiled`. The module then
            has their function, or :func:`tiles_declaration`.
        max_small_size: products whose sizes are all no larger than this are small.
    """
    texts = [PLAIN, _product_text(name, dtype, has_tiles, max_small_size), PRODUCTS]
    if name != OWN:
        texts.insert(0, _declaration(name, dtype))
    return fill_placeholders("\n".join(texts), dtype)


def tiles_declaration(dtype: str) -> str:
    """Return the declaration of the function of :mod:`.tiled` that products call."""
    return fill_placeholders(
        f"declare i1 @{symbol(OWN, dtype)}(PARAMETERS) nounwind", dtype
    )


def fill_placeholders(text: str, dtype: str) -> str:
    """Return a text with its placeholders filled for one dtype."""
    real, suffix = TYPES[dtype]
    result = text.replace("PARAMETERS", PARAMETERS).replace(
        "HERE", BATCH_ENTRY_ARGUMENTS
    )
    return result.replace("REAL", real).replace("SUFFIX", suffix)


def _declaration(name: str, dtype: str) -> str:
    types = ", ".join(signature(name, dtype))
    return (
        f"declare {CONVENTIONS[name].result} @{symbol(name, dtype)}({types}) nounwind"
    )


PLAIN = """
define internal void @product.SUFFIX.plain(PARAMETERS) noinline cold optsize nounwind {
entry:
  %a.down = select i1 %ta, i64 1, i64 %lda
  %a.along = select i1 %ta, i64 %lda, i64 1
  %b.down = select i1 %tb, i64 1, i64 %ldb
  %b.along = select i1 %tb, i64 %ldb, i64 1
  %fresh = fcmp oeq REAL %beta, 0.0
  br label %rows
rows:
  %i = phi i64 [ 0, %entry ], [ %i.next, %row.done ]
  %i.more = icmp slt i64 %i, %m
  br i1 %i.more, label %row, label %done
row:
  %i.next = add nsw i64 %i, 1
  %a.offset = mul i64 %i, %a.down
  %a.row = getelementptr REAL, ptr %a, i64 %a.offset
  %c.offset = mul i64 %i, %ldc
  %c.row = getelementptr REAL, ptr %c, i64 %c.offset
  br label %columns
columns:
  %j = phi i64 [ 0, %row ], [ %j.next, %stored ]
  %j.more = icmp slt i64 %j, %n
  br i1 %j.more, label %column, label %row.done
column:
  %j.next = add nsw i64 %j, 1
  %b.offset = mul i64 %j, %b.along
  %b.column = getelementptr REAL, ptr %b, i64 %b.offset
  br label %terms
terms:
  %p = phi i64 [ 0, %column ], [ %p.next, %term ]
  %sum = phi REAL [ 0.0, %column ], [ %sum.next, %term ]
  %p.more = icmp slt i64 %p, %k
  br i1 %p.more, label %term, label %summed
term:
  %p.next = add nsw i64 %p, 1
  %a.place = mul i64 %p, %a.along
  %a.p = getelementptr REAL, ptr %a.row, i64 %a.place
  %a.x = load REAL, ptr %a.p
  %b.place = mul i64 %p, %b.down
  %b.p = getelementptr REAL, ptr %b.column, i64 %b.place
  %b.x = load REAL, ptr %b.p
  %both = fmul REAL %a.x, %b.x
  %sum.next = fadd REAL %sum, %both
  br label %terms
summed:
  %c.p = getelementptr REAL, ptr %c.row, i64 %j
  br i1 %fresh, label %stored, label %kept
kept:
  %c.x = load REAL, ptr %c.p
  %c.part = fmul REAL %beta, %c.x
  %c.sum = fadd REAL %sum, %c.part
  br label %stored
stored:
  %c.new = phi REAL [ %sum, %summed ], [ %c.sum, %kept ]
  store REAL %c.new, ptr %c.p
  br label %columns
row.done:
  br label %rows
done:
  ret void
}
"""

PRODUCTS = """
define internal void @products.SUFFIX(i64 %count, i64 %stride_a, i64 %stride_b, \
i64 %stride_c, PARAMETERS) alwaysinline nounwind {
entry:
  br label %all
all:
  %i = phi i64 [ 0, %entry ], [ %next, %each ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %each, label %done
each:
  %next = add nsw i64 %i, 1
  %a.offset = mul i64 %i, %stride_a
  %a.here = getelementptr REAL, ptr %a, i64 %a.offset
  %b.offset = mul i64 %i, %stride_b
  %b.here = getelementptr REAL, ptr %b, i64 %b.offset
  %c.offset = mul i64 %i, %stride_c
  %c.here = getelementptr REAL, ptr %c, i64 %c.offset
  call void @product.SUFFIX(HERE)
  br label %all
done:
  ret void
}
"""

MATRIX_SIZES = {
    "a": ("select i1 %ta, i64 %k, i64 %m", "select i1 %ta, i64 %m, i64 %k"),
    "b": ("select i1 %tb, i64 %n, i64 %k", "select i1 %tb, i64 %k, i64 %n"),
    "c": ("add i64 %m, 0", "add i64 %n, 0"),
}
"""The number of rows of each matrix in memory, and their lengths."""


def _product_text(name: str, dtype: str, has_tiles: bool, max_small_size: int) -> str:
    unfit: list[str] = []
    lines = ["define internal void @product.SUFFIX(PARAMETERS) alwaysinline nounwind {"]
    lines += ["entry:"]
    if name == OWN:
        lines += ["%k.none = icmp slt i64 %k, 1"]
        lines += ["br i1 %k.none, label %plain, label %tiles"]
        return "\n".join([*lines, *_tiles_lines(dtype), *ENDS])
    convention = CONVENTIONS[name]
    for size in ("m", "n", "k"):
        lines.append(f"%{size}.none = icmp slt i64 %{size}, 1")
        if has_tiles:
            lines.append(f"%{size}.few = icmp sle i64 %{size}, {SMALL_GEMM_TWO_DIMS}")
            lines.append(f"%{size}.some = icmp sle i64 %{size}, {max_small_size}")
        unfit.append(f"%{size}.none")
    for x, (rows, length) in MATRIX_SIZES.items():
        lines += [
            f"%{x}.rows = {rows}",
            f"%{x}.length = {length}",
            f"%{x}.short = icmp slt i64 %ld{x}, %{x}.length",
            f"%{x}.many = icmp ne i64 %{x}.rows, 1",
            f"%{x}.ld = select i1 %{x}.many, i64 %ld{x}, i64 %{x}.length",
            f"%{x}.overlaps = and i1 %{x}.short, %{x}.many",
        ]
        unfit.append(f"%{x}.overlaps")
    sizes = ["%m", "%n", "%k", "%a.ld", "%b.ld", "%c.ld"]
    if convention.size == "i32":
        for i, size in enumerate(sizes):
            lines += [
                f"%large{i} = icmp sgt i64 {size}, {LARGEST}",
                f"%narrow{i} = trunc i64 {size} to i32",
            ]
            unfit.append(f"%large{i}")
        sizes = [f"%narrow{i}" for i in range(len(sizes))]
    lines.append(f"%unfit0 = or i1 {unfit[0]}, {unfit[1]}")
    for i, flag in enumerate(unfit[2:]):
        lines.append(f"%unfit{i + 1} = or i1 %unfit{i}, {flag}")
    flag = convention.flag.split()[0]
    values = [] if convention.order is None else [str(convention.order)]
    for x in ("ta", "tb"):
        choice = f"{flag} {convention.transposed}, {flag} {convention.plain}"
        lines.append(f"%{x}.flag = select i1 %{x}, {choice}")
        values.append(f"%{x}.flag")
    m, n, k, lda, ldb, ldc = sizes
    values += [m, n, k, "1.0", "%a", lda, "%b", ldb, "%beta", "%c", ldc]
    types = signature(name, dtype)
    args = ", ".join(f"{t} {v}" for t, v in zip(types, values, strict=True))
    call = f"call {convention.result} @{symbol(name, dtype)}({args})"
    if convention.result == "void":
        call_lines = [call, "br label %done"]
    else:
        # Refused before anything is written: an argument, or no memory for copies.
        call_lines = [
            f"%status = {call}",
            "%refused = icmp ne i32 %status, 0",
            "br i1 %refused, label %plain, label %done",
        ]
    lines += [f"br i1 %unfit{len(unfit) - 2}, label %plain, label %fit", "fit:"]
    if has_tiles:
        for a, b in (("m", "n"), ("m", "k"), ("n", "k")):
            lines += [f"%{a}{b}.few = and i1 %{a}.few, %{b}.few"]
        lines += [
            "%some.few = or i1 %mn.few, %mk.few",
            "%two.few = or i1 %some.few, %nk.few",
            "%mn.some = and i1 %m.some, %n.some",
            "%all.some = and i1 %mn.some, %k.some",
            "%are.small = or i1 %two.few, %all.some",
            "br i1 %are.small, label %tiles, label %ask",
            *_tiles_lines(dtype),
        ]
    else:
        lines += ["br label %ask"]
    return "\n".join([*lines, "ask:", *call_lines, *ENDS])


def _tiles_lines(dtype: str) -> list[str]:
    """Return the lines that have a product computed in tiles."""
    call = f"call i1 @{symbol(OWN, dtype)}(PARAMETERS)"
    return ["tiles:", call, "br label %done"]


ENDS = [
    "plain:",
    "call void @product.SUFFIX.plain(PARAMETERS)",
    "br label %done",
    "done:",
    "ret void",
    "}",
]
