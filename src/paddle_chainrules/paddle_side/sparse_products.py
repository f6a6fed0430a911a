"""Products of a sparse matrix, given by its rows, with a dense one; and what is left.

Three functions, each linear in two arguments, are each other's derivatives: the
product ``A(values) @ dense``, its adjoint ``A(values).T @ dense``, and what is sampled
of ``x @ y.T`` at the entries of the pattern.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from .autograd.hooked_layers import HookedLayer
from .interception import RAW
from .listener import listener
from .shared_memory import without_gaps

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""Function of both arguments, ``crows``, ``cols`` and the matrix's number of
columns."""


def product(values: Tensor, dense: Tensor, crows: Tensor, cols: Tensor, d: int) -> Any:
    """Return ``A @ dense``, of shape [n, h]; ``dense`` has shape [d, h]."""
    if _uses_scipy(values):
        return _as_tensor(_scipy_matrix(values, crows, cols, d) @ _as_array(dense))
    if not len(cols):
        return paddle.zeros([len(crows) - 1, dense.shape[1]], dense.dtype)
    rows = row_indices(crows, cols)
    operands = dense, values.reshape([-1, 1]), cols, rows, "MUL", "SUM"
    return RAW.send_ue_recv(*operands, [len(crows) - 1])


def adjoint(values: Tensor, dense: Tensor, crows: Tensor, cols: Tensor, d: int) -> Any:
    """Return ``A.T @ dense``, of shape [d, h]; ``dense`` has shape [n, h]."""
    if _uses_scipy(values):
        return _as_tensor(_scipy_matrix(values, crows, cols, d).T @ _as_array(dense))
    if not len(cols):
        return paddle.zeros([d, dense.shape[1]], dense.dtype)
    rows = row_indices(crows, cols)
    operands = dense, values.reshape([-1, 1]), rows, cols, "MUL", "SUM"
    return RAW.send_ue_recv(*operands, [d])


