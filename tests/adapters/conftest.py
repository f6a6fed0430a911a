"""What the tests of adapters share."""

import paddle
import pytest


@pytest.fixture
def in_double():
    """Float64 by default, and as it was afterwards."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype(before)
