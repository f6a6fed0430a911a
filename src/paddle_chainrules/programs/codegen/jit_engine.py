"""Machine code by LLVM (the package llvmlite), compiled once for equal texts."""

from __future__ import annotations

import ctypes
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any
from weakref import WeakValueDictionary

from ...paddle_side.locks import new_lock
from .elements.scalars import FUNCTIONS
from .elements.vectorised import definitions
from .headroom import need_headroom
from .ir_builder import METADATA, TYPES, VECTORIZABLE_LOOP
from .matrix_products.blas import BlasLibrary, library
from .matrix_products.gemm import OWN, symbol, tiles_declaration
from .matrix_products.products import SUFFIX
from .matrix_products.tiled import tiled_product_text
from .object_cache import cache_key, loading, lookup, store
from .processor import processor
from .threads import SHARED, symbols

SUM = r"@llvm\.vector\.reduce\.fadd\.v(\d+)f(32|64)"
"""The sum of a vector's lanes, as texts write it."""

ON_VECTORS = rf"@llvm\.({'|'.join(FUNCTIONS)})\.v(\d+)f(32|64)\("
"""A function of LLVM's that is called on vectors."""

Code = Callable[[bytes], bool]
"""A function of a block of numbers and addresses; tells whether it was left."""

DECLARATIONS = (
    "\n".join(
        f"declare {kind} @llvm.{name}.{suffix}({', '.join([kind] * arity)})"
        for name, arity in FUNCTIONS.items()
        for kind, suffix in (("float", "f32"), ("double", "f64"))
    )
    + "\ndeclare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
)

_lock = new_lock(held_at_fork=True)  # LLVM has locks of its own
_functions_by_text: WeakValueDictionary[str, Code] = WeakValueDictionary()
"""Compiled functions by their text.

They stay as long as a program has them, or they are among the last.
"""

_tiled: dict[str, Any] = {}
"""LLVM's engines with our own products, by dtype."""

TILED = "tiled"
"""The name of their function."""

MAX_RECENT_FUNCTIONS = 256
"""The number of functions that stay.

A caller who makes the same net again need not wait again.
"""

_recent: OrderedDict[str, Code] = OrderedDict()


def machine_code(texts: Sequence[str]) -> list[Code]:
    """Compile texts, or look them up; return the function of each, named ``@NAME``.

    Raises:
        ImportError: llvmlite is not installed.
        MemoryError: a limit of this process leaves too little for LLVM.
    """
    texts = [_without_comments(text) for text in texts]
    with _lock:
        results = {
            text: code for text in texts if (code := _functions_by_text.get(text))
        }
        missing = [text for text in dict.fromkeys(texts) if text not in results]
        if missing:
            results.update(zip(missing, _compile(missing), strict=True))
            _functions_by_text.update(results)
        for text, code in results.items():
            _recent[text] = code
            _recent.move_to_end(text)
        while len(_recent) > MAX_RECENT_FUNCTIONS:
            _recent.popitem(last=False)
        return [results[text] for text in texts]


def begin_machine_code(
    texts: Sequence[str], then: Callable[[], Any]
) -> Callable[[], list[Code]]:
    """Begin :func:`machine_code` on its own thread; return a function that waits.

    LLVM runs without Python's lock, so that calls go on meanwhile.

    Args:
        then: is called on that thread afterwards.
    """
    results: list[list[Code]] = []

    def run() -> None:
        with suppress(BaseException):  # whoever waits meets it again
            results.append(machine_code(texts))
            then()

    thread = threading.Thread(target=run, name="machine code")
    try:
        thread.start()
    except RuntimeError:  # there is no room for one
        return lambda: machine_code(texts)

    def wait() -> list[Code]:
        thread.join()
        return results[0] if results else machine_code(texts)

    return wait


def _without_comments(text: str) -> str:
    """Return a text without comments, which tell its origin."""
    return "\n".join(row for row in text.split("\n") if not row.startswith("  ;"))


def module_text(
    texts: Sequence[str],
    names: Sequence[str],
    blas: BlasLibrary | None,
    includes_tiles: bool = False,
) -> str:
    """Return a module: these functions by their names, and those that they call.

    Args:
        blas: what multiplies matrices, if anything does.
        includes_tiles: whether our own products are part of it, rather than linked.
    """
    functions = [
        text.replace("@NAME", f"@{n}") for text, n in zip(texts, names, strict=True)
    ]
    body = "\n".join(functions)
    callees = []
    for dtype, suffix in SUFFIX.items():
        if blas is not None and f"@product.{suffix}" in body:
            callees.append(blas.text(dtype))
            if blas.has_tiles and includes_tiles:
                callees.append(tiled_product_text(dtype, symbol(OWN, dtype)))
            elif blas.has_tiles:
                callees.append(tiles_declaration(dtype))
    sums = map(_declare_sum, sorted({*re.findall(SUM, "".join([*callees, body]))}))
    defined = definitions(functions)
    vectors = {*re.findall(ON_VECTORS, "".join([*defined, body]))}
    if "@shared(" in body:
        callees.append(SHARED)
    declared = map(_declare_intrinsic, sorted(vectors))
    sections = [DECLARATIONS, *sums, *declared, *callees, *defined, body, METADATA]
    return "\n".join(sections)


def _declare_sum(match: tuple[str, str]) -> str:
    count, bits = match
    real = TYPES[f"float{bits}"]
    name = f"@llvm.vector.reduce.fadd.v{count}f{bits}"
    return f"declare {real} {name}({real}, <{count} x {real}>)"


