"""Products of matrices in machine code, by the fastest library that is here anyway.

Paddle's wheel brings MKL and oneDNN, numpy's brings OpenBLAS, and a process with both
packages has them loaded. Which is the fastest depends on the processor (Paddle's MKL,
of 2019, takes AMD's for old ones), and is measured once a process, for float32 and
float64 apart.

**Threads** are as the caller has set them. MKL and oneDNN ask Paddle's OpenMP, which
has one unless OMP_NUM_THREADS is set before Paddle is imported; MKL also asks
MKL_NUM_THREADS. OpenBLAS reads OPENBLAS_NUM_THREADS and OMP_NUM_THREADS when numpy is
imported, and otherwise takes all cores. Its number is one for the whole process, numpy
included, so that it is left as it is: what has more threads than Paddle's MKL is not
chosen, unless there is nothing else or it is asked for by name.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..switch import BLAS, wanted_blas
from .gemm import CONVENTIONS, product_text, signature, symbol

SHAPES = ((64, 64, 64), (100, 16, 16), (1000, 64, 64))
"""Of the products that are measured: rows, columns, and terms of each sum."""

ROUNDS = 8
LESS = 0.8
"""Of MKL's time that another takes at most where it is chosen: MKL has Paddle's bits."""

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Library:
    """What multiplies matrices of each dtype.

    Attributes:
        names: ``mkl``, ``onednn`` or ``openblas``, by dtype. Where a dtype is missing,
            its products stay Paddle's.
        reasons: why, in a few words, by dtype.
        symbols: addresses of what the texts call, for llvmlite's ``add_symbol``.
    """

    names: Mapping[str, str]
    reasons: Mapping[str, str]
    symbols: Mapping[str, int]

    def text(self, dtype: str) -> str:
        """``@product.f32`` and ``@products.f32``, or with ``f64``, as text of LLVM's.

        They are described in [`product_text`][paddle_chainrules.programs.loops.gemm].
        """
        return product_text(self.names[dtype], dtype)


class Found(NamedTuple):
    """A library of this process.

    Attributes:
        addresses: of its product, by dtype.
        threads: with how many it multiplies, where it tells.
    """

    addresses: Mapping[str, int]
    threads: int | None


_lock = threading.Lock()
_chosen: list[Library | None] = []


def library() -> Library | None:
    """The library that multiplies in this process, chosen at the first call.

    That call takes some ten milliseconds. There is none where the environment has
    ``PADDLE_CHAINRULES_BLAS=off``, or where nothing is found.

    Raises:
        ValueError: the environment asks for one that is not here.
    """
    with _lock:
        if not _chosen:
            _chosen.append(chosen(wanted_blas(), libraries()))
        return _chosen[0]


def _renew_lock() -> None:
    """In the child of a fork, whose parent may have been choosing on another thread."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def chosen(wanted: str, found: Mapping[str, Found]) -> Library | None:
    """What multiplies, of all that is found.

    Args:
        wanted: a name, ``on`` for the fastest, or ``off`` for none.
        found: libraries by name, the one to stay with first.

    Raises:
        ValueError: it is not among those found.
    """
    if wanted == "off":
        return None
    if wanted not in ("on", *found):
        raise ValueError(
            f"the environment has {BLAS}={wanted!r}, but of the libraries that Paddle "
            f"and numpy bring, this process has {', '.join(found) or 'none'}; set it "
            "to 'on', or to what is there"
        )
    names, reasons, symbols = {}, {}, {}
    for dtype in DTYPES:
        able = {name: it for name, it in found.items() if dtype in it.addresses}
        if able:
            name, reasons[dtype] = _choice(wanted, dtype, able)
            names[dtype] = name
            symbols[symbol(name, dtype)] = able[name].addresses[dtype]
    return Library(names, reasons, symbols) if names else None


def _choice(wanted: str, dtype: str, able: Mapping[str, Found]) -> tuple[str, str]:
    """Of those that can, which, and why."""
    if wanted in able:
        return wanted, f"by {BLAS}"
    limit = able["mkl"].threads if "mkl" in able else None
    limit = limit or _number(os.environ.get("OMP_NUM_THREADS"))
    fit = {name: it for name, it in able.items() if (it.threads or 1) <= limit} or able
    name, measured = _fastest(dtype, fit)
    reasons = [f"{wanted} has no {dtype}"] if wanted != "on" else []
    reasons += [measured] if measured else []
    reasons += [
        f"{left} has {it.threads} threads, Paddle {limit}"
        for left, it in able.items()
        if left not in fit
    ]
    return name, ", ".join(reasons) or "there is no other"


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1


