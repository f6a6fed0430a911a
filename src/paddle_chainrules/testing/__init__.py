"""Comparisons for tests, of this package's and of your own layers.

Gradients are compared element by element, with random cotangents: a transposed or
permuted one does not pass.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
from paddle import Tensor, nn

from ..transforms.vjp import Tree, flatten_tree
from ..nets.description import aligned
from ..paddle_side.engine import gradients
from ..nets.fcnet import FCNet
from ..nets.net import Net
from ..paddle_side.rules.operators import Watch
from ..nets.params import Params
from ..paddle_side.random_state import drawing_from
from ..transforms.recording import is_differentiable
from ..nets.stateless import stateless

TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-10}
"""Of errors relative to the largest entry, by the dtype of what is compared."""

LEAST = 1e-2
"""The least that counts as the largest entry, as a part of that of all tensors: one
that is nothing but rounding, such as a bias before BatchNorm has, is no error."""

DIFFERENCES = 1e-5
"""The same of central differences in float64: where activations have kinks, some of
them lie between the two points."""

STEP = 1e-6
"""Of these differences, along a direction of length 1."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor against one oracle."""

    device: str
    dtype: str
    oracle: str
    tensor: str
    shape: tuple[int, ...]
    error: float
    """The largest difference, relative to the largest entry of the oracle's."""
    where: tuple[int, ...] | None
    """The index of that entry; None where a whole tensor was compared at once."""
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the error is small enough; one that is no number is not."""
        return self.error <= self.tolerance


@dataclasses.dataclass(frozen=True)
class Report:
    """What was compared; printed it is a table."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether all of it agrees."""
        return all(row.ok for row in self.rows)

    @property
    def worst(self) -> Row:
        """The row whose error is largest for its tolerance."""
        return max(self.rows, key=lambda row: row.error / row.tolerance)

    def __str__(self) -> str:
        head = ("device", "dtype", "oracle", "tensor", "shape", "error", "where", "")
        lines = [head]
        for row in self.rows:
            shape, where = list(row.shape), "" if row.where is None else list(row.where)
            error = f"{row.error:.1e}"
            mark = "" if row.ok else f"more than {row.tolerance:.0e}"
            about = (row.device, row.dtype, row.oracle, row.tensor)
            lines.append((*about, str(shape), error, str(where), mark))
        return aligned(lines)


def check_vjp(
    net: Net | nn.Layer,
    params: Params | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    layer: nn.Layer | None = None,
    dtypes: Sequence[str] = ("float32", "float64"),
    devices: Sequence[str] | None = None,
    seed: int = 0,
) -> Report:
    """Compare a net's output and gradients with three oracles, element by element.

    - ``native``: the untouched layer, called and differentiated by ``paddle.grad``;
      for an :class:`FCNet` its formula on public functions;
    - ``float64``: the same computed in float64, against gradients in lower precision;
    - ``differences``: central differences in float64, along a random direction of each
      tensor.

    Random layers (dropout) draw the same numbers every time. The layer, its gradients
    and Paddle's random state are left as they were.

    Args:
        net: an FCNet, what ``stateless(layer)`` gave, or a layer itself.
        params: dict or theta of the net; None for the layer's own.
        args: the positional arguments; floating tensors are converted to each dtype.
        kwargs: keyword arguments, which are differentiated too.
        layer: the layer that a net is of; needed for any net but an FCNet.
        dtypes: to run in.
        devices: such as ``"cpu"`` and ``"gpu:0"``; the CPU, and a GPU where Paddle has
            one, when None.
        seed: of the cotangents and directions.

    Returns:
        One row for each tensor and oracle.

    Raises:
        AssertionError: they differ; the message is the table.
        TypeError: a net without its layer.

    Example:
        >>> import paddle
        >>> from paddle_chainrules.testing import check_vjp
        >>> report = check_vjp(paddle.nn.Linear(3, 2), None, (paddle.ones([4, 3]),))
        >>> report.ok
        True
    """
    if isinstance(net, nn.Layer):
        net, layer = stateless(net)[0], net
    if layer is None and not isinstance(net, FCNet):
        raise TypeError(
            f"to compare {net!r} with native Paddle its layer is needed too; give "
            "layer=, or the layer in place of the net"
        )
    if isinstance(params, Tensor):
        params = net.unflatten(params)
    rows = []
    for device in devices if devices is not None else _devices():
        reference = _Side(net, params, args, kwargs or {}, layer, "float64", device)
        for dtype in dtypes:
            side = _Side(net, params, args, kwargs or {}, layer, dtype, device)
            rows += list(_rows(side, reference, seed))
    return _passed(Report(tuple(rows)))


