"""Reverse-mode derivatives of plain functions of tensors and trees of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import index
from typing import Any

import optree
import paddle
from paddle import Tensor

from .conduct import Conduct
from .reach import may_reach
from .recording import Recording, cut, is_differentiable, record

Tree = Any
"""A tensor, or tuples, lists, dicts and named tuples of them; other leaves pass."""

_ONE_LEAF = optree.treespec_leaf(none_is_leaf=True)


def flatten_tree(tree: Tree) -> tuple[list[Any], optree.PyTreeSpec]:
    """Leaves and structure; None is a leaf, so that it keeps its place."""
    if isinstance(tree, Tensor):
        return [tree], _ONE_LEAF
    return optree.tree_flatten(tree, none_is_leaf=True)


def cotangent_leaves(cotangent: Tree, spec: optree.PyTreeSpec) -> list[Any]:
    """The leaves of a cotangent, which is nested as the output.

    None may stand for a part of it, nested or not, that is zero.

    Raises:
        ValueError: it is nested otherwise.
    """
    leaves, found = flatten_tree(cotangent)
    if found is spec or found == spec:
        return leaves
    spread = _spread(iter(leaves), found, spec)
    if spread is None:
        raise ValueError(
            f"the cotangent is nested as {found}, the output as {spec}; "
            "give one tensor, or None for zero, per output"
        )
    return spread


def _spread(
    leaves: Iterator[Any], found: optree.PyTreeSpec, spec: optree.PyTreeSpec
) -> list[Any] | None:
    """Leaves with None for each of what is None; None where the structures differ."""
    if found.is_leaf():
        leaf = next(leaves)
        if spec.is_leaf():
            return [leaf]
        return [None] * spec.num_leaves if leaf is None else None
    if found.type is not spec.type or found.entries() != spec.entries():
        return None
    row: list[Any] = []
    for one, other in zip(found.children(), spec.children(), strict=True):
        part = _spread(leaves, one, other)
        if part is None:
            return None
        row += part
    return row


class Pullback:
    """The linear map from an output's cotangent to the gradients of the inputs.

    It may be called any number of times. It keeps the recorded graph alive, so drop
    it when done.
    """

    def __init__(
        self,
        recording: Recording,
        in_spec: optree.PyTreeSpec,
        out_spec: optree.PyTreeSpec,
    ) -> None:
        self._recording = recording
        self._in_spec = in_spec
        self._out_spec = out_spec

    def __call__(
        self, cotangent: Tree, *, wrt: Sequence[int] | None = None
    ) -> tuple[Tree, ...]:
        """Gradients, one per primal and nested as it is.

        Args:
            cotangent: nested as the output; each tensor with the output's shape and
                dtype, or None for zero.
            wrt: positions of the primals to differentiate, counted from 0; all when
                None. The others cost nothing and come back as None.

        Raises:
            ValueError: a structure or a shape that differs from the output's, or a
                position where there is no primal.
            TypeError: a cotangent that is not a tensor or has another dtype.
        """
        leaves = cotangent_leaves(cotangent, self._out_spec)
        asked = None if wrt is None else self._leaves_of(wrt)
        tree = self._in_spec.unflatten(self._recording.gradients(leaves, asked))
        if wrt is None:
            return tuple(tree)
        return tuple(part if i in wrt else None for i, part in enumerate(tree))

    def _leaves_of(self, wrt: Sequence[int]) -> set[int]:
        """Positions of the leaves of some primals."""
        stops = [*accumulate(child.num_leaves for child in self._in_spec.children())]
        asked: set[int] = set()
        if not isinstance(wrt, Sequence) or not {*wrt} <= {*range(len(stops))}:
            raise ValueError(
                "wrt must be a list of positions of the primals, of which there are "
                f"{len(stops)}, the first being 0; got {wrt!r}"
            )
        for primal in wrt:
            asked.update(range(stops[primal - 1] if primal else 0, stops[primal]))
        return asked


def vjp(
    fn: Callable[..., Tree], *primals: Tree, has_aux: bool = False
) -> tuple[Any, ...]:
    """Evaluate ``fn(*primals)`` and give its pullback.

    Like ``jax.vjp``: one forward, then any number of cheap vector-Jacobian products.
    Unlike ``paddle.grad`` it takes trees, leaves the caller's tensors as they are (no
    ``.grad``, no change of ``stop_gradient``), and counts one tensor handed in twice
    as two inputs.

    It may stand inside any other transform: results and gradients stay differentiable
    by whatever an enclosing one differentiates by, passed or closed over, and by
    tensors of the caller's that require gradients (``stop_gradient=False``), as far as
    Paddle's kernels go; beyond, it is differentiating once more that raises. From
    anything else they are cut off.

    Args:
        fn: function of tensors; it may return a tensor or a tree of them.
        *primals: tensors or trees of tensors. Integer and Boolean tensors and leaves
            that are no tensors are passed on and get the gradient None.
        has_aux: fn returns ``(output, aux)``; aux is passed on, not differentiated.

    Returns:
        ``(output, pullback)``, with aux as a third where asked. ``pullback(cotangent)``
        gives a tuple, one entry per primal, nested as the primal; None stands where
        nothing is differentiable or the primal is not used.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import vjp
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> y, pullback = vjp(lambda x: x * x, x)
        >>> pullback(paddle.to_tensor([1.0, 10.0]))[0].tolist()
        [2.0, 40.0]
    """
    again = paddle.is_grad_enabled() and may_reach(fn)
    return recorded_vjp(fn, primals, has_aux, again=again)


def recorded_vjp(
    fn: Callable[..., Tree],
    primals: tuple[Tree, ...],
    has_aux: bool = False,
    conduct: Conduct | None = None,
    again: bool = False,
) -> tuple[Any, ...]:
    """As :func:`vjp`; ``conduct`` and ``again`` as for :func:`record`."""
    leaves, in_spec = flatten_tree(primals)
    out_spec, aux = _ONE_LEAF, None

    def flat(stand_ins: list[Any]) -> list[Any]:
        nonlocal out_spec, aux
        output = fn(*in_spec.unflatten(stand_ins))
        if has_aux:
            output, aux = output
        outputs, out_spec = flatten_tree(output)
        return outputs

    values, recording = record(flat, leaves, conduct, again)
    value = out_spec.unflatten(values)
    pullback = Pullback(recording, in_spec, out_spec)
    if not has_aux:
        return value, pullback
    aux_leaves, aux_spec = flatten_tree(aux)
    if not recording.connected:
        aux_leaves = cut(aux_leaves, leaves)
    return value, pullback, aux_spec.unflatten(aux_leaves)


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., tuple[Any, Any]]:
    """A function that gives the scalar ``fn(*args)`` and its gradient.

    Like ``jax.value_and_grad``: arguments are trees, gradients are nested as the
    arguments, and nothing of the caller's is changed.

    Args:
        fn: function whose (first) result is a tensor of one element.
        argnums: position or positions of the arguments to differentiate; negative
            ones count from the last.
        has_aux: fn returns ``(loss, aux)``; the value is then that pair.

    Returns:
        ``g(*args, **kwargs) -> (value, grads)``; grads is one tree where argnums is an
        int, a tuple of trees where it is a sequence.

    Raises:
        TypeError: argnums is no int or sequence of ints; from the returned function,
            where the loss is no floating tensor.
        ValueError: from that, where the loss has more than one element, or argnums is
            out of range.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import value_and_grad
        >>> loss = lambda w, x: (w["a"] * x).sum()
        >>> w, x = {"a": paddle.to_tensor([1.0, 2.0])}, paddle.to_tensor([3.0, 4.0])
        >>> value, grad = value_and_grad(loss)(w, x)
        >>> float(value), grad["a"].tolist()
        (11.0, [3.0, 4.0])
    """
    conduct = Conduct()
    single, asked = _argnums(argnums)

    def value_and_grad_fn(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        for position in asked:
            if not -len(args) <= position < len(args):
                raise ValueError(
                    f"argnums asks for argument {position}, but the function was "
                    f"called with {len(args)} positional arguments (counted from 0)"
                )
        order = [position % len(args) for position in asked]
        positions = [*dict.fromkeys(order)]

        def of_selected(*selected: Any) -> Any:
            full = list(args)
            for position, value in zip(positions, selected, strict=True):
                full[position] = value
            return fn(*full, **kwargs)

        selected = tuple(args[i] for i in positions)
        others = [arg for i, arg in enumerate(args) if i not in positions]
        if paddle.is_grad_enabled() and may_reach(fn, others, kwargs):
            conduct.reaches = True
        loss, pullback, *aux = recorded_vjp(
            of_selected, selected, has_aux, conduct, again=bool(conduct.reaches)
        )
        if not is_differentiable(loss):
            raise TypeError(
                "value_and_grad needs a loss that is a floating-point tensor, got "
                f"{loss.dtype if isinstance(loss, Tensor) else type(loss).__name__}; "
                "use vjp for other outputs"
            )
        if loss.size != 1:
            raise ValueError(
                f"value_and_grad needs a loss of one element, got shape "
                f"{list(loss.shape)}; reduce it with .sum() or .mean(), or use vjp"
            )
        grads = dict(zip(positions, pullback(paddle.ones_like(loss)), strict=True))
        value = (loss, aux[0]) if has_aux else loss
        return value, grads[order[0]] if single else tuple(grads[i] for i in order)

    return value_and_grad_fn


def _argnums(argnums: Any) -> tuple[bool, list[int]]:
    """Whether it is a single position, and all of them."""
    try:
        given = [*argnums] if isinstance(argnums, Iterable) else [argnums]
        if any(isinstance(part, bool | Tensor | str) for part in (argnums, *given)):
            raise TypeError
        return not isinstance(argnums, Iterable), [*map(index, given)]
    except TypeError:
        raise TypeError(
            "argnums is the position of an argument, counted from 0, or a sequence of "
            f"positions; got {argnums!r}"
        ) from None
