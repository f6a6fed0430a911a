"""A library's loss as a function of the tensors that it trains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

import paddle
from paddle import Tensor

from ..errors import CaptureError
from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.dtypes import dtype_name
from ..paddle_side.listener import listener
from ..transforms.as_programs.jit import jit
from ..transforms.containers.tree import flatten_tree
from ..transforms.derivatives.value_and_grad import value_and_grad
from ..transforms.vmap import vmap

RTOL = {"float64": 1e-9, "float32": 1e-3}
"""The largest difference of a loss or gradient from the library's own."""

NetCall = Callable[[Any], Any]


class Term(NamedTuple):
    """A part of a loss: the weight times the mean of the squares of errors."""

    errors: Tensor
    weight: float


class SomePoints(NamedTuple):
    """Some points of a call: their numbers, those of the rest, and of all in both."""

    points: Tensor
    rest: Tensor
    order: Tensor


class LibraryLoss(Protocol):
    """The loss of a library's training, by its own code.

    Attributes:
        tensors: what is trained.
        net_tensors: how many of them, from the first on, are the net's.
        points: the number of points of each call of the net; nothing if that is
            unknown.
    """

    tensors: Sequence[Tensor]
    net_tensors: int
    points: Sequence[int]

    def total(self) -> Tensor:
        """Return the loss for the present contents of the tensors."""

    def terms(self, call_net: Callable[[NetCall], NetCall] | None = None) -> list[Term]:
        """Return the parts of the loss, all of which are squares.

        Args:
            call_net: returns a function to be called in the net's place.

        Raises:
            ValueError: some are none.
        """

    def reading(self) -> AbstractContextManager[Any]:
        """Return a context for the library's code while it is compiled."""


