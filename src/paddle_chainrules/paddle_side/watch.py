"""Notes of a recording, for the operators that are called meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple
from weakref import ref

from paddle import Tensor

from .listener import listener

_watching = threading.local()

written_outside = [0]
"""Number of operations in place outside of recordings."""


class IndexedView(NamedTuple):
    """A view of part of a tensor, and by which index; neither is kept alive."""

    whole: ref[Tensor]
    view: ref[Tensor]
    index: Any


class TapeContext:
    """The facts of one recording that its operators read and write.

    Args:
        leaves: what the recording differentiates with respect to.
        by_caller: whether the caller differentiates the graph by Paddle's own means.
            Then no gradients can be asked for besides those that the caller asks for.
    """

    def __init__(self, leaves: Sequence[Any], by_caller: bool = False) -> None:
        self._leaves = leaves
        self.by_caller = by_caller
        self.asked: dict[int, Tensor] = {}
        """Tensors to differentiate with respect to as well, for the other gradients'
        sake."""
        self.made: list[Tensor] = []
        """Leaves made of constants."""
        self.refusal = ""
        """Reason why the recording is not differentiated; empty if it is."""
        self.sparse = False
        """True if a gradient may have rows alone."""
        self.overwrites = False
        """True if a traced tensor has been written into."""
        self.writes: list[Any] = []
        """Nodes of written tensors that must not be used otherwise."""
        self.same: dict[int, tuple[Any, Any]] = {}
        """By address, a node and the one before a write that changed no derivative."""
        self.constants: dict[int, Any] = {}
        """Leaves by address that Paddle has made of constants written into."""
        self.views: dict[int, list[ref[Tensor]]] = {}
        """By a constant's identity, all tensors that share its memory by views."""
        self.parts: dict[int, list[IndexedView]] = {}
        """By a traced tensor's identity, the parts that indices took of it."""

    @cached_property
    def leaves(self) -> frozenset[int]:
        """The identities of the recording's leaves."""
        return frozenset(map(id, self._leaves))

    def has(self, tensor: Tensor) -> bool:
        """Tell whether just this tensor is one of the recording's leaves."""
        return id(tensor) in self.leaves or any(tensor is t for t in self.made)

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


def watch_alone(stack: list[TapeContext]) -> None:
    """Have these recordings be those under way on this thread."""
    _watching.stack = stack


class set_aside:
    """A context without recordings on this thread, since a record of ours notes it all.

    Writes within are that record's.
    """

    def __enter__(self) -> None:
        self._before = recordings(), getattr(_watching, "set_aside", False)
        _watching.stack, _watching.set_aside = [], True

    def __exit__(self, *_: object) -> None:
        _watching.stack, _watching.set_aside = self._before


def note_written() -> None:
    """Count an operation in place outside of recordings."""
    if not getattr(_watching, "set_aside", False):
        written_outside[0] += 1


def watched() -> bool:
    """Tell whether a recording is under way on this thread."""
    return bool(recordings())


def as_leaf(constant: Tensor) -> Tensor:
    """Return a leaf on the memory of a constant, known to every recording under way."""
    made: Tensor = constant.detach()
    made.stop_gradient = False
    for watch in recordings():
        watch.made.append(made)
    return made


def ask_for(tensors: Sequence[Tensor]) -> None:
    """Have every recording under way differentiate by these too."""
    stack = recordings()
    if stack:
        RuleContext(stack).ask([t for t in tensors if not t.stop_gradient])


def has_view(constant: Tensor) -> bool:
    """Tell whether it shares memory with another living tensor, by views."""
    for watch in recordings():
        living = [tensor() for tensor in watch.views.get(id(constant), ())]
        if any(tensor is constant for tensor in living):  # and not one before it
            return sum(tensor is not None for tensor in living) > 1
    return False


def recordings() -> list[TapeContext]:
    """Return the recordings under way on this thread, the innermost last."""
    try:
        results: list[TapeContext] = _watching.stack
    except AttributeError:
        results = _watching.stack = []
    return results


class RuleContext:
    """The recordings under way on a thread, the innermost last."""

    def __init__(self, stack: list[TapeContext]) -> None:
        self._stack = stack

    def create_graph(self, inputs: Sequence[Any]) -> bool:
        """Tell whether results of these inputs may be differentiated twice."""
        if self._stack[0].by_caller:
            return True
        for given in inputs:
            if is_traced(given) and given.is_leaf and not self.is_leaf(given):
                return True  # by somebody else, who has a leaf there
        return False

    @property
    def records(self) -> bool:
        """True if a recording is under way."""
        return bool(self._stack)

    @property
    def by_caller(self) -> bool:
        """True if constants can't be asked for."""
        return any(watch.by_caller for watch in self._stack)

    def ask(self, tensors: Sequence[Tensor]) -> None:
        """Have every recording differentiate by these too."""
        for watch in self._stack:
            for tensor in tensors:
                if id(tensor) not in watch.leaves:
                    watch.asked[id(tensor)] = tensor

    def refuse(self, why: str) -> None:
        """Have the innermost recording refuse what it has recorded.

        Raises:
            NotImplementedError: there is none, since a record of ours listens.
        """
        if not self._stack:
            raise NotImplementedError(why)
        self._stack[-1].refusal = why

    def note_overwritten(self) -> None:
        """Have every recording know that a traced tensor has been written into."""
        for watch in self._stack:
            watch.overwrites = True

    def note_writes(self, writes: Sequence[Any]) -> None:
        """Have every recording look at its results for other uses of these."""
        for watch in self._stack:
            watch.writes += writes

    @property
    def same(self) -> dict[int, tuple[Any, Any]]:
        """By address, a node and the one before a write that changed no derivative."""
        return self._stack[0].same

    def note_same(self, node: Any, before: Any) -> None:
        """Have it known that a write has changed no derivative."""
        self.same[node.node_ptr()] = node, before

    def note_constant(self, leaf: Any) -> None:
        """Have every recording know of a node that is no tensor of the caller's."""
        for watch in self._stack:
            watch.constants[leaf.node_ptr()] = leaf

    def note_view(self, constant: Tensor, view: Any) -> None:
        """Have the innermost recording know of a view of a constant."""
        views = self._stack[-1].views
        sharing = views.get(id(constant))
        if sharing is None or not any(tensor() is constant for tensor in sharing):
            sharing = views[id(constant)] = [ref(constant)]
        sharing.append(ref(view))
        views[id(view)] = sharing

    def note_part(self, whole: Tensor, view: Tensor, index: Any) -> None:
        """Have the innermost recording know of a view of part of a traced tensor."""
        parts = self._stack[-1].parts.setdefault(id(whole), [])
        parts.append(IndexedView(ref(whole), ref(view), index))

    def parts_of(self, whole: Tensor) -> list[tuple[Tensor, Any]]:
        """Return living views of its parts, each with its index."""
        results = []
        for watch in self._stack:
            for part in watch.parts.get(id(whole), ()):
                view = part.view()
                if view is not None and part.whole() is whole:
                    results.append((view, part.index))
        return results

    def note_sparse(self) -> None:
        """Note that a gradient of the innermost recording may have rows alone."""
        self._stack[-1].sparse = True

    def is_leaf(self, tensor: Tensor) -> bool:
        """Tell whether the innermost recording has just this tensor as a leaf."""
        return self._stack[-1].has(tensor)

    def is_given(self, tensor: Tensor) -> bool:
        """Tell whether any recording has just this tensor as a leaf."""
        return any(watch.has(tensor) for watch in self._stack)


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
            results += [part for part in value if isinstance(part, Tensor)]
    return results