def compare(
    a: Callable[..., Tree],
    b: Callable[..., Tree],
    args: tuple[Any, ...],
    *,
    tolerance: float | None = None,
    devices: Sequence[str] | None = None,
) -> Report:
    """Run two implementations on the same input, and compare what they return.

    Args:
        a: function or layer.
        b: another one, the reference.
        args: what both are called with; tensors are moved to each device.
        tolerance: of errors relative to the largest entry; by dtype when None.
        devices: as for :func:`check_vjp`.

    Returns:
        One row for each tensor that is returned.

    Raises:
        AssertionError: they differ, in structure, shape, dtype or value.

    Example:
        >>> import paddle
        >>> from paddle_chainrules.testing import compare
        >>> compare(paddle.nn.functional.silu, lambda x: x * paddle.nn.functional
        ...     .sigmoid(x), (paddle.linspace(-3, 3, 7),)).ok
        True
    """
    rows = []
    for device in devices if devices is not None else _devices():
        moved = [_moved(arg, device) for arg in args]
        with drawing_from(0):
            found, structure = flatten_tree(a(*moved))
        with drawing_from(0):
            expected, other = flatten_tree(b(*moved))
        assert structure == other, f"nested as {structure} and as {other}"
        for i, (one, two) in enumerate(zip(found, expected, strict=True)):
            if not isinstance(two, Tensor):
                assert one == two, f"output {i} is {one!r} and {two!r}"
                continue
            dtype = str(two.dtype).removeprefix("paddle.")
            assert one.dtype == two.dtype, f"output {i} is {one.dtype}, {two.dtype}"
            allowed = TOLERANCES.get(dtype, 0.0) if tolerance is None else tolerance
            pair = _array(one), _array(two)
            rows.append(_row(device, dtype, "other", f"output {i}", *pair, allowed))
    return _passed(Report(tuple(rows)))


def _passed(report: Report) -> Report:
    if not report.ok:
        raise AssertionError(f"tensors differ\n{report}")
    return report


def _devices() -> list[str]:
    has_gpu = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    return ["cpu", "gpu:0"] if has_gpu else ["cpu"]


def _moved(value: Any, device: str, dtype: str | None = None) -> Any:
    leaves, structure = flatten_tree(value)
    moved = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().to(device)
            if dtype is not None and leaf.is_floating_point():
                leaf = leaf.astype(dtype)
        moved.append(leaf)
    return structure.unflatten(moved)


def _as_dtype(layer: paddle.nn.Layer, device: str, dtype: str) -> paddle.nn.Layer:
    """A copy of another dtype, its integers and Booleans as they are."""
    moved = copy.deepcopy(layer).to(device, dtype)
    pairs = zip(layer.sublayers(True), moved.sublayers(True), strict=True)
    for part, there in pairs:
        for name, value in part._buffers.items():
            whole = isinstance(value, Tensor) and not is_differentiable(value)
            if whole and value._is_initialized():
                there._buffers[name] = value.detach().clone().to(device)
    return moved