def _fastest(dtype: str, fit: Mapping[str, Found]) -> tuple[str, str]:
    """The first, unless another takes much less of its time, in the mean of shapes."""
    first, *others = fit
    if not others:
        return first, ""
    addresses = {name: it.addresses[dtype] for name, it in fit.items()}
    rows = [_seconds(addresses, dtype, shape) for shape in SHAPES]
    ratios = {
        name: math.exp(
            math.fsum(math.log(r[name] / r[first]) for r in rows) / len(rows)
        )
        for name in others
    }
    best = min(others, key=ratios.__getitem__)
    told = ", ".join(f"{name} takes {x:.2f}" for name, x in ratios.items())
    return best if ratios[best] < LESS else first, f"{told} of {first}'s time"


C_TYPES: dict[str, Any] = {
    "i8 signext": ctypes.c_int8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "ptr": ctypes.c_void_p,
}


def _seconds(
    addresses: Mapping[str, int], dtype: str, shape: tuple[int, int, int]
) -> dict[str, float]:
    """Of a product by each, all in turn, the least of some rounds."""
    m, n, k = shape
    a, b, c = (np.ones(size, dtype) for size in ((m, k), (k, n), (m, n)))
    calls, seconds = [], dict.fromkeys(addresses, math.inf)
    for name, address in addresses.items():
        types = [C_TYPES[kind] for kind in signature(name, dtype)]
        it = CONVENTIONS[name]
        flags = [] if it.order is None else [it.order]
        flags += [it.plain] * 2
        data = a.ctypes.data, k, b.ctypes.data, n, 0.0, c.ctypes.data, n
        # With Python's lock, for which one would wait where other threads run.
        product: Any = ctypes.PYFUNCTYPE(None, *types)(address)
        calls.append((name, product, (*flags, m, n, k, 1.0, *data)))
    for _ in range(1 + ROUNDS):  # the first makes oneDNN's code, and fills caches
        for name, product, given in calls:
            start = time.perf_counter()
            product(*given)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


CBLAS = ("cblas_sgemm", "cblas_dgemm")


def libraries() -> dict[str, Found]:
    """Those of Paddle's and numpy's wheels that this process has loaded.

    MKL is loaded here where it is not yet, as Paddle does at its first product.
    """
    paddles, numpys = Path(paddle.__file__).parent, Path(np.__file__).parent
    libs, around = paddles / "libs", (numpys.parent / "numpy.libs", numpys / ".dylibs")
    found = {}
    mkl = next(_opened(libs, "*mklml*", is_to_load=True), None)
    if mkl and (addresses := _addresses(mkl, *CBLAS)):
        found["mkl"] = Found(addresses, _called(mkl, "mkl_get_max_threads"))
    onednn = next(chain(_opened(libs, "*dnnl*"), _opened(libs, "*mkldnn*")), None)
    if onednn and (addresses := _addresses(onednn, "dnnl_sgemm", "")):
        openmp = next(_opened(libs, "*iomp5*"), None)
        threads = _called(openmp, "omp_get_max_threads") if openmp else None
        found["onednn"] = Found(addresses, threads)
    for openblas in chain.from_iterable(_opened(at, "*openblas64_*") for at in around):
        for prefix in ("scipy_", ""):
            name = f"{prefix}openblas_get_num_threads64_"
            addresses = _addresses(openblas, *(f"{prefix}{f}64_" for f in CBLAS))
            if addresses:
                found["openblas"] = Found(addresses, _called(openblas, name))
                return found
    return found


def _opened(folder: Path, pattern: str, is_to_load: bool = False) -> Iterator[Any]:
    """Libraries of a folder, of those that are loaded unless they are to be."""
    # Windows, which has no such mode, gives what was loaded from the same file.
    mode = 0 if is_to_load else getattr(os, "RTLD_NOLOAD", 0)
    for file in sorted(folder.glob(pattern)):
        if file.suffix == ".dll" or sys.platform != "win32":
            try:
                yield ctypes.CDLL(str(file), mode=mode | getattr(os, "RTLD_NOW", 0))
            except OSError:
                continue


def _addresses(handle: Any, single: str, double: str) -> dict[str, int]:
    """Of the functions that a library has, by dtype."""
    found = {}
    for dtype, name in zip(DTYPES, (single, double), strict=True):
        if name and hasattr(handle, name):
            address = ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
            found[dtype] = address or 0
    return found


def _called(handle: Any, name: str) -> int | None:
    """The number that a function without arguments gives, where there is one."""
    return int(getattr(handle, name)()) if hasattr(handle, name) else None
