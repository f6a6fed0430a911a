"""Errors of layers, in Julia's terms."""

from __future__ import annotations

from typing import Any

from ..nets.layers.refusals import PythonTerms, Size
from ..nets.layers.refusals import refusal as _refusal


class _JuliaTerms(PythonTerms):
    """The words that Julia uses for values."""

    to_tensor_hint, integers, transpose_code = "", "Int.(x)", "permutedims(x)"

    def tensor(self, shape: Size) -> str:
        return f"an array of size {self.size(shape)}"

    def of_type(self, dtype: str) -> str:
        return f"an array of {self.type(dtype)}"

    def type(self, dtype: str) -> str:
        bits = {"complex64": "ComplexF32", "complex128": "ComplexF64"}
        unsigned = dtype.startswith("uint")
        return bits.get(dtype, f"UInt{dtype[4:]}" if unsigned else dtype.capitalize())

    def size(self, size: Size) -> str:
        """Return a size in Julia's order."""
        sizes_text = ", ".join(map(str, reversed(size)))
        return f"({sizes_text},)" if len(size) == 1 else f"({sizes_text})"

    def cast(self, dtype: str, is_complex: bool = False) -> str:
        return f"{self.type(dtype)}.({'real.(x)' if is_complex else 'x'})"

    def what(self, x: Any) -> str:
        if isinstance(x, str):
            return f'the string "{x[:30]}"'
        return "nothing" if x is None else super().what(x)


def refusal(error: BaseException) -> tuple[str, str, BaseException] | None:
    """Return the name of the layer in which Paddle raised, a sentence and its error."""
    result = _refusal(error, _JuliaTerms())
    return result and (result.name, result.sentence, result.error)
