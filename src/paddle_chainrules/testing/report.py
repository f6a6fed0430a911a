"""Results of a comparison, a row a tensor."""

from __future__ import annotations

import dataclasses

from ..nets.description import aligned
from ..paddle_side.arguments import is_number, is_row_of, refuse_hand_made


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor against one oracle."""

    device: str
    dtype: str
    oracle: str
    tensor: str
    shape: tuple[int, ...]
    error: float
    """The largest difference, relative to the largest entry of the oracle's."""
    where: tuple[int, ...] | None
    """The index of that entry; None where a whole tensor was compared at once."""
    tolerance: float

    def __post_init__(self) -> None:
        indices = self.shape, () if self.where is None else self.where
        are_numbers = is_number(self.error) and is_number(self.tolerance)
        if not (are_numbers and all(is_row_of(int, index) for index in indices)):
            refuse_hand_made(Row, "check_vjp or compare")

    @property
    def ok(self) -> bool:
        """True if the error is small enough; NaN is not."""
        return self.error <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a comparison; printed it is a table."""

    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not is_row_of(Row, self.rows):
            refuse_hand_made(Report, "check_vjp or compare")

    @property
    def ok(self) -> bool:
        """True if all of it agrees."""
        return all(row.ok for row in self.rows)

    @property
    def worst(self) -> Row:
        """The row whose error is largest for its tolerance."""
        return max(self.rows, key=lambda row: row.error / row.tolerance)

    def __str__(self) -> str:
        head = ("device", "dtype", "oracle", "tensor", "shape", "error", "where", "")
        lines = [head]
        for row in self.rows:
            shape, where = list(row.shape), "" if row.where is None else list(row.where)
            error = f"{row.error:.1e}"
            mark = "" if row.ok else f"more than {row.tolerance:.0e}"
            about = (row.device, row.dtype, row.oracle, row.tensor)
            lines.append((*about, str(shape), error, str(where), mark))
        return aligned(lines)
