"""A graph that Paddle records, from stand-ins of some leaves to a function's outputs.

On plain lists: what is nested is taken apart above, in :mod:`._autodiff` and
:mod:`._net`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import paddle
from paddle import Tensor

from ._grad_mode import grad_mode
from ._graph import Graph, refuse, survey
from ._kernels import kernels_named
from ._params import same_dtype

# The common ones first, which are found by identity.
_DIFFERENTIABLE = (
    *(paddle.float32, paddle.float64, paddle.float16, paddle.bfloat16),
    *(paddle.complex64, paddle.complex128),
)


def is_differentiable(leaf: Any) -> bool:
    """Whether a gradient with respect to the leaf exists: floating or complex."""
    return isinstance(leaf, Tensor) and leaf.dtype in _DIFFERENTIABLE


def records_graph(leaves: Iterable[Any]) -> bool:
    """Paddle's own rule: gradients are on and some tensor requires them."""
    return paddle.is_grad_enabled() and any(
        isinstance(leaf, Tensor) and not leaf.stop_gradient for leaf in leaves
    )


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


def cut(outputs: Sequence[Any], inputs: Iterable[Any]) -> list[Any]:
    """The outputs off the graph and in memory of their own."""
    detached = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in outputs]
    return own_memory(detached, inputs)


def record(
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    any_scales: bool = False,
    held: int = 0,
) -> tuple[list[Any], Recording]:
    """``fn(leaves)``, a list of outputs, and what it takes to differentiate it.

    The outputs are cut off from the caller's graph unless gradients are on and a leaf
    requires them; then they stay differentiable. ``any_scales`` says that the caller
    makes sure that the scale of every LayerNorm is a leaf; the last ``held`` leaves are
    leaves for that sake alone.
    """
    connected = records_graph(leaves)
    with nullcontext() if paddle.is_grad_enabled() else grad_mode(True):
        stand_ins = [
            stand_in(leaf, connected) if is_differentiable(leaf) else leaf
            for leaf in leaves
        ]
        inputs = set(map(id, stand_ins))
        outputs = [
            paddle.assign(leaf)
            if id(leaf) in inputs and is_differentiable(leaf)
            else leaf
            for leaf in fn(stand_ins)
        ]
    differentiable = [
        i
        for i, (leaf, other) in enumerate(zip(leaves, stand_ins, strict=True))
        if other is not leaf
    ]
    about = connected, any_scales, held
    recording = Recording(stand_ins, differentiable, outputs, *about)
    return outputs if connected else cut(outputs, leaves), recording


def stand_in(leaf: Tensor, connected: bool) -> Tensor:
    """What paddle.grad can differentiate with respect to, in place of a leaf."""
    if connected and not leaf.stop_gradient:
        return paddle.assign(leaf)
    detached = leaf.detach()
    detached.stop_gradient = False
    return detached


