"""Arguments of pooling."""

from __future__ import annotations

from typing import Any

from .tensors import T, positive, t

Row = tuple[Any, ...]


def far(*shape: int) -> T:
    """Numbers that are far from each other, where the largest is looked for."""
    return t(*shape, low=-50.0, high=50.0)


WINDOWS: Row = ([2, 3], [2, 1], [0, 1], False, True, "NCHW")
WHOLE = (True, False, "EXPLICIT")
ADAPTIVE = (False, True, "EXPLICIT")
HERE = (False, False, "EXPLICIT")
POOL2D: list[Row] = [
    row
    for kind in ("avg", "max")
    for row in (
        (far(2, 3, 6, 5), *WINDOWS, kind, *HERE),
        (
            far(2, 3, 5, 4),
            [2, 3],
            [2, 2],
            [1, 0, 0, 1],
            True,
            False,
            "NCHW",
            kind,
            *HERE,
        ),
        (far(2, 6, 5, 3), *WINDOWS[:-1], "NHWC", kind, *HERE),
        (far(2, 3, 6, 5), *WINDOWS, kind, False, False, "SAME"),
        (far(2, 3, 6, 5), *WINDOWS, kind, False, False, "VALID"),
        (far(2, 3, 4, 5), *WINDOWS, kind, *WHOLE),
    )
]
POOL2D += [
    (t(2, 3, 4, 5), [3, 2], [1, 1], [0, 0], False, True, "NCHW", "avg", *ADAPTIVE)
]
WINDOWS3D: Row = ([2, 3, 1], [2, 1, 1], [0, 1, 0], False, True, "NCDHW")
POOL3D: list[Row] = [
    row
    for kind in ("avg", "max")
    for row in (
        (far(2, 3, 4, 5, 2), *WINDOWS3D, kind, *HERE),
        (far(2, 4, 5, 2, 3), *WINDOWS3D[:-1], "NDHWC", kind, *HERE),
    )
]
POOL3D += [(t(2, 3, 4, 5, 2), [3, 2, 1], *WINDOWS3D[1:], "avg", *ADAPTIVE)]
INDEXED = (
    ([2, 2], [2, 2], [0, 0], False, False, False),
    ([3, 2], [2, 1], [1, 0], False, False, True),
    ([2, 2], [2, 2], [0, 0], True, False, False),
    ([3, 2], [1, 1], [0, 0], False, True, False),
)
POWERS = ([2, 2], [2, 1], [0, 1], False, True, "NCHW", "lp", *HERE)
FRACTIONS = [([3, 2], [0, 0], 0.3, True), ([3, 2], [2, 2], 0.7, False)]


def places(*shape: int, below: int) -> T:
    """Where elements are, as kernels of pooling have it."""
    return T(shape, 0, below, "int32")


POOLING: dict[str, list[Row]] = {
    "pool2d": POOL2D,
    "pool2d_grad": [(t(2, 3, 6, 5), t(2, 3, 3, 5), t(2, 3, 3, 5), *POOL2D[0][1:])],
    "pool3d": POOL3D,
    "pool3d_grad": [
        (t(2, 3, 4, 5, 2), t(2, 3, 2, 5, 2), t(2, 3, 2, 5, 2), *POOL3D[0][1:])
    ],
    "max_pool2d_with_index": [(far(2, 3, 6, 4), *how) for how in INDEXED],
    "max_pool2d_with_index_grad": [
        (t(2, 3, 6, 4), places(2, 3, 3, 2, below=24), t(2, 3, 3, 2), *INDEXED[0])
    ],
    "max_pool3d_with_index": [
        (far(2, 3, 4, 2, 6), *([*n[:1], *n] for n in how[:3]), *how[3:])
        for how in INDEXED
    ],
    "max_pool3d_with_index_grad": [
        (
            t(2, 3, 4, 2, 6),
            places(2, 3, 2, 1, 3, below=48),
            t(2, 3, 2, 1, 3),
            [2, 2, 2],
            [2, 2, 2],
            [0, 0, 0],
            False,
            False,
            False,
        )
    ],
    "fractional_max_pool2d": [(t(2, 3, 5, 6), *how) for how in FRACTIONS],
    "fractional_max_pool2d_grad": [
        (t(2, 3, 5, 6), places(2, 3, 3, 2, below=30), t(2, 3, 3, 2), *FRACTIONS[0])
    ],
    "fractional_max_pool3d": [(t(2, 3, 5, 6, 4), [3, 2, 2], [0, 0, 0], 0.3, True)],
    "fractional_max_pool3d_grad": [
        (
            t(2, 3, 5, 6, 4),
            places(2, 3, 3, 2, 2, below=120),
            t(2, 3, 3, 2, 2),
            [3, 2, 2],
            [0, 0, 0],
            0.3,
            True,
        )
    ],
    "lp_pool2d": [
        (positive(2, 3, 4, 5), *POWERS, 2.0),
        (positive(2, 3, 4, 5), [2, 3], [2, 2], [1, 0], True, *POWERS[4:], 3.0),
        (positive(2, 4, 5, 3), *POWERS[:5], "NHWC", *POWERS[6:], 2.5),
    ],
    "lp_pool2d_grad": [
        (*(positive(2, 3, 4, 5), positive(2, 3, 2, 6), t(2, 3, 2, 6)), *(*POWERS, 2.5))
    ],
    "unpool": [
        (
            t(2, 3, 2, 3),
            places(2, 3, 2, 3, below=20),
            [2, 2],
            [2, 2],
            [0, 0],
            [4, 5],
            "NCHW",
        )
    ],
    "unpool3d": [
        (
            t(2, 3, 2, 3, 1),
            places(2, 3, 2, 3, 1, below=40),
            [2, 2, 2],
            [2, 2, 2],
            [0, 0, 0],
            [4, 5, 2],
            "NCDHW",
        )
    ],
}
