"""Where tensors lie: on the CPU alone, or on other devices too."""

from __future__ import annotations

from collections.abc import Iterable

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
