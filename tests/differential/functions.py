"""Paddle's functions, one by one, with inputs at which they are smooth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import paddle
import paddle.nn.functional as F
from paddle import fft, linalg

from .inputs import (
    Input,
    above_one,
    apart,
    complex_,
    definite,
    given,
    ints,
    lower,
    mask,
    positive,
    real,
    spread,
    square,
    unit,
)


class Case(NamedTuple):
    """A function of tensors, and what it is given."""

    function: Callable[..., Any]
    inputs: tuple[Input, ...]


TABLE: dict[str, Case] = {}


def add(name: str, function: Callable[..., Any], *inputs: Input) -> None:
    assert name not in TABLE, name
    TABLE[name] = Case(function, inputs)


def alike(names: str, where: Any, *inputs: Input, **options: Any) -> None:
    """Several functions of one module, which take the same."""
    for name in names.split():
        function = getattr(where, name)
        add(
            name if where is not F else f"F.{name}",
            (lambda *a, function=function: function(*a, **options)),
            *inputs,
        )


# Of one number, element by element.
alike(
    "abs cos sin tan exp expm1 sinh cosh tanh atan asinh square neg sign",
    paddle,
    real(3, 4),
)
alike(
    "erf i0 i0e i1 i1e sinc stanh deg2rad rad2deg floor ceil round trunc frac sgn",
    paddle,
    real(3, 4),
)
alike(
    "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma gammaln positive",
    paddle,
    positive(3, 4),
)
alike("acos asin atanh logit erfinv", paddle, unit(3, 4))
alike("acosh", paddle, above_one(3, 4))
add("pow: number", lambda x: paddle.pow(x, 2.5), positive(3, 4))
add("pow: integer", lambda x: paddle.pow(x, 3), real(3, 4))
add("pow: tensor", paddle.pow, positive(3, 4), real(3, 4))
add("pow: operator, number to a tensor", lambda x: 2.5**x, real(3, 4))
add("polygamma", lambda x: paddle.polygamma(x, 2), positive(3, 4))
add("multigammaln", lambda x: paddle.multigammaln(x, 2), above_one(3, 4))
add(
    "gammainc: y",
    lambda y: paddle.gammainc(paddle.full([3, 4], 1.5), y),
    positive(3, 4),
)
add(
    "gammaincc: y",
    lambda y: paddle.gammaincc(paddle.full([3, 4], 1.5), y),
    positive(3, 4),
)
add("gammainc: both", paddle.gammainc, above_one(3, 4), positive(3, 4))
add("scale", lambda x: paddle.scale(x, 2.5, 0.5), real(3, 4))
add("scale: by a tensor", lambda x, s: paddle.scale(x, s), real(3, 4), positive(1))
add("clip", lambda x: paddle.clip(x, -0.9, 1.1), real(3, 4))
add("clip: by tensors", paddle.clip, spread(3, 4), given([0.5]), given([1.2]))
add("nan_to_num", paddle.nan_to_num, real(3, 4))
add("increment", lambda x: paddle.increment(x.clone()), real(1))
add("cast", lambda x: paddle.cast(x * 2, "float64") * x, real(3, 4))
add("heaviside", paddle.heaviside, real(3, 4), real(3, 4))
add("frexp", lambda x: paddle.frexp(x)[0], positive(3, 4))
add("ldexp", paddle.ldexp, real(3, 4), ints(3, 3, 4))
add("renorm", lambda x: paddle.renorm(x, 2.0, 0, 1.1), real(3, 4))
add(
    "bitwise on the side",
    lambda x, i: x * (i % 2).astype("float64"),
    real(3, 4),
    ints(5, 3, 4),
)

# Activations.
alike(
    "celu elu gelu hardshrink hardtanh hardsigmoid hardswish leaky_relu log_sigmoid",
    F,
    real(3, 4),
)
alike(
    "relu relu6 selu softplus softshrink softsign sigmoid silu swish mish tanhshrink",
    F,
    real(3, 4),
)
alike("thresholded_relu softmax log_softmax glu swiglu", F, real(3, 4))
add("F.gelu: tanh", lambda x: F.gelu(x, approximate=True), real(3, 4))
add("F.softmax: first axis", lambda x: F.softmax(x, axis=0), real(3, 4))
add("F.maxout", lambda x: F.maxout(x, 2), spread(2, 4, 3, 1))
add("F.prelu", F.prelu, real(2, 3, 4), unit(3))
add("F.prelu: one weight", F.prelu, real(2, 3, 4), unit(1))
add("F.rrelu: evaluation", lambda x: F.rrelu(x, training=False), real(3, 4))
add("F.swiglu: two", F.swiglu, real(3, 4), real(3, 4))
add("F.gumbel_softmax", lambda x: (paddle.seed(3), F.gumbel_softmax(x))[1], real(3, 4))
add(
    "F.gumbel_softmax: temperature",
    lambda x: (paddle.seed(3), F.gumbel_softmax(x, 0.6, axis=0))[1],
    real(3, 4),
)
add(
    "F.gumbel_softmax: hard on the side",
    lambda x: (paddle.seed(3), F.gumbel_softmax(x.detach(), hard=True))[1] * x,
    real(3, 4),
)
add("F.dropout: seeded", lambda x: (paddle.seed(3), F.dropout(x, 0.5))[1], real(3, 4))
add(
    "F.alpha_dropout: seeded",
    lambda x: (paddle.seed(3), F.alpha_dropout(x, 0.5))[1],
    real(3, 4),
)

# Of two numbers, with broadcasting.
alike(
    "add subtract multiply divide maximum minimum fmax fmin",
    paddle,
    real(3, 4),
    real(4),
)
alike("atan2 copysign logaddexp hypot nextafter", paddle, real(3, 4), positive(3, 4))
alike(
    "remainder floor_mod",
    paddle,
    given([[2.3, 3.7], [5.1, 4.2]]),
    given([[1.1, 1.6], [2.2, 1.3]]),
)
add("floor_divide", paddle.floor_divide, given([[2.3, 3.7]]), given([[1.1, 1.6]]))
add("divide: a number by a tensor", lambda y: 2.0 / y, real(3, 4))
add("subtract: from a number", lambda y: 2.0 - y, real(3, 4))
add("lerp: number", lambda x, y: paddle.lerp(x, y, 0.3), real(3, 4), real(3, 4))
add("lerp: tensor", paddle.lerp, real(3, 4), real(3, 4), unit(3, 4))
add("lerp: broadcast", paddle.lerp, real(3, 4), real(4), unit(1))
add("where", paddle.where, mask(3, 4), real(3, 4), real(3, 4))
add("where: broadcast", paddle.where, mask(3, 4), real(4), real(3, 1))
add(
    "where: by a comparison",
    lambda x, y: paddle.where(x > y, x, y),
    real(3, 4),
    real(3, 4),
)
add("addmm", paddle.addmm, real(3, 5), real(3, 4), real(4, 5))
add("addmm: broadcast", paddle.addmm, real(5), real(3, 4), real(4, 5))
add(
    "addmm: factors",
    lambda a, b, c: paddle.addmm(a, b, c, beta=0.5, alpha=2.0),
    real(3, 5),
    real(3, 4),
    real(4, 5),
)
add("baddbmm", paddle.baddbmm, real(2, 3, 5), real(2, 3, 4), real(2, 4, 5))
add("add_n", lambda *a: paddle.add_n([*a]), real(3, 4), real(3, 4), real(3, 4))
add(
    "multiplex",
    lambda i, a, b: paddle.multiplex([a, b], i.astype("int32")),
    ints(2, 3, 1),
    real(3, 4),
    real(3, 4),
)
add("dist", lambda x, y: paddle.dist(x, y, 2), real(3, 4), real(3, 4))
add("dist: 3", lambda x, y: paddle.dist(x, y, 3), real(3, 4), real(4))
add("cdist", paddle.cdist, real(3, 4), real(5, 4))
add("pdist", paddle.pdist, real(4, 3))
add("kron", paddle.kron, real(2, 3), real(3, 2))
add("polar", paddle.polar, positive(3, 4), real(3, 4))
add("complex", paddle.complex, real(3, 4), real(3, 4))

# Reductions.
alike(
    "sum mean max min amax amin logsumexp prod nansum nanmean std var median nanmedian",
    paddle,
    spread(3, 4),
)
add("sum: axis", lambda x: paddle.sum(x, 1), real(3, 4))
add("max: axis", lambda x: paddle.max(x, 1), spread(3, 4))
add("amax: ties", lambda x: paddle.amax(x * 1.0, 0), spread(3, 4))
add("prod: axis", lambda x: paddle.prod(x, 1), real(3, 4))
add("prod: a zero", paddle.prod, given([1.5, 0.0, 2.0]))
add(
    "prod: two zeros",
    lambda x: paddle.prod(x, 1),
    given([[1.5, 0.0, 0.0], [1.0, 2.0, 3.0]]),
)
add("quantile", lambda x: paddle.quantile(x, 0.3, axis=1), spread(3, 5))
add("nanquantile", lambda x: paddle.nanquantile(x, 0.3, axis=1), spread(3, 5))
add("median: axis, even", lambda x: paddle.median(x, 1), spread(3, 4))
add("median: axis, least", lambda x: paddle.median(x, 1, mode="min")[0], spread(3, 4))
add("mode", lambda x: paddle.mode(x, 1)[0], spread(3, 4))
add("kthvalue", lambda x: paddle.kthvalue(x, 2, 1)[0], spread(3, 4))
add("topk", lambda x: paddle.topk(x, 2, 1), spread(3, 4))
add("sort", lambda x: paddle.sort(x, 1), spread(3, 4))
add("sort: descending", lambda x: paddle.sort(x, 0, descending=True), spread(3, 4))
add("msort", paddle.msort, spread(3, 4))
add("cumsum", lambda x: paddle.cumsum(x, 1), real(3, 4))
add("cumsum: flat", paddle.cumsum, real(3, 4))
add("cumprod", lambda x: paddle.cumprod(x, 1), real(3, 4))
add("cumprod: a zero", lambda x: paddle.cumprod(x, 0), given([1.5, 0.0, 2.0, 3.0]))
add("cummax", lambda x: paddle.cummax(x, 1)[0], spread(3, 4))
add("cummin", lambda x: paddle.cummin(x, 1)[0], spread(3, 4))
add("logcumsumexp", lambda x: paddle.logcumsumexp(x, 1), real(3, 4))
add("trapezoid", lambda y: paddle.trapezoid(y, dx=0.5), real(3, 4))
add("trapezoid: x", paddle.trapezoid, real(3, 4), spread(4))
add("cumulative_trapezoid", paddle.cumulative_trapezoid, real(3, 4), spread(4))
add("diff", paddle.diff, real(3, 4))
add("diff: prepended", lambda x, y: paddle.diff(x, prepend=y), real(3, 4), real(3, 2))
add("trace", paddle.trace, real(3, 4))
add("reduce_as", paddle.reduce_as, real(3, 4), real(4))
add(
    "histogram on the side",
    lambda x: paddle.histogram(x, 4).astype("float64") + x.sum(),
    real(3, 4),
)

# Shapes.
add("reshape", lambda x: paddle.reshape(x, [4, 3]), real(3, 4))
add("reshape: in place", lambda x: paddle.reshape_(x.clone(), [4, 3]), real(3, 4))
add("flatten", paddle.flatten, real(2, 3, 2))
add("ravel", paddle.ravel, real(3, 4))
add("unflatten", lambda x: paddle.unflatten(x, 1, [2, 2]), real(3, 4))
add("transpose", lambda x: paddle.transpose(x, [1, 2, 0]), real(2, 3, 4))
add("t", paddle.t, real(3, 4))
add("moveaxis", lambda x: paddle.moveaxis(x, 0, 2), real(2, 3, 4))
add("swapaxes", lambda x: paddle.swapaxes(x, 0, 2), real(2, 3, 4))
add("matrix_transpose", paddle.matrix_transpose, real(2, 3, 4))
add("squeeze", paddle.squeeze, real(3, 1, 4))
add("unsqueeze", lambda x: paddle.unsqueeze(x, 1), real(3, 4))
add("atleast_3d", paddle.atleast_3d, real(3, 4))
add("expand", lambda x: paddle.expand(x, [2, 3, 4]), real(3, 4))
add("expand_as", paddle.expand_as, real(4), real(3, 4))
add("broadcast_to", lambda x: paddle.broadcast_to(x, [3, 4]), real(3, 1))
add(
    "broadcast_tensors",
    lambda *a: paddle.broadcast_tensors([*a]),
    real(3, 1),
    real(1, 4),
    real(4),
)
add("tile", lambda x: paddle.tile(x, [2, 3]), real(3, 4))
add("repeat_interleave", lambda x: paddle.repeat_interleave(x, 2, 1), real(3, 4))
add(
    "repeat_interleave: tensor",
    lambda x, n: paddle.repeat_interleave(x, n, 0),
    real(3, 4),
    given([1, 0, 2], "int64"),
)
add("flip", lambda x: paddle.flip(x, [1]), real(3, 4))
add("rot90", paddle.rot90, real(3, 4))
add("roll", lambda x: paddle.roll(x, 1, 1), real(3, 4))
add("tril", paddle.tril, real(3, 4))
add("triu", lambda x: paddle.triu(x, 1), real(3, 4))
add("concat", lambda *a: paddle.concat([*a], 1), real(3, 2), real(3, 4), real(3, 1))
add(
    "concat: the same twice",
    lambda a, b: paddle.concat([a, b, a], 1),
    real(3, 2),
    real(3, 4),
)
add("stack", lambda *a: paddle.stack([*a], 1), real(3, 4), real(3, 4))
add("hstack", lambda *a: paddle.hstack([*a]), real(3, 2), real(3, 4))
add("vstack", lambda *a: paddle.vstack([*a]), real(2, 4), real(3, 4))
add("dstack", lambda *a: paddle.dstack([*a]), real(3, 4), real(3, 4))
add("column_stack", lambda *a: paddle.column_stack([*a]), real(3), real(3, 4))
add("block_diag", lambda *a: paddle.block_diag([*a]), real(2, 3), real(3, 1))
add("split", lambda x: paddle.split(x, [1, 3], 1), real(3, 4))
add("split: evenly", lambda x: paddle.split(x, 2, 1), real(3, 4))
add("split: one of them", lambda x: paddle.split(x, [1, 3], 1)[0], real(3, 4))
add("tensor_split", lambda x: paddle.tensor_split(x, 2, 1), real(3, 5))
add("chunk", lambda x: paddle.chunk(x, 2, 1), real(3, 4))
add("unbind", lambda x: paddle.unbind(x, 1), real(3, 4))
add("unbind: one of them", lambda x: paddle.unbind(x, 1)[2], real(3, 4))
add("unstack", lambda x: paddle.unstack(x, 1), real(3, 4))
add("unstack: one of them", lambda x: paddle.unstack(x, 0)[1], real(3, 4))
add("meshgrid", paddle.meshgrid, real(3), real(4))
add("meshgrid: one of them", lambda x, y: paddle.meshgrid(x, y)[0], real(3), real(4))
add("cartesian_prod", lambda *a: paddle.cartesian_prod([*a]), real(3), real(4))
add("combinations", paddle.combinations, real(4))
add("diag", paddle.diag, real(4))
add("diag: of a matrix", paddle.diag, real(3, 4))
add("diagflat", paddle.diagflat, real(2, 3))
add("diag_embed", paddle.diag_embed, real(3, 4))
add("diagonal", paddle.diagonal, real(3, 4))
add("diagonal_scatter", paddle.diagonal_scatter, real(3, 4), real(3))
add("fill_diagonal_tensor", lambda x, y: x.fill_diagonal_tensor(y), real(3, 4), real(3))
add("fill_diagonal_", lambda x: x.clone().fill_diagonal_(2.0), real(3, 4))
add("crop", lambda x: paddle.crop(x, [2, 2], [1, 1]), real(3, 4))
add("slice", lambda x: paddle.slice(x, [0, 1], [0, 1], [2, 3]), real(3, 4))
add("strided_slice", lambda x: paddle.strided_slice(x, [1], [0], [4], [2]), real(3, 4))
add(
    "slice_scatter",
    lambda x, y: paddle.slice_scatter(x, y, [1], [0], [4], [2]),
    real(3, 4),
    real(3, 2),
)
add(
    "select_scatter",
    lambda x, y: paddle.select_scatter(x, y, 1, 2),
    real(3, 4),
    real(3),
)
add("as_strided", lambda x: paddle.as_strided(x, [2, 3], [4, 1]), real(3, 4))
add("as_strided: overlap", lambda x: paddle.as_strided(x, [3, 3], [2, 1]), real(12))
add(
    "as_strided: offset",
    lambda x: paddle.as_strided(x, [2, 3], [4, 1], 2 * 8),
    real(12),
)
add("unfold: overlap", lambda x: paddle.unfold(x, 0, 3, 1), real(6))
add("unfold: none", lambda x: paddle.unfold(x, 0, 2, 2), real(6))
add("view", lambda x: paddle.view(x, [4, 3]), real(3, 4))
add("vander", paddle.vander, real(4))
add("clone", paddle.clone, real(3, 4))
add("assign", paddle.assign, real(3, 4))
add(
    "assign: output",
    lambda x, y: paddle.assign(x * 2, output=y * 1.0),
    real(3, 4),
    real(3, 4),
)
add("to_tensor of tensors", lambda x: paddle.stack([x[0, 0], x[1, 1]]), real(3, 4))
add("narrow", lambda x: paddle.narrow(x, 1, 1, 2), real(3, 4))

# By indices.
add("x[1]", lambda x: x[1], real(3, 4))
add("x[..., 1:3]", lambda x: x[..., 1:3], real(3, 4))
add("x[:, ::2]", lambda x: x[:, ::2], real(3, 4))
add("x[:, ::-1]", lambda x: x[:, ::-1], real(3, 4))
add("x[None]", lambda x: x[None, :, None], real(3, 4))
add("x[tensor]", lambda x, i: x[i], real(3, 4), ints(3, 5))
add("x[list]", lambda x: x[[0, 2, 0]], real(3, 4))
add("x[mask]", lambda x, m: x[m], real(3, 4), mask(3, 4))
add("x[tensor, tensor]", lambda x, i, j: x[i, j], real(3, 4), ints(3, 5), ints(4, 5))


def assigned(place: Callable[..., Any]) -> Callable[..., Any]:
    def function(x: Any, y: Any, *indices: Any) -> Any:
        x = x * 1.0
        x[place(*indices)] = y * 1.0
        return x * x

    return function


add("x[1] = y", assigned(lambda: 1), real(3, 4), real(4))
add(
    "x[:, 1:3] = y",
    assigned(lambda: (slice(None), slice(1, 3))),
    real(3, 4),
    real(3, 2),
)
add(
    "x[:, ::2] = y",
    assigned(lambda: (slice(None), slice(None, None, 2))),
    real(3, 4),
    real(3, 2),
)
add("x[1] = y: broadcast", assigned(lambda: 1), real(3, 4), real(1))
add("x[mask] = y", assigned(lambda m: m), real(3, 4), real(1), mask(3, 4))
add("x[tensor] = y", assigned(lambda i: i), real(5, 4), real(2, 4), apart(5, 2))
add(
    "x[tensor, tensor] = y",
    assigned(lambda i, j: (i, j)),
    real(5, 4),
    real(3),
    apart(5, 3),
    ints(4, 3),
)
add("x[list] = y", assigned(lambda: [0, 2]), real(3, 4), real(2, 4))
add(
    "x[tensor, 1:3] = y",
    assigned(lambda i: (i, slice(1, 3))),
    real(5, 4),
    real(2, 2),
    apart(5, 2),
)
add("x[..., 0] = y", assigned(lambda: (..., 0)), real(3, 4), real(3))


def of_view(x: Any, y: Any) -> Any:
    x = x * 1.0
    x[0].scale_(2.0)
    part = x[1:]
    part.add_(y)
    return x * x


add("in-place edit of a view", of_view, real(3, 4), real(2, 4))


def edited(x: Any) -> Any:
    h = x * 1.0
    h.scale_(2.0)
    h.add_(paddle.sin(x))
    return h * h


add("in-place edits", edited, real(3, 4))
add("setitem of a number", lambda x: _with_item(x), real(3, 4))


def _with_item(x: Any) -> Any:
    x = x * x
    x[0, 1] = 2.0
    return x * 3


add("gather", lambda x, i: paddle.gather(x, i, 0), real(3, 4), ints(3, 5))
add("gather: axis", lambda x, i: paddle.gather(x, i, 1), real(3, 4), ints(4, 5))
add("gather_nd", paddle.gather_nd, real(3, 4), ints(3, 5, 2))
add("index_select", lambda x, i: paddle.index_select(x, i, 1), real(3, 4), ints(4, 5))
add("index_sample", paddle.index_sample, real(3, 4), ints(4, 3, 2))
add(
    "index_add",
    lambda x, i, y: paddle.index_add(x, i, 0, y),
    real(3, 4),
    ints(3, 2),
    real(2, 4),
)
add(
    "index_put",
    lambda x, i, y: paddle.index_put(x, (i,), y),
    real(5, 4),
    apart(5, 2),
    real(2, 4),
)
add(
    "index_put: accumulate",
    lambda x, i, y: paddle.index_put(x, (i,), y, accumulate=True),
    real(3, 4),
    ints(3, 5),
    real(5, 4),
)
add("index_fill", lambda x, i: paddle.index_fill(x, i, 0, 2.0), real(3, 4), apart(3, 2))
add("take", paddle.take, real(3, 4), ints(12, 5))
add(
    "take_along_axis",
    lambda x, i: paddle.take_along_axis(x, i, 1),
    real(3, 4),
    ints(4, 3, 2),
)
add(
    "put_along_axis",
    lambda x, i, y: paddle.put_along_axis(x, i, y, 1),
    real(3, 4),
    given([[0, 2], [1, 3], [3, 0]], "int64"),
    real(3, 2),
)
add(
    "put_along_axis: add",
    lambda x, i, y: paddle.put_along_axis(x, i, y, 1, "add"),
    real(3, 4),
    ints(4, 3, 2),
    real(3, 2),
)
add(
    "put_along_axis: multiply",
    lambda x, i, y: paddle.put_along_axis(x, i, y, 1, "mul"),
    real(3, 4),
    ints(4, 3, 2),
    real(3, 2),
)
add(
    "put_along_axis: mean",
    lambda x, i, y: paddle.put_along_axis(x, i, y, 1, "mean"),
    real(3, 4),
    ints(4, 3, 2),
    real(3, 2),
)
add("scatter", paddle.scatter, real(4, 3), apart(4, 2), real(2, 3))
add(
    "scatter: add",
    lambda x, i, y: paddle.scatter(x, i, y, overwrite=False),
    real(4, 3),
    apart(4, 2),
    real(2, 3),
)
add("scatter_nd", lambda i, y: paddle.scatter_nd(i, y, [4, 3]), ints(3, 5, 2), real(5))
add("scatter_nd_add", paddle.scatter_nd_add, real(4, 3), ints(3, 5, 2), real(5))
add("masked_select", paddle.masked_select, real(3, 4), mask(3, 4))
add("masked_fill", lambda x, m: paddle.masked_fill(x, m, 2.0), real(3, 4), mask(3, 4))
add("masked_fill: tensor", paddle.masked_fill, real(3, 4), mask(3, 4), real(1))
add("masked_scatter", paddle.masked_scatter, real(3, 4), mask(3, 4), real(12))
add("unique", lambda x: paddle.unique(x * 1.0) * 1.0 + 0 * x.sum(), spread(5))
add(
    "bucketize on the side",
    lambda x: x * paddle.bucketize(x, paddle.to_tensor([0.0, 1.0])).astype("float64"),
    real(3, 4),
)

# Linear algebra.
add("matmul", paddle.matmul, real(3, 4), real(4, 2))
add("matmul: vectors", paddle.matmul, real(4), real(4))
add("matmul: matrix and vector", paddle.matmul, real(3, 4), real(4))
add("matmul: vector and matrix", paddle.matmul, real(3), real(3, 4))
add("matmul: batched", paddle.matmul, real(2, 3, 4), real(2, 4, 5))
add("matmul: batch and matrix", paddle.matmul, real(2, 3, 4), real(4, 5))
add("matmul: broadcast batches", paddle.matmul, real(2, 1, 3, 4), real(3, 4, 2))
add("matmul: a stack and more", paddle.matmul, real(3, 2, 4), real(2, 3, 4, 5))
add("@: a stack and more", lambda x, y: x @ y, real(2, 3, 2, 4), real(3, 4, 5))
add("matmul: a vector and a stack", paddle.matmul, real(4), real(3, 4, 2))
add("matmul: a stack and a vector", paddle.matmul, real(2, 3, 4), real(4))
add(
    "matmul: transposed",
    lambda x, y: paddle.matmul(x, y, True, True),
    real(4, 3),
    real(2, 4),
)
add(
    "matmul: a vector, transposed",
    lambda x, y: paddle.matmul(x, y, True, True),
    real(3),
    real(2, 4, 3),
)
add(
    "matmul: transposed with a vector",
    lambda x, y: paddle.matmul(x, y, True, True),
    real(2, 3, 4),
    real(3),
)
add("mm", paddle.mm, real(3, 4), real(4, 2))
add("bmm", paddle.bmm, real(2, 3, 4), real(2, 4, 5))
add("mv", paddle.mv, real(3, 4), real(4))
add("dot", paddle.dot, real(4), real(4))
add("dot: batched", paddle.dot, real(3, 4), real(3, 4))
add("inner", paddle.inner, real(3, 4), real(2, 4))
add("outer", paddle.outer, real(3), real(4))
add("tensordot", lambda x, y: paddle.tensordot(x, y, 1), real(3, 4), real(4, 2))
add("einsum", lambda x, y: paddle.einsum("ij,kj->ik", x, y), real(3, 4), real(2, 4))
add(
    "einsum: three",
    lambda x, y, z: paddle.einsum("ij,jk,kl->il", x, y, z),
    real(3, 4),
    real(4, 2),
    real(2, 3),
)
add(
    "einsum: batch, sums",
    lambda x, y: paddle.einsum("bij,bjk->bk", x, y),
    real(2, 3, 4),
    real(2, 4, 5),
)
add("vecdot", paddle.vecdot, real(3, 4), real(3, 4))
add("cross", lambda x, y: paddle.cross(x, y, 1), real(4, 3), real(4, 3))
add("multi_dot", lambda *a: linalg.multi_dot([*a]), real(3, 4), real(4, 2), real(2, 5))
add("norm", lambda x: linalg.norm(x), real(3, 4))
add("norm: 1", lambda x: linalg.norm(x, 1, 1), real(3, 4))
add("norm: infinite", lambda x: linalg.norm(x, float("inf"), 1), spread(3, 4))
add("norm: 3", lambda x: linalg.norm(x, 3, 1), real(3, 4))
add("norm: nuclear", lambda x: linalg.norm(x, "nuc"), real(3, 4))
add("norm: spectral", lambda x: linalg.matrix_norm(x, 2), real(3, 4))
add("cond", linalg.cond, square(3, 3))
add("cov", linalg.cov, real(3, 5))
add("corrcoef", linalg.corrcoef, real(3, 5))
add("cholesky", lambda x: linalg.cholesky(x + x.T), definite(3, 3))
add("cholesky: upper", lambda x: linalg.cholesky(x + x.T, upper=True), definite(3, 3))
add(
    "cholesky_solve",
    lambda b, root: linalg.cholesky_solve(b, root, upper=False),
    real(3, 2),
    lower(3, 3),
)
add(
    "cholesky_solve: of both triangles",
    lambda b, root: linalg.cholesky_solve(b, root, upper=True),
    real(3, 2),
    definite(3, 3),
)
add("cholesky_inverse", linalg.cholesky_inverse, lower(3, 3))
add("inv", linalg.inv, square(3, 3))
add("pinv", linalg.pinv, real(4, 3))
add("det", linalg.det, square(3, 3))
add("slogdet", linalg.slogdet, square(3, 3))
add("solve", linalg.solve, square(3, 3), real(3, 2))
add("solve: vector", linalg.solve, square(3, 3), real(3))
add(
    "triangular_solve",
    lambda a, b: linalg.triangular_solve(a, b, upper=False),
    lower(3, 3),
    real(3, 2),
)
add(
    "triangular_solve: unit",
    lambda a, b: linalg.triangular_solve(a, b, upper=False, unitriangular=True),
    lower(3, 3),
    real(3, 2),
)
add(
    "triangular_solve: transposed",
    lambda a, b: linalg.triangular_solve(a, b, upper=False, transpose=True),
    lower(3, 3),
    real(3, 2),
)
add("lstsq", lambda a, b: linalg.lstsq(a, b)[0], real(5, 3), real(5, 2))
add("qr", linalg.qr, real(4, 3))
add("qr: q", lambda x: linalg.qr(x)[0], real(4, 3))
add("qr: r", lambda x: linalg.qr(x)[1], real(4, 3))
add("qr: mode r", lambda x: linalg.qr(x, mode="r"), real(4, 3))
add("lu_unpack", lambda x: linalg.lu_unpack(*linalg.lu(x)), real(4, 3))
add("lu_unpack: l", lambda x: linalg.lu_unpack(*linalg.lu(x))[1], real(3, 4))
add("lu_unpack: u", lambda x: linalg.lu_unpack(*linalg.lu(x))[2], real(2, 3, 3))
add("svd: values", lambda x: linalg.svd(x)[1], real(4, 3))
add("svdvals", linalg.svdvals, real(4, 3))
add("svd: whole again", lambda x: _whole_again(x), real(4, 3))
add("svd: complex", lambda x: _by_sines(x), complex_(3, 2))


def _whole_again(x: Any) -> Any:
    u, s, vh = linalg.svd(x)
    return (u * s) @ vh


def _by_sines(x: Any) -> Any:
    u, s, vh = linalg.svd(x)
    return (u * s.sin().astype(u.dtype)) @ vh


add("eigh: values", lambda x: linalg.eigh(x + x.T)[0], real(3, 3))
add("eigvalsh", lambda x: linalg.eigvalsh(x + x.T), real(3, 3))
add("eigvals", lambda x: linalg.eigvals(x).abs().sum(), square(3, 3))
add("eig: values", lambda x: linalg.eig(x)[0].abs().sum(), square(3, 3))
add("lu", lambda x: linalg.lu(x)[0], square(3, 3))
add("matrix_power", lambda x: linalg.matrix_power(x, 3), square(3, 3))
add("matrix_power: inverse", lambda x: linalg.matrix_power(x, -2), square(3, 3))
add("matrix_exp", lambda x: linalg.matrix_exp(x), real(3, 3))
add(
    "householder_product",
    lambda x, y: linalg.householder_product(x, y),
    real(4, 3),
    real(3),
)
add(
    "householder_product: a batch, complex",
    lambda x, y: linalg.householder_product(x, y),
    complex_(2, 4, 3),
    complex_(2, 2),
)
add("F.linear", F.linear, real(3, 4), real(4, 2), real(2))
add("F.bilinear", F.bilinear, real(3, 4), real(3, 2), real(5, 4, 2), real(1, 5))
add("F.normalize", F.normalize, real(3, 4))
add("F.cosine_similarity", F.cosine_similarity, real(3, 4), real(3, 4))
add("F.pairwise_distance", F.pairwise_distance, real(3, 4), real(3, 4))

# Complex numbers.
alike("real imag conj angle", paddle, complex_(3, 4))
add("abs: complex", paddle.abs, complex_(3, 4))
add("sign: complex", paddle.sign, complex_(3, 4))
add("as_real", paddle.as_real, complex_(3, 4))
add("as_complex", paddle.as_complex, real(3, 2))
for name in "exp sin cos tan sinh cosh tanh sqrt log log1p log2 log10 rsqrt reciprocal square expm1 asin acos atan asinh acosh atanh sgn".replace(
    " rsqrt", ""
).split():
    add(f"{name}: complex", getattr(paddle, name), complex_(3, 2))
alike_complex = {
    "add": paddle.add,
    "subtract": paddle.subtract,
    "multiply": paddle.multiply,
    "divide": paddle.divide,
}
for name, function in alike_complex.items():
    add(f"{name}: complex", function, complex_(3, 2), complex_(2))
    add(f"{name}: complex and real", function, complex_(3, 2), real(3, 2))
add("pow: complex", lambda x: paddle.pow(x, 3), complex_(3, 2))
add("pow: complex, tensor", paddle.pow, complex_(3, 2), complex_(3, 2))
add("pow: complex, operator", lambda x, y: x**y, complex_(3, 2), complex_(3, 2))
add("pow: complex number", lambda x: x ** (0.5 - 1j), complex_(3, 2))
add("pow: of a complex number", lambda x: (0.5 - 1j) ** x, complex_(3, 2))
add("matmul: complex", paddle.matmul, complex_(3, 4), complex_(4, 2))
add("sum: complex", paddle.sum, complex_(3, 2))
add("mean: complex", paddle.mean, complex_(3, 2))
add("prod: complex", paddle.prod, complex_(3, 2))
add("cumsum: complex", lambda x: paddle.cumsum(x, 0), complex_(3, 2))
add(
    "einsum: complex",
    lambda x, y: paddle.einsum("ij,kj->ik", x, y),
    complex_(3, 4),
    complex_(2, 4),
)
add("where: complex", paddle.where, mask(3, 2), complex_(3, 2), complex_(3, 2))
add("x[1]: complex", lambda x: x[1], complex_(3, 2))
add("inv: complex", linalg.inv, complex_(2, 2))

# Fourier transforms.
for name in [
    "fft",
    "ifft",
    "fft2",
    "ifft2",
    "fftn",
    "ifftn",
    "hfft",
    "fftshift",
    "ifftshift",
]:
    add(f"fft.{name}", getattr(fft, name), complex_(4, 6))
for name in ["rfft", "ihfft", "rfft2", "rfftn"]:
    add(f"fft.{name}", getattr(fft, name), real(4, 6))
add("fft.rfft: odd", fft.rfft, real(4, 5))
add("fft.irfft", fft.irfft, complex_(3, 4))
add("fft.irfft: odd", lambda x: fft.irfft(x, 5), complex_(3, 3))
add("fft.irfft2", fft.irfft2, complex_(3, 4))
add("fft.rfft: padded", lambda x: fft.rfft(x, 8), real(3, 6))
add("fft.rfft: ortho", lambda x: fft.rfft(x, norm="ortho"), real(3, 6))
add("signal.stft", lambda x: paddle.signal.stft(x, 8, 4), real(1, 24))
add("signal.istft", lambda x: paddle.signal.istft(x, 8, 4), complex_(1, 5, 7))

# Convolutions, pooling, images.
add("F.conv1d", F.conv1d, real(2, 3, 6), real(4, 3, 2), real(4))
add("F.conv2d", F.conv2d, real(2, 3, 4, 5), real(4, 3, 2, 3), real(4))
add(
    "F.conv2d: strided, padded",
    lambda x, w: F.conv2d(x, w, stride=2, padding=1),
    real(2, 3, 4, 5),
    real(4, 3, 2, 3),
)
add(
    "F.conv2d: dilated",
    lambda x, w: F.conv2d(x, w, dilation=2),
    real(1, 2, 5, 5),
    real(3, 2, 2, 2),
)
add(
    "F.conv2d: groups",
    lambda x, w: F.conv2d(x, w, groups=2),
    real(2, 4, 4, 4),
    real(6, 2, 2, 2),
)
add(
    "F.conv2d: depthwise",
    lambda x, w: F.conv2d(x, w, groups=3),
    real(2, 3, 4, 4),
    real(3, 1, 2, 2),
)
add(
    "F.conv2d: channels last",
    lambda x, w: F.conv2d(x, w, data_format="NHWC"),
    real(2, 4, 5, 3),
    real(4, 3, 2, 3),
)
add("F.conv3d", F.conv3d, real(1, 2, 3, 4, 3), real(2, 2, 2, 2, 2), real(2))
add("F.conv1d_transpose", F.conv1d_transpose, real(2, 3, 4), real(3, 2, 3), real(2))
add(
    "F.conv2d_transpose",
    F.conv2d_transpose,
    real(2, 3, 3, 4),
    real(3, 2, 2, 3),
    real(2),
)
add(
    "F.conv2d_transpose: strided",
    lambda x, w: F.conv2d_transpose(x, w, stride=2, output_padding=1),
    real(1, 3, 3, 3),
    real(3, 2, 2, 2),
)
add("F.conv3d_transpose", F.conv3d_transpose, real(1, 2, 2, 3, 2), real(2, 2, 2, 2, 2))
add("F.unfold", lambda x: F.unfold(x, 2), real(2, 3, 4, 4))
add("F.fold", lambda x: F.fold(x, [3, 4], 2), real(2, 12, 6))
for name in ["avg", "max"]:
    for n, shape in (1, (2, 3, 8)), (2, (2, 2, 4, 6)), (3, (1, 2, 4, 4, 2)):
        pool = getattr(F, f"{name}_pool{n}d")
        add(f"F.{name}_pool{n}d", lambda x, pool=pool: pool(x, 2), spread(*shape))
        pool = getattr(F, f"adaptive_{name}_pool{n}d")
        add(
            f"F.adaptive_{name}_pool{n}d",
            lambda x, pool=pool: pool(x, 2),
            spread(*shape),
        )
add("F.max_pool2d: overlapping", lambda x: F.max_pool2d(x, 3, 1), spread(1, 2, 4, 5))
add(
    "F.max_pool2d: with mask",
    lambda x: F.max_pool2d(x, 2, return_mask=True),
    spread(1, 2, 4, 4),
)
add(
    "F.max_unpool2d",
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_mask=True), 2),
    spread(1, 2, 4, 4),
)
add("F.lp_pool2d", lambda x: F.lp_pool2d(x, 3.0, 2), positive(1, 2, 4, 4))
for mode in ["constant", "reflect", "replicate", "circular"]:
    add(
        f"F.pad: {mode}",
        lambda x, mode=mode: F.pad(x, [1, 2, 1, 1], mode),
        real(1, 2, 4, 5),
    )
add(
    "F.pad: tensor value",
    lambda x, v: F.pad(x, [1, 1, 1, 1], value=v),
    real(3, 4),
    real(),
)
add("F.pad: all axes", lambda x: F.pad(x, [1, 0, 0, 2], value=2.0), real(3, 4))
add("F.zeropad2d", lambda x: F.zeropad2d(x, [1, 1, 2, 0]), real(1, 2, 3, 4))
for mode in ["nearest", "bilinear", "bicubic", "area"]:
    add(
        f"F.interpolate: {mode}",
        lambda x, mode=mode: F.interpolate(x, [5, 7], mode=mode),
        real(1, 2, 3, 4),
    )
add(
    "F.interpolate: linear",
    lambda x: F.interpolate(x, [7], mode="linear", data_format="NCW"),
    real(1, 2, 4),
)
add(
    "F.interpolate: trilinear",
    lambda x: F.interpolate(x, [3, 4, 3], mode="trilinear", data_format="NCDHW"),
    real(1, 2, 2, 3, 2),
)
add(
    "F.grid_sample",
    F.grid_sample,
    real(1, 2, 4, 5),
    given(
        [
            [
                [[-0.7, -0.4], [0.1, 0.2], [0.6, 0.45]],
                [[0.15, -0.8], [0.85, 0.5], [-0.3, 0.1]],
            ]
        ]
    ),
)
add(
    "F.grid_sample: nearest",
    lambda x, g: F.grid_sample(x, g, mode="nearest"),
    real(1, 2, 4, 5),
    unit(1, 3, 3, 2),
)
add("F.affine_grid", lambda t: F.affine_grid(t, [2, 3, 4, 5]), real(2, 2, 3))
add("F.pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), real(1, 8, 2, 3))
add("F.pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), real(1, 2, 4, 6))
add("F.channel_shuffle", lambda x: F.channel_shuffle(x, 2), real(1, 4, 2, 3))
add("F.temporal_shift", lambda x: F.temporal_shift(x, 2, 0.25), real(4, 4, 2, 3))
add(
    "vision.roi_align",
    lambda x, boxes: paddle.vision.ops.roi_align(
        x, boxes, paddle.to_tensor([1], "int32"), 2
    ),
    real(1, 2, 6, 6),
    given([[0.7, 1.1, 4.3, 4.9]]),
)
add(
    "vision.deform_conv2d",
    paddle.vision.ops.deform_conv2d,
    real(1, 2, 4, 4),
    unit(1, 8, 3, 3),
    real(3, 2, 2, 2),
)
add(
    "vision.deform_conv2d: mask",
    lambda x, o, w, m: paddle.vision.ops.deform_conv2d(x, o, w, mask=m),
    real(1, 2, 4, 4),
    unit(1, 8, 3, 3),
    real(3, 2, 2, 2),
    unit(1, 4, 3, 3),
)

# Normalisation.
add(
    "F.layer_norm",
    lambda x, w, b: F.layer_norm(x, 4, w, b),
    real(3, 4),
    real(4),
    real(4),
)
add("F.layer_norm: plain", lambda x: F.layer_norm(x, 4), real(3, 4))
add("F.layer_norm: scale", lambda x, w: F.layer_norm(x, 4, w), real(3, 4), real(4))
add(
    "F.layer_norm: shift", lambda x, b: F.layer_norm(x, 4, None, b), real(3, 4), real(4)
)
add(
    "F.batch_norm: training",
    lambda x, w, b: F.batch_norm(
        x, paddle.zeros([3]), paddle.ones([3]), w, b, training=True
    ),
    real(4, 3, 2),
    real(3),
    real(3),
)
add(
    "F.batch_norm: evaluation",
    lambda x, w, b: F.batch_norm(x, paddle.full([3], 0.2), paddle.full([3], 1.5), w, b),
    real(4, 3, 2),
    real(3),
    real(3),
)
add(
    "F.batch_norm: plain",
    lambda x: F.batch_norm(x, paddle.zeros([3]), paddle.ones([3]), training=True),
    real(4, 3, 2),
)
add(
    "F.instance_norm",
    lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    real(2, 3, 5),
    real(3),
    real(3),
)
add("F.instance_norm: plain", F.instance_norm, real(2, 3, 5))
add(
    "F.group_norm",
    lambda x, w, b: F.group_norm(x, 2, weight=w, bias=b),
    real(2, 4, 3),
    real(4),
    real(4),
)
add("F.group_norm: plain", lambda x: F.group_norm(x, 2), real(2, 4, 3))
add(
    "F.group_norm: shift",
    lambda x, b: F.group_norm(x, 2, bias=b),
    real(2, 4, 3),
    real(4),
)
add(
    "F.group_norm: scale",
    lambda x, w: F.group_norm(x, 2, weight=w),
    real(2, 4, 3),
    real(4),
)
add("F.local_response_norm", lambda x: F.local_response_norm(x, 3), real(2, 4, 3))

# Losses.
add("F.mse_loss", F.mse_loss, real(3, 4), real(3, 4))
add("F.l1_loss", F.l1_loss, real(3, 4), real(3, 4))
add("F.smooth_l1_loss", F.smooth_l1_loss, real(3, 4), real(3, 4))
add("F.square_error_cost", F.square_error_cost, real(3, 4), real(3, 4))
add("F.binary_cross_entropy", F.binary_cross_entropy, unit(3, 4), unit(3, 4))
add(
    "F.binary_cross_entropy: weight",
    F.binary_cross_entropy,
    unit(3, 4),
    unit(3, 4),
    positive(3, 4),
)
add("F.bce_with_logits", F.binary_cross_entropy_with_logits, real(3, 4), unit(3, 4))
add(
    "F.bce_with_logits: weight",
    F.binary_cross_entropy_with_logits,
    real(3, 4),
    unit(3, 4),
    positive(3, 4),
)
add(
    "F.bce_with_logits: pos_weight",
    lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w),
    real(3, 4),
    unit(3, 4),
    positive(4),
)
add("F.cross_entropy", F.cross_entropy, real(5, 4), ints(4, 5))
add(
    "F.cross_entropy: weight",
    lambda x, y, w: F.cross_entropy(x, y, weight=w),
    real(5, 4),
    ints(4, 5),
    positive(4),
)
add(
    "F.cross_entropy: soft",
    lambda x, y: F.cross_entropy(x, F.softmax(y), soft_label=True),
    real(5, 4),
    real(5, 4),
)
add(
    "F.cross_entropy: smoothing",
    lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    real(5, 4),
    ints(4, 5),
)
add(
    "F.cross_entropy: probabilities",
    lambda x, y: F.cross_entropy(F.softmax(x), y, use_softmax=False),
    real(5, 4),
    ints(4, 5),
)
add(
    "F.softmax_with_cross_entropy",
    F.softmax_with_cross_entropy,
    real(5, 4),
    ints(4, 5, 1),
)
add(
    "F.softmax_with_cross_entropy: softmax",
    lambda x, y: F.softmax_with_cross_entropy(x, y, return_softmax=True),
    real(5, 4),
    ints(4, 5, 1),
)
add(
    "F.softmax_with_cross_entropy: soft",
    lambda x, y: F.softmax_with_cross_entropy(x, F.softmax(y), soft_label=True),
    real(5, 4),
    real(5, 4),
)
add("F.nll_loss", lambda x, y: F.nll_loss(F.log_softmax(x), y), real(5, 4), ints(4, 5))
add(
    "F.nll_loss: weight",
    lambda x, y, w: F.nll_loss(F.log_softmax(x), y, weight=w),
    real(5, 4),
    ints(4, 5),
    positive(4),
)
add("F.kl_div", F.kl_div, real(3, 4), unit(3, 4))
add(
    "F.kl_div: log target",
    lambda x, y: F.kl_div(x, y, log_target=True),
    real(3, 4),
    real(3, 4),
)
add("F.poisson_nll_loss", F.poisson_nll_loss, real(3, 4), positive(3, 4))
add(
    "F.gaussian_nll_loss",
    lambda *a: F.gaussian_nll_loss(*a),
    real(3, 4),
    real(3, 4),
    positive(3, 4),
)
add("F.sigmoid_focal_loss", F.sigmoid_focal_loss, real(3, 4), unit(3, 4))
add(
    "F.margin_ranking_loss",
    F.margin_ranking_loss,
    real(5),
    real(5),
    given([1.0, -1, 1, -1, 1]),
)
add(
    "F.hinge_embedding_loss",
    lambda x, y: F.hinge_embedding_loss(x, y.astype("float64")),
    unit(5),
    given([1, -1, 1, -1, 1], "int64"),
)
add(
    "F.cosine_embedding_loss",
    F.cosine_embedding_loss,
    real(3, 4),
    real(3, 4),
    given([1, -1, 1], "int64"),
)
add("F.triplet_margin_loss", F.triplet_margin_loss, real(3, 4), real(3, 4), real(3, 4))
add("F.soft_margin_loss", F.soft_margin_loss, real(3, 4), given([[1.0, -1, 1, -1]] * 3))
add(
    "F.multi_label_soft_margin_loss",
    F.multi_label_soft_margin_loss,
    real(3, 4),
    given([[1.0, 0, 1, 0]] * 3),
)
add("F.multi_margin_loss", F.multi_margin_loss, real(3, 4), ints(4, 3))
add("F.dice_loss", F.dice_loss, unit(3, 4), ints(4, 3, 1))
add("F.label_smooth", lambda x: F.label_smooth(x), unit(3, 4))
add(
    "F.label_smooth: prior",
    lambda x, p: F.label_smooth(x, p, 0.1),
    unit(3, 4),
    unit(1, 4),
)
add(
    "F.ctc_loss",
    lambda x: F.ctc_loss(
        x,
        paddle.to_tensor([[1, 2]], "int32"),
        paddle.to_tensor([5]),
        paddle.to_tensor([2]),
    ),
    real(5, 1, 4),
)
add(
    "F.hsigmoid_loss",
    lambda x, y, w: F.hsigmoid_loss(x, y, 4, w),
    real(3, 5),
    ints(4, 3),
    real(3, 5),
)

# Attention, embeddings, graphs.
add("F.embedding", lambda i, w: F.embedding(i, w), ints(5, 3, 2), real(5, 4))
add(
    "F.embedding: padding",
    lambda i, w: F.embedding(i, w, padding_idx=1),
    ints(5, 3, 2),
    real(5, 4),
)
add(
    "F.embedding: sparse",
    lambda i, w: F.embedding(i, w, sparse=True),
    ints(5, 3, 2),
    real(5, 4),
)
add("F.one_hot on the side", lambda x, i: x * F.one_hot(i, 4), real(3, 4), ints(4, 3))
add(
    "F.scaled_dot_product_attention",
    F.scaled_dot_product_attention,
    real(1, 3, 2, 4),
    real(1, 3, 2, 4),
    real(1, 3, 2, 4),
)
add(
    "F.scaled_dot_product_attention: causal",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    real(1, 3, 2, 4),
    real(1, 3, 2, 4),
    real(1, 3, 2, 4),
)
add(
    "F.scaled_dot_product_attention: mask",
    F.scaled_dot_product_attention,
    real(1, 3, 2, 4),
    real(1, 3, 2, 4),
    real(1, 3, 2, 4),
    real(1, 2, 3, 3),
)
add(
    "softmax_mask_fuse",
    paddle.incubate.softmax_mask_fuse,
    real(1, 2, 4, 4),
    real(1, 1, 4, 4),
)
for name in ["sum", "mean", "min", "max"]:
    add(
        f"geometric.segment_{name}",
        getattr(paddle.geometric, f"segment_{name}"),
        spread(4, 3),
        given([0, 0, 1, 1], "int64"),
    )
    add(
        f"geometric.send_u_recv: {name}",
        lambda x, s, d, name=name: paddle.geometric.send_u_recv(x, s, d, name),
        spread(4, 3),
        given([0, 1, 2, 0], "int64"),
        given([1, 2, 1, 0], "int64"),
    )
add(
    "geometric.send_ue_recv",
    lambda x, e, s, d: paddle.geometric.send_ue_recv(x, e, s, d, "mul", "sum"),
    real(4, 3),
    real(4, 3),
    given([0, 1, 2, 0], "int64"),
    given([1, 2, 1, 0], "int64"),
)
add(
    "geometric.send_uv",
    lambda x, y, s, d: paddle.geometric.send_uv(x, y, s, d, "mul"),
    real(4, 3),
    real(4, 3),
    given([0, 1, 2, 0], "int64"),
    given([1, 2, 1, 0], "int64"),
)

# What programs do beside.
add("under no_grad in part", lambda x: x * _detached(x), real(3, 4))


def _detached(x: Any) -> Any:
    return paddle.ones_like(x)


add("a loop", lambda x, w: _loop(x, w), real(3, 4), real(4, 4))


def _loop(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = paddle.tanh(x @ w)
    return x


class Twice(paddle.autograd.PyLayer):
    """A layer with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensor()
        return grad * y, grad * x


add("a PyLayer", Twice.apply, real(3, 4), real(3, 4))
add(
    "recompute",
    lambda x, w: paddle.distributed.fleet.utils.recompute(
        lambda x: paddle.tanh(x @ w), x
    ),
    real(3, 4),
    real(4, 2),
)
add(
    "utils.checkpoint of all",
    lambda x, w: paddle.distributed.fleet.utils.recompute(
        lambda x, w: paddle.tanh(x @ w), x, w
    ),
    real(3, 4),
    real(4, 2),
)


class Leaving(paddle.autograd.PyLayer):
    """A layer whose backward leaves Paddle, so that it has no derivative itself."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensor()
        return paddle.to_tensor(grad.numpy() * 3 * x.numpy() ** 2)


add("a PyLayer by way of numpy", lambda x: Leaving.apply(x), real(3, 4))
add(
    "a PyLayer by way of numpy, in part",
    lambda x: Leaving.apply(x) + paddle.sin(x),
    real(3, 4),
)


def editing(x: Any) -> Any:
    x.scale_(2.0)
    return x * x


add("in-place edit of the input", editing, real(3, 4))
add("in-place edit of the input, unused", lambda x: x.scale_(2.0), real(3, 4))
