"""Reverse-mode derivatives of plain functions of tensors and trees of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from itertools import compress
from typing import Any

import optree
import paddle
from paddle import Tensor

Tree = Any
"""A tensor, or tuples, lists, dicts and named tuples of them; other leaves pass."""


_DIFFERENTIABLE = frozenset(
    int(getattr(paddle, name))
    for name in (
        *("float16", "bfloat16", "float32", "float64"),
        *("complex64", "complex128"),
    )
)


def is_differentiable(leaf: Any) -> bool:
    """Whether a gradient with respect to the leaf exists: floating or complex."""
    return isinstance(leaf, Tensor) and leaf.dtype.__int__() in _DIFFERENTIABLE


def records_graph(leaves: Iterable[Any]) -> bool:
    """Paddle's own rule: gradients are on and some tensor requires them."""
    return paddle.is_grad_enabled() and any(
        isinstance(leaf, Tensor) and not leaf.stop_gradient for leaf in leaves
    )


def flatten_tree(tree: Tree) -> tuple[list[Any], optree.PyTreeSpec]:
    """Leaves and structure; None is a leaf, so that it keeps its place."""
    return optree.tree_flatten(tree, none_is_leaf=True)


def own_memory(outputs: Sequence[Any], inputs: Iterable[Any]) -> list[Any]:
    """The outputs, cloned where they share memory with an input.

    A function may hand back its input or a view of it; the caller's later changes to
    the one must not show in the other.
    """
    held = [leaf for leaf in inputs if isinstance(leaf, Tensor)]
    return [
        leaf.clone()
        if isinstance(leaf, Tensor)
        and leaf._is_initialized()
        and any(map(leaf._is_shared_buffer_with, held))
        else leaf
        for leaf in outputs
    ]


class Pullback:
    """The linear map from an output's cotangent to the gradients of the inputs.

    It may be called any number of times. It keeps the recorded graph alive, so drop
    it when done.
    """

    def __init__(
        self,
        tracked: Sequence[Any],
        differentiable: Sequence[bool],
        in_spec: optree.PyTreeSpec,
        outputs: Sequence[Any],
        out_spec: optree.PyTreeSpec,
        connected: bool,
    ) -> None:
        self._tracked = tracked
        self._in_spec = in_spec
        self._outputs = outputs
        self._out_spec = out_spec
        self._connected = connected
        # Positions in `tracked` of what can be differentiated, primal by primal.
        self._wanted: list[list[int]] = []
        start = 0
        for child in in_spec.children():
            stop = start + child.num_leaves
            self._wanted.append([i for i in range(start, stop) if differentiable[i]])
            start = stop

    def __call__(
        self, cotangent: Tree, *, wrt: Sequence[int] | None = None
    ) -> tuple[Tree, ...]:
        """Gradients, one per primal and nested as it is.

        Args:
            cotangent: nested as the output; each tensor with the output's shape and
                dtype, or None for zero.
            wrt: positions of the primals to differentiate; all when None. The others
                cost nothing and come back as None.

        Raises:
            ValueError: a structure or a shape that differs from the output's.
            TypeError: a cotangent that is not a tensor or has another dtype.
        """
        seeds = self._seeds(cotangent)
        asked = range(len(self._wanted)) if wrt is None else wrt
        wanted = [i for position in asked for i in self._wanted[position]]
        if any(isinstance(x, Tensor) and 0 in x.shape for x in self._tracked):
            # Paddle 3.3 fails on an empty batch where only weights are asked for.
            wanted = [i for positions in self._wanted for i in positions]
        grads: list[Tensor | None] = [None] * len(self._tracked)
        if seeds and wanted:
            found = paddle.grad(
                [output for output, _ in seeds],
                [self._tracked[i] for i in wanted],
                [seed for _, seed in seeds],
                retain_graph=True,
                create_graph=self._connected or records_graph(s for _, s in seeds),
                allow_unused=True,
            )
            for i, grad in zip(
                wanted, own_memory(found, [seed for _, seed in seeds]), strict=True
            ):
                grads[i] = grad
        tree = self._in_spec.unflatten(grads)
        return tuple(part if i in asked else None for i, part in enumerate(tree))

    def _seeds(self, cotangent: Tree) -> list[tuple[Tensor, Tensor]]:
        """Each output on the graph once, with its cotangent."""
        leaves, spec = flatten_tree(cotangent)
        if spec != self._out_spec:
            raise ValueError(
                f"the cotangent is nested as {spec}, the output as {self._out_spec}; "
                "give one tensor, or None for zero, per output"
            )
        seeds: dict[int, tuple[Tensor, Tensor]] = {}
        for output, leaf in zip(self._outputs, leaves, strict=True):
            if leaf is None or not isinstance(output, Tensor):
                continue
            check_cotangent(leaf, output.shape, output.dtype)
            if output.stop_gradient:
                continue
            if 0 in output.shape:  # paddle.grad refuses one without memory
                leaf = paddle.zeros_like(output)
            if id(output) in seeds:
                leaf = seeds[id(output)][1] + leaf
            seeds[id(output)] = (output, leaf)
        return list(seeds.values())


