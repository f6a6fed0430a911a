"""Laplacians of nets by their input: exact in one pass, or estimated by probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import paddle
from paddle import Tensor

from ...programs.derivatives.partials import UNROLLED, Rows, second_sums
from ...programs.static_graphs import need_tensors, sot
from ...transforms.containers.tree import Tree, flatten_tree
from ..net import Net
from ..parameters.params import Params
from .columns import Column, check_floating, column, each_apart, tensors_of
from .derivative_programs import run_kept
from .directions import Directions, by_sign, directions, estimated


@overload
def laplacian(
    net: Net,
    params: Params,
    x: Tensor,
    weights: Any = None,
    *,
    by: Sequence[Any] | None = None,
    estimator: str | None = None,
    probes: int | None = None,
    seed: int | None = None,
) -> Tensor: ...


@overload
def laplacian(
    net: Callable[[Any, Any], Tree],
    params: Tree,
    x: Tree,
    weights: Any = None,
    *,
    by: Sequence[Any] | None = None,
    estimator: str | None = None,
    probes: int | None = None,
    seed: int | None = None,
) -> Tree: ...


def laplacian(
    net: Net | Callable[[Any, Any], Tree],
    params: Tree,
    x: Tree,
    weights: Any = None,
    *,
    by: Sequence[Any] | None = None,
    estimator: str | None = None,
    probes: int | None = None,
    seed: int | None = None,
) -> Tree:
    """Return the sum of a net's second derivatives by its coordinates, in one pass.

    It is exact, and differentiable with respect to parameters and coordinates. Second
    derivatives are summed layer by layer, as in the forward Laplacian of Li et al., "A
    computational framework for neural network-based variational Monte Carlo with
    forward Laplacian", 2023. So many coordinates cost little more than their first
    derivatives.

    In high dimension it may be estimated by a few second derivatives along random
    directions, without bias. With the Hessian H and k probes the variance is ``2 / k``
    times the sum of squares of H's entries beside its diagonal (``"hutchinson"``, of
    random signs); or ``d (d - k) / k`` times the variance of the d entries of its
    diagonal (``"stde"``, of k coordinates drawn without being put back; over d - 1).
    Directions are those of all points of a call; Hu et al., "Stochastic Taylor
    derivative estimator", NeurIPS 2024.

    Args:
        net: a net, or a function of parameters and coordinates; each row of its result
            depends on that row of the coordinates alone.
        params: what it takes as parameters.
        x: shape [n, d], or a dict, tuple or list of such columns.
        weights: the weights of the second derivatives, numbers of shape [d], which may
            be negative; or a constant matrix ``a`` of shape [d, d], for
            ``sum of a[i, j] d2u / dx_i dx_j``.
        by: the coordinates, if not all: names and indices as in :func:`derivatives`.
        estimator: ``"hutchinson"`` or ``"stde"``.
        probes: how many directions the estimator takes.
        seed: the seed of the directions.

    Returns:
        Nested as the net's output, each of its shape.

    Raises:
        TypeError: an estimator without probes or seed, or these without one.
        ValueError: rows that depend on others, unknown names, weights of another shape,
            more probes than coordinates.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, laplacian
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> laplacian(net, net.init(0), x).shape
        paddle.Size([5, 1])
    """
    need_tensors(sot.fallback(True))
    places = columns_of(x, by)
    along = directions(len(places), weights)
    if estimator is not None or probes is not None or seed is not None:
        along = estimated(along, estimator, probes, seed)
    total: Tree = _summed(net, params, x, places, along, alone=True)
    return total


def forward_laplacian(
    net: Net | Callable[[Any, Any], Tree],
    params: Tree,
    x: Tree,
    weights: Any = None,
    *,
    by: Sequence[Any] | None = None,
) -> tuple[Tree, Tree, Tree]:
    """Return value, all first derivatives and the Laplacian of a net, in one pass.

    Args: as of :func:`laplacian`.

    Returns:
        ``(y, jacobian, laplacian)``, each nested as the net's output; the jacobian of
        shape [n, out, d], by the d coordinates in their order.

    Raises:
        TypeError, ValueError: as :func:`laplacian`.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, forward_laplacian
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> y, jacobian, total = forward_laplacian(net, net.init(0), x)
        >>> jacobian.shape
        paddle.Size([5, 1, 2])
    """
    need_tensors(sot.fallback(True))
    places = columns_of(x, by)
    along = directions(len(places), weights)
    if len(along) < len(places):
        plain = directions(len(places), None)
        y, jacobian, _ = _summed(net, params, x, places, plain)
        return y, jacobian, _summed(net, params, x, places, along)[2]
    back = None if weights is None else along.inverse()
    return _summed(net, params, x, places, along, back)


def columns_of(x: Tree, by: Sequence[Any] | None) -> list[Column]:
    """Return single columns; all of them if none are named."""
    if by is not None:
        if isinstance(by, str) or not isinstance(by, Sequence) or not by:
            raise TypeError(
                f"by must be a sequence of names of columns, got {by!r}; give for "
                "example by=('x', 'y'), or by=(0, 1) of one tensor"
            )
        places = [_single(x, column(x, name, "x", single=True)) for name in by]
        if len({*places}) < len(places):
            raise ValueError(
                f"by must name each column once, got {by!r}; leave one out"
            )
        return places
    if isinstance(x, Tensor):
        keys: list[Any] = [None]
    elif isinstance(x, dict):
        keys = [*x]
    elif isinstance(x, tuple | list):
        keys = [*range(len(x))]
    else:
        raise ValueError(
            f"x is {type(x).__name__}; derivatives are by tensors, and by dicts, "
            "tuples and lists of them"
        )
    results = []
    for key in keys:
        tensor = x if key is None else x[key]
        if isinstance(tensor, Tensor):
            check_floating("x" if key is None else f"x[{key!r}]", tensor)
            results += [Column(key, i) for i in range(_width(tensor, key))]
        elif flatten_tree(tensor)[0]:
            raise ValueError(
                f"x[{key!r}] is {type(tensor).__name__}, nested more deeply than "
                "columns; give a dict, tuple or list of tensors"
            )
    if not results:
        raise ValueError(
            "x has no columns to differentiate by; give one tensor at least"
        )
    return results


def _width(tensor: Tensor, key: Any) -> int:
    """Return the number of columns; a single tensor of one dimension is one point."""
    return int(tensor.shape[-1]) if tensor.ndim > (key is not None) else 1


def _single(x: Tree, place: Column) -> Column:
    return Column(place.key, 0) if place.at is None else place


def _summed(
    net: Any,
    params: Tree,
    x: Tree,
    places: Sequence[Column],
    every: Directions,
    back: np.ndarray | None = None,
    alone: bool = False,
) -> Any:
    """Return value, derivatives by columns, and sums of second ones by directions."""
    x = each_apart(x)
    tensors, _ = tensors_of(x)
    groups = [
        [_of_leaf(t, x, places, some) for t in tensors] if len(some) else []
        for some in by_sign(every)
    ]
    sign = 1.0 if groups[0] else -1.0
    turn = None
    if back is not None:
        order = np.argsort(-every.signs, kind="stable")
        turn = paddle.to_tensor(back[:, order], dtype=tensors[0].dtype)

    def found(params: Tree, x: Tree, groups: list[list[Any]], turn: Any) -> Any:
        point, filled = tensors_of(x)
        nested: list[Any] = []

        def outputs(point: list[Tensor]) -> list[Tensor]:
            parts, structure = flatten_tree(net(params, filled(point)))
            nested[:] = [structure]
            for part in parts:
                check_floating("the net's result", part)
            return [*parts]

        by_rows = not (isinstance(x, Tensor) and x.ndim < 2)
        ways = [second_sums(outputs, point, d, by_rows) for d in groups if d]
        ys, jacobians, totals = [], [], []
        for parts in zip(*ways, strict=True):
            firsts = [way[1] for way in parts]
            jacobian = paddle.concat(firsts, -1) if firsts[1:] else firsts[0]
            if turn is not None:
                jacobian = paddle.matmul(jacobian, turn, transpose_y=True)
            sums = [way[2] for way in parts]
            ys.append(parts[0][0])
            jacobians.append(jacobian)
            totals.append(sums[0] - sums[1] if sums[1:] else sums[0] * sign)
        (structure,) = nested
        y, jacobian, total = map(structure.unflatten, (ys, jacobians, totals))
        return total if alone else (y, jacobian, total)

    key = "laplacian", tuple(places), sign, alone
    return run_kept(net, key, found, params, x, groups, turn)


def _of_leaf(
    tensor: Tensor, x: Tree, places: Sequence[Column], every: Directions
) -> Rows | None:
    """Return the part of directions that belongs to one tensor of coordinates."""
    own = [k for k, place in enumerate(places) if place.within(x) is tensor]
    if not own:
        return None
    width = _width(tensor, places[own[0]].key)
    columns = np.zeros(len(places), np.int64)
    columns[own] = [places[k].at or 0 for k in own]
    if every.at is not None and width > UNROLLED:
        lengths = every.lengths * np.isin(every.at, own)
        return (
            paddle.to_tensor(columns[every.at]),
            paddle.to_tensor(lengths, dtype=tensor.dtype),
        )
    result = np.zeros((len(every), width))
    result[:, columns[own]] = every.matrix()[:, own]
    return paddle.to_tensor(result, dtype=tensor.dtype)
