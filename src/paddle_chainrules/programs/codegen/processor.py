"""The processor that machine code is compiled for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

from ...settings import CPU, LEVELS, wanted_cpu

LEVEL_INSTRUCTIONS = (
    "cmov cx8 fxsr mmx sse sse2",
    "cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3",
    "avx avx2 bmi bmi2 f16c fma lzcnt movbe",
    "avx512bw avx512cd avx512dq avx512f avx512vl",
)
"""The instructions that each of the levels adds to those before, as LLVM calls them.

System V Application Binary Interface, AMD64 Architecture Processor Supplement, 3.1.1.
"""


ARM = "generic"
"""LLVM's name for any processor with the instructions of AArch64."""


class Processor(NamedTuple):
    """A processor, and instructions beyond those that its name implies.

    Attributes:
        name: ``znver3`` or ``x86-64-v3``, as LLVM calls it.
        features: ``+avx2,-avx512f`` ..., as LLVM reads them.
    """

    name: str
    features: str


class VectorRegisters(NamedTuple):
    """Vector registers: how many bytes each has, and how many there are."""

    bytes: int
    number: int


def registers() -> VectorRegisters:
    """Return the vector registers of the processor to compile for.

    Raises:
        ImportError: llvmlite is not installed.
        ValueError: as `processor`.
    """
    target = processor()
    if target.name == ARM:
        return VectorRegisters(16, 32)
    level_index = LEVELS.index(target.name) if target.name in LEVELS else -1
    if level_index == 3 or "+avx512vl" in target.features:
        return VectorRegisters(64, 32)
    if level_index == 2 or "+avx2" in target.features:
        return VectorRegisters(32, 16)
    return VectorRegisters(16, 16)


MAX_VECTOR_BYTES = 32
"""The most bytes of a vector register that loops fill. More may slow a processor."""


def full_lanes(size: int) -> int:
    """Return how many elements of this many bytes fill a register, 16 at most.

    Raises:
        ImportError: llvmlite is not installed.
        ValueError: as `processor`.
    """
    return min(min(registers().bytes, MAX_VECTOR_BYTES) // size, 16)


_target: ContextVar[Processor | None] = ContextVar("target", default=None)


@contextmanager
def compiling_for(target: Processor) -> Iterator[None]:
    """Compile for another processor than this one meanwhile."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def processor() -> Processor:
    """Return the processor to compile for: this one, or the requested level.

    Raises:
        ImportError: llvmlite is not installed.
        ValueError: this processor has not all instructions of the level.
    """
    return _target.get() or _host_processor()


@cache
def _host_processor() -> Processor:
    from llvmlite import binding as llvm

    features = llvm.get_host_cpu_features()
    level = wanted_cpu()
    if level == "native":
        return Processor(llvm.get_host_cpu_name(), features.flatten())
    if missing := [
        name for name in level_instructions(level) if not features.get(name, False)
    ]:
        raise ValueError(
            f"the environment has {CPU}={level!r}, but this processor "
            f"({llvm.get_host_cpu_name()}) lacks {', '.join(missing)}; set a lower "
            "level, or unset it"
        )
    return Processor(level, "")


def level() -> str:
    """Return the highest level of x86-64 in use, or the processor's own name.

    Raises:
        ImportError: llvmlite is not installed.
        ValueError: as `processor`.
    """
    from llvmlite import binding as llvm

    target = processor()
    if target.name in LEVELS:
        return target.name
    features = llvm.get_host_cpu_features()
    supported = [
        name for name in LEVELS if all(map(features.get, level_instructions(name)))
    ]
    return supported[-1] if supported else target.name


def level_instructions(name: str) -> list[str]:
    """Return the instructions of a level, as LLVM calls them."""
    return " ".join(LEVEL_INSTRUCTIONS[: LEVELS.index(name) + 1]).split()
