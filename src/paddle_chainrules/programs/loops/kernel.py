"""A loop over elements as text of LLVM's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..operations import Value
from .groups import Group
from .scalars import TYPES, NoLoop, Read, Scalars, written

MOST = 3
"""Loops within loops."""

Dims = tuple[int, ...]


class Kernel(NamedTuple):
    """A function of numbers: extents, then addresses of inputs and of outputs.

    Attributes:
        text: the function, with ``@NAME`` for its name.
        extents: of each loop, the innermost last, which dimensions of the result it
            goes over.
        arity: how many numbers it takes.
    """

    text: str
    extents: tuple[Dims, ...]
    arity: int


METADATA = """
!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}
"""
"""No element is written before another is read, wherever the outputs are."""


def kernel(group: Group) -> Kernel:
    """The loops of a group.

    Raises:
        NoLoop: its tensors are broadcast in too many ways, or all of them along the
            same dimension.
    """
    extents, of, to = _loops(group)
    depth = len(extents)
    if depth > MOST:
        raise NoLoop
    names: dict[Read, str] = {}
    given, body = [f"i64 %n{k}" for k in range(depth)], []
    for i, (read, spanned) in enumerate(zip(group.reads, of, strict=True)):
        given.append(f"ptr %in{i}")
        names[read] = f"%in{i}.x"
        body += [*_place(f"in{i}", read[0], spanned), *_load(f"in{i}", read[0])]
    scalars = Scalars()
    for op in group.ops:
        out = op.outputs[0]
        names[out, out.shape] = written(op, names.__getitem__, scalars)
    body += scalars.lines
    for i, (out, spanned) in enumerate(zip(group.outputs, to, strict=True)):
        given.append(f"ptr %out{i}")
        body += _place(f"out{i}", out, spanned)
        scalar = names[out, out.shape]
        if out in group.sums:
            body += _add(f"out{i}", out, scalar, spanned)
        else:
            body += _store(f"out{i}", out, scalar)
    nest = _nest(depth, body, is_parallel=all(along[-1] for along in to))
    lines = [f"define void @NAME({', '.join(given)}) {{", *nest, "}"]
    return Kernel("\n".join(lines), extents, len(given))


Along = list[tuple[bool, ...]]


def _loops(group: Group) -> tuple[tuple[Dims, ...], Along, Along]:
    """The dimensions of each loop; of each read and each output along which it goes.

    Neighbours are one loop where all tensors go along both, or along neither.
    """
    shape, count = group.shape, len(group.reads)
    shapes = [read for _, read in group.reads] + [v.shape for v in group.outputs]
    dims: list[Dims] = []
    flags: list[tuple[bool, ...]] = []
    for i, n in enumerate(shape):
        if n == 1:
            continue
        here = tuple(spans(shape, each, i) for each in shapes)
        if not any(here[:count]):
            raise NoLoop
        if flags and flags[-1] == here:
            dims[-1] = (*dims[-1], i)
        else:
            dims.append((i,))
            flags.append(here)
    if not dims:
        dims, flags = [()], [(True,) * len(shapes)]
    along = [*zip(*flags, strict=True)]
    return tuple(dims), along[:count], along[count:]


def spans(shape: Sequence[int], read: Sequence[int], i: int) -> bool:
    """Whether what is broadcast to a shape goes along its dimension i."""
    k = i - len(shape) + len(read)
    return k >= 0 and read[k] == shape[i]


def _memory(value: Value) -> str:
    return "i8" if value.dtype == "bool" else TYPES[value.dtype]


def _place(name: str, value: Value, spanned: Sequence[bool]) -> list[str]:
    """``%name.p``, where an element is, by the places ``%i`` in the loops."""
    lines, place = [], "0"
    for k, flag in enumerate(spanned):
        if flag and place == "0":
            place = f"%i{k}"
        elif flag:
            lines.append(f"%{name}.m{k} = mul i64 {place}, %n{k}")
            lines.append(f"%{name}.o{k} = add i64 %{name}.m{k}, %i{k}")
            place = f"%{name}.o{k}"
    kind = _memory(value)
    lines.append(f"%{name}.p = getelementptr inbounds {kind}, ptr %{name}, i64 {place}")
    return lines


def _load(name: str, value: Value) -> list[str]:
    if value.dtype == "bool":
        byte = f"%{name}.b = load i8, ptr %{name}.p, !llvm.access.group !0"
        return [byte, f"%{name}.x = icmp ne i8 %{name}.b, 0"]
    kind = _memory(value)
    return [f"%{name}.x = load {kind}, ptr %{name}.p, !llvm.access.group !0"]


def _store(name: str, value: Value, scalar: str) -> list[str]:
    kind, lines = _memory(value), []
    if value.dtype == "bool":
        lines.append(f"%{name}.b = zext i1 {scalar} to i8")
        scalar = f"%{name}.b"
    return [*lines, f"store {kind} {scalar}, ptr %{name}.p, !llvm.access.group !0"]


def _add(name: str, value: Value, scalar: str, spanned: Sequence[bool]) -> list[str]:
    """To what was added before, at the first place to zero."""
    kind, group = TYPES[value.dtype], "!llvm.access.group !0"
    lines, first = [], "true"
    for k, flag in enumerate(spanned):
        if not flag:
            lines.append(f"%{name}.z{k} = icmp eq i64 %i{k}, 0")
            lines.append(f"%{name}.f{k} = and i1 {first}, %{name}.z{k}")
            first = f"%{name}.f{k}"
    return [
        *lines,
        f"%{name}.l = load {kind}, ptr %{name}.p, {group}",
        f"%{name}.x = select i1 {first}, {kind} 0.0, {kind} %{name}.l",
        f"%{name}.s = fadd {kind} %{name}.x, {scalar}",
        f"store {kind} %{name}.s, ptr %{name}.p, {group}",
    ]


def _nest(depth: int, body: Sequence[str], is_parallel: bool) -> list[str]:
    """Loops around a body, in the innermost of which each place may be on its own."""
    lines, before = ["entry:"], "entry"
    for k in range(depth):
        lines += [
            f"  br label %head{k}",
            f"head{k}:",
            f"  %i{k} = phi i64 [ 0, %{before} ], [ %next{k}, %tail{k} ]",
            f"  %more{k} = icmp slt i64 %i{k}, %n{k}",
            f"  br i1 %more{k}, label %body{k}, label %done{k}",
            f"body{k}:",
        ]
        before = f"body{k}"
    lines += [f"  {line}" for line in body]
    for k in reversed(range(depth)):
        lines += [
            f"  br label %tail{k}",
            f"tail{k}:",
            f"  %next{k} = add nuw nsw i64 %i{k}, 1",
            f"  br label %head{k}"
            + ", !llvm.loop !1" * (is_parallel and k == depth - 1),
            f"done{k}:",
        ]
    return [*lines, "  ret void"]
