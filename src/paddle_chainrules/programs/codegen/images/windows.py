"""Windows of convolutions and pooling, and steps that go over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import FLOATS, NotLowerable, Reduction, Shape
from ..extents import ShapeEnv, SymInt
from ..ir_builder import BYTES, NO_VECTORIZE, TYPES, FunctionBuilder
from ..lowering import Address, Stage, StageBuilder
from ..nest import LoopNest, NestAccess, emit_fill
from ..views import BufferView, dense_view

STATIC_SHAPES = ShapeEnv(None)
"""Sizes within an image do not vary with the number of samples."""


class Windows(NamedTuple):
    """The windows of a convolution on images.

    Attributes:
        images: how many there are.
        groups: how many groups of channels there are.
        channels, filters: how many a group has in the image, and in the result.
        image, kernel, result: sizes in space.
        before: the padding before the first place of each dimension.
        padded: sizes of the image with the padding.
        steps, dilations: places from one window to the next, and within one.
    """

    images: int
    groups: int
    channels: int
    filters: int
    image: Shape
    kernel: Shape
    result: Shape
    before: Shape
    padded: Shape
    steps: Shape
    dilations: Shape

    @property
    def terms(self) -> int:
        """The number of entries that a window covers in the channels of a group."""
        return self.channels * math.prod(self.kernel)

    @property
    def places(self) -> int:
        """The number of windows on an image."""
        return math.prod(self.result)

    @property
    def is_padded(self) -> bool:
        return self.padded != self.image

    @property
    def is_matrix(self) -> bool:
        """Tells whether the image is the matrix itself."""
        ones = (*self.kernel, *self.steps)
        return not self.is_padded and {*ones} == {1}


def padding(
    how: dict[str, Any], space: Sequence[int], spans: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the padding before and after each dimension.

    Args:
        how: the arguments of an operator that say it.
        space: the sizes of the image.
        spans: the sizes of a window.
    """
    algorithm, given, n = how["padding_algorithm"], how["paddings"], len(space)
    if algorithm == "VALID":
        return [(0, 0)] * n
    if algorithm == "SAME":
        results = []
        for size, step, span in zip(space, how["strides"], spans, strict=True):
            total = max((-(-size // step) - 1) * step + span - size, 0)
            results.append((total // 2, total - total // 2))
        return results
    if len(given) == n:
        return [(p, p) for p in given]
    return [*zip(given[::2], given[1::2], strict=True)]


def windows_of(
    image: Value, filters: Value, result: Value, how: dict[str, Any]
) -> Windows:
    """Return how windows lie.

    Raises:
        NotLowerable: channels are last, or it is of several dtypes.
    """
    kinds = {v.dtype for v in (image, filters, result)}
    groups = how["groups"]
    count, every, *space = image.shape
    _, channels, *kernel = filters.shape
    is_first = how["data_format"] in ("NCHW", "NCDHW")
    if not is_first or len(kinds) > 1 or not kinds <= FLOATS:
        raise NotLowerable
    out, steps, dilations = result.shape[2:], how["strides"], how["dilations"]
    if how["padding_algorithm"] == "SAME":
        dilations = [1] * len(space)  # whatever is asked for, as Paddle has it
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    around = padding(how, space, spans)
    padded = [s + p + q for s, (p, q) in zip(space, around, strict=True)]
    fits = [
        (o - 1) * step + span <= size
        for o, step, span, size in zip(out, steps, spans, padded, strict=True)
    ]
    if channels * groups != every or not all(fits) or 0 in (count, *out):
        raise NotLowerable
    return Windows(
        *(count, groups, channels, filters.shape[0] // groups),
        *(tuple(space), tuple(kernel), tuple(out), tuple(p for p, _ in around)),
        *(tuple(padded), tuple(steps), tuple(dilations)),
    )


def steps_of(shape: Shape) -> tuple[int, ...]:
    """Return the strides along each dimension, without gaps."""
    return tuple(stride.factor for stride in STATIC_SHAPES.strides(shape))


class StridedOrigin(NamedTuple):
    """The first entry of an array, and its strides along each dimension."""

    first: str
    steps: Shape


class WindowStep:
    """A step over windows, one image after another.

    Args:
        around: the value that images are padded with.
    """

    def __init__(
        self,
        builder: StageBuilder,
        windows: Windows,
        op: Operation,
        around: str = "0.0",
    ) -> None:
        self._all, self._it, self._op, self._number = builder, windows, op, around
        self._dtype = op.outputs[0].dtype
        self._kind = TYPES[self._dtype]
        self._every = windows.groups * windows.channels
        self._padded = self._scratch((self._every, *windows.padded))
        self._channel, *self._place = steps_of(self._padded.shape)
        """Strides of a padded image."""

    def _scratch(self, shape: Shape) -> BufferView:
        """Return memory of the step's own."""
        size = BYTES[self._dtype] * math.prod(shape)
        return dense_view(Value(-1, shape, self._dtype, size), STATIC_SHAPES)

    def _put(
        self,
        given: Sequence[Value],
        made: Value,
        own: Sequence[BufferView],
        write: Callable[[FunctionBuilder, Address], None],
    ) -> list[BufferView]:
        """Add the step; return where its inputs lie, and its result.

        Args:
            own: further memory that only the step uses.
        """
        views = [*map(self._all.dense_view, given)]
        out, op = self._all.allocate(made), self._op

        def noted(ir: FunctionBuilder, address: Address) -> None:
            ir.line(f"; {op!r}  {op.where}")
            write(ir, address)

        reads = tuple(view.buffer for view in views)
        writes = (out.buffer, self._padded.buffer, *(view.buffer for view in own))
        self._all.stages.append(Stage(reads, writes, {}, noted))
        return [*views, out]

    @contextmanager
    def _images(
        self, ir: FunctionBuilder, views: Sequence[BufferView], address: Address
    ) -> Iterator[list[str]]:
        """Loop over images; give the address of each view's part."""
        firsts = [*map(address, views)]
        with ir.loop(ir.size_value(self._count()), metadata=NO_VECTORIZE) as index:
            yield [
                self._at(ir, first, (index, self._size_of(view)))
                for first, view in zip(firsts, views, strict=True)
            ]

    def _count(self) -> SymInt:
        """Return the number of images."""
        return self._all.shape_env.extent(self._it.images)

    def _size_of(self, view: BufferView) -> int:
        """Return the size of an image's part."""
        return math.prod(view.shape[1:])

    def _at(self, ir: FunctionBuilder, base: str, *steps: tuple[str, int]) -> str:
        for index, step in steps:
            base = ir.indexed_address(base, self._kind, SymInt(step), index)
        return base

    def _fill_around(self, ir: FunctionBuilder, address: Address) -> None:
        if self._it.is_padded:
            emit_fill(
                ir, self._padded, address(self._padded), STATIC_SHAPES, self._number
            )

    def _within(self, ir: FunctionBuilder, padded: str) -> StridedOrigin:
        """Return the part of a padded image that is not padding."""
        pairs = zip(self._it.before, self._place, strict=True)
        first = ir.offset_address(padded, self._kind, sum(n * s for n, s in pairs))
        return StridedOrigin(first, (self._channel, *self._place))

    def _whole(self, image: str) -> StridedOrigin:
        return StridedOrigin(image, steps_of((self._every, *self._it.image)))

    def _around(self, ir: FunctionBuilder, image: str, address: Address) -> str:
        """Return the address of the image with its padding."""
        if not self._it.is_padded:
            return image
        padded = address(self._padded)
        self._copy(ir, self._whole(image), self._within(ir, padded))
        return padded

    def _copy(
        self, ir: FunctionBuilder, source: StridedOrigin, to: StridedOrigin
    ) -> None:
        """Copy an image without its padding."""
        shape = self._every, *self._it.image
        self._nest(ir, shape, [source], [to], lambda x: [x])

    def _add(
        self,
        ir: FunctionBuilder,
        shape: Shape,
        part: StridedOrigin,
        total: StridedOrigin,
    ) -> None:
        """Add numbers to others, a place at a time."""
        self._nest(ir, shape, [part, total], [total], lambda x, sum: [sum + x])

    def _over(self) -> Shape:
        """Return the shape of loops over channels, pixels in a window, and windows."""
        return self._every, *self._it.kernel, *self._it.result

    def _windows(self, first: str) -> StridedOrigin:
        """Return the pixels in windows, along :meth:`_over`."""
        it, place = self._it, self._place
        inner = (d * s for d, s in zip(it.dilations, place, strict=True))
        outer = (n * s for n, s in zip(it.steps, place, strict=True))
        return StridedOrigin(first, (self._channel, *inner, *outer))

    def _result(self, first: str) -> StridedOrigin:
        """Return the result of each window, the same for all of its pixels."""
        channel, *place = steps_of((self._every, *self._it.result))
        return StridedOrigin(first, (channel, *(0,) * len(self._it.kernel), *place))

    def _nest(
        self,
        ir: FunctionBuilder,
        shape: Shape,
        reads: Sequence[StridedOrigin],
        writes: Sequence[StridedOrigin],
        body: Callable[..., Sequence[ElementValue | float]],
        reduction: Reduction | None = None,
    ) -> None:
        """Write loops over a shape; reads and writes may share the same places.

        Args:
            body: gives the values to write, from those read.
        """
        firsts: dict[int, str] = {}
        views = []

        def access(place: StridedOrigin, how: Reduction | None = None) -> NestAccess:
            strides = tuple(map(SymInt, place.steps))
            view = BufferView(self._padded.buffer, (), shape, strides)
            if how is not None:  # all of the result, which begins as that of none
                pairs = zip(shape, strides, strict=True)
                kept = tuple(n for n, s in pairs if s.factor)
                view = BufferView(self._padded.buffer, (), kept, ())
            views.append(view)  # which keeps its identity
            firsts[id(view)] = place.first
            return NestAccess(view, strides, how)

        given = [access(place) for place in reads]
        made = [access(place, reduction) for place in writes]

        def named(x: Sequence[str], lanes: int) -> list[str]:
            numbers = [ElementValue(name, self._kind, ir, lanes=lanes) for name in x]
            constant = ElementValue("", self._kind, ir, lanes=lanes).constant
            return [
                (made if isinstance(made, ElementValue) else constant(made)).name
                for made in body(*numbers)
            ]

        LoopNest(ir, shape, given, made, STATIC_SHAPES, lambda v: firsts[id(v)]).emit(
            named
        )
