"""The state of a run in one file, which is there as a whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import safetensors.paddle
from paddle import Tensor

from ..whole_files import replacing
from .processes import rank
from .rounds import agree, send

PLAIN = (bool, int, float, str, type(None))


def save_checkpoint(path: str | os.PathLike[str], state: Any) -> None:
    """Write the state of a run, the same on all ranks: rank 0 writes, all wait for it.

    The file is a ``.safetensors``: no code in it, tensors bit for bit. An error, or a
    process that is killed, leaves the file that was there before.

    Args:
        path: where to.
        state: dicts, lists and tuples of tensors, numbers, strings and None:
            parameters, an optimizer's ``state_dict()``, the step, the seed.

    Raises:
        TypeError: a leaf of another kind, or a key that is no string or int.
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
        ValueError: on rank 0, where it is no checkpoint.
        RankError: on the others, where rank 0 failed; anywhere, where a rank is gone.
    """
    failure, data = None, b""
    try:
        if rank() == 0:
            data = Path(path).read_bytes()
            _check(path, data)
    except Exception as error:  # the others are told
        failure = error
    # The weight tells the others how many bytes will come.
    sizes = agree("load_checkpoint", weight=float(len(data)), failure=failure)
    buffer = paddle.zeros([int(sizes[0])], dtype="uint8")
    if rank() == 0:
        buffer = paddle.to_tensor(np.frombuffer(data, dtype="uint8").copy())
    send(buffer, source=0)
    return _read(buffer.numpy().tobytes())


def _write(path: Path, state: Any) -> None:
    tensors: dict[str, Tensor] = {}
    tree = _packed(state, "state", tensors)
    with replacing(path) as temporary:
        safetensors.paddle.save_file(
            tensors, str(temporary), {"state": json.dumps(tree)}
        )
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())


def _packed(node: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A tree as JSON has it: containers as pairs of kind and content."""
    if isinstance(node, Tensor):
        tensors[name] = node.detach().cpu().contiguous().clone()
        return ["tensor", name]
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


def _check(path: str | os.PathLike[str], data: bytes) -> None:
    try:
        _read(data)
    except Exception as error:
        raise ValueError(
            f"{os.fspath(path)!r} is no checkpoint: it must be a file that "
            f"save_checkpoint wrote, got {len(data)} bytes of something else; give "
            "the path of one, or an earlier copy"
        ) from error


def _state_of(data: bytes) -> Any:
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["state"])


def _read(data: bytes) -> Any:
    tensors = safetensors.paddle.load(data)

    def unpacked(node: Any) -> Any:
        kind, content = node
        if kind == "tensor":
            return tensors[content]
        if kind == "dict":
            return {key: unpacked(part) for key, part in content}
        if kind in ("list", "tuple"):
            parts = [unpacked(part) for part in content]
            return parts if kind == "list" else tuple(parts)
        return content

    return unpacked(_state_of(data))
