"""Jacobians of functions, entry by entry or whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.nn.functional import one_hot

from ...paddle_side.arguments import checked_chunk, checked_flag
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.process.random_state import random_state_restored_on_error
from ...paddle_side.static_graphs import need_tensors, sot
from ..as_programs.auto_jit import auto_jit
from ..containers.tree import flatten_tree
from ..recordings.kept_graph import KeptGraph
from .argnums import Argnums, Selection, positions_of, select
from .jvp import linearize
from .vjp import vjp


def jacobian(
    fn: Callable[[Tensor], Tensor], x: Tensor, batched: bool = False
) -> Jacobian:
    """Return the matrix of first derivatives, computed row by row when asked for.

    It is like ``paddle.autograd.jacobian``, for shapes of any dimension. It does not
    touch the caller's tensors, and uses forward mode if there are far fewer inputs than
    outputs.

    Args:
        fn: function of one tensor to one tensor.
        x: the tensor at which to differentiate.
        batched: the first dimension of x and of the value counts samples that do not
            depend on each other; their Jacobians come side by side, in the time of one.

    Returns:
        A :class:`Jacobian`.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import jacobian
        >>> J = jacobian(lambda x: x * x.sum(), paddle.to_tensor([1.0, 2.0]))
        >>> J[0].tolist(), J.tensor().tolist()
        ([4.0, 1.0], [[4.0, 1.0], [2.0, 5.0]])
    """
    need_tensors(sot.fallback(True))
    return Jacobian(fn, x, batched)


class Jacobian(KeptGraph):
    """First derivatives of ``fn`` at ``x``; see :func:`jacobian`.

    Attributes:
        shape: the shape of the output, then of the input; with batched the samples come
            first, and once.
    """

    def __init__(
        self, fn: Callable[[Tensor], Tensor], x: Tensor, batched: bool
    ) -> None:
        self._fn, self._x = fn, x
        batched = checked_flag("batched", batched)
        y, self._pullback = vjp(fn, x)
        _check_real_outputs("jacobian", [y])
        if not is_differentiable(x) or not is_differentiable(y):
            raise TypeError(
                "jacobian needs a floating tensor in and one out, got "
                f"{x.dtype if isinstance(x, Tensor) else type(x).__name__} and "
                f"{y.dtype if isinstance(y, Tensor) else type(y).__name__}; use jacrev "
                "for trees"
            )
        skip = 1 if batched else 0
        if batched and (not x.ndim or not y.ndim or x.shape[0] != y.shape[0]):
            raise ValueError(
                f"batched: x has shape {list(x.shape)}, the value {list(y.shape)}; "
                "their first dimensions count the samples and must be equal"
            )
        self._y, self._samples = y, list(x.shape[:skip])
        self._rows = np.arange(int(np.prod(y.shape[skip:]))).reshape(y.shape[skip:])
        self._inputs = list(x.shape[skip:])
        self._computed_rows: dict[int, Tensor] = {}
        self.shape = [*self._samples, *self._rows.shape, *self._inputs]

    def __repr__(self) -> str:
        return f"Jacobian(shape={self.shape})"

    def __getitem__(self, index: Any) -> Tensor:
        """Compute the derivatives of some outputs by some inputs, and only these."""
        by_output, by_input = self._split(index)
        try:
            rows = self._rows[by_output]
            _ = np.broadcast_to(0, self._inputs)[by_input]  # before any is computed
        except (IndexError, TypeError, ValueError):
            raise IndexError(
                f"a Jacobian of shape {self.shape} has no entries [{index!r}]; give "
                "numbers and slices within the shape"
            ) from None
        result = self._stack_rows(rows)
        if not by_input:
            return result
        leading = (slice(None),) * (result.ndim - len(self._inputs))
        return result[leading + by_input]

    def _split(self, index: Any) -> tuple[Any, tuple[Any, ...]]:
        """Split an index into those of the output's and of the input's dimensions."""
        output_dims = self._rows.ndim
        if not isinstance(index, tuple) or any(entry is None for entry in index):
            return index, ()
        if any(entry is Ellipsis for entry in index):
            position = next(i for i, entry in enumerate(index) if entry is Ellipsis)
            missing = output_dims + len(self._inputs) - (len(index) - 1)
            index = (
                *index[:position],
                *[slice(None)] * missing,
                *index[position + 1 :],
            )
        return index[:output_dims], index[output_dims:]

    def tensor(self) -> Tensor:
        """Return all of it, by forward mode if that is cheaper and Paddle can."""
        cheaper = 4 * int(np.prod(self._inputs)) < self._rows.size
        real = not self._x.is_complex()  # whose columns would be of the real part
        if real and cheaper and not self._computed_rows:
            try:
                return self._by_forward_mode()
            except NotImplementedError:
                pass
        return self._stack_rows(self._rows)

    def _stack_rows(self, rows: Any) -> Tensor:
        rows = np.asarray(rows)
        if not rows.ndim:
            return self._jacobian_row(int(rows))
        if not rows.size:
            return paddle.zeros(
                [*self._samples, *rows.shape, *self._inputs], self._x.dtype
            )
        axis = len(self._samples)
        stacked = paddle.stack(
            [self._jacobian_row(int(i)) for i in rows.flat], axis=axis
        )
        return stacked.reshape([*self._samples, *rows.shape, *self._inputs])

    def _jacobian_row(self, i: int) -> Tensor:
        if i not in self._computed_rows:
            (self._computed_rows[i],) = self._pullback(
                _unit(self._y, i, self._rows.size)
            )
        return self._computed_rows[i]

    def _by_forward_mode(self) -> Tensor:
        """Compute a column per input, and transpose the result."""
        _, pushforward = linearize(self._fn, self._x)
        width = int(np.prod(self._inputs))
        columns = []
        for i in range(width):
            columns.append(pushforward(_unit(self._x, i, width)))
        return paddle.stack(columns, axis=-1).reshape(self.shape)


def jacrev(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that gives the Jacobian of ``fn(*args)`` by reverse mode.

    Like ``jax.jacrev`` and ``torch.func.jacrev``: one forward, and one pullback for
    each element of the output, so it suits functions of many inputs and few outputs.

    Args:
        fn: function of tensors or trees; it may return a tensor or a tree of them.
        argnums: position or positions of the arguments to differentiate.
        has_aux: fn returns ``(output, aux)``; the result is then ``(jacobian, aux)``.
        chunk_size: the number of rows that may be computed at a time, as in torch.func.
            They are computed one after another in any case, in the memory of one.

    Returns:
        ``j(*args, **kwargs)``: nested as the output, with each leaf nested as the
        arguments (a tuple where argnums is a sequence), of shape [*output, *argument]:
        zero if the output does not depend on the argument, None if one of them is no
        floating tensor. The Jacobian of a real output by a complex argument is complex,
        as a gradient is.

    Raises:
        TypeError: from the returned function, for complex outputs.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import jacrev
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> jacrev(lambda x: x * x.sum())(x).tolist()
        [[4.0, 1.0], [2.0, 5.0]]
    """
    checked_chunk(chunk_size)
    rows = rows_of(fn, argnums, has_aux, "jacrev")
    return auto_jit(fn, rows, "jacrev", positions_of(argnums), has_aux)


