"""Laplacians of nets by their input: exact in one pass, or estimated by probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.listener import listener
from ..programs.partials import second_sums
from ..transforms.tree import Tree, flatten_tree
from .columns import Column, check_floating, column
from .derivative_programs import run_kept
from .net import Net
from .params import Params

ESTIMATORS = ("hutchinson", "stde")


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
    """The sum of the second derivatives of a net by its coordinates, in one pass.

    Exact, and differentiable with respect to parameters and coordinates. Second
    derivatives are summed layer by layer, as in the forward Laplacian of Li et al.,
    "A computational framework for neural network-based variational Monte Carlo with
    forward Laplacian", 2023; so that many coordinates cost little more than their
    first derivatives.

    In high dimension it may be estimated by a few second derivatives along random
    directions, without bias. With the Hessian H and k probes the variance is ``2 / k``
    times the sum of squares of H's entries beside its diagonal (``"hutchinson"``, of
    random signs); or ``d (d - k) / k`` times the variance of the d entries of its
    diagonal (``"stde"``, of k coordinates drawn without being put back; over d - 1).
    Directions are those of all points of a call; Hu et al., "Stochastic Taylor
    derivative estimator", NeurIPS 2024.

    Args:
        net: a net, or a function of parameters and coordinates, whose result has in
            each row what depends on that row of the coordinates alone.
        params: what it takes as parameters.
        x: shape [n, d], or a dict, tuple or list of such columns.
        weights: of the second derivatives, numbers of shape [d], which may be
            negative; or a constant matrix ``a`` of shape [d, d], for ``sum of a[i, j]
            d2u / dx_i dx_j``.
        by: the coordinates, where not all: names and indices as in
            :func:`derivatives`.
        estimator: ``"hutchinson"`` or ``"stde"``.
        probes: how many directions of it.
        seed: of the directions.

    Returns:
        Nested as the net's output, each of its shape.

    Raises:
        TypeError: an estimator without probes or seed, or these without one.
        ValueError: rows that depend on others, unknown names, weights of another shape,
            more probes than coordinates.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, laplacian
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> laplacian(net, net.init(0), x).shape
        paddle.Size([5, 1])
    """
    places = _columns(x, by)
    rows, signs = _directions(len(places), weights)
    if estimator is not None or probes is not None or seed is not None:
        rows, signs = _estimated(rows, signs, estimator, probes, seed)
    return _summed(net, params, x, places, rows, signs)[2]


def forward_laplacian(
    net: Net | Callable[[Any, Any], Tree],
    params: Tree,
    x: Tree,
    weights: Any = None,
    *,
    by: Sequence[Any] | None = None,
) -> tuple[Tree, Tree, Tree]:
    """Value, all first derivatives and the Laplacian of a net, in one pass.

    Args: as of :func:`laplacian`.

    Returns:
        ``(y, jacobian, laplacian)``, each nested as the net's output; the jacobian of
        shape [n, out, d], by the d coordinates in their order.

    Raises:
        TypeError, ValueError: as :func:`laplacian`.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, forward_laplacian
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> y, jacobian, total = forward_laplacian(net, net.init(0), x)
        >>> jacobian.shape
        paddle.Size([5, 1, 2])
    """
    places = _columns(x, by)
    rows, signs = _directions(len(places), weights)
    back = None
    if weights is not None:
        back = np.linalg.pinv(rows)
        if np.linalg.matrix_rank(rows) < len(places):
            ones, plus = _directions(len(places), None)
            y, jacobian, _ = _summed(net, params, x, places, ones, plus)
            return y, jacobian, _summed(net, params, x, places, rows, signs)[2]
    return _summed(net, params, x, places, rows, signs, back)


def _columns(x: Tree, by: Sequence[Any] | None) -> list[Column]:
    """Single columns, all of them where none are named."""
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
    found = []
    for key in keys:
        tensor = x if key is None else x[key]
        if isinstance(tensor, Tensor):
            check_floating("x" if key is None else f"x[{key!r}]", tensor)
            found += [Column(key, i) for i in range(_width(tensor, key))]
        elif flatten_tree(tensor)[0]:
            raise ValueError(
                f"x[{key!r}] is {type(tensor).__name__}, nested more deeply than "
                "columns; give a dict, tuple or list of tensors"
            )
    if not found:
        raise ValueError(
            "x has no columns to differentiate by; give one tensor at least"
        )
    return found


def _width(tensor: Tensor, key: Any) -> int:
    """How many columns; one tensor alone of one dimension is one point."""
    return int(tensor.shape[-1]) if tensor.ndim > (key is not None) else 1


def _single(x: Tree, place: Column) -> Column:
    return Column(place.key, 0) if place.at is None else place


def _directions(width: int, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows by which second derivatives sum up to what is asked, and their signs."""
    if weights is None:
        return np.eye(width), np.ones(width)
    if isinstance(weights, Tensor) and not weights.stop_gradient:
        raise TypeError(
            "weights are constants, and these ask for gradients; take derivatives and "
            "multiply them by coefficients that are learned"
        )
    given = weights.numpy() if isinstance(weights, Tensor) else np.asarray(weights)
    if given.dtype.kind not in "fiu" or not np.isfinite(given).all():
        raise TypeError(
            f"weights must be finite real numbers, got {weights!r}; give one a "
            "coordinate, or a matrix"
        )
    a = given.astype(np.float64)
    if a.shape == (width,):
        rows = np.diag(np.sqrt(np.abs(a)))
        signs = np.sign(a)
    elif a.shape == (width, width):
        values, vectors = np.linalg.eigh((a + a.T) / 2)
        least = np.finfo(np.float64).eps * width * np.abs(values).max(initial=0.0)
        values = np.where(np.abs(values) <= least, 0.0, values)
        rows, signs = np.sqrt(np.abs(values))[:, None] * vectors.T, np.sign(values)
    else:
        raise ValueError(
            f"weights have shape {list(a.shape)}, of {width} coordinates; give "
            f"[{width}] or [{width}, {width}]"
        )
    if not signs.any():
        raise ValueError(
            "weights are all zero, and so is the sum; leave such a term out"
        )
    return rows[signs != 0], signs[signs != 0]


