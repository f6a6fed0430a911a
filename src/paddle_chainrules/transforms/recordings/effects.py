"""Functions that write into what they are given, and how their callers are spared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, methodcaller
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.listener import not_listening
from ...paddle_side.patching.write_counts import is_written_since
from ...paddle_side.rules.in_place import REFUSED_WRITE


class Effects:
    """Effects of a function as its calls have shown them: whether it is pure.

    Attributes:
        writes: whether it writes into its arguments. None until its first call, which
            gets copies; a comparison then tells.
        reaches: whether it uses tensors that require gradients and are no arguments;
            None until the first call.
        is_known: whether a call has shown what results depend on.
        asks: whether it asks for gradients of its arguments itself, by
            ``x.stop_gradient = False``.
        refused: whether Paddle's tape has refused to differentiate it.

    Args:
        check_free: called with what results depend on besides arguments; it may raise.
    """

    def __init__(
        self,
        writes: bool | None = None,
        reaches: bool | None = None,
        check_free: Callable[[set[int]], None] | None = None,
    ) -> None:
        self.writes = writes
        self.reaches = reaches
        self.asks = self.refused = False
        self.is_known = reaches is not None
        self._check_free = check_free

    def note_free(self, leaf_addresses: set[int], is_exact: bool = True) -> None:
        """Note what results depend on besides arguments, as addresses of leaves.

        Not ``is_exact`` if arguments may depend on some of these leaves.
        """
        if self._check_free is not None:
            self._check_free(leaf_addresses)
        self.is_known = True
        if self.reaches is None and is_exact:
            self.reaches = bool(leaf_addresses)

    @property
    def copies(self) -> bool:
        """True if it must be given copies."""
        return self.writes is not False

    def note_writes(self, call_copies: Sequence[Any], originals: Sequence[Any]) -> None:
        """Note whether a call has written into its arguments, by its copies."""
        if self.writes is None:
            self.writes = any(map(differ, call_copies, originals))

    def check(self, tensors: Iterable[Tensor], before: int) -> None:
        """Check arguments after a call without copies; their versions were these.

        Raises:
            RuntimeError: it wrote into one.
        """
        if versions(tensors) != before:
            self.writes = True
            raise RuntimeError(
                "the function or layer has written into one of its arguments, or "
                "parameters, which it did not do at its first call; the values there "
                "are changed. From now on it works on copies: call it again with the "
                "values restored, or write it without in-place operations"
            )


def tensors_among(values: Iterable[Any]) -> list[Tensor]:
    """Return those of the values that are tensors."""
    return [leaf for leaf in values if isinstance(leaf, Tensor)]


def versions(tensors: Iterable[Tensor]) -> int:
    """Return a number that moves when an operation writes into one of the tensors."""
    return sum(map(version_of, tensors))


def flags(tensors: Iterable[Tensor]) -> list[bool]:
    """Return for each tensor whether it requires no gradients."""
    return [*map(_FLAG, tensors)]


version_of, _FLAG = methodcaller("_inplace_version"), attrgetter("stop_gradient")


def restore_flags(tensors: Iterable[Tensor], before: Iterable[bool]) -> None:
    """Set the flags of tensors as :func:`flags` has found them."""
    for tensor, flag in zip(tensors, before, strict=True):
        tensor.stop_gradient = flag


def copied(leaf: Any) -> Any:
    """Copy a tensor, connected as the leaf is; return anything else as it is."""
    return paddle.assign(leaf) if isinstance(leaf, Tensor) else leaf


def is_refused_write(error: Exception) -> bool:
    """Tell whether Paddle refused to write into a leaf of the graph."""
    return isinstance(error, ValueError) and REFUSED_WRITE in str(error)


def check_unchanged(tensors: Iterable[Tensor], before: int, what: str) -> None:
    """Refuse to go back through a call whose tensors had other versions.

    Raises:
        RuntimeError: an operation in place has changed one.
    """
    if versions(tensors) != before:
        raise RuntimeError(
            f"{what} has been modified by an inplace operation since the forward of "
            "this pullback, which needs it as it was; take the gradient before the "
            "update, or update copies"
        )


def check_unwritten(tensors: Iterable[Tensor], since: int) -> None:
    """Refuse to go back through a call that somebody has written behind.

    Args:
        tensors: what the call was given.
        since: the number of writes before.

    Raises:
        RuntimeError: one was set to other values, which Paddle does not count.
    """
    if is_written_since(since, tensors):
        raise RuntimeError(
            "a parameter or an argument has been set to other values since the forward "
            "of this pullback (by set_value, copy_, set_state_dict or the step of an "
            "optimizer), which needs it as it was; take the gradient before the "
            "update, or update copies"
        )


def differ(copy: Any, original: Any) -> bool:
    """Tell whether a copy has been written into."""
    if not isinstance(copy, Tensor) or not copy._is_initialized() or not copy.size:
        return False
    if copy.inplace_version:
        return True
    with not_listening():
        one, other = (t.detach().numpy().tobytes() for t in (copy, original))
    return bool(one != other)
