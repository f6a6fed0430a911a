"""Images sampled at positions between their pixels, and the backward pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.rules.requested_gradients import differentiate_all
from ..axes import Images
from ..entry import define, formula_of
from ..kernels import by_kernel
from ..shared import ops

define(
    "grid_sample",
    defaults={"mode": "bilinear", "padding_mode": "zeros", "align_corners": True},
    axes=Images(),
    tape=differentiate_all("grid_sample"),
)
define("deformable_conv", tape=differentiate_all("deformable_conv"))
by_kernel("grid_sample", "deformable_conv")


class PixelCorners:
    """The pixels around each of many positions, and their weights.

    Args:
        shape: of the images, ``[n, c, *size]``.
        positions: for each axis, in pixels, of shape ``[n, count]``.
        nearest: whether only the nearest pixel counts.
    """

    def __init__(
        self, shape: Sequence[int], positions: Sequence[Tensor], nearest: bool = False
    ) -> None:
        self._shape, self._positions, self._nearest = shape, positions, nearest
        images, count = positions[0].shape
        starts = paddle.arange(images, dtype="int64") * math.prod(shape[2:])
        self._image_offsets = ops.reshape(starts, [images, 1])
        lowest = [
            (ops.round(position, 0) if nearest else ops.floor(position)).detach()
            for position in positions
        ]
        self._floors = [ops.cast(floor, paddle.int64) for floor in lowest]
        self._fractions = [p - q for p, q in zip(positions, lowest, strict=True)]
        self._flat_shape = [images * count]

    def indices_and_weights(self) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
        """Give each corner's index into rows, whether it is inside, and its weights.

        There is one weight for each axis; the corner's weight is their product.
        """
        axes = len(self._positions)
        for bits in itertools.product(*[(0,) if self._nearest else (0, 1)] * axes):
            index, inside = self._image_offsets, None
            strides = [math.prod(self._shape[3 + i :]) for i in range(axes)]
            for i, bit in enumerate(bits):
                coordinate, n = self._floors[i] + bit, self._shape[2 + i]
                within = ops.logical_and(coordinate >= 0, coordinate < n)
                inside = within if inside is None else ops.logical_and(inside, within)
                index = index + coordinate * strides[i]
            index = ops.where(inside, index, paddle.zeros_like(index))
            weights = [
                weight if bit else 1.0 - weight
                for weight, bit in zip(self._fractions, bits, strict=True)
            ]
            if self._nearest:
                weights = [paddle.ones_like(weight) for weight in weights]
            within = ops.cast(inside, self._positions[0].dtype)
            yield (
                ops.reshape(index, self._flat_shape),
                ops.reshape(within, [*self._flat_shape, 1]),
                [ops.reshape(weight, [*self._flat_shape, 1]) for weight in weights],
            )


def sample_pixels(x: Tensor, corners: PixelCorners) -> Tensor:
    """Return rows of channels at all positions; images are zero outside."""
    rows = _channel_rows(x)
    terms = [
        ops.gather(rows, index, 0) * (inside * math.prod(weights))
        for index, inside, weights in corners.indices_and_weights()
    ]
    return _sum(terms)


def sample_gradients(
    x: Tensor, corners: PixelCorners, g: Tensor, axes: int
) -> tuple[Tensor, list[Tensor]]:
    """Return gradients by the image, and by the positions on each axis as columns."""
    rows = _channel_rows(x)
    rows_grad = paddle.zeros_like(rows)
    slopes: list[list[Tensor]] = [[] for _ in range(axes)]
    signs = itertools.product((-1.0, 1.0), repeat=axes)
    for (index, inside, weights), sign in zip(
        corners.indices_and_weights(), signs, strict=False
    ):
        rows_grad = ops.index_add(
            rows_grad, index, g * (inside * math.prod(weights)), 0
        )
        dot = ops.sum(ops.gather(rows, index, 0) * g, [1], None, True) * inside
        for i in range(axes):
            other_weights = math.prod(weights[:i] + weights[i + 1 :])
            slopes[i].append(dot * other_weights * sign[i])
    perm = [0, x.ndim - 1, *range(1, x.ndim - 1)]
    x_grad = ops.reshape(rows_grad, [x.shape[0], *x.shape[2:], x.shape[1]])
    return ops.transpose(x_grad, perm), [*map(_sum, slopes)]


def _channel_rows(x: Tensor) -> Tensor:
    last = ops.transpose(x, [0, *range(2, x.ndim), 1])
    return ops.reshape(last, [-1, x.shape[1]])


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# By a grid.


def _grid_to_pixels(
    grid: Tensor, n: int, padding_mode: str, align_corners: bool
) -> tuple[Tensor, Any]:
    """Map coordinates from -1..1 to pixels; return the piecewise derivative too."""
    scale = (n - 1) / 2 if align_corners else n / 2
    position = (grid + 1.0) * scale - (0.0 if align_corners else 0.5)
    slope: Any = scale
    if padding_mode == "reflection":
        position, slope = _reflect(position, n, align_corners, scale)
    if padding_mode == "border" or (padding_mode == "reflection" and not align_corners):
        inside = ops.logical_and(position > 0.0, position < float(n - 1))
        slope = ops.cast(inside, grid.dtype) * slope
        position = ops.clip(position, 0.0, float(n - 1))
    return position, slope


def _reflect(
    position: Tensor, n: int, align_corners: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Reflect at the borders, which are the middles of pixels or their outer edges."""
    shift, period = (0.0, 2.0 * (n - 1)) if align_corners else (0.5, 2.0 * n)
    distance = ops.abs(position + shift)
    remainder = distance - ops.floor(distance / period) * period
    is_returning = remainder > period - remainder
    slope = (
        ops.sign(position + shift)
        * (1.0 - 2.0 * ops.cast(is_returning, position.dtype))
        * scale
    )
    return ops.where(is_returning, period - remainder, remainder) - shift, slope


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
    # The grid has the image's last axis first.
    coordinates = ops.unbind(columns, 2)[::-1]
    pixels = [
        _grid_to_pixels(coordinate, n, padding_mode, align_corners)
        for coordinate, n in zip(coordinates, x.shape[2:], strict=True)
    ]
    nearest = mode == "nearest"
    corners = PixelCorners(x.shape, [position for position, _ in pixels], nearest)
    x_grad, slopes = sample_gradients(x, corners, _channel_rows(out_grad), axes)
    if nearest:
        return x_grad, paddle.zeros_like(grid)
    grid_grads = [
        ops.reshape(slope, position.shape) * scale
        for slope, (position, scale) in zip(slopes, pixels, strict=True)
    ]
    return x_grad, ops.reshape(ops.stack(grid_grads[::-1], 2), grid.shape)


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
    taps, count, offset_groups = math.prod(kernel), math.prod(out), deformable_groups
    dtype = x.dtype
    offsets = ops.reshape(offset, [n * offset_groups, taps, 2, *out])
    positions = []
    for i in range(2):
        tap = paddle.arange(kernel[i], dtype=dtype) * float(dilations[i])
        origin = paddle.arange(out[i], dtype=dtype) * float(strides[i])
        tap = ops.reshape(tap, [1, -1, 1, 1, 1] if i == 0 else [1, 1, -1, 1, 1])
        origin = ops.reshape(origin, [1, 1, 1, -1, 1] if i == 0 else [1, 1, 1, 1, -1])
        start = ops.expand(tap + origin - float(paddings[i]), [1, *kernel, *out])
        position = ops.reshape(start, [1, taps, *out]) + ops.unbind(offsets, 2)[i]
        positions.append(ops.reshape(position, [n * offset_groups, taps * count]))
    images = ops.reshape(x, [n * offset_groups, c // offset_groups, *size])
    corners = PixelCorners(images.shape, positions)
    samples = sample_pixels(images, corners)
    weight = None if mask is None else ops.reshape(mask, [-1, 1])
    columns = samples if weight is None else samples * weight
    columns = ops.reshape(columns, [n, offset_groups, taps * count, c // offset_groups])
    columns = ops.transpose(columns, [0, 1, 3, 2])
    columns = ops.reshape(columns, [n, groups, c // groups * taps, count])
    rows = ops.reshape(filter, [1, groups, -1, c // groups * taps])
    g = ops.reshape(out_grad, [n, groups, -1, count])
    rows_grad = ops.sum(ops.matmul(g, columns, False, True), [0], None, False)
    columns_grad = ops.matmul(rows, g, True, False)
    columns_grad = ops.reshape(
        columns_grad, [n, offset_groups, c // offset_groups, taps * count]
    )
    columns_grad = ops.reshape(
        ops.transpose(columns_grad, [0, 1, 3, 2]), [-1, c // offset_groups]
    )
    samples_grad = columns_grad if weight is None else columns_grad * weight
    images_grad, slopes = sample_gradients(images, corners, samples_grad, 2)
    slopes = [ops.reshape(slope, [n * offset_groups, taps, *out]) for slope in slopes]
    mask_grad = None
    if mask is not None:
        mask_grad = ops.reshape(
            ops.sum(columns_grad * samples, [1], None, False), mask.shape
        )
    return (
        ops.reshape(images_grad, x.shape),
        ops.reshape(ops.stack(slopes, 2), offset.shape),
        ops.reshape(rows_grad, filter.shape),
        mask_grad,
    )
