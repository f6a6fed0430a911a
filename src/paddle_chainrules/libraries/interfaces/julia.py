"""The Julia module of a library.

It is one file. It holds the library's functions, their rules for ChainRules, and
``arguments.jl`` as a module inside, which checks arguments. Names of our own begin with
an underscore, which those of functions and tensors never do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..exports import LibraryFunction, TensorParameter
from .c import wrap_items

TYPES = {
    "float32": "Float32",
    "float64": "Float64",
    "int32": "Int32",
    "int64": "Int64",
    "bool": "Bool",
    "uint8": "UInt8",
}

IMPORTED = ("ChainRulesCore", "NoTangent", "ProjectTo", "ZeroTangent", "unthunk")

RULES = {"vjp": "rrule (for Zygote)", "jvp": "frule"}
"""What the module has where there is such a derivative."""

ARGUMENTS = Path(__file__).with_name("arguments.jl")


def julia_module(
    name: str, functions: Sequence[LibraryFunction], description: str
) -> str:
    """Return the module.

    Args:
        name: that of the library.
        functions: all of the library.
        description: the library's description of itself, which the module compares.
    """
    module = f"{name[0].upper()}{name[1:]}Library"
    exported_names = [
        exported_name for f in functions for exported_name in (f.name, f"{f.name}!")
    ]
    rows = [
        *_introduction(name, module, functions),
        f"module {module}",
        "",
        f"using ChainRulesCore: {', '.join(IMPORTED)}",
        "",
        f"export {wrap_items(exported_names, '    ', 80)}",
        "",
        f'const library = joinpath(@__DIR__, "{name}.so")',
        "include_dependency(library)",
        "",
        *_function_lines(functions),
        "_check(status) = status == 0 || _Arguments.fail(",
        f'    "{name}", @ccall(library.{name}_error(status::Int32)::Cstring),',
        ")",
        "",
        "__init__() = _Arguments.check_description(",
        f"    library, @ccall(library.{name}_describe()::Cstring), "
        f"{_hash(description)},",
        ")",
        "",
        ARGUMENTS.read_text(encoding="utf-8").strip(),
        "",
        f"end # of {module}",
    ]
    return "\n".join(rows) + "\n"


def _function_lines(functions: Sequence[LibraryFunction]) -> Iterator[str]:
    """Yield the lines of all functions, with their rules."""
    roles = {f.export.role: f for f in functions if f.export.role is not None}
    for function in functions:
        yield from _in_place_function(function)
        yield from _allocating_function(function)
        role = function.export.role
        reverse = forward = None
        if role is not None and role.kind == "value":
            reverse = roles.get(role._replace(kind="vjp"))
            forward = roles.get(role._replace(kind="jvp"))
        yield from _rrule(function, reverse) if reverse else _no_rrule(function)
        if forward:
            yield from _frule(function, forward)
        if role is not None and role.kind == "value":
            yield from _net(function, bool(reverse), bool(forward), role.has_params)


def _introduction(
    name: str, module: str, functions: Sequence[LibraryFunction]
) -> Iterator[str]:
    """Yield the lines that say what the file is, with all shapes."""
    usual_type = _most_common_type(functions)
    first = functions[0]
    inputs, role = [t.name for t in first.inputs], first.export.role
    yield from [
        '"""',
        f"Functions of machine code in {name}.so, which need no Python. Written by",
        "paddle-chainrules: save the library again instead of editing this file.",
        "",
        f'    include("{name}.jl")  # beside {name}.so; needs ChainRulesCore',
        f"    using .{module}",
        f"    {_names_text(first.outputs)} = {first.name}({', '.join(inputs)})",
        f"    {first.name}!({_names_text([*first.outputs, *first.inputs])})  "
        "# into your arrays",
    ]
    if role is not None and role.has_params:
        argument_list = ", ".join([*inputs[1:], inputs[0]])
        yield f"    {module}.{_net_name(first)}({argument_list})  # as Lux calls nets"
    kinds = {f.export.role.kind for f in functions if f.export.role is not None}
    rules = [rule for kind, rule in RULES.items() if kind in kinds]
    if rules:
        yield from [
            "",
            f"{first.name} has {' and '.join(rules)} of ChainRules.",
        ]
    yield from [
        "",
        "Sizes are Julia's, which are Python's reversed; n is any number of samples.",
        f"Elements are {usual_type}, unless said otherwise. Any thread may call these:",
        "",
    ]
    for function in functions:
        argument_list = ", ".join(_tensor_text(t, usual_type) for t in function.inputs)
        outputs = ", ".join(_tensor_text(t, usual_type) for t in function.outputs)
        yield f"    {function.name}({argument_list}) -> {outputs}"
    yield '"""'


