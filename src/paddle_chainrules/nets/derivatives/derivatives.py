"""Derivatives of nets with respect to their input, for PDEs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import paddle
from paddle import Tensor

from ...paddle_side.arguments import checked_integer
from ...paddle_side.dtypes import dtype_name
from ...paddle_side.static_graphs import need_tensors, sot
from ...programs import partials
from ...transforms.containers.tree import Tree
from ..checks import check_tensor
from ..net import Net
from ..parameters.params import Params
from .columns import Column, check_floating, column, tensors_of, with_distinct_tensors
from .derivative_programs import run_as_program, with_guards

MultiIndex = tuple[int, ...]
Direction = Callable[[Sequence[Tensor]], Sequence[Tensor | None]]
"""As :func:`.partials` takes it."""

MAX_ORDER = 4


@with_guards
def taylor(
    net: Net | Callable[[Any, Any], Tensor],
    params: Any,
    x: Tensor,
    directions: Tensor,
    order: int,
) -> tuple[Tensor, ...]:
    """Return value and directional derivatives of a net of one tensor, in one pass.

    It is like ``jax.experimental.jet``, for any number of directions at once. Taylor
    series go through the net's operators, also where nested ``paddle.grad`` finds no
    kernels. The results are differentiable with respect to parameters, ``x`` and
    ``directions``, in any order.

    Args:
        net: an :class:`FCNet`, ``stateless`` of a layer, or any function of parameters
            and x.
        params: the parameters, as the net takes them.
        x: shape [n, d], or [..., d].
        directions: shape [d] for one, [k, d] for k of them, the same at all points.
        order: 0 to 4.

    Returns:
        ``(y, d1, ..., d_order)``: y of shape [n, out], and the derivatives ``d^j/dt^j
        net(x + t v)`` at t = 0 of shape [n, out], or [k, n, out] for k directions.

    Raises:
        CaptureError: the net is no program.
        TypeError: a tensor of another dtype than the net's, an order that is no
            integer.
        ValueError: an order out of range, a direction of another length.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, taylor
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> along_x = paddle.to_tensor([1.0, 0.0], dtype="float64")
        >>> u, u_x, u_xx = taylor(net, net.init(0), x, along_x, order=2)
        >>> u_xx.shape
        paddle.Size([5, 1])
    """
    degree = checked_integer("order", order)
    if not 0 <= degree <= MAX_ORDER:
        raise ValueError(
            f"order must be 0 to {MAX_ORDER}, got {degree}; {HIGHER_ORDER_ADVICE}"
        )
    width = check_input(net, params, x)
    check_tensor("directions", directions, dtype_name(x.dtype))
    if directions.ndim not in (1, 2) or directions.shape[-1] != width:
        raise ValueError(
            f"directions have shape {list(directions.shape)}, x {list(x.shape)}; a "
            f"direction has one entry per input: [{width}], or [k, {width}] for k"
        )
    indices = [(j,) for j in range(degree + 1)]

    def derivatives_along(
        params: Params, x: Tensor, directions: Tensor
    ) -> tuple[Tensor, ...]:
        if not directions.shape[0]:
            y = net(params, x)
            check_floating("the net's result", y)
            zeros = [paddle.zeros([0, *y.shape], y.dtype) for _ in indices[1:]]
            return y, *zeros
        vectors = [directions] if directions.ndim == 1 else paddle.unbind(directions)
        results = [
            _partials(net, params, x, [_same_direction(vector)], indices)
            for vector in vectors
        ]
        if directions.ndim == 1:
            return tuple(results[0])
        stacked = map(paddle.stack, [*zip(*results, strict=True)][1:])
        return results[0][0], *stacked

    result: tuple[Tensor, ...] = run_as_program(
        net, ("taylor", degree), derivatives_along, params, x, directions
    )
    return result


def derivative(
    net: Net | Callable[[Any, Any], Tensor],
    params: Any,
    x: Tensor,
    multi_index: Sequence[int],
) -> Tensor:
    """Return one partial derivative of a net of one tensor, in one pass: u_x, u_xy, ...

    Args:
        net: as for :func:`taylor`.
        params: dict or theta.
        x: shape [n, d], or [..., d].
        multi_index: how often to differentiate with respect to each of the d inputs, at
            most four times together: ``(2, 0)`` is u_xx, ``(1, 1)`` is u_xy.

    Returns:
        The derivative of every output, shape [n, out]; differentiable with respect to
        parameters and ``x``, in any order.

    Raises:
        CaptureError: the net is no program.
        TypeError: a tensor of another dtype than the net's, an index of something else
            than integers.
        ValueError: an index of another length, negative, or of too high an order.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, derivative
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> u_xy = derivative(net, net.init(0), x, (1, 1))
        >>> u_xy.shape
        paddle.Size([5, 1])
    """
    need_tensors(sot.fallback(True))
    index = check_multi_index(multi_index, check_input(net, params, x))
    result: Tensor = derivatives(net, params, x, (index,))[0]
    return result


@overload
def derivatives(
    net: Net | Callable[[Any, Any], Tensor],
    params: Tree,
    x: Tensor,
    wanted: Sequence[Sequence[int]],
) -> tuple[Tensor, ...]: ...


@overload
def derivatives(
    net: Net | Callable[[Any, Any], Tree],
    params: Tree,
    x: Tree,
    wanted: Mapping[str, Sequence[Any]],
) -> dict[str, Tensor]: ...


@with_guards
def derivatives(
    net: Net | Callable[[Any, Any], Tree], params: Tree, x: Tree, wanted: Any
) -> tuple[Tensor, ...] | dict[str, Tensor]:
    """Return several partial derivatives of a net, in one pass.

    It does as :func:`derivative`, for all that a differential equation names. They
    share what they have in common, and cost little more than the highest of them alone.
    Give multi-indices for a net of one tensor, or names for any function of parameters
    and coordinates.

    Args:
        net: a net, or a function ``(params, x)``; each row of its result depends on
            that row of the coordinates alone.
        params: the parameters, as the net takes them.
        x: shape [n, d], or [..., d]; by names also a dict, tuple, named tuple or list
            of columns.
        wanted: multi-indices, each once, where ``(0, 0)`` is the value. Or a dict: by a
            name of your own, the output and the coordinates to differentiate with
            respect to, such as ``{"u_xx": ("u", "x", "x")}``. Each is a key, a field or
            an index, the column of a single array among them. None means the whole of
            an output that is one array.

    Returns:
        One tensor of shape [n, out] for each multi-index, in their order; or a dict of
        the same names, with tensors of the outputs' shapes, [n, 1] for a column.

    Raises:
        CaptureError: the net is no program.
        TypeError, ValueError: as :func:`derivative`; an index that is given twice, a
            name that is not there, rows that depend on others.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, derivatives
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> wanted = (0, 0), (0, 1), (1, 0), (2, 0)
        >>> u, u_t, u_x, u_xx = derivatives(net, net.init(0), x, wanted)
        >>> residual = u_t + u * u_x - 0.01 * u_xx
        >>> residual.shape
        paddle.Size([5, 1])
        >>> found = derivatives(net, net.init(0), x, {"u_xx": (0, 0, 0)})
        >>> bool(paddle.allclose(found["u_xx"], u_xx))
        True
    """
    if isinstance(wanted, Mapping):
        return _partials_by_name(net, params, x, wanted)
    width = check_input(net, params, x)
    return _partials_by_index(net, params, x, check_multi_indices(wanted, width))


def _partials_by_index(
    net: Any, params: Any, x: Tensor, indices: Sequence[MultiIndex]
) -> tuple[Tensor, ...]:
    used = [i for i, orders in enumerate(zip(*indices, strict=True)) if any(orders)]
    used_indices = [tuple(index[i] for i in used) for index in indices]

    def compute(params: Params, x: Tensor) -> tuple[Tensor, ...]:
        directions = [_column_direction(Column(None, i)) for i in used]
        by_rows = x.ndim > 1
        return tuple(_partials(net, params, x, directions, used_indices, by_rows))

    result: tuple[Tensor, ...] = run_as_program(net, tuple(indices), compute, params, x)
    return result


def _partials_by_name(
    net: Any, params: Tree, coords: Tree, wanted: Mapping[str, Sequence[Any]]
) -> dict[str, Tensor]:
    """Do the work of :func:`derivatives` for columns given by names."""
    wanted = {name: _checked_derivative(name, names) for name, names in wanted.items()}
    if not wanted:
        raise ValueError("derivatives need one name at least, such as {'u': ('u',)}")
    coords = with_distinct_tensors(coords)
    column_of = {
        entry: column(coords, entry, "coords", single=True)
        for names in wanted.values()
        for entry in names[1:]
    }
    columns = [*dict.fromkeys(column_of.values())]
    output_names = [*dict.fromkeys(names[0] for names in wanted.values())]
    indices = {
        name: tuple([column_of[entry] for entry in names[1:]].count(c) for c in columns)
        for name, names in wanted.items()
    }
    requested = [
        (output_names.index(names[0]), indices[name]) for name, names in wanted.items()
    ]

    def compute(params: Tree, coords: Tree) -> dict[str, Tensor]:
        point, fill = tensors_of(coords)
        output_columns: list[Column] = []

        def outputs(tensors: list[Tensor]) -> list[Tensor]:
            result = net(params, fill(tensors))
            output_columns[:] = [
                Column(None, None)
                if name is None and isinstance(result, Tensor)
                else column(result, name, "the net's output", single=False)
                for name in output_names
            ]
            return [col.tensor_in(result) for col in output_columns]

        def direction_of(col: Column) -> Direction:
            tensor = col.tensor_in(coords)
            is_moved = [x is tensor for x in point]
            within_tensor = Column(None, col.at)
            return lambda point: [
                within_tensor.direction(x) if flag else None
                for x, flag in zip(point, is_moved, strict=True)
            ]

        by_rows = not (isinstance(coords, Tensor) and coords.ndim < 2)
        all_partials = partials(
            outputs, point, [*map(direction_of, columns)], requested, by_rows
        )
        return {
            name: Column(None, output_columns[n].at).of(entry)
            for (name, entry), (n, _) in zip(
                zip(wanted, all_partials, strict=True), requested, strict=True
            )
        }

    key = "by name", tuple(wanted.items()), tuple(column_of.items())
    return run_as_program(net, key, compute, params, coords)


def are_names(names: Any) -> bool:
    """Tell whether it is a sequence of one or more names of columns."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        return False
    return all(name is None or isinstance(name, (str, int, tuple)) for name in names)