def sampled(x: Tensor, y: Tensor, crows: Tensor, cols: Tensor, d: int) -> Any:
    """Return ``sum(x[i] * y[j])`` at each entry (i, j) of the pattern, of shape [nnz].

    In chunks, since rows of both are copied for each.
    """
    rows = row_indices(crows, cols)
    chunk_size = max(1, _CHUNK_NUMBERS // max(1, x.shape[1]))
    chunks = [
        (
            RAW.gather(x, rows[k : k + chunk_size], 0)
            * RAW.gather(y, cols[k : k + chunk_size], 0)
        )
        for k in range(0, len(cols), chunk_size)
    ]
    sums = [chunk.sum(axis=1) for chunk in chunks]
    return paddle.concat(sums) if sums else paddle.zeros([0], x.dtype)


_CHUNK_NUMBERS = 1 << 16
"""Numbers of each factor in :func:`sampled`, which stay in a core's cache."""


def row_indices(crows: Tensor, cols: Tensor) -> Tensor:
    """Return the row of each entry, of shape [nnz] and the dtype of ``cols``."""
    positions = paddle.arange(len(cols), dtype=crows.dtype)
    result = paddle.searchsorted(crows, positions, right=True) - 1
    return result.astype(cols.dtype)


def _uses_scipy(values: Tensor) -> bool:
    """Tell whether SciPy's kernels can serve, which are faster on a CPU."""
    return values.place.is_cpu_place() and _csr_array() is not None


@cache
def _csr_array() -> Any:
    """Return SciPy's class of matrices, if SciPy is installed."""
    try:
        return importlib.import_module("scipy.sparse").csr_array
    except ModuleNotFoundError:
        return None


def _scipy_matrix(values: Tensor, crows: Tensor, cols: Tensor, d: int) -> Any:
    csr_arrays = _as_array(values), _as_array(cols), _as_array(crows)
    return _csr_array()(csr_arrays, shape=(len(crows) - 1, d), copy=False)


def _as_array(x: Tensor) -> Any:
    """Return the same memory as an array, which is only read."""
    return np.from_dlpack(without_gaps(x.detach()))


def _as_tensor(array: Any) -> Tensor:
    result: Tensor = paddle.from_dlpack(np.ascontiguousarray(array))
    return result


class Bilinear(NamedTuple):
    """A function of two arguments and a pattern that is linear in each.

    Attributes:
        kernel: what computes it.
        gradients_by: the kinds of its gradients by the first and the second, and which
            of the arguments (0, 1) and the cotangent (2) each is a function of.
    """

    kernel: Kernel
    gradients_by: tuple[tuple[str, tuple[int, int]], tuple[str, tuple[int, int]]]


PRODUCTS = {
    "csr_product": Bilinear(
        product, (("csr_sampled", (2, 1)), ("csr_adjoint", (0, 2)))
    ),
    "csr_adjoint": Bilinear(
        adjoint, (("csr_sampled", (1, 2)), ("csr_product", (0, 2)))
    ),
    "csr_sampled": Bilinear(
        sampled, (("csr_product", (2, 1)), ("csr_adjoint", (2, 0)))
    ),
}


def on_graph(
    name: str, first: Tensor, second: Tensor, crows: Tensor, cols: Tensor, d: int
) -> Tensor:
    """Run one of :data:`PRODUCTS`, on Paddle's graph if one is recorded."""
    call = _ProductCall(name, first, second, (crows, cols, d))
    differentiated = [x for x in (first, second) if not x.stop_gradient]
    if not (differentiated and paddle.is_grad_enabled()):
        return call.value()
    if (
        len(differentiated) == 1
    ):  # Paddle's layers of several inputs lack a way to say which
        result: Tensor = _GraphProduct.apply(call, differentiated[0])
    else:
        result = _GraphProduct.apply(
            call, paddle.concat([x.reshape([-1]) for x in differentiated])
        )
    return result


def csr(
    name: str, first: Tensor, second: Tensor, crows: Tensor, cols: Tensor, d: int
) -> Tensor:
    """Compute one of :data:`PRODUCTS`, in a program or on Paddle's own graph."""
    if (tracer := listener()) is None:
        return on_graph(name, first, second, crows, cols, d)
    operands = first, second, crows, cols, d
    result: Tensor = tracer.operator(name, PRODUCTS[name].kernel, operands, {})
    return result


@dataclass(frozen=True)
class _ProductCall:
    """One call; no tuple, since Paddle counts the tensors in one as inputs."""

    name: str
    first: Tensor
    second: Tensor
    pattern: tuple[Tensor, Tensor, int]

    def versions(self) -> list[int]:
        """Return how often each tensor was written into."""
        tensors = self.first, self.second, *self.pattern[:2]
        return [x._inplace_version() for x in tensors]

    def value(self) -> Tensor:
        with paddle.no_grad():
            result: Tensor = PRODUCTS[self.name].kernel(
                self.first, self.second, *self.pattern
            )
        return result

    def gradients(self, cotangent: Tensor) -> list[Tensor]:
        """Return the gradients that are asked for."""
        kind, operands = PRODUCTS[self.name], (self.first, self.second, cotangent)
        return [
            on_graph(name, operands[i], operands[j], *self.pattern)
            for x, (name, (i, j)) in zip(operands, kind.gradients_by, strict=False)
            if not x.stop_gradient
        ]


class _GraphProduct(HookedLayer):
    """A product among the operators that Paddle records."""

    @staticmethod
    def forward(ctx: Any, call: _ProductCall, _: Tensor) -> Tensor:
        ctx.call = call
        ctx.versions = call.versions()
        return call.value()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        call: _ProductCall = ctx.call
        if ctx.versions != call.versions():
            raise RuntimeError(
                "a factor of a sparse product was written into between the product and "
                "its gradient, which needs its value as it was then; write out of place"
            )
        results = call.gradients(cotangent)
        if len(results) == 1:
            return results[0]
        flat: Tensor = paddle.concat([grad.reshape([-1]) for grad in results])
        return flat
