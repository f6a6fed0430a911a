"""Nets and functions written as shared libraries."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from paddle import Tensor

from ..nets.net import Net
from ..programs import Target
from ..whole_files import replacing
from . import load
from .exports import Export, LibraryFunction, capture_export
from .interfaces.c import c_header
from .interfaces.cpp import cpp_header
from .interfaces.fortran import fortran_module
from .interfaces.julia import julia_module
from .names import check_functions, is_word
from .net_exports import DERIVATIVES, net_exports

ABI = 1
"""The version of the functions' arguments, and of what ``describe`` says."""

TOLERANCE = {"float32": 2e-4, "float64": 1e-9}
"""How far outputs may be from those of the function, by the largest entry."""


def save_library(
    path: str | os.PathLike[str],
    functions: Net | Mapping[str, Export] | Any,
    *args: Any,
    derivatives: Sequence[str] = (),
    params: str = "given",
    batched: int | Sequence[int] | None = None,
    blas: str | None = None,
    cpu: str = "native",
) -> list[Path]:
    """Write a net or functions as a shared library that needs no Python.

    The library has plain C functions of machine code, which need libc and libm alone.
    Beside it we write interfaces for C (``.h``), C++ (``.hpp``), Fortran (``.f90``) and
    Julia (``.jl``). All functions may be called from any number of threads. They return
    0, or the number of an error.

    The library is compared with the functions before anything is written, for several
    numbers of samples.

    Args:
        path: ``folder/name.so``; ``name`` is the name of the net's function, and begins
            those of all others. With ``folder/name.o`` we write an object file, to be
            linked by ``cc -shared``.
        functions: a net, a function, or a dict of :class:`Export` by name.
        args: parameters and inputs of a net, or arguments of a function, as examples of
            shapes and dtypes.
        derivatives: functions of a net besides its value: ``vjp``, ``jvp``, and, for
            one input [n, d] and one output [n, m], ``jacobian`` [n, m, d], ``hessian``
            [n, m, d, d] and ``laplacian`` [n, m].
        params: of a net: ``given`` to have one vector of parameters as an argument,
            ``inside`` to keep these parameters in the library.
        batched: positions among the arguments of those whose first axis is the number
            of samples, which calls may choose. By default all inputs of a net, and none
            of a function.
        blas: a library with ``cblas_sgemm`` and ``cblas_dgemm`` to link for large
            products, such as ``openblas``; None for our own code.
        cpu: the processors that it runs on: ``native`` for those with all instructions
            of this one, ``x86-64``, ``x86-64-v2`` (SSE4.2), ``x86-64-v3`` (AVX2, FMA),
            ``x86-64-v4`` (AVX-512), or ``aarch64``, as an object file.

    Returns:
        The files written.

    Raises:
        CaptureError: a function is not one piece of machine code; the error names the
            operators that are left over.
        ImportError: llvmlite is not installed.
        RuntimeError: there is no C compiler to link with, or it fails.
        TypeError: a value of another type.
        ValueError: a name, option or shape that does not fit.

    Examples:
        >>> import paddle, tempfile
        >>> from paddle_chainrules import FCNet
        >>> from paddle_chainrules.libraries import load_library, save_library
        >>> net = FCNet((2, 8, 1))
        >>> x = paddle.rand([5, 2])
        >>> folder = tempfile.mkdtemp()
        >>> files = save_library(f"{folder}/heat.so", net, net.init(0), x)
        >>> [file.suffix for file in files]
        ['.so', '.h', '.hpp', '.f90', '.jl']
    """
    target = Path(path)
    name = _checked_name(target, cpu)
    exports, layout = _exports(name, functions, args, derivatives, params, batched)
    check_functions(name, exports)
    if blas is not None and not (
        isinstance(blas, str) and re.fullmatch(r"[\w.+-]+", blas)
    ):
        raise ValueError(
            f"blas is the name of a library to link, as 'openblas', got {blas!r}; "
            "leave out lib and .so"
        )
    machine = Target(cpu)
    with machine.compiling():
        results = [
            capture_export(function_name, export, machine)
            for function_name, export in exports.items()
        ]
        description = _description(name, results, layout, cpu)
        data = machine.object_file(name, results, description, blas)
    interfaces = {
        ".h": c_header(name, results, description),
        ".hpp": cpp_header(name, results),
        ".f90": fortran_module(name, results),
        ".jl": julia_module(name, results, description),
    }
    with tempfile.TemporaryDirectory() as folder:
        library_file = Path(folder) / f"{name}.so"
        if target.suffix == ".so":
            _link(data, library_file, blas)
            if runs_here(cpu):
                _compare(library_file, results)
            data = library_file.read_bytes()
        with ExitStack() as files:  # all are written, or none is replaced
            written = []
            texts = {suffix: text.encode() for suffix, text in interfaces.items()}
            for suffix, content in {target.suffix: data, **texts}.items():
                file = target.with_suffix(suffix)
                mode = 0o777 if suffix == ".so" else 0o666
                files.enter_context(replacing(file, mode)).write_bytes(content)
                written.append(file)
    return written


