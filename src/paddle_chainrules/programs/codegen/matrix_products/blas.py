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
from ...switch import BLAS, wanted_blas
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
        turned: whether the second factor lies transposed, as weights in a backward pass
            do.
    """

    rows: int
    columns: int
    terms: int
    turned: bool = False


ONE_THREAD_SHAPES = GemmShape(64, 64, 64), GemmShape(100, 16, 16)
"""Products that OpenBLAS computes with one thread."""

SHAPES = (
    *ONE_THREAD_SHAPES,
    GemmShape(1000, 64, 64),
    GemmShape(100, 16, 16, turned=True),
    GemmShape(512, 256, 8, turned=True),
)
"""The products that are measured.

OpenBLAS may be faster at the first ones. It takes twice as long at the last, which
large nets with few samples have.
"""

ROUNDS, LEAST, MOST = 8, 0.001, 0.005
"""The fewest rounds, and two times in seconds.

Rounds take at least the first time. None begins after the second.
"""

LESS = 0.8
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
        some: products with no more rows, columns and terms than this are small.
    """

    names: Mapping[str, str]
    reasons: Mapping[str, str]
    symbols: Mapping[str, int]
    has_tiles: bool = False
    some: int = SMALL_GEMM_TWO_DIMS

    def text(self, dtype: str) -> str:
        """Return ``@product.f32`` and ``@products.f32``, or with ``f64``, as LLVM text.

        ``gemm.product_text`` describes them.
        """
        return product_text(self.names[dtype], dtype, self.has_tiles, self.some)


class LoadedLibrary(NamedTuple):
    """A library of this process.

    Attributes:
        addresses: of its product functions, by dtype.
        threads: how many threads it multiplies with, where it tells.
    """

    addresses: Mapping[str, int]
    threads: int | None


_lock = new_lock()
_chosen: list[BlasLibrary | None] = []


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
        if not _chosen:
            need_headroom()
            _chosen.append(chosen(wanted_blas(), libraries()))
        return _chosen[0]


def chosen(wanted: str, results: Mapping[str, LoadedLibrary]) -> BlasLibrary | None:
    """Return the library that multiplies, of all that are found.

    Args:
        wanted: a name, ``own`` for our own products alone, ``on`` for the fastest, or
            ``off`` for none.
        results: libraries by name, the preferred one first.

    Raises:
        ValueError: it is not among those found.
    """
    if wanted == "off":
        return None
    if wanted == OWN:
        return _own(f"by {BLAS}")
    if wanted not in ("on", *results):
        raise ValueError(
            f"the environment has {BLAS}={wanted!r}, but of the libraries that Paddle "
            f"and numpy bring, this process has {', '.join(results) or 'none'}; set it "
            "to 'on', or to what is there"
        )
    names, reasons, symbols = {}, {}, {}
    for dtype in DTYPES:
        able = {name: it for name, it in results.items() if dtype in it.addresses}
        if able:
            name, reasons[dtype] = _choice(wanted, dtype, able)
            names[dtype] = name
            symbols[symbol(name, dtype)] = able[name].addresses[dtype]
    if not names:
        return _own("there is no library")
    is_alone = all((results[name].threads or 1) == 1 for name in names.values())
    some = (
        SMALL_GEMM_ALL_DIMS
        if is_alone and processor().name.startswith(MEASURED)
        else SMALL_GEMM_TWO_DIMS
    )
    return BlasLibrary(names, reasons, symbols, has_tiles=wanted == "on", some=some)


def _own(reason: str) -> BlasLibrary:
    names, reasons = dict.fromkeys(DTYPES, OWN), dict.fromkeys(DTYPES, reason)
    return BlasLibrary(names, reasons, {}, has_tiles=True)


def _choice(
    wanted: str, dtype: str, able: Mapping[str, LoadedLibrary]
) -> tuple[str, str]:
    """Return the library to use, of those that can multiply, and the reason."""
    if wanted in able:
        return wanted, f"by {BLAS}"
    limit = able["mkl"].threads if "mkl" in able else None
    limit = limit or _number(os.environ.get("OMP_NUM_THREADS"))
    fit = [name for name, it in able.items() if (it.threads or 1) <= limit] or [*able]
    ratios = _ratios(dtype, able, fit)
    first = fit[0]
    best = min(fit, key=lambda name: ratios.get(name, 1.0))
    reasons = [f"{wanted} has no {dtype}"] if wanted != "on" else []
    reasons += [f"{name} takes {x:.2f} of {first}'s time" for name, x in ratios.items()]
    reasons += [
        f"{name} has {it.threads} threads, Paddle {limit}"
        for name, it in able.items()
        if name not in fit
    ]
    told = ", ".join(reasons) or "there is no other"
    return best if ratios.get(best, 1.0) < LESS else first, told


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1


