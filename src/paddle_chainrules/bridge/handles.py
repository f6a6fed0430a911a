"""Nets as Julia holds them: a handle per net, one call per crossing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ..nets.activations import ACTIVATIONS, Activation
from ..nets.calls.wrt import Flags, select_names
from ..nets.derivatives.derived import Derivative, What
from ..nets.derivatives.per_sample import SampleJacobian, SampleVJP
from ..nets.derivatives.vjp_jvp_nets import JVP, VJP
from ..nets.fcnet import FCNet
from ..nets.files import load_params, save_params
from ..nets.layers.of_layer import stateless
from ..nets.layers.stateless import StatelessLayer
from ..nets.lowering import lower_call
from ..nets.nesting import Nesting
from ..nets.net import Net
from ..nets.parameters.params import Params
from ..paddle_side.dtypes import dtype_name
from ..transforms.containers.tree import flatten_tree
from .bound import BoundNet
from .code import CompiledCall, code
from .retained_bytes import RetainedBytesMeter


class Handle:
    """A net as Julia holds it: what it needs to know, and its entry points."""

    nesting: Nesting | None = None
    """Nesting of arguments that come in a row; by position if None."""

    def __init__(self, net: Net, label: str, features: int = 0) -> None:
        self.net = net
        self.label = label
        self.features = features
        self.meter = RetainedBytesMeter()
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

    @property
    def runs(self) -> str:
        """A sentence that says how its calls run; empty if there is no layer."""
        return self.net.describe().runs

    @property
    def several(self) -> bool:
        """True for a layer whose ``forward`` needs several arguments."""
        return isinstance(self.net, StatelessLayer) and self.net.needs_several

    def bind(self, flat: bool, tensors: tuple[Tensor, ...]) -> BoundNet:
        """Return the net at parameters: theta if flat, else one tensor each.

        The tensors are kept, not copied: a change in their memory is seen.
        """
        params, has_views = self._with_views(flat, tensors)
        return BoundNet(self.net, params, self.meter, self.nesting, has_views)

    def bind_and(self, entry: str, flat: bool, *tensors: Tensor) -> tuple[Any, ...]:
        """Return ``(forward, pullback, result of the one named entry)`` in one call."""
        count = 1 if flat else len(self.names)
        bound = self.bind(flat, tensors[:count])
        result = getattr(bound, entry)(*tensors[count:])
        return bound.forward, bound.pullback, result

    def code(self, kind: str, flat: bool, *tensors: Any) -> CompiledCall:
        """Return the code of the ``"value"`` or ``"way"`` of calls like this one."""
        count = 1 if flat else len(self.names)
        params, _ = self._with_views(flat, tensors[:count])
        return code(self.net, kind == "way", params, tensors[count:], self.arguments)

    def traced(self, flat: bool, *args_in_order: Any) -> Any:
        """Call the net as part of what is being recorded.

        Returns:
            A tensor, or the structure with None for each leaf, and all leaves.
        """
        count = 1 if flat else len(self.names)
        args, kwargs = self.arguments(args_in_order[count:])
        output = self.net.forward(
            self._params(flat, args_in_order[:count]), *args, **kwargs
        )
        if isinstance(output, Tensor):
            return output
        leaves, spec = flatten_tree(output)
        return spec.unflatten([None] * len(leaves)), leaves

    def init(self, seed: int) -> tuple[Tensor, ...] | None:
        """Return fresh parameters, for a net that draws its own."""
        if isinstance(self.net, FCNet):
            return tuple(self.net.init(seed).values())
        return None

    def operator(self, what: What, names: tuple[str, ...] = ()) -> Handle:
        """Return a handle of a derivative by the input: :class:`Derivative`."""
        net = Derivative(self.net, what, names)
        return Handle(net, f"{what} of {self.label}", self.features)

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Called:
        """Return a handle of this net whose nested arguments come in a row."""
        return Called(self, Nesting(args, kwargs))

    def vjp(self, count: int, params: Flags, inputs: bool) -> Handle:
        """Return a handle of the gradients at ``count`` leaves: :class:`VJP`."""
        net = VJP(self.net, count, self.nesting, params, inputs)
        return Handle(net, f"vjp of {self.label}")

    def jvp(self, count: int, moved: tuple[bool, ...], theta: bool) -> Handle:
        """Return a handle of derivatives along directions: :class:`JVP`."""
        net = JVP(self.net, count, self.nesting, moved, theta)
        return Handle(net, f"jvp of {self.label}")

    def per_sample(self, what: str, many: tuple[bool, ...]) -> Handle:
        """Return a handle of the ``"vjp"`` or ``"jacobian"`` of each sample."""
        kind = {"vjp": SampleVJP, "jacobian": SampleJacobian}[what]
        net = kind(self.net, len(many), self.nesting, many)
        return Handle(net, f"{what} of each sample of {self.label}")

    def in_mode(self, training: bool, whole: bool = False) -> Handle:
        """Return a handle of this net in training or evaluation mode.

        One that is in that mode stays as it is, with layers of it that are in the other
        one, unless the whole net is asked for.
        """
        net = self.net
        if not isinstance(net, StatelessLayer):
            return self
        if net.training == training and not whole:
            return self
        result = net.in_mode(training)
        return self if result is net else of_layer(result, self.label)

    def in_dtype(self, dtype: str) -> Handle:
        """Return a handle of this net for parameters of another floating dtype."""
        net = self.net.in_dtype(dtype)
        if isinstance(net, FCNet):
            return of_fcnet(net)
        return Handle(net, self.label, self.features)

    def buffers(self) -> tuple[str, tuple[Tensor, ...]]:
        """Return names of Julia's buffers, with U+001F between, and the buffers."""
        results = buffers_for_julia(self.net)
        return "\x1f".join(results), tuple(results.values())

    def share_buffers(self, *tensors: Tensor) -> None:
        """Have the net read these tensors, in place of those of :meth:`buffers`."""
        assert isinstance(self.net, StatelessLayer)
        names = buffers_for_julia(self.net)
        self.net.share_buffers(dict(zip(names, tensors, strict=True)))

    def with_buffers(self, dtype: str | None, *tensors: Tensor) -> Handle:
        """Return a handle of a net that reads these tensors, and is in this dtype."""
        assert isinstance(self.net, StatelessLayer)
        names = buffers_for_julia(self.net)
        net = copy.deepcopy(self.net)
        net.share_buffers(dict(zip(names, tensors, strict=True)))
        return of_layer(net if dtype is None else net.in_dtype(dtype), self.label)

    def save(self, path: str, flat: bool, *tensors: Tensor) -> None:
        """Write parameters to a file: :func:`save_params`."""
        save_params(path, self.net.spec.as_dict(self._params(flat, tensors)))

    def load(self, path: str) -> tuple[Tensor, ...]:
        """Read parameters from a file: :func:`load_params`."""
        return tuple(load_params(path, self.net).values())

    def lower(self, count: int, *args_in_order: Any) -> tuple[Any, ...]:
        """Return the net's call in Julia, at so many parameters and then arguments.

        Returns:
            Texts of the value, of the forward and the backward pass, the number of
            samples that there must be, a reason, and the constants of each:
            :class:`Lowered`.
        """
        params = self.net.spec.named(args_in_order[:count])
        result = lower_call(self.net, params, args_in_order[count:], self.arguments)
        functions = result.value, result.forward, result.backward
        texts = (function.text if function else "" for function in functions)
        constants = (function.constants if function else () for function in functions)
        return (*texts, result.samples, result.why, *constants)

    def arguments(
        self, leaves: Sequence[Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments and keyword arguments, of leaves in a row."""
        return (
            (tuple(leaves), {})
            if self.nesting is None
            else self.nesting.arguments(leaves)
        )

    def state(self) -> tuple[str, tuple[Tensor, ...], bool] | None:
        """Return names of buffers, with U+001F between, copies, and the mode."""
        if not isinstance(self.net, StatelessLayer):
            return None
        buffers = self.net.buffers
        copies = tuple(value.clone() for value in buffers.values())
        return "\x1f".join(buffers), copies, self.net.training

    def _params(self, flat: bool, tensors: tuple[Tensor, ...]) -> Params:
        """Return the net's parameters: theta, or a dict."""
        return tensors[0] if flat else self.net.spec.named(tensors)

    def _with_views(
        self, flat: bool, tensors: tuple[Tensor, ...]
    ) -> tuple[Params, bool]:
        """Return parameters, as views of theta where possible, and whether they are.

        One parameter alone would have another shape than theta's gradient.
        """
        if not flat or len(self.names) < 2:
            return self._params(flat, tensors), False
        return self.net.spec.named(self._views(tensors[0])), True

    def _views(self, theta: Tensor) -> list[Tensor]:
        """Return the parameters within theta."""
        views, start = [], 0
        for shape, size in zip(self.shapes, self.net.spec.sizes, strict=True):
            views.append(theta[start : start + size].reshape(shape))
            start += size
        return views


class Called(Handle):
    """A net whose arguments are nested, which Julia holds as a net of its own."""

    def __init__(self, handle: Handle, nesting: Nesting) -> None:
        super().__init__(handle.net, handle.label)
        self.activation = ""  # Julia derives from one array alone
        self.nesting = nesting
        self._of = handle

    def in_dtype(self, dtype: str) -> Called:
        assert self.nesting is not None
        return Called(self._of.in_dtype(dtype), self.nesting)


def save_arrays(path: str, names: str, *tensors: Tensor) -> None:
    """Write tensors by names, with U+001F between: :func:`save_params`."""
    save_params(path, dict(zip(names.split("\x1f"), tensors, strict=True)))


def chosen(names: tuple[str, ...], patterns: tuple[str, ...]) -> tuple[bool, ...]:
    """Return the names that names and patterns select."""
    selected_names = {
        n for pattern in patterns for n in select_names(pattern, names, "freeze")
    }
    return tuple(name in selected_names for name in names)


def activations() -> str:
    """Return names of the built-in activations, with commas between."""
    return ",".join(sorted(ACTIVATIONS))


def fcnet(
    sizes: tuple[int, ...], activation: str | Activation, dtype: str, seed: int
) -> tuple[Handle, tuple[Tensor, ...]]:
    """Return a handle of an :class:`FCNet`, and its initial parameters."""
    net = FCNet(sizes, activation, dtype)
    return of_fcnet(net), tuple(net.init(seed).values())


def of_fcnet(net: FCNet) -> Handle:
    """Return a handle of a fully connected net."""
    is_builtin = isinstance(net.activation, str)
    name = net.activation if is_builtin else "custom activation"
    widths = " => ".join(str(n) for n in net.sizes)
    return Handle(net, f"FCNet({widths}, {name}, {net.dtype})", net.sizes[0])


def layer(
    module: paddle.nn.Layer, frozen: tuple[str, ...] = (), jit: bool | None = None
) -> tuple[Handle, tuple[Tensor, ...]]:
    """Return a handle of any layer, and copies of its parameters but the frozen."""
    net, params, _ = stateless(module, frozen, jit)
    return of_layer(net, type(module).__name__), tuple(params.values())


def of_layer(net: StatelessLayer, label: str) -> Handle:
    """Return a handle of a stateless layer; Julia's docs have told of its buffers."""
    net.expects_moving()
    features = 0 if net.chain is None else net.spec.shapes[0][0]
    return Handle(net, label, features)


JULIAS = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128"}
    | {"float16", "float32", "float64"}
)
"""Dtypes that arrays of Julia have too."""


def buffers_for_julia(net: Net) -> dict[str, Tensor]:
    """Return a layer's buffers that arrays of Julia can stand for."""
    buffers = net.buffers if isinstance(net, StatelessLayer) else {}
    return {n: b for n, b in buffers.items() if dtype_name(b.dtype) in JULIAS}
