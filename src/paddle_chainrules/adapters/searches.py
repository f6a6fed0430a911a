"""Searches that a library's training takes step by step."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from paddle import Tensor

from ..optimizers import bfgs, gauss_newton, levenberg_marquardt, natural_gradient
from ..optimizers.second_order.methods import METHODS
from ..optimizers.second_order.reports import next_step
from ..transforms.as_programs.jit import jit
from ..transforms.containers.tree import flatten_tree
from .functional_loss import (
    FunctionalLoss,
    LibraryLoss,
    available_bytes,
    text_of_bytes,
)
from .row_jacobian import NotByRows, RowJacobian

MATRIX_FREE = {
    bfgs: "lbfgs",
    levenberg_marquardt: "gauss_newton",
    natural_gradient: "gauss_newton",
}
"""Methods without a matrix, in the place of those with one."""

JACOBIANS = 3
"""How many matrices of a Jacobian's size are in memory at once."""


class Search:
    """A search that goes on with other points, and keeps what it has learnt.

    Args:
        method, options: the method's name, and its options.
        library: the loss.

    Attributes:
        loss: the loss as a function.
        by_rows: why the Jacobian is computed one residual or parameter at a time, if
            that is so.
        reason: why the last search has ended.
        damping: that of the last step; None where there is none.

    Raises:
        ValueError: a matrix does not fit into memory, or the loss is no sum of squares.
        CaptureError: the loss can't be compiled.
    """

    def __init__(
        self, method: str, options: dict[str, Any], library: LibraryLoss
    ) -> None:
        self._name, self._method = method, METHODS[method]
        self._options = self._method.options | options
        self._learnt: dict[str, Any] = {}
        self._steps: Any = None
        self._written: Sequence[Tensor] = ()
        self.by_rows = self.reason = ""
        self.damping: float | None = None
        self.renew(library)

    def renew(self, library: LibraryLoss) -> None:
        """Take another loss of the same tensors."""
        self.restart()
        self.by_rows = ""
        self._jacobian: RowJacobian | None = None
        size = sum(int(t.size) for t in library.tensors)
        if not self._method.takes_residuals:
            if self._method.function is bfgs:
                self._check_memory(size, size, 1)
            self.loss = FunctionalLoss(library)
            return
        count = sum(int(errors.size) for errors, _ in library.terms())
        self.loss = FunctionalLoss(library)
        self._check_squares()
        if self._method.function is gauss_newton:
            return
        self._check_memory(count, size, JACOBIANS)
        try:
            self._jacobian = RowJacobian(self.loss)
        except NotByRows as error:
            self.by_rows = str(error)
        except Exception as error:  # the library's code, with a net of one point
            self.by_rows = str(error).splitlines()[0] or type(error).__name__

    def _check_squares(self) -> None:
        """See that the sum of the squares of the residuals is the loss."""
        start = self.loss.start()
        residuals = jit(self.loss.residuals, strict=True)(start)
        found = sum(float((r**2).sum()) for r in residuals)
        expected = float(self.loss.library.total())
        if not abs(found - expected) <= 1e-3 * expected:
            raise ValueError(
                f"{self._name} needs a loss of mean squares, and the sum of "
                f"squares is {found:.6g} where the loss is {expected:.6g}; use "
                '"self_scaled_broyden", which takes any loss'
            )

    def _check_memory(self, rows: int, columns: int, matrices: int) -> None:
        needed = 8.0 * rows * columns * matrices
        if needed > available_bytes():
            other = MATRIX_FREE[self._method.function]
            raise ValueError(
                f"{self._name} needs {text_of_bytes(needed)} for matrices "
                f"of {rows:,} by {columns:,}, and {text_of_bytes(available_bytes())} "
                f"are free; use {other!r}, which has no such matrix, or fewer points"
            )

    def restart(self) -> None:
        """Begin again from what the tensors hold, with what was learnt."""
        if self._steps is not None:
            self._end()
        self.reason = ""

    def step(self) -> float | None:
        """Take a step, and write its values into the tensors; return the loss.

        None if no step goes further; :attr:`reason` says why.
        """
        if self._steps is None:
            self._steps = self._begin()
        try:
            _, values, value, self.damping = next_step(self._steps)
        except StopIteration as end:
            self._learn(end.value)
            return None
        self.loss.write(values)
        self._written = values
        return 2.0 * value if self._is_half else value

    @property
    def _is_half(self) -> bool:
        """Whether the function minimizes half of the loss."""
        return self._method.function in (levenberg_marquardt, gauss_newton)

    def forget_if_moved(self) -> None:
        """Begin anew where others have written into the tensors since the last step."""
        pairs = zip(self._written, self.loss.library.tensors, strict=False)
        if not all(bool((a == b).all()) for a, b in pairs):
            self._steps, self._learnt = None, {}

    def _begin(self) -> Any:
        function: Any = self._method.function
        options = {"steps": sys.maxsize, **self._options, **self._learnt}
        if function in (levenberg_marquardt, natural_gradient):
            options["jacobian"] = self._jacobian
        if function is natural_gradient:
            options["metric"] = self.loss.residuals
        fn = self.loss.residuals if self._is_half else self.loss.total
        return function.__wrapped__(fn, self.loss.start(), **options)

    def _end(self) -> None:
        """End the search, and keep what it has learnt."""
        try:
            next_step(self._steps, True)
        except StopIteration as end:
            self._learn(end.value)

    def _learn(self, found: Any) -> None:
        self._steps, self.reason = None, found.reason
        if self._is_half:
            self._learnt = {"damping": found.damping}
        elif self._method.function is not natural_gradient:
            self._learnt = {"inverse": found.inverse}


