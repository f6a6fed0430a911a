"""Images sampled at places between their pixels, and the backward pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ..axes import FIRST
from ..entry import define, formula_of
from ..kernels import by_kernel
from ..shared import ops

define(
    "grid_sample",
    defaults={"mode": "bilinear", "padding_mode": "zeros", "align_corners": True},
    axes=FIRST,
)
define("deformable_conv")
by_kernel("grid_sample", "deformable_conv")


class PixelCorners:
    """The pixels around each of many places, and their weights.

    Args:
        shape: of the images, ``[n, c, *size]``.
        places: for each axis the positions in pixels, of shape ``[n, count]``.
        nearest: whether only the nearest pixel counts.
    """

    def __init__(
        self, shape: Sequence[int], places: Sequence[Tensor], nearest: bool = False
    ) -> None:
        self._shape, self._places, self._nearest = shape, places, nearest
        images, count = places[0].shape
        starts = paddle.arange(images, dtype="int64") * math.prod(shape[2:])
        self._starts = ops.reshape(starts, [images, 1])
        low = [
            (ops.round(at, 0) if nearest else ops.floor(at)).detach() for at in places
        ]
        self._low = [ops.cast(part, paddle.int64) for part in low]
        self._beyond = [p - q for p, q in zip(places, low, strict=True)]
        self._flat = [images * count]

    def each(self) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
        """Give each corner's index into rows, whether it is inside, and its weights.

        There is one weight for each axis; the corner's weight is their product.
        """
        axes = len(self._places)
        for bits in itertools.product(*[(0,) if self._nearest else (0, 1)] * axes):
            index, inside = self._starts, None
            strides = [math.prod(self._shape[3 + i :]) for i in range(axes)]
            for i, bit in enumerate(bits):
                at, n = self._low[i] + bit, self._shape[2 + i]
                within = ops.logical_and(at >= 0, at < n)
                inside = within if inside is None else ops.logical_and(inside, within)
                index = index + at * strides[i]
            index = ops.where(inside, index, paddle.zeros_like(index))
            weights = [
                part if bit else 1.0 - part
                for part, bit in zip(self._beyond, bits, strict=True)
            ]
            if self._nearest:
                weights = [paddle.ones_like(part) for part in weights]
            within = ops.cast(inside, self._places[0].dtype)
            yield (
                ops.reshape(index, self._flat),
                ops.reshape(within, [*self._flat, 1]),
                [ops.reshape(part, [*self._flat, 1]) for part in weights],
            )


def sampled(x: Tensor, corners: PixelCorners) -> Tensor:
    """Return rows of channels at all places; images are zero outside."""
    rows = _rows(x)
    terms = [
        ops.gather(rows, index, 0) * (inside * math.prod(weights))
        for index, inside, weights in corners.each()
    ]
    return _sum(terms)


def sampled_back(
    x: Tensor, corners: PixelCorners, g: Tensor, axes: int
) -> tuple[Tensor, list[Tensor]]:
    """Return gradients by the image, and by the places along each axis as columns."""
    rows = _rows(x)
    by_rows = paddle.zeros_like(rows)
    slopes: list[list[Tensor]] = [[] for _ in range(axes)]
    signs = itertools.product((-1.0, 1.0), repeat=axes)
    for (index, inside, weights), sign in zip(corners.each(), signs, strict=False):
        by_rows = ops.index_add(by_rows, index, g * (inside * math.prod(weights)), 0)
        along = ops.sum(ops.gather(rows, index, 0) * g, [1], None, True) * inside
        for i in range(axes):
            others = math.prod(weights[:i] + weights[i + 1 :])
            slopes[i].append(along * others * sign[i])
    back = [0, x.ndim - 1, *range(1, x.ndim - 1)]
    by_x = ops.reshape(by_rows, [x.shape[0], *x.shape[2:], x.shape[1]])
    return ops.transpose(by_x, back), [*map(_sum, slopes)]


def _rows(x: Tensor) -> Tensor:
    last = ops.transpose(x, [0, *range(2, x.ndim), 1])
    return ops.reshape(last, [-1, x.shape[1]])


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# By a grid.


def _pixels(
    grid: Tensor, n: int, padding_mode: str, align_corners: bool
) -> tuple[Tensor, Any]:
    """Map coordinates from -1..1 to pixels; return the piecewise derivative too."""
    scale = (n - 1) / 2 if align_corners else n / 2
    at = (grid + 1.0) * scale - (0.0 if align_corners else 0.5)
    slope: Any = scale
    if padding_mode == "reflection":
        at, slope = _reflected(at, n, align_corners, scale)
    if padding_mode == "border" or (padding_mode == "reflection" and not align_corners):
        inside = ops.logical_and(at > 0.0, at < float(n - 1))
        slope = ops.cast(inside, grid.dtype) * slope
        at = ops.clip(at, 0.0, float(n - 1))
    return at, slope


def _reflected(
    at: Tensor, n: int, align_corners: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Reflect at the borders, which are the middles of pixels or their outer edges."""
    shift, span = (0.0, 2.0 * (n - 1)) if align_corners else (0.5, 2.0 * n)
    away = ops.abs(at + shift)
    rest = away - ops.floor(away / span) * span
    back = rest > span - rest
    slope = ops.sign(at + shift) * (1.0 - 2.0 * ops.cast(back, at.dtype)) * scale
    return ops.where(back, span - rest, rest) - shift, slope


