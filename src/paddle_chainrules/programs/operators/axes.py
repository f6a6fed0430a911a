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

VaryingAxes = Sequence[Sequence[int]]
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

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        """Return whether an operation does the same for any number of samples."""
        return False

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        """Return whether each row of a result depends on the same input row alone.

        Args:
            args: of the operation, by name.
            row_inputs: the values among them that have rows.
            num_row_axes: how many leading axes number the rows.
        """
        return False


UNKNOWN = Axes()


class ShapePolymorphic(Axes):
    """The kind of operators that act the same for any size of any axis."""

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        return True


class Reshaping(ShapePolymorphic):
    """The kind that keeps all elements in their order, in another shape."""

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        return len(row_inputs) == 1


class Elementwise(ShapePolymorphic):
    """The kind that acts on each element by itself, with broadcasting."""

    batches = True

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        tensors = [i for i, arg in enumerate(call.args) if isinstance(arg, Tensor)]
        ndim = max(map(call.ndim, tensors))
        args = [*call.args]
        for i in tensors:
            args[i] = self._fit(call, i, ndim)
        return operator.bind(args)

    def _fit(self, call: BatchCall, i: int, ndim: int) -> Tensor:
        """Return argument i with a sample axis and ``ndim`` dimensions per sample."""
        return batched_arg(call, i, ndim)

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        ranks = {len(v.shape) for v in (*row_inputs, *outputs)}
        return len(ranks) == 1  # else they are broadcast along other axes


class Broadcast(Elementwise):
    """The elementwise kind whose kernel broadcasts by itself."""

    def _fit(self, call: BatchCall, i: int, ndim: int) -> Tensor:
        x: Tensor = call.args[i]
        return aligned(x, ndim) if i in call.batched else x


class ElementwiseWithShared(Elementwise):
    """The kind that acts on each element and some values that all samples share.

    Args:
        positions: of the shared arguments.
    """

    def __init__(self, *positions: int) -> None:
        self._shared_args = frozenset(positions)

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        if not self._shared_args.isdisjoint(call.batched):
            raise NoRule("a number of each sample; give a tensor of all elements")
        args = [
            arg if i in self._shared_args else batched_arg(call, i)
            for i, arg in enumerate(call.args)
        ]
        return operator.bind(args)


FLATTEN_FLAGS = frozenset({"flatten", "reduce_all", "asvector"})
"""Arguments that make all axes count as one."""

SIZE_ARGUMENTS = frozenset(
    {"shifts", "k", "num", "sections", "starts", "ends", "strides"}
)
"""Arguments that give sizes or offsets, and are not data where they are tensors."""


class AxesArgument(Axes):
    """The kind that acts along the axes of the first tensor that an argument gives.

    Args:
        argument: the name of that argument.
        none_flattens: whether it is one axis, or None for the flattened tensor.
        splits_or_joins: whether it splits or joins tensors, which scalars cannot be.
        depends_on_size: whether a size along these axes matters, as for a Fourier
            transform.
    """

    batches = True

    def __init__(
        self,
        argument: str,
        *,
        none_flattens: bool = False,
        splits_or_joins: bool = False,
        depends_on_size: bool = False,
    ) -> None:
        self.argument, self._none_flattens = argument, none_flattens
        self.splits_or_joins, self._depends_on_size = splits_or_joins, depends_on_size

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        names = operator.arguments
        position, args = names.index(self.argument), [*call.args]
        if isinstance(args[position], Tensor):
            raise NoRule("a tensor as the axis; give an integer")
        first = args[0][0] if isinstance(args[0], list) else args[0]
        ndim = first.ndim - 1 if 0 in call.batched else first.ndim
        flags = [k for k, name in enumerate(names) if name in FLATTEN_FLAGS]
        is_flattened = self._none_flattens and args[position] is None
        if is_flattened or ndim == 0 or any(args[k] for k in flags):
            return self._batch_flattened(operator, call, position, flags)
        args = [
            arg if name in SIZE_ARGUMENTS else batched_arg(call, i)
            for i, (arg, name) in enumerate(zip(args, names, strict=True))
        ]
        args[position] = self.batched_axes(args[position], ndim)
        return operator.bind(args)

    def batched_axes(self, axis: Any, ndim: int) -> Any:
        """Return the axes of one sample as axes of a batch; all axes for none."""
        if _is_list(axis):
            return [batched_axis(n, ndim) for n in (axis or range(ndim))]
        return batched_axis(axis, ndim)

    def _batch_flattened(
        self, operator: Any, call: BatchCall, position: int, flags: list[int]
    ) -> list[Any]:
        """Return batched results with each sample flattened to a vector."""
        tensors = [arg for arg in call.args if isinstance(arg, Tensor)]
        if self.splits_or_joins or len(tensors) > 1 or len(call.shapes) > 1:
            raise NoRule("numbers alone, which have no axes; give vectors")
        args = [batched_arg(call, i) for i in range(len(call.args))]
        for k, arg in enumerate(args):
            if isinstance(arg, Tensor):
                args[k] = ops.reshape(arg, [call.size, -1])
            elif k in flags:
                args[k] = False
        args[position] = (
            [1] if _is_list(args[position]) and not self._none_flattens else 1
        )
        result = operator.bind(args)
        return [ops.reshape(result[0], [call.size, *call.shapes[0]])]

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        return not self._depends_on_size or _has_fixed_size(op, self.argument, varies)

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        axes = args[self.argument]
        axes = [axes] if isinstance(axes, int) else axes
        first = next(iter(args.values()))
        rank = len((first[0] if isinstance(first, list | tuple) else first).shape)
        if not isinstance(axes, list | tuple) or not axes or _flattens_all(args):
            return False
        return all(isinstance(a, int) and a % rank >= num_row_axes for a in axes)


