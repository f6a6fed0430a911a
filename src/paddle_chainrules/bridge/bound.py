"""Nets at parameters that Julia shares."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ..nets.calls.dispatch_cache import CachedVJP
from ..nets.calls.pullback import RecordedPullback
from ..nets.calls.wrt import Flags
from ..nets.nesting import Nesting
from ..nets.net import Net
from ..paddle_side.process.random_state import drawing_from, random_state
from ..transforms.as_programs.program_recording import run
from ..transforms.containers.tree import flatten_tree
from .bound_calls import BoundCalls
from .packing import Back, Packed, pack, plain
from .retained_bytes import RetainedBytesMeter, allocated, behind_last


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
        self._whole = whole
        self._known = BoundCalls(net, params)

    def forward(self, *leaves: Any) -> Packed:
        if self._nesting is None and (result := self._known.forward(leaves)):
            return pack(result[0])
        args, kwargs = self._arguments(leaves)
        return pack(self._net.forward(self._params, *args, **kwargs))

    def pullback(self, *leaves: Any) -> tuple[Packed, Back]:
        if self._nesting is None:
            known, row = self._known.way(leaves)
            if known is not None and known.back is not None and not known.draws:
                made = known.made(row)
                if made is not None:
                    return plain(made[0]), self._straight(known, leaves, row, made)
        state = random_state()
        kept: RecordedPullback | None
        output, kept, *aux = self._recorded(*self._arguments(leaves))
        outputs = len(flatten_tree(output)[0]) if aux else None

        def back(
            params: Flags, inputs: bool, last: bool, *cotangents: Tensor | None
        ) -> tuple[Any, ...]:
            nonlocal kept
            if outputs is not None and any(c is not None for c in cotangents[outputs:]):
                raise TypeError(
                    "the new buffers of a net have no derivative; give nothing for "
                    "their cotangents"
                )
            pullback = kept or self._replay(state, leaves)
            kept = None if last else pullback
            return self._gradients(pullback, params, inputs, cotangents[:outputs])

        return pack((output, *aux) if aux else output), back

    def _straight(
        self,
        known: CachedVJP,
        leaves: tuple[Any, ...],
        row: list[Tensor],
        made: list[Tensor],
    ) -> Back:
        """Return the pullback for a known call of one output, which has made this."""
        behind_last.value = known.retained_bytes
        kept: list[Tensor] | None = made

        def back(
            params: Flags, inputs: bool, last: bool, cotangent: Tensor | None
        ) -> tuple[Any, ...]:
            nonlocal kept
            made = kept or known.made(row)
            kept = None if last else made
            if made is None:
                pullback = self._replay(None, leaves)
                return self._gradients(pullback, params, inputs, (cotangent,))
            if (
                isinstance(params, bool)
                and cotangent is not None
                and (params or inputs)
            ):
                requested = (params,) * (len(row) - len(leaves)) + (inputs,) * len(
                    leaves
                )
                saved = made[known.count :]
                results = iter(run(known.part(requested), [*saved, cotangent]))
                return tuple(
                    plain(next(results)) if flag else None for flag in requested
                )
            pullback = known.recorded(row, made)
            return self._gradients(pullback, params, inputs, (cotangent,))

        return back

    def _gradients(
        self,
        pullback: RecordedPullback,
        params: Flags,
        inputs: bool,
        cotangents: tuple[Tensor | None, ...],
    ) -> tuple[Any, ...]:
        grads = pullback._in_a_row(cotangents, params, inputs)
        if self._nesting is not None:
            count = len(grads) - self._nesting.count
            grads[count:] = self._nesting.in_a_row(grads[count:])
        if self._whole:
            grads = self._filled(grads)
        return tuple(map(plain, grads))

    def _filled(self, grads: list[Tensor | None]) -> list[Tensor | None]:
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
        behind_last.value = self._meter.of(result[1], allocated() - before)
        return result
