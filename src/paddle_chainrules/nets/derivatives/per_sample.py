"""Nets made of a net of many samples: gradients and Jacobians of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle import Tensor

from ...transforms.containers.tree import flatten_tree
from ...transforms.derivatives.jacobian import jacfwd, jacrev
from ...transforms.derivatives.vjp import vjp
from ...transforms.vmap import vmap
from ..nesting import Nesting
from ..net import Net
from .along import InARow


class PerSample(InARow):
    """A net at one sample at a time, all of them at once.

    Args:
        many: which of the leaves have samples along their first axis; all share the
            others.
    """

    def __init__(
        self, net: Net, count: int, nesting: Nesting | None, many: Sequence[bool]
    ) -> None:
        super().__init__(net, count, nesting)
        self._many = many

    def _samples(self, leaves: Sequence[Any]) -> list[Tensor]:
        return [x for x, flag in zip(leaves, self._many, strict=True) if flag]

    def _at(
        self, params: dict[str, Tensor], leaves: Sequence[Any], sample: Sequence[Tensor]
    ) -> list[Any]:
        """Return the leaves of the output at one sample, which is a batch of one."""
        given = iter(sample)
        row = [
            next(given).unsqueeze(0) if flag else x
            for x, flag in zip(leaves, self._many, strict=True)
        ]
        return flatten_tree(self._output(params, row)[0])[0]


class SampleVJP(PerSample):
    """``forward(params, *leaves, *cotangents)``: gradients of parameters by sample.

    A tuple in the order of the parameters, with one axis more, the first; None where
    there is none. Cotangents have samples too, None for zero.
    """

    def _of_row(
        self, params: dict[str, Tensor], row: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        leaves, cotangents = row[: self._count], row[self._count :]
        samples = self._samples(leaves)
        at = [i for i, c in enumerate(cotangents) if c is not None]

        def gradients(*given: Tensor) -> list[Any]:
            sample, own = given[: len(samples)], iter(given[len(samples) :])

            def output(*values: Tensor) -> tuple[Any, ...]:
                return tuple(self._at(self.spec.named([*values]), leaves, sample))

            y, pullback = vjp(output, *params.values())
            cotangent = [
                next(own).unsqueeze(0) if i in at else None for i in range(len(y))
            ]
            return [*pullback.or_none(tuple(cotangent))]

        return tuple(vmap(gradients)(*samples, *(cotangents[i] for i in at))), []


class SampleJacobian(PerSample):
    """``forward(params, x, ...)``: the Jacobian of one array by another, by sample.

    Its shape is [n, inputs, outputs], where samples of several dimensions count as one.
    """

    def _of_row(
        self, params: dict[str, Tensor], row: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        (x,) = self._samples(row)

        def output(sample: Tensor) -> Tensor:
            y, *others = self._at(params, row, [sample])
            if others or not isinstance(y, Tensor):
                raise TypeError(
                    "the Jacobian of each sample is of a net that gives one tensor; "
                    "this one gives several results, wrap it in a layer that picks one"
                )
            return y.reshape([-1])

        n = x.shape[0]
        width = x.size // max(n, 1)
        outputs = output(x[0]).shape[0]
        of = jacfwd(output) if width < outputs else jacrev(output)
        found = vmap(of)(x)
        return found.reshape([n, outputs, width]).transpose([0, 2, 1]), []
