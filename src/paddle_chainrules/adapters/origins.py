"""Provenance of tensors: columns of a net's output, or derivatives of such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from paddle import Tensor

from ..paddle_side.listener import listener, not_listening
from ..paddle_side.shared_memory import share_memory


class Entry(NamedTuple):
    """A column of an output, and the columns of inputs it is differentiated by."""

    output: int
    column: int
    by: tuple[tuple[int, int], ...] = ()

    def derivative(self, input_column: tuple[int, int]) -> Entry:
        """Return the derivative of the entry by one more column of an input."""
        return self._replace(by=tuple(sorted((*self.by, input_column))))

    def is_behind(self, other: Entry) -> bool:
        """Tell whether the other entry is this one, or a derivative of it."""
        same = (self.output, self.column) == (other.output, other.column)
        return same and not Counter(self.by) - Counter(other.by)


class DerivativeRequests:
    """The derivatives asked of one call of a net.

    Attributes:
        requested: the derivatives, known or not.
        unsupported: why something asked for is none of these.
        gains: whether series take less time than gradients do.
        is_settled: whether calls like this have gained nothing.
        is_open: whether more may be asked, since the library has not cleared yet.
    """

    def __init__(self) -> None:
        self.requested: set[Entry] = set()
        self.unsupported = ""
        self.gains = self.is_settled = False
        self.is_open = True

    @property
    def wanted(self) -> Set[Entry]:
        """The derivatives that a program is to compute."""
        return self.requested if self.gains else frozenset()


class NetCall(NamedTuple):
    """One call of a net: its tensors, and the derivatives computed with it."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    derivatives: dict[Entry, Tensor]
    notes: DerivativeRequests
    compute_entries: Callable[[Sequence[Tensor], Sequence[Entry]], list[Tensor]]
    """Function from the inputs and other entries to the derivatives of these
    entries."""
    by_program: bool
    """True if a program has computed it."""

    def input_index(self, x: Tensor) -> int | None:
        """Return the position of ``x`` among the inputs, or None."""
        return next((i for i, tensor in enumerate(self.inputs) if tensor is x), None)


class Origin(NamedTuple):
    """The call and the entries that the columns of a tensor come from."""

    tensor: Tensor
    call: NetCall
    entries: tuple[Entry, ...]
    version: int
    """Version of the tensor: how many writes it had seen."""

    def is_same(self) -> bool:
        return bool(self.tensor._inplace_version() == self.version)


class Origins:
    """The origins of tensors that calls have given, until they are cleared.

    Scripts that never clear would hold the graphs of all their steps. So only the last
    calls are remembered.
    """

    MAX_CALLS = 16

    def __init__(self) -> None:
        self._origins: dict[int, Origin] = {}
        self._calls: dict[int, NetCall] = {}  # by the identity of their notes, in order

    def clear(self) -> None:
        for call in self._calls.values():
            call.notes.is_open = False
        self._origins.clear()
        self._calls.clear()

    def calls(self) -> Collection[NetCall]:
        """Return the calls that are remembered."""
        return self._calls.values()

    def _forget_first(self) -> None:
        """Forget the call that is longest ago, and what came with it."""
        notes = self._calls.pop(next(iter(self._calls))).notes
        notes.is_open = False
        self._origins = {
            key: origin
            for key, origin in self._origins.items()
            if origin.call.notes is not notes
        }

    def __iter__(self) -> Iterator[Origin]:
        return iter(self._origins.values())

    def __len__(self) -> int:
        return len(self._origins)

    def ancestors(self, call: NetCall, entries: Sequence[Entry]) -> Iterator[Tensor]:
        """Return the tensors that these are, or are derivatives of."""
        for origin in [*self._origins.values()]:
            if origin.call.notes is call.notes and any(
                ancestor.is_behind(entry)
                for ancestor in origin.entries
                for entry in entries
            ):
                yield origin.tensor

    def add_outputs(self, call: NetCall) -> None:
        while len(self._calls) >= self.MAX_CALLS:
            self._forget_first()
        for k, y in enumerate(call.outputs):
            if y.ndim == 2:
                self._calls[id(call.notes)] = call
                self.add(y, call, (Entry(k, c) for c in range(y.shape[1])))
        for entry, y in call.derivatives.items():
            self.add(y, call, (entry,))

    def add(self, tensor: Tensor, call: NetCall, entries: Iterable[Entry]) -> None:
        version = tensor._inplace_version()
        self._origins[id(tensor)] = Origin(tensor, call, tuple(entries), version)

    def origin_of(self, y: Tensor) -> Origin | None:
        """Return the origin of a known tensor, or of neighbouring columns of one."""
        result = self._origins.get(id(y))
        if result is not None:
            return result if result.is_same() else None
        if y.ndim != 2 or y.stop_gradient or (y.is_leaf and listener() is None):
            return None  # while a listener records, all tensors are leaves
        for origin in self._origins.values():
            with not_listening():
                columns = _columns_in(y, origin.tensor)
            if columns is not None and origin.is_same():
                self.add(y, origin.call, origin.entries[columns])
                return self._origins[id(y)]
        return None


def _columns_in(y: Tensor, base: Tensor) -> slice | None:
    """Return which columns of the other tensor it is a view of, as a slice."""
    if y.dtype != base.dtype or not share_memory(y, base):
        return None
    rows, width = base.shape
    if y.shape[0] != rows or y.get_strides() != base.get_strides():
        return None
    start, remainder = divmod(y.data_ptr() - base.data_ptr(), base.element_size())
    if remainder or not 0 <= start <= width - y.shape[1]:
        return None
    return slice(start, start + y.shape[1])
