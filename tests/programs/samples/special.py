"""Arguments of special functions, and of activations of several elements."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import T, positive, t

EVERYWHERE = T((3, 4), -3.0, 3.0)
NUMBERS = [paddle.full([], n, "float64") for n in (2.0, 0.7, 1.0, 0.0)]
IMAGE = t(2, 4, 3, 5)

SPECIAL: dict[str, list[tuple[Any, ...]]] = {
    **{
        n: [(EVERYWHERE,), (t(),), (T((2, 3), -0.4, 0.4),)]
        for n in ("i0", "i0e", "i1", "i1e")
    },
    **{
        n: [(positive(3, 4),), (positive(),), (T((3,), -1.9, -1.2),)]
        for n in ("lgamma", "gammaln", "digamma")
    },
    "polygamma": [(positive(3, 4), n) for n in range(1, 5)],
    "erfinv": [(t(3, 4, low=-0.6, high=0.6),), (T((), 0.2, 0.6),)],
    "gammaincc": [(paddle.full([3, 4], 1.7, "float64"), positive(3, 4))],
    "logit": [
        (T((3, 4), 0.2, 0.8), 0.0),
        (T((3, 4), 0.0, 1.0), 0.3),
        (T((), 0.2, 0.8), 1e-6),
    ],
    "hardtanh": [(t(3, 4), -0.7, 0.9), (t(), -1.0, 1.0)],
    "increment": [(t(1), 2.5)],
    "heaviside": [(t(3, 4), t(3, 4)), (t(3, 4), t(4)), (t(2, 1), t(3))],
    "copysign": [(t(3, 4), t(3, 4)), (t(3, 4), t(4)), (t(2, 1), t(3))],
    "nextafter": [(t(3, 4), t(3, 4))],
    "prelu": [
        (IMAGE, t(4), "NCHW", "channel"),
        (IMAGE, t(5), "NHWC", "channel"),
        (IMAGE, t(1), "NCHW", "all"),
        (t(2, 3), t(3), "NCHW", "channel"),
    ],
    "maxout": [(IMAGE, 2, 1), (t(2, 3, 5, 6), 3, -1)],
    "swiglu": [(t(3, 4), t(3, 4)), (t(3, 4), None), (t(2, 3, 6), None)],
    "fused_softmax_mask": [(t(2, 3, 4, 5), t(2, 1, 4, 5))],
    "scale": [
        *((t(3, 4), 2.5, 0.5, after) for after in (True, False)),
        *((t(3, 4), t(1), 0.5, after) for after in (True, False)),
        (t(), t(), 0.0, True),
    ],
    "clip": [
        (t(3, 4), -0.5, 0.7),
        (t(3, 4), T((1,), -0.9, -0.3), T((1,), 0.4, 0.9)),
        (t(3, 4), T((), -0.9, -0.3), 0.7),
        (t(3, 4), -0.5, T((1,), 0.4, 0.9)),
    ],
    "pow": [
        *((positive(3, 4), 2.5), (t(3, 4), 2), (t(3, 4), 3.0)),
        *((positive(3, 4), number) for number in NUMBERS),
    ],
    "pow_grad": [
        *((positive(3, 4), t(3, 4), 2.5), (t(3, 4), t(3, 4), 3.0)),
        *((positive(3, 4), t(3, 4), number) for number in NUMBERS),
    ],
}