def _checked_name(target: Path, cpu: str) -> str:
    """Return the name of the library.

    Raises:
        ValueError: it is no identifier, or of another kind of file.
    """
    name = target.stem
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,39}", name) or is_word(name.lower()):
        raise ValueError(
            f"the library's name is that of its functions, and {name!r} can't be one; "
            "use up to 40 letters, digits and _, beginning with a letter, and no word "
            "of C, C++, Fortran, Julia or Python"
        )
    if target.suffix not in (".so", ".o"):
        raise ValueError(
            f"path ends in .so for a library, or .o for an object file, got "
            f"{str(target)!r}; use one of these"
        )
    if cpu not in Target.NAMES:
        raise ValueError(
            f"cpu is one of {', '.join(Target.NAMES)}, got {cpu!r}; use one of these"
        )
    if target.suffix == ".so" and (cpu == "aarch64" or sys.platform != "linux"):
        raise ValueError(
            "a library is linked for this system, which must be Linux on x86-64; give "
            "a path that ends in .o, and link it where it is to run (cc -shared)"
        )
    return name


def _exports(
    name: str,
    functions: Any,
    args: tuple[Any, ...],
    derivatives: Sequence[str],
    params: str,
    batched: int | Sequence[int] | None,
) -> tuple[dict[str, Export], list[dict[str, Any]]]:
    """Return what becomes functions, by name, and the layout of parameters."""
    if isinstance(functions, Net):
        return net_exports(name, functions, args, derivatives, params, batched)
    if derivatives or params != "given":
        raise TypeError(
            "derivatives and params are for nets; export functions made by grad, vjp "
            f"or jacrev instead, or one of {', '.join(DERIVATIVES)} of a net"
        )
    if isinstance(functions, Export):
        raise TypeError(
            "an Export needs a name; give it in a dict, as {'name': Export(fn, *args)}"
        )
    if isinstance(functions, tuple):
        raise TypeError(
            "a net or a function is saved, got a tuple; write "
            "net, params, buffers = stateless(layer), and give net and params"
        )
    if isinstance(functions, Mapping):
        if args or batched is not None or not functions:
            raise TypeError(
                "a dict of Export has arguments of its own, one at least; give the "
                "dict alone"
            )
        for key, export in functions.items():
            if not isinstance(export, Export):
                raise TypeError(
                    f"a dict holds an Export by the name of each function, got "
                    f"{type(export).__name__} by {key!r}; write Export(fn, *args)"
                )
            if not re.fullmatch(r"\w+", str(key), re.ASCII):
                raise ValueError(
                    f"{key!r} can't be a part of a function's name; use letters, "
                    "digits and _"
                )
        return {f"{name}_{key}": export for key, export in functions.items()}, []
    return {
        name: Export(functions, *args, batched=() if batched is None else batched)
    }, []


def runs_here(cpu: str) -> bool:
    """Tell whether code for a level runs on this processor.

    Raises:
        ImportError: llvmlite is not installed.
    """
    return Target(cpu).runs_here()


