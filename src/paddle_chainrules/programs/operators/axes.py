"""Kinds of operators, by how they act along the axes of their tensors.

An operator's entry names one of these kinds. Three things follow from it: its results
for many samples at once (``vmap``), whether a program with it serves any number of
samples, and whether it works row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle import Tensor

from .calls import BatchCall, NoRule
from .shared import aligned, ops

Varies = Callable[[int], bool]
"""A function that tells whether a size varies with the number of samples."""

Sizes = Sequence[Sequence[int]]
"""For each input and output, the axes whose sizes vary with the number of samples."""


class Axes:
    """The base of all kinds. By itself it says that nothing is known."""

    batches = False
    """Tells whether the results of many samples follow from it."""

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        """Return the results for many samples at once.

        Raises:
            NoRule: these arguments need another rule.
        """
        raise NotImplementedError

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        """Return whether an operation does the same for any number of samples."""
        return False

    def keeps_rows(
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        """Return whether each row of a result is made of the same row alone.

        Args:
            args: of the operation, by name.
            given: the values among them that have rows.
            count: how many leading axes number the rows.
        """
        return False


UNKNOWN = Axes()


class ShapePolymorphic(Axes):
    """The kind of operators that act the same for any size of any axis."""

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        return True


class Reshaping(ShapePolymorphic):
    """The kind that keeps all elements in their order, in another shape."""

    def keeps_rows(
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        return len(given) == 1


class Elementwise(ShapePolymorphic):
    """The kind that acts on each element by itself, with broadcasting."""

    batches = True

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        tensors = [i for i, arg in enumerate(call.args) if isinstance(arg, Tensor)]
        ndim = max(map(call.ndim, tensors))
        args = [*call.args]
        for i in tensors:
            args[i] = self._fit(call, i, ndim)
        return operator.every(args)

    def _fit(self, call: BatchCall, i: int, ndim: int) -> Tensor:
        """Return a tensor with samples."""
        return full(call, i, ndim)

    def keeps_rows(
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        ranks = {len(v.shape) for v in (*given, *outputs)}
        return len(ranks) == 1  # else they are broadcast along other axes


class Broadcast(Elementwise):
    """The same kind, by a kernel that broadcasts."""

    def _fit(self, call: BatchCall, i: int, ndim: int) -> Tensor:
        x: Tensor = call.args[i]
        return aligned(x, ndim) if i in call.batched else x


class ElementwiseWithShared(Elementwise):
    """The kind that acts on each element and some values that all samples share.

    Args:
        places: positions of the shared arguments.
    """

    def __init__(self, *places: int) -> None:
        self._places = frozenset(places)

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        if not self._places.isdisjoint(call.batched):
            raise NoRule("a number of each sample; give a tensor of all elements")
        args = [
            arg if i in self._places else full(call, i)
            for i, arg in enumerate(call.args)
        ]
        return operator.every(args)


WHOLE = frozenset({"flatten", "reduce_all", "asvector"})
"""Arguments that make all axes count as one."""

SIZES = frozenset({"shifts", "k", "num", "sections", "starts", "ends", "strides"})
"""Arguments that give sizes and places, and are not data where they are tensors."""


class AxesArgument(Axes):
    """The kind that acts along the axes of the first tensor that an argument gives.

    Args:
        argument: the name of that argument.
        one: whether it is one axis, or None for all elements in a row.
        parts: whether it splits or joins tensors, which has no meaning for scalars.
        mixes: whether a size along these axes matters, as for a Fourier transform.
    """

    batches = True

    def __init__(
        self,
        argument: str,
        *,
        one: bool = False,
        parts: bool = False,
        mixes: bool = False,
    ) -> None:
        self.argument, self._one = argument, one
        self._parts, self._mixes = parts, mixes

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        words = operator.arguments
        place, args = words.index(self.argument), [*call.args]
        if isinstance(args[place], Tensor):
            raise NoRule("a tensor as the axis; give an integer")
        first = args[0][0] if isinstance(args[0], list) else args[0]
        ndim = first.ndim - 1 if 0 in call.batched else first.ndim
        whole = [k for k, word in enumerate(words) if word in WHOLE]
        in_a_row = self._one and args[place] is None
        if in_a_row or ndim == 0 or any(args[k] for k in whole):
            return self._as_vectors(operator, call, place, whole)
        args = [
            arg if word in SIZES else full(call, i)
            for i, (arg, word) in enumerate(zip(args, words, strict=True))
        ]
        args[place] = self.moved(args[place], ndim)
        return operator.every(args)

    def moved(self, axis: Any, ndim: int) -> Any:
        """Return axes of one sample among those of many, all for none."""
        if _is_list(axis):
            return [moved(n, ndim) for n in (axis or range(ndim))]
        return moved(axis, ndim)

    def _as_vectors(
        self, operator: Any, call: BatchCall, place: int, whole: list[int]
    ) -> list[Any]:
        """Return results for all elements of a sample in a row."""
        tensors = [arg for arg in call.args if isinstance(arg, Tensor)]
        if self._parts or len(tensors) > 1 or len(call.shapes) > 1:
            raise NoRule("numbers alone, which have no axes; give vectors")
        args = [full(call, i) for i in range(len(call.args))]
        for k, arg in enumerate(args):
            if isinstance(arg, Tensor):
                args[k] = ops.reshape(arg, [call.size, -1])
            elif k in whole:
                args[k] = False
        args[place] = [1] if _is_list(args[place]) and not self._one else 1
        result = operator.every(args)
        return [ops.reshape(result[0], [call.size, *call.shapes[0]])]

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        return not self._mixes or _same_along(op, self.argument, varies)

    def keeps_rows(
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        axes = args[self.argument]
        axes = [axes] if isinstance(axes, int) else axes
        first = next(iter(args.values()))
        rank = len((first[0] if isinstance(first, list | tuple) else first).shape)
        if not isinstance(axes, list | tuple) or not axes or _is_whole(args):
            return False
        return all(isinstance(a, int) and a % rank >= count for a in axes)


def _is_list(axis: Any) -> bool:
    return isinstance(axis, list | tuple) or axis is None


def _is_whole(args: Mapping[str, Any]) -> bool:
    return any(value is True for name, value in args.items() if name in WHOLE)


def _same_along(op: Any, argument: str, varies: Varies) -> bool:
    """Return whether the axes that an argument says have no samples."""
    shape, axes = op.args[0].shape, op.named[argument]
    each = axes if isinstance(axes, list | tuple) else [axes]
    return not any(varies(shape[axis]) for axis in each)


class OtherAxes(Axes):
    """The kind that acts the same along all axes but those that some arguments give.

    Args:
        arguments: the names of these arguments.
    """

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        return all(_same_along(op, name, varies) for name in self._arguments)


class Matrices(Axes):
    """The kind that acts on the last two axes, whatever comes before them.

    Args:
        batches: whether tensors of many samples are passed to it unchanged.
    """

    def __init__(self, batches: bool = True) -> None:
        self.batches = batches

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        args = [full(call, i) for i in range(len(call.args))]
        if len({arg.ndim for arg in args if isinstance(arg, Tensor)}) > 1:
            raise NoRule("matrices of several numbers of axes; give them all")
        return operator.every(args)

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        pairs = zip((*op.inputs, *op.outputs), sizes, strict=True)
        return all(max(axes, default=-1) < len(v.shape) - 2 for v, axes in pairs)


class PlaceOnAxis(Axes):
    """The kind that acts on each place along one axis, of images or sequences.

    Args:
        axis: the number of the axis.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        return all({*axes} <= {self._axis} for axes in sizes)


