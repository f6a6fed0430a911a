"""Derivatives of fully connected nets with respect to their input, for PDEs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ..paddle_side.dtypes import dtype_name
from ..paddle_side.grad_mode import grad_mode
from ..paddle_side.listener import listener
from ..programs import second_order
from ..programs.activation_derivatives import DERIVATIVES, MAX_ORDER, Derivatives
from ..programs.jets import Jet, MultiIndex, indices_up_to, propagate
from ..programs.second_order_plans import HIGHEST_ORDER, Plan, laplacian_plan, plan_of
from ..programs.weights import Weights, as_rows, weights_of
from ..transforms.recording import records_graph
from ..transforms.tree import flatten_tree
from .checks import check_tensor, check_width
from .fcnet import FCNet
from .net import Net
from .params import Params


def taylor(
    net: Net, params: Params, x: Tensor, directions: Tensor, order: int
) -> tuple[Tensor, ...]:
    """Value and directional derivatives of a fully connected net, in one pass.

    Like ``jax.experimental.jet``, for any number of directions at once. Exact for the
    built-in activations, where nested ``paddle.grad`` finds no kernels; differentiable
    once more with respect to parameters, ``x`` and ``directions``.

    Args:
        net: an :class:`FCNet` with a built-in activation, or ``stateless`` of a
            ``Sequential`` of Linear layers with one of them between.
        params: dict or theta.
        x: shape [n, d], or [..., d].
        directions: shape [d] for one, [k, d] for k of them, the same at all points.
        order: 0 to 4.

    Returns:
        ``(y, d1, ..., d_order)``: y of shape [n, out], and the derivatives ``d^j/dt^j
        net(x + t v)`` at t = 0 of shape [n, out], or [k, n, out] for k directions.

    Raises:
        TypeError: a net without closed form, a tensor of another dtype than the net's,
            an order that is no integer.
        ValueError: an order out of range, a direction of another length.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, taylor
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> along_x = paddle.to_tensor([1.0, 0.0], dtype="float64")
        >>> u, u_x, u_xx = taylor(net, net.init(0), x, along_x, order=2)
        >>> u_xx.shape
        paddle.Size([5, 1])
    """
    degree = _integer("order", order)
    if not 0 <= degree <= MAX_ORDER:
        raise ValueError(f"order must be 0 to {MAX_ORDER}, got {degree}; {BEYOND}")
    derivatives, width = check_input(net, params, x)
    check_tensor("directions", directions, dtype_name(x.dtype))
    if directions.ndim not in (1, 2) or directions.shape[-1] != width:
        raise ValueError(
            f"directions have shape {list(directions.shape)}, x {list(x.shape)}; a "
            f"direction has one entry per input: [{width}], or [k, {width}] for k"
        )
    lead = list(directions.shape[:-1])
    indices = [(j,) for j in range(degree + 1)]
    with recording(params, x, directions):
        weights = weights_of(list(net.spec.as_dict(params).values()))
        seeds: dict[MultiIndex, Tensor] = {(1,): directions.reshape([*lead, 1, width])}
        jet = propagate(derivatives, weights, as_rows(x), seeds, indices)
        return tuple(
            _value(jet, index, x, lead if any(index) else []) for index in indices
        )


def derivative(
    net: Net, params: Params, x: Tensor, multi_index: Sequence[int]
) -> Tensor:
    """One partial derivative of a fully connected net, in one pass: u_x, u_xy, ...

    Args:
        net: as for :func:`taylor`.
        params: dict or theta.
        x: shape [n, d], or [..., d].
        multi_index: how often to differentiate by each of the d inputs, at most four
            times together: ``(2, 0)`` is u_xx, ``(1, 1)`` is u_xy.

    Returns:
        The derivative of every output, shape [n, out]; differentiable once more with
        respect to parameters and ``x``, in closed form up to order two.

    Raises:
        TypeError: a net without closed form, a tensor of another dtype than the net's,
            an index of something else than integers.
        ValueError: an index of another length, negative, or of too high an order.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, derivative
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> u_xy = derivative(net, net.init(0), x, (1, 1))
        >>> u_xy.shape
        paddle.Size([5, 1])
    """
    table, width = check_input(net, params, x)
    return _partials(net, params, x, table, (check_multi_index(multi_index, width),))[0]


def derivatives(
    net: Net, params: Params, x: Tensor, multi_indices: Sequence[Sequence[int]]
) -> tuple[Tensor, ...]:
    """Several partial derivatives of a fully connected net, in one pass.

    As :func:`derivative`, for all that a differential equation names: they share what
    they have in common, and cost little more than the highest of them alone.

    Args:
        net: as for :func:`taylor`.
        params: dict or theta.
        x: shape [n, d], or [..., d].
        multi_indices: one per derivative, each once; ``(0, 0)`` is the value.

    Returns:
        One tensor of shape [n, out] per index, in their order.

    Raises:
        TypeError, ValueError: as :func:`derivative`; an index that is given twice.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, derivatives
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> wanted = (0, 0), (0, 1), (1, 0), (2, 0)
        >>> u, u_t, u_x, u_xx = derivatives(net, net.init(0), x, wanted)
        >>> residual = u_t + u * u_x - 0.01 * u_xx
        >>> residual.shape
        paddle.Size([5, 1])
    """
    table, width = check_input(net, params, x)
    return tuple(
        _partials(net, params, x, table, check_multi_indices(multi_indices, width))
    )


def laplacian(net: Net, params: Params, x: Tensor) -> Tensor:
    """The sum of the second derivatives of a fully connected net by each of its inputs.

    Exact and in one pass; differentiable with respect to parameters and ``x``, where
    its reverse pass is in closed form too, and twice.

    Args:
        net: as for :func:`taylor`.
        params: dict or theta.
        x: shape [n, d], or [..., d].

    Returns:
        The Laplacian of every output, shape [n, out].

    Raises:
        TypeError: a net without closed form, a tensor of another dtype than the net's.
        ValueError: an x of another width.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, laplacian
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> laplacian(net, net.init(0), x).shape
        paddle.Size([5, 1])
    """
    table, width = check_input(net, params, x)
    return _carried_by(laplacian_plan(width), net, params, x, table)[0]


def _partials(
    net: Net,
    params: Params,
    x: Tensor,
    table: Derivatives,
    indices: tuple[MultiIndex, ...],
) -> list[Tensor]:
    if max(map(sum, indices)) <= HIGHEST_ORDER:
        return _carried_by(plan_of(indices), net, params, x, table)
    with recording(params, x):
        weights = weights_of(list(net.spec.as_dict(params).values()))
        return partial_derivatives(table, weights, x, indices)


def _carried_by(
    plan: Plan, net: Net, params: Params, x: Tensor, table: Derivatives
) -> list[Tensor]:
    with recording(params, x):
        values = list(net.spec.as_dict(params).values())
        # In a program its operators have rules of their own.
        if paddle.is_grad_enabled() and listener() is None:
            return second_order.recorded(plan, table, values, x)
        return second_order.value(plan, table, weights_of(values), x)


def partial_derivatives(
    table: Derivatives, weights: Weights, x: Tensor, indices: Sequence[MultiIndex]
) -> list[Tensor]:
    """The formula of :func:`derivatives` for any order, unchecked."""
    used = [i for i, orders in enumerate(zip(*indices, strict=True)) if any(orders)]
    tops = [tuple(index[i] for i in used) for index in indices]
    units = paddle.eye(len(indices[0]), dtype=x.dtype)
    seeds: dict[MultiIndex, Tensor] = {
        tuple(int(j == i) for j in used): units[i : i + 1] for i in used
    }
    below = sorted({i for top in tops for i in indices_up_to(top)}, key=sum)
    jet = propagate(table, weights, as_rows(x), seeds, below)
    return [_value(jet, top, x, []) for top in tops]


def directional_derivative(
    derivatives: Derivatives, weights: Weights, x: Tensor, direction: Tensor
) -> Tensor:
    """The derivative along one direction for all points, or one for each; unchecked."""
    seeds: dict[MultiIndex, Tensor] = {
        (1,): as_rows(direction) if direction.ndim > 1 else direction.unsqueeze(0)
    }
    jet = propagate(derivatives, weights, as_rows(x), seeds, [(0,), (1,)])
    return _value(jet, (1,), x, [])


BEYOND = (
    "differentiate a lower derivative with respect to x once more, by vjp or "
    "paddle.grad, for the order above"
)


def check_multi_indices(
    multi_indices: Sequence[Sequence[int]], width: int
) -> tuple[MultiIndex, ...]:
    """The same of several, of which each may be there once."""
    try:
        given = list(multi_indices)
    except TypeError as error:
        raise TypeError(
            "multi_indices must be a sequence of multi-indices, got "
            f"{multi_indices!r}; give for example [(0, 0), (2, 0)]"
        ) from error
    indices = tuple(check_multi_index(index, width) for index in given)
    if not indices or len(set(indices)) < len(indices):
        raise ValueError(
            f"multi_indices must name one derivative at least, and each once; got "
            f"{indices}"
        )
    return indices


def check_multi_index(multi_index: Sequence[int], width: int) -> MultiIndex:
    """The multi-index as a tuple of ints, refused where it is none of a net's input."""
    example = (2, *(0,) * (width - 1))
    try:
        index = tuple(_integer("a multi-index entry", m) for m in multi_index)
    except TypeError as error:
        raise TypeError(
            f"multi_index must be a sequence of {width} integers, such as {example}, "
            f"got {multi_index!r}"
        ) from error
    if len(index) != width or min(index) < 0:
        raise ValueError(
            f"multi_index {index} must have one entry per input, {width}, and none "
            f"negative; {example} is the second derivative by the first"
        )
    if sum(index) > MAX_ORDER:
        raise ValueError(
            f"multi_index {index} is of order {sum(index)}, the highest is "
            f"{MAX_ORDER}; {BEYOND}"
        )
    return index


