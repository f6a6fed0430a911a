"""Products of matrices in machine code, by the fastest library at hand.

Paddle's wheel brings MKL and oneDNN, numpy's brings OpenBLAS, and a process with both
packages has them loaded. The processor decides which is the fastest: Paddle's MKL, of
2019, treats AMD's as old ones. So we measure it once a process, for float32 and float64
separately.

**Threads** are as the caller has set them. MKL and oneDNN ask Paddle's OpenMP, which
has one unless OMP_NUM_THREADS is set before Paddle is imported. MKL also asks
MKL_NUM_THREADS. OpenBLAS reads OPENBLAS_NUM_THREADS and OMP_NUM_THREADS when numpy is
imported, and otherwise takes all cores. It has one thread count for the whole process,
numpy included, so we do not change it. A library with more threads than Paddle's MKL is
not chosen, unless there is nothing else or the user names it.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ....paddle_side.locks import new_lock
from ....paddle_side.process.openmp import openmp, threads
from ....settings import BLAS, wanted_blas
from ..headroom import need_headroom
from ..processor import processor
from .gemm import (
    CONVENTIONS,
    OWN,
    SMALL_GEMM_ALL_DIMS,
    SMALL_GEMM_TWO_DIMS,
    product_text,
    signature,
    symbol,
)

MEASURED = "znver"
"""Processors on which our own products were faster up to
:data:`.gemm.SMALL_GEMM_ALL_DIMS`: AMD's."""


class GemmShape(NamedTuple):
    """The shape of a product: rows, columns, and terms of each sum.

    Attributes:
        transposed: whether the second factor is transposed, as weights in a backward
            pass are.
    """

    rows: int
    columns: int
    terms: int
    transposed: bool = False


ONE_THREAD_SHAPES = GemmShape(64, 64, 64), GemmShape(100, 16, 16)
"""Products that OpenBLAS computes with one thread."""

MEASURED_SHAPES = (
    *ONE_THREAD_SHAPES,
    GemmShape(1000, 64, 64),
    GemmShape(100, 16, 16, transposed=True),
    GemmShape(512, 256, 8, transposed=True),
)
"""The products that are measured.

OpenBLAS may be faster at the first ones. It takes twice as long at the last, which
large nets with few samples have.
"""

MIN_ROUNDS, MIN_SECONDS, MAX_SECONDS = 8, 0.001, 0.005
"""The fewest rounds, and two times in seconds.

Rounds take at least the first time. None begins after the second.
"""

SWITCH_RATIO = 0.8
"""The share of MKL's time below which another library is chosen.

MKL is preferred since it has Paddle's bits.
"""

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class BlasLibrary:
    """The library that multiplies matrices of each dtype.

    Attributes:
        names: ``mkl``, ``onednn`` or ``openblas``, by dtype. Where a dtype is missing,
            its products stay Paddle's.
        reasons: the reasons for the choice, in a few words, by dtype.
        symbols: addresses of the functions that the texts call, for llvmlite's
            ``add_symbol``.
        has_tiles: whether small products are our own.
        max_small_size: products whose sizes are all no larger than this are small.
    """

    names: Mapping[str, str]
    reasons: Mapping[str, str]
    symbols: Mapping[str, int]
    has_tiles: bool = False
    max_small_size: int = SMALL_GEMM_TWO_DIMS

    def text(self, dtype: str) -> str:
        """Return ``@product.f32`` and ``@products.f32``, or with ``f64``, as LLVM text.

        ``gemm.product_text`` describes them.
        """
        return product_text(
            self.names[dtype], dtype, self.has_tiles, self.max_small_size
        )


class LoadedLibrary(NamedTuple):
    """A library of this process.

    Attributes:
        addresses: of its product functions, by dtype.
        threads: how many threads it multiplies with, where it tells.
    """

    addresses: Mapping[str, int]
    threads: int | None


_lock = new_lock()
_process_library: list[BlasLibrary | None] = []


def library() -> BlasLibrary | None:
    """Return the library that multiplies in this process, chosen at the first call.

    That call takes some ten milliseconds, and fifty more where oneDNN is measured. It
    returns None where the environment has ``PADDLE_CHAINRULES_BLAS=off``, or where
    nothing is found.

    Raises:
        ValueError: the environment asks for one that is not here.
        MemoryError: a limit of this process leaves too little to measure them.
    """
    with _lock:
        if not _process_library:
            need_headroom()
            _process_library.append(choose_library(wanted_blas(), libraries()))
        return _process_library[0]


