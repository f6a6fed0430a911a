"""Names of functions and tensors that are valid in C, C++, Fortran and Julia."""

from __future__ import annotations

import ctypes
import keyword
import re
from collections.abc import Iterable

from ..programs import Target

LISTED = """
abstract alignas alignof and_eq asm auto baremodule begin bitand bitor bool c_bool
c_double c_float c_int32_t c_int64_t c_int8_t c_ptr case catch char char16_t char32_t
char8_t co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit contains continue decltype default delete do double dynamic_cast else end enum
errno explicit export extern false float for friend function goto if import in inline
int integer isa let linux local logical long macro main module mutable namespace new
noexcept not_eq nullptr only operator or_eq primitive private program protected public
quote real register reinterpret_cast requires restrict return short signed sizeof static
static_assert static_cast std struct subroutine switch template this thread_local throw
true type typedef typeid typename union unix unsigned use using virtual void volatile
wchar_t where while xor xor_eq
"""
WORDS = frozenset(LISTED.split())
"""Words of C, C++, Fortran and Julia, except those of Python."""

INTERFACE_NAMES = ("n", "work", "status", "bytes", "name", "check_size", "check_status")
"""Names that the interfaces use beside those of tensors."""

MAX_TENSOR_NAME, MAX_NAME = 40, 63
"""The most letters of a tensor's name, and of any name in Fortran."""

LIBRARY_ENDINGS = ("_describe", "_error", "_check", "_library")
"""Endings of the names that every library has in one of the languages."""


def is_word(name: str) -> bool:
    """Tell whether a name means something in one of the languages."""
    return name in WORDS or keyword.iskeyword(name)


def unique(label: str, used_names: set[str]) -> str:
    """Return a tensor's name that nothing else has."""
    result = re.sub(r"\W+", "_", label, flags=re.ASCII).strip("_").lower()
    if not result or not result[0].isalpha() or is_word(result):
        result = f"x_{result}"
    result = result[:MAX_TENSOR_NAME].rstrip("_")
    number, base = 2, result
    while result in used_names:
        result, number = f"{base}_{number}", number + 1
    used_names.add(result)
    return result


def check_functions(library: str, functions: Iterable[str]) -> None:
    """Raise an error where names of functions don't fit together.

    Raises:
        ValueError: a name is too long, one of C's own, or that of something else in
            the library. Fortran does not tell capitals from small letters.
    """
    used_names = {f"{library}{ending}".lower() for ending in LIBRARY_ENDINGS}
    for function in functions:
        names = [f"{function}{ending}" for ending in Target.FUNCTION_ENDINGS]
        if (excess := max(map(len, names)) - MAX_NAME) > 0:
            raise ValueError(
                f"the function's name {function!r} is too long for Fortran; make it "
                f"shorter by {excess} letters"
            )
        if _is_of_c(function):
            raise ValueError(
                f"C has a function {function!r} of its own; choose another name"
            )
        for name in names:
            if name.lower() in used_names:
                raise ValueError(
                    f"the library would have two things called {name!r} (in Fortran "
                    f"capitals are small letters); choose another name for {function!r}"
                )
            used_names.add(name.lower())


def _is_of_c(name: str) -> bool:
    """Tell whether the C library has a function of this name, as tanh or time."""
    return any(
        hasattr(ctypes.CDLL(library), name) for library in ("libc.so.6", "libm.so.6")
    )