class _Side:
    """A net in one dtype on one device, with its layer in the same state."""

    def __init__(
        self,
        net: Net,
        params: Mapping[str, Tensor] | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        layer: nn.Layer | None,
        dtype: str,
        device: str,
    ) -> None:
        self.dtype, self.device = dtype, device
        self.args = tuple(_moved(arg, device, dtype) for arg in args)
        self.kwargs = {n: _moved(arg, device, dtype) for n, arg in kwargs.items()}
        self.layer: nn.Layer | None = None
        if layer is None:
            assert isinstance(net, FCNet)
            self.net: Net = dataclasses.replace(net, dtype=dtype)
            given = net.init(0) if params is None else params
            self.params = _moved(dict(given), device, dtype)
            return
        self.layer = _as_dtype(layer, device, dtype)
        self.net, self.params, _ = stateless(self.layer)
        if params is not None:
            self.params = _moved(dict(params), device, dtype)
            named = dict(self.layer.named_parameters())
            for name, value in self.params.items():
                named[name].set_value(value)

    def outputs(self, params: Mapping[str, Tensor], inputs: Tree) -> list[Any]:
        """Leaves of what the net returns."""
        args, kwargs = inputs
        with drawing_from(0):
            return flatten_tree(self.net.forward(params, *args, **kwargs))[0]

    def gradients(self, cotangents: Sequence[Any]) -> dict[str, Any]:
        """Outputs and gradients by our pullback, by what to call them."""
        with drawing_from(0):
            y, pullback = self.net.pullback(self.params, *self.args, **self.kwargs)
        leaves, structure = flatten_tree(y)
        cotangent = structure.unflatten(self._cast(cotangents))
        wrt = ("params", "args", "kwargs") if self.kwargs else ("params", "args")
        by_name, *by_input = pullback(cotangent, wrt=wrt)
        return _named(leaves, by_name or {}, flatten_tree(by_input)[0])

    def native(self, cotangents: Sequence[Any]) -> dict[str, Any]:
        """The same by the layer itself, and paddle.grad."""
        given, structure = flatten_tree((self.args, self.kwargs))
        leaves = [leaf.detach() if is_differentiable(leaf) else leaf for leaf in given]
        inputs: Any = structure.unflatten(leaves)
        if self.layer is None:
            params = {name: p.detach() for name, p in self.params.items()}
            call: Callable[..., Tree] = lambda *args: self.net.forward(params, *args)  # noqa: E731
        else:
            own = dict(self.layer.named_parameters())
            params = {name: own[name] for name in self.net.spec.names}
            call = self.layer
        wanted = [*params.values(), *filter(is_differentiable, leaves)]
        args, kwargs = inputs
        outputs, grads = native(call, args, kwargs, wanted, self._cast(cotangents))
        found = iter(grads)
        by_name = {name: next(found) for name in params}
        rest = [next(found) if is_differentiable(leaf) else None for leaf in leaves]
        return _named(outputs, by_name, rest)

    def _cast(self, cotangents: Sequence[Any]) -> list[Any]:
        return [
            None if c is None else _moved(c, self.device, self.dtype)
            for c in cotangents
        ]


def native(
    call: Callable[..., Tree],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wanted: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
) -> tuple[list[Any], Sequence[Tensor | None]]:
    """Output leaves of a layer itself, and gradients by the wanted tensors.

    By ``paddle.grad`` alone, with the same random numbers every time; what a kernel
    needs beside, such as the frozen scale of a LayerNorm, is differentiated too. The
    wanted tensors, parameters of the layer or leaves of its arguments, are left
    requiring gradients.
    """
    for leaf in wanted:
        leaf.stop_gradient = False
    watch = Watch(wanted)
    with drawing_from(0):
        outputs, _ = flatten_tree(watch.call(lambda: call(*args, **kwargs)))
    pairs = [
        (output, cotangent)
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None and not output.stop_gradient
    ]
    outs, seeds = zip(*pairs, strict=True)
    found = gradients(outs, [*wanted, *watch.asked.values()], seeds, False)
    return outputs, found[: len(wanted)]


def _named(
    outputs: Sequence[Any], by_name: Mapping[str, Any], by_arg: Sequence[Any]
) -> dict[str, Any]:
    return {
        **{f"output {i}": value for i, value in enumerate(outputs)},
        **{f"params[{name!r}]": grad for name, grad in by_name.items()},
        **{f"argument {i}": grad for i, grad in enumerate(by_arg)},
    }


