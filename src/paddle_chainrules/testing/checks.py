"""A net beside its native layer, a device beside the CPU, and finite differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle
from paddle import Tensor, nn

from ..nets.fcnet import FCNet
from ..nets.layers.of_layer import stateless
from ..nets.net import Net
from ..nets.parameters.params import Params
from ..paddle_side.dtypes import dtype_name
from ..paddle_side.process.random_state import drawing_from
from ..transforms.containers.tree import Tree, flatten_tree
from .errors import TOLERANCES, array_of, row_of, rows_of
from .report import Report
from .sides import Side, move_to


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

    Random layers (dropout) draw the same random numbers every time. The layer, its
    gradients and Paddle's random state are left as they were.

    Args:
        net: an FCNet, a net from ``stateless(layer)``, or a layer itself.
        params: dict or theta of the net; None for the layer's own.
        args: the positional arguments; floating tensors are converted to each dtype.
        kwargs: keyword arguments, which are differentiated too.
        layer: the layer that a net is of; needed for any net but an FCNet.
        dtypes: the dtypes to run in.
        devices: names such as ``"cpu"`` and ``"gpu:0"``; if None, the CPU, and a GPU if
            Paddle has one.
        seed: the seed of the cotangents and directions.

    Returns:
        One row for each tensor and oracle.

    Raises:
        AssertionError: they differ; the message is the table.
        TypeError: a net without its layer.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.testing import check_vjp
        >>> report = check_vjp(paddle.nn.Linear(3, 2), None, (paddle.ones([4, 3]),))
        >>> report.ok
        True
    """
    if isinstance(net, nn.Layer):
        layer = net
        net = stateless(layer)[0]
    if layer is None and not isinstance(net, FCNet):
        raise TypeError(
            f"to compare {net!r} with native Paddle its layer is needed too; give "
            "layer=, or the layer in place of the net"
        )
    if params is not None:
        params = net.spec.as_dict(params)
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(kwargs, Mapping):
        raise TypeError(
            f"kwargs is a dict of keyword arguments, got {type(kwargs).__name__}; "
            "arguments go into args, a tuple"
        )
    rows = []
    for device in devices if devices is not None else _devices():
        reference = Side(net, params, args, kwargs, layer, "float64", device)
        for dtype in dtypes:
            side = Side(net, params, args, kwargs, layer, dtype, device)
            rows += list(rows_of(side, reference, seed))
    return _raise_if_unequal(Report(tuple(rows)))


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
        args: the arguments of both; tensors are moved to each device.
        tolerance: the largest allowed error relative to the largest entry; by dtype if
            None.
        devices: as for :func:`check_vjp`.

    Returns:
        One row for each returned tensor.

    Raises:
        AssertionError: they differ, in structure, shape, dtype or value.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.testing import compare
        >>> compare(paddle.nn.functional.silu, lambda x: x * paddle.nn.functional
        ...     .sigmoid(x), (paddle.linspace(-3, 3, 7),)).ok
        True
    """
    rows = []
    for device in devices if devices is not None else _devices():
        device_args = [move_to(arg, device) for arg in args]
        with drawing_from(0):
            results, structure = flatten_tree(a(*device_args))
        with drawing_from(0):
            expected, other = flatten_tree(b(*device_args))
        assert structure == other, f"nested as {structure} and as {other}"
        for i, (value, reference) in enumerate(zip(results, expected, strict=True)):
            if not isinstance(reference, Tensor):
                is_same = not isinstance(value, Tensor) and value == reference
                assert is_same, f"output {i} is {value!r} and {reference!r}"
                continue
            dtype = dtype_name(reference.dtype)
            assert isinstance(value, Tensor), f"output {i} is {value!r} and a tensor"
            assert value.dtype == reference.dtype, (
                f"output {i} is {value.dtype}, {reference.dtype}"
            )
            allowed = TOLERANCES.get(dtype, 0.0) if tolerance is None else tolerance
            pair = array_of(value), array_of(reference)
            rows.append(row_of(device, dtype, "other", f"output {i}", *pair, allowed))
    return _raise_if_unequal(Report(tuple(rows)))


def _raise_if_unequal(report: Report) -> Report:
    if not report.ok:
        raise AssertionError(f"tensors differ\n{report}")
    return report


def _devices() -> list[str]:
    has_gpu = (
        paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    )
    return ["cpu", "gpu:0"] if has_gpu else ["cpu"]
