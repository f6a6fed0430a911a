"""What transforms and loops refuse."""

import numpy as np
import paddle
from paddle import distribution as D
from paddle.autograd import PyLayer
from paddle.nn import functional as F

import paddle_chainrules as pc
from conftest import randn
from paddle_chainrules import (
    CaptureError,
    FCNet,
    cond,
    grad,
    hessian,
    jit,
    jvp,
    scan,
    value_and_grad,
    vjp,
    vmap,
    while_loop,
)

# fmt: off
SLIP = TypeError, ValueError, AttributeError

NET = FCNet((3, 7, 5, 2), "tanh", "float64")
PARAMS = NET.init(1)
A, X, Y = randn([3]), randn([6, 3], "float64", 1), randn([6, 2], "float64", 2)
POINT = randn([3], "float64")
ROWS_OF_SIX = randn([4, 6], "float64", 1) * 2.0


def cubes(x):
    return (x**3).sum()


def wave(x):
    return paddle.stack([x[0] * x[1], paddle.sin(x[2])])


def pulled(cotangent):
    return vjp(lambda a: (a, a * 2), A)[1](cotangent)


def at_positions(wrt):
    y, pullback = vjp(paddle.multiply, paddle.ones([2]), paddle.ones([2]))
    return pullback(y, wrt=wrt)


def unchanged(fn, x=POINT):
    """Call a function, and look that its argument is as before."""
    before = x.numpy().copy()
    try:
        return fn(x)
    finally:
        assert np.array_equal(x.numpy(), before)


def drawing(x):
    return cond(x.sum() > 0, lambda: paddle.rand([3]).sum(), lambda: paddle.rand([4]).sum())


def dropped():
    """Pull back numbers that were drawn before."""
    _, back = vjp(lambda x: F.dropout(x, 0.5), randn([64], "float64"))
    return vmap(lambda v: back(v)[0], randomness="same")(randn([3, 64], "float64"))


def loop(condition, body):
    return vmap(lambda x: while_loop(condition, body, x))(ROWS_OF_SIX)


def below(v):
    return v.sum() < 10


class Whole(PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, g):
        return g


class InDict(PyLayer):
    @staticmethod
    def forward(ctx, x):
        return {"b": x, "a": 2.0 * x}

    @staticmethod
    def backward(ctx, g, h):
        return g + 2.0 * h


