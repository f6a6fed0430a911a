"""Loops that the threads of OpenMP share, as many as the caller has set.

Paddle brings the library whose threads its products have too: one, unless
OMP_NUM_THREADS is set before Paddle is imported. Each thread does a stretch of one loop
of a step's, in which nothing is added up, so that results have the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from .blas import openmp
from .extents import Extent
from .text import Text

LEAST = 1 << 16
"""Operations on numbers, of which fewer are sooner done by one thread."""

PREFIX = "paddle_chainrules.openmp"
"""What the texts call the library's functions, whatever others are in the process."""

NAMES = {
    "parallel": "GOMP_parallel",
    "thread": "omp_get_thread_num",
    "threads": "omp_get_num_threads",
}


@cache
def symbols() -> dict[str, int]:
    """Addresses of what the texts call, for llvmlite's ``add_symbol``."""
    handle = openmp()
    found = {}
    for own, name in NAMES.items():
        if not hasattr(handle, name):
            return {}
        address = ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
        found[f"{PREFIX}.{own}"] = address or 0
    return found


def threads() -> int:
    """How many would share a loop of this thread of Python's."""
    return int(openmp().omp_get_max_threads()) if symbols() else 1


def may_share(count: Extent | None) -> bool:
    """Whether threads share what is so many operations on numbers."""
    return (
        count is not None
        and (count.power > 0 or count.factor >= LEAST)
        and threads() > 1
    )


FIRST = 1
"""Where in what a shared function is given, after whether one thread does all, the
addresses begin."""

SHARED = f"""
declare void @{PREFIX}.parallel(ptr, ptr, i32, i32)
declare i32 @{PREFIX}.thread()
declare i32 @{PREFIX}.threads()
define internal void @shared(ptr %function, ptr %given, i64 %count) noinline {{
  %many = icmp sge i64 %count, {LEAST}
  br i1 %many, label %all, label %one
all:
  store i64 0, ptr %given
  call void @{PREFIX}.parallel(ptr %function, ptr %given, i32 0, i32 0)
  ret void
one:
  store i64 1, ptr %given
  call i1 %function(ptr %given)
  ret void
}}
"""
"""``@shared`` has a function done by all threads, or by one where that is little."""

WHICH = f"""\
%alone.number = load i64, ptr %given
%alone = icmp ne i64 %alone.number, 0
%thread.here = call i32 @{PREFIX}.thread()
%threads.here = call i32 @{PREFIX}.threads()
%thread.wide = zext i32 %thread.here to i64
%threads.wide = zext i32 %threads.here to i64
%thread = select i1 %alone, i64 0, i64 %thread.wide
%threads = select i1 %alone, i64 1, i64 %threads.wide
%thread.next = add i64 %thread, 1"""
"""Which of how many this thread is, as ``Text.part`` has it."""


def beginning(names: Sequence[str]) -> list[str]:
    """What a shared function begins with: these addresses of what it is given."""
    rows = WHICH.split("\n")
    for place, name in enumerate(names, FIRST):
        rows.append(f"{name}.at = getelementptr i64, ptr %given, i64 {place}")
        rows.append(f"{name} = load ptr, ptr {name}.at")
    return rows


def write_call(
    text: Text, function: str, addresses: Sequence[str], count: Extent
) -> None:
    """Write a call by which threads share a function of so many operations."""
    size = 8 * (FIRST + len(addresses))
    given = text.on_stack(size, 8, ("given", size))
    for place, pointer in enumerate(addresses, FIRST):
        at = text.put(f"getelementptr i64, ptr {given}, i64 {place}", "at")
        text.line(f"store ptr {pointer}, ptr {at}")
    text.line(
        f"call void @shared(ptr {function}, ptr {given}, i64 {text.number(count)})"
    )
