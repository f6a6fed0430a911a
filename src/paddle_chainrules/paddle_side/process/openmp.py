"""The threads that Paddle's operators and libraries share.

One, unless OMP_NUM_THREADS is set before Paddle is imported. The child of a fork has
one whatever is set, since the library may wait there for threads that it has not.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import paddle

from ..locks import in_child_of_fork


@cache
def openmp() -> Any:
    """Return the OpenMP library as ctypes has it, if it is loaded."""
    for file in sorted((Path(paddle.__file__).parent / "libs").glob("*iomp5*")):
        try:
            # Windows, which has no such mode, gives what was loaded from the same file.
            return ctypes.CDLL(str(file), mode=getattr(os, "RTLD_NOLOAD", 0))
        except OSError:
            continue
    return None


def threads() -> int:
    """Return how many threads share an operator's work on this thread of Python."""
    library = openmp()
    return int(library.omp_get_max_threads()) if library is not None else 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Have the operators within run on this thread alone."""
    count = threads()
    if count == 1:
        yield
        return
    openmp().omp_set_num_threads(1)
    try:
        yield
    finally:
        openmp().omp_set_num_threads(count)


@in_child_of_fork
def _reset_to_one_thread() -> None:
    if threads() > 1:
        openmp().omp_set_num_threads(1)
