"""Arguments of resampling, padding, and what takes parts of images."""

from __future__ import annotations

from typing import Any

import paddle

from .pooling import far
from .tensors import T, index, t

Row = tuple[Any, ...]

NONE = (None, None, None)
RESIZED: list[Row] = [
    ("linear_interp", (2, 3, 5), ("NCHW", -1, -1, 7)),
    ("bilinear_interp", (2, 3, 5, 4), ("NCHW", -1, 7, 3)),
    ("nearest_interp", (2, 3, 5, 4), ("NCHW", -1, 7, 3)),
    ("bicubic_interp", (2, 3, 4, 3), ("NCHW", -1, 7, 2)),
    ("trilinear_interp", (2, 3, 2, 4, 3), ("NCHW", 3, 5, 2)),
]


def _resized(name: str, shape: tuple[int, ...], to: Row) -> list[Row]:
    kind = name.removesuffix("_interp")
    whole = ([], kind, False, 0)
    last = (shape[0], *shape[2:], shape[1])
    rows = [
        (t(*shape), *NONE, *to, [], kind, True, 0),
        (t(*shape), *NONE, *to, *whole),
        (
            t(*shape),
            *NONE,
            to[0],
            -1,
            -1,
            -1,
            [1.5] * (len(shape) - 2),
            *whole[1:-1],
            1,
        ),
    ]
    return [*rows, (t(*last), *NONE, "NHWC", *to[1:], *whole)]


PATCHES: list[Row] = [
    ([2, 3], [1, 2], [1, 0, 1, 0], [1, 1]),
    ([2, 2], [2, 1], [0, 1, 2, 0], [1, 2]),
]
CHANNELS: dict[str, Row] = {
    "pixel_shuffle": ((2, 8, 3, 1), 2),
    "pixel_unshuffle": ((2, 1, 4, 6), 2),
    "channel_shuffle": ((2, 6, 1, 3), 2),
    "temporal_shift": ((4, 4, 2, 3), 2, 0.25),
}

RESAMPLING: dict[str, list[Row]] = {
    **{name: _resized(name, shape, to) for name, shape, to in RESIZED},
    **{
        f"{name}_grad": [
            (
                t(*shape),
                *NONE,
                t(*shape[:2], *to[-len(shape[2:]) :]),
                *to,
                [],
                name.removesuffix("_interp"),
                False,
                1,
            )
        ]
        for name, shape, to in RESIZED
    },
    "interp_antialias": [
        (t(2, 3, 5, 4), *NONE, "NCHW", -1, 3, 7, [], kind, False, 0)
        for kind in ("bilinear", "bicubic")
    ],
    "interp_antialias_grad": [
        (
            t(2, 3, 5, 4),
            *NONE,
            t(2, 3, 3, 7),
            "NCHW",
            -1,
            3,
            7,
            [],
            "bilinear",
            False,
            0,
        )
    ],
    "affine_grid": [
        (t(2, n, n + 1), shape, aligned)
        for n, shape in ((2, [2, 1, 3, 4]), (3, [2, 1, 3, 2, 4]))
        for aligned in (True, False)
    ],
    "affine_grid_grad": [(t(2, 2, 3), t(2, 3, 4, 2), [2, 1, 3, 4], True)],
    "unfold": [(t(2, 3, 5, 6), *how) for how in PATCHES],
    "unfold_grad": [(t(2, 3, 5, 6), t(2, 18, 12), *PATCHES[0])],
    "fold": [(t(2, 18, 12), [5, 6], *PATCHES[0])],
    "fold_grad": [(t(2, 18, 12), t(2, 3, 5, 6), [5, 6], *PATCHES[0])],
    **{
        name: [
            (t(*shape), *how, "NCHW"),
            (t(shape[0], *shape[2:], shape[1]), *how, "NHWC"),
        ]
        for name, (shape, *how) in CHANNELS.items()
    },
    "pixel_shuffle_grad": [(t(2, 2, 6, 4), 2, "NCHW")],
    "pixel_unshuffle_grad": [(t(2, 8, 3, 2), 2, "NCHW")],
    "channel_shuffle_grad": [(t(2, 6, 2, 3), 2, "NCHW")],
    "temporal_shift_grad": [(t(4, 4, 2, 3), 2, 0.25, "NCHW")],
    "pad3d": [
        *(
            (t(1, 2, 2, 3, 3), paddings, mode, 0.5, layout)
            for mode in ("constant", "reflect", "replicate", "circular")
            for paddings, layout in (
                ([1, 2, 0, 1, 0, 0], "NCDHW"),
                ([0, 0, 1, 1, 1, 1], "NDHWC"),
            )
        ),
        (t(1, 2, 1, 2, 3), [1, 0, 0, 2, 0, 0], "constant", t(), "NCDHW"),
    ],
    "pad3d_grad": [
        (t(1, 2, 2, 3, 4), t(1, 2, 2, 4, 7), [1, 2, 0, 1, 0, 0], mode, 0.5, "NCDHW")
        for mode in ("constant", "reflect")
    ],
}

