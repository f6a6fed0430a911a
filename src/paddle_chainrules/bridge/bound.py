"""Nets at parameters that Julia shares."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ..nets.calls.net_guards import GuardedPullback
from ..nets.calls.pullback import RecordedPullback
from ..nets.calls.wrt import Flags
from ..nets.nesting import Nesting
from ..nets.net import Net
from ..paddle_side.process.random_state import drawing_from, random_state
from ..transforms.containers.tree import flatten_tree
from .packing import BackwardFunction, Packed, contiguous_detached, pack
from .retained_bytes import RetainedBytesMeter, allocated, last_retained_bytes


class BoundNet:
    """A net at parameters that Julia shares.

    ``forward(*leaves)`` gives the value, ``pullback(*leaves)`` the value and the
    pullback. They use the net's programs, or else the graph that Paddle records.

    Args:
        whole: whether Julia has all parameters in one array. Then none is without
            gradients while others have some.
    """

    def __init__(
        self,
        net: Net,
        params: Any,
        meter: RetainedBytesMeter,
        nesting: Nesting | None = None,
        whole: bool = False,
    ) -> None:
        self._net = net
        self._params = params
        self._meter = meter
        self._nesting = nesting
        self._has_views = whole

    def forward(self, *leaves: Any) -> Packed:
        args, kwargs = self._arguments(leaves)
        return pack(self._net.forward(self._params, *args, **kwargs))

    def pullback(self, *leaves: Any) -> tuple[Packed, BackwardFunction]:
        programs, call = self._net._programs, self._arguments(leaves)
        state = random_state() if programs is None or programs.draws else None
        result = self._guarded(*call)
        if result is None:
            state = state or random_state()
            result = self._recorded(*call)
        recorded: RecordedPullback | None
        output, recorded, *aux = result
        output_count = len(flatten_tree(output)[0]) if aux else None

        def backward(
            params: Flags, inputs: bool, last: bool, *cotangents: Tensor | None
        ) -> tuple[Any, ...]:
            nonlocal recorded
            if output_count is not None and any(
                c is not None for c in cotangents[output_count:]
            ):
                raise TypeError(
                    "the new buffers of a net have no derivative; give nothing for "
                    "their cotangents"
                )
            pullback = recorded or self._replay(state, leaves)
            recorded = None if last else pullback
            return self._gradients(pullback, params, inputs, cotangents[:output_count])

        return pack((output, *aux) if aux else output), backward

    def _guarded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """Return output and pullback by a function for calls like this one, or None."""
        programs = self._net._programs
        if programs is None:
            return None
        result: tuple[Any, GuardedPullback] | None = programs.pullbacks.result(
            self._params, args, kwargs
        )
        if result is not None:
            last_retained_bytes.value = result[1].retained_bytes
        return result

    def _gradients(
        self,
        pullback: RecordedPullback,
        params: Flags,
        inputs: bool,
        cotangents: tuple[Tensor | None, ...],
    ) -> tuple[Any, ...]:
        grads = pullback._flat_gradients(cotangents, params, inputs)
        if self._nesting is not None:
            count = len(grads) - self._nesting.count
            grads[count:] = self._nesting.flatten_gradients(grads[count:])
        if self._has_views:
            grads = self._with_zeros(grads)
        return tuple(map(contiguous_detached, grads))

    def _with_zeros(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        """Fill in zeros for parameters without a gradient, if others have one."""
        values = [*self._params.values()]
        count = len(values)
        if all(grad is None for grad in grads[:count]):
            return grads
        filled = [
            paddle.zeros_like(value) if grad is None else grad
            for value, grad in zip(values, grads, strict=False)
        ]
        return [*filled, *grads[count:]]

    def _arguments(
        self, leaves: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (
            (leaves, {}) if self._nesting is None else self._nesting.arguments(leaves)
        )

    def _replay(self, state: Any, leaves: tuple[Any, ...]) -> RecordedPullback:
        """Run the pullback once more, with the random numbers of the first time."""
        args, kwargs = self._arguments(leaves)
        pullback: RecordedPullback
        with drawing_from(state):
            _, pullback, *_ = self._recorded(args, kwargs)
        return pullback

    def _recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        before = allocated()
        result = self._net._unchecked_pullback(self._params, args, kwargs)
        last_retained_bytes.value = self._meter.of(result[1], allocated() - before)
        return result