def _ratios(
    dtype: str, able: Mapping[str, LoadedLibrary], fit: Sequence[str]
) -> dict[str, float]:
    """Return times relative to the first library's, where a choice needs them.

    oneDNN takes 50 ms for its first product, in which it makes its code. So we measure
    it only where OpenBLAS is not here, or is much faster than MKL and has too many
    threads.
    """
    first = fit[0]
    others = [name for name in able if name not in (first, "onednn")]
    results = {}
    for name in others:
        shapes = SHAPES if name in fit else ONE_THREAD_SHAPES
        results[name] = _ratio(dtype, able, (first, name), shapes)
    if "onednn" in fit[1:]:
        faster = [name for name in others if results[name] < LESS]
        if not others or (faster and not {*faster} & {*fit}):
            results["onednn"] = _ratio(dtype, able, (first, "onednn"), SHAPES)
    return results


def _ratio(
    dtype: str,
    able: Mapping[str, LoadedLibrary],
    names: tuple[str, str],
    shapes: Sequence[GemmShape],
) -> float:
    """Return the second's time relative to the first's, as a mean over shapes."""
    addresses = {name: able[name].addresses[dtype] for name in names}
    logs = []
    for shape in shapes:
        first, second = _seconds(addresses, dtype, shape).values()
        logs.append(math.log(second / first))
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
    m, n, k, turned = shape
    lies = (n, k) if turned else (k, n)
    a, b, c = (np.ones(size, dtype) for size in ((m, k), lies, (m, n)))
    calls, seconds = [], dict.fromkeys(addresses, math.inf)
    for name, address in addresses.items():
        types = [C_TYPES[kind] for kind in signature(name, dtype)]
        it = CONVENTIONS[name]
        flags = [] if it.order is None else [it.order]
        flags += [it.plain, it.transposed if turned else it.plain]
        data = a.ctypes.data, k, b.ctypes.data, lies[1], 0.0, c.ctypes.data, n
        # With Python's lock, for which one would wait where other threads run.
        product: Any = ctypes.PYFUNCTYPE(None, *types)(address)
        calls.append((name, product, (*flags, m, n, k, 1.0, *data)))
    for _, product, given in calls:  # once before: oneDNN makes its code then
        product(*given)
    begin = now = time.perf_counter()
    rounds = 0
    while now - begin < (LEAST if rounds >= ROUNDS else MOST):
        for name, product, given in calls:
            start = time.perf_counter()
            product(*given)
            now = time.perf_counter()
            seconds[name] = min(seconds[name], now - start)
        rounds += 1
    return seconds


CBLAS = ("cblas_sgemm", "cblas_dgemm")


def libraries() -> dict[str, LoadedLibrary]:
    """Return the libraries of Paddle's and numpy's wheels that are loaded.

    We load MKL if it is not loaded yet, as Paddle does at its first product.
    """
    paddles, numpys = Path(paddle.__file__).parent, Path(np.__file__).parent
    libs, around = paddles / "libs", (numpys.parent / "numpy.libs", numpys / ".dylibs")
    results = {}
    mkl = next(_opened(libs, "*mklml*", is_to_load=True), None)
    if mkl and (addresses := _addresses(mkl, *CBLAS)):
        results["mkl"] = LoadedLibrary(addresses, _called(mkl, "mkl_get_max_threads"))
    for openblas in chain.from_iterable(_opened(at, "*openblas64_*") for at in around):
        for prefix in ("scipy_", ""):
            name = f"{prefix}openblas_get_num_threads64_"
            addresses = _addresses(openblas, *(f"{prefix}{f}64_" for f in CBLAS))
            if addresses and "openblas" not in results:
                results["openblas"] = LoadedLibrary(addresses, _called(openblas, name))
    onednn = next(chain(_opened(libs, "*dnnl*"), _opened(libs, "*mkldnn*")), None)
    if onednn and (addresses := _addresses(onednn, "dnnl_sgemm", "")):
        results["onednn"] = LoadedLibrary(addresses, threads() if openmp() else None)
    return results


def _opened(folder: Path, pattern: str, is_to_load: bool = False) -> Iterator[Any]:
    """Give libraries of a folder: the loaded ones, or all that can be loaded."""
    # Windows, which has no such mode, gives what was loaded from the same file.
    mode = 0 if is_to_load else getattr(os, "RTLD_NOLOAD", 0)
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


def _called(handle: Any, name: str) -> int | None:
    """Call a function without arguments, and return its number; None if missing."""
    return int(getattr(handle, name)()) if hasattr(handle, name) else None
