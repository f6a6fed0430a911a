"""Sequences of unequal length as one argument, without padding."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ...paddle_side.arguments import checked_integer, checked_number
from ...paddle_side.dtypes import dtype_name
from ...paddle_side.listener import listener
from ...paddle_side.patching.argument_kinds import install_kinds, refused_elsewhere
from .tree import register


class Packed:
    """Sequences one after another: an argument of layers that work on sequences.

    Operations on each element by itself (``Linear``, ``Embedding``, ``LayerNorm``,
    ``Dropout``, activations, ``+ - * /`` with a tensor of one element's shape or with a
    Packed of the same offsets) need no padding. ``LSTM``, ``GRU``, ``SimpleRNN`` and
    ``MultiHeadAttention``, and with it ``TransformerEncoder``, take it too. They pad
    within, and give the same as on padded sequences with their lengths or a mask. All
    else refuses it; see :meth:`map`, :meth:`padded`.

    In a tree of arguments ``values`` is the leaf with a gradient.

    Args:
        values: the elements of all sequences, of shape [total, ...].
        offsets: the places where each sequence begins, and where the last ends, int64,
            of shape [n + 1].
        max_length: the length of the longest sequence; counted if None.

    Raises:
        TypeError: a part is no tensor, or of another dtype.
        ValueError: the parts don't fit each other.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import Packed, stateless
        >>> words = Packed.of([paddle.to_tensor([3, 1]), paddle.to_tensor([4, 1, 5])])
        >>> words
        Packed(2 sequences of 2 to 3 elements, int64)
        >>> net, params, _ = stateless(paddle.nn.Embedding(9, 4))
        >>> net.forward(params, words).mean().shape
        paddle.Size([2, 4])
    """

    __array_ufunc__ = None
    """Not supported, so that NumPy leaves operations with its numbers to this class."""

    __slots__ = ("max_length", "offsets", "values")

    def __init__(
        self, values: Tensor, offsets: Tensor, max_length: int | None = None
    ) -> None:
        self.values, self.offsets = values, offsets
        self.max_length = _check_offsets(values, offsets, max_length)
        install_kinds()

    @classmethod
    def of(cls, sequences: Sequence[Any]) -> Packed:
        """Pack tensors or arrays of shapes [length, ...], each of its own length.

        Raises:
            ValueError: there are none.
        """
        rows = [s if isinstance(s, Tensor) else paddle.to_tensor(s) for s in sequences]
        if any(row.ndim == 0 for row in rows):
            raise ValueError(
                "a sequence has a length, and a number has none; give tensors of "
                "shapes [length, ...]"
            )
        if not rows:
            raise ValueError(
                "Packed.of needs at least one sequence, got none; leave out batches "
                "without samples"
            )
        ends = np.cumsum([0, *(row.shape[0] for row in rows)])
        return cls(paddle.concat(rows), paddle.to_tensor(ends, dtype="int64"))

    @classmethod
    def of_padded(cls, padded: Tensor, lengths: Any) -> Packed:
        """Pack a tensor of shape [n, T, ...]; the first ``lengths`` of each row count.

        Raises:
            ValueError: a length is more than T, or their number is not n.
        """
        if not isinstance(padded, Tensor) or padded.ndim < 2:
            raise ValueError(
                "a padded tensor has shape [n, T, ...], got "
                f"{type(padded).__name__}; give one, or sequences to Packed.of"
            )
        counts = np.asarray(lengths)
        if counts.dtype.kind not in "iu":
            raise TypeError(
                f"lengths of sequences are integers, got {counts.dtype}; round them"
            )
        n, t = padded.shape[:2]
        if counts.shape != (n,) or counts.min(initial=0) < 0 or counts.max() > t:
            raise ValueError(
                f"the padded tensor has shape {list(padded.shape)}, so that {n} lengths"
                f" from 0 to {t} are needed, got {counts.tolist()}; give one for each "
                "sequence"
            )
        offsets = paddle.to_tensor(np.cumsum([0, *counts]), dtype="int64")
        longest = int(counts.max())
        flat = padded[:, :longest].reshape([n * longest, *padded.shape[2:]])
        indices = _padded_indices(offsets, int(counts.sum()), longest)
        return cls(paddle.gather(flat, indices), offsets, longest)

    @property
    def lengths(self) -> Tensor:
        """The length of each sequence, int64, of shape [n]."""
        result: Tensor = self.offsets[1:] - self.offsets[:-1]
        return result

    @property
    def dtype(self) -> paddle.dtype:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: int | slice) -> Any:
        """Return one sequence as a tensor, or consecutive ones as a Packed."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            stop = max(start, stop)
            first, last = int(self.offsets[start]), int(self.offsets[stop])
            offsets = self.offsets[start : stop + 1] - first
            return Packed(self.values[first:last], offsets)
        if not isinstance(rows, int) or not -len(self) <= rows < len(self):
            raise IndexError(
                f"a Packed of {len(self)} sequences was asked for [{rows!r}]; give the "
                "number of one, or a slice of step 1"
            )
        i = rows % len(self)
        return self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]

    def map(self, fn: Callable[[Tensor], Tensor]) -> Packed:
        """Apply a function of elements to all: ``[total, ...]`` to ``[total, ...]``."""
        return self.like(fn(self.values))

    def like(self, values: Tensor) -> Packed:
        """Return one of the same offsets with other elements, as many."""
        if not isinstance(values, Tensor):
            raise TypeError(
                "the elements of a Packed are a tensor, and a function of them gave "
                f"{type(values).__name__}; return a tensor of one row for each element"
            )
        if values.shape[:1] != self.values.shape[:1]:
            raise ValueError(
                f"a function of the elements of a Packed gave {list(values.shape)} for "
                f"{list(self.values.shape)}; it must give one row for each element"
            )
        return _unflatten_packed(self.max_length, (values, self.offsets))

    def padded(self, value: float = 0.0) -> Tensor:
        """Return a tensor of shape [n, max_length, ...], this value beyond each end."""
        value = checked_number("value", value)
        n, t, row = len(self), self.max_length, self.values.shape[1:]
        if not self.values.shape[0]:
            return paddle.full([n, t, *row], value, self.values.dtype)
        index = self.offsets[:-1].unsqueeze(1) + paddle.arange(t, dtype="int64")
        index = paddle.clip(index, max=self.values.shape[0] - 1).reshape([-1])
        result = paddle.gather(self.values, index).reshape([n, t, *row])
        mask = self.mask().reshape([n, t, *[1] * len(row)])
        masked: Tensor = paddle.where(mask, result, paddle.full_like(result, value))
        return masked

    def mask(self) -> Tensor:
        """Return whether there is an element, bool, of shape [n, max_length]."""
        positions = paddle.arange(self.max_length, dtype="int64")
        result: Tensor = positions < self.lengths.unsqueeze(1)
        return result

    def sum(self) -> Tensor:
        """Return the sum of each sequence, of shape [n, ...]."""
        result: Tensor = self.padded().sum(axis=1)
        return result

    def mean(self) -> Tensor:
        """Return the mean of each sequence; zero if it has no elements."""
        total = self.sum()
        count = paddle.clip(self.lengths, min=1).astype(total.dtype)
        result: Tensor = total / count.reshape([-1, *[1] * (total.ndim - 1)])
        return result

    def max(self) -> Tensor:
        """Return the maximum of each sequence; minus infinity if it has no elements."""
        result: Tensor = self.padded(-float("inf")).max(axis=1)
        return result

    def last(self) -> Tensor:
        """Return the last element of each sequence; zero if it has no elements."""
        return self._gather_elements(self.offsets[1:] - 1)

    def first(self) -> Tensor:
        """Return the first element of each sequence; zero if it has no elements."""
        return self._gather_elements(self.offsets[:-1])

    def _gather_elements(self, index: Tensor) -> Tensor:
        if not self.values.shape[0]:
            return self.sum()
        index = paddle.clip(index, 0, self.values.shape[0] - 1)
        result = paddle.gather(self.values, index)
        is_nonempty = (self.lengths > 0).reshape([-1, *[1] * (result.ndim - 1)])
        elements: Tensor = paddle.where(is_nonempty, result, paddle.zeros_like(result))
        return elements

    def __reduce__(self) -> tuple[Any, ...]:
        return of_parts, (self.max_length, self.values, self.offsets)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise AttributeError(
            f"a Packed has no attribute {name!r}, got asked for it; {_REMEDY}"
        )

    def __repr__(self) -> str:
        if not isinstance(self.offsets, Tensor) or not isinstance(self.values, Tensor):
            return f"Packed(values={self.values!r})"
        row, lengths = self.values.shape[1:], [*map(int, self.lengths.numpy())] or [0]
        elements = f"elements of shape {[*row]}" if row else "elements"
        return (
            f"Packed({len(self)} sequences of {min(lengths)} to "
            f"{max(lengths)} {elements}, {dtype_name(self.values.dtype)})"
        )


