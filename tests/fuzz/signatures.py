"""Arguments drawn by a function's signature: the names and annotations of parameters.

What is public is listed by its names, so that a new method is called without an entry.
"""

import inspect

from fuzz import values

NAMES = {
    **dict.fromkeys(("args", "x", "inputs", "leaves"), "points"),
    **dict.fromkeys(("cotangent", "tangent"), "cotangent"),
    **dict.fromkeys(("cotangents", "tangents", "wanted", "arrays"), "tensors"),
    **dict.fromkeys(("seed", "count", "chunk_size", "length", "steps"), "count"),
    **dict.fromkeys(("wrt", "frozen", "sparse"), "wrt"),
    **dict.fromkeys(("buffers", "state_dict", "grads", "state", "kwargs"), "tree"),
    **dict.fromkeys(("shape", "sizes"), "sizes"),
    **dict.fromkeys(("fn", "call"), "function"),
    **dict.fromkeys(("static_argnums", "argnums", "batched"), "argnums"),
    **{
        "params": "params",
        "index": "index",
        "dtype": "text",
        "path": "path",
        "layer": "layer",
    },
    **{"net": "net", "functions": "net", "theta": "theta", "like": "layer"},
    **{"lengths": "lengths", "values": "tensor", "into": "into", "names": "names"},
}
"""The kind of value that a parameter takes, by its name."""

ANNOTATIONS = {
    **{"bool": "bool", "int": "count", "float": "number", "str": "text"},
    **{"Tensor": "tensor", "Tree": "tree", "Net": "net", "Optimizer": "optimizer"},
}
"""The same by its annotation; a union has the kind of its first part."""

SPECIAL = ("__call__", "__getitem__", "__len__", "__iter__", "__repr__", "__str__")
"""Methods of operators and of built-in functions that are called, too."""


def kinds_of(parameter):
    """Return the kind of values that a parameter takes."""
    if parameter.name in NAMES:
        return NAMES[parameter.name]
    first = str(parameter.annotation).partition("|")[0].strip()
    if first.startswith(("Callable", "Function")):
        return "function"
    return ANNOTATIONS.get(first, "anything")


def kinds_by_signature(function):
    """Return kinds of positional arguments, and of keywords by their names.

    Positional arguments come as often as they may, so ``*args`` is one.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a function of C
        return ["anything"], {}
    positional, keywords = [], {}
    for parameter in parameters:
        kind = kinds_of(parameter)
        has_default = parameter.default is not parameter.empty
        if parameter.kind is parameter.VAR_KEYWORD:
            keywords |= {"seed": "count", "buffers": "tree"}
        elif has_default or parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = kind
        else:
            positional.append(kind)
    return positional, keywords


def public_names(found):
    """Return the names that this package gives an object, methods and attributes."""
    own = {
        name
        for kind in type(found).__mro__
        if kind.__module__.partition(".")[0] == "paddle_chainrules"
        for name in vars(kind)
        if name in SPECIAL or not name.startswith("_")
    }
    if own:
        held = getattr(found, "__dict__", {})
        own |= {name for name in held if not name.startswith("_")}
    if callable(found):
        own.add("__call__")
    return sorted(own)


def drawn(rng, kind, hostile):
    """Return a value of its kind, or any."""
    return values.KINDS["anything" if rng.random() < hostile else kind](rng)
