"""Convolutions of each channel by its own filter, one term of all at a time."""

from __future__ import annotations

from ...tracing.operations import Value
from ..elements.number import ElementValue
from ..elements.scalars import SUM
from ..ir_builder import FunctionBuilder
from ..lowering import Address
from ..nest import emit_clear
from .windows import STATIC_SHAPES, StridedOrigin, WindowStep, strides_of


class Depthwise(WindowStep):
    """Loops over channels, the pixels in a window, and windows."""

    def _filters(self, base: str) -> StridedOrigin:
        """Return the pixels of a filter, the same for all windows."""
        strides = strides_of((self._channels, *self._windows.kernel))
        return StridedOrigin(base, (*strides, *(0,) * len(self._windows.result)))

    def add_forward(self, image: Value, filters: Value, result: Value) -> None:
        """Add the stage for the result of an image and filters."""

        def emit(ir: FunctionBuilder, address: Address) -> None:
            self._fill_padding(ir, address)
            with self._image_loop(ir, (x, out), address) as (source, target):
                pixels = self._window_pixels(self._pad_image(ir, source, address))
                reads, written = (
                    [pixels, self._filters(address(w))],
                    [self._window_results(target)],
                )
                self._emit_nest(
                    ir, self._loop_shape(), reads, written, _multiplied, SUM
                )

        x, w, out = self._add_stage((image, filters), result, [], emit)

    def add_image_gradient(self, filters: Value, result: Value, image: Value) -> None:
        """Add the stage for the gradient by the image, from that of the result."""

        def emit(ir: FunctionBuilder, address: Address) -> None:
            is_padded = self._windows.is_padded
            with self._image_loop(ir, (g, out), address) as (cotangent, target):
                padded = address(self._padded) if is_padded else target
                emit_clear(ir, self._padded, padded, STATIC_SHAPES)
                sums = self._window_pixels(padded)
                reads = [
                    self._window_results(cotangent),
                    self._filters(address(w)),
                    sums,
                ]
                self._emit_nest(
                    *(ir, self._loop_shape(), reads, [sums]),
                    lambda g, w, sum: [sum + g * w],
                )
                if is_padded:
                    self._copy_image(
                        ir, self._interior(ir, padded), self._unpadded(target)
                    )

        w, g, out = self._add_stage((filters, result), image, [], emit)

    def add_filter_gradient(self, image: Value, result: Value, filters: Value) -> None:
        """Add the stage for the gradient by the filters, from that of the result."""
        shape = self._channels, *self._windows.kernel
        image_grad = self._scratch(shape)

        def emit(ir: FunctionBuilder, address: Address) -> None:
            self._fill_padding(ir, address)
            emit_clear(ir, out, address(out), STATIC_SHAPES)
            with self._image_loop(ir, (x, g), address) as (source, cotangent):
                pixels = self._window_pixels(self._pad_image(ir, source, address))
                image_sums = self._filters(address(image_grad))
                reads = [pixels, self._window_results(cotangent)]
                self._emit_nest(
                    ir, self._loop_shape(), reads, [image_sums], _multiplied, SUM
                )
                origins = (
                    StridedOrigin(address(v), strides_of(shape))
                    for v in (image_grad, out)
                )
                self._accumulate(ir, shape, *origins)

        x, g, out = self._add_stage((image, result), filters, [image_grad], emit)


def _multiplied(x: ElementValue, y: ElementValue) -> list[ElementValue]:
    return [x * y]
