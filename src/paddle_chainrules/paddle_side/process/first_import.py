"""The first ``import paddle`` of a process, without its effects on others."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .signals import julia_handlers_kept


@contextmanager
def paddle_import() -> Iterator[None]:
    """Keep Julia's signal handlers, and hide the warning that ccache is missing.

    ccache only helps people who build C++ extensions of Paddle. Where the caller has
    imported Paddle before, its warning is out already and nothing is done.
    """
    if "paddle" in sys.modules:
        yield
        return
    earlier_filters = [*warnings.filters]
    warnings.filterwarnings("ignore", "No ccache found", UserWarning)
    own_filter = warnings.filters[0]
    try:
        with julia_handlers_kept():
            yield
    finally:  # filters that Paddle has added stay
        if own_filter not in earlier_filters:
            warnings.filters.remove(own_filter)  # type: ignore[attr-defined]
