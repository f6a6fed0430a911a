"""Parameters by the names that a layer's state dict has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import paddle
from paddle import Tensor

from .params import checked_tensors


def numbered(names: Sequence[str]) -> list[tuple[int, str]] | None:
    """Return names such as ``"2.weight"`` with the numbers replaced by their ranks.

    None where there are others, or the numbers do not go up.
    """
    partitions = [str(name).partition(".") for name in names]
    if not all(number.isdigit() for number, _, _ in partitions):
        return None
    numbers = [int(number) for number, _, _ in partitions]
    ranks = {number: rank for rank, number in enumerate(dict.fromkeys(numbers))}
    if numbers != sorted(numbers):
        return None
    return [
        (ranks[n], suffix)
        for n, (_, _, suffix) in zip(numbers, partitions, strict=True)
    ]


def aliases(
    layer: paddle.nn.Layer, params: dict[str, Tensor], buffers: dict[str, Tensor]
) -> dict[str, str]:
    """Return for every name in the layer's state dict the one name used here."""
    name_of_tensor = {id(value): name for name, value in {**params, **buffers}.items()}
    return {
        alias: name_of_tensor[id(value)]
        for alias, value in layer.state_dict().items()
        if id(value) in name_of_tensor
    }


def names_in(
    param_names: Sequence[str],
    state_dict: Mapping[str, Tensor],
    names: Sequence[str] | None,
) -> Sequence[str]:
    """Return the names of this net's parameters in a state dict.

    Raises:
        TypeError: it is no dict.
        ValueError: it has other names.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"a state dict is a dict of tensors, got {type(state_dict).__name__}; give "
            "layer.state_dict()"
        )
    if names is None:
        if all(name in state_dict for name in param_names):
            return param_names
        names = [*state_dict]
        if numbered(names) is not None and numbered(names) == numbered(param_names):
            return names
    elif len(names) == len(param_names) and all(name in state_dict for name in names):
        return names
    raise ValueError(
        f"the state dict has the tensors {list(state_dict)}, the net "
        f"{list(param_names)}, asked for as {list(names)}; they must have the "
        "same names, or be numbered alike. Which is which can be told: "
        "names=[...], a name in the state dict for each of net.spec.names"
    )


def copies_by_names(
    values: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    names: Sequence[str] | None = None,
) -> dict[str, Tensor]:
    """Return copies under the names that they have in ``target``, a state dict to fill.

    Raises:
        TypeError: it is no dict of tensors.
        ValueError: it has other names, or another shape.
    """
    results = {}
    target_names = names_in([*values], target, names)
    checked_tensors(
        "the state dict to fill", {name: target[name] for name in target_names}
    )
    for target_name, (name, value) in zip(target_names, values.items(), strict=True):
        if tuple(target[target_name].shape) != tuple(value.shape):
            raise ValueError(
                f"{name!r} has shape {list(value.shape)}, {target_name!r} of the state "
                f"dict to fill {list(target[target_name].shape)}; they must be equal"
            )
        results[target_name] = value.detach().clone()
    return results
