"""Arguments of the losses that are operators."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import T, index, t

UNIT = T((3, 4), 0.2, 0.8)
WEIGHT = T((4,), 0.3, 2.0)
IMAGE = t(2, 3, 4, 5)
PIXELS = index(2, 4, 5, below=3)
TREE = (index(3, 1, below=5), t(4, 6))
PATHS = [paddle.to_tensor(row) for row in ([[0, 2, -1], [1, 3, 2], [2, -1, -1]],)]
CODES = [paddle.to_tensor(row) for row in ([[1, 0, -1], [0, 1, 1], [1, -1, -1]],)]


def entropy(
    *given: Any, soft: bool = False, ignored: int = -100, axis: int = -1
) -> Any:
    return [(*given, soft, use, True, ignored, axis) for use in (True, False)]


LOSSES: dict[str, list[tuple[Any, ...]]] = {
    "bce_loss": [(UNIT, UNIT), (T((), 0.2, 0.8), T((), 0.2, 0.8))],
    "bce_loss_grad": [(UNIT, UNIT, t(3, 4))],
    "sigmoid_cross_entropy_with_logits": [
        (t(3, 4), UNIT, None, False, -100),
        (t(3, 4), UNIT, T((3, 4), 0.5, 2.0), False, -100),
        (t(3, 4), UNIT, None, True, -100),
        (t(3, 4), T((3, 4), 0.2, 1.8), None, False, 1),
        (t(3, 4), T((3, 4), 0.2, 1.8), None, True, 1),
        (t(), T((), 0.2, 0.8), None, False, -100),
    ],
    "cross_entropy_with_softmax": [
        *entropy(T((4, 5), 0.3, 2.0), index(4, 1, below=5)),
        *entropy(T((4, 5), 0.3, 2.0), index(4, 1, below=5), ignored=2),
        *entropy(T((2, 3, 4), 0.3, 2.0), index(2, 1, 4, below=3), axis=1),
        *entropy(T((2, 3, 4), 0.3, 2.0), index(2, 1, 4, below=3), axis=-2),
        *entropy(T((3, 4), 0.3, 2.0), UNIT, soft=True),
        *entropy(T((2, 3, 4), 0.3, 2.0), T((2, 3, 4), 0.2, 0.8), soft=True, axis=1),
    ],
    "cross_entropy_with_softmax_grad": [
        (index(4, 1, below=5), UNIT_ROWS, t(4, 1), False, use, True, ignored, -1)
        for UNIT_ROWS in (T((4, 5), 0.2, 0.8),)
        for use, ignored in ((True, -100), (False, 3))
    ],
    "one_hot": [(index(3, 2, below=5), 5)],
    "nll_loss": [
        *((t(5, 4), index(5, below=4), None, -100, r) for r in ("mean", "sum", "none")),
        *((t(5, 4), index(5, below=4), WEIGHT, 2, r) for r in ("mean", "sum", "none")),
        *((IMAGE, PIXELS, None, -100, r) for r in ("mean", "sum", "none")),
        (IMAGE, PIXELS, T((3,), 0.3, 2.0), -100, "mean"),
        (IMAGE, PIXELS, T((3,), 0.3, 2.0), 1, "none"),
    ],
    "kldiv_loss": [
        *((t(3, 4), UNIT, r, False) for r in ("none", "mean", "sum", "batchmean")),
        *((t(3, 4), t(3, 4), r, True) for r in ("none", "mean", "sum", "batchmean")),
        (t(), T((), 0.2, 0.8), "none", False),
    ],
    "huber_loss": [(t(3, 4), t(3, 4), 1.0), (t(3, 4), t(3, 4), 0.3)],
    "label_smooth": [(UNIT, None, 0.1), (UNIT, T((1, 4), 0.2, 0.8), 0.1)],
    "log_loss": [
        (T((3, 1), 0.2, 0.8, "float32"), T((3, 1), 0.2, 0.8, "float32"), 1e-4)
    ],
    "identity_loss": [(t(3, 4), 0), (t(3, 4), 1), (t(3, 4), 2)],
    "hsigmoid_loss": [
        (t(3, 6), *TREE, t(4, 1), None, None, 5, False, False),
        (t(3, 6), *TREE, None, None, None, 5, False, False),
        (t(3, 6), *TREE, t(4, 1), *PATHS, *CODES, 5, False, False),
    ],
    "warpctc": [
        (
            *(t(6, 2, 5), paddle.to_tensor([[1, 2, 2], [3, 1, 0]], "int32")),
            *(paddle.to_tensor([6, 4]), paddle.to_tensor([3, 2]), 0, False),
        )
    ],
    "warprnnt": [
        (
            *(t(2, 4, 3, 5), paddle.to_tensor([[1, 2], [3, 1]], "int32")),
            paddle.to_tensor([4, 3], "int32"),
            *(paddle.to_tensor([2, 1], "int32"), 0, 0.0),
        )
    ],
}
