"""Arguments of norms of channels, and of weights."""

from __future__ import annotations

from typing import Any

from .tensors import positive, t

Row = tuple[Any, ...]


def _batch_norm(is_test: bool, use_global: bool, affine: bool, last: bool) -> Row:
    shape = (2, 4, 2, 3) if last else (2, 3, 4, 2)
    pair = (t(3), t(3)) if affine else (None, None)
    how = (0.9, 1e-5, "NHWC" if last else "NCHW")
    return (
        positive(*shape),
        t(3),
        positive(3),
        *pair,
        is_test,
        *how,
        use_global,
        False,
    )


NORMS: dict[str, list[Row]] = {
    "batch_norm": [
        (
            positive(5, 3),
            t(3),
            positive(3),
            t(3),
            t(3),
            is_test,
            0.9,
            1e-05,
            "NCHW",
            False,
            False,
        )
        for is_test in (False, True)
    ]
    + [
        _batch_norm(False, False, True, False),
        _batch_norm(False, False, True, True),
        _batch_norm(False, False, False, False),
        _batch_norm(True, False, True, True),
        _batch_norm(True, False, False, False),
        _batch_norm(False, True, True, False),
    ],
    "instance_norm": [
        (positive(2, 3, 5), t(3), t(3), 1e-5),
        (positive(2, 3, 4, 2), t(3), t(3), 1e-5),
        (positive(2, 3, 4, 2), None, None, 1e-5),
        (positive(2, 3, 4), t(3), None, 1e-5),
    ],
    "affine_channel": [
        (t(2, 3, 4, 5), t(3), t(3), "NCHW"),
        (t(2, 4, 5, 3), t(3), t(3), "NHWC"),
    ],
    "group_norm": [
        (positive(2, 6, 5), t(6), t(6), 1e-5, 3, "NCHW"),
        (positive(2, 6, 3, 4), t(6), t(6), 1e-5, 2, "NCHW"),
        (positive(2, 4, 3, 6), t(6), t(6), 1e-5, 3, "NHWC"),
        (positive(2, 6, 5), None, None, 1e-5, 3, "NCHW"),
        (positive(2, 6, 5), t(6), None, 1e-5, 2, "NCHW"),
        (positive(2, 6, 5), None, t(6), 1e-5, 2, "NCHW"),
        (positive(3, 6), t(6), t(6), 1e-5, 2, "NCHW"),
    ],
    "spectral_norm": [
        (positive(3, 4), positive(3), positive(4), 0, 0, 1e-12),
        (t(3, 4), t(3), t(4), 0, 2, 1e-12),
        (t(3, 2, 4), positive(2), positive(12), 1, 1, 1e-12),
    ],
}
