"""The C++ header of a library, with spans and exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..exports import LibraryFunction
from .c import TYPES, call_text, wrap_items


def cpp_header(name: str, functions: Sequence[LibraryFunction]) -> str:
    """Return the header, for C++20."""
    guard = f"{name.upper()}_HPP"
    rows = [
        f"// {name}: functions of machine code, with std::span. Needs C++20.",
        "// A size that does not fit is std::invalid_argument, an error of the library",
        "// std::runtime_error.",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <span>",
        "#include <stdexcept>",
        "#include <string>",
        f'#include "{name}.h"',
        "",
        f"namespace {name}_library {{",
        "",
        "inline void check_status(std::int32_t status) {",
        f"  if (status) throw std::runtime_error(::{name}_error(status));",
        "}",
        "",
        "inline void check_size(const char *name, std::size_t found, "
        "std::int64_t expected) {",
        "  if (found != static_cast<std::size_t>(expected))",
        "    throw std::invalid_argument(",
        '        std::string(name) + " has " + std::to_string(found) +',
        '        " elements, and needs " + std::to_string(expected));',
        "}",
        "",
    ]
    for function in functions:
        tensors = [*function.inputs, *function.outputs]
        parameter_list = ["std::int64_t n"] if function.has_samples else []
        for const, tensors_of_kind in (
            ("const ", function.inputs),
            ("", function.outputs),
        ):
            parameter_list += [
                f"std::span<{const}{_type(t.dtype)}> {t.name}" for t in tensors_of_kind
            ]
        rows.append(f"// {call_text(function)}")
        head = f"inline void {function.name}("
        rows.append(f"{head}{wrap_items(parameter_list, '    ', used=len(head))}) {{")
        if function.has_samples:
            rows.append(f"  if (n < 1) check_status({name.upper()}_SAMPLES);")
        for t in tensors:
            size = "*".join(
                [str(prod(f for f, _ in t.shape)), *["n"] * sum(p for _, p in t.shape)]
            )
            rows.append(f'  check_size("{t.name}", {t.name}.size(), {size});')
        arguments = ["n"] if function.has_samples else []
        arguments += [f"{t.name}.data()" for t in tensors]
        head = f"  check_status(::{function.name}("
        rows.append(f"{head}{wrap_items(arguments, '      ', used=len(head))}));")
        rows += ["}", ""]
    rows += [f"}}  // namespace {name}_library", "#endif"]
    return "\n".join(rows) + "\n"


def _type(dtype: str) -> str:
    result = TYPES[dtype]
    return {"_Bool": "bool"}.get(result, f"std::{result}" if "_t" in result else result)
