"""Paddle's switch of graph recording, put back whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import paddle


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Do as ``paddle.set_grad_enabled``, whatever the moment of an interrupt."""
    before = paddle.is_grad_enabled()
    try:
        paddle.set_grad_enabled(enabled)
        yield
    finally:
        try:
            paddle.set_grad_enabled(before)
        except BaseException:  # an interrupt
            paddle.set_grad_enabled(before)
            raise
