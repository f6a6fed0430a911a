"""Trees of tensors as vectors, for methods that see no more of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import optree
import paddle
from paddle import Tensor

from ...paddle_side.dtypes import dtype_name
from ...transforms.as_programs.jit import jit
from ...transforms.as_programs.jitted import Jitted
from ...transforms.containers.tree import Tree, flatten_tree
from ...transforms.derivatives.value_and_grad import value_and_grad


class VectorNesting(NamedTuple):
    """The nesting of the tensors of a vector.

    Attributes:
        spec: their structure.
        shapes: their shapes.
    """

    spec: optree.PyTreeSpec
    shapes: list[list[int]]

    @property
    def sizes(self) -> list[int]:
        """The number of elements of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    def tree(self, flat: Tensor) -> Tree:
        """Return the tensors of a vector, nested."""
        sizes = self.sizes
        pieces = paddle.split(flat, sizes) if len(sizes) > 1 else [flat]
        pairs = zip(pieces, self.shapes, strict=True)
        return optree.tree_unflatten(self.spec, [p.reshape(s) for p, s in pairs])


def flat_vector(leaves: Sequence[Tensor]) -> Tensor:
    """Return the vector of some tensors."""
    return concat_tensors([leaf.flatten() for leaf in leaves], 0)


def concat_tensors(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate as ``paddle.concat`` does, without a copy of a single one."""
    return tensors[0] if len(tensors) == 1 else paddle.concat([*tensors], axis)


def array_of(tensor: Tensor) -> Any:
    """Return a vector's elements for NumPy, in the same memory on the processor."""
    if tensor.place.is_cpu_place():
        return np.from_dlpack(tensor.detach())
    return tensor.numpy()


def flat_params(
    params: Tree, caller: str, dtypes: Sequence[str] | None = None
) -> tuple[Tensor, VectorNesting]:
    """Return parameters as a vector, and how they were nested."""
    leaves, spec = flatten_tree(params)
    if not leaves:
        raise ValueError(
            f"{caller} moves tensors, and is given {params!r}, which has none; give "
            "one at least"
        )
    for leaf in leaves:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            raise TypeError(
                f"{caller} moves tensors of floating point, and is given {leaf!r}; "
                "close over what is none"
            )
        if leaf.dtype != leaves[0].dtype:
            raise TypeError(
                f"{caller} moves tensors of one dtype, and is given {leaf.dtype} and "
                f"{leaves[0].dtype}; convert them"
            )
    if not sum(leaf.size for leaf in leaves):
        raise ValueError(
            f"{caller} moves numbers, and is given shapes of none, such as "
            f"{leaves[0].shape}; give one that has elements"
        )
    name = dtype_name(leaves[0].dtype)
    if dtypes is not None and name not in dtypes:
        raise TypeError(
            f"{caller} solves in {' or '.join(dtypes)}, and is given parameters of "
            f"{name}; convert them"
        )
    nesting = VectorNesting(spec, [list(leaf.shape) for leaf in leaves])
    return paddle.concat([leaf.detach().flatten() for leaf in leaves]), nesting


class GradientFunction(ABC):
    """A function of a vector whose gradient is computed elsewhere."""

    @abstractmethod
    def value_and_grad(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value at a vector, and the gradient."""


def flat_value_and_grad(
    fn: Callable[[Tree], Tensor] | GradientFunction, nesting: VectorNesting
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return a program for a number and its gradient."""
    if isinstance(fn, GradientFunction):
        return fn.value_and_grad
    compiled = fn.derived_programs if isinstance(fn, Jitted) else {}
    key = flat_value_and_grad, nesting.spec, tuple(map(tuple, nesting.shapes))
    if key in compiled:
        return cast("Callable[[Tensor], tuple[Tensor, Tensor]]", compiled[key])

    @jit
    def compute(point: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = value_and_grad(lambda flat: fn(nesting.tree(flat)))(point)
        if value.is_complex():
            raise TypeError(
                f"what is made small must be a real number, and the function gives one "
                f"of {value.dtype}; take its absolute value or its real part"
            )
        return value, slope

    compiled[key] = compute
    return compute
