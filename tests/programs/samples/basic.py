"""Arguments of the operators that most nets are made of."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import T, index, positive, t

BOOL = T((3, 4), kind="bool")
PAIRS: list[tuple[Any, ...]] = [
    (t(3, 4), t(3, 4)),
    (t(3, 4), t(4)),
    (t(2, 1, 4), t(3, 1)),
    (t(), t(2, 3)),
]
NUMBERS: list[tuple[Any, ...]] = [(t(3, 4), 2.5), (t(3, 4), 3)]
APART = [(t(3, 4), positive(3, 4)), (t(2, 3), positive(3))]
PLACE = paddle.CPUPlace()
LAYER_NORM = (positive(5, 2, 3), t(6), t(6), 1e-5, 1)

BASIC: dict[str, list[tuple[Any, ...]]] = {
    **{f"Tensor.__{n}__": PAIRS + NUMBERS for n in ("add", "sub", "mul")},
    **{f"Tensor.__{n}__": NUMBERS for n in ("radd", "rsub", "rmul")},
    "Tensor.__truediv__": APART + NUMBERS,
    "Tensor.__rtruediv__": [(positive(3, 4), 2.5)],
    "Tensor.__pow__": [(positive(3, 4), 2.5), (t(3, 4), 2), (t(3, 4), 3)]
    + [(positive(3, 4), t(4))],
    "Tensor.__rpow__": [(t(3, 4), 2.5)],
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum"), PAIRS),
    "divide": APART,
    "elementwise_pow": [(positive(3, 4), t(3, 4)), (positive(3, 4), t(4))],
    "linspace": [
        (t(1), t(1), paddle.to_tensor([5], "int32"), paddle.float64, PLACE),
        (t(), t(1), paddle.to_tensor([1], "int32"), paddle.float64, PLACE),
    ],
    "add_n": [([t(3, 4), t(3, 4), t(3, 4)],)],
    "add_grad": [(t(3, 4), t(4), t(3, 4), -1), (t(3, 4), t(3, 4), t(3, 4), -1)],
    "divide_grad": [(t(3, 4), positive(4), t(3, 4), t(3, 4), -1)],
    **{
        n: [(t(3, 4),)]
        for n in (
            *("tanh", "sigmoid", "relu", "sin", "cos", "exp", "square", "abs", "silu"),
            *("erf", "sinh", "cosh", "expm1", "sign", "floor", "ceil", "atan"),
            *("softsign", "logsigmoid", "swish", "relu6"),
        )
    },
    **{n: [(positive(3, 4),)] for n in ("log", "sqrt", "rsqrt", "reciprocal", "log1p")},
    "round": [(t(3, 4), 0)],
    "gelu": [(t(3, 4), False), (t(3, 4), True)],
    "softplus": [(t(3, 4), 1.0, 20.0), (t(3, 4), 2.0, 1.0)],
    "elu": [(t(3, 4), 1.0), (t(3, 4), 0.5)],
    "leaky_relu": [(t(3, 4), 0.01)],
    "mish": [(t(3, 4), 20.0)],
    "hardswish": [(t(3, 4),), (T((3, 4), -5.0, 5.0),)],
    "clip_grad": [(t(3, 4), t(3, 4), -0.5, 0.7)],
    **{n: [(t(3, 4),)] for n in ("asinh", "tanh_shrink", "trunc")},
    **{n: [(t(3, 4, low=-0.6, high=0.6),)] for n in ("asin", "acos", "atanh")},
    "tan": [(t(3, 4, low=-0.6, high=0.6),)],
    "acosh": [(t(3, 4, low=1.2, high=3.0),)],
    **{n: [(positive(3, 4),)] for n in ("log2", "log10")},
    "softshrink": [(t(3, 4), 0.4)],
    "hardshrink": [(t(3, 4), 0.4)],
    "thresholded_relu": [(t(3, 4), 0.4, 0.2)],
    "hardsigmoid": [(T((3, 4), -5.0, 5.0), 0.2, 0.4)],
    "celu": [(t(3, 4), 0.7)],
    "stanh": [(t(3, 4), 0.6, 1.7)],
    "atan2": [(t(3, 4), positive(3, 4))],
    **{n: [(t(3, 4), t(3, 4)), (t(3, 4), t(4))] for n in ("fmax", "fmin")},
    **{
        n: [(t(3, 4), positive(3, 4)), (t(3, 4), positive(4))]
        for n in ("remainder", "Tensor.__mod__", "floor_divide")
    },
    "lerp": [(t(3, 4), t(3, 4), t(3, 4)), (t(3, 4), t(4), t())],
    **{n: [(t(3, 4), 0), (t(2, 3, 4), -1)] for n in ("tril", "triu")},
    "masked_fill": [(t(3, 4), BOOL, t())],
    **{n: [(t(3, 4), [1], False), (t(3, 4), [], True)] for n in ("amax", "amin")},
    **{f"{n}_grad": [(t(3, 4), t(3, 4), t(3, 4))] for n in ("maximum", "minimum")},
    "selu": [(t(3, 4), 1.0507, 1.6733)],
    "selu_grad": [(t(3, 4), t(3, 4), 1.0507, 1.6733)],
    **{f"{n}_grad": [(t(3, 4), t(3, 4))] for n in ("tanh", "sigmoid", "sin", "cos")},
    **{f"{n}_grad": [(positive(3, 4), t(3, 4))] for n in ("sqrt", "rsqrt", "relu")},
    "square_grad": [(t(3, 4), t(3, 4))],
    "abs_grad": [(t(3, 4), t(3, 4))],
    "gelu_grad": [(t(3, 4), t(3, 4), False), (t(3, 4), t(3, 4), True)],
    "softplus_grad": [(t(3, 4), t(3, 4), 1.0, 20.0), (t(3, 4), t(3, 4), 2.0, 1.0)],
    "leaky_relu_grad": [(t(3, 4), t(3, 4), 0.01)],
    **{
        f"Tensor.__{n}__": [(t(3, 4), t(3, 4)), (t(3, 4), 0.5)]
        for n in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    **{f"Tensor.__{n}__": [(BOOL, BOOL)] for n in ("and", "or", "xor")},
    **{
        n: [(t(3, 4), t(3, 4))]
        for n in (
            *("equal", "not_equal", "less_than", "less_equal", "greater_than"),
            "greater_equal",
        )
    },
    **{n: [(BOOL, BOOL)] for n in ("logical_and", "logical_or")},
    "logical_not": [(BOOL,)],
    **{n: [(t(3, 4),)] for n in ("isnan", "isinf", "isfinite")},
    "where": [(BOOL, t(3, 4), t(3, 4))],
    **{
        n: [(t(3, 4),)]
        for n in (
            "assign",
            "copy",
            "Tensor.clone",
            "Tensor.contiguous",
            "Tensor.detach",
        )
    },
    "cast": [(t(3, 4), paddle.float32), (index(3, 4, below=5), paddle.float64)],
    "matmul": [
        (t(3, 4), t(4, 5), False, False),
        (t(4, 3), t(4, 5), True, False),
        (t(3, 4), t(5, 4), False, True),
        (t(4, 3), t(5, 4), True, True),
        (t(2, 3, 4), t(4, 5), False, False),
        (t(2, 4, 3), t(2, 4, 5), True, False),
        (t(2, 1, 3, 4), t(5, 4, 2), False, False),
        (t(2, 3, 4), t(2, 5, 4), False, True),
        (t(4), t(4, 5), False, False),
        (t(3, 4), t(4), False, False),
        (t(4), t(4), False, False),
    ],
    "Tensor.__matmul__": [(t(3, 4), t(4, 5)), (t(2, 3, 4), t(2, 4, 5))],
    "bmm": [(t(2, 3, 4), t(2, 4, 5))],
    "linear": [(t(3, 4), t(4, 5), t(5)), (t(2, 3, 4), t(4, 5), t(5))],
    "linear_v2": [(t(3, 4), t(4, 5), t(5), False), (t(2, 3, 4), t(5, 4), t(5), True)],
    "addmm": [
        (t(3, 5), t(3, 4), t(4, 5), 1.0, 1.0),
        (t(3, 5), t(3, 4), t(4, 5), 0.5, 2.0),
    ],
    "matmul_grad": [
        (t(3, 4), t(4, 5), t(3, 5), False, False),
        (t(4, 3), t(5, 4), t(3, 5), True, True),
    ],
    "addmm_grad": [(t(5), t(3, 4), t(4, 5), t(3, 5), 1.0, 1.0)],
    "dot": [(t(4), t(4)), (t(3, 4), t(3, 4))],
    "reshape": [(t(3, 4), [2, 6]), (t(3, 4), [-1]), (t(3, 4), [0, 2, 2])],
    "unsqueeze": [(t(3, 4), [1]), (t(3, 4), [-1])],
    "squeeze": [(t(3, 1, 4), [1]), (t(3, 1, 4, 1), [])],
    "flatten": [(t(2, 3, 4), 1, 2)],
    "transpose": [(t(2, 3, 4), [2, 0, 1]), (t(2, 3), [1, 0])],
    "concat": [([t(2, 3), t(4, 3)], 0), ([t(2, 3), t(2, 1)], -1)],
    "stack": [([t(2, 3), t(2, 3)], 0), ([t(2, 3), t(2, 3), t(2, 3)], -1)],
    "split": [(t(5, 3), [2, 3], 0), (t(3, 5), [1, 4], 1)],
    "split_with_num": [(t(6, 3), 3, 0)],
    "unbind": [(t(3, 4), 0), (t(3, 4), 1)],
    "expand": [(t(3, 1), [3, 4]), (t(4), [2, 3, 4])],
    "tile": [
        (t(3, 4), [2, 1]),
        (t(4), [3, 2]),
        (t(2, 3, 4), [2]),
        (t(1, 3, 1, 2, 1), [1, 2, 3, 1, 2]),
    ],
    "flip": [(t(3, 4), [1])],
    "expand_as": [(t(3, 1), t(3, 4), [3, 4]), (t(4), t(2, 3, 4), [2, 3, 4])],
    "unstack": [(t(3, 4), 0, 3), (t(3, 4), -1, 4)],
    "meshgrid": [([t(3), t(4)],)],
    "pad": [(t(3, 4), [1, 2, 0, 1], 0.5)],
    "roll": [(t(3, 4), [1], [1]), (t(3, 4), 2, [])],
    "slice": [
        (t(4, 5), [0, 1], [1, 0], [3, 4], [1, 1], []),
        (t(4, 5), [0], [2], [3], [1], [0]),
    ],
    "slice_grad": [(t(4, 5), t(2, 5), [0], [1], [3], [1], [])],
    "Tensor._getitem_dygraph": [
        (t(4, 5), (slice(None), slice(0, 1))),
        (t(4, 5), (slice(1, 3), 2)),
        (t(4, 5), (Ellipsis, slice(1, None))),
        (t(4, 5), (1,)),
    ],
    "gather": [(t(4, 5), index(3, below=4), 0), (t(4, 5), index(2, below=5), 1)],
    "index_select": [(t(4, 5), index(3, below=4), 0)],
    "put_along_axis": [(t(3, 4), index(2, 4, below=3), t(2, 4), 0, "assign", True)],
    "index_add": [(t(4, 5), index(3, below=4), t(3, 5), 0)],
    "embedding": [
        (index(2, 3, below=4), t(4, 5), -1, False),
        (index(2, 3, below=4), t(4, 5), 1, False),
    ],
    "sum": [
        (t(3, 4), [], None, False),
        (t(3, 4), [1], None, False),
        (t(2, 3, 4), [0, 2], None, True),
        (t(2, 3, 4), [-1], None, False),
    ],
    "mean": [(t(3, 4), [], False), (t(2, 3, 4), [0, 2], True), (t(3, 4), [1], False)],
    "mean_all": [(t(3, 4),)],
    "share": [(t(3, 4), [3, 4]), (t(4), [7])],
    "max": [(t(3, 4), [1], False), (t(3, 4), [], False)],
    "min": [(t(3, 4), [0], True)],
    **{
        n: [(t(3, 4), 1, False, paddle.int64), (t(3, 4), None, True, paddle.int32)]
        for n in ("argmax", "argmin")
    },
    "softmax": [(t(3, 4), -1), (t(3, 4), 0)],
    "softmax_grad": [(t(3, 4), t(3, 4), -1)],
    "log_softmax": [(t(3, 4), -1)],
    "squared_l2_norm": [(t(3, 4),)],
    "logsumexp": [(t(3, 4), [1], False), (t(3, 4), [0], True), (t(3, 4), [], False)],
    "cumsum": [(t(3, 4), 1, False, False, False), (t(3, 4), 0, False, True, True)],
    "layer_norm": [LAYER_NORM, (positive(5, 2, 3), t(6), t(6), 1e-5, 1)]
    + [(positive(4, 3), None, None, 1e-5, 1), (positive(4, 3), t(3), None, 1e-5, 1)],
}
