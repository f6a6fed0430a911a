"""Where tensors lie: on the CPU alone, or on other devices too."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import paddle
from paddle import Tensor

ON_CPU_ALONE = not (
    paddle.device.is_compiled_with_cuda()
    or paddle.device.is_compiled_with_xpu()
    or paddle.device.get_all_custom_device_type()
)
"""Tells whether no tensor can lie on another device."""


def are_on_cpu(tensors: Iterable[Tensor]) -> bool:
    """Tell whether the host may read all of these tensors by their addresses."""
    return ON_CPU_ALONE or all(t.place.is_cpu_place() for t in tensors)


def device_name(place: Any) -> str:
    """Return what ``Tensor.to`` calls a place: ``Place(gpu:0)`` is ``"gpu:0"``."""
    return str(place).removeprefix("Place(").removesuffix(")")


@cache
def other_kinds() -> tuple[str, ...]:
    """Return the kinds of devices beside the CPU of which this machine has one."""
    core: Any = paddle.base.core
    build = paddle.device
    has_gpu = build.is_compiled_with_cuda() and core.get_cuda_device_count() > 0
    has_xpu = build.is_compiled_with_xpu() and core.get_xpu_device_count() > 0
    custom = (name.partition(":")[0] for name in core.get_available_custom_device())
    return *["gpu"] * has_gpu, *["xpu"] * has_xpu, *dict.fromkeys(custom)