def _declare_intrinsic(match: tuple[str, str, str]) -> str:
    name, count, bits = match
    kind = f"<{count} x {TYPES[f'float{bits}']}>"
    parameters = ", ".join([kind] * FUNCTIONS[name])
    return f"declare {kind} @llvm.{name}.v{count}f{bits}({parameters})"


def _compile(texts: Sequence[str]) -> list[Code]:
    blas = library() if any("@product." in text for text in texts) else None
    callees = {**blas.symbols} if blas else {}
    if blas and blas.has_tiles:
        for dtype, suffix in SUFFIX.items():
            if any(f"@product.{suffix}" in text for text in texts):
                callees[symbol(OWN, dtype)] = tiles_address(dtype)
    if any("@shared(" in text for text in texts):
        callees |= symbols()
    names = [f"region_{i}" for i in range(len(texts))]
    engine = compile_and_load(module_text(texts, names, blas), names, callees)
    return [_callable_of(engine, name) for name in names]


def tiles_address(dtype: str) -> int:
    """Return the address of our own products, compiled at the first call."""
    with _lock:
        if dtype not in _tiled:
            text, name = tiled_product_text(dtype, TILED), TILED
            sums = map(_declare_sum, sorted({*re.findall(SUM, text)}))
            # It is written as vectors, and as fast without LLVM's passes.
            _tiled[dtype] = compile_and_load(
                "\n".join([*sums, text]), [name], {}, opt=1
            )
        result: int = _tiled[dtype].get_function_address(TILED)
        return result


def compile_and_load(
    text: str, names: Sequence[str], callees: Mapping[str, int], opt: int = 3
) -> Any:
    """Return LLVM's engine with a module's code, which owns it.

    Args:
        text: the module.
        names: its functions that are called from outside.
        callees: addresses of functions that it calls, by their names.
        opt: LLVM's optimization level: 0 for none, 1 for text that is fast as
            it is, 3 for loops that are left to it, if there are any. Each takes several
            times as long as the one before.

    Raises:
        ImportError: llvmlite is not installed.
        MemoryError: a limit of this process leaves too little for LLVM.
    """
    from llvmlite import binding as llvm

    with _lock:
        need_headroom()
        if opt > 1 and not VECTORIZABLE_LOOP.search(text):
            opt = 1
        machine = target_machine(opt)
        for symbol, address in callees.items():
            llvm.add_symbol(symbol, address)
        versions = (*map(str, llvm.llvm_version_info), version("llvmlite"))
        name = cache_key(text, machine.triple, *processor(), *versions)
        code = lookup(name)
        if code is None:
            code = _emit_object(llvm, text, names, machine, int(opt > 1))
            store(name, code)
            return _load_object(llvm, code)
        with loading(name):
            return _load_object(llvm, code)


def _load_object(llvm: Any, code: bytes) -> Any:
    # Its compiler stays with it. One that has compiled holds 700 kB of tables.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def target_machine(opt: int = 3) -> Any:
    """Return the compiler for this processor, or for a level.

    Args:
        opt: how well it chooses instructions, from 0 to 3.
    """
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=opt, jit=True
    )


def object_code(text: str, names: Sequence[str], triple: str | None = None) -> bytes:
    """Return a module as an object file, of code that may lie anywhere in memory.

    Args:
        names: its functions that are called from outside.
        triple: the system that it is for; None for this one.

    Raises:
        ImportError: llvmlite is not installed.
        ValueError: LLVM does not know the system.
    """
    from llvmlite import binding as llvm

    with _lock:
        need_headroom()
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        try:
            target = llvm.Target.from_triple(triple or llvm.get_default_triple())
        except RuntimeError as error:
            raise ValueError(
                f"LLVM makes no code for {triple!r} ({error}); use the system's name "
                "as LLVM has it"
            ) from None
        cpu, features = processor()
        machine = target.create_target_machine(
            cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
        )
        return _emit_object(llvm, text, names, machine, 1)


def _emit_object(
    llvm: Any, text: str, names: Sequence[str], machine: Any, speed_level: int
) -> bytes:
    """Return a module's code. These functions are called from outside."""
    module = llvm.parse_assembly(text + _keep_external(names))
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    # Unrolled loops take three times as long to compile, and are no faster.
    options = llvm.create_pipeline_tuning_options(speed_level)
    options.loop_vectorization = options.loop_interleaving = True
    options.loop_unrolling = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    # Vector functions that no loop calls after all are dropped.
    passes.add_internalize_pass()
    passes.add_global_dead_code_eliminate_pass()
    # A builder's second run would call back into its first one, which is gone.
    passes.run(module, builder)
    # llvmlite has this method, but its classes' order hides it.
    llvm.newpassmanagers.NewPassManager._dispose(passes)
    result: bytes = machine.emit_object(module)
    return result


def _keep_external(names: Sequence[str]) -> str:
    """Return the row that keeps functions with these names for callers outside."""
    rows = ", ".join(f"ptr @{name}" for name in names)
    return (
        f"\n@llvm.used = appending global [{len(names)} x ptr] [{rows}], "
        'section "llvm.metadata"\n'
    )


def _callable_of(engine: Any, name: str) -> Code:
    # Without the lock of Python's released, which costs as much as a small loop.
    result: Any = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_char_p)(
        engine.get_function_address(name)
    )
    result.engine = engine  # which owns the code
    return result
