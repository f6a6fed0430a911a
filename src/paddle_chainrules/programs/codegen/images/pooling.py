"""Pooling, the largest or mean of each window, and its backward pass."""

from __future__ import annotations

import math
from typing import Any

from ....paddle_side.dtypes import single
from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import FLOATS, SUM, NotLowerable
from ..extents import SymInt
from ..ir_builder import FunctionBuilder
from ..lowering import Address, StageBuilder, lowers
from ..nest import emit_clear, emit_fill
from ..views import BufferView
from .windows import (
    STATIC_SHAPES,
    StridedOrigin,
    Windows,
    WindowStep,
    padding,
    steps_of,
)

LEAST, LEAST_TEXT = -(2.0**128 - 2.0**104), "0xC7EFFFFFE0000000"
"""The least finite float32, also for float64: the largest of no numbers."""


LAYOUTS = {"NCHW": 2, "NCDHW": 2, "NHWC": 1, "NDHWC": 1}
"""The number of leading dimensions that count images, by layout.

Channels that are last are one more dimension of the image. Windows cover one place of
it.
"""


def _windows_of(image: Value, result: Value, how: dict[str, Any]) -> Windows:
    """Return how windows lie, on the image of each channel or of all channels.

    Raises:
        NotLowerable: windows differ in size not only by the padding, or entries are not
            floats.
    """
    lead = LAYOUTS.get(how["data_format"], 0)
    space, out = [*image.shape[lead:]], [*result.shape[lead:]]
    channels = [space.pop(), out.pop()][:1] if lead == 1 else []
    kernel, steps = how["kernel_size"], how["strides"]
    is_list = type(kernel) is list and all(type(k) is int for k in kernel)
    if not lead or not is_list or image.dtype not in FLOATS or 0 in image.shape:
        raise NotLowerable
    if how["adaptive"] or how["global_pooling"]:
        if any(size % o for size, o in zip(space, out, strict=True)):
            raise NotLowerable
        kernel = steps = [size // o for size, o in zip(space, out, strict=True)]
        around = [(0, 0)] * len(space)
    else:
        around = padding(how, space, kernel)
    padded = [s + p + q for s, (p, q) in zip(space, around, strict=True)]
    needed = [(o - 1) * step + k for o, step, k in zip(out, steps, kernel, strict=True)]
    padded = [*map(max, padded, needed)]
    one, zero = [1] * len(channels), [0] * len(channels)
    return Windows(
        *(math.prod(image.shape[:lead]), 1, 1, 1),
        image=(*space, *channels),
        kernel=(*kernel, *one),
        result=(*out, *channels),
        before=(*(p for p, _ in around), *zero),
        padded=(*padded, *channels),
        steps=(*steps, *one),
        dilations=(1,) * (len(space) + len(one)),
    )


def _counted(it: Windows, how: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the padded sizes whose places count; None where all count the same.

    Raises:
        NotLowerable: a window counts no place.
    """
    if how["adaptive"] or how["global_pooling"]:
        return None
    firsts = (0,) * len(it.image) if not how["exclusive"] else it.before
    # What is padded behind is as much as before, as Paddle has it.
    around = (2 * n for n in it.before) if not how["exclusive"] else it.before
    sizes = zip(it.image, around, it.padded, strict=True)
    ends = tuple(min(size + n, most) for size, n, most in sizes)
    spans = zip(firsts, ends, it.result, it.steps, it.kernel, strict=True)
    counts = [
        {min(k * step + span, end) - max(k * step, first) for k in range(count)}
        for first, end, count, step, span in spans
    ]
    if min(map(min, counts)) < 1:
        raise NotLowerable
    is_whole = all(each == {span} for each, span in zip(counts, it.kernel, strict=True))
    return None if is_whole else tuple(e - f for f, e in zip(firsts, ends, strict=True))


class _Pooling(WindowStep):
    """Pooling of one channel of an image after another."""

    def __init__(
        self, builder: StageBuilder, image: Value, result: Value, op: Operation
    ) -> None:
        attrs = op.named
        self._is_mean = attrs["pooling_type"] == "avg"
        start = "0.0" if self._is_mean else LEAST_TEXT
        super().__init__(builder, _windows_of(image, result, attrs), op, start)
        if not self._is_mean and self._it.places == 1:
            raise NotLowerable  # a loop over what is the largest would wait for itself
        self._lead = LAYOUTS[attrs["data_format"]]
        self._extent = builder.shape_env.product(image.shape[: self._lead])
        self._counted = _counted(self._it, attrs) if self._is_mean else None
        self._exclusive = attrs["exclusive"]
        self._counts = self._scratch(self._it.result)
        """The number of places that each window counts, or one over that."""

    def _count(self) -> SymInt:
        return self._extent

    def _size_of(self, view: BufferView) -> int:
        return math.prod(view.shape[self._lead :])

    def forward(self, image: Value, result: Value) -> None:
        """Add the step for the largest, or the means."""
        it, count = self._it, math.prod(self._it.kernel)

        def write(ir: FunctionBuilder, address: Address) -> None:
            counts = self._count_up(ir, address) if self._counted else None
            self._fill_around(ir, address)
            with self._images(ir, (x, out), address) as (here, to):
                windows = self._windows(self._around(ir, here, address))
                over, each = self._over(), self._result(to)
                if self._is_mean:
                    self._nest(ir, over, [windows], [each], _same, SUM)
                    every = [StridedOrigin(to, steps_of(it.result))]
                    given = every if counts is None else [*every, counts]
                    self._nest(
                        *(ir, it.result, given, every),
                        lambda x, n=count: [x / n],
                    )
                else:
                    emit_fill(
                        ir, self._scratch(it.result), to, STATIC_SHAPES, self._number
                    )
                    self._nest(ir, over, [windows, each], [each], _larger)

        own = [self._counts] if self._counted else []
        x, out = self._put((image,), result, own, write)

    def _count_up(
        self, ir: FunctionBuilder, address: Address, inverted: bool = False
    ) -> StridedOrigin:
        """Return how much each window counts, or the share of each place."""
        it = self._it
        assert self._counted is not None
        padded, counts = address(self._padded), address(self._counts)
        emit_clear(ir, self._padded, padded, STATIC_SHAPES)
        ones = StridedOrigin(padded, (self._channel, *self._place))
        if self._exclusive:
            ones = self._within(ir, padded)
        self._nest(ir, (1, *self._counted), [], [ones], lambda: [1.0])
        every = StridedOrigin(counts, steps_of(it.result))
        given = self._windows(padded)
        self._nest(ir, self._over(), [given], [self._result(counts)], _same, SUM)
        if inverted:
            self._nest(ir, it.result, [every], [every], _share)
        return every

    def by_image(
        self, image: Value, result: Value, cotangent: Value, made: Value
    ) -> None:
        """Add the step for the gradient: to the first of the largest, or to all."""
        it, over = self._it, self._over()
        slopes, left = self._scratch((1, *it.padded)), self._scratch(it.result)
        # In float64 too, as Paddle has it.
        share = single(1.0 / math.prod(it.kernel))

        def write(ir: FunctionBuilder, address: Address) -> None:
            if self._counted:
                self._count_up(ir, address, inverted=True)
            self._fill_around(ir, address)
            given = x, top, g, out
            with self._images(ir, given, address) as (here, most, mine, to):
                first = address(slopes) if it.is_padded else to
                emit_clear(ir, slopes, first, STATIC_SHAPES)
                sums, each = self._windows(first), self._result(mine)
                if self._is_mean:
                    reads = [each, sums]
                    if self._counted:
                        reads.append(self._result(address(self._counts)))
                    self._nest(
                        *(ir, over, reads, [sums]),
                        lambda g, sum, share=share: [sum + g * share],
                    )
                else:
                    rest, own = address(left), steps_of(it.result)
                    places = [StridedOrigin(mine, own)], [StridedOrigin(rest, own)]
                    self._nest(ir, it.result, *places, _same)
                    covered = self._windows(self._around(ir, here, address))
                    all_left = self._result(rest)
                    reads = [covered, self._result(most), sums, all_left]
                    self._nest(ir, over, reads, [sums, all_left], _to_first)
                if it.is_padded:
                    self._copy(ir, self._within(ir, first), self._whole(to))

        given = image, result, cotangent
        x, top, g, out = self._put(given, made, [slopes, left, self._counts], write)


def _same(number: ElementValue) -> list[ElementValue]:
    return [number]


def _share(count: ElementValue) -> list[ElementValue]:
    """Return one over a count, rounded to float32 as in Paddle."""
    share = 1 / count
    if share.type == "double":
        share = share.to("fptrunc", "float").to("fpext", "double")
    return [share]


def _larger(number: ElementValue, result: ElementValue) -> list[ElementValue]:
    """Return what was found if it is larger or the next entry is padding; else that.

    A NaN that was found is kept only where the next entry is padding, as in Paddle.
    """
    return [((result > number) | number.equals(LEAST)).where(result, number)]


def _to_first(
    number: ElementValue, most: ElementValue, sum: ElementValue, left: ElementValue
) -> list[ElementValue]:
    """Give the rest of a cotangent to a number that is the largest."""
    is_it = number.equals(most)
    return [sum + is_it.where(left, 0.0), is_it.where(0.0, left)]


POOLING = frozenset({"pool2d", "pool3d", "pool2d_grad", "pool3d_grad"})


@lowers("pool2d", "pool3d")
def _pool2d_loop(builder: StageBuilder, op: Operation) -> None:
    x, (out,) = op.args[0], op.outputs
    _Pooling(builder, x, out, op).forward(x, out)


@lowers("pool2d_grad", "pool3d_grad")
def _pool2d_grad_loop(builder: StageBuilder, op: Operation) -> None:
    x, out, g = op.args[:3]
    _Pooling(builder, x, out, op).by_image(x, out, g, op.outputs[0])
