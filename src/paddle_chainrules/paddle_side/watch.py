"""Notes of a recording, for the operators that are called meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple
from weakref import ref

from paddle import Tensor

from .listener import listener, local

written_outside = [0]
"""Number of operations in place outside of recordings."""


class PartView(NamedTuple):
    """A view of part of a tensor, and how to take it anew; holds neither alive."""

    base: ref[Tensor]
    view: ref[Tensor]
    take: Callable[[Tensor], Tensor]


class TapeContext:
    """The facts of one recording that its operators read and write.

    Args:
        leaves: what the recording differentiates with respect to.
        by_caller: whether the caller differentiates the graph by Paddle's own means.
            Then no gradients can be asked for besides those that the caller asks for.
        nests: whether the gradients may be differentiated, too.
    """

    def __init__(
        self, leaves: Sequence[Any], by_caller: bool = False, nests: bool = False
    ) -> None:
        self._leaves = leaves
        self.by_caller = by_caller
        self.nests = nests or by_caller
        self.requested_tensors: dict[int, Tensor] = {}
        """Tensors to differentiate with respect to as well, for the other gradients'
        sake."""
        self.created_leaves: list[Tensor] = []
        """Leaves made of constants."""
        self.refusal = ""
        """Reason why the recording is not differentiated; empty if it is."""
        self.sparse = False
        """True if a gradient may have rows alone."""
        self.overwrites = False
        """True if a traced tensor has been written into."""
        self.writes: list[Any] = []
        """Nodes of written tensors that must not be used otherwise."""
        self.neutral_writes: dict[int, tuple[Any, Any]] = {}
        """By address, a node and the one before a write that changed no derivative."""
        self.constants: dict[int, Any] = {}
        """Leaves by address that Paddle has made of constants written into."""
        self.views: dict[int, list[ref[Tensor]]] = {}
        """By a constant's identity, all tensors that share its memory by views."""
        self.part_views: dict[int, list[PartView]] = {}
        """By a traced tensor's identity, the views of parts of it, and their views."""
        self.part_view_bases: dict[int, list[PartView]] = {}
        """The same by the view's identity."""

    @cached_property
    def leaves(self) -> frozenset[int]:
        """The identities of the recording's leaves."""
        return frozenset(map(id, self._leaves))

    def has_leaf(self, tensor: Tensor) -> bool:
        """Tell whether just this tensor is one of the recording's leaves."""
        return id(tensor) in self.leaves or any(
            tensor is t for t in self.created_leaves
        )

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run ``fn(*args)`` while the operators of this thread are watched.

        A thread with a listener is left alone, since the listener has rules of its own.

        Raises:
            NotImplementedError: an operator was met that is not differentiated.
        """
        if listener() is not None:
            return fn(*args)
        try:
            self._begin()
            result = fn(*args)
        finally:
            try:
                self._end()
            except BaseException:  # an interrupt
                self._end()
                raise
        if self.refusal:
            raise NotImplementedError(self.refusal)
        return result

    def _begin(self) -> None:
        self.on_begin()
        recordings().append(self)

    def _end(self) -> None:
        stack = recordings()
        while self in stack:
            stack.pop()

    on_begin: ClassVar[Any]
    """Function of :mod:`.rules.operators` that runs when a watch begins."""


def set_recordings(stack: list[TapeContext]) -> None:
    """Replace the recordings under way on this thread."""
    local.recordings = stack


class tapes_suspended:
    """A context without recordings on this thread, since a tracer notes it all.

    Writes within are that tracer's.
    """

    def __enter__(self) -> None:
        self._before = recordings(), local.suspended
        local.recordings, local.suspended = [], True

    def __exit__(self, *_: object) -> None:
        local.recordings, local.suspended = self._before


def note_written() -> None:
    """Count an operation in place outside of recordings."""
    if not local.suspended:
        written_outside[0] += 1


def watched() -> bool:
    """Tell whether a recording is under way on this thread."""
    return bool(local.recordings)


def as_leaf(constant: Tensor) -> Tensor:
    """Return a leaf on the memory of a constant, known to every recording under way."""
    leaf: Tensor = constant.detach()
    leaf.stop_gradient = False
    for tape in recordings():
        tape.created_leaves.append(leaf)
    return leaf


def request_gradients(tensors: Sequence[Tensor]) -> None:
    """Have every recording under way differentiate with respect to these, too."""
    stack = recordings()
    if stack:
        RuleContext(stack).request([t for t in tensors if not t.stop_gradient])


def has_view(constant: Tensor) -> bool:
    """Tell whether it shares memory with another living tensor, by views."""
    for tape in recordings():
        living = [tensor() for tensor in tape.views.get(id(constant), ())]
        if any(tensor is constant for tensor in living):  # and not one before it
            return sum(tensor is not None for tensor in living) > 1
    return False


def recordings() -> list[TapeContext]:
    """Return the recordings under way on this thread, the innermost last."""
    if isinstance(local.recordings, tuple):  # none has begun on this thread
        local.recordings = []
    results: list[TapeContext] = local.recordings
    return results


class RuleContext:
    """The recordings under way on a thread, the innermost last."""

    def __init__(self, stack: list[TapeContext]) -> None:
        self._stack = stack

    def create_graph(self, inputs: Sequence[Any]) -> bool:
        """Tell whether results of these inputs may be differentiated twice."""
        if any(tape.nests for tape in self._stack):
            return True
        for tensor in inputs:
            if is_traced(tensor) and tensor.is_leaf and not self.is_leaf(tensor):
                return True  # by somebody else, who has a leaf there
        return False

    @property
    def records(self) -> bool:
        """True if a recording is under way."""
        return bool(self._stack)

    @property
    def by_caller(self) -> bool:
        """True if constants can't be asked for."""
        return any(tape.by_caller for tape in self._stack)

    def request(self, tensors: Sequence[Tensor]) -> None:
        """Have every recording differentiate with respect to these, too."""
        for tape in self._stack:
            for tensor in tensors:
                if id(tensor) not in tape.leaves:
                    tape.requested_tensors[id(tensor)] = tensor

    def refuse(self, reason: str) -> None:
        """Have the innermost recording refuse what it has recorded.

        Raises:
            NotImplementedError: there is none, since a tracer listens.
        """
        if not self._stack:
            raise NotImplementedError(reason)
        self._stack[-1].refusal = reason

    def note_overwritten(self) -> None:
        """Have every recording know that a traced tensor has been written into."""
        for tape in self._stack:
            tape.overwrites = True

    def note_writes(self, writes: Sequence[Any]) -> None:
        """Have every recording look at its results for other uses of these."""
        for tape in self._stack:
            tape.writes += writes

    @property
    def neutral_writes(self) -> dict[int, tuple[Any, Any]]:
        """By address, a node and the one before a write that changed no derivative."""
        return self._stack[0].neutral_writes

    def note_neutral_write(self, node: Any, before: Any) -> None:
        """Have it known that a write has changed no derivative."""
        self.neutral_writes[node.node_ptr()] = node, before

    def note_constant(self, leaf: Any) -> None:
        """Have every recording know of a node that is no tensor of the caller's."""
        for tape in self._stack:
            tape.constants[leaf.node_ptr()] = leaf

    def note_view(self, constant: Tensor, view: Any) -> None:
        """Have the innermost recording know of a view of a constant."""
        views = self._stack[-1].views
        sharing = views.get(id(constant))
        if sharing is None or not any(tensor() is constant for tensor in sharing):
            sharing = views[id(constant)] = [ref(constant)]
        sharing.append(ref(view))
        views[id(view)] = sharing

    def note_part_view(
        self, base: Tensor, view: Tensor, take: Callable[[Tensor], Tensor]
    ) -> None:
        """Have the innermost recording know of a view of part of a traced tensor.

        It is a view of all tensors that the base is a view of, also after the base is
        gone.

        Args:
            take: gives such a view of a tensor like the base.
        """
        tape = self._stack[-1]
        bases = [(part.base, _composed(take, part.take)) for part in self._bases(base)]
        for each, take_of_each in [*bases, (ref(base), take)]:
            part = PartView(each, ref(view), take_of_each)
            tape.part_views.setdefault(id(each()), []).append(part)
            tape.part_view_bases.setdefault(id(view), []).append(part)

    def is_part_view(self, tensor: Tensor) -> bool:
        """Tell whether it is known as a view of part of a traced tensor."""
        return bool(self._bases(tensor))

    def _bases(self, view: Tensor) -> list[PartView]:
        """Return it as a view of each living tensor of which it is one."""
        return [
            part
            for tape in self._stack
            for part in tape.part_view_bases.get(id(view), ())
            if part.view() is view and part.base() is not None
        ]

    def part_views_of(
        self, base: Tensor
    ) -> list[tuple[Tensor, Callable[[Tensor], Tensor]]]:
        """Return living views of parts of a tensor, each with how to take it anew."""
        results = []
        for tape in self._stack:
            for part in tape.part_views.get(id(base), ()):
                view = part.view()
                if view is not None and part.base() is base:
                    results.append((view, part.take))
        return results

    def note_sparse(self) -> None:
        """Note that a gradient of the innermost recording may have rows alone."""
        self._stack[-1].sparse = True

    def is_leaf(self, tensor: Tensor) -> bool:
        """Tell whether the innermost recording has just this tensor as a leaf."""
        return self._stack[-1].has_leaf(tensor)

    def is_any_leaf(self, tensor: Tensor) -> bool:
        """Tell whether any recording has just this tensor as a leaf."""
        return any(tape.has_leaf(tensor) for tape in self._stack)


def _composed(
    take: Callable[[Tensor], Tensor], before: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    return lambda base: take(before(base))


def is_traced(value: Any) -> bool:
    """Tell whether it is a tensor that requires gradients."""
    return isinstance(value, Tensor) and not value.stop_gradient


def tensors_in_arguments(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among the values and in lists of them."""
    results: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            results.append(value)
        elif isinstance(value, list | tuple):
            results += [item for item in value if isinstance(item, Tensor)]
    return results
