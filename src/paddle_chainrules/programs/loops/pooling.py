"""Pooling: the largest or the mean of what each window covers, and the way back."""

from __future__ import annotations

import math
from typing import Any

from ...paddle_side.dtypes import single
from ..operations import Operation, Value
from .extents import Extent
from .nest import clear, fill
from .number import Number
from .scalars import FLOATS, SUM, NoLoop
from .steps import Address, Steps, written_as
from .text import Text
from .views import View
from .windows import FIXED, Place, Windows, WindowStep, given, padding, steps_of

LEAST = "0xC7EFFFFFE0000000"
"""The least finite number of float32, for float64 too, which is the largest of none."""


def _windows_of(image: Value, result: Value, how: dict[str, Any]) -> Windows:
    """How they lie, on the image of each channel by itself.

    Raises:
        NoLoop: channels are last, windows differ in size, or numbers are no floats.
    """
    count, channels, *space = image.shape
    out = result.shape[2:]
    kernel, steps = how["kernel_size"], how["strides"]
    is_mean, n = how["pooling_type"] == "avg", len(space)
    is_first = how["data_format"] in ("NCHW", "NCDHW")
    is_list = type(kernel) is list and all(type(k) is int for k in kernel)
    if not is_first or not is_list or image.dtype not in FLOATS or 0 in image.shape:
        raise NoLoop
    if how["adaptive"] or how["global_pooling"]:
        if any(size % o for size, o in zip(space, out, strict=True)):
            raise NoLoop
        kernel = steps = [size // o for size, o in zip(space, out, strict=True)]
        around = [(0, 0)] * n
    else:
        around = padding(how, space, kernel)
    padded = [s + p + q for s, (p, q) in zip(space, around, strict=True)]
    needed = [(o - 1) * step + k for o, step, k in zip(out, steps, kernel, strict=True)]
    padded = [*map(max, padded, needed)]
    if is_mean and padded != space:
        raise NoLoop  # of how many each is the mean
    return Windows(
        *(count * channels, 1, 1, 1),
        *(tuple(space), tuple(kernel), tuple(out), tuple(p for p, _ in around)),
        *(tuple(padded), tuple(steps), (1,) * n),
    )


class _Pooling(WindowStep):
    """Of one channel of an image after another."""

    def __init__(
        self, steps: Steps, image: Value, result: Value, op: Operation
    ) -> None:
        how = given(op)
        self._is_mean = how["pooling_type"] == "avg"
        start = "0.0" if self._is_mean else LEAST
        super().__init__(steps, _windows_of(image, result, how), op, start)
        if not self._is_mean and self._it.places == 1:
            raise NoLoop  # a loop over what is the largest would wait for itself
        self._extent = steps.sizes.product(image.shape[:2])

    def _count(self) -> Extent:
        return self._extent

    def _size_of(self, view: View) -> int:
        return math.prod(view.shape[2:])

    def forward(self, image: Value, result: Value) -> None:
        """The largest, or the means."""
        it, count = self._it, math.prod(self._it.kernel)

        def write(text: Text, address: Address) -> None:
            self._fill_around(text, address)
            with self._images(text, (x, out), address) as (here, to):
                windows = self._windows(self._around(text, here, address))
                over, each = self._over(), self._result(to)
                if self._is_mean:
                    self._nest(text, over, [windows], [each], lambda x: [x], SUM)
                    every = [Place(to, steps_of(it.result))]
                    self._nest(text, it.result, every, every, lambda x: [x / count])
                else:
                    fill(text, self._scratch(it.result), to, FIXED, self._number)
                    self._nest(text, over, [windows, each], [each], _larger)

        x, out = self._put((image,), result, [], write)

    def by_image(
        self, image: Value, result: Value, cotangent: Value, made: Value
    ) -> None:
        """The gradient: to the first of those that are the largest, or to all."""
        it, over = self._it, self._over()
        slopes, left = self._scratch((1, *it.padded)), self._scratch(it.result)
        # In float64 too, as Paddle has it.
        share = single(1.0 / math.prod(it.kernel))

        def write(text: Text, address: Address) -> None:
            self._fill_around(text, address)
            given = x, top, g, out
            with self._images(text, given, address) as (here, most, mine, to):
                first = address(slopes) if it.is_padded else to
                clear(text, slopes, first, FIXED)
                sums, each = self._windows(first), self._result(mine)
                if self._is_mean:
                    self._nest(
                        *(text, over, [each, sums], [sums]),
                        lambda g, sum: [sum + g * share],
                    )
                else:
                    rest, own = address(left), steps_of(it.result)
                    places = [Place(mine, own)], [Place(rest, own)]
                    self._nest(text, it.result, *places, lambda x: [x])
                    covered = self._windows(self._around(text, here, address))
                    all_left = self._result(rest)
                    reads = [covered, self._result(most), sums, all_left]
                    self._nest(text, over, reads, [sums, all_left], _to_first)
                if it.is_padded:
                    self._copy(text, self._within(text, first), self._whole(to))

        given = image, result, cotangent
        x, top, g, out = self._put(given, made, [slopes, left], write)


def _larger(number: Number, found: Number) -> list[Number]:
    """What was found, if it is larger, and the next one else, unless that is of the
    padding: what is no number goes on to there, as Paddle has it."""
    least = Number(LEAST, found.type, found.lines)
    return [((found > number) | number.equals(least)).where(found, number)]


def _to_first(number: Number, most: Number, sum: Number, left: Number) -> list[Number]:
    """What is left of a cotangent goes to a number that is the largest."""
    is_it = number.equals(most)
    return [sum + is_it.where(left, 0.0), is_it.where(0.0, left)]


POOLING = frozenset({"pool2d", "pool3d", "pool2d_grad", "pool3d_grad"})


@written_as("pool2d", "pool3d")
def _(steps: Steps, op: Operation) -> None:
    x, (out,) = op.args[0], op.outputs
    _Pooling(steps, x, out, op).forward(x, out)


@written_as("pool2d_grad", "pool3d_grad")
def _(steps: Steps, op: Operation) -> None:
    x, out, g = op.args[:3]
    _Pooling(steps, x, out, op).by_image(x, out, g, op.outputs[0])