def rows_of(
    fn: Callable[..., Any], argnums: Argnums, has_aux: bool, caller: str
) -> Callable[..., Any]:
    """Do as :func:`jacrev`, with the caller's name in errors."""
    requested = positions_of(argnums)

    def jacrev_fn(*args: Any, **kwargs: Any) -> Any:
        need_tensors(sot.fallback(True))
        with random_state_restored_on_error():
            call = select(fn, requested, args, kwargs)
            y, pullback, *aux = vjp(call.fn, *call.selected, has_aux=has_aux)
            outputs, out_spec = flatten_tree(y)
            _check_real_outputs(caller, outputs)
            leaves, in_spec = flatten_tree(call.selected)
            results = []
            for k, output in enumerate(outputs):
                rows: list[list[Any]] = []
                for seed in _units(output):
                    cotangents = [seed if i == k else None for i in range(len(outputs))]
                    grads = pullback.or_none(out_spec.unflatten(cotangents))
                    rows.append(flatten_tree(grads)[0])
                results.append(
                    [
                        _stack_block(output, x, [row[i] for row in rows], 0)
                        for i, x in enumerate(leaves)
                    ]
                )
            return _nest_jacobian(call, results, in_spec, out_spec, aux)

    return jacrev_fn


def jacfwd(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that gives the Jacobian of ``fn(*args)`` by forward mode.

    Like ``jax.jacfwd`` and ``torch.func.jacfwd``: one forward, and one direction for
    each element of the arguments, so it suits functions of few inputs and many
    outputs. It needs kernels that Paddle can differentiate twice. Otherwise as
    :func:`jacrev`.

    Raises:
        TypeError: from the returned function, for complex arguments.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import jacfwd
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> jacfwd(lambda x: x * x.sum())(x).tolist()
        [[4.0, 1.0], [2.0, 5.0]]
    """
    checked_chunk(chunk_size)
    requested = positions_of(argnums)

    def jacfwd_fn(*args: Any, **kwargs: Any) -> Any:
        need_tensors(sot.fallback(True))
        with random_state_restored_on_error():
            call = select(fn, requested, args, kwargs)
            y, pushforward, *aux = linearize(call.fn, *call.selected, has_aux=has_aux)
            outputs, out_spec = flatten_tree(y)
            leaves, in_spec = flatten_tree(call.selected)
            _check_real_arguments(leaves)
            results: list[list[Any]] = [[] for _ in outputs]
            for k, leaf in enumerate(leaves):
                columns: list[list[Any]] = []
                for seed in _units(leaf):
                    tangents = [seed if i == k else None for i in range(len(leaves))]
                    columns.append(
                        flatten_tree(pushforward(*in_spec.unflatten(tangents)))[0]
                    )
                for i, (row, output) in enumerate(zip(results, outputs, strict=True)):
                    row.append(_stack_block(output, leaf, [c[i] for c in columns], -1))
            return _nest_jacobian(call, results, in_spec, out_spec, aux)

    return auto_jit(fn, jacfwd_fn, "jacfwd", requested, has_aux, order=2)


def _first_complex(leaves: Iterable[Any]) -> Tensor | None:
    complex_leaves = (x for x in leaves if isinstance(x, Tensor) and x.is_complex())
    return next(complex_leaves, None)


def _check_real_outputs(caller: str, outputs: Iterable[Any]) -> None:
    if (result := _first_complex(outputs)) is not None:
        what = "arguments" if caller == "hessian" else "outputs"
        rest = "" if caller == "hessian" else ", or jacfwd where the arguments are real"
        raise TypeError(
            f"{caller} has a row for each number, and needs real {what}, got "
            f"{result.dtype} of shape {list(result.shape)}, of which a row would hold "
            "the real part alone; use real tensors of real and imaginary parts, as "
            f"paddle.as_real and paddle.as_complex make them{rest}"
        )


def _check_real_arguments(leaves: Iterable[Any]) -> None:
    if (result := _first_complex(leaves)) is not None:
        raise TypeError(
            "jacfwd has a column for each number, and needs real arguments, got "
            f"{result.dtype} of shape {list(result.shape)}, of which a column would be "
            "along the real part alone; use real tensors of real and imaginary parts, "
            "as paddle.as_real and paddle.as_complex make them, or jacrev where the "
            "outputs are real"
        )


def _units(x: Any) -> Iterator[Tensor]:
    """Yield tensors like x with a one at one element each; none without a gradient."""
    if not is_differentiable(x):
        return
    for i in range(x.size):
        yield _unit(x, i, x.size)


def _unit(like: Tensor, i: int, width: int) -> Tensor:
    """Return a tensor like rows of that width, with a one at element i of each."""
    indices = paddle.full([like.size // width], i, "int64")
    rows = one_hot(indices, width).astype(like.dtype).reshape(like.shape)
    return rows if rows.place._equals(like.place) else rows.to(like.place)


def _stack_block(output: Any, x: Any, rows: list[Any], axis: int) -> Tensor | None:
    """Stack one row per element along the axis to [*output.shape, *x.shape]."""
    if not (is_differentiable(output) and is_differentiable(x)):
        return None
    like = x if axis == 0 else output
    shape = [*output.shape, *x.shape]
    if not like.size or all(row is None for row in rows):
        return paddle.zeros(shape, like.dtype)
    dense_rows = [paddle.zeros_like(like) if row is None else row for row in rows]
    return paddle.stack(dense_rows, axis).reshape(shape)


def _nest_jacobian(
    call: Selection,
    results: list[list[Any]],
    in_spec: Any,
    out_spec: Any,
    aux: list[Any],
) -> Any:
    nested = [call.nested(in_spec.unflatten(row)) for row in results]
    result = out_spec.unflatten(nested)
    return (result, aux[0]) if aux else result
