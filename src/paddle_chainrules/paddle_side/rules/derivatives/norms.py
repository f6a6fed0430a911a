"""Norms: Paddle's kernels give wrong gradients where scale or shift is constant.

Rules: ``rule(operator, context, *args)``, in the place of ``operator(*args)``. All
kernels but that of group_norm take epsilon in single precision, of float64 too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...dtypes import single
from ...watch import RuleContext, as_leaf, is_traced

ops: Any = paddle._C_ops


def _affine(
    y: Tensor, scale: Tensor | None, bias: Tensor | None, shape: Sequence[int]
) -> Tensor:
    if scale is not None:
        y = y * ops.reshape(scale, shape)
    return y if bias is None else y + ops.reshape(bias, shape)


def _normalized(x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """Return ``(x - mean) / sqrt(variance + epsilon)`` over the axes, by primitives.

    Source: Ioffe and Szegedy, "Batch normalization", ICML 2015, algorithm 1.
    """
    centred = x - x.mean(axes, keepdim=True)
    variance = (centred * centred).mean(axes, keepdim=True)
    # Of all functions that give this, pow can be differentiated most often.
    return centred * paddle.pow(variance + epsilon, -0.5)


class Layout:
    """The place of the channels of a tensor.

    Attributes:
        axis: the axis of the channels.
        channels: the number of channels.
        others: the other axes.
        shape: the shape in which a number for each channel is broadcast.
    """

    def __init__(self, x: Tensor, data_format: str = "NCHW") -> None:
        last = x.ndim > 2 and not data_format.startswith("NC")
        self.axis = x.ndim - 1 if last else 1
        self.channels = x.shape[self.axis]
        self.others = [i for i in range(x.ndim) if i != self.axis]
        self.shape = [self.channels if i == self.axis else 1 for i in range(x.ndim)]

    def grouped(self, x: Tensor, groups: int) -> tuple[Tensor, list[int]]:
        """Split channels into groups; return the tensor, and the axes to normalize."""
        inner = [groups, self.channels // groups]
        shape = [-1, *x.shape[1 : self.axis], *inner, *x.shape[self.axis + 1 :]]
        axes = [i for i in range(1, len(shape)) if i != self.axis]
        return ops.reshape(x, shape), axes

    def affine(self, x: Tensor, scale: Any, bias: Any) -> tuple[Tensor, Tensor]:
        """Scale and shift, where they are missing those that do nothing."""
        if scale is None:
            scale = paddle.ones([self.channels], x.dtype)
        if bias is None:
            bias = paddle.zeros([self.channels], x.dtype)
        return scale, bias

    def scaled(self, y: Tensor, scale: Any, bias: Any = None) -> Tensor:
        """Multiply by the scale, and add the shift."""
        return _affine(y, scale, bias, self.shape)


def _norm(
    context: RuleContext,
    inputs: tuple[Tensor, Tensor | None, Tensor | None],
    fused: Callable[..., Any],
    primitives: Callable[[], Any],
    size: Sequence[int],
) -> Any:
    """Return a norm, by its own kernel or, if that is not enough, by primitives."""
    x, scale, bias = inputs
    traced = [*map(is_traced, inputs)]
    if True not in traced:
        return fused(x, scale, bias)
    if context.create_graph(inputs):
        return primitives()
    if False not in traced:
        context.request([t for t in (scale, bias) if t is not None])
        return fused(x, scale, bias)
    if scale is None:
        scale = paddle.ones(size, x.dtype)
    if bias is None:
        bias = paddle.zeros(size, x.dtype)
    leaves = [as_leaf(t) if t.stop_gradient else t for t in (x, scale, bias)]
    context.request([t for t in leaves if t is not x])
    return fused(*leaves)


def layer_norm(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> Any:
    shape = x.shape[begin_norm_axis:]
    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, w, b, epsilon, begin_norm_axis),
        lambda: _affine(
            _normalized(x, [*range(begin_norm_axis, x.ndim)], single(epsilon)),
            *(scale, bias, shape),
        ),
        [math.prod(shape)],
    )


def layer_norm_of_one_sample(
    operator: Any,
    context: RuleContext,
    x: Any,
    normalized_shape: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Run ``layer_norm`` on one sample, which it refuses, as a batch of one."""
    shape = normalized_shape
    shape = [*shape] if isinstance(shape, list | tuple) else [shape]
    if not isinstance(x, Tensor) or x.shape != shape:
        return operator(x, normalized_shape, *args, **kwargs)
    return operator(x.unsqueeze(0), normalized_shape, *args, **kwargs).squeeze(0)


