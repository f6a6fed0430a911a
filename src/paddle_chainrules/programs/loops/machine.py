"""Machine code of loops by LLVM (the package llvmlite), once for all that are alike."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from .kernel import METADATA, Kernel
from .scalars import FUNCTIONS
from .vectorised import definitions

Code = Callable[..., None]
"""A function of extents, then addresses."""

DECLARATIONS = "\n".join(
    f"declare {kind} @llvm.{name}.{suffix}({', '.join([kind] * arity)})"
    for name, arity in FUNCTIONS.items()
    for kind, suffix in (("float", "f32"), ("double", "f64"))
)

_lock = threading.Lock()
_known: WeakValueDictionary[str, Code] = WeakValueDictionary()
"""By their text, for as long as a program has them."""
_numbers = itertools.count()


def machine_code(kernels: Sequence[Kernel]) -> list[Code]:
    """The function of each.

    Raises:
        ImportError: llvmlite is not installed.
    """
    with _lock:
        found = {k.text: code for k in kernels if (code := _known.get(k.text))}
        new = {k.text: k for k in kernels if k.text not in found}
        if new:
            found.update(zip(new, _compiled([*new.values()]), strict=True))
            _known.update(found)
        return [found[k.text] for k in kernels]


def _compiled(kernels: Sequence[Kernel]) -> list[Code]:
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )
    names = [f"loop_{next(_numbers)}" for _ in kernels]
    texts = [
        k.text.replace("@NAME", f"@{name}")
        for k, name in zip(kernels, names, strict=True)
    ]
    parts = [DECLARATIONS, *definitions(texts), *texts, METADATA]
    module = llvm.parse_assembly("\n".join(parts))
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    _drop_others(llvm, module, names, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return [
        _function(engine, name, k.arity) for k, name in zip(kernels, names, strict=True)
    ]


def _drop_others(llvm: Any, module: Any, names: Sequence[str], passes: Any) -> None:
    """Of the functions that loops might call, those for vectors that none has."""
    for function in module.functions:
        if not function.is_declaration and function.name not in names:
            function.linkage = "internal"
    cleaning = llvm.create_new_module_pass_manager()
    cleaning.add_global_dead_code_eliminate_pass()
    cleaning.run(module, passes)


def _function(engine: Any, name: str, arity: int) -> Code:
    # Without the lock of Python's released, which costs as much as a small loop.
    kind = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * arity)
    found: Any = kind(engine.get_function_address(name))
    found.engine = engine  # which owns the code
    return found
