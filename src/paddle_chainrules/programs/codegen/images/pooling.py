"""Pooling, the largest or mean of each window, and its backward pass."""

from __future__ import annotations

import math
from typing import Any

from ....paddle_side.dtypes import FLOATS, single
from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import SUM, NotLowerable
from ..extents import SymInt
from ..ir_builder import FunctionBuilder
from ..lowering import Address, StageBuilder, lowering_rule
from ..nest import emit_clear, emit_fill
from ..views import BufferView
from .windows import (
    STATIC_SHAPES,
    StridedOrigin,
    Windows,
    WindowStep,
    padding,
    strides_of,
)

LOWEST_FLOAT32, LOWEST_FLOAT32_TEXT = -(2.0**128 - 2.0**104), "0xC7EFFFFFE0000000"
"""The least finite float32, also for float64: the largest of no numbers."""


LAYOUTS = {"NCHW": 2, "NCDHW": 2, "NHWC": 1, "NDHWC": 1}
"""The number of leading dimensions that count images, by layout.

Channels that are last are one more dimension of the image. Windows cover one index of
it.
"""


def _windows_of(image: Value, result: Value, attrs: dict[str, Any]) -> Windows:
    """Return the geometry of windows, on the image of one channel or of all channels.

    Raises:
        NotLowerable: windows differ in size not only by the padding, or entries are not
            floats.
    """
    leading_dims = LAYOUTS.get(attrs["data_format"], 0)
    space, out = [*image.shape[leading_dims:]], [*result.shape[leading_dims:]]
    channels = [space.pop(), out.pop()][:1] if leading_dims == 1 else []
    kernel, strides = attrs["kernel_size"], attrs["strides"]
    is_list = type(kernel) is list and all(type(k) is int for k in kernel)
    if not leading_dims or not is_list or image.dtype not in FLOATS or 0 in image.shape:
        raise NotLowerable
    if attrs["adaptive"] or attrs["global_pooling"]:
        if any(size % o for size, o in zip(space, out, strict=True)):
            raise NotLowerable
        kernel = strides = [size // o for size, o in zip(space, out, strict=True)]
        paddings = [(0, 0)] * len(space)
    else:
        paddings = padding(attrs, space, kernel)
    padded = [s + p + q for s, (p, q) in zip(space, paddings, strict=True)]
    needed = [
        (o - 1) * stride + k for o, stride, k in zip(out, strides, kernel, strict=True)
    ]
    padded = [*map(max, padded, needed)]
    ones, zeros = [1] * len(channels), [0] * len(channels)
    return Windows(
        *(math.prod(image.shape[:leading_dims]), 1, 1, 1),
        image=(*space, *channels),
        kernel=(*kernel, *ones),
        result=(*out, *channels),
        pad_before=(*(p for p, _ in paddings), *zeros),
        padded=(*padded, *channels),
        strides=(*strides, *ones),
        dilations=(1,) * (len(space) + len(ones)),
    )


def _counted_sizes(windows: Windows, attrs: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the padded sizes that means count; None where all windows count the same.

    Raises:
        NotLowerable: a window counts no pixel.
    """
    if attrs["adaptive"] or attrs["global_pooling"]:
        return None
    firsts = (0,) * len(windows.image) if not attrs["exclusive"] else windows.pad_before
    # What is padded behind is as much as before, as Paddle has it.
    added = (
        (2 * n for n in windows.pad_before)
        if not attrs["exclusive"]
        else windows.pad_before
    )
    sizes = zip(windows.image, added, windows.padded, strict=True)
    ends = tuple(min(size + n, limit) for size, n, limit in sizes)
    spans = zip(
        firsts, ends, windows.result, windows.strides, windows.kernel, strict=True
    )
    counts = [
        {min(k * stride + span, end) - max(k * stride, first) for k in range(count)}
        for first, end, count, stride, span in spans
    ]
    if min(map(min, counts)) < 1:
        raise NotLowerable
    is_uniform = all(
        window_counts == {span}
        for window_counts, span in zip(counts, windows.kernel, strict=True)
    )
    return (
        None if is_uniform else tuple(e - f for f, e in zip(firsts, ends, strict=True))
    )


class _Pooling(WindowStep):
    """Pooling of one channel of an image after another."""

    def __init__(
        self, builder: StageBuilder, image: Value, result: Value, op: Operation
    ) -> None:
        attrs = op.named
        self._is_mean = attrs["pooling_type"] == "avg"
        pad_value = "0.0" if self._is_mean else LOWEST_FLOAT32_TEXT
        super().__init__(builder, _windows_of(image, result, attrs), op, pad_value)
        if not self._is_mean and self._windows.window_count == 1:
            raise NotLowerable  # each iteration would depend on the one before
        self._leading_dims = LAYOUTS[attrs["data_format"]]
        self._extent = builder.shape_env.product(image.shape[: self._leading_dims])
        self._counted_sizes = (
            _counted_sizes(self._windows, attrs) if self._is_mean else None
        )
        self._exclusive = attrs["exclusive"]
        self._counts = self._scratch(self._windows.result)
        """The number of pixels that each window counts, or one over that."""

    def _image_count(self) -> SymInt:
        return self._extent

    def _image_size(self, view: BufferView) -> int:
        return math.prod(view.shape[self._leading_dims :])

    def add_forward(self, image: Value, result: Value) -> None:
        """Add the stage for the largest, or the means."""
        windows, count = self._windows, math.prod(self._windows.kernel)

        def emit(ir: FunctionBuilder, address: Address) -> None:
            counts = self._emit_counts(ir, address) if self._counted_sizes else None
            self._fill_padding(ir, address)
            with self._image_loop(ir, (x, out), address) as (source, target):
                pixels = self._window_pixels(self._pad_image(ir, source, address))
                loop_shape, window_results = (
                    self._loop_shape(),
                    self._window_results(target),
                )
                if self._is_mean:
                    self._emit_nest(
                        ir, loop_shape, [pixels], [window_results], _identity, SUM
                    )
                    results = [StridedOrigin(target, strides_of(windows.result))]
                    operands = results if counts is None else [*results, counts]
                    self._emit_nest(
                        *(ir, windows.result, operands, results),
                        lambda x, n=count: [x / n],
                    )
                else:
                    emit_fill(
                        ir,
                        self._scratch(windows.result),
                        target,
                        STATIC_SHAPES,
                        self._pad_value,
                    )
                    self._emit_nest(
                        ir,
                        loop_shape,
                        [pixels, window_results],
                        [window_results],
                        _larger,
                    )

        scratch = [self._counts] if self._counted_sizes else []
        x, out = self._add_stage((image,), result, scratch, emit)

    def _emit_counts(
        self, ir: FunctionBuilder, address: Address, inverted: bool = False
    ) -> StridedOrigin:
        """Emit the number of pixels that each window counts, or its reciprocal."""
        windows = self._windows
        assert self._counted_sizes is not None
        padded, counts = address(self._padded), address(self._counts)
        emit_clear(ir, self._padded, padded, STATIC_SHAPES)
        ones = StridedOrigin(padded, (self._channel_stride, *self._pixel_strides))
        if self._exclusive:
            ones = self._interior(ir, padded)
        self._emit_nest(ir, (1, *self._counted_sizes), [], [ones], lambda: [1.0])
        count_entries = StridedOrigin(counts, strides_of(windows.result))
        pixels = self._window_pixels(padded)
        self._emit_nest(
            ir,
            self._loop_shape(),
            [pixels],
            [self._window_results(counts)],
            _identity,
            SUM,
        )
        if inverted:
            self._emit_nest(
                ir, windows.result, [count_entries], [count_entries], _reciprocal
            )
        return count_entries

    def add_image_gradient(
        self, image: Value, result: Value, cotangent: Value, image_grad: Value
    ) -> None:
        """Add the stage for the gradient: to the first of the largest, or to all."""
        windows, loop_shape = self._windows, self._loop_shape()
        padded_grad, remaining = (
            self._scratch((1, *windows.padded)),
            self._scratch(windows.result),
        )
        # In float64 too, as Paddle has it.
        share = single(1.0 / math.prod(windows.kernel))

        def emit(ir: FunctionBuilder, address: Address) -> None:
            if self._counted_sizes:
                self._emit_counts(ir, address, inverted=True)
            self._fill_padding(ir, address)
            operands = x, maximum_view, g, out
            with self._image_loop(ir, operands, address) as (
                source,
                maxima,
                window_cotangents,
                target,
            ):
                grad_base = address(padded_grad) if windows.is_padded else target
                emit_clear(ir, padded_grad, grad_base, STATIC_SHAPES)
                sums, cotangents = (
                    self._window_pixels(grad_base),
                    self._window_results(window_cotangents),
                )
                if self._is_mean:
                    reads = [cotangents, sums]
                    if self._counted_sizes:
                        reads.append(self._window_results(address(self._counts)))
                    self._emit_nest(
                        *(ir, loop_shape, reads, [sums]),
                        lambda g, sum, share=share: [sum + g * share],
                    )
                else:
                    remaining_base, result_strides = (
                        address(remaining),
                        strides_of(windows.result),
                    )
                    origins = (
                        [StridedOrigin(window_cotangents, result_strides)],
                        [StridedOrigin(remaining_base, result_strides)],
                    )
                    self._emit_nest(ir, windows.result, *origins, _identity)
                    pixels = self._window_pixels(self._pad_image(ir, source, address))
                    all_remaining = self._window_results(remaining_base)
                    reads = [pixels, self._window_results(maxima), sums, all_remaining]
                    self._emit_nest(
                        ir, loop_shape, reads, [sums, all_remaining], _route_to_maximum
                    )
                if windows.is_padded:
                    self._copy_image(
                        ir, self._interior(ir, grad_base), self._unpadded(target)
                    )

        operands = image, result, cotangent
        x, maximum_view, g, out = self._add_stage(
            operands, image_grad, [padded_grad, remaining, self._counts], emit
        )


def _identity(number: ElementValue) -> list[ElementValue]:
    return [number]


def _reciprocal(count: ElementValue) -> list[ElementValue]:
    """Return one over a count, rounded to float32 as in Paddle."""
    share = 1 / count
    if share.type == "double":
        share = share.to("fptrunc", "float").to("fpext", "double")
    return [share]


def _larger(number: ElementValue, result: ElementValue) -> list[ElementValue]:
    """Return the running maximum if larger or the entry is padding; else the entry.

    A NaN stays only where the next entry is padding, as in Paddle.
    """
    return [((result > number) | number.equals(LOWEST_FLOAT32)).where(result, number)]


def _route_to_maximum(
    number: ElementValue,
    maximum: ElementValue,
    sum: ElementValue,
    remaining: ElementValue,
) -> list[ElementValue]:
    """Add the remaining cotangent to the first entry that is the maximum."""
    is_maximum = number.equals(maximum)
    return [sum + is_maximum.where(remaining, 0.0), is_maximum.where(0.0, remaining)]


POOLING = frozenset({"pool2d", "pool3d", "pool2d_grad", "pool3d_grad"})


@lowering_rule("pool2d", "pool3d")
def _lower_pool2d(builder: StageBuilder, op: Operation) -> None:
    x, (out,) = op.args[0], op.outputs
    _Pooling(builder, x, out, op).add_forward(x, out)


@lowering_rule("pool2d_grad", "pool3d_grad")
def _lower_pool2d_grad(builder: StageBuilder, op: Operation) -> None:
    x, out, g = op.args[:3]
    _Pooling(builder, x, out, op).add_image_gradient(x, out, g, op.outputs[0])
