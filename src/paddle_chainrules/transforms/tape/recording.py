"""A graph that Paddle records, from stand-ins of some leaves to a function's outputs.

On plain lists: what is nested is taken apart above, in :mod:`..derivatives.vjp` and
:mod:`...nets.net`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.kernel_errors import Overwritten, refused_later
from ...paddle_side.autograd.partial_gradients import (
    Graph,
    leaves_behind,
    second_order_fault,
    survey,
)
from ...paddle_side.autograd.row_sparse import RowSparse, dense
from ...paddle_side.dtypes import is_differentiable, is_whole
from ...paddle_side.listener import listener
from ...paddle_side.patching.write_counts import writes_counted
from ...paddle_side.process.random_state import drawing_from, put_back, undrawn
from ...paddle_side.rules.in_place import refuse_other_uses
from ...paddle_side.rules.operators import Watch
from ...paddle_side.watch import as_leaf, watched, written_outside
from .cotangents import check_seed
from .effects import (
    Effects,
    copied,
    flags,
    is_refused_write,
    tensors_among,
    versions,
)
from .kept_graph import KeptGraph
from .outputs import apart, detached, unaliased
from .reached import reached, without_zeros


def records_graph(leaves: Iterable[Any], reaches: bool = False) -> bool:
    """Paddle's own rule: gradients are on and some tensor requires them.

    That is one of the leaves, or ``reaches`` says that there is another.
    """
    return paddle.is_grad_enabled() and (
        reaches or False in flags(tensors_among(leaves))
    )


def record(
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    effects: Effects | None = None,
    create_graph: bool = False,
) -> tuple[list[Any], Recording]:
    """``fn(leaves)``, a list of outputs, and what it takes to differentiate it.

    The outputs are cut off from the caller's graph unless gradients are on and they
    depend on a tensor that requires them, a leaf or one that fn closes over; then
    outputs and gradients stay differentiable by it.

    Where fn has to be called twice, it draws the same numbers; where it fails, none.

    Args:
        fn: function of a list of leaves.
        leaves: tensors, and anything else, which is passed on.
        effects: what is known of fn, and where to note what this call shows; None for
            a function that is called but once.
        create_graph: whether the gradients will be differentiated.
    """
    effects = effects or Effects(reaches=True)
    with undrawn() as drawing:
        found = _recorded(fn, leaves, effects, create_graph)
        while isinstance(found, Again):
            state = drawing.state
            if state is not None and not found.ended:
                put_back(state)
            with drawing_from(state if found.ended else None):
                found = _recorded(fn, leaves, effects, found.create_graph)
        found[1].drawn_from = drawing.state
    return found


class Again(NamedTuple):
    """A call has shown that the function is to be called in another way."""

    create_graph: bool
    ended: bool
    """Whether it came to its end, and has drawn all that it draws."""


def _recorded(
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    effects: Effects,
    create_graph: bool,
) -> tuple[list[Any], Recording] | Again:
    enabled = paddle.is_grad_enabled()
    if connected := records_graph(leaves):
        leaves = [leaf.detach() if is_whole(leaf) else leaf for leaf in leaves]
        connected = records_graph(leaves)
    copies = effects.copies
    with nullcontext() if enabled else grad_mode(True), writes_counted():
        nested = watched()
        targets = [
            _target(leaf, connected, nested) if is_differentiable(leaf) else leaf
            for leaf in leaves
        ]
        given = [*map(copied, targets)] if copies else targets
        tensors = tensors_among(given)
        before = 0 if copies else versions(tensors)
        watch = Watch(() if copies else targets, create_graph or connected)
        try:
            outputs = watch.call(fn, [*given])
            if watch.writes:
                refuse_other_uses(outputs, watch.writes)
            outputs = apart(outputs, given)
        except ValueError as error:
            if copies or not is_refused_write(error):
                raise
            effects.writes = True
    if effects.writes and not copies:
        return Again(create_graph, False)
    if copies:
        effects.learn(given, leaves)
    else:
        effects.check(tensors, before)
    differentiable = [
        i
        for i, (leaf, target) in enumerate(zip(leaves, targets, strict=True))
        if leaf is not target
    ]
    recording = Recording(leaves, targets, differentiable, outputs, watch, connected)
    recording.given = given
    who = listener()
    if who is not None:
        who.stands_in([*recording.inputs, *tensors], recording)
        recording.connected = connected or (
            enabled and who.reaches_free(outputs, targets)
        )
    elif enabled and not connected and (effects.reaches is not False or nested):
        free = recording.free_variables()
        effects.note_free(free)
        recording.connected = bool(free)
        if free and not (create_graph or nested):
            return Again(True, True)
    recording.forget()
    return outputs if recording.connected else detached(outputs, leaves), recording


def _target(leaf: Tensor, connected: bool, nested: bool) -> Tensor:
    """What is differentiated by in place of a leaf."""
    if connected and not leaf.stop_gradient:
        return paddle.assign(leaf)
    if nested:
        return as_leaf(leaf)
    detached = leaf.detach()
    detached.stop_gradient = False
    return detached


class Recording(KeptGraph):
    """The graph of :func:`record`, kept alive for any number of pullbacks.

    Attributes:
        leaves: the primals.
        differentiable: positions of those that have a gradient.
        connected: whether gradients are to stay differentiable.
        drawn_from: the random state before the call.
        overwrites: whether the function writes into what depends on the leaves.
        given: what the function got for the leaves.
    """

    drawn_from: Any = None
    overwrites = False
    given: Sequence[Any]

    def __init__(
        self,
        leaves: Sequence[Any],
        targets: Sequence[Any],
        differentiable: Sequence[int],
        outputs: Sequence[Any],
        watch: Watch,
        connected: bool,
    ) -> None:
        self.leaves = leaves
        self.differentiable = differentiable
        self.connected = connected
        self._targets = targets
        self._outputs = outputs
        self._asked = [*watch.asked.values()]
        self._made = watch.made
        self._constants = watch.constants
        self._nested = watch.nested
        self._sparse = watch.sparse
        self.overwrites = watch.overwrites
        self._written = written_outside[0]
        self._graph: Graph | None = None

    @property
    def nodes(self) -> int:
        """Operators on the graph."""
        return self._surveyed().nodes

    @property
    def outputs(self) -> Sequence[Any]:
        """The outputs on the graph."""
        return self._outputs

    @property
    def inputs(self) -> list[Tensor]:
        """All that is differentiated by, the differentiable leaves first."""
        return [self._targets[i] for i in self.differentiable] + self._asked

    def free_variables(self) -> set[int]:
        """What outputs depend on that requires gradients and is no leaf."""
        own = [*(self._targets[i] for i in self.differentiable), *self._made]
        free = leaves_behind(self._on_graph(), own)
        free -= self._constants.keys()
        for made_of, found in self._nested if free else ():
            # Paddle makes leaves of its own within a gradient's graph.
            free -= leaves_behind(found) - leaves_behind(made_of)
        return free

    def explains(self, refusal: NotImplementedError) -> bool:
        """Whether it is the function's own doing, and nobody's writing afterwards."""
        own = self.overwrites and self._written == written_outside[0]
        return own or not isinstance(refusal, Overwritten)

    def forget(self) -> None:
        """Let go of what only :meth:`free_variables` needs."""
        self._made, self._nested, self._constants = [], [], {}

    def gradients(
        self,
        cotangents: Sequence[Tensor | None],
        asked: Collection[int] | None = None,
        sparse: Collection[int] = (),
    ) -> list[Any]:
        """Gradients, one per leaf, None where nothing is differentiable.

        Args:
            cotangents: one per output, of its shape and dtype, or None for zero.
            asked: positions of the leaves to differentiate; all when None. The others
                cost nothing and come back as None.
            sparse: positions of those whose gradients are wanted as RowSparse.

        Raises:
            ValueError: a cotangent of another shape.
            TypeError: one that is no tensor, or of another dtype, or for an output
                that has no derivative.
        """
        outputs, seeds = self._seeds(cotangents)
        wanted = self.differentiable
        if asked is not None:
            wanted = [i for i in wanted if i in asked]
        grads: list[Any] = [None] * len(self.leaves)
        if not (seeds and wanted):
            return grads
        found: Sequence[Any] = self._divided(outputs, seeds, wanted)
        if self._sparse or sparse:
            found = [
                RowSparse.of(grad) if i in sparse and grad is not None else dense(grad)
                for i, grad in zip(wanted, found, strict=True)
            ]
        for i, grad in zip(wanted, self._apart(found, seeds), strict=True):
            grads[i] = grad
        return grads

    def _apart(self, found: Sequence[Any], seeds: Sequence[Tensor]) -> Sequence[Any]:
        """Gradients that are no cotangents themselves."""
        return unaliased(found, seeds)

    def _divided(
        self, outputs: list[Tensor], seeds: list[Tensor], wanted: Sequence[int]
    ) -> Sequence[Tensor | None]:
        if listener() is not None:
            inputs = [self._targets[i] for i in wanted]
            return gradients(outputs, inputs, seeds, paddle.is_grad_enabled())
        with reached() as noted:
            found = self._by_paddle(outputs, seeds, wanted)
        return without_zeros(found, [self.given[i] for i in wanted], noted)

    def _by_paddle(
        self, outputs: list[Tensor], seeds: list[Tensor], wanted: Sequence[int]
    ) -> Sequence[Tensor | None]:
        """The wanted gradients alone, or picked from all of them."""
        every = self.differentiable
        if self.connected or records_graph(seeds):
            found = self.differentiable_gradients(outputs, seeds)
        else:
            part = len(wanted) < len(every) and self._surveyed().divisible
            if part:
                try:
                    inputs = [self._targets[i] for i in wanted]
                    return gradients(outputs, inputs, seeds, False)
                except NotImplementedError as error:  # a product of an empty batch
                    if not isinstance(error.__cause__, ValueError):
                        raise
            found = gradients(outputs, self.inputs, seeds, False)
        if len(wanted) == len(every):
            return found[: len(every)]
        return [grad for i, grad in zip(every, found, strict=False) if i in wanted]

    def differentiable_gradients(
        self, outputs: Sequence[Tensor], seeds: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Gradients by all of :attr:`inputs`, which can be differentiated once more.

        Where a kernel ends there, the gradients are right and it is differentiating
        them that raises a NotImplementedError.
        """
        second = None if listener() is not None else self._surveyed().second
        if second is None:
            try:
                return gradients(outputs, self.inputs, seeds, True)
            except NotImplementedError as error:
                why = str(error)
        else:
            why = second_order_fault(second)
        found = gradients(outputs, self.inputs, seeds, False)
        return refused_later(why, found, [*outputs, *seeds])

    def _surveyed(self) -> Graph:
        if self._graph is None:
            self._graph = survey(self._on_graph(), self.inputs)
        return self._graph

    def _on_graph(self) -> list[Tensor]:
        return [
            output
            for output in self._outputs
            if isinstance(output, Tensor) and not output.stop_gradient
        ]

    def _seeds(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Each output on the graph once, and the cotangents of these."""
        seeds: dict[int, Tensor] = {}
        outputs: list[Tensor] = []
        for i, (output, leaf) in enumerate(zip(self._outputs, cotangents, strict=True)):
            if leaf is None:
                continue
            check_seed(i, leaf, output)
            if output.stop_gradient:  # there is no way back from it
                continue
            if 0 in output.shape:  # paddle.grad refuses one without memory
                leaf = paddle.zeros_like(output)
            if id(output) in seeds:
                seeds[id(output)] = seeds[id(output)] + leaf
            else:
                seeds[id(output)] = leaf
                outputs.append(output)
        return outputs, list(seeds.values())
