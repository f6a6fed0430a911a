"""Arguments of what draws random numbers."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import T, index, positive, t

CPU = paddle.CPUPlace()
MODES = ("upscale_in_train", "downgrade_in_infer")

RANDOM: dict[str, list[tuple[Any, ...]]] = {
    "dropout": [
        *(
            (t(3, 4), None, 0.4, test, m, 0, False)
            for m in MODES
            for test in (False, True)
        ),
        (t(3, 4), None, 1.0, False, MODES[0], 0, False),
        (t(3, 4), None, paddle.full([], 0.4), False, MODES[0], 0, False),
        (t(3, 4), None, 0.4, False, MODES[0], 7, True),
        (t(), None, 0.4, False, MODES[0], 0, False),
    ],
    "dropout_grad": [
        (T((3, 4), 0, 2, "uint8"), t(3, 4), 0.5, False, mode) for mode in MODES
    ],
    "rrelu": [(t(3, 4), 0.1, 0.3, False), (t(3, 4), 0.1, 0.3, True)],
    "gumbel_softmax": [(t(3, 4), 0.7, False, -1), (t(3, 4), 1.0, False, 0)],
    "seed": [(5,)],
    "gaussian": [([3, 4], 0.5, 2.0, 0, paddle.float64, CPU)],
    "uniform": [([3, 4], paddle.float64, -1.0, 2.0, 0, CPU)],
    "randint": [(2, 9, [3, 4], paddle.int64, CPU)],
    "randperm": [(7, paddle.int64, CPU)],
    "bernoulli": [(T((3, 4), 0.2, 0.8),)],
    "poisson": [(positive(3, 4),)],
    "binomial": [(paddle.full([3, 4], 6.0), paddle.full([3, 4], 0.3))],
    "multinomial": [(positive(3, 5), 3, False), (positive(3, 5), 7, True)],
    "standard_gamma": [(positive(3, 4),)],
    "dirichlet": [(positive(3, 4),)],
    "truncated_gaussian_random": [
        ([3, 4], 0.5, 2.0, 0, -2.0, 2.0, paddle.float64, CPU)
    ],
    "class_center_sample": [(index(4, below=6), 9, 5, 0, 0, 1, False, 0)],
    "uniform_random_batch_size_like": [
        (t(3, 4), [1, 5], 0, 0, -1.0, 1.0, 0, 0, 0, 1.0, paddle.float32)
    ],
}
