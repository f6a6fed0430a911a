"""The C header of a library."""

from __future__ import annotations

from collections.abc import Sequence

from ...programs import Target
from ..exports import LibraryFunction, TensorParameter

TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int32_t",
    "int64": "int64_t",
    "bool": "_Bool",
    "uint8": "uint8_t",
}

STATUS = ("OK", "POINTER", "SAMPLES", "OVERLAP", "MEMORY", "INDEX")


def shape_text(tensor: TensorParameter) -> str:
    """Return a shape as ``[n, 3]``."""
    return f"[{', '.join(map(size_text, tensor.shape))}]"


def size_text(size: tuple[int, int], sign: str = "^") -> str:
    """Return a size as ``3``, ``n`` or ``3*n``."""
    factor, power = size
    if not power:
        return str(factor)
    n = "n" if power == 1 else f"n{sign}{power}"
    return n if factor == 1 else f"{factor}*{n}"


def call_text(function: LibraryFunction) -> str:
    """Return a call in a line: results, name, arguments, each with its shape."""

    def listed(tensors: Sequence[TensorParameter]) -> str:
        return ", ".join(f"{t.name} {shape_text(t)}" for t in tensors)

    return f"{listed(function.outputs)} = {function.name}({listed(function.inputs)})"


def wrap_items(
    items: Sequence[str], indent: str, width: int = 88, end: str = "", used: int = 0
) -> str:
    """Return items with commas between, in lines of some width.

    The first line begins after ``used`` letters.
    """
    lines, line = [], ""
    column = used
    for i, item in enumerate(items):
        text = item + ("," if i < len(items) - 1 else "")
        if i and column + len(line) + len(text) > width:
            lines.append(line + end)
            line, column = "", len(indent)
        line += (" " if line else "") + text
    return f"\n{indent}".join([*lines, line])


def c_header(name: str, functions: Sequence[LibraryFunction], description: str) -> str:
    """Return the header."""
    guard = f"{name.upper()}_H"
    rows = [
        f"/* {name}: functions of machine code that need no Python.",
        "",
        "   Arrays are row-major, without gaps. Outputs overlap nothing. Any number of",
        "   threads may call the functions. They return 0, or an error below; then",
        "   nothing was written, except for INDEX. A function with _with_work takes",
        "   memory of as many bytes as that with _work_bytes says, so that nothing is",
        "   allocated. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdbool.h>",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "enum {",
    ]
    prefix = name.upper()
    for i, (code, text) in enumerate(zip(STATUS, Target.ERRORS, strict=True)):
        rows.append(f"  {prefix}_{code} = {i}, /* {text} */")
    rows += ["};", ""]
    for function in functions:
        rows += [f"/* {call_text(function)} */"]
        parameter_list = parameters(function)
        rows.append(_declaration("int32_t", function.name, parameter_list))
        with_work = f"{function.name}_with_work"
        rows.append(_declaration("int32_t", with_work, [*parameter_list, "void *work"]))
        count = ["int64_t n"] if function.has_samples else ["void"]
        rows.append(_declaration("int64_t", f"{function.name}_work_bytes", count))
        rows.append("")
    rows += [
        "/* The error's text, or NULL. */",
        f"const char *{name}_error(int32_t status);",
        "/* Names, shapes and dtypes of all functions, as JSON. */",
        f"const char *{name}_describe(void);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
    ]
    return "\n".join(rows).replace("_Bool", "bool") + "\n"


def parameters(function: LibraryFunction) -> list[str]:
    """Return the parameters of a function."""
    declarations = [f"const {TYPES[t.dtype]} *{t.name}" for t in function.inputs]
    declarations += [f"{TYPES[t.dtype]} *{t.name}" for t in function.outputs]
    return [*(["int64_t n"] if function.has_samples else []), *declarations]


def _declaration(result: str, name: str, parameter_list: Sequence[str]) -> str:
    head = f"{result} {name}("
    return f"{head}{wrap_items(parameter_list, '    ', used=len(head))});"
