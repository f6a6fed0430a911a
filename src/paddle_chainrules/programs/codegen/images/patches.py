"""Windows of an image as columns, and columns added up to an image."""

from __future__ import annotations

from typing import Any

from ...tracing.operations import Operation, Value
from ..elements.scalars import FLOATS, NotLowerable
from ..ir_builder import FunctionBuilder
from ..lowering import Address, StageBuilder, lowers
from ..nest import emit_clear
from .windows import STATIC_SHAPES, StridedOrigin, Windows, WindowStep, steps_of


def _windows_of(image: Value, how: dict[str, Any]) -> Windows:
    """Return how the windows lie.

    Raises:
        NotLowerable: the entries are not floats, or there are no windows.
    """
    count, channels, *space = image.shape
    kernel, steps, dilations = (
        tuple(how[name]) for name in ("kernel_sizes", "strides", "dilations")
    )
    top, left, bottom, right = how["paddings"]
    before, after = (top, left), (bottom, right)
    padded = tuple(map(sum, zip(space, before, after, strict=True)))
    result = tuple(
        (size - d * (k - 1) - 1) // step + 1
        for size, d, k, step in zip(padded, dilations, kernel, steps, strict=True)
    )
    if image.dtype not in FLOATS or 0 in image.shape or min(result) < 1:
        raise NotLowerable
    return Windows(
        *(count, 1, channels, 1, tuple(space), kernel, result),
        *(before, padded, steps, dilations),
    )


class _Patches(WindowStep):
    def unfold(self, image: Value, columns: Value) -> None:
        """Copy the pixels in windows, one column for each window."""

        def write(ir: FunctionBuilder, address: Address) -> None:
            self._fill_around(ir, address)
            with self._images(ir, (x, out), address) as (here, to):
                windows = self._windows(self._around(ir, here, address))
                made = StridedOrigin(to, steps_of(self._over()))
                self._nest(ir, self._over(), [windows], [made], lambda x: [x])

        x, out = self._put((image,), columns, [], write)

    def fold(self, columns: Value, image: Value) -> None:
        """Sum what windows bring to each place."""

        def write(ir: FunctionBuilder, address: Address) -> None:
            with self._images(ir, (x, out), address) as (here, to):
                first = address(self._padded) if self._it.is_padded else to
                emit_clear(ir, self._padded, first, STATIC_SHAPES)
                part = StridedOrigin(here, steps_of(self._over()))
                self._add(ir, self._over(), part, self._windows(first))
                if self._it.is_padded:
                    self._copy(ir, self._within(ir, first), self._whole(to))

        x, out = self._put((columns,), image, [], write)


@lowers("unfold", "fold_grad")
def _unfold_loop(builder: StageBuilder, op: Operation) -> None:
    image = op.args[0] if op.operator.name == "unfold" else op.args[1]
    (out,) = op.outputs
    _Patches(builder, _windows_of(image, op.named), op).unfold(image, out)


@lowers("fold", "unfold_grad")
def _fold_loop(builder: StageBuilder, op: Operation) -> None:
    columns = op.args[0] if op.operator.name == "fold" else op.args[1]
    (out,) = op.outputs
    _Patches(builder, _windows_of(out, op.named), op).fold(columns, out)
