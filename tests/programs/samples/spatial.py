"""Arguments of operators on images and sequences: convolutions, pooling, resampling."""

from __future__ import annotations

from typing import Any

from .tensors import T, index, positive, t

Row = tuple[Any, ...]

PAIRS: list[Row] = [([1, 2], [1, 0], "EXPLICIT"), ([1, 2], [1, 0, 2, 1], "EXPLICIT")]
PAIRS += [([2, 1], [0, 0], "SAME"), ([1, 1], [0, 0], "VALID")]
CONV2D: list[Row] = [(*row, [1, 1], 1, "NCHW") for row in PAIRS]
CONV2D += [([1, 2], [1, 0], "EXPLICIT", [2, 1], 1, "NCHW")]
GROUPED: Row = ([1, 1], [0, 1], "EXPLICIT", [2, 1], 2, "NCHW")
LAST: Row = ([1, 2], [1, 0], "EXPLICIT", [1, 1], 1, "NHWC")
CONV3D: list[Row] = [
    ([1, 2, 1], [1, 0, 1], "EXPLICIT", 1, [1, 1, 1], "NCDHW"),
    ([1, 1, 1], [0, 1, 1, 0, 0, 0], "EXPLICIT", 1, [2, 1, 1], "NCDHW"),
    ([1, 1, 1], [0, 0, 0], "SAME", 1, [1, 1, 1], "NCDHW"),
]
DEPTHWISE: list[Row] = [(*row, 3, [1, 1], "NCHW") for row in PAIRS]
BACK: list[Row] = [
    ([1, 2], [1, 0], [], [], "EXPLICIT", 1, [1, 1], "NCHW"),
    ([1, 2], [1, 0, 1, 0], [0, 1], [], "EXPLICIT", 1, [2, 1], "NCHW"),
    ([2, 1], [0, 0], [], [], "SAME", 1, [1, 1], "NCHW"),
    ([2, 1], [0, 0], [], [8, 4], "VALID", 1, [1, 1], "NCHW"),
]
BACK3D: list[Row] = [
    ([1, 2, 1], [1, 0, 0], [], [], "EXPLICIT", 1, [1, 1, 1], "NCDHW"),
    ([1, 2, 1], [1, 0, 0, 1, 0, 0], [0, 1, 0], [], "EXPLICIT", 1, [1, 1, 1], "NCDHW"),
]

