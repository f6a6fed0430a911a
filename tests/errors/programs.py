"""What programs, and functions that are to become some, refuse."""

import numpy as np
import paddle
from paddle.nn import functional

from conftest import randn
from paddle_chainrules import CaptureError, grad, jit, jvp, make_program, vjp

# fmt: off
X = randn([9])
IMAGES, EPSILON = randn([3, 4]), paddle.to_tensor(0.3)
ADDED = make_program(lambda x, y: (x + y) * 2.0 + x)(X, randn([9], seed=1))
T, F = True, False


def of_half_a_spectrum(z):
    return (paddle._C_ops.fft_c2r(z, [1], "backward", False, 4) ** 2).sum()


def into_rows(x):
    """Paddle writes whole rows there (docs/paddle-notes.md)."""
    y = x * 1.0
    y[1:3, [T, F]] = 5.0
    return y


def into_out(x):
    y = paddle.empty([1], x.dtype)
    paddle.sum(x * x, out=y)
    return y.sum()




def in_place(name):
    def fn(x):
        y = x * x + 1
        getattr(y, name)(paddle.full(y.shape, 2.0))
        return y

    return vjp(fn, X)[1](X)


def normed(x, a):
    return functional.group_norm(x[None], 1, epsilon=a).sum()


ROWS = [
    ("another shape", lambda: ADDED(X, X[:3]), ValueError, r"tensor 1 is float32\[3\], .* float32\[9\]"),
    ("another dtype", lambda: ADDED(X.astype("float64"), X), ValueError, r"tensor 0 is float64\[9\]"),
    ("a tensor too few", lambda: ADDED(X), TypeError, "takes 2 tensors, got 1"),
    ("half a spectrum", lambda: jit(grad(of_half_a_spectrum), strict=True)(paddle.complex(randn([3, 4], "float64"), randn([3, 4], "float64", 1))),
     CaptureError, "half spectrum of 4 numbers for a signal"),
    *((f"strides from {n}", lambda n=n: grad(lambda x: (paddle.as_strided(x, [2, 3], [3, 1], n) ** 2).sum())(paddle.rand([9])),
       NotImplementedError, "as_strided has no rule|reach")
       for n in (1, 60)),
    *((f"x[{name}]", lambda i=i: jit(lambda x: x[i], strict=True)(paddle.ones([3])), CaptureError, "")
       for name, i in (("T, F", [T, F]), ("0.5", [0.5]), ("nothing", []), ("an array", np.array([0, 1])), ("a tensor in a list", [paddle.to_tensor(1)]), ("truths", [F, F, F]))),
    ("truths beside a slice", lambda: jit(into_rows, strict=True)(paddle.ones([3, 2])), CaptureError, ""),
    ("a slice to a value", lambda: make_program(lambda x, n: x[:n])(X, paddle.to_tensor(1)), CaptureError, "shapes depend on values"),
    ("out of another shape", lambda: grad(into_out)(randn([4], "float64")), NotImplementedError, r"sum\(\.\.\., out=y\)"),
    *((f"{name} in place", lambda n=name: in_place(n), NotImplementedError, "gammaincc has no rule for its")
       for name in ("gammaincc_", "gammainc_")),
    ("the slope of unique_consecutive", lambda: grad(lambda x: paddle.unique_consecutive(x).sum())(X),
     NotImplementedError, "no right derivative of unique_consecutive"),
    ("the slope of clip_by_norm", lambda: grad(lambda x: paddle._C_ops.clip_by_norm(x, 1.0).sum())(X),
     NotImplementedError, "no right derivative of clip_by_norm"),
    ("the epsilon of a norm", lambda: grad(normed, argnums=1)(IMAGES, EPSILON), NotImplementedError, "group_norm"),
    ("the epsilon of a norm, forward", lambda: jvp(normed, (IMAGES, EPSILON), (paddle.zeros_like(IMAGES), paddle.ones([]))),
     NotImplementedError, "group_norm"),
    ("a histogram by its weight", lambda: grad(lambda w: paddle.histogram(paddle.ones([5]), 4, weight=w).sum())(paddle.ones([5])),
     NotImplementedError, "histogram by its argument 1"),
    ("bits of halves", lambda: grad(lambda x: x.view("float32").sum())(randn([3], "float64")), NotImplementedError, "bits of"),
    ("bits of halves forward", lambda: jvp(lambda x: x.view("float32"), (randn([3], "float64"),), (randn([3], "float64"),)),
     NotImplementedError, "bits of"),
]
