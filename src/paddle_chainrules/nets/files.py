"""Parameters in files: ``.npz`` and ``.safetensors``, neither of which can hold code.

Where the net is given that a file is for, names, shapes and dtypes are compared with
the net's before any element is read, and no more bytes are read than the net needs, so
that a corrupt or hostile file costs an error, not memory. Without a net the file's own
header stands in its place.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from .. import tensor_files
from ..paddle_side.dtypes import dtype_name
from ..whole_files import replacing
from .net import Net
from .parameters.params import ParamSpec

PathLike = str | os.PathLike[str]

NUMPY_DTYPES = {"bfloat16": np.dtype("uint16")}
"""Numpy's dtypes of elements, for those without a numpy dtype of the same name."""

DTYPE_OF_NUMPY = {str(kind): name for name, kind in NUMPY_DTYPES.items()}

NPZ_DTYPES = (*tensor_files.DTYPES, "complex128")

HEADER_BYTES = 1_000
"""Bytes above those of an array's header in ``.npz``, or of one in ``.safetensors``
without its name."""


class ExpectedContents(NamedTuple):
    """The contents that a file must have for one parameter.

    Attributes:
        dtype: numpy's dtype.
        size: the number of bytes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int


Described = dict[str, tuple[tuple[int, ...], str]]
"""Shapes and dtypes of what is in a file, by name."""


def save_params(path: PathLike, params: Mapping[str, Tensor]) -> None:
    """Write parameters, or buffers, to a ``.npz`` or ``.safetensors`` file.

    It is there as a whole or not at all: an error leaves what was there before.
    ``numpy.load`` reads the one, the safetensors library the other; bfloat16 is uint16
    in ``.npz``. Both have checksums. A symbolic link stays one, and what it points to
    is replaced; a file that is replaced keeps its mode.

    Args:
        path: the file; its suffix names the format.
        params: ``{name: tensor}``, as :meth:`Net.unflatten` gives of a theta.

    Raises:
        ValueError: another suffix, a name that the file can't hold, a tensor without
            numbers, or path is no regular file.
        TypeError: params is no dict of tensors, one of them is sparse, or has a dtype
            that the file can't hold, as complex128 in ``.safetensors``.
        FileNotFoundError: the folder is not there.
        OSError: the file can't be written.

    Examples:
        >>> import tempfile, paddle
        >>> from paddle_chainrules import FCNet, load_params, save_params
        >>> net = FCNet((3, 5, 2))
        >>> params = net.init(0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_params(f"{folder}/net.npz", params)
        ...     again = load_params(f"{folder}/net.npz", net)
        >>> all(again[name].equal_all(params[name]) for name in params)
        True
    """
    path = Path(path)
    file_format = _format(path)
    if not isinstance(params, Mapping):
        raise TypeError(
            f"save_params takes a dict of tensors, got {type(params).__name__}; "
            "net.unflatten(theta) makes one of a flat vector"
        )
    for name, value in params.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise TypeError(
                "save_params takes a dict of names and tensors, got "
                f"{name!r}: {type(value).__name__}; names are strings, and nested "
                "parameters go to files by save"
            )
        tensor_files.check(name, value, file_format.dtypes)
    with replacing(path) as temporary:
        file_format.write(temporary, params)
        _check_written(file_format.describe(temporary), params)


def load_params(
    path: PathLike, like: Net | ParamSpec | Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Read parameters, or buffers, from a ``.npz`` or ``.safetensors`` file.

    Nothing in the file is executed: no pickle is read. The tensors are on Paddle's
    current device. Give ``like`` for a file that you do not trust: without it, what is
    read is as large as the file says.

    Args:
        path: the file; its suffix names the format.
        like: the net that they are for, its spec, or a dict of tensors like them. By
            default the file itself says names, shapes and dtypes.

    Returns:
        ``{name: tensor}`` in the order of ``like``, or of the file.

    Raises:
        ValueError: another suffix, a file that is not of that format or corrupt, or
            one with other names, shapes or dtypes.
        TypeError: like is no net, spec or dict.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    file_format = _format(path)
    if not isinstance(like, Net | ParamSpec | Mapping | None):
        raise TypeError(
            "load_params takes the net that the parameters are for, its spec, or a "
            f"dict of tensors like them, got {type(like).__name__}; give "
            "load_params(path, net), for a layer with net, params, buffers = "
            "stateless(layer), or load_params(path) for what the file has"
        )
    if like is None:
        spec = _spec_of(path, file_format)
    elif isinstance(like, Net):
        spec = like.spec
    else:
        spec = like if isinstance(like, ParamSpec) else ParamSpec.of(like)
    with tensor_files.opened(path) as file:
        _check_size(path, file, spec)
        result = file_format.read(path, file, spec)
    return {name: result[name] for name in spec.names}


def _spec_of(path: Path, file_format: Format) -> ParamSpec:
    """Return what a file says of itself."""
    with tensor_files.opened(path), _corrupt_where_it_fails(path):
        found = file_format.describe(path)
    for name, (_, dtype) in found.items():
        if dtype not in file_format.dtypes:
            raise _corrupt(path, f"{name} is of the dtype {dtype}")
    shapes, dtypes = zip(*found.values(), strict=True) if found else ((), ())
    return ParamSpec(tuple(found), tuple(shapes), tuple(dtypes))


class Format(NamedTuple):
    """The functions for files of a suffix, and the dtypes that these can hold."""

    write: Callable[[Path, Mapping[str, Tensor]], None]
    describe: Callable[[Path], Described]
    read: Callable[[Path, BinaryIO, ParamSpec], dict[str, Tensor]]
    dtypes: Sequence[str]


def _format(path: Path) -> Format:
    if path.suffix not in FORMATS:
        raise ValueError(
            f"{path} ends in {path.suffix!r}; parameters are kept in files that end in "
            f"{' or '.join(FORMATS)}. A .pdparams file of paddle.save is a pickle, "
            "which runs any code that is in it: where you trust it, give "
            "paddle.load(path) to net.from_state_dict"
        )
    return FORMATS[path.suffix]


def _check_written(written: Described, params: Mapping[str, Tensor]) -> None:
    """Refuse what would not be read again, such as a name with a NUL in an archive."""
    expected: Described = {
        name: (tuple(value.shape), dtype_name(value.dtype))
        for name, value in params.items()
    }
    if written != expected:
        lost_name = next(n for n in expected if written.get(n) != expected[n])
        raise ValueError(
            f"the file can't hold a tensor of the name {lost_name[:80]!r}; rename it"
        )


def _write_npz(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, tensor in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                array = np.asarray(tensor.detach().numpy())
                np.lib.format.write_array(member, array, allow_pickle=False)


def _opened_zip(file: Path | BinaryIO) -> zipfile.ZipFile:
    """Open an archive. One whose entries have comments is corrupt: none is written."""
    archive = zipfile.ZipFile(file)
    if any(member.comment for member in archive.filelist):
        raise zipfile.BadZipFile(
            "an entry has a comment, which none is written with; save it again"
        )
    return archive


def _describe_npz(path: Path) -> Described:
    results = {}
    with _opened_zip(path) as archive:
        for member in archive.filelist:
            with archive.open(member) as stream:
                _, shape, _, dtype = _npy_header(stream.read(HEADER_BYTES))
            name = member.filename.removesuffix(".npy")
            results[name] = shape, DTYPE_OF_NUMPY.get(str(dtype), str(dtype))
    return results


def _read_npz(path: Path, file: BinaryIO, spec: ParamSpec) -> dict[str, Tensor]:
    with _corrupt_where_it_fails(path):
        archive = _opened_zip(file)
    names = [m.filename.removesuffix(".npy") for m in archive.filelist]
    _check_names(path, spec, names)
    members = dict(zip(names, archive.filelist, strict=True))
    return {
        w.name: paddle.to_tensor(_read_member(path, archive, members[w.name], w))
        for w in _expected_contents(spec)
    }


def _read_member(
    path: Path,
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    expected: ExpectedContents,
) -> Any:
    name, shape, dtype, size = expected
    if member.file_size > size + HEADER_BYTES:
        raise ValueError(
            f"{name} in {path} has {member.file_size} bytes, {list(shape)} elements of "
            f"{dtype} are {size}; load it for the net that it was saved of"
        )
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _corrupt(path, f"{name} is packed in a way that numpy does not have")
    with _corrupt_where_it_fails(path), archive.open(member) as stream:
        content = stream.read(size + HEADER_BYTES + 1)
    with _corrupt_where_it_fails(path):
        start, found_shape, is_fortran, found_dtype = _npy_header(content)
    kind = str(found_dtype.newbyteorder("="))
    _check_contents(path, expected, found_shape, kind, str(dtype))
    if len(content) - start != size:
        raise _corrupt(path, f"{name} is cut off or too long")
    array = np.frombuffer(content, found_dtype, offset=start)
    array = array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
    return np.ascontiguousarray(array, dtype).reshape(shape)


def _npy_header(content: bytes) -> tuple[int, tuple[int, ...], bool, Any]:
    """Return the start of the elements, shape, whether Fortran-ordered, and dtype."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    shape, is_fortran, dtype = readers[version](stream)
    return stream.tell(), shape, is_fortran, dtype


@contextmanager
def _corrupt_where_it_fails(path: Path) -> Iterator[None]:
    """Raise a library's errors at a corrupt file, of many kinds, as one of ours."""
    try:
        yield
    except Exception as error:
        raise _corrupt(path, error) from error


def _write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    tensor_files.write(path, tensors, {})


def _describe_safetensors(path: Path) -> Described:
    with tensor_files.opened(path) as file:
        entries = tensor_files.read_header(file).tensors
    return {name: (entry.shape, entry.dtype) for name, entry in entries.items()}


def _read_safetensors(path: Path, file: BinaryIO, spec: ParamSpec) -> dict[str, Tensor]:
    with _corrupt_where_it_fails(path):
        header = tensor_files.read_header(file)
    _check_names(path, spec, list(header.tensors))
    for expected, dtype in zip(_expected_contents(spec), spec.dtypes, strict=True):
        entry = header.tensors[expected.name]
        _check_contents(path, expected, entry.shape, entry.dtype, dtype)
    with _corrupt_where_it_fails(path):
        results = tensor_files.read(file, header)
    return {
        name: value.to(paddle.device.get_device()) for name, value in results.items()
    }


FORMATS = {
    ".npz": Format(_write_npz, _describe_npz, _read_npz, NPZ_DTYPES),
    ".safetensors": Format(
        _write_safetensors,
        _describe_safetensors,
        _read_safetensors,
        tuple(tensor_files.DTYPES),
    ),
}


def _expected_contents(spec: ParamSpec) -> Iterator[ExpectedContents]:
    for name, shape, kind in zip(spec.names, spec.shapes, spec.dtypes, strict=True):
        dtype = NUMPY_DTYPES.get(kind) or np.dtype(kind)
        yield ExpectedContents(name, shape, dtype, math.prod(shape) * dtype.itemsize)


def _check_names(path: Path, spec: ParamSpec, file_names: list[str]) -> None:
    if sorted(file_names) != sorted(spec.names):
        missing = [name for name in spec.names if name not in file_names]
        unknown = sorted(name for name in file_names if name not in spec.names)
        raise ValueError(
            f"{path} must have exactly the names {list(spec.names)}; missing: "
            f"{missing}, unknown: {unknown}"
            + ("" if missing or unknown else ", and some twice")
            + "; load it for the net that it was saved of"
        )


def _most_bytes(spec: ParamSpec) -> int:
    """Return more bytes than a net's parameters take in a file, 100 kB for metadata."""
    expected = _expected_contents(spec)
    return 100_000 + sum(w.size + HEADER_BYTES + 12 * len(w.name) for w in expected)


def _check_size(path: Path, file: BinaryIO, spec: ParamSpec) -> None:
    """Refuse a file that is larger than any of the net's parameters."""
    stat = os.fstat(file.fileno())
    if stat.st_size > _most_bytes(spec):
        raise ValueError(
            f"{path} has {stat.st_size} bytes, the parameters of the net are "
            f"{sum(one.size for one in _expected_contents(spec))}; load it for the "
            "net that it was saved of"
        )


def _check_contents(
    path: Path,
    expected: ExpectedContents,
    shape: Sequence[int],
    dtype: str,
    needed: str,
) -> None:
    if tuple(shape) != expected.shape or dtype != needed:
        raise ValueError(
            f"{expected.name} in {path} has shape {list(shape)} and dtype {dtype}, the "
            f"net needs {list(expected.shape)} and {needed}; load it for the net that "
            "it was saved of"
        )


def _corrupt(path: Path, why: object) -> ValueError:
    return ValueError(
        f"{path} is no {path.suffix} file of parameters, or a corrupt one: {why}"
    )
