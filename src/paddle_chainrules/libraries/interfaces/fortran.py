"""The Fortran module of a library, by iso_c_binding."""

from __future__ import annotations

from collections.abc import Sequence

from ...programs import Target
from ..exports import LibraryFunction, TensorParameter
from .c import size_text, wrap_items

TYPES = {
    "float32": "real(c_float)",
    "float64": "real(c_double)",
    "int32": "integer(c_int32_t)",
    "int64": "integer(c_int64_t)",
    "bool": "logical(c_bool)",
    "uint8": "integer(c_int8_t)",
}


def fortran_module(name: str, functions: Sequence[LibraryFunction]) -> str:
    """Return the module."""
    rows = [
        f"! {name}: functions of machine code that need no Python.",
        "! Arrays have Fortran's order: the first size is that of one sample, the last",
        "! is the number of samples. The functions return 0, or an error;",
        f"! {name}_check stops the program with its text.",
        f"module {name}_library",
        "  use, intrinsic :: iso_c_binding",
        "  implicit none",
        "  interface",
    ]
    for function in functions:
        rows += _interface(function, "")
        rows += _interface(function, "_with_work")
        rows += _work_bytes(function)
    rows += [
        "  end interface",
        "contains",
        f"  subroutine {name}_check(status)",
        "    integer(c_int32_t), intent(in) :: status",
        "    select case (status)",
        "    case (0)",
        "      return",
    ]
    for i, error in enumerate(Target.ERRORS[1:], 1):
        rows += [f"    case ({i})", f'      error stop "{name}: {error}"']
    rows += [
        "    case default",
        f'      error stop "{name}: an unknown error"',
        "    end select",
        f"  end subroutine {name}_check",
        f"end module {name}_library",
    ]
    return "\n".join(rows) + "\n"


def _interface(function: LibraryFunction, ending: str) -> list[str]:
    tensors = [*function.inputs, *function.outputs]
    name = f"{function.name}{ending}"
    arguments = ["n"] if function.has_samples else []
    arguments += [t.name for t in tensors] + (["work"] if ending else [])
    head = f"    function {name}("
    argument_list = wrap_items(arguments, "        ", 80, " &", len(head))
    rows = [
        f"{head}{argument_list}) &",
        f'        result(status) bind(C, name="{name}")',
        "      import :: c_int32_t, c_int64_t, c_int8_t, c_float, c_double, c_bool, &",
        "                c_ptr",
    ]
    if function.has_samples:
        rows.append("      integer(c_int64_t), value :: n")
    rows += [_declaration(t, "in") for t in function.inputs]
    rows += [_declaration(t, "out") for t in function.outputs]
    if ending:
        rows.append("      type(c_ptr), value :: work")
    return [
        *rows,
        "      integer(c_int32_t) :: status",
        f"    end function {name}",
    ]


def _declaration(tensor: TensorParameter, intent: str) -> str:
    sizes = ", ".join(size_text(size, "**") for size in reversed(tensor.shape))
    shape = f"({sizes})" if sizes else ""
    return f"      {TYPES[tensor.dtype]}, intent({intent}) :: {tensor.name}{shape}"


def _work_bytes(function: LibraryFunction) -> list[str]:
    name = f"{function.name}_work_bytes"
    argument = "n" if function.has_samples else ""
    rows = [
        f"    function {name}({argument}) &",
        f'        result(bytes) bind(C, name="{name}")',
        "      import :: c_int64_t",
    ]
    if argument:
        rows.append("      integer(c_int64_t), value :: n")
    return [*rows, "      integer(c_int64_t) :: bytes", f"    end function {name}"]
