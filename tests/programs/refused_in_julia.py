"""The samples that Julia refuses, by what is said of them.

A sample that is new among them has its name put here, or its operator a formula, or a
rule in ``programs/in_julia/operators``.
"""

REFUSED = {
    "complex numbers": {
        "tanh_grad": (1,),
        "sigmoid_grad": (1,),
        "sin_grad": (1,),
        "cos_grad": (1,),
        "square_grad": (1,),
        "Tensor.__add__": (11, 12),
        "Tensor.__sub__": (11, 12),
        "Tensor.__mul__": (11, 12),
        "Tensor.__truediv__": (8, 9),
        "Tensor.__radd__": (3, 4),
        "Tensor.__rsub__": (3, 4),
        "Tensor.__rmul__": (3, 4),
        "Tensor.__rtruediv__": (2, 3),
        "Tensor.__pow__": (4, 5, 6, 7, 10),
        "Tensor.__rpow__": (2, 3),
        "scale": (0, 1),
        "pow": (0, 1, 2, 3),
        "pad": (1,),
    },
    "complex128 to float64": {"cast": (2,)},
    "float64 to complex128": {"cast": (3,)},
    "padding SAME": {
        "conv2d": (2,),
        "conv3d": (2,),
        "depthwise_conv2d": (2,),
        "pool2d": (3, 9),
    },
    "channels last": {
        "pool2d": (2, 8),
        "pool3d": (1, 3),
    },
    "unevenly padded windows": {"pool2d": (1,)},
    "adaptive pooling into uneven parts": {"pool2d": (12,), "pool3d": (4,)},
    "means without their padding": {"pool2d_grad": (0,), "pool3d_grad": (0,)},
    "writes into a tensor": {"batch_norm": (0, 2, 3, 4)},
    "other kinds than along an axis": {"cumsum": (1, 3, 4, 5)},
    "tensors and lists as indices": {
        "Tensor._getitem_dygraph": (
            6,
            7,
            16,
            17,
            18,
            19,
            20,
            21,
            22,
            23,
            24,
            25,
            26,
            27,
            28,
            29,
            30,
            31,
        )
    },
    "by a tensor of more dimensions": {"gather": (5,)},
    "a mask of another shape": {"masked_select": (1, 2)},
}
"""By a part of the refusal's words: operators, and the numbers of their samples."""
