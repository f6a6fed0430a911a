"""Loops that OpenMP threads share, as many threads as the caller has set.

Paddle brings the library whose threads its products use too. There is one thread,
unless OMP_NUM_THREADS is set before Paddle is imported. Each thread runs a range of one
loop of a stage. That loop reduces nothing, so that results have the same bits.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache

from ...paddle_side.locks import in_child_of_fork
from ...paddle_side.process.openmp import openmp, threads
from .extents import SymInt
from .ir_builder import FunctionBuilder

MIN_PARALLEL_OPS = 1 << 20
"""The fewest arithmetic operations that threads share. One thread does fewer sooner."""

least = ctypes.c_int64(MIN_PARALLEL_OPS)
"""The same, as it is read at each call."""


@in_child_of_fork
def _share_nothing() -> None:
    """Do not wait for threads that do not exist here."""
    least.value = sys.maxsize


PREFIX = "paddle_chainrules.openmp"
"""The prefix of the library's functions in texts, whatever else the process has."""

NAMES = {
    "parallel": "GOMP_parallel",
    "thread": "omp_get_thread_num",
    "threads": "omp_get_num_threads",
}


@cache
def symbols() -> dict[str, int]:
    """Return addresses of functions that texts call, for llvmlite's ``add_symbol``."""
    handle = openmp()
    results = {f"{PREFIX}.least": ctypes.addressof(least)}
    for alias, name in NAMES.items():
        if not hasattr(handle, name):
            return {}
        address = ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
        results[f"{PREFIX}.{alias}"] = address or 0
    return results


def may_share(count: SymInt | None) -> bool:
    """Tell whether threads share this many arithmetic operations."""
    return (
        count is not None
        and (count.power > 0 or count.factor >= MIN_PARALLEL_OPS)
        and threads() > 1
        and bool(symbols())
    )


FIRST_ARGUMENT = 1
"""The index of the first address in a parallel function's arguments, after its own."""

HEAD = "internal i1 @NAME.step(ptr %given, i64 %thread, i64 %threads) noinline"
"""The head of a parallel function.

``FunctionBuilder.thread_range`` uses its thread number and count.
"""

SHARED = f"""
declare void @{PREFIX}.parallel(ptr, ptr, i32, i32)
declare i32 @{PREFIX}.thread()
declare i32 @{PREFIX}.threads()
@{PREFIX}.least = external global i64
define internal void @shared.part(ptr %given) {{
  %function = load ptr, ptr %given
  %number = call i32 @{PREFIX}.thread()
  %count = call i32 @{PREFIX}.threads()
  %thread = zext i32 %number to i64
  %threads = zext i32 %count to i64
  call i1 %function(ptr %given, i64 %thread, i64 %threads)
  ret void
}}
define internal void @shared(ptr %function, ptr %given, i64 %count) {{
  %least = load volatile i64, ptr @{PREFIX}.least
  %many = icmp sge i64 %count, %least
  br i1 %many, label %all, label %one
all:
  store ptr %function, ptr %given
  call void @{PREFIX}.parallel(ptr @shared.part, ptr %given, i32 0, i32 0)
  ret void
one:
  call i1 %function(ptr %given, i64 0, i64 1)
  ret void
}}
"""
"""The function ``@shared``, which runs a function on all threads, or on one.

It runs on one thread where there is little to do.
"""


def load_arguments(names: Sequence[str]) -> list[str]:
    """Return lines that load a parallel function's addresses from its arguments."""
    lines = []
    for index, name in enumerate(names, FIRST_ARGUMENT):
        lines.append(f"{name}.at = getelementptr i64, ptr %given, i64 {index}")
        lines.append(f"{name} = load ptr, ptr {name}.at")
    return lines


def emit_parallel_call(
    ir: FunctionBuilder, function: str, addresses: Sequence[str], count: SymInt
) -> None:
    """Emit a call that runs a function of this many operations on all threads."""
    size = 8 * (FIRST_ARGUMENT + len(addresses))
    arguments = ir.alloca(size, 8, ("given", size))
    for index, pointer in enumerate(addresses, FIRST_ARGUMENT):
        slot = ir.emit(f"getelementptr i64, ptr {arguments}, i64 {index}", "at")
        ir.line(f"store ptr {pointer}, ptr {slot}")
    ir.line(
        f"call void @shared(ptr {function}, ptr {arguments}, "
        f"i64 {ir.size_value(count)})"
    )