def _most_common_type(functions: Sequence[LibraryFunction]) -> str:
    """Return the element type that most tensors have."""
    types = (TYPES[t.dtype] for f in functions for t in (*f.inputs, *f.outputs))
    return Counter(types).most_common(1)[0][0]


def _tensor_text(tensor: TensorParameter, usual_type: str) -> str:
    dtype = TYPES[tensor.dtype]
    size = _sizes(tensor) if tensor.shape else "number"
    return (
        f"{tensor.name} {size}"
        if dtype == usual_type
        else f"{tensor.name} {dtype} {size}"
    )


def _names_text(tensors: Sequence[TensorParameter]) -> str:
    return ", ".join(t.name for t in tensors)


def _sizes(tensor: TensorParameter) -> str:
    """Return the size of an array as Julia's tuple."""
    return _tuple_of([_size(size) for size in reversed(tensor.shape)])


def _size(size: tuple[int, int]) -> str:
    factor, power = size
    n = ("", "n")[power] if power < 2 else f"n^{power}"
    return n if n and factor == 1 else f"{factor}{n}"


def _is_floating(tensor: TensorParameter) -> bool:
    return tensor.dtype.startswith("float")


def _sample_count_lines(function: LibraryFunction) -> list[str]:
    """Return the line that finds the number of samples, if there are any."""
    if not function.has_samples:
        return []
    results = [
        (factor, position, len(tensor.shape) - axis, tensor.name)
        for position, tensor in enumerate(function.inputs)
        for axis, (factor, power) in enumerate(tensor.shape)
        if power == 1
    ]
    factor, _, dimension, name = min(results)
    argument_list = f"{name}, {dimension}" + (f", {factor}" if factor > 1 else "")
    return [f"    n = _Arguments.samples({argument_list})"]


def _in_place_function(function: LibraryFunction) -> Iterator[str]:
    """Yield the function that writes into arrays."""
    name = function.name
    tensors = [*function.inputs, *function.outputs]
    argument_names = _names_text([*function.outputs, *function.inputs])
    yield f"function {name}!({argument_names})"
    yield from _sample_count_lines(function)
    for tensor in tensors:
        kind = "input" if tensor in function.inputs else "output"
        argument_list = f"{tensor.name}, {TYPES[tensor.dtype]}, {_sizes(tensor)}"
        label = f'"{name}: {tensor.name} {_sizes(tensor)}"'
        yield f"    {tensor.name} = _Arguments.{kind}({argument_list}, {label})"
    c_arguments = ["n::Int64"] if function.has_samples else []
    c_arguments += [f"{t.name}::Ptr{{{TYPES[t.dtype]}}}" for t in tensors]
    yield f"    _check(@ccall library.{name}("
    yield f"        {wrap_items(c_arguments, '        ', 80)}"
    yield "    )::Int32)"
    yield f"    return {_names_text(function.outputs)}"
    yield from ["end", ""]


def _allocating_function(function: LibraryFunction) -> Iterator[str]:
    """Yield the function that makes its results."""
    yield f"function {function.name}({_names_text(function.inputs)})"
    yield from _sample_count_lines(function)
    for t in function.outputs:
        yield f"    {t.name} = _Arguments.result({TYPES[t.dtype]}, {_sizes(t)})"
    yield f"    {function.name}!({_names_text([*function.outputs, *function.inputs])})"
    returned = (t.name if t.shape else f"{t.name}[]" for t in function.outputs)
    yield f"    return {', '.join(returned)}"
    yield from ["end", ""]


def _floating_components(name: str, tensors: Sequence[TensorParameter]) -> str:
    """Return a tuple of those components of a value that have derivatives."""
    if len(tensors) == 1:
        return _tuple_of([name])
    return _tuple_of(
        [f"{name}[{i}]" for i, t in enumerate(tensors, 1) if _is_floating(t)]
    )


