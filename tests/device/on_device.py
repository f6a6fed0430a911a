"""The device that tests run on."""

import os

import paddle

from device.plugin import VARIABLE

NAME = os.environ.get(VARIABLE)
"""The kind of device; None where tests run on the CPU."""


def make_default():
    """Have new tensors lie on the device."""
    if NAME is not None:
        paddle.set_device(f"{NAME}:0")


make_default()