_REMEDY = (
    "x.map(f) calls f on the elements of all sequences, x.padded() and x.mask() give "
    "tensors, x.mean(), sum(), max(), first() and last() one element a sequence"
)


def _check_offsets(values: Any, offsets: Any, max_length: int | None) -> int:
    for name, component in (("values", values), ("offsets", offsets)):
        if not isinstance(component, Tensor):
            raise TypeError(
                f"{name} of a Packed must be a paddle.Tensor, got "
                f"{type(component).__name__}; convert it with paddle.to_tensor, or use "
                "Packed.of(sequences)"
            )
    if offsets.dtype != paddle.int64 or offsets.ndim != 1 or not len(offsets):
        raise TypeError(
            f"offsets of a Packed are int64 of shape [n + 1], got "
            f"{dtype_name(offsets.dtype)} of shape {list(offsets.shape)}; convert them "
            "with astype('int64')"
        )
    if values.ndim == 0:
        raise ValueError(
            "values of a Packed have shape [total, ...], got a number; give the "
            "elements of all sequences, one after another"
        )
    if max_length is not None:
        max_length = checked_integer("max_length", max_length)
    if max_length is not None and listener() is not None:
        return max_length  # where a program is made, values are not to be read
    ends = offsets.numpy()
    lengths = np.diff(ends)
    if ends[0] != 0 or ends[-1] != values.shape[0] or (lengths < 0).any():
        raise ValueError(
            f"offsets of a Packed must rise from 0 to the number of elements, "
            f"{values.shape[0]}, got from {ends[0]} to {ends[-1]}; give where each "
            "sequence begins, and where the last ends"
        )
    longest = int(lengths.max(initial=0))
    if max_length is not None and max_length < longest:
        raise ValueError(
            f"max_length of a Packed is {max_length}, its longest sequence has "
            f"{longest} elements; leave max_length out"
        )
    return longest if max_length is None else max_length


