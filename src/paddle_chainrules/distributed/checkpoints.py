"""The state of a run in one file, which is there as a whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .. import tensor_files
from ..paddle_side.dtypes import dtype_name
from ..tensor_files import Corrupt
from ..whole_files import replacing
from .processes import rank, size
from .rounds import agree, send

PLAIN = (bool, int, float, str, type(None))
COMPLEX = ("complex64", "complex128")
"""Kept as pairs of real numbers."""


def save_checkpoint(path: str | os.PathLike[str], state: Any) -> None:
    """Write the state of a run, the same on all ranks: rank 0 writes, all wait for it.

    The file is a ``.safetensors``: no code in it, tensors bit for bit, with a checksum
    of all. An error, or a process that is killed, leaves the file that was there.

    Args:
        path: where to.
        state: dicts, lists and tuples of tensors, numbers, strings and None:
            parameters, an optimizer's ``state_dict()``, the step, the seed.

    Raises:
        TypeError: a leaf of another kind, or a key that is no string or int.
        ValueError: on rank 0, where a name can't be kept, or containers are nested too
            deeply; path is no regular file.
        OSError: on rank 0, where the file can't be written.
        RankError: on the others, where rank 0 failed; anywhere, where a rank is gone.

    Examples:
        >>> import tempfile
        >>> from paddle_chainrules import FCNet, distributed
        >>> state = {"params": FCNet((3, 5, 2)).init(seed=0), "step": 7}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     distributed.save_checkpoint(f"{folder}/run.safetensors", state)
        ...     distributed.load_checkpoint(f"{folder}/run.safetensors")["step"]
        7
    """
    failure = None
    try:
        if rank() == 0:
            _write(Path(path), state)
    except Exception as error:  # the others are told
        failure = error
    agree("save_checkpoint", failure=failure)


def load_checkpoint(path: str | os.PathLike[str]) -> Any:
    """What :func:`save_checkpoint` wrote, on all ranks: rank 0 reads and sends it.

    Args:
        path: where from, on rank 0's machine.

    Raises:
        OSError: on rank 0, where the file can't be read.
        ValueError: on rank 0, where it is no checkpoint, or has changed since.
        RankError: on the others, where rank 0 failed; anywhere, where a rank is gone.
    """
    failure: Exception | None = None
    tree: Any = None
    tensors: dict[str, Tensor] = {}
    try:
        if rank() == 0:
            tree, tensors = _read(Path(path))
    except Exception as error:  # the others are told
        failure = error
    kinds = [[n, dtype_name(t.dtype), t.shape] for n, t in tensors.items()]
    text = json.dumps([tree, kinds]).encode()
    # The weight tells the others how many bytes will come.
    sizes = agree("load_checkpoint", weight=float(len(text)), failure=failure)
    if size() > 1:
        buffer = bytearray(text if rank() == 0 else int(sizes[0]))
        _send(memoryview(buffer))
        tree, kinds = json.loads(buffer)
        for name, dtype, shape in kinds:
            if rank() != 0:
                tensors[name] = tensor_files.empty(shape, dtype)
            _send(tensor_files.memory(tensors[name]))
    return _unpacked(tree, tensors)


SENT_AT_ONCE = 1 << 26
"""Bytes that are sent in one broadcast, from a copy of them."""


def _send(memory: memoryview) -> None:
    """Replace bytes by those of rank 0."""
    for start in range(0, len(memory), SENT_AT_ONCE):
        part = memory[start : start + SENT_AT_ONCE]
        buffer = paddle.to_tensor(np.frombuffer(part, "uint8"))
        send(buffer, source=0)
        if rank() != 0:
            part[:] = buffer.numpy().data


def _write(path: Path, state: Any) -> None:
    tensors: dict[str, Tensor] = {}
    try:
        tree = json.dumps(_packed(state, "state", tensors))
    except RecursionError:
        raise ValueError(
            "the state is nested too deeply for a file; give it in fewer levels"
        ) from None
    with replacing(path) as beside:
        tensor_files.write(beside, tensors, {STATE: tree})
        with tensor_files.opened(beside) as file:
            _tree_of(tensor_files.read_header(file))


STATE = "state"
"""Where in a file's metadata the containers are."""


