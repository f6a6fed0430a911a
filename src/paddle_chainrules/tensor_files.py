"""Tensors in ``.safetensors`` files, written from and read into their own memory.

The safetensors library reads and writes the same format. It has no complex numbers for
Paddle and no checksum, and it holds a file's content several times. We add a SHA-256 of
the whole content to the metadata. Files without one are read, too.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import paddle
from paddle import Tensor

from .paddle_side.dtypes import dtype_name
from .paddle_side.shared_memory import without_gaps

DTYPES = {
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}
"""Paddle's dtypes that the format has, with their names there and sizes in bytes."""

DTYPES_BY_NAME = {name: dtype for dtype, (name, _) in DTYPES.items()}

METADATA = "__metadata__"
CHECKSUM = "paddle_chainrules.sha256"
CHUNK_BYTES = 1 << 24
"""Bytes that are copied before they are written."""

MAX_DIMENSIONS = 9
"""Most dimensions of Paddle's tensors."""

MAX_NAME_BYTES = 60_000
"""Bytes of a tensor's name, which an archive counts in 16 bits."""

MAX_HEADER_BYTES = 100_000_000
"""Bytes, as the library has it."""


class Corrupt(ValueError):
    """A defect of a file. The caller names the file and says what to do."""


class StoredTensor(NamedTuple):
    """A tensor in a file.

    Attributes:
        start: the offset of its bytes, counted from the end of the header.
        size: the size in bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


class Header(NamedTuple):
    """The header of a file.

    Attributes:
        begin: the offset of the tensors' bytes in the file.
    """

    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]
    begin: int


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, and never wait for a pipe.

    Raises:
        OSError: there is none, or it can't be read.
        ValueError: it is a pipe, a device or a folder.
    """
    flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    number = os.open(path, os.O_RDONLY | flags)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise ValueError(f"{path} is no regular file; copy what it gives to one")
        with open(number, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(number)


def check(name: str, tensor: Tensor, dtypes: Sequence[str] = tuple(DTYPES)) -> None:
    """Refuse a tensor that a file can't hold.

    Raises:
        TypeError: a dtype that the format has not, or a sparse tensor.
        ValueError: a tensor without numbers, or a name that is no text.
    """
    dtype = dtype_name(tensor.dtype)
    if dtype not in dtypes:
        raise TypeError(
            f"{name!r} is {dtype}, which this file can't hold; it holds "
            f"{', '.join(dtypes)}. Convert it, complex numbers by paddle.as_real"
        )
    if not tensor.is_dense():
        raise TypeError(
            f"{name!r} is a sparse tensor, and files hold dense ones; convert it by "
            ".to_dense()"
        )
    if tensor.size and not tensor._is_initialized():
        raise ValueError(f"{name!r} has no numbers yet; initialize it, or leave it out")
    try:
        is_short = len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        is_short = False
    if not is_short:
        raise ValueError(
            f"{name[:80]!r} is no name that a file can hold, or too long; name it "
            "otherwise"
        )


def write(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write tensors, each of which :func:`check` lets pass, and their checksum.

    Raises:
        ValueError: a name that the format keeps for itself.
        OSError: the file can't be written.
    """
    if METADATA in tensors:
        raise ValueError(
            f"no tensor may be named {METADATA!r}, which a .safetensors file has for "
            "its own; rename it, or save a .npz"
        )
    entries, start = {}, 0
    for name in sorted(
        tensors, key=lambda n: (-_itemsize(dtype_name(tensors[n].dtype)), n)
    ):
        dtype, shape = dtype_name(tensors[name].dtype), tuple(tensors[name].shape)
        size = math.prod(shape) * _itemsize(dtype)
        entries[name] = StoredTensor(dtype, shape, start, size)
        start += size
    sums = {}
    with open(path, "wb") as file:
        file.write(_header(entries, metadata, "0" * 64))
        for name in entries:
            sums[name] = _write_chunks(file, memory(tensors[name]))
        file.seek(0)
        file.write(_header(entries, metadata, _checksum(entries, metadata, sums)))


def _header(
    entries: Mapping[str, StoredTensor], metadata: Mapping[str, str], checksum: str
) -> bytes:
    """Build the header, of the same length for every checksum."""
    results: dict[str, Any] = {METADATA: {**metadata, CHECKSUM: checksum}}
    for name, entry in entries.items():
        results[name] = {
            "dtype": DTYPES[entry.dtype][0],
            "shape": entry.shape,
            "data_offsets": (entry.start, entry.start + entry.size),
        }
    text = json.dumps(results, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_chunks(file: BinaryIO, data: memoryview) -> bytes:
    """Write bytes and return their SHA-256, as written.

    Another thread may change them meanwhile, so each chunk is copied first.
    """
    digest = hashlib.sha256()
    for start in range(0, len(data), CHUNK_BYTES):
        chunk = bytes(data[start : start + CHUNK_BYTES])
        file.write(chunk)
        digest.update(chunk)
    return digest.digest()


def read_header(file: BinaryIO) -> Header:
    """Read the header, and check that the file is as long as it says.

    Raises:
        Corrupt: it is no such file, or cut off.
    """
    total = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(total - 8, MAX_HEADER_BYTES):
        raise Corrupt("it has no header")
    try:
        descriptions = json.loads(file.read(length), object_pairs_hook=_unique_names)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"its header can't be read ({error})") from None
    if type(descriptions) is not dict:
        raise Corrupt("its header has no names")
    metadata = descriptions.pop(METADATA, {})
    if type(metadata) is not dict or not all(
        type(value) is str for value in metadata.values()
    ):
        raise Corrupt("its metadata is no text")
    entries = {
        name: _parse_entry(name, description)
        for name, description in descriptions.items()
    }
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start != end:
            raise Corrupt(f"{name!r} begins at {entry.start}, and not at {end}")
        end += entry.size
    if 8 + length + end != total:
        raise Corrupt(f"it has {total} bytes, and not {8 + length + end}")
    return Header(entries, metadata, 8 + length)


def read(file: BinaryIO, header: Header) -> dict[str, Tensor]:
    """Read all tensors of a file, on the CPU, and compare their checksum.

    Raises:
        Corrupt: the file has changed since it was written, or is read meanwhile.
    """
    result, sums = {}, {}
    for name, entry in header.tensors.items():
        result[name] = empty(entry.shape, entry.dtype)
        target = memory(result[name])
        file.seek(header.begin + entry.start)
        bytes_read = 0
        while bytes_read < entry.size:
            count = file.readinto(target[bytes_read:])  # type: ignore[attr-defined]
            if not count:
                raise Corrupt(f"it ends within {name!r}")
            bytes_read += count
        if CHECKSUM in header.metadata:
            sums[name] = hashlib.sha256(target).digest()
    metadata = {**header.metadata}
    expected = metadata.pop(CHECKSUM, None)
    if expected is not None and _checksum(header.tensors, metadata, sums) != expected:
        raise Corrupt(
            "its checksum differs, so it has changed since it was written; take an "
            "earlier copy"
        )
    return result


def empty(shape: Sequence[int], dtype: Any) -> Tensor:
    """Make a tensor on the CPU whose numbers are yet to be read."""
    return paddle.empty(shape, dtype, device="cpu")


def memory(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor: its own memory if it is dense and on the CPU."""
    tensor = without_gaps(tensor.detach().cpu())
    size = math.prod(tensor.shape) * _itemsize(dtype_name(tensor.dtype))
    if not size:
        return memoryview(b"")
    result: Any = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    result.owner = tensor
    return memoryview(result).cast("B")


def _itemsize(dtype: str) -> int:
    return DTYPES[dtype][1]


def _checksum(
    entries: Mapping[str, StoredTensor],
    metadata: Mapping[str, str],
    sums: Mapping[str, bytes],
) -> str:
    """Return the SHA-256 of a file's content, in whatever order it is stored."""
    rows = [
        [n, entry.dtype, entry.shape, sums[n].hex()]
        for n, entry in sorted(entries.items())
    ]
    text = json.dumps([rows, sorted(metadata.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    results = dict(pairs)
    if len(results) != len(pairs):
        raise Corrupt(f"some twice of {sorted(name for name, _ in pairs)}")
    return results


def _parse_entry(name: str, description: Any) -> StoredTensor:
    """Parse the entry of a tensor in a header."""
    if type(description) is not dict or description.keys() != {
        "dtype",
        "shape",
        "data_offsets",
    }:
        raise Corrupt(f"{name!r} is not described")
    dtype, shape, offsets = (
        description["dtype"],
        description["shape"],
        description["data_offsets"],
    )
    for numbers in (shape, offsets):
        if type(numbers) is not list or not all(
            type(n) is int and 0 <= n < 2**62 for n in numbers
        ):
            raise Corrupt(f"{name!r} has no sizes")
    if type(dtype) is not str or dtype not in DTYPES_BY_NAME or len(offsets) != 2:
        raise Corrupt(f"{name!r} is of a kind that is not known, {dtype!r}")
    start, end = offsets
    if len(shape) > MAX_DIMENSIONS or math.prod(n or 1 for n in shape) >= 2**62:
        raise Corrupt(f"{name!r} is of no shape that a tensor has")
    size = math.prod(shape) * _itemsize(DTYPES_BY_NAME[dtype])
    if end - start != size:
        raise Corrupt(f"{name!r} has {end - start} bytes, and not {size}")
    return StoredTensor(DTYPES_BY_NAME[dtype], tuple(shape), start, size)
