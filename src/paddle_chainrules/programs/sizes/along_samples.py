"""Which operators hold for any number of samples, along which axes.

What counts along an axis, has windows or factorizes there may be bounded by a size that
is not the number of samples, and two numbers may both be below that. So operators are
let through by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..operators.manipulation.brackets import parts_of
from ..tracing.operations import Operation, Value

ELEMENTS = frozenset(
    {
        *("add_n", "angle", "complex", "conj", "divide_grad", "dropout"),
        *("dropout_of_ones", "bernoulli", "hardswish", "imag", "imag_grad"),
        *("label_smooth", "masked_fill", "maximum_grad", "minimum_grad", "mish"),
        *("pow_grad", "real", "real_grad", "relu6", "rrelu", "selu", "share"),
        *("sigmoid_cross_entropy_with_logits", "softsign", "prelu"),
    }
)
"""Of each element, besides those whose entries say so."""
COPIES = frozenset(
    {
        *("Tensor.clone", "Tensor.contiguous", "Tensor.data", "Tensor.detach"),
        *("assign", "copy", "stop_gradient", "share_data", "reduce_as"),
    }
)
PRODUCTS = frozenset(
    {
        *("Tensor.__matmul__", "addmm", "addmm_grad", "baddbmm", "bmm", "dot"),
        *("einsum", "linear", "linear_v2", "matmul_grad", "multi_dot", "mv"),
    }
)
ALONG = frozenset(
    {
        *("add_grad", "all", "any", "argmax", "argmin", "argsort", "cummax", "cummin"),
        *("cumprod", "cumprod_grad", "cumsum", "logcumsumexp", "logcumsumexp_grad"),
        *("frobenius_norm", "fused_softmax_mask", "identity_loss", "kldiv_loss"),
        *("kthvalue", "layer_norm", "layer_norm_grad", "log_softmax", "logsumexp"),
        *("mean", "mean_all", "median", "mode", "nansum", "p_norm", "p_norm_grad"),
        *("softmax", "softmax_grad", "squared_l2_norm", "topk", "equal_all"),
        *("allclose", "cross_entropy_with_softmax", "cross_entropy_with_softmax_grad"),
    }
)
SHAPES = frozenset(
    {
        *("Tensor.T", "Tensor._getitem_dygraph", "Tensor._setitem_dygraph"),
        *("broadcast_tensors", "concat", "expand_as", "flatten", "flip", "reshape"),
        *("repeat_interleave", "roll", "set_value_with_tensor", "slice", "slice_grad"),
        *("split", "split_with_num", "squeeze", "stack", "strided_slice"),
        *("strided_slice_grad", "tile", "transpose", "unbind", "unsqueeze", "unstack"),
    }
)
PLACES = frozenset(
    {
        *("embedding", "gather", "gather_grad", "gather_nd", "index_add", "index_put"),
        *("index_sample", "index_select", "one_hot", "put_along_axis", "scatter"),
        *("searchsorted", "take_along_axis"),
    }
)
ANYWHERE = ELEMENTS | COPIES | PRODUCTS | ALONG | SHAPES | PLACES
"""Besides what is of each element by its entry, or by a rule for loops."""

FIRST = frozenset(
    {
        *("affine_grid", "affine_grid_grad", "batch_norm", "batch_norm_grad"),
        *("bilinear", "channel_shuffle", "channel_shuffle_grad", "cross", "fold"),
        *("fold_grad", "grid_sample", "grid_sample_grad", "group_norm", "maxout"),
        *("group_norm_grad", "instance_norm", "instance_norm_grad", "nll_loss", "pad"),
        *("pad3d", "pad3d_grad", "pixel_shuffle", "pixel_shuffle_grad"),
        *("pixel_unshuffle", "pixel_unshuffle_grad", "swiglu", "unfold", "unfold_grad"),
    }
)
WINDOWS = ("conv", "depthwise", "pool", "max_pool", "lp_pool", "fractional", "unpool")
"""With which names of operators begin that have windows, and nothing along the first
axis."""

MATRICES = frozenset(
    {
        *("cholesky", "cholesky_solve", "det", "eigh", "eigvalsh", "inverse"),
        *("matrix_exp", "matrix_power", "qr", "slogdet", "solve", "svd", "svdvals"),
        *("triangular_solve", "tril", "triu"),
    }
)
"""Of the last two axes."""

BRACKETS = frozenset({"Tensor._getitem_dygraph", "Tensor._setitem_dygraph"})
"""Operators with an index of slices. These, and those that have starts and ends, give
what there is where they are asked for more."""

WHOLE = 2**31 - 1
"""The end of a slice that has none."""

APART = {
    **dict.fromkeys(("fft_c2c", "fft_r2c", "fft_c2r", "tensor_unfold"), (1,)),
    "diagonal": (2, 3),
}
"""By name, which arguments say along which axes there must be no samples."""


def holds(op: Operation, varies: Callable[[int], bool]) -> bool:
    """Whether an operation does the same for any number of samples.

    Args:
        varies: whether a size goes along with the number of samples.
    """
    places = [_varying(v, varies) for v in (*op.inputs, *op.outputs)]
    name = op.operator.name
    if not any(places) or op.operator.loop is not None or op.operator.elementwise:
        return True
    if name in ANYWHERE:
        return not _takes_some(op, varies)
    if name in FIRST or name.startswith(WINDOWS) or "_interp" in name:
        return all({*axes} <= {0} for axes in places)
    if name in ("rnn", "rnn_grad"):  # steps, samples, features
        return all({*axes} <= {1} for axes in places)
    if name in MATRICES:
        pairs = zip((*op.inputs, *op.outputs), places, strict=True)
        return all(max(axes, default=-1) < len(v.shape) - 2 for v, axes in pairs)
    if name in APART:
        shape = op.args[0].shape
        axes = [axis for place in APART[name] for axis in _listed(op.args[place])]
        return not any(varies(shape[axis]) for axis in axes)
    return False


def _takes_some(op: Operation, varies: Callable[[int], bool]) -> bool:
    """Whether it takes so many of the samples, of which there may be more or fewer,
    though in a program it may be all of them."""
    given = op.named
    if op.operator.name in BRACKETS:
        shape = op.args[0].shape
        parts = zip(shape, parts_of(given["index"], len(shape)), strict=False)
        return any(varies(size) and _is_some(part, varies) for size, part in parts)
    if "starts" not in given:
        return False
    rows = zip(given["axes"], given["starts"], given["ends"], strict=True)
    return any(
        varies(op.args[0].shape[axis]) and (start != 0 or end < WHOLE)
        for axis, start, end in rows
    )


def _is_some(part: Any, varies: Callable[[int], bool]) -> bool:
    """Whether a part of an index may be less than all along its axis."""
    if isinstance(part, Value):  # as many as there are samples
        return not any(map(varies, part.shape))
    if not isinstance(part, slice):
        return True
    ends = part.start, part.stop
    return ends != (None, None) or part.step not in (None, 1, -1)


def _listed(axes: Any) -> list[int]:
    return [axes] if isinstance(axes, int) else [*axes]


def _varying(value: Value, varies: Callable[[int], bool]) -> Sequence[int]:
    """The axes whose sizes go along."""
    return [axis for axis, size in enumerate(value.shape) if varies(size)]
