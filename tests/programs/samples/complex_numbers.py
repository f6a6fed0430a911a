"""Complex numbers for the operators whose rules hold for them, beside real ones."""

from __future__ import annotations

from typing import Any

import paddle

from .tensors import T, index, positive, t, z

SCALARS: list[tuple[Any, ...]] = [(z(3, 4), 2.5), (z(3, 4), 0.5 - 2j), (t(3, 4), 2j)]
MIXED: list[tuple[Any, ...]] = [
    (z(3, 4), z(4)),
    (z(3, 1), t(3, 4)),
    (t(4), z(3, 4)),
    (z(), z(2, 3)),
]
BASES = T((3, 2), 0.4, 1.5, "complex128")
"""Nowhere near zero, a cut or a pole."""
UPPER = T((3, 2), 0.2, 0.7, "complex128")
LEFT = T((3, 2), -1.5, -0.4, "complex128")

COMPLEX: dict[str, list[tuple[Any, ...]]] = {
    **{f"Tensor.__{n}__": MIXED + SCALARS for n in ("add", "sub", "mul")},
    "Tensor.__truediv__": [(z(3, 2), BASES), (t(3, 2), BASES), (z(3, 2), positive(2))]
    + SCALARS,
    **{f"Tensor.__{n}__": SCALARS for n in ("radd", "rsub", "rmul")},
    "Tensor.__rtruediv__": [(BASES, 2.5), (BASES, 1 - 2j), (positive(3, 4), 1 - 2j)],
    "Tensor.__pow__": [(z(3, 2), 2), (z(3, 2), 3), (BASES, 2.5), (BASES, 0.5 - 1j)]
    + [(BASES, UPPER), (positive(3, 2), z(2)), (positive(3, 2), 0.5 - 1j)],
    "Tensor.__rpow__": [(z(3, 2), 2.5), (z(3, 2), 1 - 2j), (t(3, 2), 1 - 2j)],
    **dict.fromkeys(("add", "subtract", "multiply"), MIXED),
    "divide": [(z(3, 2), BASES), (z(3, 2), positive(2)), (t(2), BASES)],
    "scale": [(z(3, 4), 2.5, 0.5, True), (z(3, 4), 2.5, 0.5, False)],
    "pow": [(z(3, 2), 2), (z(3, 2), 3.0), (BASES, 2.5), (BASES, -1.0)],
    "pow_grad": [(BASES, z(3, 2), 2.5), (z(3, 2), z(3, 2), 3.0)],
    "elementwise_pow": [(BASES, UPPER), (LEFT, z(2)), (t(3, 2), z(2))]
    + [(BASES, t(3, 2)), (positive(3, 2), z(3, 2))],
    "add_n": [([z(3, 4), z(3, 4)],), ([z(3, 4), t(3, 4)],)],
    "add_grad": [(z(3, 4), z(4), z(3, 4), -1)],
    "divide_grad": [(z(3, 2), BASES, z(3, 2), z(3, 2), -1)],
    **{
        n: [(z(3, 2),)]
        for n in ("square", "sinh", "cosh", "sin", "cos", "expm1", "assign", "copy")
    },
    **{n: [(BASES,)] for n in ("log", "log1p", "log2", "log10", "sqrt", "reciprocal")},
    **{n: [(UPPER,)] for n in ("tanh", "tan", "atan", "asin", "acos", "atanh")},
    **{n: [(UPPER,), (LEFT,)] for n in ("asinh", "acosh", "abs", "sign", "softsign")},
    **{f"{n}_grad": [(z(3, 2), z(3, 2))] for n in ("tanh", "sigmoid", "sin", "cos")},
    **{f"{n}_grad": [(BASES, z(3, 2))] for n in ("sqrt", "square")},
    **{n: [(z(3, 4),)] for n in ("Tensor.clone", "Tensor.contiguous", "Tensor.detach")},
    "cast": [(z(3, 4), paddle.float64), (t(3, 4), paddle.complex128)],
    "where": [
        (T((3, 4), kind="bool"), z(3, 4), z(3, 4)),
        (T((3, 4), kind="bool"), z(3, 4), t(3, 4)),
        (T((3, 4), kind="bool"), t(3, 4), z(3, 4)),
    ],
    "matmul": [
        (z(3, 4), z(4, 5), False, False),
        (z(4, 3), z(4, 5), True, False),
        (z(3, 4), z(5, 4), False, True),
        (z(4, 3), z(5, 4), True, True),
        (z(2, 3, 4), z(4, 5), False, False),
        (z(2, 1, 3, 4), z(5, 4, 2), False, False),
        (z(4), z(4, 5), False, False),
        (z(3, 4), z(4), False, False),
        (z(3, 4), t(4, 5), False, False),
        (t(3, 4), z(4, 5), False, False),
    ],
    "Tensor.__matmul__": [(z(3, 4), z(4, 5)), (z(3, 4), t(4, 5))],
    "linear": [(z(3, 4), z(4, 5), z(5)), (t(3, 4), z(4, 5), z(5))]
    + [(z(2, 3, 4), t(4, 5), t(5))],
    "dot": [(z(4), z(4)), (z(3, 4), z(3, 4)), (z(4), t(4))],
    "reshape": [(z(3, 4), [2, 6])],
    "unsqueeze": [(z(3, 4), [1])],
    "squeeze": [(z(3, 1, 4), [1])],
    "flatten": [(z(2, 3, 4), 1, 2)],
    "transpose": [(z(2, 3, 4), [2, 0, 1])],
    "concat": [([z(2, 3), z(4, 3)], 0)],
    "stack": [([z(2, 3), z(2, 3)], -1)],
    "split": [(z(5, 3), [2, 3], 0)],
    "unbind": [(z(3, 4), 1)],
    "unstack": [(z(3, 4), 0, 3)],
    "expand": [(z(3, 1), [3, 4]), (z(4), [2, 3, 4])],
    "tile": [(z(3, 4), [2, 1])],
    "tril": [(z(3, 4), 0)],
    "triu": [(z(3, 4), 1)],
    "pad": [(z(3, 4), [1, 2, 0, 1], 0.5)],
    "flip": [(z(3, 4), [1])],
    "roll": [(z(3, 4), [1], [1])],
    "slice": [(z(4, 5), [0, 1], [1, 0], [3, 4], [1, 1], [])],
    "slice_grad": [(z(4, 5), z(2, 5), [0], [1], [3], [1], [])],
    "Tensor._getitem_dygraph": [
        (z(4, 5), (slice(1, 3), 2)),
        (z(4, 5), (slice(None, None, -2), None)),
        (z(4, 5), index(3, below=4)),
        (z(4, 5), (index(3, below=4), index(3, below=5))),
    ],
    "Tensor._setitem_dygraph": [
        (z(3, 4), (slice(None), slice(0, 3, 2)), z(3, 2)),
        (z(3, 4), (slice(1, None),), t()),
        (z(5, 3), index(4, below=5), z(4, 3)),
        (z(3, 4), T((3, 4), kind="bool"), 2.5j),
    ],
    "index_put": [(z(4, 5), [T((3,), 0, 4, "int64")], z(3, 5), True)],
    "diagonal": [(z(3, 4), 0, 0, 1), (z(2, 3, 4), 1, -2, -1)],
    "diag": [(z(3), 1, 0.0), (z(3, 4), 0, 0.0)],
    "strided_slice": [(z(4, 5), [1], [0], [5], [2])],
    "prod": [(z(3, 2), [1], False, False), (z(3, 2), [], True, True)],
    "cumprod": [(z(3, 2), 0, False, False), (z(3, 2), -1, True, True)],
    "gather": [(z(4, 5), index(3, below=4), 0), (z(4, 5), index(2, below=5), -1)],
    "index_select": [(z(4, 5), index(3, below=4), 0)],
    "embedding": [
        (index(2, 3, below=4), z(4, 5), -1, False),
        (index(2, 3, below=4), z(4, 5), 1, False),
    ],
    "sum": [
        (z(3, 4), [], None, False),
        (z(2, 3, 4), [0, -1], None, True),
        (t(3, 4), [1], paddle.complex128, False),
    ],
    "mean": [(z(3, 4), [], False), (z(3, 4), [1], True)],
    "mean_all": [(z(3, 4),)],
    "share": [(z(3, 4), [5])],
    "cumsum": [(z(3, 4), 1, False, False, False), (z(3, 4), 0, False, True, True)],
    "conj": [(z(3, 4),), (t(3, 4),), (z(),)],
    **{n: [(z(3, 4),), (z(),)] for n in ("real", "imag", "as_real")},
    **{n: [(t(3, 4),), (t(),)] for n in ("real_grad", "imag_grad")},
    "complex": [(t(3, 4), t(3, 4)), (t(4), t(3, 1))],
    "as_complex": [(t(3, 4, 2),), (t(2),)],
    "angle": [(UPPER,), (LEFT,), (t(3, 4),)],
    "view_dtype": [(z(3, 4), paddle.float64), (t(3, 4), paddle.complex128)]
    + [(t(3, 4), paddle.float64)],
}
