"""Options of saved libraries that do not fit, refused in the caller's terms."""

import paddle
import pytest

from paddle_chainrules import FCNet, stateless
from paddle_chainrules.libraries import Export, save_library

pytest.importorskip("llvmlite.binding", reason="machine code is llvmlite's")
NET = FCNet((2, 3, 1))


def _double(a):
    return a * 2


def _sum(a, b):
    return a + b


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batched": 0}, ValueError, "that of the parameters; count the inputs"),
        ({"batched": -1}, ValueError, "position -1, and there are 2 arguments"),
        ({"batched": True}, TypeError, "batched is a position .* got True"),
        ({"derivatives": None}, TypeError, "derivatives is a list .* got None"),
        ({"blas": 1}, ValueError, "blas is the name of a library"),
    ],
)
def test_options_of_a_net(options, error, text, tmp_path):
    x = paddle.rand([4, 2])
    with pytest.raises(error, match=text):
        save_library(tmp_path / "net.so", NET, NET.init(0), x, **options)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("params", ["given", "inside"])
def test_an_example_without_samples(params, tmp_path):
    x = paddle.zeros([0, 2])
    with pytest.raises(ValueError, match="x is an example without samples; give"):
        save_library(tmp_path / "net.so", NET, NET.init(0), x, params=params)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"names": ["x"]}, ValueError, "names has 1 names, and there are 2 arguments"),
        ({"names": "ab"}, TypeError, "names is a list of names, got 'ab'"),
        ({"names": [1, 2]}, TypeError, "names is a list of names"),
        ({"results": "y"}, TypeError, "results is a list of names, got 'y'"),
        ({"batched": "0"}, TypeError, "batched is a position .* got '0'"),
        ({"batched": 2}, ValueError, "position 2, and there are 2 arguments"),
        ({"batched": 1}, ValueError, "b is a float, which has no axis of samples"),
    ],
)
def test_options_of_an_export(options, error, text):
    with pytest.raises(error, match=text):
        Export(_sum, paddle.rand([4, 2]), 1.0, **options)


def _exported(fn=_double, **options):
    return Export(fn, paddle.ones([2]), **options)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: {"é": _exported()}, ValueError, "use letters, digits"),
        (_exported, TypeError, "an Export needs a name"),
        (lambda: stateless(paddle.nn.Linear(2, 1)), TypeError, "a tuple; write net, p"),
        (
            lambda: {"f": _exported(results=["a", "b"])},
            ValueError,
            "results of net_f has 2 names, and the function returns 1",
        ),
        (lambda: {"f": _exported(lambda a: 3.0)}, ValueError, "net_f returns no ten"),
    ],
)
def test_functions(make, error, text, tmp_path):
    functions = make()
    with pytest.raises(error, match=text):
        save_library(tmp_path / "net.so", functions)
    assert not [*tmp_path.iterdir()]
