"""Windows of an image as columns, and columns added up to an image."""

from __future__ import annotations

from typing import Any

from ....paddle_side.dtypes import FLOATS
from ...tracing.operations import Operation, Value
from ..elements.scalars import NotLowerable
from ..ir_builder import FunctionBuilder
from ..lowering import Address, StageBuilder, lowering_rule
from ..nest import emit_clear
from .windows import STATIC_SHAPES, StridedOrigin, Windows, WindowStep, strides_of


def _windows_of(image: Value, attrs: dict[str, Any]) -> Windows:
    """Return the geometry of the windows.

    Raises:
        NotLowerable: the entries are not floats, or there are no windows.
    """
    count, channels, *space = image.shape
    kernel, strides, dilations = (
        tuple(attrs[name]) for name in ("kernel_sizes", "strides", "dilations")
    )
    top, left, bottom, right = attrs["paddings"]
    pad_before, pad_after = (top, left), (bottom, right)
    padded = tuple(map(sum, zip(space, pad_before, pad_after, strict=True)))
    result = tuple(
        (size - d * (k - 1) - 1) // stride + 1
        for size, d, k, stride in zip(padded, dilations, kernel, strides, strict=True)
    )
    if image.dtype not in FLOATS or 0 in image.shape or min(result) < 1:
        raise NotLowerable
    return Windows(
        *(count, 1, channels, 1, tuple(space), kernel, result),
        *(pad_before, padded, strides, dilations),
    )


class _Patches(WindowStep):
    def unfold(self, image: Value, columns: Value) -> None:
        """Copy the pixels in windows, one column for each window."""

        def emit(ir: FunctionBuilder, address: Address) -> None:
            self._fill_padding(ir, address)
            with self._image_loop(ir, (x, out), address) as (source, target):
                pixels = self._window_pixels(self._pad_image(ir, source, address))
                column_entries = StridedOrigin(target, strides_of(self._loop_shape()))
                self._emit_nest(
                    ir, self._loop_shape(), [pixels], [column_entries], lambda x: [x]
                )

        x, out = self._add_stage((image,), columns, [], emit)

    def fold(self, columns: Value, image: Value) -> None:
        """Add up the columns at the pixels of their windows."""

        def emit(ir: FunctionBuilder, address: Address) -> None:
            with self._image_loop(ir, (x, out), address) as (source, target):
                padded = address(self._padded) if self._windows.is_padded else target
                emit_clear(ir, self._padded, padded, STATIC_SHAPES)
                column_entries = StridedOrigin(source, strides_of(self._loop_shape()))
                self._accumulate(
                    ir, self._loop_shape(), column_entries, self._window_pixels(padded)
                )
                if self._windows.is_padded:
                    self._copy_image(
                        ir, self._interior(ir, padded), self._unpadded(target)
                    )

        x, out = self._add_stage((columns,), image, [], emit)


@lowering_rule("unfold", "fold_grad")
def _lower_unfold(builder: StageBuilder, op: Operation) -> None:
    image = op.args[0] if op.operator.name == "unfold" else op.args[1]
    (out,) = op.outputs
    _Patches(builder, _windows_of(image, op.named), op).unfold(image, out)


@lowering_rule("fold", "unfold_grad")
def _lower_fold(builder: StageBuilder, op: Operation) -> None:
    columns = op.args[0] if op.operator.name == "fold" else op.args[1]
    (out,) = op.outputs
    _Patches(builder, _windows_of(out, op.named), op).fold(columns, out)
