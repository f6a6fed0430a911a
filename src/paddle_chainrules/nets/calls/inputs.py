"""Arguments of a net's call, as one row of leaves."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from paddle import Tensor

from ...transforms.containers.tree import ONE_LEAF, flatten_tree
from ..parameters.params import Params, ParamSpec

NO_KEYWORDS = flatten_tree({})


class CallStructure(NamedTuple):
    """The nesting of a call's arguments and of its output."""

    spec: ParamSpec
    order: tuple[str, ...] | None
    """The names in the order of the caller's parameters; None for one theta."""
    args: Any
    kwargs: Any = NO_KEYWORDS[1]
    output: Any = ONE_LEAF

    @property
    def param_leaves(self) -> int:
        """The number of leaves that are parameters."""
        return 1 if self.order is None else len(self.order)


class CallInputs:
    """The parameters and arguments of a net's call, as a row of leaves.

    Attributes:
        spec: the net's parameters.
        leaves: the checked parameters, or theta, then the leaves of all arguments.
        order: the names in the order of the caller; None for theta.
        call_args: the checked parameters, arguments and keyword arguments.
    """

    def __init__(
        self,
        spec: ParamSpec,
        params: Params,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.spec = spec
        param_leaves: list[Any]
        self.call_args: tuple[Any, ...]
        if isinstance(params, Tensor):
            self.order, param_leaves = None, [params]
            self.call_args = params, args, kwargs
        else:
            values = spec.as_dict(params)
            self.order, param_leaves = spec.order_of(params), [*values.values()]
            self.call_args = values, args, kwargs
        arg_leaves, self.args_spec = flatten_tree(args)
        kwarg_leaves, self.kwargs_spec = flatten_tree(kwargs) if kwargs else NO_KEYWORDS
        self._args_start = len(param_leaves)
        self._kwargs_start = self._args_start + len(arg_leaves)
        self.leaves = [*param_leaves, *arg_leaves, *kwarg_leaves]

    def without_leaves(self) -> CallInputs:
        """Return the nesting of the leaves without any tensor."""
        result = copy.copy(self)
        result.leaves = []
        result.call_args = ()
        return result

    def with_leaves(self, leaves: Sequence[Any]) -> tuple[dict[str, Any], Any, Any]:
        """Return the parameters, arguments and keyword arguments with other leaves.

        Parameters are in a dict.
        """
        if self.order is None:
            values = self.spec.unflatten(leaves[0])
        elif leaves is self.leaves:
            return self.call_args
        else:
            values = self.spec.named(leaves[: self._args_start])
        args = self.args_spec.unflatten(leaves[self._args_start : self._kwargs_start])
        if self.kwargs_spec is NO_KEYWORDS[1]:
            return values, args, {}
        return values, args, self.kwargs_spec.unflatten(leaves[self._kwargs_start :])

    def form(self, output: Any) -> CallStructure:
        """Return the nesting of the call, with an output nested like this one."""
        return CallStructure(
            self.spec, self.order, self.args_spec, self.kwargs_spec, output
        )