def group_norm(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    groups: int = -1,
    data_format: str = "NCHW",
) -> Any:
    layout = Layout(x, data_format)

    def primitives() -> Tensor:
        y = _normalized(*layout.grouped(x, groups), epsilon).reshape(x.shape)
        return layout.scaled(y, scale, bias)

    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, w, b, epsilon, groups, data_format),
        primitives,
        [layout.channels],
    )


def has_small_scale(scale: Tensor, bias: Tensor | None) -> bool:
    """Tell whether ``group_norm_grad`` is wrong, which divides by the scale.

    It takes what was normalized from the result, as ``(y - bias) / scale``.
    """
    with paddle.no_grad():
        threshold = paddle.zeros_like(scale) if bias is None else bias.abs() / 64
        return bool((scale.abs() <= threshold).any())


def is_group_norm_wrong(
    result: Any, x: Tensor, scale: Any = None, bias: Any = None, *_: Any
) -> bool:
    """Tell that of a call of ``group_norm`` and its result."""
    return scale is not None and has_small_scale(scale, bias)


def instance_norm(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
) -> Any:
    layout = Layout(x)
    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, w, b, epsilon),
        lambda: layout.scaled(
            _normalized(x, [*range(2, x.ndim)], single(epsilon)), scale, bias
        ),
        [layout.channels],
    )


def batch_norm(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_format: str,
    use_global_stats: bool,
    trainable_statistics: bool,
) -> Any:
    layout = Layout(x, data_format)
    rest = is_test, momentum, epsilon, data_format, use_global_stats
    uses_stored = use_global_stats or (is_test and not trainable_statistics)

    def primitives() -> Any:
        stored_mean, stored_variance = mean.clone(), variance.clone()
        with paddle.no_grad():  # the statistics move on as they do
            detached = [None if t is None else t.detach() for t in (x, scale, bias)]
            result = operator(
                detached[0], mean, variance, *detached[1:], *rest, trainable_statistics
            )
        if uses_stored:
            centred = x - stored_mean.reshape(layout.shape)
            spread = stored_variance.reshape(layout.shape) + single(epsilon)
            y = centred * paddle.pow(spread, -0.5)
        elif x.size == layout.channels:  # of one value each, which Paddle leaves
            return (x.clone(), *result[1:])
        else:
            y = _normalized(x, layout.others, single(epsilon))
        return (layout.scaled(y, scale, bias), *result[1:])

    return _norm(
        context,
        (x, scale, bias),
        lambda x, w, b: operator(x, mean, variance, w, b, *rest, trainable_statistics),
        primitives,
        [layout.channels],
    )


MAX_NORM_EPSILON = 1e-37
"""Largest number that Paddle's gradient of a norm adds to it."""


def is_steep(order: float) -> bool:
    """Tell whether the power that Paddle divides by is lost beside that number."""
    return 2.0 < order < math.inf


def is_largest(x: Tensor, order: float) -> bool:
    """Tell whether a norm is the largest or smallest entry by its size."""
    return math.isinf(order) and bool(x.size) and not x.is_complex()


def largest(
    x: Tensor, order: float, axis: int, keepdim: bool, as_vector: bool
) -> Tensor:
    """Return a norm of infinite order, whose gradient entries of one size share.

    Paddle's own gives each of them all of it.
    """
    axes = [*range(x.ndim)] if as_vector else [axis]
    result: Tensor = (ops.amax if order > 0 else ops.amin)(ops.abs(x), axes, keepdim)
    return result


def p_norm(operator: Any, context: RuleContext, *args: Any) -> Tensor:
    """Return a norm; Paddle adds epsilon in the gradient alone, so it is kept small."""
    x, order, axis, epsilon, *rest = args
    if is_traced(x) and is_largest(x, order):
        return largest(x, order, axis, *rest)
    if is_traced(x) and is_steep(order):
        raise NotImplementedError(
            f"Paddle's gradient of a norm of the order {order} is wrong for small "
            "vectors; take it by grad, vjp or a net of this package"
        )
    result: Tensor = operator(x, order, axis, min(epsilon, MAX_NORM_EPSILON), *rest)
    return result