BOXES = paddle.to_tensor(
    [[0.3, 0.5, 3.2, 4.1], [1.0, 1.0, 5.0, 3.3], [0.0, 2.0, 4.0, 4.0]], "float64"
)
REGIONS = (BOXES, paddle.to_tensor([2, 1], "int32"))
SIZE = (2, 3, 0.9)

GRIDS: list[Row] = [
    (t(2, 3, 4, 5), T((2, 3, 2, 2), low, high), *how)
    for low, high, how in (  # between pixels, and beyond the borders
        (0.55, 0.95, ("bilinear", "zeros", True)),
        (1.05, 1.3, ("bilinear", "zeros", True)),
        (-0.7, -0.45, ("bilinear", "zeros", False)),
        (1.03, 1.17, ("bilinear", "zeros", False)),
        (1.05, 1.3, ("bilinear", "border", True)),
        (0.45, 0.7, ("bilinear", "border", False)),
        (1.05, 1.3, ("bilinear", "reflection", True)),
        (1.27, 1.37, ("bilinear", "reflection", False)),
        (-1.37, -1.27, ("bilinear", "reflection", False)),
        (0.3, 0.6, ("nearest", "zeros", True)),
    )
]
GRIDS3D = (t(2, 3, 4, 2, 5), T((2, 1, 3, 2, 3), 0.45, 0.7), "bilinear", "zeros", False)


def between(*shape: int) -> T:
    """Offsets from pixels that reach no other."""
    return T(shape, 0.2, 0.8)


DEFORMED = ([1, 2], [1, 0], [1, 1])

SAMPLING: dict[str, list[Row]] = {
    "roi_align": [
        (t(2, 3, 6, 5), *REGIONS, *SIZE, ratio, aligned)
        for ratio, aligned in ((-1, True), (2, False))
    ],
    "roi_align_grad": [(t(2, 3, 6, 5), *REGIONS, t(3, 3, 2, 3), *SIZE, 2, True)],
    "psroi_pool": [(t(2, 12, 6, 5), *REGIONS, 2, 3, 2, 0.9)],
    "psroi_pool_grad": [(t(2, 12, 6, 5), *REGIONS, t(3, 2, 2, 3), 2, 3, 2, 0.9)],
    "roi_pool": [(far(2, 3, 6, 5), *REGIONS, *SIZE)],
    "roi_pool_grad": [
        (t(2, 3, 6, 5), *REGIONS, index(3, 3, 2, 3, below=30), t(3, 3, 2, 3), *SIZE)
    ],
    "grid_sample": [*GRIDS, GRIDS3D],
    "grid_sample_grad": [(*row[:2], t(2, 3, 3, 2), *row[2:]) for row in GRIDS],
    "deformable_conv": [
        (
            t(2, 3, 4, 5),
            between(2, 12, 4, 2),
            t(2, 3, 3, 2),
            t(2, 6, 4, 2),
            *DEFORMED,
            1,
            1,
            1,
        ),
        (t(2, 4, 4, 5), between(2, 24, 4, 2), t(6, 2, 3, 2), None, *DEFORMED, 2, 2, 1),
    ],
    "deformable_conv_grad": [
        (
            t(2, 3, 4, 5),
            between(2, 12, 4, 2),
            t(2, 3, 3, 2),
            t(2, 6, 4, 2),
            t(2, 2, 4, 2),
            *DEFORMED,
            1,
            1,
            1,
        )
    ],
}
