"""Laplacians of nets by their input: exact in one pass, or estimated by probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import paddle
from paddle import Tensor

from ...programs import second_sums
from ...settings import UNROLLED
from ...transforms.containers.tree import Tree, flatten_tree
from ..net import Net
from ..parameters.params import Params
from .columns import Column, check_floating, column, tensors_of, with_distinct_tensors
from .derivative_programs import run_as_program, with_guards
from .directions import Directions, directions, estimate_directions, split_by_sign


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


@with_guards
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
    columns = columns_of(x, by)
    summed_directions = directions(len(columns), weights)
    if estimator is not None or probes is not None or seed is not None:
        summed_directions = estimate_directions(
            summed_directions, estimator, probes, seed
        )
    total: Tree = _summed_second_derivatives(
        net, params, x, columns, summed_directions, only_total=True
    )
    return total


@with_guards
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
    columns = columns_of(x, by)
    summed_directions = directions(len(columns), weights)
    if len(summed_directions) < len(columns):
        unit_directions = directions(len(columns), None)
        y, jacobian, _ = _summed_second_derivatives(
            net, params, x, columns, unit_directions
        )
        return (
            y,
            jacobian,
            _summed_second_derivatives(net, params, x, columns, summed_directions)[2],
        )
    inverse = None if weights is None else summed_directions.inverse()
    return _summed_second_derivatives(
        net, params, x, columns, summed_directions, inverse
    )


def columns_of(x: Tree, by: Sequence[Any] | None) -> list[Column]:
    """Return single columns; all of them if none are named."""
    if by is not None:
        if isinstance(by, str) or not isinstance(by, Sequence) or not by:
            raise TypeError(
                f"by must be a sequence of names of columns, got {by!r}; give for "
                "example by=('x', 'y'), or by=(0, 1) of one tensor"
            )
        columns = [_as_single(x, column(x, name, "x", single=True)) for name in by]
        if len({*columns}) < len(columns):
            raise ValueError(
                f"by must name each column once, got {by!r}; leave one out"
            )
        return columns
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


def _as_single(x: Tree, col: Column) -> Column:
    return Column(col.key, 0) if col.at is None else col


def _summed_second_derivatives(
    net: Any,
    params: Tree,
    x: Tree,
    columns: Sequence[Column],
    all_directions: Directions,
    inverse: np.ndarray | None = None,
    only_total: bool = False,
) -> Any:
    """Return value, derivatives by columns, and sums of second ones by directions."""
    x = with_distinct_tensors(x)
    tensors, _ = tensors_of(x)
    groups = [
        [_leaf_directions(t, x, columns, same_sign) for t in tensors]
        if len(same_sign)
        else []
        for same_sign in split_by_sign(all_directions)
    ]
    sign = 1.0 if groups[0] else -1.0
    basis_change = None
    if inverse is not None:
        order = np.argsort(-all_directions.signs, kind="stable")
        basis_change = paddle.to_tensor(inverse[:, order], dtype=tensors[0].dtype)

    def compute(
        params: Tree, x: Tree, groups: list[list[Any]], basis_change: Any
    ) -> Any:
        point, fill = tensors_of(x)
        out_specs: list[Any] = []

        def outputs(point: list[Tensor]) -> list[Tensor]:
            leaves, structure = flatten_tree(net(params, fill(point)))
            out_specs[:] = [structure]
            for leaf in leaves:
                check_floating("the net's result", leaf)
            return [*leaves]

        by_rows = not (isinstance(x, Tensor) and x.ndim < 2)
        sums_by_sign = [second_sums(outputs, point, d, by_rows) for d in groups if d]
        ys, jacobians, totals = [], [], []
        for leaves in zip(*sums_by_sign, strict=True):
            firsts = [result[1] for result in leaves]
            jacobian = paddle.concat(firsts, -1) if firsts[1:] else firsts[0]
            if basis_change is not None:
                jacobian = paddle.matmul(jacobian, basis_change, transpose_y=True)
            sums = [result[2] for result in leaves]
            ys.append(leaves[0][0])
            jacobians.append(jacobian)
            totals.append(sums[0] - sums[1] if sums[1:] else sums[0] * sign)
        (structure,) = out_specs
        y, jacobian, total = map(structure.unflatten, (ys, jacobians, totals))
        return total if only_total else (y, jacobian, total)

    key = "laplacian", tuple(columns), sign, only_total
    return run_as_program(net, key, compute, params, x, groups, basis_change)


def _leaf_directions(
    tensor: Tensor, x: Tree, coord_columns: Sequence[Column], all_directions: Directions
) -> Tensor | tuple[Tensor, Tensor] | None:
    """Return the components of directions in one tensor of coordinates, or None."""
    positions = [
        k
        for k, coord_column in enumerate(coord_columns)
        if coord_column.tensor_in(x) is tensor
    ]
    if not positions:
        return None
    width = _width(tensor, coord_columns[positions[0]].key)
    column_index = np.zeros(len(coord_columns), np.int64)
    column_index[positions] = [coord_columns[k].at or 0 for k in positions]
    if all_directions.axes is not None and width > UNROLLED:
        lengths = all_directions.lengths * np.isin(all_directions.axes, positions)
        return (
            paddle.to_tensor(column_index[all_directions.axes]),
            paddle.to_tensor(lengths, dtype=tensor.dtype),
        )
    result = np.zeros((len(all_directions), width))
    result[:, column_index[positions]] = all_directions.matrix()[:, positions]
    return paddle.to_tensor(result, dtype=tensor.dtype)
