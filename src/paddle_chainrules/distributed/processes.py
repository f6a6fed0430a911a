"""The processes of a run, which ``paddle.distributed`` starts and connects."""

from __future__ import annotations

import os

import paddle.distributed as dist
from paddle.base import core


def start() -> None:
    """Connect the processes of this run; once, before anything else of this package.

    The launcher names the processes in the environment:
    ``python -m paddle.distributed.launch --nproc_per_node 4 train.py``. Without it the
    run is one process, and this does nothing.

    Examples:
        >>> from paddle_chainrules import distributed
        >>> distributed.start()
        >>> distributed.rank(), distributed.size()
        (0, 1)
    """
    if _launched_processes() > 1 and not dist.is_initialized():
        if not core.is_compiled_with_cuda():
            os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
        dist.init_parallel_env()


def rank() -> int:
    """Return the number of this process, from 0.

    Raises:
        RuntimeError: the processes are not connected yet.
    """
    return dist.get_rank() if size() > 1 else 0


def size() -> int:
    """Return how many processes there are.

    Raises:
        RuntimeError: the processes are not connected yet.
    """
    if dist.is_initialized():
        return dist.get_world_size()
    if _launched_processes() > 1:
        raise RuntimeError(
            f"this is one of {_launched_processes()} processes, which are not "
            "connected; call distributed.start() first, in each of them"
        )
    return 1


def _launched_processes() -> int:
    return int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
