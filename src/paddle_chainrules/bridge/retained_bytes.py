"""Bytes saved for a pullback, for a collector that does not see them."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Protocol

import paddle

NODE_BYTES = 6_000
"""Bytes of an operator on a recorded graph, without its tensors' elements. Measured
with paddlepaddle 3.3.1: 4,000 to 10,000."""


class GraphHolder(Protocol):
    """An object that keeps a recorded graph."""

    @property
    def nodes(self) -> int:
        """The number of operators on it."""


class RetainedBytesMeter:
    """Bytes behind the pullbacks of one net; its graph is walked once."""

    def __init__(self) -> None:
        self._overhead: int | None = None

    def of(self, holder: GraphHolder, elements: int) -> int:
        """Return the bytes of elements, and of all else."""
        if self._overhead is None:
            self._overhead = NODE_BYTES * holder.nodes
        return self._overhead + elements


def allocated() -> int:
    """Return bytes of the elements of all tensors alive."""
    alive: int = paddle.base.core.host_memory_stat_current_value("Allocated", 0)
    for device in range(_gpus()):
        alive += paddle.device.cuda.memory_allocated(device)
    return alive


@cache
def _gpus() -> int:
    return (
        paddle.device.cuda.device_count()
        if paddle.device.is_compiled_with_cuda()
        else 0
    )


last_retained_bytes = ctypes.c_int64(0)


def retained_bytes_address() -> str:
    """Return the address of the bytes behind the last pullback, for Julia to read."""
    return str(ctypes.addressof(last_retained_bytes))
