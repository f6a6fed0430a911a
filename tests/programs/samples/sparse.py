"""Arguments of products of sparse matrices, given by their rows."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import t

CROWS = paddle.to_tensor([0, 2, 2, 5, 6])
COLS = paddle.to_tensor([1, 4, 0, 2, 4, 3])
TWICE = paddle.to_tensor([1, 1, 0, 2, 4, 3])

SPARSE: dict[str, list[tuple[Any, ...]]] = {
    "csr_product": [(t(6), t(5, 3), CROWS, COLS, 5), (t(6), t(5, 1), CROWS, TWICE, 5)],
    "csr_adjoint": [(t(6), t(4, 3), CROWS, COLS, 5), (t(6), t(4, 2), CROWS, TWICE, 7)],
    "csr_sampled": [
        (t(4, 3), t(5, 3), CROWS, COLS, 5),
        (t(4, 2), t(7, 2), CROWS, TWICE, 7),
    ],
}
