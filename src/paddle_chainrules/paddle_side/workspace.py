"""Memory for intermediate results, cached from one call to the next.

The C library gives large memory back to the system as soon as it is freed. Then the
first touch of each page costs its time at each call, as much as the arithmetic on it.
"""

from __future__ import annotations

import paddle
from paddle import Tensor

from .interception import RAW

MAX_CACHED_BYTES = 1 << 30
"""The most bytes of a memory that is cached."""

Memory = tuple[int, Tensor]
"""The size of a memory in bytes, and the memory."""

_free: list[Memory] = []
"""Free memories, as many as there were concurrent calls.

They are popped and appended atomically.
"""

CPU = paddle.CPUPlace()


def borrow_memory(size: int) -> Memory:
    """Take memory of at least this many bytes, for one call alone."""
    try:
        result = _free.pop()
    except IndexError:
        result = None
    if result is not None and result[0] >= size:
        return result
    del result  # before there is more
    return size, RAW.empty([size], paddle.uint8, CPU)


def return_memory(memory: Memory) -> None:
    """Make memory available to later calls."""
    if memory[0] <= MAX_CACHED_BYTES:
        _free.append(memory)


def empty_cache() -> None:
    """Give the memory that machine code keeps for its next call back to the system.

    Like ``paddle.device.cuda.empty_cache``: no values are lost, and the next call that
    needs memory takes it again. We keep one memory for each concurrent call, at most 1
    GB each.
    """
    _free.clear()
