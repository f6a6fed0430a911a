"""Batch rules by families: of each element, along axes, of arrays with a first axis.

A tensor that differs from sample to sample has the samples along its first axis.
"""

from __future__ import annotations

import string
from typing import Any

from paddle import Tensor

from ..calls import BatchCall, NoRule
from ..each_element import broadcast_in_batches, full, of_each_element
from ..entry import batch_of
from ..shared import aligned, ops
from ..table import TABLE

of_each_element(
    *("tanh_grad", "sigmoid_grad", "relu_grad", "sin_grad", "cos_grad", "sqrt_grad"),
    *("rsqrt_grad", "square_grad", "silu_grad", "gelu_grad", "softplus_grad"),
    *("abs_grad", "elu_grad", "leaky_relu_grad", "selu_grad"),
    *("Tensor.__pow__", "Tensor.__rpow__"),
    *("elementwise_pow", "where", "cast", "atan2"),
    *("Tensor.__eq__", "Tensor.__ne__", "Tensor.__lt__", "Tensor.__le__"),
    *("Tensor.__gt__", "Tensor.__ge__", "Tensor.__and__", "Tensor.__or__"),
    *("Tensor.__xor__", "equal", "not_equal", "less_than", "less_equal"),
    *("greater_than", "greater_equal", "logical_and", "logical_or", "logical_not"),
    *("logical_xor", "isnan", "isinf", "isfinite", "fmax", "fmin", "remainder"),
    *("tan", "asin", "acos", "asinh", "acosh", "atanh", "log2", "log10", "celu"),
    *("tanh_shrink", "softshrink", "hardshrink", "thresholded_relu", "hardsigmoid"),
    *("stanh", "hardtanh", "heaviside", "lerp", "huber_loss", "bce_loss", "log_loss"),
    *("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "Tensor.__mod__"),
    *("isclose",),
    *("bce_loss_grad", "lgamma", "digamma", "erfinv", "dropout_grad"),
    *(
        "copysign",
        "floor_divide",
        "Tensor.__floordiv__",
        "Tensor.__rfloordiv__",
        "gammaincc",
        "gammaln",
        "i0",
        "i0e",
        "i1",
        "i1e",
    ),
    *("logit", "nextafter", "polygamma", "bitwise_left_shift", "bitwise_right_shift"),
)
TABLE["one_hot"].batch = broadcast_in_batches("one_hot")


def _by_a_number(name: str, place: int) -> None:
    """Of each element and one number, which is the same for all samples."""

    def rule(call: BatchCall) -> list[Any]:
        if place in call.batched:
            raise NoRule("a number of each sample; give a tensor of all elements")
        args = [full(call, i) if i != place else a for i, a in enumerate(call.args)]
        return TABLE[name].every(args)

    TABLE[name].batch = rule


for _name in ("scale", "pow"):
    _by_a_number(_name, 1)
_by_a_number("pow_grad", 2)


@batch_of("add_n")
def _add_n_batch(call: BatchCall) -> list[Any]:
    return [ops.add_n(call.args[0])]


@batch_of("add_grad")
def _add_grad_batch(call: BatchCall) -> list[Any]:
    g = full(call, 2)
    found = []
    for i in (0, 1):
        shape = call.args[i].shape[i in call.batched :]
        lead = g.ndim - 1 - len(shape)
        pairs = enumerate(zip(shape, g.shape[lead + 1 :], strict=True), lead + 1)
        axes = [*range(1, lead + 1), *(k for k, (n, m) in pairs if n != m)]
        part = ops.sum(g, axes, None, False) if axes else g
        found.append(ops.reshape(part, [call.size, *shape]))
    return found


SLICES = ("slice", "strided_slice", "slice_grad", "strided_slice_grad")

AXES = {
    **dict.fromkeys(("sum", "mean", "max", "min", "amax", "amin"), "axis"),
    **dict.fromkeys(("softmax", "log_softmax", "softmax_grad", "logsumexp"), "axis"),
    **dict.fromkeys(("argmax", "argmin", "argsort", "topk", "flip", "roll"), "axis"),
    **dict.fromkeys(("cumsum", "concat", "split", "split_with_num"), "axis"),
    **dict.fromkeys(("unbind", "unstack", "take_along_axis", "prod"), "axis"),
    "cumprod": "dim",
    **dict.fromkeys(("fft_c2c", "fft_r2c", "fft_c2r", *SLICES), "axes"),
    **dict.fromkeys(("frobenius_norm", "p_norm", "p_norm_grad", "any", "all"), "axis"),
    **dict.fromkeys(("cross_entropy_with_softmax",), "axis"),
    "cross_entropy_with_softmax_grad": "axis",
}
"""Operators along axes of their first tensor, and what the argument is called."""

WHOLE = frozenset({"flatten", "reduce_all", "asvector"})
"""Arguments by which all axes are taken as one."""

SIZES = frozenset({"shifts", "k", "num", "sections", "starts", "ends", "strides"})
"""Arguments that say sizes and places, and are no data where they are tensors."""

SCALARS = frozenset({"topk", "concat", "unbind", "unstack", *SLICES})
"""Operators that have no meaning for numbers alone, or several results."""


def _along_axes(name: str, argument: str) -> None:
    place = TABLE[name].arguments.index(argument)

    def rule(call: BatchCall) -> list[Any]:
        args = [*call.args]
        first = args[0][0] if isinstance(args[0], list) else args[0]
        ndim = first.ndim - 1 if 0 in call.batched else first.ndim
        whole = [k for k, w in enumerate(TABLE[name].arguments) if w in WHOLE]
        if any(args[k] for k in whole) or ndim == 0:
            return _as_vectors(call, place, whole)
        if isinstance(args[place], Tensor):
            raise NoRule("a tensor as the axis; give an integer")
        words = TABLE[name].arguments
        args = [
            a if w in SIZES else full(call, i)
            for i, (a, w) in enumerate(zip(args, words, strict=True))
        ]
        axis = args[place]
        if isinstance(axis, list | tuple):
            every = len(axis) == 0 and name not in SLICES
            if every and name == "roll":
                raise NoRule("all axes as one; give an axis, or reshape before")
            args[place] = [_next(n, ndim) for n in (range(ndim) if every else axis)]
        elif axis is None and name in ("argmax", "argmin"):
            x = ops.reshape(args[0], [call.size, -1])
            found = TABLE[name].every([x, 1, False, *args[3:]])
            return [ops.reshape(found[0], [call.size, *call.shapes[0]])]
        elif axis is None:
            args[place] = [*range(1, ndim + 1)]
        else:
            args[place] = _next(axis, ndim)
        if name in ("slice", "slice_grad"):  # the axes that it drops
            args[-1] = [n + 1 for n in args[-1]]
        return TABLE[name].every(args)

    def _as_vectors(call: BatchCall, place: int, whole: list[int]) -> list[Any]:
        """Of all elements of a sample in a row."""
        tensors = [arg for arg in call.args if isinstance(arg, Tensor)]
        if name in SCALARS or len(tensors) > 1 or len(call.shapes) > 1:
            raise NoRule("numbers alone, which have no axes; give vectors")
        args = [full(call, i) for i in range(len(call.args))]
        for k, arg in enumerate(args):
            if isinstance(arg, Tensor):
                args[k] = ops.reshape(arg, [call.size, -1])
            elif k in whole:
                args[k] = False
        many = isinstance(args[place], list | tuple) or args[place] is None
        args[place] = [1] if many and name not in ("argmax", "argmin") else 1
        found = TABLE[name].every(args)
        return [ops.reshape(found[0], [call.size, *call.shapes[0]])]

    TABLE[name].batch = rule


def _next(axis: int, ndim: int) -> int:
    return axis % ndim + 1


for _name, _argument in AXES.items():
    _along_axes(_name, _argument)


@batch_of("mean_all")
def _mean_all_batch(call: BatchCall) -> list[Any]:
    x = call.args[0]
    return [ops.mean(ops.reshape(x, [call.size, -1]), [1], False)]


@batch_of("squared_l2_norm")
def _squared_l2_norm_batch(call: BatchCall) -> list[Any]:
    x = ops.reshape(call.args[0], [call.size, -1])
    return [ops.reshape(ops.sum(x * x, [1], None, False), [call.size, 1])]


@batch_of("stack")
def _stack_batch(call: BatchCall) -> list[Any]:
    parts, axis = call.args
    return [ops.stack(parts, axis % len(call.shapes[0]) + 1)]


@batch_of("transpose")
def _transpose_batch(call: BatchCall) -> list[Any]:
    x, order = call.args
    return [ops.transpose(x, [0, *(_next(n, len(order)) for n in order)])]


@batch_of("Tensor.T")
def _t_batch(call: BatchCall) -> list[Any]:
    x = call.args[0]
    return [ops.transpose(x, [0, *range(x.ndim - 1, 0, -1)])]


@batch_of("expand")
def _expand_batch(call: BatchCall) -> list[Any]:
    shape = call.shapes[0]
    return [ops.expand(aligned(call.args[0], len(shape)), [call.size, *shape])]


@batch_of("tile")
def _tile_batch(call: BatchCall) -> list[Any]:
    x, times = call.args
    return [ops.tile(aligned(x, len(call.shapes[0])), [1, *times])]


def _of_matrices(name: str) -> None:
    """Of the last two axes, whatever there is before them."""

    def rule(call: BatchCall) -> list[Any]:
        args = [full(call, i) for i in range(len(call.args))]
        if len({arg.ndim for arg in args if isinstance(arg, Tensor)}) > 1:
            raise NoRule("matrices of several numbers of axes; give them all")
        return TABLE[name].every(args)

    TABLE[name].batch = rule


for _name in (
    *("tril", "triu", "cholesky", "inverse", "det", "eigh", "eigvalsh", "svd"),
    *("qr", "triangular_solve", "cholesky_solve"),
):
    _of_matrices(_name)


@batch_of("cross")
def _cross_batch(call: BatchCall) -> list[Any]:
    axis, shape = call.args[2], call.shapes[0]
    axis = shape.index(3) if axis == 9 else axis % len(shape)
    parts = [ops.unbind(full(call, i), axis + 1) for i in (0, 1)]
    (a, b, c), (x, y, z) = parts
    found = [b * z - c * y, c * x - a * z, a * y - b * x]
    return [ops.stack(found, axis + 1)]


@batch_of("pad")
def _pad_batch(call: BatchCall) -> list[Any]:
    x, paddings, value = call.args
    if isinstance(value, Tensor):
        raise NoRule("a tensor as the value to pad with; give a number")
    return [ops.pad(x, [0, 0, *paddings], value)]


@batch_of("Tensor.__matmul__", "bmm")
def _matmul_batch(call: BatchCall) -> list[Any]:
    found = BatchCall((*call.args, False, False), call.batched, call.size, call.shapes)
    return TABLE["matmul"].batch(found)  # type: ignore[misc]


@batch_of("einsum")
def _einsum_batch(call: BatchCall) -> list[Any]:
    parts, equation = call.args
    left, arrow, right = equation.replace(" ", "").partition("->")
    if "." in equation or not arrow:
        raise NoRule("an equation without all of its letters; write them")
    fresh = next(c for c in string.ascii_letters if c not in equation)
    terms = ",".join(fresh + term for term in left.split(","))
    return TABLE["einsum"].every([parts, f"{terms}->{fresh}{right}"])