def choose_library(
    requested: str, results: Mapping[str, LoadedLibrary]
) -> BlasLibrary | None:
    """Choose the library that multiplies.

    Args:
        requested: a name, ``own`` for our own products alone, ``on`` for the fastest,
            or ``off`` for none.
        results: libraries by name, the preferred one first.

    Raises:
        ValueError: it is not among those found.
    """
    if requested == "off":
        return None
    if requested == OWN:
        return _own_library(f"by {BLAS}")
    if requested not in ("on", *results):
        raise ValueError(
            f"the environment has {BLAS}={requested!r}, but of the libraries that "
            f"Paddle and numpy bring, this process has {', '.join(results) or 'none'}; "
            "set it to 'on', or to what is there"
        )
    names, reasons, symbols = {}, {}, {}
    for dtype in DTYPES:
        candidates = {
            name: library_of_process
            for name, library_of_process in results.items()
            if dtype in library_of_process.addresses
        }
        if candidates:
            name, reasons[dtype] = _choose_name(requested, dtype, candidates)
            names[dtype] = name
            symbols[symbol(name, dtype)] = candidates[name].addresses[dtype]
    if not names:
        return _own_library("there is no library")
    is_single_threaded = all(
        (results[name].threads or 1) == 1 for name in names.values()
    )
    max_small_size = (
        SMALL_GEMM_ALL_DIMS
        if is_single_threaded and processor().name.startswith(MEASURED)
        else SMALL_GEMM_TWO_DIMS
    )
    return BlasLibrary(
        names,
        reasons,
        symbols,
        has_tiles=requested == "on",
        max_small_size=max_small_size,
    )


def _own_library(reason: str) -> BlasLibrary:
    names, reasons = dict.fromkeys(DTYPES, OWN), dict.fromkeys(DTYPES, reason)
    return BlasLibrary(names, reasons, {}, has_tiles=True)


def _choose_name(
    requested: str, dtype: str, candidates: Mapping[str, LoadedLibrary]
) -> tuple[str, str]:
    """Return the library to use, of those that can multiply, and the reason."""
    if requested in candidates:
        return requested, f"by {BLAS}"
    limit = candidates["mkl"].threads if "mkl" in candidates else None
    limit = limit or _parse_count(os.environ.get("OMP_NUM_THREADS"))
    eligible = [
        name
        for name, candidate in candidates.items()
        if (candidate.threads or 1) <= limit
    ] or [*candidates]
    ratios = _ratios(dtype, candidates, eligible)
    preferred = eligible[0]
    best = min(eligible, key=lambda name: ratios.get(name, 1.0))
    reasons = [f"{requested} has no {dtype}"] if requested != "on" else []
    reasons += [
        f"{name} takes {x:.2f} of {preferred}'s time" for name, x in ratios.items()
    ]
    reasons += [
        f"{name} has {candidate.threads} threads, Paddle {limit}"
        for name, candidate in candidates.items()
        if name not in eligible
    ]
    explanation = ", ".join(reasons) or "there is no other"
    return best if ratios.get(best, 1.0) < SWITCH_RATIO else preferred, explanation


