"""Divergence and curl of nets whose outputs are the components of a field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from operator import add
from typing import Any

import paddle
from paddle import Tensor

from ...transforms.containers.tree import Tree
from ..net import Net
from .columns import Column
from .derivatives import are_names, derivatives
from .laplacians import columns_of

Pair = tuple[int, int]
"""A component, and the coordinate that it is differentiated by."""


def divergence(
    net: Net | Callable[[Any, Any], Tree],
    params: Tree,
    x: Tree,
    *,
    of: Sequence[Any] | None = None,
    by: Sequence[Any] | None = None,
) -> Tensor:
    """Return the sum of a field's derivatives, of each component by its coordinate.

    It is exact, takes one pass, and is differentiable with respect to parameters and
    coordinates.

    Args:
        net: a net, or a function ``(params, x)``; each row of its result depends on
            that row of the coordinates alone.
        params: the parameters, as the net takes them.
        x: shape [n, d], or a dict, tuple or list of columns.
        of: the components, named as in :func:`derivatives`. Without it, all columns of
            the net's output, which then has to be one array.
        by: the coordinates, one for each component; all of them if not given.

    Returns:
        Shape [n, 1], or [n] if the components have that shape.

    Raises:
        ValueError: another number of components than of coordinates, components of
            other shapes, unknown names, rows that depend on others.
        TypeError: ``of`` or ``by`` is no sequence of names.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import divergence
        >>> growing = lambda rate, x: rate * x**2
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> divergence(growing, paddle.to_tensor(0.5), x).tolist()  # x + y
        [[3.0], [7.0]]
    """
    slopes, _ = _slopes(net, params, x, of, by, lambda d: [(i, i) for i in range(d)])
    return reduce(add, slopes)


def curl(
    net: Net | Callable[[Any, Any], Tree],
    params: Tree,
    x: Tree,
    *,
    of: Sequence[Any] | None = None,
    by: Sequence[Any] | None = None,
) -> Tensor:
    """Return the curl of a field of three components, or of two in the plane.

    Args: as of :func:`divergence`.

    Returns:
        Shape [n, 3], in right-handed coordinates. In the plane it is ``dv/dx - du/dy``
        of the field ``(u, v)``, of shape [n, 1], or [n] if the components have that
        shape.

    Raises:
        ValueError: other than two or three coordinates, or as :func:`divergence`.
        TypeError: as :func:`divergence`.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import curl
        >>> turning = lambda speed, x: speed * paddle.stack([-x[:, 1], x[:, 0]], 1)
        >>> x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> curl(turning, paddle.to_tensor(0.5), x).tolist()
        [[1.0], [1.0]]
    """
    slopes, join = _slopes(net, params, x, of, by, _curl_pairs)
    components = [
        plus - minus for plus, minus in zip(slopes[::2], slopes[1::2], strict=True)
    ]
    return components[0] if len(components) == 1 else join(components, -1)


def _curl_pairs(d: int) -> list[Pair]:
    """Return the pairs of a curl: two by two, whose slopes are subtracted."""
    if d not in (2, 3):
        raise ValueError(
            f"a curl is of a field over two or three coordinates, got {d}; name those "
            "of space, such as by=('x', 'y'), and the components by of=('u', 'v')"
        )
    axis_pairs = [(0, 1)] if d == 2 else [(1, 2), (2, 0), (0, 1)]
    return [pair for i, j in axis_pairs for pair in ((j, i), (i, j))]


def _slopes(
    net: Any,
    params: Tree,
    x: Tree,
    of: Sequence[Any] | None,
    by: Sequence[Any] | None,
    pairs_of: Callable[[int], list[Pair]],
) -> tuple[list[Tensor], Callable[..., Tensor]]:
    """Return first derivatives, by the components and coordinates of each pair."""
    columns = columns_of(x, by)
    coordinates = [*map(_column_name, columns)]
    points = _points(x, columns)
    count = len(coordinates)
    pairs = pairs_of(count)
    if of is None:
        wanted = {str(j): (None, name) for j, name in enumerate(coordinates)}
        partials = derivatives(net, params, x, wanted)
        shape = [*partials["0"].shape]
        if shape != [*points, count]:
            trailing = shape[len(points) :]
            is_wide = len(trailing) == 1 and shape[:-1] == points
            shape_text = f"{trailing[0]} columns" if is_wide else f"shape {shape}"
            raise ValueError(
                f"the net gives {shape_text}, where each column of {[*points, count]} "
                f"would be a component of a field over {count} coordinates; name the "
                "components, such as of=(0, 1), and the coordinates, such as by=(0, 1)"
            )
        return [partials[str(j)][..., i : i + 1] for i, j in pairs], paddle.concat
    components = _checked_components(of)
    if len(components) != count:
        raise ValueError(
            f"a field has a component for each coordinate, got {len(components)} "
            f"components {components} and {count} coordinates {coordinates}; name as "
            "many by of= and by="
        )
    named = {str(pair): (components[pair[0]], coordinates[pair[1]]) for pair in pairs}
    slopes = [*derivatives(net, params, x, named).values()]
    shapes = {
        components[i]: [*s.shape] for (i, _), s in zip(pairs, slopes, strict=True)
    }
    for first in ([*points, 1], points):
        if all(shape == first for shape in shapes.values()):
            return slopes, paddle.stack if first == points else paddle.concat
    raise ValueError(
        f"components of a field are all of shape {[*points, 1]} or all {points}, as "
        f"the coordinates are, got {shapes}; name one column of several, such as "
        "('u', 0), and reshape the others"
    )


def _points(x: Tree, columns: Sequence[Column]) -> list[int]:
    """Return the shape of the points that columns are at; [] for one point."""
    tensors = [col.tensor_in(x) for col in columns]
    is_one = isinstance(x, Tensor)
    point_shapes = [
        [*t.shape[:-1]] if is_one or t.ndim > 1 else [*t.shape] for t in tensors
    ]
    return max(point_shapes, key=prod)


def _column_name(col: Column) -> Any:
    """Return the name by which :func:`derivatives` knows a column."""
    if col.key is None or col.at is None:
        return col.at if col.key is None else col.key
    return tuple(col)


def _checked_components(of: Any) -> list[Any]:
    if not are_names(of):
        raise TypeError(
            f"of must be a sequence of names of components, got {of!r}; give for "
            "example of=('u', 'v'), or of=(0, 1) of one tensor"
        )
    return [*of]
