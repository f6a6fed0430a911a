"""Random numbers of Paddle: of a seed, or once more, while the program's own go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral
from typing import Any

import paddle


def random_state() -> Any:
    """The state of the generators that a layer draws from."""
    devices = ["cpu"]
    if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0:
        devices.append("gpu")
    return [(device, paddle.get_rng_state(device)) for device in devices]


def _restore(state: Any) -> None:
    for device, generators in state:
        paddle.set_rng_state(generators, device)


_AS_IT_IS = nullcontext()


def drawing_from(source: Any) -> AbstractContextManager[None]:
    """Draw from a seed, or from a :func:`random_state`, and put the state back after.

    None draws from the program's own numbers.
    """
    return _AS_IT_IS if source is None else _drawing_from(source)


@contextmanager
def _drawing_from(source: Any) -> Iterator[None]:
    before = random_state()
    try:
        if isinstance(source, int):
            paddle.seed(source)
        else:
            _restore(source)
        yield
    finally:
        try:
            _restore(before)
        finally:  # an interrupt in the one leaves the other
            _restore(before)


def checked_seed(seed: Any) -> int | None:
    """A seed as an int, or None; refuse what is none.

    Raises:
        TypeError: not an integer.
        ValueError: one that is negative, or too large.
    """
    if seed is None:
        return None
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise TypeError(
            f"seed must be an int, or None for the program's random numbers, got "
            f"{type(seed).__name__}"
        )
    value = int(seed)
    if not 0 <= value < 2**64:
        raise ValueError(f"seed must be at least 0 and below 2**64, got {value}")
    return value