def _checked_derivative(name: str, names: Any) -> tuple[Any, ...]:
    if not are_names(names):
        raise TypeError(
            f"{name!r} must name an output and what it is differentiated by, such as "
            f"('u', 'x', 'x'), got {names!r}"
        )
    if len(names) - 1 > MAX_ORDER:
        raise ValueError(
            f"{name!r} is of order {len(names) - 1}, the highest is {MAX_ORDER}; "
            f"{HIGHER_ORDER_ADVICE}"
        )
    return tuple(names)


def _column_direction(col: Column) -> Direction:
    return lambda point: [col.direction(point[0])]


def _same_direction(direction: Tensor) -> Direction:
    return lambda point: [direction.expand(point[0].shape)]


def _partials(
    net: Any,
    params: Any,
    x: Tensor,
    directions: Sequence[Direction],
    indices: Sequence[MultiIndex],
    by_rows: bool = False,
) -> list[Tensor]:
    """Return derivatives of the whole output of a net of one tensor."""
    wanted = [(0, index) for index in indices]

    def outputs(point: list[Tensor]) -> list[Tensor]:
        result = net(params, *point)
        check_floating("the net's result", result)
        return [result]

    return partials(outputs, [x], directions, wanted, by_rows)


HIGHER_ORDER_ADVICE = (
    "differentiate a lower derivative with respect to x once more, by vjp or "
    "paddle.grad, for the order above"
)


