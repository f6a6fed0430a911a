"""Machine code on memory between fences, beside the same operators one by one."""

import ctypes
import mmap
import struct
from dataclasses import replace

import numpy as np
import paddle

from conftest import randn
from paddle_chainrules import make_program, vjp
from paddle_chainrules.programs.codegen.fused_kernels.region import NEVER
from paddle_chainrules.programs.compiling.source import compile_program
from paddle_chainrules.programs.sizes.any_size import infer_samples
from paddle_chainrules.programs.tracing.operations import with_values
from paddle_chainrules.settings import wanted_blas

FENCE = 64
"""Bytes before and after a buffer that are looked at after a call."""


class Fenced:
    """Memory for an array between fences, at an address that is a multiple of its
    elements' size and of no more.

    Where ``is_guarded``, what lies behind cannot be read: a process that does ends.
    """

    is_guarded = False

    def __init__(self, shape, dtype, fill=None):
        dtype = np.dtype(dtype)
        count = int(np.prod(shape, dtype=int)) * dtype.itemsize
        first = FENCE + dtype.itemsize
        if self.is_guarded:
            self._all = _before_a_guard(first + count)
            first = self._all.size - count
        else:
            self._all = np.empty(2 * FENCE + count + 64 + dtype.itemsize, np.uint8)
        self._all.fill(0xA5)
        self._inside = slice(first, first + count)
        self.array = self._all[self._inside].view(dtype).reshape(shape)
        if dtype.kind == "f":
            self.array.fill(np.nan)
        if fill is not None:
            self.array[...] = fill
        self.address = self.array.ctypes.data

    def is_whole(self):
        before, after = self._all[: self._inside.start], self._all[self._inside.stop :]
        return bool((before == 0xA5).all() and (after == 0xA5).all())


def _before_a_guard(least):
    """Memory of some pages, before one that cannot be read."""
    size = -(-least // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE)
    found = np.frombuffer(pages, np.uint8, size)
    end = ctypes.c_void_p(found.ctypes.data + size)
    assert ctypes.CDLL(None).mprotect(end, mmap.PAGESIZE, 0) == 0
    return found


def run_fenced(program, tensors, samples=0):
    """What a program gives, regions on buffers between fences, and how many there are.

    Memory for what is in between is NaN before.
    """
    known = dict(zip(program.inputs, tensors, strict=True)) | program.constants
    count = 0
    for op in program.ops:
        if op.operator.name != "region":
            made = op.operator.run(
                *(with_values(a, known.__getitem__) for a in op.args)
            )
            known.update(zip(op.outputs, made if op.many else [made], strict=True))
            continue
        region, buffers = op.operator, {}
        for value in region.order:
            fill = known[value].numpy() if value in op.inputs else None
            shape = value.shape if fill is None else fill.shape
            if samples and fill is None:
                shape = [region._shape_env.extent(size).at(samples) for size in shape]
            buffers[value] = Fenced(shape, value.dtype, fill)
        size = sum(each.at(samples) for each in region.work) + 63
        work = Fenced([size // 8 + 1], "float64")
        places = [each.address for each in (*buffers.values(), work)]
        region.code(struct.pack(f"{2 + len(places)}q", samples, NEVER, *places))
        assert all(each.is_whole() for each in (*buffers.values(), work))
        for value in op.inputs:
            if value in buffers:
                np.testing.assert_array_equal(
                    buffers[value].array, known[value].numpy()
                )
        for value in op.outputs:
            found = buffers[value].array if value in buffers else np.empty(value.shape)
            known[value] = paddle.to_tensor(found.copy()).astype(value.dtype)
        count += 1
    return [known[value] for value in program.outputs], count


def assert_near(found, expected, eps=500, least=1e-3):
    """Compare by the rounding of the largest entry, taken as ``least`` or more."""
    a, b = found.numpy(), expected.numpy()
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    if a.dtype.kind not in "fc":
        np.testing.assert_array_equal(a, b)
        return
    largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    close = eps * np.finfo(b.dtype).eps * max(largest, least)
    np.testing.assert_allclose(a, b, rtol=0, atol=close, equal_nan=True)


def check(fn, *tensors, regions=True, eps=500):
    """Between fences a program gives what its operators give, and at each call.

    Args:
        regions: whether there have to be any, or none; None where both will do.

    Returns:
        The program with regions.
    """
    program = make_program(fn)(*tensors)
    with paddle.no_grad():
        expected = compile_program(program)(*tensors)
        found, count = run_fenced(program.with_loops, tensors)
        run = compile_program(program.with_loops)
        calls = [run(*tensors) for _ in range(2)]
    for outputs in (found, *calls):
        for a, b in zip(outputs, expected, strict=True):
            assert_near(a, b, eps)
    assert regions in (None, bool(count)) or wanted_blas() == "off"
    return program.with_loops


def cotangent(y):
    """Of whose numbers no two are alike."""
    numbers = paddle.arange(y.size, dtype=y.real().dtype if y.is_complex() else y.dtype)
    return paddle.cos(numbers).reshape(y.shape).astype(y.dtype)


def with_gradient(fn):
    """A function's value, and its gradient by the first argument."""

    def both(x, *fixed):
        y, back = vjp(lambda x: fn(x, *fixed), x)
        return y, *back(cotangent(y))

    return both


def names_of(program):
    return [op.operator.name for op in program.ops]


def of_any_number(fn, x, y):
    """The program of x with regions, where it serves y too."""
    one, other = (make_program(fn)(each) for each in (x, y))
    samples = infer_samples(one, x.shape[0], other, y.shape[0])
    return samples and replace(one, samples=samples).with_loops


def assert_serves_any_number(found, fn):
    """As :func:`of_any_number` gives it, of rows of nine, for some numbers of them."""
    for n in (2, 7, 13, 64):
        x = randn([n, 9], seed=n)
        outputs, count = run_fenced(found, [x], n)
        assert count
        for a, b in zip(outputs, fn(x), strict=True):
            assert_near(a, b)
