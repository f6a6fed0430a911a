"""What saved libraries refuse before anything is written."""

import importlib.util
import shutil
import sys

import paddle
import pytest
from paddle import nn

from conftest import randn
from paddle_chainrules import CaptureError, FCNet, scan, stateless
from paddle_chainrules.libraries import Export, load_library, save_library

# fmt: off
MARKS = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None or importlib.util.find_spec("llvmlite") is None,
    reason="libraries are made by llvmlite and linked on Linux by a C compiler",
)
NET = FCNet((2, 3, 1), "tanh", "float64")
PARAMS = NET.init(0)
THETA, X = NET.flatten(PARAMS), randn([4, 2], "float64")
C = randn([3], "float64")
TWICE = Export(lambda x: x * 2.0, C)


def exported(fn=lambda a: a * 2, **options):
    return Export(fn, paddle.ones([2]), **options)


def summed(**options):
    return Export(lambda a, b: a + b, paddle.rand([4, 2]), 1.0, **options)


class Two(nn.Layer):
    def forward(self, x, y):
        return paddle.concat([x, y], -1)


def spectrum(x):
    return paddle.abs(paddle.fft.fft(x)) * 2.0 + paddle.linalg.svd(x)[1].sum()


def scanned(x):
    return scan(lambda y, _: (paddle.sin(y) + x, None), x, None, 60)[0]


def saved(*args, name="net.so", **options):
    return lambda path: save_library(path / name, *args, **options)


def saved_two(path):
    net, params, _ = stateless(Two())
    save_library(path / "net.so", net, params, randn([2, 3]), randn([2, 5]), derivatives=["jacobian"])


BY_COUNT = "does not do the same for any number|differs from"

ROWS = [
    ("the axis of parameters", saved(NET, PARAMS, X, batched=0), ValueError, "that of the parameters; count the inputs"),
    ("position -1", saved(NET, PARAMS, X, batched=-1), ValueError, "position -1, and there are 2 arguments"),
    ("position True", saved(NET, PARAMS, X, batched=True), TypeError, "batched is a position .* got True"),
    ("derivatives None", saved(NET, PARAMS, X, derivatives=None), TypeError, "derivatives is a list .* got None"),
    ("blas 1", saved(NET, PARAMS, X, blas=1), ValueError, "blas is the name of a library"),
    *((f"no samples, params {p}", saved(NET, PARAMS, X[:0], params=p), ValueError, "x is an example without samples; give")
       for p in ("given", "inside")),
    ("a name too few", lambda: summed(names=["x"]), ValueError, "names has 1 names, and there are 2 arguments"),
    ("a text for names", lambda: summed(names="ab"), TypeError, "names is a list of names, got 'ab'"),
    ("numbers for names", lambda: summed(names=[1, 2]), TypeError, "names is a list of names"),
    ("a text for results", lambda: summed(results="y"), TypeError, "results is a list of names, got 'y'"),
    ("a text for a position", lambda: summed(batched="0"), TypeError, "batched is a position .* got '0'"),
    ("position 2 of two", lambda: summed(batched=2), ValueError, "position 2, and there are 2 arguments"),
    ("samples of a float", lambda: summed(batched=1), ValueError, "b is a float, which has no axis of samples"),
    ("position 1 of one", lambda: Export(lambda x: x, X, batched=1), ValueError, "position 1, and there are 1"),
    ("no function", lambda: Export(X), TypeError, "made of a function"),
    ("a name with accents", saved({"é": exported()}), ValueError, "use letters, digits"),
    ("an Export alone", saved(exported()), TypeError, "an Export needs a name"),
    ("a tuple", saved(stateless(nn.Linear(2, 1))), TypeError, "a tuple; write net, p"),
    ("two results of one", saved({"f": exported(results=["a", "b"])}),
     ValueError, "results of net_f has 2 names, and the function returns 1"),
    ("no tensor returned", saved({"f": exported(lambda a: 3.0)}), ValueError, "net_f returns no ten"),
    ("operators without code", saved(spectrum, X), CaptureError, "no machine code for .*fft.*svd"),
    ("random numbers", saved(lambda x: x + paddle.rand([4, 2], "float64"), X), CaptureError, "draws random numbers"),
    ("odd numbers of samples", saved(lambda x: x * 2.0 if x.shape[0] % 2 else x * 3.0, X, batched=0), ValueError, BY_COUNT),
    ("pairs of samples", saved(lambda x: x * 2.0 if x.shape[0] != 2 else x * 3.0, X, batched=0), ValueError, BY_COUNT),
    ("complex numbers", saved(lambda x: x.astype("complex128"), X), CaptureError, "complex"),
    *((f"a long scan of {b}", saved(scanned, paddle.randn([4, 3]), batched=b), CaptureError, "no machine code for a scan of 60 steps")
       for b in (0, ())),
    ("no example", saved(NET, THETA), TypeError, "with its parameters and an example"),
    ("no such derivative", saved(NET, THETA, X, derivatives=["gradient"]), ValueError, "got 'gradient'"),
    ("params in", saved(NET, THETA, X, params="in"), ValueError, "params is 'given'"),
    ("a name with a dash", saved(NET, THETA, X, name="a-b.so"), ValueError, "name is that of"),
    ("a word of C", saved(NET, THETA, X, name="double.so"), ValueError, "name is that of"),
    ("a dll", saved(NET, THETA, X, name="net.dll"), ValueError, "ends in .so"),
    ("an old processor", saved(NET, THETA, X, cpu="486"), ValueError, "cpu is one of"),
    ("another processor", saved(NET, THETA, X, cpu="aarch64"), ValueError, "ends in .o,"),
    ("a flag for blas", saved(NET, THETA, X, blas="-o x"), ValueError, "name of a library"),
    ("no such blas", saved(NET, THETA, X, blas="nowhere"), RuntimeError, "does not link"),
    ("derivatives of a function", saved(lambda x: x, X, derivatives=["vjp"]), TypeError, "for nets"),
    ("a function by name", saved({"f": lambda x: x}), TypeError, "by the name"),
    ("no functions", saved({}), TypeError, "dict alone"),
    ("a Jacobian of two", saved_two, ValueError, r"one input \[n, d\]"),
    ("tanh", saved(TWICE.fn, C, name="tanh.so"), ValueError, "C has a function 'tanh' of its own"),
    ("malloc", saved(TWICE.fn, C, name="malloc.so"), ValueError, "C has a function 'malloc' of its own"),
    ("main", saved(TWICE.fn, C, name="main.so"), ValueError, "can't be one"),
    *((f"functions {keys}", saved(dict.fromkeys(keys, TWICE), name="steep.so"), ValueError, words) for keys, words in (
        (("error",), "two things called 'steep_error'"), (("library",), "two things called 'steep_library'"),
        (("check",), "two things called 'steep_check'"), (("a", "a_with_work"), "two things called 'steep_a_with_work'"),
        (("side", "Side"), "two things called 'steep_Side'"), (("k" * 60,), "too long for Fortran; make it shorter by 14"),
    )),
    ("no library", lambda path: load_library(path / "none.so"), FileNotFoundError, "there is no library"),
]
