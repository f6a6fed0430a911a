"""The state of a run in one file, which is there as a whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .. import tensor_files
from ..paddle_side.dtypes import dtype_name
from ..tree_files import read_tree, unpack, write_tree
from .processes import rank, size
from .rounds import agree, send


def save_checkpoint(path: str | os.PathLike[str], state: Any) -> None:
    """Write the state of a run, the same on all ranks: rank 0 writes, all wait for it.

    The file is a ``.safetensors``: no code in it, tensors bit for bit, with a checksum
    of all. An error, or a process that is killed, leaves the file that was there.

    Args:
        path: the file.
        state: dicts, lists and tuples of tensors, numbers, strings and None:
            parameters, an optimizer's state, the step, the seed.

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
            write_tree(Path(path), state)
    except Exception as error:  # the others are told
        failure = error
    agree("save_checkpoint", failure=failure)


def load_checkpoint(path: str | os.PathLike[str]) -> Any:
    """Load on all ranks what :func:`save_checkpoint` wrote; rank 0 reads and sends it.

    The tensors are on Paddle's current device.

    Args:
        path: the file, on rank 0's machine.

    Raises:
        OSError: on rank 0, if the file can't be read.
        ValueError: on rank 0, if it is no checkpoint, or has changed since.
        RankError: on the others, if rank 0 failed; on any rank, if another is gone.
    """
    failure: Exception | None = None
    tree: Any = None
    tensors: dict[str, Tensor] = {}
    try:
        if rank() == 0:
            tree, tensors = read_tree(Path(path))
    except Exception as error:  # the others are told
        failure = error
    kinds = [[n, dtype_name(t.dtype), t.shape] for n, t in tensors.items()]
    text = json.dumps([tree, kinds]).encode()
    # The weight tells the others how many bytes will come.
    sizes = agree("load_checkpoint", weight=float(len(text)), failure=failure)
    if size() > 1:
        buffer = bytearray(text if rank() == 0 else int(sizes[0]))
        _send_bytes(memoryview(buffer))
        tree, kinds = json.loads(buffer)
        for name, dtype, shape in kinds:
            if rank() != 0:
                tensors[name] = tensor_files.empty(shape, dtype)
            _send_bytes(tensor_files.memory(tensors[name]))
    return unpack(tree, tensors)


BROADCAST_BYTES = 1 << 26
"""Bytes that are sent in one broadcast, from a copy of them."""


def _send_bytes(memory: memoryview) -> None:
    """Replace bytes by those of rank 0."""
    for start in range(0, len(memory), BROADCAST_BYTES):
        chunk = memory[start : start + BROADCAST_BYTES]
        buffer = send(paddle.to_tensor(np.frombuffer(chunk, "uint8")), source=0)
        if rank() != 0:
            chunk[:] = buffer.numpy().data
