"""What machine code is made for, and machine code that is no program's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ...paddle_side.process.openmp import one_thread
from ...settings import LEVELS
from ..codegen.ir_builder import BYTES
from ..codegen.jit_engine import module_text, object_code
from ..codegen.matrix_products.blas import DTYPES, BlasLibrary, library
from ..codegen.matrix_products.gemm import OWN, symbol
from ..codegen.processor import (
    ARM,
    Processor,
    compiling_for,
    level,
    level_instructions,
    processor,
)
from ..codegen.threads import MIN_PARALLEL_OPS
from ..compiling.program import Program
from .c_functions import (
    DECLARATIONS,
    ERRORS,
    FUNCTION_ENDINGS,
    NEVER_FLAG,
    CFunction,
    Constants,
    definitions_of,
    exported_symbols,
    max_samples,
    region_of,
    string,
)
from .updates import update_code


class Target:
    """The processors that machine code is made for.

    Args:
        cpu: one of :attr:`NAMES`; ``native`` for this one, or the requested level.

    Attributes:
        NAMES: ``native``, the levels of x86-64, and ``aarch64``.
        DTYPES: of tensors that machine code takes.
        ERRORS: what functions of libraries return, by number.
        FUNCTION_ENDINGS: of the names of the C functions that a function has.
        MIN_PARALLEL_OPS: the fewest arithmetic operations that threads share.
        level: returns the highest level of x86-64 in use here.
        products: returns what multiplies matrices in this process.
        max_samples: returns the most samples of a call of a program of one region.
        update_code: returns code for this processor that steps optimizers.
    """

    NAMES = ("native", *LEVELS, "aarch64")
    DTYPES = tuple(BYTES)
    ERRORS, FUNCTION_ENDINGS = ERRORS, FUNCTION_ENDINGS
    MIN_PARALLEL_OPS = MIN_PARALLEL_OPS
    level, products = staticmethod(level), staticmethod(library)
    max_samples, update_code = staticmethod(max_samples), staticmethod(update_code)

    def __init__(self, cpu: str = "native") -> None:
        self._cpu = cpu

    @property
    def processor(self) -> Processor:
        """The processor, as LLVM calls it.

        Raises:
            ImportError: llvmlite is not installed.
            ValueError: this processor has not all instructions of the requested level.
        """
        if self._cpu == "native":
            return processor()
        return Processor(ARM if self._cpu == "aarch64" else self._cpu, "")

    def runs_here(self) -> bool:
        """Tell whether its code runs on this processor.

        Raises:
            ImportError: llvmlite is not installed.
        """
        from llvmlite import binding as llvm

        if self._cpu not in LEVELS:
            return self._cpu == "native"
        features = llvm.get_host_cpu_features()
        needed = level_instructions(self._cpu)
        return all(features.get(feature, False) for feature in needed)

    def compiling(self) -> AbstractContextManager[None]:
        """Return a context in which code is made for it."""
        return compiling_for(self.processor)

    def one_region(self, program: Program) -> Program:
        """Return a program as one region where possible, for a single thread."""
        with one_thread():
            return program._as_one_region(has_products=True)

    def object_file(
        self,
        name: str,
        functions: Sequence[CFunction],
        description: str,
        blas: str | None,
    ) -> bytes:
        """Return functions as an object file. Call it within :meth:`compiling`.

        Args:
            name: of the library, with which its own functions begin.
            description: the text that ``name_describe`` returns.
            blas: the library with CBLAS's products, if these are not our own.
        """
        variants = [v for f in functions for v in (f, f.one) if v is not None]
        regions = [(f.name, r) for f in variants if (r := region_of(f)) is not None]
        kind = OWN if blas is None else "mkl"  # whose integers have 32 bits, as CBLAS's
        products = BlasLibrary(dict.fromkeys(DTYPES, kind), {}, {}, has_tiles=True)
        names = [f"{function}.region" for function, _ in regions]
        text = module_text([r.text for _, r in regions], names, products, True)
        text = text.replace("define zeroext i1 @", "define internal zeroext i1 @")
        cblas_names = "cblas_sgemm", "cblas_dgemm"
        for dtype, cblas_name in zip(DTYPES, cblas_names, strict=True):
            text = text.replace(f"@{symbol('mkl', dtype)}(", f"@{cblas_name}(")
        definitions = [NEVER_FLAG, DECLARATIONS, string("described", description)]
        definitions += [string(f"error.{i}", error) for i, error in enumerate(ERRORS)]
        constants = Constants()
        definitions += [d for f in functions for d in definitions_of(f, constants)]
        definitions += constants.definitions
        definitions.append(_text_functions(name))
        names = [item for f in functions for item in exported_symbols(f)]
        names += [f"{name}_describe", f"{name}_error"]
        triple = "aarch64-unknown-linux-gnu" if self._cpu == "aarch64" else None
        return object_code("\n".join([text, *definitions]), names, triple)


def _text_functions(name: str) -> str:
    cases = " ".join(f"i32 {i}, label %case{i}" for i in range(len(ERRORS)))
    rows = [f"case{i}:\n  ret ptr @error.{i}" for i in range(len(ERRORS))]
    return "\n".join(
        [
            f"define ptr @{name}_describe() nounwind {{\n  ret ptr @described\n}}",
            f"define ptr @{name}_error(i32 %status) nounwind {{",
            f"  switch i32 %status, label %other [ {cases} ]",
            "other:\n  ret ptr null",
            *rows,
            "}",
        ]
    )
