"""Memory for what is in between, kept from one call to the next.

The C library gives large memory back to the system as soon as it is let go of, and then
each page costs its first touch again at each call, which is as much as the arithmetic
on it.
"""

from __future__ import annotations

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW

KEPT = 1 << 30
"""Bytes of one memory, of which more are not kept."""

Memory = tuple[int, Tensor]
"""Its bytes, and itself."""

_free: list[Memory] = []
"""As many as there were calls at a time; taken and put back in one step each."""

CPU = paddle.CPUPlace()


def borrowed(size: int) -> Memory:
    """So many bytes at least, which nobody else has meanwhile."""
    try:
        found = _free.pop()
    except IndexError:
        found = None
    if found is not None and found[0] >= size:
        return found
    del found  # before there is more
    return size, RAW.empty([size], paddle.uint8, CPU)


def give_back(memory: Memory) -> None:
    """Have later calls use it."""
    if memory[0] <= KEPT:
        _free.append(memory)


def empty_cache() -> None:
    """Give the memory that machine code keeps for its next call back to the system.

    As ``paddle.device.cuda.empty_cache``: numbers stay, the next call that needs some
    takes it anew. One memory is kept for as many calls as there were at a time, at
    most 1 GB each.
    """
    _free.clear()