class Images(PlaceOnAxis):
    """The kind that acts on images, whose tensors have a first axis of their own.

    Args:
        shared: positions of the weights, which have no such axis.
    """

    batches = True

    def __init__(self, *shared: int) -> None:
        super().__init__(0)
        self.shared = frozenset(shared)

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        if not call.batched.isdisjoint(self.shared):
            raise NoRule("weights that differ from sample to sample; give one")
        args = []
        for i, arg in enumerate(call.args):
            if isinstance(arg, Tensor) and i not in self.shared:
                arg = full(call, i)
                arg = ops.reshape(arg, [-1, *arg.shape[2:]])
            args.append(arg)
        pairs = zip(operator.every(args), call.shapes, strict=True)
        return [
            None if i in call.unused else ops.reshape(y, [call.size, *shape])
            for i, (y, shape) in enumerate(pairs)
        ]


ANYWHERE, IN_ORDER, ELEMENTS, BROADCAST = (
    ShapePolymorphic(),
    Reshaping(),
    Elementwise(),
    Broadcast(),
)
MATRICES, FIRST, SECOND = Matrices(), PlaceOnAxis(0), PlaceOnAxis(1)


def moved(axis: int, ndim: int) -> int:
    """Return where an axis is behind a first one of samples."""
    return axis % ndim + 1


def full(call: BatchCall, i: int, ndim: int | None = None) -> Any:
    """Return argument i with samples, with this many dimensions for each."""
    arg = call.args[i]
    if not isinstance(arg, Tensor):
        return arg
    if i not in call.batched:
        arg = ops.expand(arg, [call.size, *arg.shape])
    return arg if ndim is None else aligned(arg, ndim)
