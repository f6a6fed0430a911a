"""Arguments of convolutions."""

from __future__ import annotations

from typing import Any

from .tensors import t

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
EVEN: Row = ([1, 1, 1], [0, 1, 0], "EXPLICIT")
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
        (
            t(1, 4, 3, 5, 2),
            t(6, 2, 2, 3, 2),
            [1, 1, 1],
            [0, 1, 0],
            "EXPLICIT",
            2,
            [1, 1, 1],
            "NCDHW",
        ),
        (
            t(2, 4, 5, 2, 3),
            t(4, 3, 2, 3, 2),
            [1, 1, 1],
            [0, 1, 0],
            "EXPLICIT",
            1,
            [1, 1, 1],
            "NDHWC",
        ),
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
    "conv2d_transpose_grad": [(t(2, 3, 4, 3), t(3, 4, 3, 2), t(2, 4, 4, 6), *BACK[0])],
    "conv3d_transpose": [(t(2, 3, 4, 3, 2), t(3, 4, 3, 2, 2), *how) for how in BACK3D],
    "conv3d_transpose_grad": [
        (t(2, 3, 4, 3, 2), t(3, 4, 3, 2, 2), t(2, 4, 4, 6, 3), *BACK3D[0])
    ],
    "depthwise_conv2d_transpose": [
        (t(2, 3, 4, 3), t(3, 1, 3, 2), *how[:5], 3, *how[6:]) for how in BACK[:-1]
    ],
    "depthwise_conv2d_transpose_grad": [
        (t(2, 3, 4, 3), t(3, 1, 3, 2), t(2, 3, 4, 6), *BACK[0][:5], 3, *BACK[0][6:])
    ],
}