def _padded_indices(offsets: Tensor, total: int, t: int) -> Tensor:
    """Return the index of each element in the sequences padded to length t."""
    positions = paddle.arange(total, dtype="int64")
    row = paddle.searchsorted(offsets, positions, right=True) - 1
    result: Tensor = positions + row * t - paddle.gather(offsets, row)
    return result


def repacked(padded: Tensor, like: Packed) -> Packed:
    """Return the elements of a padded tensor as a Packed of the same offsets."""
    t = like.max_length
    flat = padded.reshape([len(like) * t, *padded.shape[2:]])
    indices = _padded_indices(like.offsets, like.values.shape[0], t)
    return like.like(paddle.gather(flat, indices))


def _flatten_packed(x: Packed) -> tuple[Any, Any, Any]:
    return (x.values, x.offsets), x.max_length, ("values", "offsets")


def of_parts(max_length: int, values: Any, offsets: Any) -> Packed:
    """Make one of any parts, unchecked."""
    install_kinds()
    return _unflatten_packed(max_length, (values, offsets))


def _unflatten_packed(max_length: int, components: Any) -> Packed:
    packed = Packed.__new__(Packed)
    packed.values, packed.offsets = components
    packed.max_length = max_length
    return packed


register(
    Packed,
    _flatten_packed,
    _unflatten_packed,
    lambda x: _unflatten_packed(x.max_length, (x.values, None)),
)
refused_elsewhere(Packed, _REMEDY)


def _add_operators(name: str) -> None:
    operation = getattr(operator, name)

    def infix(x: Packed, other: Any) -> Packed:
        return x.like(operation(x.values, _operand_values(x, other)))

    def reflected(x: Packed, other: Any) -> Packed:
        return x.like(operation(_operand_values(x, other), x.values))

    setattr(Packed, f"__{name}__", infix)
    setattr(Packed, f"__r{name}__", reflected)


def same_offsets(x: Packed, other: Packed) -> bool:
    """Tell whether the sequences' lengths agree; assumed while a program is made."""
    if other.offsets is x.offsets:
        return True
    same_shape = other.offsets.shape == x.offsets.shape
    if listener() is not None:
        return same_shape and other.max_length == x.max_length
    return same_shape and bool((other.offsets == x.offsets).all())


def _operand_values(x: Packed, other: Any) -> Any:
    """Return the operand that pairs with the values of a Packed, element by element."""
    if isinstance(other, list | tuple | dict | str) or other is None:
        raise TypeError(
            f"a Packed has arithmetic with numbers, tensors and other Packed, got "
            f"{type(other).__name__}; give one of these"
        )
    if isinstance(other, Packed):
        if not same_offsets(x, other):
            raise ValueError(
                f"both Packed must have the same offsets, got {x!r} and {other!r}; "
                "use padded() of both"
            )
        if other.values.ndim != x.values.ndim:
            raise ValueError(
                f"elements of both Packed must have as many dimensions, got {x!r} and "
                f"{other!r}; reshape one by map"
            )
        return other.values
    other = paddle.to_tensor(other) if isinstance(other, np.ndarray) else other
    if isinstance(other, Tensor) and other.ndim >= x.values.ndim:
        raise ValueError(
            f"beside a Packed whose elements have shape {list(x.values.shape[1:])} "
            f"stands a tensor of one element's shape, got {list(other.shape)}; make a "
            "Packed of it"
        )
    return other


for _name in ("add", "sub", "mul", "truediv"):
    _add_operators(_name)
