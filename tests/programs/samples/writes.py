"""Arguments of what operators in place write."""

from __future__ import annotations

from typing import Any

from .tensors import T, index, t

WRITES: dict[str, list[tuple[Any, ...]]] = {
    "Tensor._setitem_dygraph": [
        (t(3, 4), (1,), t(4)),
        (t(3, 4), (slice(None), slice(0, 3, 2)), t(3, 2)),
        (t(3, 4), (Ellipsis, slice(None, None, -1)), t(4)),
        (t(3, 4), (slice(1, None), None), t(2, 1, 4)),
        (t(3, 4), (slice(1, None),), t()),
        (t(3, 4), (slice(1, None),), 2.5),
        (t(5, 3), index(4, below=5), t(4, 3)),
        (t(5, 3), (index(4, below=5), index(4, below=3)), t(4)),
        (t(3, 4), T((3, 4), kind="bool"), 2.5),
    ],
    "fill_diagonal": [(t(3, 4), 2.5, 0, False), (t(5, 3), 2.5, 1, True)],
    "uniform_inplace": [(t(3, 4), -1.0, 1.0, 0, 0, 0, 1.0)],
    "gaussian_inplace": [(t(3, 4), 0.5, 1.5, 0)],
}
