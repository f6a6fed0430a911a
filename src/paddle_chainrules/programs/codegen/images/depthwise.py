"""Convolutions of each channel by its own filter, one term of all at a time."""

from __future__ import annotations

from ...tracing.operations import Value
from ..elements.number import ElementValue
from ..elements.scalars import SUM
from ..ir_builder import FunctionBuilder
from ..lowering import Address
from ..nest import emit_clear
from .windows import STATIC_SHAPES, StridedOrigin, WindowStep, steps_of


class Depthwise(WindowStep):
    """Loops over channels, the pixels in a window, and windows."""

    def _filters(self, first: str) -> StridedOrigin:
        """Return the pixels of a filter, the same for all windows."""
        steps = steps_of((self._every, *self._it.kernel))
        return StridedOrigin(first, (*steps, *(0,) * len(self._it.result)))

    def forward(self, image: Value, filters: Value, result: Value) -> None:
        """Add the step for the result of an image and filters."""

        def write(ir: FunctionBuilder, address: Address) -> None:
            self._fill_around(ir, address)
            with self._images(ir, (x, out), address) as (here, to):
                windows = self._windows(self._around(ir, here, address))
                reads, made = [windows, self._filters(address(w))], [self._result(to)]
                self._nest(ir, self._over(), reads, made, _multiplied, SUM)

        x, w, out = self._put((image, filters), result, [], write)

    def by_image(self, filters: Value, result: Value, image: Value) -> None:
        """Add the step for the gradient by the image, from that of the result."""

        def write(ir: FunctionBuilder, address: Address) -> None:
            is_padded = self._it.is_padded
            with self._images(ir, (g, out), address) as (mine, to):
                first = address(self._padded) if is_padded else to
                emit_clear(ir, self._padded, first, STATIC_SHAPES)
                sums = self._windows(first)
                reads = [self._result(mine), self._filters(address(w)), sums]
                self._nest(
                    *(ir, self._over(), reads, [sums]),
                    lambda g, w, sum: [sum + g * w],
                )
                if is_padded:
                    self._copy(ir, self._within(ir, first), self._whole(to))

        w, g, out = self._put((filters, result), image, [], write)

    def by_filters(self, image: Value, result: Value, filters: Value) -> None:
        """Add the step for the gradient by the filters, from that of the result."""
        shape = self._every, *self._it.kernel
        part = self._scratch(shape)

        def write(ir: FunctionBuilder, address: Address) -> None:
            self._fill_around(ir, address)
            emit_clear(ir, out, address(out), STATIC_SHAPES)
            with self._images(ir, (x, g), address) as (here, mine):
                windows = self._windows(self._around(ir, here, address))
                own = self._filters(address(part))
                reads = [windows, self._result(mine)]
                self._nest(ir, self._over(), reads, [own], _multiplied, SUM)
                places = (
                    StridedOrigin(address(v), steps_of(shape)) for v in (part, out)
                )
                self._add(ir, shape, *places)

        x, g, out = self._put((image, result), filters, [part], write)


def _multiplied(x: ElementValue, y: ElementValue) -> list[ElementValue]:
    return [x * y]