class FunctionalLoss:
    """A library's loss as functions of values for its tensors, for programs.

    The tensors stand for the values while the library's code is traced, so all code
    that reads them takes part: equations, conditions, nets within others.

    Args:
        library: the loss.

    Raises:
        CaptureError: it can't be compiled.
        ValueError: the program gives another loss or gradient than the library.
    """

    def __init__(self, library: LibraryLoss) -> None:
        self.library = library
        self._check()

    def start(self) -> list[Tensor]:
        """Return copies of what the tensors hold."""
        return [t.detach().clone() for t in self.library.tensors]

    def write(self, values: Sequence[Tensor]) -> None:
        """Write values into the tensors."""
        with paddle.no_grad():
            for tensor, value in zip(self.library.tensors, values, strict=True):
                tensor.set_value(value)

    def total(self, values: Sequence[Tensor]) -> Tensor:
        """Return the loss."""
        with self._reading(values):
            return self.library.total()

    def residuals(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors of which half the sum of squares is half the loss."""
        with self._reading(values):
            return self._residuals(self.library.terms())

    def residuals_by_rows(
        self,
        rows: Sequence[Tensor],
        values: Sequence[Tensor],
        some: Sequence[SomePoints | None],
    ) -> list[Tensor]:
        """Do so with a net that has its own tensors for each of some points.

        Args:
            rows: the net's tensors for some points of its first call, of its second,
                and so on, along a new first axis.
            values: values for all tensors, as for :meth:`residuals`.
            some: which points of each call those are; None for all.

        Raises:
            ValueError: the net is called in another way.
        """
        library = self.library
        net_tensors = library.tensors[: library.net_tensors]
        calls, begin = iter(zip(library.points, some, strict=True)), 0

        def call_net(net: NetCall) -> NetCall:
            def at_a_point(params: Sequence[Tensor], x: Any) -> Any:
                with _substituted(net_tensors, params):
                    return _each(lambda y: y.squeeze(0), net(_each(_as_row, x)))

            def at_all(x: Any) -> Any:
                nonlocal begin
                count, chosen = next(calls, (0, None))
                if {len(leaf) for leaf in flatten_tree(x)[0]} != {count}:
                    raise ValueError(
                        "the net is called at other points than those of the batch; "
                        "use 'gauss_newton' if single gradients take long"
                    )
                end = begin + (count if chosen is None else len(chosen.points))
                own, begin = [r[begin:end] for r in rows], end
                if chosen is None:
                    return vmap(at_a_point)(own, x)
                at, others = _chosen(x, chosen.points), _chosen(x, chosen.rest)
                leaves, structure = flatten_tree(vmap(at_a_point)(own, at))
                both = zip(leaves, flatten_tree(net(others))[0], strict=True)
                order = chosen.order
                return structure.unflatten(
                    [paddle.concat([*pair]).index_select(order) for pair in both]
                )

            return at_all

        with self._reading(values):
            return self._residuals(library.terms(call_net))

    def _residuals(self, terms: Sequence[Term]) -> list[Tensor]:
        return [
            errors * math.sqrt(weight / errors.size)
            for errors, weight in terms
            if weight and errors.size
        ]

    @contextmanager
    def _reading(self, values: Sequence[Tensor]) -> Iterator[None]:
        """Return a context for the library's code, which differentiates."""
        with (
            _substituted(self.library.tensors, values),
            self.library.reading(),
            grad_mode(True),
        ):
            yield

    def _check(self) -> None:
        """Compare the program with the library's own loss and gradient."""
        start, tensors = self.start(), self.library.tensors
        native = self.library.total()
        if not math.isfinite(float(native)):
            raise ValueError(
                f"the loss is {float(native)} where the search begins; give parameters "
                "where it is finite, such as others by another seed"
            )
        native_grads = self._native_gradients(native)
        value, grads = jit(value_and_grad(self.total), strict=True)(start)
        rtol = RTOL[dtype_name(tensors[0].dtype)]
        for name, found, expected in (
            ("loss", value, native),
            *(("gradient", g, n) for g, n in zip(grads, native_grads, strict=True)),
        ):
            scale = max(float(n.abs().max()) for n in native_grads if n is not None)
            if name == "loss":
                scale = float(native.abs().max())
            difference = found if expected is None else found - expected
            largest = float(difference.abs().max())
            if not largest <= rtol * scale:
                raise ValueError(
                    f"the compiled {name} is off by {largest:.1e}, of {scale:.1e}: the "
                    "loss draws random numbers, or reads what no tensor operation "
                    "shows; use Adam for it, or make it a function of tensors"
                )

    def _native_gradients(self, native: Tensor) -> list[Tensor | None]:
        """Return the gradient of the library's own loss."""
        tensors = [*self.library.tensors]
        try:
            return list(paddle.grad(native, tensors, allow_unused=True))
        except RuntimeError:  # of a kernel that writes what nobody asked for
            native = self.library.total()
        before = [t.grad for t in tensors]
        try:
            for t in tensors:
                t.grad = None
            native.backward()  # with respect to the points, too
            return [None if t.grad is None else t.grad.clone() for t in tensors]
        finally:
            for t, grad in zip(tensors, before, strict=True):
                t.grad = grad


def _substituted(
    tensors: Sequence[Tensor], values: Sequence[Tensor]
) -> AbstractContextManager[None]:
    trace: Any = listener()
    if trace is None:
        raise CaptureError(
            "the loss can't be compiled; write it in tensor operations, such as "
            "paddle.where for if"
        )
    result: AbstractContextManager[None] = trace.substituted(tensors, values)
    return result


def _chosen(tree: Any, points: Tensor) -> Any:
    return _each(lambda x: x.index_select(points), tree)


def _as_row(x: Tensor) -> Tensor:
    return x.unsqueeze(0)


def _each(fn: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return a tree of what a function makes of the tensors."""
    leaves, structure = flatten_tree(tree)
    return structure.unflatten([fn(leaf) for leaf in leaves])


def available_bytes() -> float:
    """Return how many bytes of memory are free, or infinity where nobody says."""
    try:
        with open("/proc/meminfo") as lines:
            sizes = dict(line.split(":") for line in lines)
        return 1024.0 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return math.inf


def text_of_bytes(count: float) -> str:
    """Return a number of bytes in words."""
    return f"{count / 1e9:.1f} GB" if count > 1e8 else f"{count / 1e6:.1f} MB"
