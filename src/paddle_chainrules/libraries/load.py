"""Libraries called from Python, to try them."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Library:
    """A library that :func:`save_library` wrote, with its functions as attributes.

    They take and return arrays of numpy. The number of samples is that of the arrays.

    Attributes:
        functions: by name.
        description: names, shapes and dtypes, as the library tells them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        file = Path(path).resolve()
        if not file.is_file():
            raise FileNotFoundError(
                f"there is no library {str(path)!r}; check the path"
            )
        try:
            self._handle = _loaded(file)
            describe = getattr(self._handle, f"{file.stem}_describe")
        except (OSError, AttributeError) as error:
            raise ValueError(
                f"{str(path)!r} is no library of save_library, or was renamed "
                f"({error}); save it again under its name"
            ) from None
        describe.restype = ctypes.c_char_p
        self.description: Mapping[str, Any] = json.loads(describe())
        self.functions: dict[str, Callable[..., Any]] = {
            function["name"]: _Function(
                self._handle, function, self.description["errors"]
            )
            for function in self.description["functions"]
        }

    def __getattr__(self, name: str) -> Callable[..., Any]:
        result = self.__dict__.get("functions", {})
        if name not in result:
            raise AttributeError(
                f"the library has no function {name!r}; it has {', '.join(result)}"
            )
        return result[name]


def _loaded(file: Path) -> ctypes.CDLL:
    """Load a file by a new name. By an old one comes what was loaded by it before."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, file.name)
        link.symlink_to(file)
        return ctypes.CDLL(str(link))


def load_library(path: str | os.PathLike[str]) -> Library:
    """Load a library that :func:`save_library` wrote, to call it from Python.

    Args:
        path: the ``.so``, under its own name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is another kind of library, or has another name than it had.

    Examples:
        >>> import paddle, tempfile
        >>> from paddle_chainrules import FCNet
        >>> from paddle_chainrules.libraries import load_library, save_library
        >>> net = FCNet((2, 8, 1))
        >>> theta = net.flatten(net.init(0))
        >>> x = paddle.rand([5, 2])
        >>> path = f"{tempfile.mkdtemp()}/heat.so"
        >>> _ = save_library(path, net, theta, x, derivatives=["jacobian"])
        >>> heat = load_library(path)
        >>> heat.heat_jacobian(theta.numpy(), x.numpy()).shape
        (5, 1, 2)
    """
    return Library(path)


class _Function:
    """A function of a library, of arrays."""

    def __init__(
        self, handle: Any, description: Mapping[str, Any], errors: list[str]
    ) -> None:
        self._description, self._errors = description, errors
        self.__name__ = description["name"]
        self._call = getattr(handle, self.__name__)
        pointers = len(description["inputs"]) + len(description["outputs"])
        count = [ctypes.c_int64] if description["samples"] else []
        self._call.argtypes = [*count, *[ctypes.c_void_p] * pointers]
        self._call.restype = ctypes.c_int32

    def __call__(self, *arrays: Any) -> Any:
        about = self._description
        if len(arrays) != len(about["inputs"]):
            raise TypeError(
                f"{self.__name__} takes {len(about['inputs'])} arrays ("
                f"{', '.join(t['name'] for t in about['inputs'])}), got {len(arrays)}"
            )
        n = 0
        inputs = []
        for array, tensor in zip(arrays, about["inputs"], strict=True):
            x = np.ascontiguousarray(array).reshape(np.shape(array))
            n = self._checked_samples(x, tensor, n)
            inputs.append(x)
        outputs = [
            np.empty([_size_at(size, n) for size in tensor["shape"]], tensor["dtype"])
            for tensor in about["outputs"]
        ]
        pointers = [x.ctypes.data for x in (*inputs, *outputs)]
        status = self._call(*([n] if about["samples"] else []), *pointers)
        if status:
            raise ValueError(
                f"{self.__name__} gives error {status}: {self._errors[status]}; give "
                "arrays that fit"
            )
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _checked_samples(self, x: Any, tensor: Mapping[str, Any], n: int) -> int:
        """Return the number of samples; raise an error for another shape or dtype."""
        shape = tensor["shape"]
        fits = x.dtype == tensor["dtype"] and x.ndim == len(shape)
        for extent, size in zip(x.shape, shape, strict=False):
            if isinstance(size, int):
                fits = fits and extent == size
            elif fits:
                n = n or extent // max(1, _size_at(size, 1))
                fits = extent == _size_at(size, n)
        if not fits:
            expected = f"{tensor['dtype']} [{', '.join(map(str, shape))}]"
            raise ValueError(
                f"{self.__name__}: {tensor['name']} is {x.dtype} {[*x.shape]}, and "
                f"needs {expected}{f' with n = {n}' if n else ''}; give one like it"
            )
        return n


def _size_at(size: int | str, n: int) -> int:
    """Return a size for n samples: of 3, n, 3*n or n^2."""
    if isinstance(size, int):
        return size
    factor, _, rest = size.rpartition("*")
    power = int(rest.partition("^")[2] or 1)
    return int(factor or 1) * n**power