class SearchOptimizer:
    """What a library has for its optimizer: the method, and the search once it began.

    Attributes:
        method, options: the method's name, and its options.
        loss: the library's loss.
        search: the search.
    """

    def __init__(
        self, method: str, options: dict[str, Any], params: Sequence[Tensor]
    ) -> None:
        self.method, self.options = method, options
        self._parameter_list = [*params]
        self.loss: Any = None
        self.search: Search | None = None

    def trained(self, net: Any) -> tuple[list[Tensor], int]:
        """Return what is trained, a net's first, and how many are the net's."""
        own = {*map(id, net.parameters())}
        tensors = [t for t in self._parameter_list if not t.stop_gradient and t.size]
        tensors.sort(key=lambda t: id(t) not in own)
        return tensors, sum(id(t) in own for t in tensors)

    def take(self, loss: Any) -> None:
        """Search with another loss from now on."""
        self.loss = loss
        if self.search is None:
            self.search = Search(self.method, self.options, loss)
        else:
            self.search.renew(loss)

    def get_lr(self) -> float:
        """Return one: a search finds the lengths of its steps itself."""
        return 1.0

    def search_at(self, batch: Any, new_loss: Callable[[], Any]) -> Search:
        """Return the search at the points of a batch, which goes on where it can.

        Args:
            new_loss: makes the loss where the last one can't take the points.
        """
        moved = None if self.loss is None else self.loss.moved_to(batch)
        if moved is None:
            self.take(new_loss())
            self.loss.moved_to(batch)  # notes the state from here on
        assert self.search is not None
        if moved:
            self.search.restart()
        return self.search

    def state_dict(self) -> dict[str, Any]:
        """Return the method's name alone: a search that is restored learns anew."""
        return {"method": self.method}

    def set_state_dict(self, state: dict[str, Any]) -> None:
        """Forget what was learnt of other parameters."""
        self.loss = self.search = None


def shape_and_dtype(leaf: Any) -> Any:
    """Return what programs tell tensors apart by; other values are themselves."""
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


def overwrite(old: Any, new: Any) -> bool:
    """Write the tensors of a tree into another's; tell whether they are of one kind."""
    before, after = flatten_tree(old)[0], flatten_tree(new)[0]
    if [*map(shape_and_dtype, before)] != [*map(shape_and_dtype, after)]:
        return False
    for a, b in zip(before, after, strict=True):
        if isinstance(a, Tensor):
            a.set_value(b)
    return True


class _Unseen:
    """The state of a loss that reads what is too large to be compared."""

    def is_same(self) -> bool:
        return True


def state_of(read: Callable[[], Any]) -> Any:
    """Return the state of what a loss reads; warn where that can't be compared."""
    try:
        return read()
    except ValueError as error:
        warnings.warn(
            f"a search does not see changes of what the loss reads besides: {error}; "
            "compile the model anew after such a change",
            stacklevel=6,
        )
        return _Unseen()


class Progress:
    """A line on a terminal that tells how far a search is.

    Args:
        steps: the number of steps; infinite if only time ends it.
        seconds: the time, or None.
    """

    INTERVAL = 0.5

    def __init__(self, steps: float, seconds: float | None) -> None:
        self._steps, self._begin = steps, time.monotonic()
        self._end = None if seconds is None else self._begin + seconds
        self._last = 0.0
        self._is_shown = sys.stderr.isatty()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._end is not None and time.monotonic() >= self._end

    def show(self, step: int, loss: float, damping: float | None = None) -> None:
        """Write the line anew, twice a second at most."""
        now = time.monotonic()
        if not self._is_shown or now - self._last < self.INTERVAL:
            return
        self._last = now
        sys.stderr.write(f"\r{self.line(step, loss, now, damping)}\033[K")
        sys.stderr.flush()

    def line(
        self, step: int, loss: float, now: float, damping: float | None = None
    ) -> str:
        """Return the line."""
        spent = now - self._begin
        left = math.inf if self._end is None else self._end - now
        if step and math.isfinite(self._steps):
            left = min(left, spent / step * (self._steps - step))
        of = f" of {self._steps:.0f}" if math.isfinite(self._steps) else ""
        damped = f", damping {damping:.1e}" if damping is not None else ""
        time_left = f"{max(left, 0.0):.0f} s left"
        return f"step {step}{of}, loss {loss:.3e}{damped}, {time_left}"

    def close(self) -> None:
        """End the line."""
        if self._is_shown and self._last:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