def _is_list(axis: Any) -> bool:
    return isinstance(axis, list | tuple) or axis is None


def _flattens_all(args: Mapping[str, Any]) -> bool:
    return any(value is True for name, value in args.items() if name in FLATTEN_FLAGS)


def _has_fixed_size(op: Any, argument: str, varies: Varies) -> bool:
    """Return whether the axes in an argument have sizes that do not vary."""
    shape, axes = op.args[0].shape, op.named[argument]
    axis_list = axes if isinstance(axes, list | tuple) else [axes]
    return not any(varies(shape[axis]) for axis in axis_list)


class OtherAxes(Axes):
    """The kind that acts the same along all axes except those in some arguments.

    Args:
        arguments: the names of these arguments.
    """

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        return all(_has_fixed_size(op, name, varies) for name in self._arguments)


class Matrices(Axes):
    """The kind that acts on the last two axes, whatever comes before them.

    Args:
        batches: whether tensors of many samples are passed to it unchanged.
    """

    def __init__(self, batches: bool = True) -> None:
        self.batches = batches

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        args = [batched_arg(call, i) for i in range(len(call.args))]
        if len({arg.ndim for arg in args if isinstance(arg, Tensor)}) > 1:
            raise NoRule("matrices of several numbers of axes; give them all")
        return operator.bind(args)

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        pairs = zip((*op.inputs, *op.outputs), varying_axes, strict=True)
        return all(max(axes, default=-1) < len(v.shape) - 2 for v, axes in pairs)


class IndependentAlongAxis(Axes):
    """The kind that acts on each index of one axis alone: of images or sequences.

    Args:
        axis: the number of the axis.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        return all({*axes} <= {self._axis} for axes in varying_axes)


class Images(IndependentAlongAxis):
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
                arg = batched_arg(call, i)
                arg = ops.reshape(arg, [-1, *arg.shape[2:]])
            args.append(arg)
        pairs = zip(operator.bind(args), call.shapes, strict=True)
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
MATRICES, FIRST, SECOND = Matrices(), IndependentAlongAxis(0), IndependentAlongAxis(1)


def batched_axis(axis: int, ndim: int) -> int:
    """Return the axis of a batch for an axis of one sample: the first is of samples."""
    return axis % ndim + 1


def batched_arg(call: BatchCall, i: int, ndim: int | None = None) -> Any:
    """Return argument i with a sample axis, and ``ndim`` dimensions for each sample."""
    arg = call.args[i]
    if not isinstance(arg, Tensor):
        return arg
    if i not in call.batched:
        arg = ops.expand(arg, [call.size, *arg.shape])
    return arg if ndim is None else aligned(arg, ndim)
