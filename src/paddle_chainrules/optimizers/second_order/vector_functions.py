"""Functions of trees of parameters as vectors of vectors, and their Jacobians."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ...paddle_side.dtypes import dtype_name
from ...transforms.as_programs.jit import jit
from ...transforms.containers.tree import Tree, flatten_tree, nesting
from ...transforms.derivatives.jvp import jvp
from ...transforms.derivatives.value_and_grad import grad
from ...transforms.derivatives.vjp import vjp
from ...transforms.vmap import vmap
from .flat_trees import VectorNesting, array_of, concat_tensors, flat_vector

CHUNK = 64
"""Rows or columns of a Jacobian that are computed at once, to bound memory."""


class MatrixFunction(ABC):
    """A Jacobian that comes as an array: a row for each residual."""

    @abstractmethod
    def matrix(self, at: Tensor) -> Any:
        """Return the array at a vector of parameters."""


class VectorFunction:
    """A function of a tree as one from a vector to a vector, as programs.

    Attributes:
        params: the nesting of its argument.
        outputs: the nesting of its value.
        evaluations: the number of calls.
        derivatives: the number of requests to its Jacobian.
    """

    def __init__(
        self,
        fn: Callable[[Tree], Tree],
        params: VectorNesting,
        name: str,
        jacobian: Callable[[Tree], Tree] | MatrixFunction | None = None,
    ) -> None:
        self.params, self._fn, self._name = params, fn, name
        self.evaluations = self.derivatives = 0
        self.outputs: VectorNesting
        self._values = jit(self.flat_value)
        self._jacobian = jacobian
        self._given_rows = jit(self._given_jacobian)
        self._columns, self._rows = (
            jit(self._jacobian_columns),
            jit(self._jacobian_rows),
        )

    def flat_value(self, at: Tensor) -> Tensor:
        """Return its value at a point, traced into an enclosing program."""
        leaves, spec = flatten_tree(self._fn(self.params.tree(at)))
        for leaf in leaves:
            _check_dtype(self._name, leaf, at)
        self.outputs = VectorNesting(spec, [list(leaf.shape) for leaf in leaves])
        if not sum(self.outputs.sizes):
            raise ValueError(
                f"{self._name} gives tensors of shapes {self.outputs.shapes}, which "
                "hold no numbers; give one at least"
            )
        return flat_vector(leaves)

    def __call__(self, at: Tensor) -> Tensor:
        self.evaluations += 1
        return self._values(at)

    def jacobian(self, at: Tensor) -> Any:
        """Return a row for each element of the value; call the value before."""
        self.derivatives += 1
        if isinstance(self._jacobian, MatrixFunction):
            return self._jacobian.matrix(at)
        if self._jacobian is not None:
            return array_of(self._given_rows(at))
        width, height = int(at.size), sum(self.outputs.sizes)
        if width <= height:
            blocks = [
                array_of(self._columns(at, unit_vectors))
                for unit_vectors in _unit_vectors(at, width)
            ]
            return np.concatenate(blocks)[:width].T
        blocks = [
            array_of(self._rows(at, unit_vectors))
            for unit_vectors in _unit_vectors(at, height)
        ]
        return np.concatenate(blocks)[:height]

    def pushforward(self, at: Tensor, direction: Tensor) -> Tensor:
        """Return the Jacobian times a vector, traced into an enclosing program."""
        return jvp(self.flat_value, (at,), (direction,))[1]

    def pullback(self, at: Tensor, cotangent: Tensor) -> Tensor:
        """Return its transpose times a vector, traced into an enclosing program."""
        (result,) = vjp(self.flat_value, at)[1](cotangent)
        return result

    def second_directional_derivative(self, at: Tensor, direction: Tensor) -> Tensor:
        """Return the second derivative along a vector, for an enclosing program."""
        scalar_zero = paddle.zeros_like(at.sum())
        zeros = scalar_zero.expand([sum(self.outputs.sizes)])

        def second(u: Tensor) -> Tensor:
            return grad(
                grad(lambda t: (u * self.flat_value(at + t * direction)).sum())
            )(scalar_zero)

        return grad(second)(zeros)

    def _jacobian_columns(self, at: Tensor, directions: Tensor) -> Tensor:
        return vmap(lambda v: self.pushforward(at, v))(directions)

    def _jacobian_rows(self, at: Tensor, cotangents: Tensor) -> Tensor:
        return vmap(lambda u: self.pullback(at, u))(cotangents)

    def _given_jacobian(self, at: Tensor) -> Tensor:
        """Return the rows that the caller's function gives."""
        assert callable(self._jacobian)
        leaves, spec = flatten_tree(self._jacobian(self.params.tree(at)))
        expected = self.outputs.spec.compose(self.params.spec)
        if spec != expected:
            raise ValueError(
                f"jacobian gives what is nested as {nesting(spec)}, and of {self._name}"
                f" it has to be {nesting(expected)}; give derivatives nested as its "
                "value is, each by all parameters, as jacrev does"
            )
        blocks = iter(leaves)
        rows = [
            [self._block(next(blocks), y, p, at) for p in self.params.shapes]
            for y in self.outputs.shapes
        ]
        return concat_tensors([concat_tensors(row, 1) for row in rows], 0)

    def _block(self, leaf: Any, by: list[int], shape: Any, at: Tensor) -> Tensor:
        """Return derivatives of one tensor by another, as a matrix."""
        rows, columns = math.prod(by), math.prod(shape)
        if leaf is None:
            return paddle.zeros([rows, columns], at.dtype)
        _check_dtype("jacobian", leaf, at)
        trailing = list(leaf.shape)[leaf.ndim - len(shape) :]
        if leaf.size != rows * columns or trailing != list(shape):
            raise ValueError(
                f"jacobian gives a tensor of shape {list(leaf.shape)} for derivatives "
                f"of {self._name} of shape {by} by a parameter of shape {list(shape)}; "
                f"give one of shape {[*by, *shape]}"
            )
        return leaf.reshape([rows, columns])


def _check_dtype(name: str, leaf: Any, example: Tensor) -> None:
    if not isinstance(leaf, Tensor) or leaf.dtype != example.dtype:
        got = leaf.dtype if isinstance(leaf, Tensor) else repr(leaf)
        raise TypeError(
            f"{name} must give tensors of the parameters' dtype, {example.dtype}, and "
            f"gives {got}; convert it"
        )


def _unit_vectors(example: Tensor, count: int) -> Iterator[Tensor]:
    """Yield unit vectors in chunks, the last chunk padded with zeros."""
    dtype = dtype_name(example.dtype)
    for start in range(0, count, CHUNK):
        unit_rows = np.eye(min(count, CHUNK), count, start, dtype)
        yield paddle.to_tensor(unit_rows, place=example.place)