def _packed(node: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A tree as JSON has it: containers as pairs of kind and content."""
    if isinstance(node, Tensor):
        is_complex = dtype_name(node.dtype) in COMPLEX
        kept = paddle.as_real(node.detach()) if is_complex else node
        tensor_files.check(name, kept)
        tensors[name] = kept
        return ["complex" if is_complex else "tensor", name]
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise TypeError(
                    f"keys must be strings or ints, got {key!r} in {name}; name what "
                    "is kept by one of these"
                )
        return [
            "dict",
            [[k, _packed(v, f"{name}[{k!r}]", tensors)] for k, v in node.items()],
        ]
    if type(node) in (list, tuple):
        parts = [_packed(part, f"{name}[{i}]", tensors) for i, part in enumerate(node)]
        return [type(node).__name__, parts]
    if isinstance(node, PLAIN):
        return ["plain", node]
    raise TypeError(
        "a checkpoint holds tensors, numbers, strings and None in dicts, lists and "
        f"tuples, got {type(node).__name__} at {name}; convert it, arrays by "
        "paddle.to_tensor"
    )


def _read(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """Read the packed tree of a file, and its tensors.

    Raises:
        OSError: it can't be read.
        ValueError: it is no checkpoint.
    """
    try:
        with tensor_files.opened(path) as file:
            header = tensor_files.read_header(file)
            tree = _tree_of(header)
            return tree, tensor_files.read(file, header)
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)!r} is no checkpoint: it must be a whole file that "
            f"save_checkpoint wrote, but {error}; give the path of one, or an earlier "
            "copy"
        ) from error


def _tree_of(header: tensor_files.Header) -> Any:
    """Parse the packed tree, and check that it uses each tensor exactly once.

    Raises:
        Corrupt: it tells of none, or of others than the tensors that are there.
    """
    if header.metadata.keys() - {tensor_files.CHECKSUM} != {STATE}:
        raise Corrupt("it tells of no state")
    try:
        tree = json.loads(header.metadata[STATE])
        kinds = _tensors_of(tree)
    except RecursionError:
        raise Corrupt("its state is nested too deeply") from None
    if sorted(name for name, _ in kinds) != sorted(header.parts):
        raise Corrupt("its state has other tensors than the file")
    for name, is_complex in kinds:
        part = header.parts[name]
        is_pairs = part.dtype in ("float32", "float64") and part.shape[-1:] == (2,)
        if is_complex and not is_pairs:
            raise Corrupt(f"{name!r} is no complex tensor")
    return tree


def _tensors_of(node: Any) -> list[tuple[str, bool]]:
    """Return the names of the tensors in a packed tree, and whether they are complex.

    Raises:
        Corrupt: it is none of these.
    """
    if type(node) is not list or len(node) != 2:
        raise Corrupt(f"its state has {str(node)[:40]} for a kind and content")
    kind, content = node
    if kind in ("tensor", "complex") and type(content) is str:
        return [(content, kind == "complex")]
    if kind == "plain" and isinstance(content, PLAIN):
        return []
    if kind in ("list", "tuple") and type(content) is list:
        return [tensor for part in content for tensor in _tensors_of(part)]
    if kind == "dict" and type(content) is list and all(map(_is_pair, content)):
        if len({key for key, _ in content}) != len(content):
            raise Corrupt("its state has a key twice")
        return [tensor for _, part in content for tensor in _tensors_of(part)]
    raise Corrupt(f"its state has the kind {str(kind)[:40]}")


def _is_pair(pair: Any) -> bool:
    return type(pair) is list and len(pair) == 2 and type(pair[0]) in (str, int)


def _unpacked(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    kind, content = node
    if kind == "tensor":
        return tensors[content]
    if kind == "complex":
        return paddle.as_complex(tensors[content])
    if kind == "dict":
        return {key: _unpacked(part, tensors) for key, part in content}
    if kind in ("list", "tuple"):
        parts = [_unpacked(part, tensors) for part in content]
        return parts if kind == "list" else tuple(parts)
    return content