ROWS = [
    # Names of other libraries.
    ("explain of a net alone", lambda: pc.explain(NET), TypeError, r"give explain\(fn, \*args\), as in explain\(net, params"),
    ("functional_call", lambda: pc.functional_call, SLIP, "stateless.layer"),
    ("grad_and_value", lambda: pc.grad_and_value, SLIP, "value_and_grad"),
    ("of no meaning", lambda: pc.of_no_meaning, SLIP, "dir.. has all"),
    ("vmap in_dims", lambda: vmap(cubes, in_dims=0), SLIP, "in_dims; in its place give in_a"),
    ("vmap out_dims", lambda: vmap(cubes, out_dims=0), SLIP, "place give out_axes"),
    ("hvp of tuples", lambda: pc.hvp(cubes, (X,), (X,)), SLIP, r"give hvp\(fn, x, v\)"),
    ("linearize at a number", lambda: pc.linearize(cubes, 1.0), SLIP, "of tensors, got float"),
    ("grad of integers", lambda: grad(lambda x: (x * 2.0).sum())(paddle.arange(3)),
     SLIP, r"got paddle.int64 as argument 0, .* by .astype\('float32'\), close over"),
    *((f"{t.__name__} by {b!r} rows", lambda t=t, b=b: t(cubes, chunk_size=b), ValueError, "chunk_size must be an integer from 1 on")
       for t in (pc.jacrev, pc.jacfwd, hessian) for b in (0, -1, True, "2")),

    # Losses and their arguments.
    ("three losses", lambda: value_and_grad(lambda a: a * 2)(A), ValueError, r"one element, got shape \[3\].*\.sum\(\)"),
    ("a loss of integers", lambda: value_and_grad(lambda a: a.astype("int64").sum())(A),
     TypeError, "floating-point tensor, got paddle.int64"),
    ("a loss of Python's", lambda: value_and_grad(lambda a: 3.0)(A), TypeError, "floating-point tensor, got float"),
    ("argument 1 of one", lambda: value_and_grad(lambda a: a.sum(), argnums=1)(A), ValueError, "argument 1.*1 positional"),
    *((f"argnums {name}", lambda a=a: value_and_grad(paddle.sum, a), TypeError, "argnums is the position of an argument")
       for name, a in (("1.0", 1.0), ("None", None), ("a", "a"), ("True", True), ("of True", [True]), ("nested", [[0]]), ("a tensor", paddle.ones([1])), ("an array", np.array(1.0)))),
    ("grad of three", lambda: grad(lambda x: x)(POINT), ValueError, "grad needs a loss of one element"),
    ("an argument for argnums", lambda: hessian(paddle.sum, POINT), TypeError, r"grad\(fn\)\(x\)"),
    ("hessian of three", lambda: hessian(lambda x: x * 2)(POINT), ValueError, r"(hessian|hvp) needs a loss of one.*\[3\]"),
    ("hvp of three", lambda: pc.hvp(lambda x: x, POINT, POINT), ValueError, r"(hessian|hvp) needs a loss of one.*\[3\]"),

    # Cotangents, tangents and Jacobians.
    ("one cotangent of two", lambda: pulled(A), ValueError, "nested as"),
    ("a short cotangent", lambda: pulled((A, paddle.ones([2]))), ValueError, r"\[2\].*\[3\].*no broadcasting"),
    ("a cotangent of float64", lambda: pulled((A, A.astype("float64"))), TypeError, "float64.*float32"),
    ("a number for a cotangent", lambda: pulled((A, 1.0)), TypeError, "must be a paddle.Tensor, got float"),
    *((f"wrt {w!r}", lambda w=w: at_positions(w), ValueError, "of which there are 2, the first being 0")
       for w in (0, [2], [-1], ["x"], "0")),
    ("primals in no tuple", lambda: jvp(lambda x: x * x, primals=X, tangents=(X,)), TypeError, r"primals must be a tuple.*\(x,\)"),
    ("tangents in no tuple", lambda: jvp(lambda x: x * x, primals=(X,), tangents=X), TypeError, r"tangents must be a tuple.*\(x,\)"),
    ("two tangents", lambda: jvp(wave, (POINT,), (POINT, POINT)), ValueError, r"tangents are nested as.*primals as"),
    ("a short tangent", lambda: jvp(wave, (POINT,), (POINT[:2],)), ValueError, r"tangent has shape \[2\], the primal \[3\]"),
    ("a tangent of float32", lambda: jvp(wave, (POINT,), (POINT.astype("float32"),)),
     TypeError, "tangent is .*float32, the primal .*float64"),
    ("a Jacobian of integers", lambda: pc.jacobian(lambda x: x * 2, paddle.to_tensor([1, 2])),
     TypeError, "a floating tensor in and one out"),
    ("a Jacobian without samples", lambda: pc.jacobian(lambda x: x.sum(0), X, batched=True),
     ValueError, "first dimensions count the samples"),

    # vmap.
    ("axis 2 of two", lambda: vmap(lambda x: x, 2)(X), ValueError, r"has axis 2 for .*\[6, 3\]"),
    ("an axis for two", lambda: vmap(lambda x, y: x, (0,))(X, Y), ValueError, "1 entries for 2"),
    ("axis a", lambda: vmap(lambda x: x, "a")(X), TypeError, "integers and None|nested"),
    ("samples of two counts", lambda: vmap(lambda x, y: x)(X, Y[:4]), ValueError, r"\[4, 6\] samples"),
    ("no axis", lambda: vmap(lambda x: x, None)(X), ValueError, "no axis of samples"),
    ("no axis of results", lambda: vmap(lambda x: x, 0, None)(X), ValueError, "out_axes is None for"),
    ("axis 5 of results", lambda: vmap(lambda x: x, 0, 5)(X), ValueError, "out_axes has axis 5"),
    ("no rows at a time", lambda: vmap(lambda x: x, chunk_size=0), ValueError, "from 1 on"),
    ("randomness x", lambda: vmap(lambda x: x, randomness="x"), ValueError, "error, different"),
    ("an if on a sample", lambda: vmap(lambda x: x if x.sum() > 0 else -x)(X), CaptureError, "decides by a value"),
    ("out_axes of a pair", lambda: vmap(lambda x: (x, x.sum()), out_axes=(0,))(X), TypeError, "out_axes is nested as"),
    ("in_axes of another dict", lambda: vmap(lambda d: d["u"], ({"v": 0},))({"u": X}), TypeError, r"in_axes is nested as .*'v'"),
    ("a pullback from outside", dropped, CaptureError, "begin it inside"),
    ("nothing to stack", lambda: pc.stack_params([]), ValueError, "no parameters to stack"),
    ("another net to stack", lambda: pc.stack_params([PARAMS, FCNet((3, 2)).init(0)]), ValueError, "parameters 1 are nested"),
    ("another shape to stack", lambda: pc.stack_params([{"a": X}, {"a": Y}]), ValueError, r"parameters 1 have a tensor of shape \[6, 2\]"),
    ("None to stack", lambda: pc.stack_params([{"w": X, "b": None}] * 2), TypeError, "hold a NoneType"),
    *((f"{name} below zero", lambda make=make: vmap(lambda a: make(-a).log_prob(X[0, 0]))(X[:, 0].abs()),
       ValueError, r"positive|nonnegative")
       for name, make in (("Chi2", D.Chi2), ("StudentT", lambda a: D.StudentT(a, 0.0, 1.0)))),
    ("a range of a sample", lambda: vmap(lambda n: paddle.arange(n).sum())(paddle.to_tensor([2, 3])),
     CaptureError, r"start \+ step \* paddle.arange"),

    # Loops.
    ("no pair", lambda: scan(lambda c, _: c * 2.0, A, length=3), ValueError, "must give a pair"),
    ("a carry of two", lambda: scan(lambda c, _: ((c, c), None), A, length=3), ValueError, "nested alike"),
    ("a carry cut short", lambda: scan(lambda c, _: (c[:1], None), A, length=3), ValueError, r"float32\[3\] to float32\[1\]"),
    ("a carry of float64", lambda: scan(lambda c, _: (c.astype("float64"), None), A, length=3), ValueError, "by astype"),
    *((f"steps of {name}", lambda k=k: scan(lambda c, _: (c, None), A, **k), ValueError, "one number of steps")
       for name, k in (("nothing", {}), ("two lengths", {"xs": (A, paddle.ones([4]))}), ("another length", {"xs": A, "length": 5}))),
    ("a length of -1", lambda: scan(lambda c, _: (c, None), A, length=-1), ValueError, "from 0 on"),
    ("every 0 steps", lambda: scan(lambda c, _: (c, None), A, length=2, every=0), ValueError, "from 1 on"),
    ("no pair in no steps", lambda: scan(lambda c, x: c + x, A, paddle.zeros([0, 3])), ValueError, "must give a pair"),
    ("None in no steps", lambda: scan(lambda c, x: None, A, paddle.zeros([0, 3])), ValueError, "NoneType, and must give a pair"),
    ("another carry in no steps", lambda: scan(lambda c, x: (c.sum(), x), A, paddle.zeros([0, 3])), ValueError, "at leaf 0"),
    ("numbers drawn in a loop", lambda: loop(below, lambda v: v + paddle.rand([6], "float64")),
     CaptureError, "drawn in a while_loop; draw them before"),
    ("a value cut short", lambda: loop(below, lambda v: v[:3]), ValueError, r"float64\[6\] to float64\[3\] at leaf 0"),
    ("six truths", lambda: loop(lambda v: v < 10, lambda v: v + 1), ValueError, r"shape \[6\], and must be a single truth"),
    ("a write in a loop", lambda: loop(below, lambda v: v.add_(v)), CaptureError, "add_ writes into a tensor"),

    ("a long carry of two in jit", lambda: jit(lambda x: scan(lambda c, _: ((c, c), None), x, length=60))(A), ValueError, "nested alike"),
    ("a report within a gradient", lambda: grad(lambda x: scan(lambda c, _: (c, c), x, length=60, on_step=print)[0].sum())(A),
     NotImplementedError, "on_step within another"),

    # A choice; what it is given stays as it was.
    ("three truths", lambda: unchanged(lambda x: cond(x > 0, lambda x: x, lambda x: x, x)), ValueError, "single truth"),
    *((f"{name} in jit", lambda fn=fn: unchanged(jit(fn, strict=True)), CaptureError, words) for name, fn, words in (
        ("three truths", lambda x: cond(x > 0, lambda x: x, lambda x: x, x), "single truth"),
        ("results of two shapes", lambda x: cond(x[0] > 0, lambda: x, lambda: x[:1]), r"true_fn of cond gives float64\[3\], and false_fn"),
        ("results of two nestings", lambda x: cond(x[0] > 0, lambda: x, lambda: (x, x)), "the same nesting"),
        ("a write in a branch", lambda x: cond(x[0] > 0, lambda x: x.add_(x), lambda x: x, x), "writes into"),
    )),
    ("numbers drawn by samples", lambda: unchanged(lambda x: vmap(drawing)(paddle.stack([x, x]))), CaptureError, "randomness='different'"),

    # Layers with a backward of their own.
    ("a gradient of another shape", lambda: grad(lambda x: Whole.apply(2.0 * x))(POINT), ValueError, "gives a gradient of shape"),
    ("a dict of results", lambda: jvp(lambda x: InDict.apply(x)["b"].sum(), (POINT,), (POINT,)), ValueError, "gives a dict"),
    ("slices behind an index, after a new axis", lambda: grad(lambda x: x[paddle.to_tensor([1]), None, 0:, ::-2].sum())(randn([4, 3, 5])),
     NotImplementedError, "take the slice first"),
    ("a new axis before an index", lambda: grad(lambda x: x[None, paddle.to_tensor([1]), ::-2].sum())(randn([4, 3, 5])),
     NotImplementedError, "take the slice first"),
]
