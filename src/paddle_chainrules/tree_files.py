"""Trees of tensors and numbers in one file: parameters, optimizers' states, the step.

A file is a ``.safetensors`` with the containers in its metadata. There is no code in
it, and it is there as a whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import paddle
from paddle import Tensor
from paddle.device import get_device

from . import tensor_files
from .paddle_side.dtypes import dtype_name, tensor_kind
from .tensor_files import Corrupt
from .whole_files import replacing

BRANCHES = (Tensor, dict, list, tuple)
PLAIN = (bool, int, float, str, type(None))
COMPLEX = ("complex64", "complex128")
"""Complex dtypes, which are kept as pairs of real numbers."""

PathLike = str | os.PathLike[str]


def save(path: PathLike, tree: Any) -> None:
    """Write a tree of tensors and numbers to a file, to go on from later.

    The file is a ``.safetensors``: tensors bit for bit, with a checksum of all, and no
    code. It is there as a whole or not at all: an error, or a process that is killed,
    leaves the file that was there.

    Args:
        path: the file; it ends in ``.safetensors``.
        tree: dicts, lists and tuples, named ones too, of tensors, numbers, strings and
            None: parameters, buffers, an optimizer's state, the step, the seed.

    Raises:
        TypeError: a leaf of another kind, or a key that is no string or int.
        ValueError: another suffix, a name that can't be kept, containers that are
            nested too deeply; path is no regular file.
        OSError: the file can't be written.

    Examples:
        >>> import tempfile
        >>> from paddle_chainrules import FCNet, load, optimizers, save
        >>> params = FCNet((3, 5, 2)).init(seed=0)
        >>> state = optimizers.adam(1e-3).init(params)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(f"{folder}/run.safetensors", {"state": state, "step": 7})
        ...     run = load(f"{folder}/run.safetensors")
        >>> run["step"], type(run["state"]).__name__
        (7, 'Adam')
    """
    write_tree(_checked_path(path), tree)


def load(path: PathLike, like: Any = None) -> Any:
    """Read what :func:`save` wrote, onto Paddle's current device.

    Args:
        path: the file.
        like: a tree of the same containers, shapes and dtypes, to compare with the
            file; its named tuples come back. Without it named tuples are those of
            ``optimizers``.

    Raises:
        OSError: the file can't be read.
        ValueError: it is none that ``save`` wrote, has changed since, holds something
            else than ``like``, or named tuples of others without ``like``.
    """
    result = unpack(*read_tree(_checked_path(path)))
    return (
        _check_known_classes(result, "tree")
        if like is None
        else _in_containers_of(like, result, "tree")
    )


def _checked_path(path: PathLike) -> Path:
    result = Path(path)
    if result.suffix != ".safetensors":
        raise ValueError(
            f"{result} ends in {result.suffix!r}; give a name that ends in "
            ".safetensors, or use save_params for a .npz of parameters"
        )
    return result


def _check_known_classes(node: Any, name: str) -> Any:
    """Return a tree that was read, if all of its classes are known.

    Raises:
        ValueError: a class is not known.
    """
    if isinstance(node, Unknown):
        raise ValueError(
            f"{name} is a named tuple of the class {node.name}, which a file does not "
            "make; give a tree with such a one as like"
        )
    if isinstance(node, dict | list | tuple):
        pairs = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in pairs:
            _check_known_classes(child, f"{name}[{key!r}]")
    return node


def _in_containers_of(like: Any, results: Any, name: str) -> Any:
    """Return a tree that was read, in the containers of another tree.

    Raises:
        ValueError: it has other containers.
    """
    if isinstance(like, dict):
        if not isinstance(results, dict) or results.keys() != like.keys():
            raise _mismatch_error(name, f"a dict of {sorted(map(str, like))}", results)
        items = {
            key: _in_containers_of(like[key], results[key], f"{name}[{key!r}]")
            for key in like
        }
        return OrderedDict(items) if isinstance(like, OrderedDict) else items
    if isinstance(like, list | tuple):
        children = results.fields if isinstance(results, Unknown) else results
        is_same_length = isinstance(children, list | tuple) and len(children) == len(
            like
        )
        if not is_same_length or _class_of(like) != _class_of(results):
            raise _mismatch_error(
                name, f"a {type(like).__name__} of {len(like)}", results
            )
        pairs = enumerate(zip(like, children, strict=True))
        row = [_in_containers_of(a, b, f"{name}[{i}]") for i, (a, b) in pairs]
        return type(like)(*row) if is_named(like) else type(like)(row)
    if isinstance(like, Tensor):
        is_same = isinstance(results, Tensor) and results.shape == like.shape
        if not is_same or results.dtype != like.dtype:
            expected = tensor_kind(like)
            raise _mismatch_error(name, expected, results)
    elif (like is None) != (results is None) or isinstance(
        results, Tensor | dict | list | tuple
    ):
        raise _mismatch_error(name, f"a {type(like).__name__}", results)
    return results


def _class_of(node: Any) -> str:
    """Return a file's name for the class of a list or tuple."""
    if isinstance(node, Unknown):
        return node.name
    kind = type(node)
    return f"{kind.__module__}:{kind.__qualname__}"


