"""Sparse matrices as arguments: rows of samples that are zero almost everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ...paddle_side.arguments import checked_integer
from ...paddle_side.dtypes import dtype_name, same_dtype
from ...paddle_side.patching.argument_kinds import (
    handles_kind,
    install_kinds,
    refused_elsewhere,
)
from ...paddle_side.rules.arguments import ARGUMENTS, without_aliases
from ...paddle_side.sparse_products import csr as product_of
from ...paddle_side.sparse_products import row_indices
from .tree import register

_INDEX = (paddle.int32, paddle.int64)
_ON_CPU = (paddle.float32, paddle.float64)


class CSR:
    """A sparse matrix by its compressed rows: an argument like a tensor of its shape.

    ``x @ weight``, ``paddle.matmul``, ``F.linear`` and ``F.embedding`` take it, and so
    do the layers made of them (``Linear``, ``Embedding``). It serves the first layer of
    a net, and is never made dense for it. An embedding sums the rows of its table, as
    ``torch.nn.EmbeddingBag`` does. All else refuses it.

    In a tree of arguments ``values`` is the leaf with a gradient: that of a CSR is a
    CSR with the gradient in ``values``, on the same pattern, and None in ``crows`` and
    ``cols``.

    Args:
        crows: the places where each row begins among the entries, and where the last
            ends; int32 or int64, of shape [n + 1].
        cols: the column of each entry, of shape [nnz]; the same dtype. Entries of one
            place add up.
        values: the values of the entries, of shape [nnz]. None for a bare pattern,
            whose entries are all one and have no gradient.
        shape: [n, d].

    Raises:
        TypeError: a part is no tensor, or of another dtype.
        ValueError: the parts don't fit each other.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import CSR, FCNet
        >>> x = CSR.of(paddle.to_tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))
        >>> x
        CSR(2 x 3, 1 entry of float32)
        >>> net = FCNet((3, 4, 1))
        >>> y, pullback = net.pullback(net.init(0), x)
        >>> grad_params, (grad_x,) = pullback(paddle.ones_like(y))
        >>> y.shape, grad_x.values.shape
        (paddle.Size([2, 1]), paddle.Size([1]))
    """

    __array_ufunc__ = None
    """Not supported, so that NumPy leaves operations with its numbers to this class."""

    __slots__ = ("cols", "crows", "features", "values")

    def __init__(
        self,
        crows: Tensor,
        cols: Tensor,
        values: Tensor | None,
        shape: Sequence[int],
    ) -> None:
        self.crows, self.cols, self.values = crows, cols, values
        if isinstance(shape, Tensor) or not isinstance(shape, Sequence | np.ndarray):
            raise TypeError(
                f"the shape of a CSR is two integers, got {type(shape).__name__}; give "
                "(rows, columns)"
            )
        sizes = tuple(checked_integer("each size of shape", n) for n in shape)
        _check_indices(self, sizes)
        self.features = sizes[1]
        install_kinds()

    @classmethod
    def of(cls, matrix: Any) -> CSR:
        """Make one from a SciPy matrix, a sparse or dense Paddle tensor, or an array.

        Entries of a dense matrix that are zero are left out. Booleans make a bare
        pattern.

        Raises:
            TypeError: it is none of these.
            ValueError: it does not have two dimensions.
        """
        if isinstance(matrix, Tensor) and (matrix.is_sparse()):
            # Paddle takes coordinates for sorted, which they may not be.
            ordered: Any = matrix if matrix.is_sparse_csr() else matrix.coalesce()
            sparse = matrix if matrix.is_sparse_csr() else ordered.to_sparse_csr()
            return cls(sparse.crows(), sparse.cols(), sparse.values(), sparse.shape)
        if hasattr(matrix, "tocsr"):
            rows = matrix.tocsr()
            tensors = map(paddle.to_tensor, (rows.indptr, rows.indices, rows.data))
            crows, cols, values = tensors
            if not same_dtype(crows.dtype, cols.dtype):
                crows, cols = crows.astype("int64"), cols.astype("int64")
            return cls(crows, cols, _values_or_none(values), rows.shape)
        if not isinstance(matrix, Tensor | np.ndarray):
            raise TypeError(
                f"CSR.of takes a matrix of scipy.sparse, a tensor or an array, got "
                f"{type(matrix).__name__}; give CSR(crows, cols, values, shape) its "
                "parts"
            )
        dense = matrix if isinstance(matrix, Tensor) else paddle.to_tensor(matrix)
        if dense.ndim != 2:
            raise ValueError(
                f"a CSR has two dimensions, the tensor has shape {list(dense.shape)}; "
                "reshape it to [samples, features]"
            )
        indices = paddle.nonzero(dense)
        count = paddle.bincount(indices[:, 0], minlength=dense.shape[0])
        crows = paddle.concat([paddle.zeros([1], "int64"), paddle.cumsum(count)])
        values = paddle.gather_nd(dense, indices)
        return cls(
            crows, indices[:, 1].contiguous(), _values_or_none(values), dense.shape
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), self.features

    @property
    def nnz(self) -> int:
        """The number of entries."""
        return len(self._index("cols"))

    def _index(self, name: str) -> Tensor:
        """Return ``crows`` or ``cols``.

        Raises:
            ValueError: this is a gradient, which has none.
        """
        index = getattr(self, name)
        if index is None:
            raise ValueError(
                f"the gradient of a CSR has values alone, and no {name}; use "
                "x.with_values(grad.values), where x is the CSR"
            )
        return index

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> paddle.dtype | None:
        """The dtype of the values; None for a bare pattern, which takes the other's."""
        return None if self.values is None else self.values.dtype

    @property
    def place(self) -> Any:
        return self._index("cols").place

    def __len__(self) -> int:
        return len(self._index("crows")) - 1

    def __getitem__(self, rows: slice) -> CSR:
        """Return consecutive rows."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise TypeError(
                f"rows of a CSR are taken by a slice of step 1, got [{rows!r}]; use "
                "x.to_dense(), or index a matrix of scipy.sparse"
            )
        start, stop, _ = rows.indices(len(self))
        stop = max(start, stop)
        first, last = int(self.crows[start]), int(self.crows[stop])
        values = None if self.values is None else self.values[first:last]
        crows = self.crows[start : stop + 1] - first
        return CSR(crows, self.cols[first:last], values, (stop - start, self.shape[1]))

    def with_values(self, values: Tensor | None) -> CSR:
        """Return the same pattern with other values, or none."""
        return CSR(self.crows, self.cols, values, self.shape)

    def astype(self, dtype: Any) -> CSR:
        """Return the same with values of another dtype."""
        values = None if self.values is None else self.values.astype(dtype)
        return self.with_values(values)

    def to_dense(self, dtype: Any = None) -> Tensor:
        """Return the matrix as a tensor of shape [n, d]."""
        rows = row_indices(self._index("crows"), self.cols)
        values = self.values
        if values is None:
            values = paddle.ones([self.nnz], dtype or "float32")
        zeros = paddle.zeros(self.shape, values.dtype)
        if not self.nnz:
            return zeros
        indices = paddle.stack([rows, self.cols], axis=1)
        result: Tensor = paddle.scatter_nd_add(zeros, indices, values)
        return result

    def __matmul__(self, dense: Tensor) -> Tensor:
        """Return the product with a tensor of shape [d, h], or [d]."""
        n, d = self.shape
        if not isinstance(dense, Tensor):
            raise TypeError(
                f"a CSR is multiplied with a paddle.Tensor, got {type(dense).__name__};"
                " convert it with paddle.to_tensor, or to_dense()"
            )
        if self.place.is_cpu_place() and dense.dtype not in _ON_CPU:
            raise TypeError(
                "products of a CSR on a CPU are of float32 and float64, got "
                f"{dtype_name(dense.dtype)}; convert both with astype"
            )
        if dense.ndim not in (1, 2) or dense.shape[0] != d:
            raise ValueError(
                f"the CSR has shape {[n, d]}, what it is multiplied with "
                f"{list(dense.shape)}; give [{d}, h] or [{d}]"
            )
        if self.values is None:
            values = paddle.ones([self.nnz], dense.dtype)
        else:
            values = self.values
        if not same_dtype(values.dtype, dense.dtype):
            raise TypeError(
                f"the CSR is {dtype_name(values.dtype)}, what it is multiplied with "
                f"{dtype_name(dense.dtype)}; convert it with "
                f"x.astype({dtype_name(dense.dtype)!r})"
            )
        wide = dense if dense.ndim == 2 else dense.reshape([-1, 1])
        result = product_of("csr_product", values, wide, self.crows, self.cols, d)
        return result if dense.ndim == 2 else result.reshape([n])

    def __reduce__(self) -> tuple[Any, ...]:
        return of_parts, (self.features, self.crows, self.cols, self.values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise AttributeError(
            f"a CSR has no attribute {name!r}, got asked for it; {_REMEDY}"
        )

    def __repr__(self) -> str:
        if not isinstance(self.cols, Tensor):
            return f"CSR(values={self.values!r})"
        entries = "1 entry" if self.nnz == 1 else f"{self.nnz} entries"
        kind = "" if self.values is None else f" of {dtype_name(self.values.dtype)}"
        return f"CSR({' x '.join(map(str, self.shape))}, {entries}{kind})"


_REMEDY = (
    "products alone take one (x @ weight, paddle.matmul, Linear, Embedding): multiply "
    "it first, or use x.to_dense()"
)


def _values_or_none(values: Tensor) -> Tensor | None:
    return None if same_dtype(values.dtype, paddle.bool) else values


def _check_indices(x: CSR, shape: tuple[int, ...]) -> None:
    for name in ("crows", "cols", "values"):
        component = getattr(x, name)
        optional = name == "values"
        if not isinstance(component, Tensor) and not (optional and component is None):
            raise TypeError(
                f"{name} of a CSR must be a paddle.Tensor, got "
                f"{type(component).__name__}; convert it with paddle.to_tensor, "
                "or use CSR.of(matrix)"
            )
    crows, cols, values = x.crows, x.cols, x.values
    if crows.dtype not in _INDEX or not same_dtype(cols.dtype, crows.dtype):
        raise TypeError(
            "crows and cols of a CSR must be of one dtype, int32 or int64, got "
            f"{dtype_name(crows.dtype)} and {dtype_name(cols.dtype)}; convert them "
            "with astype('int64')"
        )
    if len(shape) != 2:
        raise ValueError(
            f"a CSR has two dimensions, got the shape {[*shape]}; give [n, d]"
        )
    n, d = shape
    if crows.shape != [n + 1]:
        raise ValueError(
            f"crows has shape {list(crows.shape)}, a CSR of {n} rows needs {[n + 1]}: "
            "where each row begins, and where the last ends; give these"
        )
    if cols.ndim != 1 or (values is not None and values.shape != cols.shape):
        values_text = "no values" if values is None else f"values {list(values.shape)}"
        raise ValueError(
            f"cols has shape {list(cols.shape)} and there are {values_text}; a CSR "
            "needs one column and one value for each entry, both of shape [nnz]"
        )
    if values is not None and not values.is_floating_point():
        raise TypeError(
            f"values of a CSR are {dtype_name(values.dtype)}; convert them to a "
            "floating dtype with astype, or give None for a bare pattern"
        )
    row_starts, columns = crows.numpy(), cols.numpy()
    if (
        row_starts[0] != 0
        or row_starts[-1] != len(columns)
        or (np.diff(row_starts) < 0).any()
    ):
        raise ValueError(
            "crows of a CSR must rise from 0 to the number of entries, "
            f"{len(columns)}, got from {row_starts[0]} to {row_starts[-1]}; give where "
            "each row begins"
        )
    if len(columns) and not 0 <= columns.min() <= columns.max() < d:
        raise ValueError(
            f"cols of a CSR of {d} columns must be from 0 to {d - 1}, got from "
            f"{columns.min()} to {columns.max()}; number the columns from 0"
        )


def _flatten_csr(x: CSR) -> tuple[Any, Any, Any]:
    return (x.crows, x.cols, x.values), x.features, ("crows", "cols", "values")


def of_parts(features: int, crows: Any, cols: Any, values: Any) -> CSR:
    """Make one of any parts, unchecked."""
    install_kinds()
    return _unflatten_csr(features, (crows, cols, values))


def _unflatten_csr(features: int, components: Any) -> CSR:
    matrix = CSR.__new__(CSR)
    matrix.crows, matrix.cols, matrix.values = components
    matrix.features = features
    return matrix


def _without_indices(x: CSR) -> CSR:
    return _unflatten_csr(x.features, (None, None, x.values))


register(CSR, _flatten_csr, _unflatten_csr, _without_indices)
refused_elsewhere(CSR, _REMEDY)


@handles_kind(CSR, paddle.matmul, paddle.mm)
def _matmul(*args: Any, **kwargs: Any) -> Tensor:
    args, kwargs = without_aliases(ARGUMENTS["matmul"], args, kwargs)
    arguments = dict(zip(ARGUMENTS["matmul"], args, strict=False)) | kwargs
    x, y = arguments["x"], arguments["y"]
    if arguments.get("transpose_x") or not isinstance(x, CSR):
        raise TypeError(
            "a product has a CSR as its first factor and can't transpose it, got it as "
            "the second, or transpose_x; give the CSR of the transpose first"
        )
    return x @ (y.T if arguments.get("transpose_y") else y)


@handles_kind(CSR, F.linear)
def linear(x: CSR, weight: Tensor, bias: Any = None, name: Any = None) -> Tensor:
    """Compute ``x @ weight + bias``."""
    result = x @ weight
    return result if bias is None else result + bias


@handles_kind(CSR, F.embedding)
def _embedding(
    x: CSR,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    sparse: bool = False,
    scale_grad_by_freq: bool = False,
    name: Any = None,
) -> Tensor:
    if max_norm is not None or scale_grad_by_freq:
        raise TypeError(
            "an embedding of a CSR sums rows of its table as they are, got max_norm or "
            "scale_grad_by_freq; leave them out"
        )
    if padding_idx is None:
        return x @ weight
    padding = padding_idx % weight.shape[0]
    is_entry = (x.cols != padding).astype(weight.dtype)
    return x.with_values(is_entry if x.values is None else x.values * is_entry) @ weight
