"""The one module that Julia calls: a handle per net, one call per crossing.

Julia hands over tensors on its own memory and takes tensors back. The layout law makes
that safe: a Julia array of size ``(d, n)`` and the tensor of shape ``[n, d]`` are the
same bytes, so shapes are reversed and nothing is permuted. What Julia lends must stay
alive in Julia until the call returns, and for as long as a pullback made from it.

Arguments are checked on the Julia side, in Julia's terms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import paddle
from paddle import Tensor

from ..programs import second_order as carried
from ..programs.activations import ACTIVATIONS, Activation
from ..transforms.vjp import flatten_tree
from ..programs.second_order import CARRIED_ORDER, Plan, laplacian_plan, plan_of
from ..nets.chain import Chain
from ..programs.closed_form import Weights, weights_of
from ..transforms.conduct import Conduct
from ..programs.activation_derivatives import Derivatives
from ..nets.derived import VJP, Derivative, What
from ..nets.fcnet import FCNet
from ..nets.files import load_params, save_params
from .retained_bytes import STEP_BYTES, Meter, allocated, closed_form_bytes, samples
from ..transforms.jvp import jvp
from ..nets.net import Net, RecordedPullback
from ..nets.params import Params
from ..paddle_side.random_state import drawing_from, random_state
from ..transforms.recording import is_differentiable, record
from ..nets.stateless import RESERVED, StatelessLayer, stateless
from ..nets.derivatives import along, derivatives_of, partial_derivatives
from .julia_lock import start_turns as start_turns
from ..nets.selection import selected

Packed = Any
"""An output for Julia: a tensor, or ``(structure, leaf, ...)`` for anything else, where
the structure has None for each leaf, and leaves may be no tensors."""

Flags = bool | tuple[bool, ...]
"""For all parameters, or for each."""

Back = Callable[..., tuple[Any, ...]]
"""``back(params, args, last, cotangent or None, ...)``, one cotangent per output leaf:
gradients of the parameters in order (one for theta) and of the inputs, None where there
is none or where the flags ``params`` and the Boolean ``args`` do not ask for it. With
``last`` what is kept for the way back is let go of; a later call makes it anew."""

_held = ctypes.c_int64(0)


def held_address() -> str:
    """Where the bytes behind the pullback made last stand, for Julia to read."""
    return str(ctypes.addressof(_held))


class Handle:
    """A net as Julia holds it: what it needs to know, and its entry points."""

    def __init__(self, net: Net, label: str, features: int = 0) -> None:
        self.net = net
        self.label = label
        self.features = features
        self.meter = Meter()
        self.activation = "" if net.chain is None else net.chain.activation
        self.names = net.spec.names
        self.shapes = net.spec.shapes
        self.dtypes = net.spec.dtypes

    @property
    def facts(self) -> str:
        """All of that as one string, which costs Julia no conversion to compile.

        Label, features, activation of a chain or nothing, then name, dtype and shape of
        each parameter, with U+001F between.
        """
        facts = [self.label, str(self.features), self.activation]
        for name, dtype, shape in zip(
            self.names, self.dtypes, self.shapes, strict=True
        ):
            facts += [name, dtype, ",".join(map(str, shape))]
        return "\x1f".join(facts)

    def bind(self, flat: bool, tensors: tuple[Tensor, ...]) -> Bound:
        """The net at parameters: theta if flat, else one tensor each.

        The tensors are kept, not copied: a change in their memory is seen.
        """
        if self.net.chain is not None:
            return Closed(self.net.chain, self._weights(flat, tensors))
        return Recorded(self.net, self._params(flat, tensors), self.meter)

    def bind_and(self, entry: str, flat: bool, *tensors: Tensor) -> tuple[Any, ...]:
        """``(forward, pullback, result of the one named entry)`` in one crossing."""
        count = 1 if flat else len(self.names)
        bound = self.bind(flat, tensors[:count])
        result = getattr(bound, entry)(*tensors[count:])
        return bound.forward, bound.pullback, result

    def init(self, seed: int) -> tuple[Tensor, ...] | None:
        """Fresh parameters, for a net that draws its own."""
        if isinstance(self.net, FCNet):
            return tuple(self.net.init(seed).values())
        return None

    def operator(self, what: What) -> Operator:
        """A handle of a derivative of this net.

        ``"laplacian"``, multi-indices, ``"jvp"`` with the direction as second input, or
        ``"pushforward"`` with the tangents of input and parameters as further inputs
        and value and derivative as the result.
        """
        return Operator(self, what)

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Called:
        """A handle of this net with nested arguments, whose leaves come in a row.

        Both are nested as the arguments are, with the positions of their leaves.
        """
        return Called(self, Nesting(args, kwargs))

    def vjp(self) -> Handle:
        """A handle of the gradients of this net: :class:`VJP`."""
        return Handle(VJP(self.net), f"vjp of {self.label}")

    def in_mode(self, training: bool) -> Handle:
        """A handle of this net in training or evaluation mode."""
        net = self.net
        if not isinstance(net, StatelessLayer) or net.training == training:
            return self
        return of_layer(net.in_mode(training), self.label)

    def save(self, path: str, flat: bool, *tensors: Tensor) -> None:
        """Write parameters to a file: :func:`save_params`."""
        save_params(path, self.net.spec.as_dict(self._params(flat, tensors)))

    def load(self, path: str) -> tuple[Tensor, ...]:
        """Read parameters from a file: :func:`load_params`."""
        return tuple(load_params(path, self.net).values())

    def state(self) -> tuple[str, tuple[Tensor, ...], bool] | None:
        """Names of the buffers, with U+001F between, copies of them, and the mode.

        None for a net that is no layer.
        """
        if not isinstance(self.net, StatelessLayer):
            return None
        held = self.net.buffers
        copies = tuple(value.clone() for value in held.values())
        return "\x1f".join(held), copies, self.net.training

    def _params(self, flat: bool, tensors: tuple[Tensor, ...]) -> Params:
        """What the net takes: theta, or a dict."""
        return tensors[0] if flat else self.net.spec.named(tensors)

    def _weights(self, flat: bool, tensors: tuple[Tensor, ...]) -> Weights:
        """The same in pairs, as views within theta."""
        if not flat:
            return weights_of(tensors)
        views, start = [], 0
        for shape, size in zip(self.shapes, self.net.spec.sizes, strict=True):
            views.append(tensors[0][start : start + size].reshape(shape))
            start += size
        return weights_of(views)


class Called(Handle):
    """A net whose arguments are nested, which Julia holds as a net of its own."""

    def __init__(self, of: Handle, nesting: Nesting) -> None:
        super().__init__(of.net, of.label)
        self.activation = ""  # not in closed form
        self.nesting = nesting

    def bind(self, flat: bool, tensors: tuple[Tensor, ...]) -> Bound:
        params = self._params(flat, tensors)
        return Recorded(self.net, params, self.meter, self.nesting)


class Operator(Handle):
    """A derivative of a net, which Julia holds as a net of its own."""

    def __init__(self, of: Handle, what: What) -> None:
        features = 0 if what in ("jvp", "pushforward") else of.features
        super().__init__(of.net, f"{what} of {of.label}", features)
        self.what = what

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Called:
        raise TypeError(
            "derivatives by the input are those of one array; give x alone, not nested "
            "and without keyword arguments"
        )

    def vjp(self) -> Handle:
        return Handle(VJP(Derivative(self.net, self.what)), f"vjp of {self.label}")

    def bind(self, flat: bool, tensors: tuple[Tensor, ...]) -> Bound:
        if self.what == "pushforward":
            return Pushforward(self.net, partial(self._params, flat), tensors)
        derivatives = derivatives_of(self.net)
        weights = self._weights(flat, tensors)
        if self.what == "laplacian":
            return Carried(laplacian_plan(weights[0][0].shape[0]), derivatives, weights)
        if self.what == "jvp":
            return Formula(
                lambda w, x, v: [along(derivatives, w, x, v)], weights, self.meter
            )
        several = isinstance(self.what[0], tuple)
        indices: Any = self.what if several else (self.what,)
        if max(map(sum, indices)) <= CARRIED_ORDER:
            return Carried(plan_of(indices), derivatives, weights, several)
        return Formula(
            lambda w, x: partial_derivatives(derivatives, w, x, indices),
            weights,
            self.meter,
            several,
        )


class Bound:
    """A net at parameters that Julia shares."""

    def forward(self, *args: Tensor) -> Packed:
        """The value."""
        raise NotImplementedError

    def pullback(self, *args: Tensor) -> tuple[Packed, Back]:
        """The value, and the way back."""
        raise NotImplementedError


class Nesting:
    """From leaves in a row to arguments and keyword arguments, and back."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._order, self._spec = flatten_tree((args, kwargs))
        differentiated = {n: v for n, v in kwargs.items() if n not in RESERVED}
        self._back, _ = flatten_tree((args, differentiated))

    @property
    def count(self) -> int:
        """Of the leaves that have gradients."""
        return len(self._back)

    def arguments(
        self, leaves: Sequence[Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tree: Any = self._spec.unflatten([leaves[i] for i in self._order])
        args, kwargs = tree
        return args, kwargs

    def in_a_row(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of the arguments' leaves, None for buffers and seed."""
        row: list[Tensor | None] = [None] * len(self._order)
        for i, grad in zip(self._back, grads, strict=True):
            row[i] = grad
        return row


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
        return _pack(self._net.forward(self._params, *args, **kwargs))

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
                raise TypeError("the new buffers of a net have no derivative")
            pullback = kept or self._replay(state, leaves)
            kept = None if last else pullback
            grads = pullback.leaves(cotangents[:outputs], params, inputs)
            if self._nesting is not None:
                count = len(grads) - self._nesting.count
                grads[count:] = self._nesting.in_a_row(grads[count:])
            return tuple(map(_plain, grads))

        return _pack((output, *aux) if aux else output), back

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
        _held.value = self._meter.of(found[1], allocated() - before)
        return found


class Closed(Bound):
    """A chain of affine maps, in closed form.

    What is kept for the way back is the function itself: Julia lets go of it.
    """

    def __init__(self, chain: Chain, weights: Weights) -> None:
        self._chain = chain
        self._weights = weights
        self._row_bytes, self._bytes = closed_form_bytes(weights)

    def forward(self, x: Tensor) -> Packed:
        return self._chain.value(self._weights, x)

    def pullback(self, x: Tensor) -> tuple[Packed, Back]:
        y, pullback = self._chain.pullback(self._weights, x, None)
        count = 2 * len(self._weights)
        _held.value = self._bytes + self._row_bytes * samples(x)

        def back(
            params: Flags, inputs: bool, last: bool, cotangent: Tensor | None
        ) -> tuple[Any, ...]:
            if cotangent is None:
                return (None,) * (count + 1)
            flags = params if isinstance(params, tuple) else (params,) * count
            grads, x_bar = pullback.reverse(cotangent, flags, inputs)
            return (*grads, x_bar)

        return y, back


class Carried(Bound):
    """Derivatives of a chain up to the second order, in closed form."""

    def __init__(
        self,
        plan: Plan,
        derivatives: Derivatives,
        weights: Weights,
        several: bool = False,
    ) -> None:
        self._several = several
        self._plan = plan
        self._derivatives = derivatives
        self._weights = weights

    def forward(self, x: Tensor) -> Packed:
        found = carried.value(self._plan, self._derivatives, self._weights, x)
        return _one_or_all(found, self._several)

    def pullback(self, x: Tensor) -> tuple[Packed, Back]:
        before = allocated()
        found, reverse = carried.pullback(
            self._plan, self._derivatives, self._weights, x
        )
        _held.value = STEP_BYTES * len(self._weights) + allocated() - before
        nothing = (None,) * (2 * len(self._weights))
        *_, (_, last_bias) = self._weights

        def back(
            params: Flags, inputs: bool, last: bool, *cotangents: Tensor | None
        ) -> tuple[Any, ...]:
            if all(cotangent is None for cotangent in cotangents):
                return (*nothing, None)
            asked = any(params) if isinstance(params, tuple) else params
            grads, x_bar = reverse(cotangents, asked, inputs)
            if grads is None:
                return (*nothing, x_bar)
            *rest, bias_bar = grads
            return (
                *rest,
                paddle.zeros_like(last_bias) if bias_bar is None else bias_bar,
                x_bar,
            )

        return _one_or_all(found, self._several), back


class Formula(Bound):
    """Derivatives of a chain by a formula, differentiated by the graph it records."""

    def __init__(
        self,
        formula: Callable[..., list[Tensor]],
        weights: Weights,
        meter: Meter,
        several: bool = False,
    ) -> None:
        self._several = several
        self._formula = formula
        self._weights = weights
        self._meter = meter

    def forward(self, *args: Tensor) -> Packed:
        return _one_or_all(self._formula(self._weights, *args), self._several)

    def pullback(self, *args: Tensor) -> tuple[Packed, Back]:
        values = [*chain.from_iterable(self._weights)]
        count = len(values)

        def formula(leaves: list[Tensor]) -> list[Tensor]:
            return self._formula(weights_of(leaves[:count]), *leaves[count:])

        leaves = [*values, *args]
        before = allocated()
        found, recording = record(formula, leaves, Conduct(writes=False, reaches=False))
        _held.value = self._meter.of(recording, allocated() - before)

        def back(
            params: Flags, inputs: bool, last: bool, *cotangents: Tensor | None
        ) -> tuple[Any, ...]:
            if all(cotangent is None for cotangent in cotangents):
                return (None,) * len(leaves)
            flags = params if isinstance(params, tuple) else (params,) * count
            asked = [i for i, flag in enumerate(flags) if flag]
            asked += range(count, len(leaves) if inputs else count)
            grads = recording.gradients(cotangents, asked)
            return tuple(
                paddle.zeros_like(leaf) if grad is None and i in asked else _plain(grad)
                for i, (leaf, grad) in enumerate(zip(leaves, grads, strict=True))
            )

        return _one_or_all(found, self._several), back


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
        return _pack((y, slope))


def chosen(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[bool, ...]:
    """Which names are meant by names and patterns."""
    found = {n for pattern in patterns for n in selected(pattern, names, "freeze")}
    return tuple(name in found for name in names)


def activations() -> str:
    """Names of the built-in activations, with commas between."""
    return ",".join(sorted(ACTIVATIONS))


def fcnet(
    sizes: tuple[int, ...], activation: str | Activation, dtype: str, seed: int
) -> tuple[Handle, tuple[Tensor, ...]]:
    """A handle of an :class:`FCNet`, and its initial parameters."""
    net = FCNet(sizes, activation, dtype)
    name = activation if isinstance(activation, str) else "custom activation"
    widths = " => ".join(str(n) for n in net.sizes)
    handle = Handle(net, f"FCNet({widths}, {name}, {dtype})", net.sizes[0])
    return handle, tuple(net.init(seed).values())


def layer(
    module: paddle.nn.Layer, frozen: tuple[str, ...] = ()
) -> tuple[Handle, tuple[Tensor, ...]]:
    """A handle of any layer, and copies of its parameters but the frozen ones."""
    net, params, _ = stateless(module, frozen)
    return of_layer(net, type(module).__name__), tuple(params.values())


def of_layer(net: StatelessLayer, label: str) -> Handle:
    """A handle of a stateless layer."""
    features = 0 if net.chain is None else net.spec.shapes[0][0]
    return Handle(net, label, features)


def _one_or_all(found: list[Tensor], several: bool) -> Packed:
    return _pack(tuple(found)) if several else _plain(found[0])


def _pack(output: Any) -> Packed:
    if isinstance(output, Tensor):
        return _plain(output)
    leaves, spec = flatten_tree(output)
    packed = (_plain(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    return (spec.unflatten([None] * len(leaves)), *packed)


def _plain(tensor: Tensor | None) -> Tensor | None:
    """Off the graph and contiguous, as Julia reads it."""
    if tensor is None:
        return None
    if not tensor.stop_gradient:
        tensor = tensor.detach()
    return tensor if tensor.is_contiguous() else tensor.contiguous()