def _mismatch_error(name: str, expected: str, results: Any) -> ValueError:
    kind = f"a {type(results).__name__}"
    if isinstance(results, Tensor):
        kind = tensor_kind(results)
    if isinstance(results, dict):
        kind = f"a dict of {sorted(map(str, results))}"
    if isinstance(results, Unknown):
        kind = f"a named tuple of the class {results.name}"
    return ValueError(
        f"{name} in the file is {kind}, and like has {expected}; give a tree like the "
        "one that was saved"
    )


def write_tree(path: Path, state: Any) -> None:
    """Write a tree to a file, as :func:`save` does."""
    tensors: dict[str, Tensor] = {}
    try:
        tree = json.dumps(_pack(state, "state", tensors))
    except RecursionError:
        raise ValueError(
            "the state is nested too deeply for a file; give it in fewer levels"
        ) from None
    with replacing(path) as new_file:
        tensor_files.write(new_file, tensors, {STATE: tree})
        with tensor_files.opened(new_file) as file:
            _parse_tree(tensor_files.read_header(file))


STATE = "state"
"""Key of the containers in a file's metadata."""


def _pack(node: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return a tree as JSON has it: containers as pairs of kind and content."""
    if isinstance(node, Tensor):
        is_complex = dtype_name(node.dtype) in COMPLEX
        stored = paddle.as_real(node.detach()) if is_complex else node
        tensor_files.check(name, stored)
        tensors[name] = stored
        return ["complex" if is_complex else "tensor", name]
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise TypeError(
                    f"keys must be strings or ints, got {key!r} in {name}; name what "
                    "is kept by one of these"
                )
        return [
            "dict",
            [[k, _pack(v, f"{name}[{k!r}]", tensors)] for k, v in node.items()],
        ]
    if type(node) in (list, tuple):
        children = [
            _pack(child, f"{name}[{i}]", tensors) for i, child in enumerate(node)
        ]
        return [type(node).__name__, children]
    if is_named(node):
        return [
            "named",
            [
                _class_of(node),
                [
                    _pack(child, f"{name}.{field}", tensors)
                    for field, child in zip(node._fields, node, strict=True)
                ],
            ],
        ]
    if isinstance(node, PLAIN):
        return ["plain", node]
    raise TypeError(
        "a file holds tensors, numbers, strings and None in dicts, lists and tuples, "
        f"named ones too, got {type(node).__name__} at {name}; convert it, arrays by "
        "paddle.to_tensor"
    )


def read_tree(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """Read the packed tree of a file, and its tensors.

    Raises:
        OSError: it can't be read.
        ValueError: it is no checkpoint.
    """
    try:
        with tensor_files.opened(path) as file:
            header = tensor_files.read_header(file)
            tree = _parse_tree(header)
            return tree, tensor_files.read(file, header)
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)!r} is no checkpoint: it must be a whole file that save "
            f"or save_checkpoint wrote, but {error}; give the path of one, or an "
            "earlier copy"
        ) from error


def _parse_tree(header: tensor_files.Header) -> Any:
    """Parse the packed tree, and check that it uses each tensor exactly once.

    Raises:
        Corrupt: it tells of none, or of others than the tensors that are there.
    """
    if header.metadata.keys() - {tensor_files.CHECKSUM} != {STATE}:
        raise Corrupt("it tells of no state")
    try:
        tree = json.loads(header.metadata[STATE])
        kinds = _packed_tensors(tree)
    except RecursionError:
        raise Corrupt("its state is nested too deeply") from None
    if sorted(name for name, _ in kinds) != sorted(header.tensors):
        raise Corrupt("its state has other tensors than the file")
    for name, is_complex in kinds:
        entry = header.tensors[name]
        is_pairs = entry.dtype in ("float32", "float64") and entry.shape[-1:] == (2,)
        if is_complex and not is_pairs:
            raise Corrupt(f"{name!r} is no complex tensor")
    return tree


def _packed_tensors(node: Any) -> list[tuple[str, bool]]:
    """Return the names of the tensors in a packed tree, and whether they are complex.

    Raises:
        Corrupt: it is none of these.
    """
    if type(node) is not list or len(node) != 2:
        raise Corrupt(f"its state has {str(node)[:40]} for a kind and content")
    kind, content = node
    if kind in ("tensor", "complex") and type(content) is str:
        return [(content, kind == "complex")]
    if kind == "plain" and isinstance(content, PLAIN):
        return []
    if kind in ("list", "tuple") and type(content) is list:
        return [tensor for child in content for tensor in _packed_tensors(child)]
    if kind == "dict" and type(content) is list and all(map(_is_pair, content)):
        if len({key for key, _ in content}) != len(content):
            raise Corrupt("its state has a key twice")
        return [tensor for _, child in content for tensor in _packed_tensors(child)]
    if kind == "named" and _is_named_pair(content):
        return [tensor for child in content[1] for tensor in _packed_tensors(child)]
    raise Corrupt(f"its state has the kind {str(kind)[:40]}")


def _is_named_pair(content: Any) -> bool:
    """Tell whether it is the name of a class of tuples with what such a tuple holds."""
    is_pair = type(content) is list and len(content) == 2
    return is_pair and type(content[0]) is str and type(content[1]) is list


def _is_pair(pair: Any) -> bool:
    return type(pair) is list and len(pair) == 2 and type(pair[0]) in (str, int)


def unpack(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the tree that a packed one and its tensors stand for.

    The tensors are on Paddle's current device.

    Raises:
        ValueError: a named tuple has other fields here.
    """
    kind, content = node
    if kind == "tensor":
        return tensors[content].to(get_device())
    if kind == "complex":
        return paddle.as_complex(tensors[content].to(get_device()))
    if kind == "dict":
        return {key: unpack(child, tensors) for key, child in content}
    if kind in ("list", "tuple"):
        children = [unpack(child, tensors) for child in content]
        return children if kind == "list" else tuple(children)
    if kind == "named":
        name, children = content
        results = [unpack(child, tensors) for child in children]
        try:
            return _named_tuple_class(name)(*results)
        except TypeError as error:  # of another version's fields
            raise ValueError(
                f"a {name} of {len(results)} parts can't be made here ({error}); read "
                "it with the version that wrote it"
            ) from error
    return content


OWN_MODULES = "paddle_chainrules.optimizers."
"""Module prefix of the named tuples that are known by their names."""


def _named_tuple_class(name: str) -> Callable[..., Any]:
    """Return the class of a named tuple, or a placeholder until its like is seen."""
    module, _, class_name = name.partition(":")
    if module.startswith(OWN_MODULES) and all(map(str.isidentifier, module.split("."))):
        with suppress(ImportError):
            result = getattr(import_module(module), class_name, None)
            if isinstance(result, type) and issubclass(result, tuple):
                return result
    return lambda *fields: Unknown(name, fields)


class Unknown(NamedTuple):
    """A named tuple of a class that a file does not make."""

    name: str
    fields: tuple[Any, ...]


def is_named(node: Any) -> bool:
    """Tell whether it is a named tuple."""
    return isinstance(node, tuple) and hasattr(type(node), "_fields")