@formula_of("grid_sample_grad", keeps_kernel=True)
def _grid_sample_grad_formula(
    x: Tensor,
    grid: Tensor,
    out_grad: Tensor,
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> Any:
    axes = x.ndim - 2
    columns = ops.reshape(grid, [x.shape[0], -1, axes])
    parts = ops.unbind(columns, 2)[::-1]  # the last axis of the image is given first
    pixels = [
        _pixels(part, n, padding_mode, align_corners)
        for part, n in zip(parts, x.shape[2:], strict=True)
    ]
    nearest = mode == "nearest"
    corners = PixelCorners(x.shape, [at for at, _ in pixels], nearest)
    by_x, slopes = sampled_back(x, corners, _rows(out_grad), axes)
    if nearest:
        return by_x, paddle.zeros_like(grid)
    moved = [
        ops.reshape(slope, at.shape) * scale
        for slope, (at, scale) in zip(slopes, pixels, strict=True)
    ]
    return by_x, ops.reshape(ops.stack(moved[::-1], 2), grid.shape)


# By offsets, for a convolution.


@formula_of("deformable_conv_grad", keeps_kernel=True)
def _deformable_conv_grad_formula(
    x: Tensor,
    offset: Tensor,
    filter: Tensor,
    mask: Any,
    out_grad: Tensor,
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    deformable_groups: int,
    groups: int,
    im2col_step: int,
) -> Any:
    """Write the pixels under each tap of the filter as columns of a matrix."""
    n, c, *size = x.shape
    kernel, out = filter.shape[2:], out_grad.shape[2:]
    taps, count, parts = math.prod(kernel), math.prod(out), deformable_groups
    dtype = x.dtype
    moved = ops.reshape(offset, [n * parts, taps, 2, *out])
    places = []
    for i in range(2):
        tap = paddle.arange(kernel[i], dtype=dtype) * float(dilations[i])
        line = paddle.arange(out[i], dtype=dtype) * float(strides[i])
        tap = ops.reshape(tap, [1, -1, 1, 1, 1] if i == 0 else [1, 1, -1, 1, 1])
        line = ops.reshape(line, [1, 1, 1, -1, 1] if i == 0 else [1, 1, 1, 1, -1])
        start = ops.expand(tap + line - float(paddings[i]), [1, *kernel, *out])
        at = ops.reshape(start, [1, taps, *out]) + ops.unbind(moved, 2)[i]
        places.append(ops.reshape(at, [n * parts, taps * count]))
    images = ops.reshape(x, [n * parts, c // parts, *size])
    corners = PixelCorners(images.shape, places)
    met = sampled(images, corners)
    weight = None if mask is None else ops.reshape(mask, [-1, 1])
    columns = met if weight is None else met * weight
    columns = ops.reshape(columns, [n, parts, taps * count, c // parts])
    columns = ops.transpose(columns, [0, 1, 3, 2])
    columns = ops.reshape(columns, [n, groups, c // groups * taps, count])
    rows = ops.reshape(filter, [1, groups, -1, c // groups * taps])
    g = ops.reshape(out_grad, [n, groups, -1, count])
    by_rows = ops.sum(ops.matmul(g, columns, False, True), [0], None, False)
    by_columns = ops.matmul(rows, g, True, False)
    by_columns = ops.reshape(by_columns, [n, parts, c // parts, taps * count])
    by_columns = ops.reshape(ops.transpose(by_columns, [0, 1, 3, 2]), [-1, c // parts])
    by_met = by_columns if weight is None else by_columns * weight
    by_images, slopes = sampled_back(images, corners, by_met, 2)
    slopes = [ops.reshape(part, [n * parts, taps, *out]) for part in slopes]
    by_mask = None
    if mask is not None:
        by_mask = ops.reshape(ops.sum(by_columns * met, [1], None, False), mask.shape)
    return (
        ops.reshape(by_images, x.shape),
        ops.reshape(ops.stack(slopes, 2), offset.shape),
        ops.reshape(by_rows, filter.shape),
        by_mask,
    )
