"""One call of an operator with a row of its samples, for every mode to compare."""

from __future__ import annotations

import numpy as np
import optree
import paddle

from paddle_chainrules.paddle_side import sparse_products
from paddle_chainrules.paddle_side.sparse_products import csr
from paddle_chainrules.programs import cond_op, scan_op  # noqa: F401, in the table
from paddle_chainrules.programs.operators.reductions.reductions import share
from paddle_chainrules.programs.operators.table import TABLE
from programs.samples import COMPARED, PREPARED, SAMPLES, T

ONCE = ("warpctc", "warprnnt")
"""Of which no rule gives gradients of gradients."""
ROUGH = ("lp_pool2d", "lp_pool2d_grad")
"""Paddle's own values have errors of 1e-7 here, which differences make larger."""


class Place(int):
    """Where in the row of tensors one is."""


def made(row, seed=0):
    """Arguments with tensors in the place of shapes, and these tensors in a row."""
    rng = np.random.default_rng(seed)
    tensors = []

    def walk(arg):
        if isinstance(arg, T):
            tensors.append(arg.made(rng))
            return Place(len(tensors) - 1)
        return type(arg)(map(walk, arg)) if type(arg) in (list, tuple) else arg

    args = [walk(arg) for arg in row]

    def filled(arg, values):
        if isinstance(arg, Place):
            return values[arg]
        if type(arg) in (list, tuple):
            return type(arg)(filled(part, values) for part in arg)
        return arg

    return tensors, lambda values: [filled(arg, values) for arg in args]


SMOOTH = {
    "float64": (paddle.float64, paddle.complex128),
    "float32": (paddle.float32, paddle.complex64),
}


def is_smooth(tensor, dtype="float64"):
    return tensor.dtype in SMOOTH[dtype]


def floats(result, dtype="float64"):
    if isinstance(result, list | tuple):
        return [part for each in result for part in floats(each, dtype)]
    made = isinstance(result, paddle.Tensor) and result._is_initialized()
    return [result] if made and is_smooth(result, dtype) else []


def in_dtype(arg, dtype):
    """A tensor of float64 in another precision, complex numbers in theirs."""
    if not isinstance(arg, paddle.Tensor) or not is_smooth(arg):
        return arg
    return arg.astype(SMOOTH[dtype][arg.is_complex()])


def with_item(x, index, value):
    y = x.clone()
    y[index] = value
    return y


def called(name):
    """The operator, as Paddle's own code calls it: by the name in its place."""
    owner, _, attribute = name.rpartition(".")
    if name in ("copy", "seed", "share"):
        return {"copy": paddle.assign, "seed": paddle.seed, "share": share}[name]
    if name == "matrix_exp":
        return lambda x: paddle.linalg.matrix_exp(x)
    if name in sparse_products.PRODUCTS:
        return lambda *args: csr(name, *args)
    if name == "Tensor._setitem_dygraph":
        return with_item
    place = paddle.Tensor if owner else paddle._C_ops
    prepared, compared = (d.get(name, lambda same: same) for d in (PREPARED, COMPARED))
    return lambda first, *rest: compared(
        getattr(place, attribute)(prepared(first), *rest)
    )


def count_tensors(arg):
    """How many tensors a row, or a part of one, asks for."""
    if isinstance(arg, T):
        return 1
    return sum(map(count_tensors, arg)) if type(arg) in (list, tuple) else 0


class Sampled:
    """One call of an operator, as a function of a list of tensors."""

    def __init__(self, name, k, dtype="float64"):
        self.name, self.entry, self.dtype = name, TABLE[name], dtype
        row = SAMPLES[name][k]
        tensors, self._fill = made(row)
        self.tensors = [in_dtype(tensor, dtype) for tensor in tensors]
        self._call = called(name)
        argument = [i for i, arg in enumerate(row) for _ in range(count_tensors(arg))]
        self._own = []
        if self.entry.writes:  # what it writes into is no argument here
            kept, self._own = self.tensors, [*self.entry.writes]
            self.tensors, argument = (
                [each for i, each in enumerate(every) if i not in self._own]
                for every in (kept, argument)
            )
            self._kept = kept
        self._argument = argument

    def _filled(self, values):
        args = self._arguments(values)
        if self.dtype == "float64":
            return args
        return optree.tree_map(  # what a row gives as it is, too
            lambda arg: in_dtype(arg, self.dtype), args, none_is_leaf=True
        )

    def _arguments(self, values):
        if not self._own:
            return self._fill(values)
        each = iter(values)
        kept = enumerate(self._kept)
        return self._fill(
            [t.clone() if i in self._own else next(each) for i, t in kept]
        )

    def results(self, values):
        if self.entry.random:
            paddle.seed(3)
        result = self._call(*self._filled(values))
        if self.name == "einsum":  # what it keeps for its own way back
            result = result[0]
        found = floats(result, self.dtype)
        # What is saved in evaluation is junk.
        return found[: (3 if self._own else self.entry.shown) or len(found)]

    def outputs(self, values):
        """What has gradients."""
        found = enumerate(self.results(values))
        return [part for i, part in found if i not in self.entry.fixed]

    @property
    def places(self):
        """Of the tensors that may have gradients."""
        return [i for i, t in enumerate(self.tensors) if is_smooth(t, self.dtype)]

    @property
    def has_gradients(self):
        entry = self.entry
        return bool(
            entry.differentiable != () and self.places and self.outputs(self.tensors)
        )

    @property
    def differentiable(self):
        """Of the tensors by which the operator has derivatives."""
        entry = self.entry
        every = range(len(entry.arguments) or len(self.tensors))
        by = {*(every if entry.differentiable is None else entry.differentiable)}
        return [i for i in self.places if self._argument[i] in by - entry.shapes]

    def moved(self, values, places=None):
        """The outputs with these in the places of what may have gradients."""
        every = [*self.tensors]
        for i, value in zip(places or self.places, values, strict=True):
            every[i] = value
        return self.outputs(every)

    @property
    def by_arguments(self):
        """A function of what has derivatives alone, and arrays for it."""
        places = self.differentiable
        arrays = [self.tensors[i].numpy() for i in places]
        return lambda *given: self.moved(given, places), arrays
