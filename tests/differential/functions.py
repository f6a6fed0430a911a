"""Paddle's functions, one by one, with inputs at which they are smooth.

Those that are one operator have their samples in ``programs/samples``, and are compared
in ``programs/test_table.py``.
"""

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
alike("sinc frac", paddle, real(3, 4))
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
add("nan_to_num", paddle.nan_to_num, real(3, 4))
add("increment", lambda x: paddle.increment(x.clone()), real(1))
add("cast", lambda x: paddle.cast(x * 2, "float64") * x, real(3, 4))
add("frexp", lambda x: paddle.frexp(x)[0], positive(3, 4))
add("ldexp", paddle.ldexp, real(3, 4), ints(3, 3, 4))
add(
    "bitwise on the side",
    lambda x, i: x * (i % 2).astype("float64"),
    real(3, 4),
    ints(5, 3, 4),
)

# Activations.
alike("glu", F, real(3, 4))
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
alike("logaddexp hypot nextafter", paddle, real(3, 4), positive(3, 4))
add("floor_divide", paddle.floor_divide, given([[2.3, 3.7]]), given([[1.1, 1.6]]))
add("where: broadcast", paddle.where, mask(3, 4), real(4), real(3, 1))
add(
    "where: by a comparison",
    lambda x, y: paddle.where(x > y, x, y),
    real(3, 4),
    real(3, 4),
)
add(
    "multiplex",
    lambda i, a, b: paddle.multiplex([a, b], i.astype("int32")),
    ints(2, 3, 1),
    real(3, 4),
    real(3, 4),
)
add("cdist", paddle.cdist, real(3, 4), real(5, 4))
add("pdist", paddle.pdist, real(4, 3))
add("polar", paddle.polar, positive(3, 4), real(3, 4))

# Reductions.
alike("nansum nanmean std var", paddle, spread(3, 4))
add("amax: ties", lambda x: paddle.amax(x * 1.0, 0), spread(3, 4))
add("prod: a zero", paddle.prod, given([1.5, 0.0, 2.0]))
add(
    "prod: two zeros",
    lambda x: paddle.prod(x, 1),
    given([[1.5, 0.0, 0.0], [1.0, 2.0, 3.0]]),
)
add("quantile", lambda x: paddle.quantile(x, 0.3, axis=1), spread(3, 5))
add("nanquantile", lambda x: paddle.nanquantile(x, 0.3, axis=1), spread(3, 5))
add("kthvalue", lambda x: paddle.kthvalue(x, 2, 1)[0], spread(3, 4))
add("cumprod: a zero", lambda x: paddle.cumprod(x, 0), given([1.5, 0.0, 2.0, 3.0]))
add("trapezoid", lambda y: paddle.trapezoid(y, dx=0.5), real(3, 4))
add("trapezoid: x", paddle.trapezoid, real(3, 4), spread(4))
add("cumulative_trapezoid", paddle.cumulative_trapezoid, real(3, 4), spread(4))
add("diff", paddle.diff, real(3, 4))
add("diff: prepended", lambda x, y: paddle.diff(x, prepend=y), real(3, 4), real(3, 2))
add(
    "histogram on the side",
    lambda x: paddle.histogram(x, 4).astype("float64") + x.sum(),
    real(3, 4),
)

# Shapes.
add("reshape: in place", lambda x: paddle.reshape_(x.clone(), [4, 3]), real(3, 4))
add("rot90", paddle.rot90, real(3, 4))
add("dstack", lambda *a: paddle.dstack([*a]), real(3, 4), real(3, 4))
add("column_stack", lambda *a: paddle.column_stack([*a]), real(3), real(3, 4))
add("block_diag", lambda *a: paddle.block_diag([*a]), real(2, 3), real(3, 1))
add("cartesian_prod", lambda *a: paddle.cartesian_prod([*a]), real(3), real(4))
add("combinations", paddle.combinations, real(4))
add("diagflat", paddle.diagflat, real(2, 3))
add("diagonal_scatter", paddle.diagonal_scatter, real(3, 4), real(3))
add("fill_diagonal_tensor", lambda x, y: x.fill_diagonal_tensor(y), real(3, 4), real(3))
add("fill_diagonal_", lambda x: x.clone().fill_diagonal_(2.0), real(3, 4))
add("vander", paddle.vander, real(4))
add(
    "assign: output",
    lambda x, y: paddle.assign(x * 2, output=y * 1.0),
    real(3, 4),
    real(3, 4),
)
add("to_tensor of tensors", lambda x: paddle.stack([x[0, 0], x[1, 1]]), real(3, 4))

