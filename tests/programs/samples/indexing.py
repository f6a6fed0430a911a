"""Arguments of operators that take parts of tensors, put them, or go by their order."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import T, index, positive, t

BOOL = T((3, 4), kind="bool")
IMAGE = t(2, 12, 3, 5)
NUMBERS: Any = paddle.to_tensor([2, 0, 1, 2])
ROWS = paddle.to_tensor([0, 0, 1, 3, 3])
TO = paddle.to_tensor([1, 2, 2, 0, 1, 2])
MASK = paddle.to_tensor([[True, False, True, True], [False, False, True, False]])
CHOICE = paddle.to_tensor([[1], [0], [2], [1]], "int32")
ALL = slice(None)

REDUCED: list[tuple[Any, ...]] = [
    (t(3, 5), index(2, 4, below=3), t(2, 4), 0, how, own)
    for how in ("assign", "add", "mean", "amin", "amax")
    for own in (True, False)
]
MULTIPLIED: list[tuple[Any, ...]] = [
    (positive(3, 5), index(2, 4, below=3), positive(2, 4), 0, how, own)
    for how in ("mul", "multiply")
    for own in (True, False)
]

BRACKETS: list[tuple[Any, ...]] = [
    (t(4, 5), (ALL, slice(None, None, 2))),
    (t(4, 5), (slice(None, None, -1), slice(3, 0, -2))),
    (t(4, 5), (slice(-3, None, 2), -2)),
    (t(4, 5), (None, slice(1, 3), None, 2)),
    (t(4, 5), (None, slice(None, None, -2), Ellipsis, None)),
    (t(4, 5), (Ellipsis, None)),
    (t(4, 5), ()),
    (t(2, 3, 4), (Ellipsis, 1, slice(None, None, 3))),
    (t(4, 5), (True,)),
    (t(4, 5), (index(3, below=4),)),
    (t(4, 5), (T((3,), -4, 4, "int64"),)),
    (t(4, 5), (ALL, index(2, 3, below=5))),
    (t(2, 3, 4), (Ellipsis, index(2, below=3), ALL)),
    (t(4, 5), (index(3, below=4), index(3, below=5))),
    (t(4, 5), (index(3, below=4), index(2, 1, below=5))),
    (t(2, 3, 4), (index(5, below=2), index(5, below=3))),
    (t(2, 3, 4), (ALL, index(5, below=3), index(5, below=4))),
    (t(2, 3, 4), (index(5, below=2), ALL, index(5, below=4))),
    (t(4, 5), (index(3, below=4), slice(1, 4))),
    (t(4, 5), (slice(1, None, 2), index(3, below=5))),
    (t(4, 5), (2, index(3, below=5))),
    (t(4, 5), (index(below=4),)),
    (t(4, 5), (ALL, index(below=5))),
    (t(4, 5), (index(below=4), index(below=5))),
]

PUT: dict[str, list[tuple[Any, ...]]] = {
    "Tensor._getitem_dygraph": BRACKETS,
    "set_value_with_tensor": [
        (t(3, 4), t(3), [2], [3], [1], [1], [1], []),
        (t(3, 4), t(3, 2), [0], [4], [2], [1], [], []),
        (t(3, 4), t(1, 2), [0], [4], [2], [1], [], []),
        (t(3, 4), t(2, 4), [-1], [-4], [-2], [0], [], []),
        (t(3, 4, 5), t(2, 1), [0, 1, 2], [3, 2, 5], [2, 1, 2], [0, 1, 2], [1], []),
    ],
    "take_along_axis": [
        (t(3, 5), index(2, 4, below=3), 0),
        (t(3, 5), index(3, 7, below=5), 1),
    ],
    "put_along_axis": [
        *REDUCED,
        *MULTIPLIED,
        (t(3, 5), index(3, 2, below=5), t(3, 4), 1, "add", True),
        (t(3, 5), index(3, 2, below=5), t(3, 4), 1, "assign", True),
        (t(6), index(3, below=6), t(3), 0, "add", True),
    ],
    "index_put": [
        *((t(4, 5), [index(3, below=4)], t(3, 5), how) for how in (True, False)),
        *((t(4, 5), [index(3, below=4)], t(5), how) for how in (True, False)),
        *(
            (t(4, 5), [index(3, below=4), index(2, 1, below=5)], t(1), how)
            for how in (True, False)
        ),
        (t(4, 5), [T((4,), -4, 4, "int64"), index(4, below=5)], t(4), False),
        (t(3, 4), (BOOL,), paddle.to_tensor([0.5], "float64"), False),
    ],
    "scatter": [
        *((t(4, 5), index(3, below=4), t(3, 5), how) for how in (True, False)),
        (t(4, 5), index(3, 1, below=4), t(3, 5), True),
        (t(4), index(3, below=4), t(3), True),
        (t(4, 5), index(below=4), t(5), True),
    ],
    "gather_nd": [
        (t(4, 5), index(3, 2, below=4)),
        (t(4, 5), index(2, 3, 1, below=4)),
        (t(4, 5), index(2, below=4)),
    ],
    "scatter_nd_add": [
        (t(4, 5), index(3, 2, below=4), t(3)),
        (t(4, 5), index(3, 1, below=4), t(3, 5)),
    ],
    "index_sample": [(t(3, 5), index(3, 2, below=5))],
    "gather": [
        (t(4, 5), index(below=4), 0),
        (t(4, 5), index(3, 1, below=5), -1),
        (t(4, 5), T((3,), -5, 5, "int64"), 1),
        (t(3, 4, 5), index(below=4), 1),
    ],
    "index_select": [(t(4, 5), index(3, below=5), 1), (t(4, 5), index(2, below=5), -1)],
    "index_add": [(t(4, 5), index(4, below=5), t(4, 4), -1)],
    "gather_grad": [
        (t(4, 5), index(3, below=4), t(3, 5), 0),
        (t(4, 5), index(2, below=5), t(4, 2), 1),
    ],
    "crop": [(t(4, 5), [2, 3], [1, 2]), (t(4, 5), [2, -1], [1, 2])],
    "strided_slice": [
        (t(4, 5), [1], [0], [5], [2]),
        (t(4, 5), [0, 1], [3, -1], [0, -6], [-2, -3]),
    ],
    "strided_slice_grad": [(t(4, 5), t(2, 5), [0], [3], [0], [-2])],
    "diagonal": [(t(3, 4), 0, 0, 1), (t(2, 3, 4), 1, 1, -1), (t(2, 3, 4), -1, 2, 0)],
    "diagonal_grad": [(t(3, 4), t(3), 1, 0, 1), (t(2, 3, 4), t(2, 3), 1, -2, -1)],
    "diag": [(t(4), 0, 0.0), (t(4), -1, 2.5), (t(3, 4), 1, 0.0), (t(3, 4), -2, 0.0)],
    "diag_embed": [(t(3, 4), 0, -2, -1), (t(3, 4), 1, 0, 2), (t(3, 4), -2, 2, 1)],
    "fill_diagonal_tensor": [
        (t(3, 4), t(1, 3), 0, 0, 1),
        (t(3, 4), t(1, 2), -1, 0, 1),
        (t(2, 3, 4), t(3, 2), 1, 0, 2),
    ],
    "tensor_unfold": [(t(3, 7), 1, 3, 2), (t(7, 3), 0, 2, 1), (t(6), 0, 2, 2)],
    "as_strided": [
        (t(12), [3, 3], [2, 1], 0),
        (t(3, 4), [2, 3], [4, 1], 16),
        (t(3, 4), [5, 2], [0, 3], 8),
    ],
}

ORDERED: dict[str, list[tuple[Any, ...]]] = {
    "topk": [
        (t(3, 5), 2, -1, True, True),
        (t(3, 5), 2, 0, False, False),
        (t(), 1, -1, True, True),
    ],
    "argsort": [
        (t(3, 5), -1, False, False),
        (t(3, 5), 0, True, True),
        (t(), -1, False, False),
    ],
    "kthvalue": [(t(3, 5), 2, -1, False), (t(3, 5), 3, 0, True), (t(), 1, -1, False)],
    "mode": [(t(3, 5), -1, False), (t(3, 5), 0, True)],
    **{
        n: [(t(3, 5), -1, paddle.int64), (t(3, 5), 0, paddle.int32)]
        for n in ("cummax", "cummin")
    },
    "median": [
        (t(3, 5), [], False, "avg"),
        (t(3, 4), [], True, "avg"),
        (t(3, 4), [-1], False, "avg"),
        (t(3, 5), [0], True, "min"),
        (t(4, 5), [0], False, "min"),
        (t(), [], False, "avg"),
    ],
    "nanmedian": [
        (t(3, 4), [], False, "avg"),
        (t(2, 3, 5), [2, 0], False, "avg"),
        (t(2, 3, 5), [0, 1], True, "min"),
        (t(3, 4), [1], False, "avg"),
    ],
    "prod": [
        (t(3, 4), [], False, True),
        (t(3, 4), [1], True, False),
        (t(2, 3, 4), [0, -1], False, False),
        (t(), [], False, True),
    ],
    "cumprod": [
        (t(3, 5), -1, False, False),
        (t(3, 5), 0, True, False),
        (t(3, 5), 1, False, True),
        (t(3, 5), 1, True, True),
    ],
    "logcumsumexp": [
        (t(3, 5), -1, False, False, False),
        (t(3, 5), 0, False, False, True),
        (t(2, 3), -1, True, False, False),
        (t(2, 1), -1, False, False, False),
    ],
    "cumsum": [(t(3, 4), -1, True, False, False), (t(3, 4), -1, False, True, False)],
    **{
        n: [(t(3, 4), [0, 1], True), (t(2, 3, 4), [0, -1], False), (t(), [], False)]
        for n in ("max", "min", "amax", "amin")
    },
    "nansum": [(t(3, 4), [], None, False), (t(3, 4), [1], None, True)],
}

OTHERS: dict[str, list[tuple[Any, ...]]] = {
    "pixel_shuffle": [(IMAGE, 2, "NCHW"), (t(2, 3, 5, 8), 2, "NHWC")],
    "pixel_unshuffle": [(t(2, 3, 4, 6), 2, "NCHW"), (t(2, 4, 6, 3), 2, "NHWC")],
    "channel_shuffle": [(IMAGE, 3, "NCHW"), (t(2, 3, 5, 6), 2, "NHWC")],
    "temporal_shift": [
        (t(6, 5, 2, 3), 3, 0.2, "NCHW"),
        (t(6, 2, 3, 4), 2, 0.25, "NHWC"),
    ],
    "pixel_shuffle_grad": [(t(2, 3, 6, 10), 2, "NCHW")],
    "pixel_unshuffle_grad": [(t(2, 12, 2, 3), 2, "NCHW")],
    "channel_shuffle_grad": [(IMAGE, 3, "NCHW")],
    "temporal_shift_grad": [(t(6, 5, 2, 3), 3, 0.2, "NCHW")],
    "view_shape": [(t(3, 4), [2, 6]), (t(3, 4), [-1])],
    "view_dtype": [(t(3, 4), paddle.float64)],
    "repeat_interleave": [(t(3, 4), 2, -1, -1), (t(3, 4), 3, 0, -1)],
    "repeat_interleave_with_tensor_index": [(t(3, 4), NUMBERS, 1, -1)],
    "masked_select": [(t(2, 4), MASK), (t(4), MASK), (t(3, 2, 4), MASK[:, :1])],
    "masked_select_grad": [(t(2, 4), MASK, t(4)), (t(4), MASK, t(4))],
    "broadcast_tensors": [([t(3, 1), t(1, 4), t(4)],)],
    "meshgrid": [([t(3), t(4), t(2)],), ([t(3)],)],
    "reduce_as": [(t(3, 4), t(4)), (t(2, 3, 4), t(3, 1))],
    "multiplex": [([t(4, 3), t(4, 3), t(4, 3)], CHOICE)],
    "segment_pool": [(t(5, 2, 3), ROWS, how) for how in ("SUM", "MEAN", "MIN", "MAX")],
    "send_u_recv": [
        (t(4, 3), index(6, below=4), TO, how, [size])
        for how, size in (("SUM", 0), ("MEAN", 5), ("MIN", 0), ("MAX", 3))
    ],
    "send_ue_recv": [
        (t(4, 3), t(6, n), index(6, below=4), TO, op, how, [size])
        for n, op, how, size in (
            *((1, "ADD", "SUM", 0), (3, "MUL", "MEAN", 5), (3, "ADD", "MIN", 0)),
            *((1, "MUL", "MAX", 3), (1, "MUL", "SUM", 0), (3, "ADD", "MEAN", 0)),
        )
    ],
    "send_uv": [
        (t(4, 3), t(5, 1), index(6, below=4), index(6, below=5), op)
        for op in ("ADD", "MUL")
    ],
    **{
        f"bitwise_{n}": [(index(3, 4, below=9), index(4, below=9)), (BOOL, BOOL)]
        for n in ("and", "or", "xor")
    },
    "bitwise_not": [(index(3, 4, below=9),), (BOOL,)],
    **{
        f"bitwise_{n}_shift": [
            (index(3, 4, below=9), index(3, 4, below=5), how) for how in (True, False)
        ]
        for n in ("left", "right")
    },
    **{
        f"Tensor.__{n}__": [(index(3, 4, below=9), index(4, below=5))]
        for n in ("lshift", "rshift", "rlshift", "rrshift")
    },
    **{n: [(BOOL, [], False), (BOOL, [1], True)] for n in ("all", "any")},
    **{n: [(t(3, 4), t(3, 4), 0.1, 0.5, False)] for n in ("isclose", "allclose")},
    "logical_xor": [(BOOL, BOOL)],
    "equal_all": [(t(3, 4), t(3, 4))],
    "is_empty": [(t(3, 4),)],
    "one_hot": [(index(3, 4, below=5), 6)],
    "shard_index": [(index(4, 1, below=9), 10, 2, 1, -1)],
    "searchsorted": [(paddle.to_tensor([0.1, 0.5, 0.9]), t(3, 4), True, False)],
    "gather_tree": [(index(3, 2, 4, below=9), index(3, 2, 4, below=4))],
    "histogram": [(t(3, 4), None, 5, -1.0, 1.0, False), (t(3, 4), None, 5, 0, 0, True)],
    "bincount": [(NUMBERS, t(4), 5), (NUMBERS, None, 0)],
    "sequence_mask": [(index(3, below=5), 6, paddle.int32)],
}

INDEXING: dict[str, list[tuple[Any, ...]]] = {**PUT, **ORDERED, **OTHERS}
