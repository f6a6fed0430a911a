"""Oracles and comparisons shared by the tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

# isort: off
import device.plugin  # noqa: F401 - before Paddle is imported

# isort: on

import numpy as np
import optree
import paddle
import pytest

import watching
from device import on_device
from lanes import pytest_addoption as pytest_addoption
from lanes import pytest_collection_modifyitems as pytest_collection_modifyitems
from lanes import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from paddle_chainrules import settings as switch
from paddle_chainrules import stateless
from paddle_chainrules.nets.calls.programs import CALLS_BEFORE_PROGRAM
from paddle_chainrules.programs.batches import blocks
from paddle_chainrules.settings import programs_are_on
from paddle_chainrules.transforms.as_programs.guarded_calls import CALLS_BEFORE_GUARDED
from run_summary import count_case as count_case
from run_summary import pytest_configure as pytest_configure
from run_summary import record_julia as record_julia
from snapshots import assert_unchanged as assert_unchanged
from snapshots import snapshot as snapshot


def run_code(code, **variables):
    """What a Python process of its own has done with it, in this environment."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def on_threads(work, arguments):
    """Call a function with each of these, all at a time."""
    threads = [threading.Thread(target=work, args=each) for each in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def assert_same(found, expected, *, rtol=0.0, atol=0.0):
    """Trees equal in structure, shape and dtype, and element by element in value."""
    found_leaves, found_spec = optree.tree_flatten(found, none_is_leaf=True)
    expected_leaves, expected_spec = optree.tree_flatten(expected, none_is_leaf=True)
    assert found_spec == expected_spec
    for a, b in zip(found_leaves, expected_leaves, strict=True):
        if b is None:
            assert a is None
            continue
        assert a is not None
        assert list(a.shape) == list(b.shape)
        assert a.dtype == b.dtype
        x, y = a.detach().numpy(), b.detach().numpy()
        close = max(atol, rounding_of(y)) if IN_REGIONS else atol
        np.testing.assert_allclose(x, y, rtol=rtol, atol=close)


IN_REGIONS = not switch.CALLS_BEFORE_CODE
"""Whether all programs are machine code, which rounds sums otherwise than Paddle."""


def rounding_of(array):
    """What sums of some terms may be off by."""
    if array.dtype.kind not in "fc" or not array.size:
        return 0.0
    largest = np.abs(array[np.isfinite(array)]).max(initial=0.0)
    return 32 * np.finfo(array.dtype).eps * max(largest, 1.0)


def assert_falls(values):
    """No value is above the one before, but by rounding."""
    values = np.asarray(values, "float64")
    assert values.size
    rises = np.diff(values) / np.maximum(np.abs(values[:-1]), 1e-300)
    assert not np.any(rises > 1e-9), f"values rise by {rises.max():.1e} of themselves"


def randn(shape, dtype="float32", seed=0):
    """A standard normal tensor from numpy, so that Paddle's generator stays put."""
    value = np.random.default_rng(seed).standard_normal(shape)
    return paddle.to_tensor(value).astype(dtype)


def random_like(tree, seed=1):
    """A cotangent for each floating tensor of a tree, None for the rest."""
    rng = np.random.default_rng(seed)

    def one(leaf):
        if not isinstance(leaf, paddle.Tensor) or not leaf.is_floating_point():
            return None
        return paddle.to_tensor(rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    return optree.tree_map(one, tree, none_is_leaf=True)


def native(layer, args, cotangent, kwargs=None, wrt_kwargs=False):
    """Output and gradients of the layer itself by ``paddle.grad``: the oracle.

    The gradients are ``({name: grad}, (grad per argument, ...))``, nested as the
    arguments are, and those of keyword arguments as a third where asked.
    """
    given, structure = optree.tree_flatten(
        (tuple(args), kwargs or {}), none_is_leaf=True
    )
    leaves = [
        leaf.detach().clone()
        if isinstance(leaf, paddle.Tensor) and leaf.is_floating_point()
        else leaf
        for leaf in given
    ]
    inputs = [a for a, b in zip(leaves, given, strict=True) if a is not b]
    for leaf in inputs:
        leaf.stop_gradient = False
    own_args, own_kwargs = structure.unflatten(leaves)
    output = layer(*own_args, **own_kwargs)
    outs, _ = optree.tree_flatten(output, none_is_leaf=True)
    seeds, _ = optree.tree_flatten(cotangent, none_is_leaf=True)
    pairs = [(o, s) for o, s in zip(outs, seeds, strict=True) if s is not None]
    params = {n: p for n, p in layer.named_parameters() if not p.stop_gradient}
    grads = paddle.grad(
        [o for o, _ in pairs],
        [*params.values(), *inputs],
        [s for _, s in pairs],
        allow_unused=True,
    )
    by_name = dict(zip(params, grads[: len(params)], strict=True))
    rest = iter(grads[len(params) :])
    by_leaf = [
        next(rest) if a is not b else None for a, b in zip(leaves, given, strict=True)
    ]
    by_arg, by_kwarg = structure.unflatten(by_leaf)
    found = (by_name, by_arg, by_kwarg) if wrt_kwargs else (by_name, by_arg)
    return output, found


def as_programs(net, params, *args, **kwargs):
    """Have calls of this kind run as programs from here on, where the net has them."""
    for _ in range(CALLS_BEFORE_PROGRAM + CALLS_BEFORE_GUARDED + 1):
        net.pullback(params, *args, **kwargs)
        net.forward(params, *args, **kwargs)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """What is loaded by now stays, and collections need not look at it again."""
    gc.collect()
    gc.freeze()


PROGRAMS = "PROGRAMS" in os.environ
if PROGRAMS:
    # All nets of all tests run as programs where they can.
    stateless.__defaults__ = ((), True)

tape_only = pytest.mark.skipif(PROGRAMS, reason="counts what the tape does")
programs_on = pytest.mark.skipif(
    not programs_are_on(), reason="PADDLE_CHAINRULES_PROGRAMS is off"
)
loops_on = pytest.mark.skipif(
    not switch.loops_are_on() or on_device.NAME is not None,
    reason="there is no machine code to look at",
)
products_on = pytest.mark.skipif(
    switch.wanted_blas() == "off", reason="there is no machine code of products"
)


@pytest.fixture(autouse=True, scope="session")
def _watched():
    """No call of any test changes a byte of what it was given."""
    with pytest.MonkeyPatch.context() as patch:
        watching.install(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def _home(tmp_path_factory):
    """Give to_static and IPython a HOME that they can write into."""
    if os.environ.get("HOME") and os.access(os.environ["HOME"], os.W_OK):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _seeded():
    paddle.seed(20)
    on_device.make_default()


@pytest.fixture
def in_double():
    """Float64 by default, and as it was afterwards."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype(before)


@pytest.fixture
def block_sizes(monkeypatch):
    """The numbers of rows of all blocks that are made."""
    sizes = []
    began = blocks.RowTiledProgram.__init__

    def begin(self, programs, rows, sums):
        began(self, programs, rows, sums)
        sizes.append([*programs])

    monkeypatch.setattr(blocks.RowTiledProgram, "__init__", begin)
    return sizes


@pytest.fixture
def small_blocks(block_sizes, monkeypatch):
    """The same, of 64 rows from 513 rows on."""
    monkeypatch.setattr(blocks, "WHOLE", 0)
    monkeypatch.setattr(blocks, "BYTES", 1)
    return block_sizes