CONVOLUTIONS: dict[str, list[Row]] = {
    "conv2d": [
        *((t(2, 3, 6, 5), t(4, 3, 3, 2), *how) for how in CONV2D),
        (t(2, 4, 6, 5), t(6, 2, 3, 2), *GROUPED),
        (t(2, 6, 5, 3), t(4, 3, 3, 2), *LAST),
    ],
    "conv2d_grad": [
        (t(2, 3, 6, 5), t(4, 3, 3, 2), t(2, 4, 6, 2), *CONV2D[0]),
        (t(2, 4, 6, 5), t(6, 2, 3, 2), t(2, 6, 2, 6), *GROUPED),
    ],
    "conv3d": [
        *((t(2, 3, 4, 5, 2), t(4, 3, 2, 3, 2), *how) for how in CONV3D),
        (t(1, 4, 3, 5, 2), t(6, 2, 2, 3, 2), [1, 1, 1], [0, 1, 0])
        + ("EXPLICIT", 2, [1, 1, 1], "NCDHW"),
        (t(2, 4, 5, 2, 3), t(4, 3, 2, 3, 2), [1, 1, 1], [0, 1, 0])
        + ("EXPLICIT", 1, [1, 1, 1], "NDHWC"),
    ],
    "conv3d_grad": [(t(2, 3, 4, 5, 2), t(4, 3, 2, 3, 2), t(2, 4, 5, 2, 3), *CONV3D[0])],
    "depthwise_conv2d": [
        *((t(2, 3, 6, 5), t(3, 1, 3, 2), *how) for how in DEPTHWISE),
        (t(2, 3, 6, 5), t(6, 1, 3, 2), *DEPTHWISE[0]),
        (t(2, 6, 5, 3), t(3, 1, 3, 2), *DEPTHWISE[0][:-1], "NHWC"),
    ],
    "depthwise_conv2d_grad": [
        (t(2, 3, 6, 5), t(3, 1, 3, 2), t(2, 3, 6, 2), *DEPTHWISE[0])
    ],
    "conv2d_transpose": [
        *((t(2, 3, 4, 3), t(3, 4, 3, 2), *how) for how in BACK[:-1]),
        (t(2, 3, 3, 3), t(3, 4, 3, 2), *BACK[-1]),
        (t(2, 4, 4, 3), t(4, 3, 3, 2), *BACK[0][:5], 2, [1, 1], "NCHW"),
        (t(2, 4, 3, 5), t(5, 2, 3, 2), *BACK[0][:5], 1, [1, 1], "NHWC"),
    ],
    "conv2d_transpose_grad": [
        (t(2, 3, 4, 3), t(3, 4, 3, 2), t(2, 4, 4, 6), *BACK[0]),
    ],
    "conv3d_transpose": [(t(2, 3, 4, 3, 2), t(3, 4, 3, 2, 2), *how) for how in BACK3D],
    "conv3d_transpose_grad": [
        (t(2, 3, 4, 3, 2), t(3, 4, 3, 2, 2), t(2, 4, 4, 6, 3), *BACK3D[0]),
    ],
    "depthwise_conv2d_transpose": [
        (t(2, 3, 4, 3), t(3, 1, 3, 2), *how[:5], 3, *how[6:]) for how in BACK[:-1]
    ],
    "depthwise_conv2d_transpose_grad": [
        (t(2, 3, 4, 3), t(3, 1, 3, 2), t(2, 3, 4, 6), *BACK[0][:5], 3, *BACK[0][6:])
    ],
}


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
    (t(2, 3, 4, 5), [3, 2], [1, 1], [0, 0], False, True, "NCHW", "avg", *ADAPTIVE),
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
        (t(2, 3, 6, 4), places(2, 3, 3, 2, below=24), t(2, 3, 3, 2), *INDEXED[0]),
    ],
    "max_pool3d_with_index": [
        (far(2, 3, 4, 2, 6), *([*n[:1], *n] for n in how[:3]), *how[3:])
        for how in INDEXED
    ],
    "max_pool3d_with_index_grad": [
        (t(2, 3, 4, 2, 6), places(2, 3, 2, 1, 3, below=48), t(2, 3, 2, 1, 3))
        + ([2, 2, 2], [2, 2, 2], [0, 0, 0], False, False, False),
    ],
    "fractional_max_pool2d": [(t(2, 3, 5, 6), *how) for how in FRACTIONS],
    "fractional_max_pool2d_grad": [
        (t(2, 3, 5, 6), places(2, 3, 3, 2, below=30), t(2, 3, 3, 2), *FRACTIONS[0]),
    ],
    "fractional_max_pool3d": [(t(2, 3, 5, 6, 4), [3, 2, 2], [0, 0, 0], 0.3, True)],
    "fractional_max_pool3d_grad": [
        (t(2, 3, 5, 6, 4), places(2, 3, 3, 2, 2, below=120), t(2, 3, 3, 2, 2))
        + ([3, 2, 2], [0, 0, 0], 0.3, True),
    ],
    "lp_pool2d": [
        (positive(2, 3, 4, 5), *POWERS, 2.0),
        (positive(2, 3, 4, 5), [2, 3], [2, 2], [1, 0], True, *POWERS[4:], 3.0),
        (positive(2, 4, 5, 3), *POWERS[:5], "NHWC", *POWERS[6:], 2.5),
    ],
    "unpool": [
        (t(2, 3, 2, 3), places(2, 3, 2, 3, below=20))
        + ([2, 2], [2, 2], [0, 0], [4, 5], "NCHW"),
    ],
    "unpool3d": [
        (t(2, 3, 2, 3, 1), places(2, 3, 2, 3, 1, below=40))
        + ([2, 2, 2], [2, 2, 2], [0, 0, 0], [4, 5, 2], "NCDHW"),
    ],
}

SPATIAL: dict[str, list[Row]] = {**CONVOLUTIONS, **POOLING}
