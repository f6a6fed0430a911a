"""The way into a region as one builtin function of CPython.

It checks its tensors, makes the results and runs the region, without Python in between.
See :mod:`.entry_code` for what runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from struct import pack
from typing import Any, NamedTuple

from paddle import Tensor

from ....paddle_side.locks import new_lock
from ...tracing.operations import Value
from ..extents import ShapeEnv
from ..jit_engine import compile_and_load
from .entry_code import CPYTHON, NAME, TEXT

MAX_RESULT_BYTES = 1 << 18
"""The most bytes of a result. Larger ones come from the memory that Paddle keeps."""

METH_FASTCALL = 0x80

WORD = ctypes.sizeof(ctypes.c_void_p)

DTYPES = {
    "float32": (2, 32),
    "float64": (2, 64),
    "int32": (0, 32),
    "int64": (0, 64),
    "bool": (6, 8),
}
"""The code and bits of a ``DLDataType`` by a dtype's name."""

Enter = Callable[..., "list[Tensor] | None"]


class ExchangeFunctions(NamedTuple):
    """Functions of a DLPack exchange table, by their addresses.

    Attributes:
        wrap: makes an object of a ``DLManagedTensorVersioned``, which it owns then.
        read: fills a ``DLTensor`` with an object's facts.
        description_offset: the offset of the description's pointer in a tensor.
        dense: the first word of the description of a dense tensor.
    """

    wrap: int
    read: int
    description_offset: int
    dense: int


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def exchange() -> ExchangeFunctions | None:
    """Return the exchange table of ``paddle.Tensor``; None where it has none."""
    capsule = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        address = get(capsule, b"dlpack_exchange_api")
    except ValueError:
        return None
    major = ctypes.c_uint32.from_address(address).value
    # The header, an allocator and a function from objects come before these.
    wrap, read = (ctypes.c_void_p * 2).from_address(address + 4 * 8)
    description_offset = _description_offset()
    if not (major == 1 and wrap and read and description_offset):
        return None
    dense, cleared = Tensor(), Tensor()
    cleared._clear()
    description, cleared_description = (
        _word(id(dense) + description_offset),
        _word(id(cleared) + description_offset),
    )
    if cleared_description or not description:
        return None
    return ExchangeFunctions(wrap, read, description_offset, _word(description))


def _description_offset() -> int:
    """Return the offset of a tensor's pointer to its description; 0 where unknown.

    A C++ object follows Python's own part of a tensor. Its first member is the pointer.
    """
    header_size = object.__basicsize__
    is_usual = header_size == 2 * WORD and hasattr(Tensor, "_clear")
    return header_size if is_usual else 0


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


_lock = new_lock()
_compiled_entry: list[tuple[_Method, Any]] = []
"""The definition of the builtin function, and what owns its code.

All entries point to it. So it is compiled once, and lives as long as the process.
"""


def _builtin_method() -> _Method:
    """Return the definition of the builtin function."""
    with _lock:
        if not _compiled_entry:
            functions = {
                name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p)
                for name in CPYTHON
            }
            addresses = {
                name: function.value or 0 for name, function in functions.items()
            }
            text = TEXT.replace("@NAME", f"@{NAME}")
            # Optimized it takes the same time at each call.
            engine = compile_and_load(text, [NAME], addresses, opt=0)
            address = engine.get_function_address(NAME)
            _compiled_entry.append(
                (_Method(NAME.encode(), address, METH_FASTCALL, None), engine)
            )
        return _compiled_entry[0][0]


def prepare_entries() -> None:
    """Make the code of the builtin function, where there can be one."""
    if exchange() is not None:
        _builtin_method()


def entry(
    code: Any,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    shape_env: ShapeEnv,
    work: Mapping[int, int],
    flag: int,
    may_bail_out: bool,
) -> Enter | None:
    """Return the builtin function that runs a region.

    It takes the inputs and returns a list of the outputs; None if an input is not as
    it was when the region was captured, is on another device or has gaps, if results
    are large, or if the region ends early.

    Args:
        code: the region's function.
        shape_env: gives the sizes that depend on the number of samples.
        work: the bytes of further memory, by powers of the number of samples.
        flag: the address of the region's flag.
        may_bail_out: whether the region may end early.

    Returns:
        None where there can be no such function.
    """
    table = exchange()
    if table is None or not ({*work} <= {0, 1} and outputs):
        return None
    if any(v.dtype not in DTYPES for v in (*inputs, *outputs)):
        return None
    rows: list[int] = []
    sample_axis = (-1, 0, 1)
    for i, value in enumerate((*inputs, *outputs)):
        kind, bits = DTYPES[value.dtype]
        rows += [kind | bits << 8 | 1 << 16, len(value.shape)]
        for axis, size in enumerate(value.shape):
            factor, power = shape_env.extent(size)
            if power > 1 or not size:
                return None
            if power and sample_axis[0] < 0 and i < len(inputs):
                sample_axis = i, axis, factor
            rows += [factor, power]
    if shape_env.samples is not None and sample_axis[0] < 0:
        return None  # no input tells the number of samples
    region = ctypes.cast(code, ctypes.c_void_p).value
    table_words = [
        len(inputs),
        len(outputs),
        *sample_axis,
        region,
        flag,
        may_bail_out,
        MAX_RESULT_BYTES,
    ]
    table_words += [work.get(0, 0), work.get(1, 0), table.read, table.wrap]
    table_words += [id(Tensor), table.description_offset, table.dense, *rows]
    packed_table = pack(f"{len(table_words)}q", *table_words)
    method = _builtin_method()
    new_builtin = ctypes.pythonapi.PyCFunction_NewEx
    new_builtin.restype = ctypes.py_object
    new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    result: Enter = new_builtin(
        ctypes.addressof(method), packed_table, code
    )  # which keeps the code
    return result