# By indices.
add("x[list]", lambda x: x[[0, 2, 0]], real(3, 4))
add("x[mask]", lambda x, m: x[m], real(3, 4), mask(3, 4))


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


add(
    "index_put",
    lambda x, i, y: paddle.index_put(x, (i,), y),
    real(5, 4),
    apart(5, 2),
    real(2, 4),
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
add("inner", paddle.inner, real(3, 4), real(2, 4))
add("outer", paddle.outer, real(3), real(4))
add("tensordot", lambda x, y: paddle.tensordot(x, y, 1), real(3, 4), real(4, 2))
add(
    "einsum: three",
    lambda x, y, z: paddle.einsum("ij,jk,kl->il", x, y, z),
    real(3, 4),
    real(4, 2),
    real(2, 3),
)
add("vecdot", paddle.vecdot, real(3, 4), real(3, 4))
add("norm: nuclear", lambda x: linalg.norm(x, "nuc"), real(3, 4))
add("norm: spectral", lambda x: linalg.matrix_norm(x, 2), real(3, 4))
add("cond", linalg.cond, square(3, 3))
add("cov", linalg.cov, real(3, 5))
add("corrcoef", linalg.corrcoef, real(3, 5))
add("cholesky", lambda x: linalg.cholesky(x + x.T), definite(3, 3))
add("cholesky: upper", lambda x: linalg.cholesky(x + x.T, upper=True), definite(3, 3))
add("cholesky_inverse", linalg.cholesky_inverse, lower(3, 3))
add("pinv", linalg.pinv, real(4, 3))
add("slogdet", linalg.slogdet, square(3, 3))
add("qr", linalg.qr, real(4, 3))
add("qr: q", lambda x: linalg.qr(x)[0], real(4, 3))
add("qr: r", lambda x: linalg.qr(x)[1], real(4, 3))
add("qr: mode r", lambda x: linalg.qr(x, mode="r"), real(4, 3))
add("lu_unpack", lambda x: linalg.lu_unpack(*linalg.lu(x)), real(4, 3))
add("lu_unpack: l", lambda x: linalg.lu_unpack(*linalg.lu(x))[1], real(3, 4))
add("lu_unpack: u", lambda x: linalg.lu_unpack(*linalg.lu(x))[2], real(2, 3, 3))
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
add("F.normalize", F.normalize, real(3, 4))
add("F.cosine_similarity", F.cosine_similarity, real(3, 4), real(3, 4))
add("F.pairwise_distance", F.pairwise_distance, real(3, 4), real(3, 4))

# Complex numbers.
alike("real imag", paddle, complex_(3, 4))
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
add("fft.rfft: padded", lambda x: fft.rfft(x, 8), real(3, 6))
add("signal.stft", lambda x: paddle.signal.stft(x, 8, 4), real(1, 24))
add("signal.istft", lambda x: paddle.signal.istft(x, 8, 4), complex_(1, 5, 7))

# Convolutions, pooling, images.
add("F.conv1d", F.conv1d, real(2, 3, 6), real(4, 3, 2), real(4))
add("F.conv2d", F.conv2d, real(2, 3, 4, 5), real(4, 3, 2, 3), real(4))
add("F.conv3d", F.conv3d, real(1, 2, 3, 4, 3), real(2, 2, 2, 2, 2), real(2))
add("F.conv1d_transpose", F.conv1d_transpose, real(2, 3, 4), real(3, 2, 3), real(2))
add(
    "F.conv2d_transpose",
    F.conv2d_transpose,
    real(2, 3, 3, 4),
    real(3, 2, 2, 3),
    real(2),
)
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
add(
    "F.max_unpool2d",
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_mask=True), 2),
    spread(1, 2, 4, 4),
)
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
add("F.zeropad2d", lambda x: F.zeropad2d(x, [1, 1, 2, 0]), real(1, 2, 3, 4))
for mode in ["nearest", "bilinear", "bicubic", "area"]:
    add(
        f"F.interpolate: {mode}",
        lambda x, mode=mode: F.interpolate(x, [5, 7], mode=mode),
        real(1, 2, 3, 4),
    )
add(
    "vision.roi_align",
    lambda x, boxes: paddle.vision.ops.roi_align(
        x, boxes, paddle.to_tensor([1], "int32"), 2
    ),
    real(1, 2, 6, 6),
    given([[0.7, 1.1, 4.3, 4.9]]),
)

# Normalisation.
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

# Attention, embeddings, graphs.
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

# What programs do beside.


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
