"""Windows of convolutions and pooling, and stages that iterate over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ....paddle_side.dtypes import FLOATS
from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import NotLowerable, Reduction, Shape
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
        image, kernel, result: spatial sizes.
        pad_before: the padding before the first pixel of each dimension.
        padded: sizes of the image with the padding.
        strides, dilations: pixels from one window to the next, and within one.
    """

    images: int
    groups: int
    channels: int
    filters: int
    image: Shape
    kernel: Shape
    result: Shape
    pad_before: Shape
    padded: Shape
    strides: Shape
    dilations: Shape

    @property
    def terms(self) -> int:
        """The number of entries that a window covers in the channels of a group."""
        return self.channels * math.prod(self.kernel)

    @property
    def window_count(self) -> int:
        """The number of windows on an image."""
        return math.prod(self.result)

    @property
    def is_padded(self) -> bool:
        return self.padded != self.image

    @property
    def is_matrix(self) -> bool:
        """Tells whether the image is the matrix itself."""
        ones = (*self.kernel, *self.strides)
        return not self.is_padded and {*ones} == {1}


def padding(
    attrs: dict[str, Any], space: Sequence[int], spans: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the padding before and after each dimension.

    Args:
        attrs: the attributes of an operator.
        space: the spatial sizes of the image.
        spans: the sizes of a window.
    """
    algorithm, paddings, n = attrs["padding_algorithm"], attrs["paddings"], len(space)
    if algorithm == "VALID":
        return [(0, 0)] * n
    if algorithm == "SAME":
        results = []
        for size, stride, span in zip(space, attrs["strides"], spans, strict=True):
            total = max((-(-size // stride) - 1) * stride + span - size, 0)
            results.append((total // 2, total - total // 2))
        return results
    if len(paddings) == n:
        return [(p, p) for p in paddings]
    return [*zip(paddings[::2], paddings[1::2], strict=True)]


def windows_of(
    image: Value, filters: Value, result: Value, attrs: dict[str, Any]
) -> Windows:
    """Return the geometry of the windows.

    Raises:
        NotLowerable: channels are last, or it is of several dtypes.
    """
    kinds = {v.dtype for v in (image, filters, result)}
    groups = attrs["groups"]
    count, all_channels, *space = image.shape
    _, channels, *kernel = filters.shape
    channels_first = attrs["data_format"] in ("NCHW", "NCDHW")
    if not channels_first or len(kinds) > 1 or not kinds <= FLOATS:
        raise NotLowerable
    out, strides, dilations = result.shape[2:], attrs["strides"], attrs["dilations"]
    if attrs["padding_algorithm"] == "SAME":
        dilations = [1] * len(space)  # whatever is asked for, as Paddle has it
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    paddings = padding(attrs, space, spans)
    padded = [s + p + q for s, (p, q) in zip(space, paddings, strict=True)]
    fits = [
        (o - 1) * stride + span <= size
        for o, stride, span, size in zip(out, strides, spans, padded, strict=True)
    ]
    if channels * groups != all_channels or not all(fits) or 0 in (count, *out):
        raise NotLowerable
    return Windows(
        *(count, groups, channels, filters.shape[0] // groups),
        *(tuple(space), tuple(kernel), tuple(out), tuple(p for p, _ in paddings)),
        *(tuple(padded), tuple(strides), tuple(dilations)),
    )


def strides_of(shape: Shape) -> tuple[int, ...]:
    """Return the strides along each dimension, without gaps."""
    return tuple(stride.factor for stride in STATIC_SHAPES.strides(shape))


class StridedOrigin(NamedTuple):
    """The first entry of an array, and its strides along each dimension."""

    base: str
    strides: Shape


class WindowStep:
    """A stage over windows, one image after another.

    Args:
        pad_value: the value that images are padded with.
    """

    def __init__(
        self,
        builder: StageBuilder,
        windows: Windows,
        op: Operation,
        pad_value: str = "0.0",
    ) -> None:
        self._builder, self._windows, self._op, self._pad_value = (
            builder,
            windows,
            op,
            pad_value,
        )
        self._dtype = op.outputs[0].dtype
        self._kind = TYPES[self._dtype]
        self._channels = windows.groups * windows.channels
        self._padded = self._scratch((self._channels, *windows.padded))
        self._channel_stride, *self._pixel_strides = strides_of(self._padded.shape)
        """Strides of a padded image."""

    def _scratch(self, shape: Shape) -> BufferView:
        """Return a view of a scratch buffer."""
        size = BYTES[self._dtype] * math.prod(shape)
        return dense_view(Value(-1, shape, self._dtype, size), STATIC_SHAPES)

    def _add_stage(
        self,
        inputs: Sequence[Value],
        output: Value,
        scratch: Sequence[BufferView],
        emit: Callable[[FunctionBuilder, Address], None],
    ) -> list[BufferView]:
        """Add the stage; return the views of its inputs and of its output.

        Args:
            scratch: further buffers that only this stage uses.
        """
        views = [*map(self._builder.dense_view, inputs)]
        out, op = self._builder.allocate(output), self._op

        def emit_with_comment(ir: FunctionBuilder, address: Address) -> None:
            ir.line(f"; {op!r}  {op.where}")
            emit(ir, address)

        reads = tuple(view.buffer for view in views)
        writes = (out.buffer, self._padded.buffer, *(view.buffer for view in scratch))
        self._builder.stages.append(Stage(reads, writes, {}, emit_with_comment))
        return [*views, out]

    @contextmanager
    def _image_loop(
        self, ir: FunctionBuilder, views: Sequence[BufferView], address: Address
    ) -> Iterator[list[str]]:
        """Open a loop over images; give the address of each view's image."""
        bases = [*map(address, views)]
        with ir.loop(
            ir.size_value(self._image_count()), metadata=NO_VECTORIZE
        ) as index:
            yield [
                self._address(ir, base, (index, self._image_size(view)))
                for base, view in zip(bases, views, strict=True)
            ]

    def _image_count(self) -> SymInt:
        """Return the number of images."""
        return self._builder.shape_env.extent(self._windows.images)

    def _image_size(self, view: BufferView) -> int:
        """Return the number of elements of one image."""
        return math.prod(view.shape[1:])

    def _address(
        self, ir: FunctionBuilder, base: str, *offsets: tuple[str, int]
    ) -> str:
        for index, stride in offsets:
            base = ir.indexed_address(base, self._kind, SymInt(stride), index)
        return base

    def _fill_padding(self, ir: FunctionBuilder, address: Address) -> None:
        if self._windows.is_padded:
            emit_fill(
                ir, self._padded, address(self._padded), STATIC_SHAPES, self._pad_value
            )

    def _interior(self, ir: FunctionBuilder, padded: str) -> StridedOrigin:
        """Return the interior of a padded image."""
        pairs = zip(self._windows.pad_before, self._pixel_strides, strict=True)
        base = ir.offset_address(padded, self._kind, sum(n * s for n, s in pairs))
        return StridedOrigin(base, (self._channel_stride, *self._pixel_strides))

    def _unpadded(self, image: str) -> StridedOrigin:
        return StridedOrigin(image, strides_of((self._channels, *self._windows.image)))

    def _pad_image(self, ir: FunctionBuilder, image: str, address: Address) -> str:
        """Emit the padded copy of an image, if it is padded; return the address."""
        if not self._windows.is_padded:
            return image
        padded = address(self._padded)
        self._copy_image(ir, self._unpadded(image), self._interior(ir, padded))
        return padded

    def _copy_image(
        self, ir: FunctionBuilder, source: StridedOrigin, target: StridedOrigin
    ) -> None:
        """Copy an image without its padding."""
        shape = self._channels, *self._windows.image
        self._emit_nest(ir, shape, [source], [target], lambda x: [x])

    def _accumulate(
        self,
        ir: FunctionBuilder,
        shape: Shape,
        addend: StridedOrigin,
        total: StridedOrigin,
    ) -> None:
        """Emit an elementwise addition to a total."""
        self._emit_nest(ir, shape, [addend, total], [total], lambda x, sum: [sum + x])

    def _loop_shape(self) -> Shape:
        """Return the shape of loops over channels, pixels in a window, and windows."""
        return self._channels, *self._windows.kernel, *self._windows.result

    def _window_pixels(self, base: str) -> StridedOrigin:
        """Return the pixels in windows, along :meth:`_loop_shape`."""
        windows, pixel_strides = self._windows, self._pixel_strides
        inner = (d * s for d, s in zip(windows.dilations, pixel_strides, strict=True))
        outer = (n * s for n, s in zip(windows.strides, pixel_strides, strict=True))
        return StridedOrigin(base, (self._channel_stride, *inner, *outer))

    def _window_results(self, base: str) -> StridedOrigin:
        """Return the result of each window, the same for all of its pixels."""
        channel_stride, *result_strides = strides_of(
            (self._channels, *self._windows.result)
        )
        return StridedOrigin(
            base, (channel_stride, *(0,) * len(self._windows.kernel), *result_strides)
        )

    def _emit_nest(
        self,
        ir: FunctionBuilder,
        shape: Shape,
        reads: Sequence[StridedOrigin],
        writes: Sequence[StridedOrigin],
        body: Callable[..., Sequence[ElementValue | float]],
        reduction: Reduction | None = None,
    ) -> None:
        """Emit loops over a shape; reads and writes may overlap.

        Args:
            body: gives the values to write, from those read.
        """
        pointers: dict[int, str] = {}
        views = []

        def access(
            origin: StridedOrigin, combine: Reduction | None = None
        ) -> NestAccess:
            strides = tuple(map(SymInt, origin.strides))
            view = BufferView(self._padded.buffer, (), shape, strides)
            if combine is not None:  # all of the result, which begins as that of none
                pairs = zip(shape, strides, strict=True)
                result_shape = tuple(n for n, s in pairs if s.factor)
                view = BufferView(self._padded.buffer, (), result_shape, ())
            views.append(view)  # which keeps its identity
            pointers[id(view)] = origin.base
            return NestAccess(view, strides, combine)

        loaded = [access(origin) for origin in reads]
        written = [access(origin, reduction) for origin in writes]

        def emit_body(x: Sequence[str], lanes: int) -> list[str]:
            elements = [ElementValue(name, self._kind, ir, lanes=lanes) for name in x]
            constant = ElementValue("", self._kind, ir, lanes=lanes).constant
            return [
                (
                    written if isinstance(written, ElementValue) else constant(written)
                ).name
                for written in body(*elements)
            ]

        LoopNest(
            ir, shape, loaded, written, STATIC_SHAPES, lambda v: pointers[id(v)]
        ).emit(emit_body)