class Recording:
    """The graph of :func:`record`, kept alive for any number of pullbacks."""

    def __init__(
        self,
        stand_ins: Sequence[Any],
        differentiable: Sequence[int],
        outputs: Sequence[Any],
        connected: bool,
        any_scales: bool,
        held: int,
    ) -> None:
        self._stand_ins = stand_ins
        self._differentiable = differentiable
        self._outputs = outputs
        self._connected = connected
        self._checked = any_scales
        self._held = held
        self._graph: Graph | None = None

    @property
    def leaves(self) -> Sequence[Any]:
        """The stand-ins, on the memory of what they stand for unless that is traced."""
        return self._stand_ins

    @property
    def nodes(self) -> int:
        """Operators on the graph."""
        return self._surveyed().nodes

    def gradients(
        self,
        cotangents: Sequence[Tensor | None],
        asked: Collection[int] | None = None,
    ) -> list[Tensor | None]:
        """Gradients, one per leaf, None where nothing is differentiable.

        Args:
            cotangents: one per output, of its shape and dtype, or None for zero.
            asked: positions of the leaves to differentiate; all when None. The others
                cost nothing and come back as None.

        Raises:
            ValueError: a cotangent of another shape.
            TypeError: one that is no tensor, or of another dtype, or for an output
                that has no derivative.
        """
        outputs, seeds = self._seeds(cotangents)
        wanted = self._differentiable
        if asked is not None:
            wanted = [i for i in wanted if i in asked]
        grads: list[Tensor | None] = [None] * len(self._stand_ins)
        if not (seeds and wanted):
            return grads
        found = self._divided(outputs, seeds, wanted)
        for i, grad in zip(wanted, own_memory(found, seeds), strict=True):
            grads[i] = grad
        return grads

    def _divided(
        self, outputs: list[Tensor], seeds: list[Tensor], wanted: Sequence[int]
    ) -> Sequence[Tensor | None]:
        """The wanted gradients alone, or picked from all of them."""
        every = self._differentiable
        again = self._connected or records_graph(seeds)
        if not self._checked and outputs[0].place.is_cpu_place():
            refuse(self._surveyed().first)
        self._checked = True
        if again:
            refuse(self._surveyed().second)
        if len(wanted) == len(every):
            return self._grad(outputs, seeds, every, again)
        if not again and self._surveyed().divisible:
            try:
                return self._grad(outputs, seeds, wanted, again)
            except NotImplementedError as error:  # a matrix product of an empty batch
                if not isinstance(error.__cause__, ValueError):
                    raise
        found = self._grad(outputs, seeds, every, again)
        return [grad for i, grad in zip(every, found, strict=True) if i in wanted]

    def _surveyed(self) -> Graph:
        if self._graph is None:
            outputs = (
                output
                for output in self._outputs
                if isinstance(output, Tensor) and not output.stop_gradient
            )
            leaves = [self._stand_ins[i] for i in self._differentiable]
            self._graph = survey(outputs, leaves, self._held)
        return self._graph

    def _grad(
        self,
        outputs: list[Tensor],
        seeds: list[Tensor],
        wanted: Sequence[int],
        again: bool,
    ) -> list[Tensor | None]:
        with kernels_named:
            found: list[Tensor | None] = paddle.grad(
                outputs,
                [self._stand_ins[i] for i in wanted],
                seeds,
                retain_graph=True,
                create_graph=again,
                allow_unused=True,
            )
        return found

    def _seeds(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Each output on the graph once, and the cotangents of these."""
        seeds: dict[int, Tensor] = {}
        outputs: list[Tensor] = []
        for i, (output, leaf) in enumerate(zip(self._outputs, cotangents, strict=True)):
            if leaf is None:
                continue
            if not is_differentiable(output):
                kind = getattr(output, "dtype", type(output).__name__)
                raise TypeError(
                    f"output {i} is {kind} and has no derivative; give None for its "
                    "cotangent"
                )
            shape = output.shape
            check_cotangent(leaf, shape, output.dtype)
            if output.stop_gradient:
                continue
            if 0 in shape:  # paddle.grad refuses one without memory
                leaf = paddle.zeros_like(output)
            if id(output) in seeds:
                seeds[id(output)] = seeds[id(output)] + leaf
            else:
                seeds[id(output)] = leaf
                outputs.append(output)
        return outputs, list(seeds.values())


def check_cotangent(
    leaf: Any,
    shape: Sequence[int],
    dtype: paddle.dtype,
    what: str = "cotangent",
    of: str = "output",
) -> None:
    """Refuse a cotangent that is no tensor of the output's shape and dtype."""
    if not isinstance(leaf, Tensor):
        raise TypeError(
            f"the {what} must be a paddle.Tensor, got {type(leaf).__name__}; "
            f"convert it with paddle.to_tensor, or nest it as the {of}"
        )
    if leaf.shape != shape:
        raise ValueError(
            f"the {what} has shape {list(leaf.shape)}, the {of} {list(shape)}; "
            "they must be equal (no broadcasting)"
        )
    if not same_dtype(leaf.dtype, dtype):
        raise TypeError(
            f"the {what} is {leaf.dtype}, the {of} {dtype}; convert it with "
            f"{what}.astype({of}.dtype)"
        )