def _estimated(
    rows: np.ndarray,
    signs: np.ndarray,
    estimator: str | None,
    probes: int | None,
    seed: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fewer rows whose second derivatives have the same sum on average."""
    if estimator not in ESTIMATORS:
        raise ValueError(
            f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}; "
            "leave probes and seed out for the exact Laplacian"
        )
    for name, value in (("probes", probes), ("seed", seed)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise TypeError(
                f"an estimator needs {name}, an integer, got {value!r}; give for "
                "example probes=16, seed=0"
            )
    assert probes is not None
    if listener() is not None:
        raise ValueError(
            "an estimator draws its directions in Python, which a program would keep "
            "for all calls; call it outside of jit"
        )
    if probes < 1 or (estimator == "stde" and probes > len(rows)):
        raise ValueError(
            f"probes must be 1 to {len(rows)} of {len(rows)} directions, got {probes}; "
            "with all of them the sum is exact"
        )
    rng = np.random.default_rng(seed)
    if estimator == "stde":
        chosen = np.sort(rng.choice(len(rows), probes, replace=False))
        return rows[chosen] * np.sqrt(len(rows) / probes), signs[chosen]
    found, kept = [], []
    for sign in np.unique(signs):
        part = rows[signs == sign]
        random = rng.integers(0, 2, (probes, len(part))) * 2.0 - 1.0
        found.append(random @ part / np.sqrt(probes))
        kept.append(np.full(probes, sign))
    return np.concatenate(found), np.concatenate(kept)


def _summed(
    net: Any,
    params: Tree,
    x: Tree,
    places: Sequence[Column],
    rows: np.ndarray,
    signs: np.ndarray,
    back: np.ndarray | None = None,
) -> tuple[Tree, Tree, Tree]:
    """Value, derivatives by columns, and the sums of second ones along the rows.

    Args:
        back: a matrix that gives derivatives by columns from those along the rows.
    """
    leaves, _ = flatten_tree(x)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    groups = [
        [_of_leaf(t, x, places, rows[signs == sign]) for t in tensors]
        for sign in (1.0, -1.0)
    ]
    sign = 1.0 if (signs > 0).any() else -1.0
    order = np.argsort(-signs, kind="stable")
    turn = None
    if back is not None:
        turn = paddle.to_tensor(back[:, order], dtype=tensors[0].dtype)

    def found(
        params: Tree, x: Tree, groups: list[list[Any]], turn: Any
    ) -> tuple[Tree, Tree, Tree]:
        leaves, spec = flatten_tree(x)
        moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        nested: list[Any] = []

        def outputs(point: list[Tensor]) -> list[Tensor]:
            given = [*leaves]
            for i, part in zip(moving, point, strict=True):
                given[i] = part
            parts, structure = flatten_tree(net(params, spec.unflatten(given)))
            nested[:] = [structure]
            for part in parts:
                if not isinstance(part, Tensor):
                    raise TypeError(
                        f"the net gives a {type(part).__name__} beside tensors; give "
                        "tensors alone where a Laplacian is taken"
                    )
            return [*parts]

        point = [leaves[i] for i in moving]
        by_rows = not (isinstance(x, Tensor) and x.ndim < 2)
        ways = [second_sums(outputs, point, d, by_rows) for d in groups if _rows(d)]
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
        every: tuple[Tree, Tree, Tree] = (
            structure.unflatten(ys),
            structure.unflatten(jacobians),
            structure.unflatten(totals),
        )
        return every

    key = "laplacian", tuple(places), sign
    every: tuple[Tree, Tree, Tree] = run_kept(net, key, found, params, x, groups, turn)
    return every


def _rows(directions: Sequence[Tensor | None]) -> int:
    return max((d.shape[0] for d in directions if d is not None), default=0)


def _of_leaf(
    tensor: Tensor, x: Tree, places: Sequence[Column], rows: np.ndarray
) -> Tensor | None:
    """The part of directions that is of one tensor of coordinates."""
    own = [k for k, place in enumerate(places) if place.within(x) is tensor]
    if not own or not len(rows):
        return None
    found = np.zeros((len(rows), _width(tensor, places[own[0]].key)))
    for k in own:
        found[:, places[k].at] = rows[:, k]
    return paddle.to_tensor(found, dtype=tensor.dtype)