def derivatives_of(net: Any) -> Derivatives:
    """The derivatives of a net's activation.

    Raises:
        TypeError: it has none in closed form.
    """
    if isinstance(net, FCNet) and isinstance(net.activation, str):
        return DERIVATIVES[net.activation]
    if isinstance(net, Net) and net.chain is not None:
        return DERIVATIVES[net.chain.activation]
    kind = (
        f"an FCNet with the activation {net.activation!r}"
        if isinstance(net, FCNet)
        else repr(net)
    )
    raise TypeError(
        "derivatives in closed form need an FCNet, or stateless of a Sequential of "
        f"Linear layers, with one of the activations {sorted(DERIVATIVES)}; got "
        f"{kind}. For anything else use jvp, hvp or hessian, which nest paddle.grad"
    )


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be an integer, got {value!r}; give int({name}) where it "
            "counts something"
        ) from None


def check_input(net: Net, params: Params, x: Any) -> tuple[Derivatives, int]:
    """The activation's derivatives and the number of inputs, the arguments checked."""
    derivatives = derivatives_of(net)
    check_tensor("x", x, net.spec.dtypes[0])
    net._check(params, (x,))
    width = net.spec.shapes[0][0]
    check_width(x, width)
    return derivatives, width


def recording(params: Params, *tensors: Tensor) -> Any:
    """The mode that records a graph where a tensor asks for it."""
    given, _ = flatten_tree(params)
    return grad_mode(records_graph([*tensors, *given]))


def _value(jet: Jet, index: MultiIndex, x: Tensor, lead: list[int]) -> Tensor:
    """A derivative at every point: [*lead, ..., out] for x of shape [..., d]."""
    value = jet[(0,) * len(index)]
    assert value is not None
    n, width = value.shape
    found = jet[index]
    if found is None:
        found = paddle.zeros([1, width], value.dtype)
    if found.shape[-2] != n or found.ndim != len(lead) + 2:
        found = found.expand([*lead, n, width])
    return found if x.ndim == 2 else found.reshape([*lead, *x.shape[:-1], width])
