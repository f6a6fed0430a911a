"""What a script does natively and in Taylor mode; shared by the tests of adapters."""

import subprocess
import sys
import warnings

import numpy as np
import paddle
import pytest

from paddle_chainrules.adapters.taylor_mode import NativeWarning
from paddle_chainrules.adapters.whole_losses import LEARNING

STEPS = 100

JIT = pytest.mark.parametrize("jit", [False, True], ids=["nets", "whole losses"])
"""Whether a context compiles each loss whole."""


def served(mode):
    """How many calls or losses ran as programs, with the losses that came before."""
    return mode.losses.programs + LEARNING if mode.losses else mode.programs


def both_ways(script, context, warns=(), **options):
    """What a script gives natively and within a context, and the context.

    Args:
        script: takes nothing, seeds all it draws, and gives a tree of arrays.
        context: enters Taylor mode.
        warns: words of the warnings that it is to give, one each and no more.
        options: of the context.
    """
    expected = script()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NativeWarning)
        with context(**options) as mode:
            found = script()
    said = [str(w.message) for w in told if w.category is NativeWarning]
    assert len(said) == len(warns), said
    for words, sentence in zip(warns, said, strict=True):
        assert words in sentence
    assert [*mode.reasons] == said
    return found, expected, mode


def assert_equal(found, expected, rtol=1e-6):
    """Trees of dicts, lists and arrays, relative to the largest entry of an array."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert [*found] == [*expected]
        found, expected = [*found.values()], [*expected.values()]
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_equal(a, b, rtol)
        return
    if expected is None:
        return
    a, b = np.asarray(found), np.asarray(expected)
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert np.isfinite(b).all()
    atol = rtol * max(float(np.abs(b).max(initial=0.0)), 1e-12)
    np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def gradients(*layers, more=()):
    """Those of the live parameters, and of what else is trained."""
    tensors = [p for layer in layers for p in layer.parameters()]
    return [None if t.grad is None else t.grad.numpy() for t in (*tensors, *more)]


def values(layer):
    return {name: p.numpy() for name, p in layer.state_dict().items()}


def points(count, width, seed=0):
    """Coordinates, of which gradients are asked for."""
    found = np.random.default_rng(seed).random((count, width))
    return paddle.to_tensor(found.astype(paddle.get_default_dtype()), stop_gradient=0)


def steps_of(nets, loss_of, clear, count=6):
    """A script of losses, each of other points, with all gradients of each."""

    def script():
        found = []
        for k in range(count):
            for net in nets:
                net.clear_gradients()
            loss, leaves = loss_of(k)
            loss.backward()
            clear()
            found.append([float(loss), gradients(*nets, more=leaves)])
        for net in nets:
            net.clear_gradients()
        return found

    return script


def ends_of(code):
    """What a process of its own has printed at last, which may have crashed."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return [ran.returncode, *ran.stdout.splitlines()[-1:]]