def _parse_count(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1


def _ratios(
    dtype: str, candidates: Mapping[str, LoadedLibrary], eligible: Sequence[str]
) -> dict[str, float]:
    """Return times relative to the first library's, where a choice needs them.

    oneDNN takes 50 ms for its first product, in which it makes its code. So we measure
    it only where OpenBLAS is not here, or is much faster than MKL and has too many
    threads.
    """
    preferred = eligible[0]
    others = [name for name in candidates if name not in (preferred, "onednn")]
    results = {}
    for name in others:
        shapes = MEASURED_SHAPES if name in eligible else ONE_THREAD_SHAPES
        results[name] = _ratio(dtype, candidates, (preferred, name), shapes)
    if "onednn" in eligible[1:]:
        faster = [name for name in others if results[name] < SWITCH_RATIO]
        if not others or (faster and not {*faster} & {*eligible}):
            results["onednn"] = _ratio(
                dtype, candidates, (preferred, "onednn"), MEASURED_SHAPES
            )
    return results


def _ratio(
    dtype: str,
    candidates: Mapping[str, LoadedLibrary],
    names: tuple[str, str],
    shapes: Sequence[GemmShape],
) -> float:
    """Return the second's time relative to the first's, as a mean over shapes."""
    addresses = {name: candidates[name].addresses[dtype] for name in names}
    logs = []
    for shape in shapes:
        first_seconds, second_seconds = _seconds(addresses, dtype, shape).values()
        logs.append(math.log(second_seconds / first_seconds))
    return math.exp(math.fsum(logs) / len(logs))


C_TYPES: dict[str, Any] = {
    "i8 signext": ctypes.c_int8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "ptr": ctypes.c_void_p,
}


def _seconds(
    addresses: Mapping[str, int], dtype: str, shape: GemmShape
) -> dict[str, float]:
    """Return the seconds of a product by each, the least of some rounds.

    The libraries alternate.
    """
    m, n, k, transposed = shape
    y_shape = (n, k) if transposed else (k, n)
    a, b, c = (np.ones(size, dtype) for size in ((m, k), y_shape, (m, n)))
    calls, seconds = [], dict.fromkeys(addresses, math.inf)
    for name, address in addresses.items():
        types = [C_TYPES[kind] for kind in signature(name, dtype)]
        convention = CONVENTIONS[name]
        flags = [] if convention.order is None else [convention.order]
        flags += [
            convention.plain,
            convention.transposed if transposed else convention.plain,
        ]
        data = a.ctypes.data, k, b.ctypes.data, y_shape[1], 0.0, c.ctypes.data, n
        # With Python's lock, for which one would wait where other threads run.
        product: Any = ctypes.PYFUNCTYPE(None, *types)(address)
        calls.append((name, product, (*flags, m, n, k, 1.0, *data)))
    for _, product, args in calls:  # once before: oneDNN makes its code then
        product(*args)
    begin = now = time.perf_counter()
    rounds = 0
    while now - begin < (MIN_SECONDS if rounds >= MIN_ROUNDS else MAX_SECONDS):
        for name, product, args in calls:
            start = time.perf_counter()
            product(*args)
            now = time.perf_counter()
            seconds[name] = min(seconds[name], now - start)
        rounds += 1
    return seconds


CBLAS = ("cblas_sgemm", "cblas_dgemm")


def libraries() -> dict[str, LoadedLibrary]:
    """Return the libraries of Paddle's and numpy's wheels that are loaded.

    We load MKL if it is not loaded yet, as Paddle does at its first product.
    """
    paddle_folder, numpy_folder = Path(paddle.__file__).parent, Path(np.__file__).parent
    libs, numpy_folders = (
        paddle_folder / "libs",
        (numpy_folder.parent / "numpy.libs", numpy_folder / ".dylibs"),
    )
    results = {}
    mkl = next(_open_libraries(libs, "*mklml*", load_missing=True), None)
    if mkl and (addresses := _addresses(mkl, *CBLAS)):
        results["mkl"] = LoadedLibrary(
            addresses, _call_if_present(mkl, "mkl_get_max_threads")
        )
    for openblas in chain.from_iterable(
        _open_libraries(folder, "*openblas64_*") for folder in numpy_folders
    ):
        for prefix in ("scipy_", ""):
            name = f"{prefix}openblas_get_num_threads64_"
            addresses = _addresses(openblas, *(f"{prefix}{f}64_" for f in CBLAS))
            if addresses and "openblas" not in results:
                results["openblas"] = LoadedLibrary(
                    addresses, _call_if_present(openblas, name)
                )
    onednn = next(
        chain(_open_libraries(libs, "*dnnl*"), _open_libraries(libs, "*mkldnn*")), None
    )
    if onednn and (addresses := _addresses(onednn, "dnnl_sgemm", "")):
        results["onednn"] = LoadedLibrary(addresses, threads() if openmp() else None)
    return results


def _open_libraries(
    folder: Path, pattern: str, load_missing: bool = False
) -> Iterator[Any]:
    """Give libraries of a folder: the loaded ones, or all that can be loaded."""
    # Windows, which has no such mode, gives what was loaded from the same file.
    mode = 0 if load_missing else getattr(os, "RTLD_NOLOAD", 0)
    for file in sorted(folder.glob(pattern)):
        if file.suffix == ".dll" or sys.platform != "win32":
            try:
                yield ctypes.CDLL(str(file), mode=mode | getattr(os, "RTLD_NOW", 0))
            except OSError:
                continue


def _addresses(handle: Any, single: str, double: str) -> dict[str, int]:
    """Return addresses of the functions that a library has, by dtype."""
    results = {}
    for dtype, name in zip(DTYPES, (single, double), strict=True):
        if name and hasattr(handle, name):
            address = ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
            results[dtype] = address or 0
    return results


def _call_if_present(handle: Any, name: str) -> int | None:
    """Call a function without arguments, and return its number; None if missing."""
    return int(getattr(handle, name)()) if hasattr(handle, name) else None
