"""The device that tests run on, and what cannot run there."""

import os

import paddle
import pytest

from device.plugin import VARIABLE

NAME = os.environ.get(VARIABLE)
"""The kind of device; None where tests run on the CPU."""

NOT_RUN = {}
"""Why tests do not run on the device, by the beginnings of their names."""


def make_default():
    """Have new tensors lie on the device."""
    if NAME is not None:
        paddle.set_device(f"{NAME}:0")


def skip_what_cannot_run(items):
    """Skip tests that have a reason, each with its own."""
    if NAME is None:
        return
    for item in items:
        for name, reason in NOT_RUN.items():
            if item.nodeid.startswith(name):
                item.add_marker(pytest.mark.skip(reason=f"on {NAME}: {reason}"))
                break


make_default()
