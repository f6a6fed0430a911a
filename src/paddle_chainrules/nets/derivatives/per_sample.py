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
from .vjp_jvp_nets import FlatArgsNet


class SampleDerivatives(FlatArgsNet):
    """A net at one sample at a time, all of them at once.

    Args:
        many: which of the leaves have samples along their first axis; all share the
            others.

    Raises:
        ValueError: batch normalization in training, which takes samples together.
    """

    def __init__(
        self, net: Net, count: int, nesting: Nesting | None, has_samples: Sequence[bool]
    ) -> None:
        super().__init__(net, count, nesting)
        if names := getattr(net, "moved_buffers", ()):
            raise ValueError(
                "batch normalization in training makes samples depend on each other "
                f"(it moves {', '.join(map(repr, names))}), and derivatives of each "
                "sample alone need them apart; call layer.eval() first"
            )
        self._has_samples = has_samples

    def _sample_leaves(self, leaves: Sequence[Any]) -> list[Tensor]:
        return [x for x, flag in zip(leaves, self._has_samples, strict=True) if flag]

    def _output_at_sample(
        self, params: dict[str, Tensor], leaves: Sequence[Any], sample: Sequence[Tensor]
    ) -> list[Any]:
        """Return the leaves of the output at one sample, which is a batch of one."""
        samples = iter(sample)
        args = [
            next(samples).unsqueeze(0) if flag else x
            for x, flag in zip(leaves, self._has_samples, strict=True)
        ]
        return flatten_tree(self._output(params, args)[0])[0]


class SampleVJP(SampleDerivatives):
    """``forward(params, *leaves, *cotangents)``: gradients of each sample, in a row.

    Those of the parameters in order, with one axis more, the first, then of the leaves,
    in their shapes; None where there is none, as for leaves that all samples share.
    Cotangents have samples too, and are one for each leaf of the output, None for zero.
    """

    def _apply_flat(
        self, params: dict[str, Tensor], flat_args: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        leaves, cotangents = flat_args[: self._count], flat_args[self._count :]
        samples, count = self._sample_leaves(leaves), len(params)

        def output(*primals: Tensor) -> tuple[Any, ...]:
            values = self.spec.named([*primals[:count]])
            return tuple(self._output_at_sample(values, leaves, primals[count:]))

        def gradients(*samples_and_cotangents: Tensor) -> list[Any]:
            sample, sample_cotangents = (
                samples_and_cotangents[: len(samples)],
                iter(samples_and_cotangents[len(samples) :]),
            )
            _, pullback = vjp(output, *[*params.values(), *sample])
            cotangent = (
                c if c is None else next(sample_cotangents).unsqueeze(0)
                for c in cotangents
            )
            return [*pullback.or_none(tuple(cotangent))]

        result = vmap(gradients)(*samples, *(c for c in cotangents if c is not None))
        sample_grads = iter(result[count:])
        by_leaves = [next(sample_grads) if flag else None for flag in self._has_samples]
        return (*result[:count], *by_leaves), []


class SampleJacobian(SampleDerivatives):
    """``forward(params, x, ...)``: the Jacobian of one array by another, by sample.

    Its shape is [n, inputs, outputs], where samples of several dimensions count as one.
    """

    def _apply_flat(
        self, params: dict[str, Tensor], flat_args: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        (x,) = self._sample_leaves(flat_args)

        def output(sample: Tensor) -> Tensor:
            y, *others = self._output_at_sample(params, flat_args, [sample])
            if others or not isinstance(y, Tensor):
                raise TypeError(
                    "the Jacobian of each sample is of a net that gives one tensor; "
                    "this one gives several results, wrap it in a layer that picks one"
                )
            return y.reshape([-1])

        n = x.shape[0]
        width = x.size // max(n, 1)
        outputs = output(x[0]).shape[0]
        sample_jacobian = jacfwd(output) if width < outputs else jacrev(output)
        result = vmap(sample_jacobian)(x)
        return result.reshape([n, outputs, width]).transpose([0, 2, 1]), []