def check_multi_indices(
    multi_indices: Sequence[Sequence[int]], width: int
) -> tuple[MultiIndex, ...]:
    """Check several multi-indices; none may be there twice."""
    try:
        candidates = list(multi_indices)
    except (TypeError, AssertionError) as error:  # of a tensor without dimensions
        raise TypeError(
            "multi_indices must be a sequence of multi-indices, got "
            f"{multi_indices!r}; give for example [(0, 0), (2, 0)]"
        ) from error
    indices = tuple(check_multi_index(index, width) for index in candidates)
    if not indices or len(set(indices)) < len(indices):
        raise ValueError(
            f"multi_indices must name one derivative at least, and each once; got "
            f"{indices}"
        )
    return indices


def check_multi_index(multi_index: Sequence[int], width: int) -> MultiIndex:
    """Return a multi-index as a tuple of ints; refuse one that is none of the input."""
    example = (2, *(0,) * (width - 1))
    try:
        index = tuple(checked_integer("a multi-index entry", m) for m in multi_index)
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
            f"{MAX_ORDER}; {HIGHER_ORDER_ADVICE}"
        )
    return index


def check_input(net: Any, params: Any, x: Any) -> int:
    """Check the arguments; return the number of inputs."""
    if isinstance(net, Net) and net.spec.dtypes:
        check_tensor("x", x, net.spec.dtypes[0])
        net._check(params, (x,))
    else:
        check_floating("x", x)
    if not x.ndim:
        raise TypeError(
            "x has shape [], where derivatives by indices need a column for each: "
            "[n, d]; give x.reshape([1, 1])"
        )
    return int(x.shape[-1])
