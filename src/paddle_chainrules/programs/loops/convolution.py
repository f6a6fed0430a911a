"""Convolutions of images as products of matrices, an image and some rows at a time.

What a window covers is copied into a column of a matrix that stays in the cache; the
filters times that matrix are some rows of the result. The gradients are products with
the same matrix, by the filters, and what is added up from it, by the image. Paddle's
kernels do the same for a whole image at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..operations import Operation, Value
from .extents import Extent, Sizes
from .nest import Access, Nest, clear
from .products import SUFFIX
from .scalars import FLOATS, NoLoop, Shape
from .steps import Address, Step, Steps, written_as
from .text import BYTES, TYPES, Text
from .views import View, dense

COLUMNS = 1 << 18
"""Bytes of what windows cover, copied at a time."""

LEAST = 16
"""Numbers that a window covers in the channels of a group, with fewer of which Paddle's
own kernels are as fast."""

FIXED = Sizes(None)
"""None of the sizes within an image goes along with the number of samples."""


class Windows(NamedTuple):
    """How the windows of a convolution lie on images.

    Attributes:
        images: how many.
        groups: of channels.
        channels, filters: of a group: of the image, and of the result.
        image, kernel, result: sizes in space.
        before: what is padded before the first place of each dimension.
        padded: sizes of the image with what is padded.
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
        """What a window covers of the channels of a group."""
        return self.channels * math.prod(self.kernel)

    @property
    def places(self) -> int:
        """Of windows on an image."""
        return math.prod(self.result)

    @property
    def is_padded(self) -> bool:
        return self.padded != self.image

    @property
    def is_matrix(self) -> bool:
        """Whether the image is the matrix itself."""
        ones = (*self.kernel, *self.steps)
        return not self.is_padded and {*ones} == {1}

    def rows(self, dtype: str) -> int:
        """Of the result at a time."""
        first, rest = self.result[0], math.prod(self.result[1:])
        most = max(COLUMNS // (self.terms * rest * BYTES[dtype]), 1)
        return max(n for n in range(1, min(first, most) + 1) if first % n == 0)


def _windows_of(
    image: Value, filters: Value, result: Value, how: dict[str, Any]
) -> Windows:
    """How they lie.

    Raises:
        NoLoop: channels are last, or Paddle's kernels are better.
    """
    kinds = {v.dtype for v in (image, filters, result)}
    groups = how["groups"]
    count, every, *space = image.shape
    _, channels, *kernel = filters.shape
    terms = channels * math.prod(kernel)
    is_first = how["data_format"] in ("NCHW", "NCDHW")
    if not is_first or len(kinds) > 1 or not kinds <= FLOATS:
        raise NoLoop
    if groups > 1 and terms < LEAST:
        raise NoLoop
    n, out = len(space), result.shape[2:]
    steps, dilations = how["strides"], how["dilations"]
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    around = _padding(how, space, spans, n)
    padded = [s + p + q for s, (p, q) in zip(space, around, strict=True)]
    fits = [
        (o - 1) * step + span <= size
        for o, step, span, size in zip(out, steps, spans, padded, strict=True)
    ]
    if channels * groups != every or not all(fits) or 0 in (count, *out):
        raise NoLoop
    return Windows(
        *(count, groups, channels, filters.shape[0] // groups),
        *(tuple(space), tuple(kernel), tuple(out), tuple(p for p, _ in around)),
        *(tuple(padded), tuple(steps), tuple(dilations)),
    )


def _padding(
    how: dict[str, Any], space: Sequence[int], spans: Sequence[int], n: int
) -> list[tuple[int, int]]:
    """Before and after each dimension."""
    algorithm, given = how["padding_algorithm"], how["paddings"]
    if algorithm == "VALID":
        return [(0, 0)] * n
    if algorithm == "SAME":
        found = []
        for size, step, span in zip(space, how["strides"], spans, strict=True):
            total = max((-(-size // step) - 1) * step + span - size, 0)
            found.append((total // 2, total - total // 2))
        return found
    if len(given) == n:
        return [(p, p) for p in given]
    return [*zip(given[::2], given[1::2], strict=True)]


Block = tuple[str, str]
"""The index of a group of channels, and of some rows."""


class Matrix(NamedTuple):
    """One that lies row by row: its first number, and from one row to the next."""

    first: str
    step: int
    turned: bool = False


class Place(NamedTuple):
    """The first number of something, and from one to the next along each dimension."""

    first: str
    steps: Shape


class _Convolution:
    """The three products of a convolution, each a step of a region."""

    def __init__(self, steps: Steps, windows: Windows, op: Operation) -> None:
        self._all, self._it, self._op = steps, windows, op
        self._dtype = op.outputs[0].dtype
        self._kind = TYPES[self._dtype]
        self._rows = windows.rows(self._dtype)
        self._columns = self._rows * math.prod(windows.result[1:])
        every = windows.groups * windows.channels, *windows.padded
        self._padded = self._scratch(every)
        self._matrix = self._scratch((windows.terms, self._columns))
        channel, *place = (s.factor for s in FIXED.strides(every))
        self._channel, self._place = channel, place
        """From one of a padded image to the next."""

    def forward(self, image: Value, filters: Value, result: Value) -> None:
        """The result of an image and filters."""
        it = self._it
        sizes = it.filters, self._columns, it.terms

        def write(text: Text, address: Address) -> None:
            self._clear_around(text, address)
            with self._images(text, (x, out), address) as (here, to):
                padded = self._around(text, here, address)
                with self._blocks(text) as block:
                    left = self._filters(text, address(w), block)
                    right = self._covered(text, padded, block, address)
                    part = self._part(text, to, block)
                    self._multiply(text, left, right, part, sizes)

        x, w, out = self._put(image, filters, result, write)

    def by_image(self, filters: Value, result: Value, image: Value) -> None:
        """The gradient by the image, of one of the result."""
        it = self._it
        sizes = it.terms, self._columns, it.filters

        def write(text: Text, address: Address) -> None:
            with self._images(text, (g, out), address) as (here, to):
                padded = address(self._padded) if it.is_padded else to
                if not it.is_matrix:
                    clear(text, self._padded, padded, FIXED)
                with self._blocks(text) as block:
                    left = self._filters(text, address(w), block)
                    right = self._part(text, here, block)
                    first = self._image(text, padded, block)
                    made = Matrix(first, it.places)
                    if not it.is_matrix:
                        made = Matrix(address(self._matrix), self._columns)
                    turned = left._replace(turned=True)
                    self._multiply(text, turned, right, made, sizes)
                    if not it.is_matrix:
                        self._add_up(text, made.first, first)
                if it.is_padded:
                    inside, whole = self._within(text, padded), self._whole(to)
                    shape = it.groups * it.channels, *it.image
                    self._nest(text, shape, inside, whole)

        w, g, out = self._put(filters, result, image, write)

    def by_filters(self, image: Value, result: Value, filters: Value) -> None:
        """The gradient by the filters, of one of the result."""
        it = self._it
        sizes = it.filters, it.terms, self._columns

        def write(text: Text, address: Address) -> None:
            self._clear_around(text, address)
            clear(text, out, address(out), FIXED)
            with self._images(text, (x, g), address) as (here, given):
                padded = self._around(text, here, address)
                with self._blocks(text) as block:
                    left = self._part(text, given, block)
                    right = self._covered(text, padded, block, address)
                    right = right._replace(turned=True)
                    total = self._filters(text, address(out), block)
                    self._multiply(text, left, right, total, sizes, onto=True)

        x, g, out = self._put(image, result, filters, write)

    def _scratch(self, shape: Shape) -> View:
        """Memory of the step's own."""
        size = BYTES[self._dtype] * math.prod(shape)
        return dense(Value(-1, shape, self._dtype, size), FIXED)

    def _put(
        self,
        one: Value,
        other: Value,
        made: Value,
        write: Callable[[Text, Address], None],
    ) -> tuple[View, View, View]:
        """The step, and where what it is given lies, and what it makes."""
        x, y = self._all.dense(one), self._all.dense(other)
        out, op = self._all.new(made), self._op

        def noted(text: Text, address: Address) -> None:
            text.line(f"; {op!r}  {op.where}")
            write(text, address)

        own = self._padded.memory, self._matrix.memory
        reads, writes = (x.memory, y.memory), (out.memory, *own)
        self._all.found.append(Step(reads, writes, {}, noted))
        return x, y, out

    # Where things are.

    @contextmanager
    def _images(
        self, text: Text, views: Sequence[View], address: Address
    ) -> Iterator[list[str]]:
        """One after another; gives where each of these has its part."""
        firsts = [*map(address, views)]
        with text.loop(text.number(self._all.sizes.of(self._it.images))) as index:
            yield [
                self._at(text, first, (index, math.prod(view.shape[1:])))
                for first, view in zip(firsts, views, strict=True)
            ]

    @contextmanager
    def _blocks(self, text: Text) -> Iterator[Block]:
        """Groups of channels, and of each the rows of the result, some at a time."""
        blocks = self._it.result[0] // self._rows
        with (
            text.loop(str(self._it.groups)) as group,
            text.loop(str(blocks)) as block,
        ):
            yield group, block

    def _at(self, text: Text, base: str, *steps: tuple[str, int]) -> str:
        for index, step in steps:
            base = text.along(base, self._kind, Extent(step), index)
        return base

    def _image(self, text: Text, padded: str, block: Block) -> str:
        """Where the first window lies."""
        rows = self._rows * self._it.steps[0] * self._place[0]
        steps = self._it.channels * self._channel, rows
        return self._at(text, padded, *zip(block, steps, strict=True))

    def _part(self, text: Text, result: str, block: Block) -> Matrix:
        """Of the result."""
        steps = self._it.filters * self._it.places, self._columns
        first = self._at(text, result, *zip(block, steps, strict=True))
        return Matrix(first, self._it.places)

    def _filters(self, text: Text, first: str, block: Block) -> Matrix:
        """Those of a group of channels."""
        it = self._it
        first = self._at(text, first, (block[0], it.filters * it.terms))
        return Matrix(first, it.terms)

    # What is done.

    def _clear_around(self, text: Text, address: Address) -> None:
        if self._it.is_padded:
            clear(text, self._padded, address(self._padded), FIXED)

    def _within(self, text: Text, padded: str) -> Place:
        """What of a padded image is none of the padding."""
        pairs = zip(self._it.before, self._place, strict=True)
        first = text.further(padded, self._kind, sum(n * s for n, s in pairs))
        return Place(first, (self._channel, *self._place))

    def _whole(self, image: str) -> Place:
        it = self._it
        shape = it.groups * it.channels, *it.image
        return Place(image, tuple(s.factor for s in FIXED.strides(shape)))

    def _around(self, text: Text, image: str, address: Address) -> str:
        """Where the image is with its padding."""
        if not self._it.is_padded:
            return image
        padded = address(self._padded)
        shape = self._it.groups * self._it.channels, *self._it.image
        self._nest(text, shape, self._whole(image), self._within(text, padded))
        return padded

    def _windows(self, first: str) -> tuple[Shape, Place, Place]:
        """Over what to go from window to window, on the image and on the matrix."""
        it, place = self._it, self._place
        shape = it.channels, *it.kernel, self._rows, *it.result[1:]
        inner = (d * s for d, s in zip(it.dilations, place, strict=True))
        outer = (n * s for n, s in zip(it.steps, place, strict=True))
        image = Place(first, (self._channel, *inner, *outer))
        return shape, image, Place("", tuple(s.factor for s in FIXED.strides(shape)))

    def _covered(
        self, text: Text, padded: str, block: Block, address: Address
    ) -> Matrix:
        """What windows cover, a column each."""
        first = self._image(text, padded, block)
        if self._it.is_matrix:
            return Matrix(first, self._it.places)
        shape, image, matrix = self._windows(first)
        columns = address(self._matrix)
        self._nest(text, shape, image, matrix._replace(first=columns))
        return Matrix(columns, self._columns)

    def _add_up(self, text: Text, columns: str, first: str) -> None:
        """Add the matrix to the places of the image that it is of."""
        shape, image, matrix = self._windows(first)
        self._nest(text, shape, matrix._replace(first=columns), image, adds=True)

    def _nest(
        self, text: Text, shape: Shape, source: Place, to: Place, adds: bool = False
    ) -> None:
        """Copy from one place to another, or add to what is there."""
        views = [
            View(self._matrix.memory, (), shape, tuple(map(Extent, each.steps)))
            for each in (source, to)
        ]
        firsts = {id(v): p.first for v, p in zip(views, (source, to), strict=True)}
        read, write = (Access(view, view.strides) for view in views)
        nest = Nest(
            *(text, shape, [read, write] if adds else [read], [write], FIXED),
            lambda view: firsts[id(view)],
        )
        add = f"fadd {self._kind}"
        nest.write(lambda x: [text.put(f"{add} {', '.join(x)}")] if adds else x)

    def _multiply(
        self,
        text: Text,
        x: Matrix,
        y: Matrix,
        to: Matrix,
        sizes: Shape,
        onto: bool = False,
    ) -> None:
        """Write the product of matrices, or add it to what is there."""
        given = [
            *(f"i1 {str(each.turned).lower()}" for each in (x, y)),
            *(f"i64 {size}" for size in sizes),
            *(f"ptr {each.first}, i64 {each.step}" for each in (x, y)),
            f"{self._kind} {float(onto)}",
            f"ptr {to.first}, i64 {to.step}",
        ]
        name = f"@product.{SUFFIX[self._dtype]}"
        text.line(f"call void {name}({', '.join(given)})")


def _how(op: Operation) -> dict[str, Any]:
    return dict(zip(op.operator.arguments, op.args, strict=False))


def _of(steps: Steps, op: Operation, image: Value, result: Value) -> _Convolution:
    if not steps.has_products:
        raise NoLoop
    how = _how(op)
    return _Convolution(steps, _windows_of(image, how["filter"], result, how), op)


CONVOLUTIONS = frozenset(
    f"{name}{end}"
    for name in ("conv2d", "conv3d", "conv2d_transpose", "conv3d_transpose")
    for end in ("", "_grad")
)
"""Operators that are products of matrices."""


@written_as("conv2d", "conv3d")
def _(steps: Steps, op: Operation) -> None:
    x, filters, (out,) = *op.args[:2], op.outputs
    _of(steps, op, x, out).forward(x, filters, out)


@written_as("conv2d_grad", "conv3d_grad")
def _(steps: Steps, op: Operation) -> None:
    x, filters, g = op.args[:3]
    by_x, by_filters = op.outputs
    it = _of(steps, op, x, g)
    it.by_filters(x, g, by_filters)
    it.by_image(filters, g, by_x)


@written_as("conv2d_transpose", "conv3d_transpose")
def _(steps: Steps, op: Operation) -> None:
    x, filters, (out,) = *op.args[:2], op.outputs
    _of(steps, op, out, x).by_image(filters, x, out)


@written_as("conv2d_transpose_grad", "conv3d_transpose_grad")
def _(steps: Steps, op: Operation) -> None:
    x, filters, g = op.args[:3]
    by_x, by_filters = op.outputs
    it = _of(steps, op, g, x)
    it.by_filters(g, x, by_filters)
    it.forward(g, filters, by_x)