def _rows(side: _Side, reference: _Side, seed: int) -> Iterator[Row]:
    rng = np.random.default_rng(seed)
    inputs = reference.args, reference.kwargs
    outputs = reference.outputs(reference.params, inputs)
    cotangents = [
        paddle.to_tensor(rng.standard_normal(leaf.shape))
        if is_differentiable(leaf)
        else None
        for leaf in outputs
    ]
    found = side.gradients(cotangents)
    oracles = {"native": side.native(cotangents)}
    if side.dtype != "float64":
        oracles["float64"] = reference.native(cotangents)
    for oracle, expected in oracles.items():
        pairs = {
            tensor: pair
            for tensor, value in found.items()
            if (pair := _pair(tensor, value, expected[tensor])) is not None
        }
        least = LEAST * max(_largest(reference) for _, reference in pairs.values())
        for tensor, pair in pairs.items():
            about = side.device, side.dtype, oracle, tensor
            yield _row(*about, *pair, TOLERANCES[side.dtype], least)
    if side.dtype == "float64":
        yield from _differences(side, cotangents, found, rng)


def _differences(
    side: _Side,
    cotangents: Sequence[Any],
    found: Mapping[str, Any],
    rng: np.random.Generator,
) -> Iterator[Row]:
    """Each gradient along a random direction against the slope of the output."""
    names = list(side.params)
    arg_leaves, structure = flatten_tree((side.args, side.kwargs))
    leaves = [*side.params.values(), *arg_leaves]
    tensors = [f"params[{name!r}]" for name in names]
    tensors += [f"argument {i}" for i in range(len(arg_leaves))]
    compared: list[tuple[str, tuple[int, ...], float, float]] = []
    for i, tensor in enumerate(tensors):
        if not is_differentiable(leaves[i]):
            continue
        direction = paddle.to_tensor(rng.standard_normal(leaves[i].shape)).to(
            side.device
        )

        def at(t: float, i: int = i, v: Tensor = direction) -> float:
            moved = [*leaves[:i], leaves[i] + t * v, *leaves[i + 1 :]]
            params = dict(zip(names, moved, strict=False))
            inputs = structure.unflatten(moved[len(names) :])
            outputs = side.outputs(params, inputs)
            return sum(
                float((output * cotangent.to(side.device)).sum())
                for output, cotangent in zip(outputs, cotangents, strict=True)
                if cotangent is not None
            )

        slope = (at(STEP) - at(-STEP)) / (2 * STEP)
        grad = found[tensor]
        terms = np.zeros(1) if grad is None else (grad * direction).numpy()
        # Relative to what the terms of the product add up to, not to what is left.
        scale = max(float(np.abs(terms).sum()), abs(slope))
        difference = abs(float(terms.sum()) - slope)
        compared.append((tensor, tuple(leaves[i].shape), difference, scale))
    least = LEAST * max((scale for *_, scale in compared), default=0.0)
    for tensor, shape, difference, scale in compared:
        error = difference / (max(scale, least) or 1.0)
        about = side.device, side.dtype, "differences", tensor
        yield Row(*about, shape, error, None, DIFFERENCES)


Array = npt.NDArray[Any]


def _pair(tensor: str, found: Any, expected: Any) -> tuple[Array, Array] | None:
    """Both as arrays, None being zero; nothing where neither is a tensor."""
    if not isinstance(found, Tensor) and not isinstance(expected, Tensor):
        return None
    if found is None or expected is None:
        given = _array(expected if found is None else found)
        return (np.zeros_like(given), given) if found is None else (given, 0 * given)
    assert found.shape == expected.shape, (
        f"{tensor} has shape {list(found.shape)}, the oracle's {list(expected.shape)}"
    )
    return _array(found), _array(expected)


def _largest(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def _array(tensor: Tensor) -> Array:
    floating = tensor.is_floating_point()
    array: Array = (tensor.detach().astype("float64") if floating else tensor).numpy()
    return array


def _row(
    device: str,
    dtype: str,
    oracle: str,
    tensor: str,
    found: Array,
    expected: Array,
    tolerance: float,
    least: float = 0.0,
) -> Row:
    about = device, dtype, oracle, tensor, tuple(expected.shape)
    if not expected.size:
        return Row(*about, 0.0, None, tolerance)
    difference = np.abs(found - expected)
    difference = np.where(np.isnan(difference), np.inf, difference)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    difference = np.where(same, 0.0, difference)
    where = np.unravel_index(int(difference.argmax()), difference.shape)
    scale = max(_largest(expected), least) or 1.0
    error = float(difference.max()) / scale
    return Row(*about, error, tuple(int(i) for i in where), tolerance)
