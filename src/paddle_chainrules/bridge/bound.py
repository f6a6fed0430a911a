"""Nets at parameters that Julia shares, by the graph that Paddle records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle import Tensor

from ..nets.net import Net
from ..nets.params import Params
from ..nets.pullback import RecordedPullback
from ..nets.selection import Flags
from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.random_state import drawing_from, random_state
from ..transforms.jvp import jvp
from ..transforms.tree import flatten_tree
from .nesting import Nesting
from .packing import Back, Packed, pack, plain
from .retained_bytes import Meter, allocated, behind_last


class Bound:
    """A net at parameters that Julia shares.

    ``forward(*inputs)`` is the value, ``pullback(*inputs)`` the value and the way back.
    """

    forward: Callable[..., Packed]
    pullback: Callable[..., tuple[Packed, Back]]


class Recorded(Bound):
    """Any net, by the graph that Paddle records."""

    def __init__(
        self, net: Net, params: Params, meter: Meter, nesting: Nesting | None = None
    ) -> None:
        self._net = net
        self._params = params
        self._meter = meter
        self._nesting = nesting

    def forward(self, *leaves: Any) -> Packed:
        args, kwargs = self._arguments(leaves)
        return pack(self._net.forward(self._params, *args, **kwargs))

    def pullback(self, *leaves: Any) -> tuple[Packed, Back]:
        state = random_state()
        args, kwargs = self._arguments(leaves)
        kept: RecordedPullback | None
        output, kept, *aux = self._recorded(args, kwargs)
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
            grads = pullback.leaves(cotangents[:outputs], params, inputs)
            if self._nesting is not None:
                count = len(grads) - self._nesting.count
                grads[count:] = self._nesting.in_a_row(grads[count:])
            return tuple(map(plain, grads))

        return pack((output, *aux) if aux else output), back

    def _arguments(
        self, leaves: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (
            (leaves, {}) if self._nesting is None else self._nesting.arguments(leaves)
        )

    def _replay(self, state: Any, leaves: tuple[Any, ...]) -> RecordedPullback:
        """The pullback once more, with the random numbers of the first time."""
        args, kwargs = self._arguments(leaves)
        pullback: RecordedPullback
        with drawing_from(state):
            _, pullback, *_ = self._recorded(args, kwargs)
        return pullback

    def _recorded(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        before = allocated()
        found = self._net.recorded(self._params, args, kwargs)
        behind_last.value = self._meter.of(found[1], allocated() - before)
        return found


class Pushforward(Bound):
    """Value and derivative of any net along tangents of its input and parameters."""

    def __init__(
        self,
        net: Net,
        params: Callable[[tuple[Tensor, ...]], Params],
        tensors: tuple[Tensor, ...],
    ) -> None:
        self._net = net
        self._nested = params
        self._params = params(tensors)

    def forward(self, x: Tensor, tangent: Tensor, *tangents: Tensor) -> Packed:
        y, slope = jvp(
            self._net.forward,
            (self._params, x),
            (self._nested(tangents), tangent if is_differentiable(x) else None),
        )
        return pack((y, slope))

    def pullback(self, *args: Any) -> tuple[Packed, Back]:
        """There is none: forward rules are not differentiated again."""
        raise NotImplementedError(
            "a forward rule can't be differentiated in reverse; take "
            "jvp(net, x, ps, v), which can"
        )