def _description(
    name: str,
    functions: Sequence[LibraryFunction],
    layout: list[dict[str, Any]],
    cpu: str,
) -> str:
    """Return the library's description of itself, as JSON."""

    def tensors(parameters: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "name": t.name,
                "dtype": t.dtype,
                "shape": [_size(*size) for size in t.shape],
            }
            for t in parameters
        ]

    results = {
        "library": name,
        "abi": ABI,
        "made_by": f"paddle-chainrules {version('paddle-chainrules')}",
        "cpu": Target().processor.name if cpu == "native" else cpu,
        "functions": [
            {
                "name": f.name,
                "samples": f.has_samples,
                "inputs": tensors(f.inputs),
                "outputs": tensors(f.outputs),
            }
            for f in functions
        ],
        "parameters": layout,
        "errors": Target.ERRORS,
    }
    return json.dumps(results)


def _size(factor: int, power: int) -> int | str:
    n = "n" if power == 1 else f"n^{power}"
    return factor if not power else n if factor == 1 else f"{factor}*{n}"


LINK_FLAGS = (
    "-shared",
    "-nostartfiles",
    "-s",
    "-Wl,--build-id=none",
    "-Wl,-z,noexecstack",
)


def _link(data: bytes, target: Path, blas: str | None) -> None:
    """Link an object file by the system's C compiler.

    Raises:
        RuntimeError: there is none, or it fails.
    """
    named_compiler = os.environ.get("CC")
    compiler = next(
        filter(
            None,
            map(
                shutil.which,
                [named_compiler] if named_compiler else ["cc", "gcc", "clang"],
            ),
        ),
        None,
    )
    if compiler is None:
        raise RuntimeError(
            "a library is linked by a C compiler, and there is no "
            f"{named_compiler or 'cc'}; install gcc or clang, name one as the variable "
            "CC, or give a path that ends in .o and link it elsewhere (cc -shared)"
        )
    source = target.with_suffix(".o")
    source.write_bytes(data)
    libraries = [f"-l{blas}"] if blas else []
    command = [
        compiler,
        *LINK_FLAGS,
        f"-Wl,-soname,{target.name}",
        "-o",
        str(target),
        str(source),
    ]
    completed = subprocess.run(
        [*command, *libraries, "-lm"], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise RuntimeError(
            f"{compiler} does not link the library: {completed.stderr.strip()}; see "
            "whether it links a C program, and whether the library named as blas is "
            "installed"
        )


def _compare(path: Path, functions: Sequence[LibraryFunction]) -> None:
    """Compare a library with the functions that it was made of.

    Raises:
        ValueError: an output differs.
    """
    library = load.load_library(path)
    for function in functions:
        counts = (1, 2, 3, 33) if function.has_samples else (0,)
        for count in [n for n in counts if n <= function.max_samples or not n]:
            leaves = function.resized(count)
            returned = library.functions[function.name](*(t.numpy() for t in leaves))
            outputs = returned if isinstance(returned, tuple) else (returned,)
            for tensor, got, expected in zip(
                function.outputs, outputs, function.run(leaves), strict=True
            ):
                _compare_output(function.name, tensor.name, count, got, expected)


def _compare_output(
    function: str, name: str, count: int, got: np.ndarray, expected: Tensor
) -> None:
    expected_values = expected.detach().numpy()
    output_name = f"{function}: {name}" + (f" of {count} samples" if count else "")
    is_same = got.shape == expected_values.shape
    if is_same and expected_values.dtype.kind == "f":
        finite = np.isfinite(expected_values)
        largest = np.abs(expected_values[finite]).max(initial=1e-30)
        allowed = TOLERANCE[str(expected_values.dtype)] * largest
        is_same = bool(np.array_equal(finite, np.isfinite(got)))
        is_same = is_same and bool(
            (np.abs(got - expected_values)[finite] <= allowed).all()
        )
    elif is_same:
        is_same = bool(np.array_equal(got, expected_values))
    if not is_same:
        raise ValueError(
            f"{output_name} differs from what the function gives in Python; the "
            "function may depend on the number of samples, or on more than its "
            "arguments. Give batched=() for one number of samples"
        )