def check_cotangent(leaf: Any, shape: Sequence[int], dtype: paddle.dtype) -> None:
    """Refuse a cotangent that is no tensor of the output's shape and dtype."""
    if not isinstance(leaf, Tensor):
        raise TypeError(
            f"the cotangent must be a paddle.Tensor, got {type(leaf).__name__}; "
            "convert it with paddle.to_tensor, or nest it as the output"
        )
    if leaf.shape != tuple(shape):
        raise ValueError(
            f"the cotangent has shape {list(leaf.shape)}, the output {list(shape)}; "
            "they must be equal (no broadcasting)"
        )
    if leaf.dtype.__int__() != dtype.__int__():
        raise TypeError(
            f"the cotangent is {leaf.dtype}, the output {dtype}; convert it with "
            "cotangent.astype(output.dtype)"
        )


def vjp(
    fn: Callable[..., Tree], *primals: Tree, has_aux: bool = False
) -> tuple[Any, ...]:
    """Evaluate ``fn(*primals)`` and give its pullback.

    Like ``jax.vjp``: one forward, then any number of cheap vector-Jacobian products.
    Unlike ``paddle.grad`` it takes trees, leaves the caller's tensors as they are (no
    ``.grad``, no change of ``stop_gradient``), and counts one tensor handed in twice
    as two inputs.

    The result is cut off from the caller's graph unless gradients are on and a primal
    requires them (``stop_gradient=False``); then results and gradients stay
    differentiable, as far as Paddle's kernels go.

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
    leaves, in_spec = flatten_tree(primals)
    connected = records_graph(leaves)
    differentiable = [is_differentiable(leaf) for leaf in leaves]
    with nullcontext() if paddle.is_grad_enabled() else paddle.enable_grad():
        tracked = [
            _track(leaf, connected) if wanted else leaf
            for leaf, wanted in zip(leaves, differentiable, strict=True)
        ]
        output = fn(*in_spec.unflatten(tracked))
        aux = None
        if has_aux:
            output, aux = output
        outputs, out_spec = flatten_tree(output)
        inputs = set(map(id, compress(tracked, differentiable)))
        outputs = [
            paddle.assign(leaf)
            if id(leaf) in inputs and is_differentiable(leaf)
            else leaf
            for leaf in outputs
        ]
    values = outputs if connected else _cut(outputs, leaves)
    pullback = Pullback(tracked, differentiable, in_spec, outputs, out_spec, connected)
    value = out_spec.unflatten(values)
    if not has_aux:
        return value, pullback
    aux_leaves, aux_spec = flatten_tree(aux)
    return value, pullback, aux_spec.unflatten(_cut(aux_leaves, leaves))


def _track(leaf: Tensor, connected: bool) -> Tensor:
    """A stand-in for a primal that paddle.grad can differentiate with respect to."""
    if connected and not leaf.stop_gradient:
        return paddle.assign(leaf)
    stand_in = leaf.detach()
    stand_in.stop_gradient = False
    return stand_in


def _cut(outputs: Sequence[Any], inputs: Iterable[Any]) -> list[Any]:
    """The outputs off the graph and in memory of their own."""
    detached = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in outputs]
    return own_memory(detached, inputs)


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
        argnums: position or positions of the arguments to differentiate.
        has_aux: fn returns ``(loss, aux)``; the value is then that pair.

    Returns:
        ``g(*args, **kwargs) -> (value, grads)``; grads is one tree where argnums is an
        int, a tuple of trees where it is a sequence.

    Raises:
        TypeError: from the returned function, where the loss is no floating tensor.
        ValueError: where it has more than one element, or argnums is out of range.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import value_and_grad
        >>> loss = lambda w, x: (w["a"] * x).sum()
        >>> w, x = {"a": paddle.to_tensor([1.0, 2.0])}, paddle.to_tensor([3.0, 4.0])
        >>> value, grad = value_and_grad(loss)(w, x)
        >>> float(value), grad["a"].tolist()
        (11.0, [3.0, 4.0])
    """
    single = isinstance(argnums, int)
    positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def value_and_grad_fn(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        for position in positions:
            if not 0 <= position < len(args):
                raise ValueError(
                    f"argnums asks for argument {position}, but the function was "
                    f"called with {len(args)} positional arguments (counted from 0)"
                )

        def of_selected(*selected: Any) -> Any:
            full = list(args)
            for position, value in zip(positions, selected, strict=True):
                full[position] = value
            return fn(*full, **kwargs)

        loss, pullback, *aux = vjp(
            of_selected, *(args[i] for i in positions), has_aux=has_aux
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
        grads = pullback(paddle.ones_like(loss))
        value = (loss, aux[0]) if has_aux else loss
        return value, grads[0] if single else grads

    return value_and_grad_fn