def _tuple_of(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _rrule(function: LibraryFunction, reverse: LibraryFunction) -> Iterator[str]:
    """Yield the rule of reverse mode."""
    argument_list = _names_text(function.inputs)
    floating = [t for t in function.inputs if _is_floating(t)]
    projects = _tuple_of([f"ProjectTo({t.name})" for t in floating])
    outputs = function.outputs
    zero_tangents = [
        f"{'Zero' if t in floating else 'No'}Tangent()" for t in function.inputs
    ]
    projected = (f"_projects[{i}](_bars[{i}])" for i in range(1, len(floating) + 1))
    tangents = [
        next(projected) if t in floating else "NoTangent()" for t in function.inputs
    ]
    call = f"{reverse.name}({argument_list}, _cotangents...)"
    yield from [
        f"function ChainRulesCore.rrule(::typeof({function.name}), {argument_list})",
        f"    _value = {function.name}({argument_list})",
        f"    _projects = {projects}",
        "    function _pullback(_given)",
        "        _cotangent = unthunk(_given)",
        "        _cotangents = _Arguments.tangents(",
        f"            {_floating_components('_cotangent', outputs)},",
        f"            {_floating_components('_value', outputs)},",
        "        )",
        "        _cotangents === nothing && return NoTangent(), "
        f"{', '.join(zero_tangents)}",
        f"        _bars = {call if len(floating) > 1 else _tuple_of([call])}",
        f"        return NoTangent(), {wrap_items(tangents, ' ' * 12, 80)}",
        "    end",
        "    return _value, _pullback",
        "end",
        "",
    ]


def _no_rrule(function: LibraryFunction) -> Iterator[str]:
    """Yield a rule whose pullback says that there is no derivative."""
    argument_list = _names_text(function.inputs)
    yield from [
        f"ChainRulesCore.rrule(::typeof({function.name}), {argument_list}) =",
        f"    {function.name}({argument_list}),",
        f'    _Arguments.no_pullback("{function.name}", {len(function.inputs) + 1})',
        "",
    ]


def _frule(function: LibraryFunction, forward: LibraryFunction) -> Iterator[str]:
    """Yield the rule of forward mode."""
    name, outputs = function.name, function.outputs
    argument_list = _names_text(function.inputs)
    role = function.export.role
    params = function.inputs[:1] if role is not None and role.has_params else []
    differentiated = [t for t in function.inputs[len(params) :] if _is_floating(t)]
    tangents = ", ".join(f"Δ{t.name}" for t in function.inputs)
    rule_parameters = f"(_, {tangents})::Tuple, ::typeof({name}), {argument_list}"
    yield f"function ChainRulesCore.frule({rule_parameters})"
    for t in params:
        yield f'    _Arguments.no_tangent(Δ{t.name}, "{name}: {t.name}")'
    yield from [
        "    _tangents = _Arguments.tangents(",
        f"        {_tuple_of([f'Δ{t.name}' for t in differentiated])},",
        f"        {_tuple_of([t.name for t in differentiated])},",
        "    )",
        f"    _tangents === nothing && return {name}({argument_list}), ZeroTangent()",
        f"    _all = {forward.name}({argument_list}, _tangents...)",
    ]
    tangent_indices = iter(range(len(outputs) + 1, len(forward.outputs) + 1))
    values = [f"_all[{i}]" for i in range(1, len(outputs) + 1)]
    dots = [
        f"_all[{next(tangent_indices)}]" if _is_floating(t) else "NoTangent()"
        for t in outputs
    ]
    if len(outputs) == 1:
        yield "    return _all"
    else:
        yield f"    _value = {_tuple_of(values)}"
        yield f"    return _value, _Arguments.tuple_tangent(_value, {_tuple_of(dots)})"
    yield from ["end", ""]


def _net(
    function: LibraryFunction, reverse: bool, forward: bool, has_params: bool
) -> Iterator[str]:
    """Yield the net as Lux calls nets: inputs, then parameters."""
    name = function.name
    net = _net_name(function)
    if not has_params:
        yield from [f"const {net} = {name}", ""]
        return
    rule = "ChainRulesCore.frule"
    params, *inputs = [t.name for t in function.inputs]
    argument_list = ", ".join([*inputs, params])
    to_function = ", ".join([params, *inputs])
    yield f"# The net as Lux calls it: {net}({argument_list})."
    yield f"{net}({argument_list}) = {name}({to_function})"
    if len(inputs) > 1:
        listed = ", ".join(inputs)
        yield f"{net}(({listed})::Tuple, {params}) = {name}({to_function})"
    if reverse:
        reordered_gradients = ", ".join(
            f"_all[{i}]" for i in [1, *range(3, len(inputs) + 3), 2]
        )
        yield from [
            f"function ChainRulesCore.rrule(::typeof({net}), {argument_list})",
            f"    _value, _back = ChainRulesCore.rrule({name}, {to_function})",
            f"    _pullback(_given) = (_all = _back(_given); ({reordered_gradients}))",
            "    return _value, _pullback",
            "end",
        ]
    if forward:
        tangents = ", ".join(f"Δ{name_}" for name_ in (*inputs, params))
        reordered = ", ".join(f"Δ{name_}" for name_ in (params, *inputs))
        yield f"{rule}((_, {tangents})::Tuple, ::typeof({net}), {argument_list}) ="
        yield f"    {rule}((NoTangent(), {reordered}), {name}, {to_function})"
    yield ""


def _net_name(function: LibraryFunction) -> str:
    """Return the name of the net as Lux calls it."""
    return "layer" if function.name == "net" else "net"


def _hash(text: str) -> str:
    """Return the FNV-1a hash of a text, as the module computes it."""
    result = 0x811C9DC5
    for byte in text.encode():
        result = (result ^ byte) * 0x01000193 % 2**32
    return f"0x{result:08x}"
