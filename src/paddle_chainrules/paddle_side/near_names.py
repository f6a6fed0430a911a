"""Names that others have for what is called otherwise here, for errors that say so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

FUNCTIONS = {
    "functional_call": "net, params, buffers = stateless(layer), then net(params, x)",
    "make_functional": "net, params, buffers = stateless(layer), then net(params, x)",
    "stack_module_state": "stack_params",
    "grad_and_value": "value_and_grad, which gives the value first",
    "value_and_gradient": "value_and_grad",
    "make_jaxpr": "make_program",
    "make_fx": "make_program",
    "functionalize": "jit, which writes no tensor of the caller's",
    "vectorize": "vmap",
    "jacobian_reverse": "jacrev",
    "tree_map": "paddle.utils.map_structure, or optree.tree_map",
}
"""Functions of other libraries, and what to use here instead."""

METHODS = {
    "apply": "net(params, x)",
    "eval": "net.in_mode(False), another net on the same layer",
    "train": "net.in_mode(True), another net on the same layer",
    "parameters": "net.spec; a net holds no parameters itself",
    "named_parameters": "net.spec; a net holds no parameters itself",
    "state_dict": "net.to_state_dict(params)",
    "load_state_dict": "net.from_state_dict(state_dict)",
    "set_state_dict": "net.from_state_dict(state_dict)",
    "to": "net.in_dtype(dtype), and paddle.Tensor.to of each parameter",
    "zero_grad": "nothing: gradients are results, and none is kept",
    "backward": "net.vjp, or value_and_grad of a loss",
}
"""The same of attributes of nets."""

ARGUMENTS = {
    "in_dims": "in_axes",
    "out_dims": "out_axes",
    "lr": "learning_rate",
    "betas": "beta1 and beta2",
    "b1": "beta1",
    "b2": "beta2",
    "eps": "epsilon",
    "parameters": "init: state = optimizer.init(params)",
    "params": "init: state = optimizer.init(params)",
    "grad_clip": "chain: chain(clip_by_global_norm(1.0), adam(1e-3))",
}
"""The same of arguments."""


def names_arguments(function: F) -> F:
    """Decorate a function whose errors name its own arguments for those of others.

    Raises:
        TypeError: from the function: an argument that is called otherwise.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        refuse_foreign_arguments(function.__name__, kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def refuse_foreign_arguments(name: str, argument_names: Iterable[str]) -> None:
    """Refuse arguments that are called otherwise.

    Raises:
        TypeError: there is one.
    """
    for argument in argument_names:
        if argument in ARGUMENTS:
            raise TypeError(
                f"{name} has no argument {argument}; in its place give "
                f"{ARGUMENTS[argument]}"
            )


def instead_of(name: str, alternatives: Mapping[str, str]) -> str:
    """Say in an error what there is instead of a name."""
    return (
        f"here it is {alternatives[name]}"
        if name in alternatives
        else "dir() has all that is"
    )
