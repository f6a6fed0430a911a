"""What a layer refuses, as Julia is told."""

import paddle
import pytest
from paddle import nn

from paddle_chainrules import bridge

ones = paddle.ones


def said(layer, *args, **kwargs):
    """The layer's name, and the sentence, of an error of a call."""
    handle, params = bridge.layer(layer)
    if kwargs:
        handle = handle.called((), {name: i for i, name in enumerate(kwargs)})
    return _said(handle.bind_and, "forward", False, *params, *args, *kwargs.values())


def _said(function, *args):
    with pytest.raises(Exception) as raised:  # noqa: PT011
        function(*args)
    found = bridge.refusal(raised.value)
    return found and found[:2]


def normed():
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2))


class Own(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = normed()
        self.last = nn.Linear(6, 2)

    def forward(self, x, fails=None):
        if fails is not None:
            raise ValueError("of its own")
        return self.last(self.inner(x))


CASES = {
    "features": (normed, [7, 5], "0", "(5, 7), it needs (3, n) for n samples"),
    "a vector": (normed, [5], "0", "an array of size (5,), it needs (3,)"),
    "sequences": (
        normed,
        [7, 2, 5],
        "0",
        "(5, 2, 7), it needs (3, 2, n)",
    ),
    "turned": (normed, [3, 5], "0", "n samples; permutedims(x) is so"),
    "within": (Own, [7, 5], "inner.0", "(5, 7), it needs (3, n)"),
    "own": (Own, [7, 3], "last", "(2, 7), it needs (6, n)"),
    "whole": (lambda: nn.LayerNorm([2, 4]), [5, 3, 4], "", "(4, 2, n) for n"),
    "images": (
        lambda: nn.Conv3D(3, 4, 2),
        [1, 2, 5, 6, 7],
        "",
        "(7, 6, 5, 2, 1), it needs (width, height, depth, 3, n)",
    ),
    "channels last": (
        lambda: nn.Conv2DTranspose(3, 4, 2, data_format="NHWC"),
        [1, 5, 6, 2],
        "",
        "(2, 6, 5, 1), it needs (3, width, height, n)",
    ),
    "signals": (lambda: nn.BatchNorm1D(3), [5, 4, 2], "", "(width, 3, n)"),
    "norm": (lambda: nn.BatchNorm2D(3), [5, 3], "", "(width, height, 3, n)"),
    "instance norm": (lambda: nn.InstanceNorm1D(3), [5, 4, 2], "", "(width, 3, n)"),
    "time first": (
        lambda: nn.GRU(3, 4, time_major=True),
        [5, 2, 7],
        "",
        "(7, 2, 5), it needs (3, n, time)",
    ),
    "cell": (lambda: nn.LSTMCell(3, 4), [2, 5], "", "(5, 2), it needs (3, n)"),
    "attention": (lambda: nn.MultiHeadAttention(8, 2), [8], "", "(8, time, n)"),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_are_those_of_julia(name):
    layer, shape, where, words = CASES[name]
    found, sentence = said(layer(), ones(shape))
    kind = type(layer()).__name__
    assert found == where
    assert words in sentence
    begin = f'layer "{where}" (' if where else f"the layer ({kind}) "
    assert sentence.startswith(begin)
    assert len(sentence) < 500


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ones([7, 3], "int64"),
            "an array of Int64, it needs Float32; convert it",
        ),
        (ones([7, 3], "uint8"), "an array of UInt8, it needs Float32"),
        (ones([7, 3], "bool"), "an array of Bool, it needs Float32"),
        (ones([7, 3], "float64"), "an array of Float64, it needs Float32"),
        ("words", 'the string "words", it needs an array of size (3, n) for n samples'),
        (None, "nothing, it needs an array of size (3, n)"),
        (3, "the number 3, it needs an array of size (3, n)"),
        ([3], "a list, it needs an array of size (3, n)"),
    ],
)
def test_other_kinds(given, words):
    name, sentence = said(normed(), given)
    assert (name, sentence) == ("0", sentence)
    assert f"got {words}" in sentence


def test_complex_numbers():
    _, sentence = said(nn.LayerNorm(3), ones([7, 3], "complex64"))
    assert "got an array of ComplexF32, it needs Float32" in sentence
    assert sentence.endswith("such as Float32.(real.(x))")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (ones([3]), "an array of Float32, it takes integers from 0 to 4, such as Int."),
        (paddle.to_tensor([7]), "an array of Int64, it takes integers from 0 to 4"),
        (None, "nothing, it takes integers from 0 to 4"),
    ],
)
def test_rows_of_an_embedding(given, words):
    _, sentence = said(nn.Sequential(nn.Embedding(5, 4)), given)
    assert f'layer "0" (Embedding) got {words}' in sentence


def test_what_it_needs_is_not_always_known():
    _, sentence = said(nn.MSELoss(), ones([2, 3]), ones([5, 4]))
    assert sentence == (
        "the layer (MSELoss) failed on an array of size (3, 2) and an array of size "
        "(4, 5)"
    )


def test_arguments_by_name_and_hooks():
    layer = Own()
    layer.inner[0].register_forward_pre_hook(lambda layer, given: None)
    name, sentence = said(layer, x=ones([7, 5]))
    assert name == "inner.0"
    assert "got an array of size (5, 7), it needs (3, n)" in sentence


def test_on_the_way_there_and_in_derivatives():
    handle, params = bridge.layer(normed())
    x = ones([7, 5])
    for of, entry in (
        (handle, "pullback"),
        (handle.operator("laplacian"), "forward"),
        (handle.per_sample("jacobian", (True,)), "forward"),
    ):
        name, sentence = _said(of.bind_and, entry, False, *params, x)
        assert name == "0"
        assert "it needs (3, n)" in sentence


def test_a_capture_tells_of_what_it_met():
    handle, params = bridge.layer(normed())
    name, _ = _said(handle.lower, len(params), *params, ones([7, 5]))
    assert name == "0"


def test_words_of_others_are_theirs():
    assert said(Own(), ones([7, 3]), 1) is None
    assert said(nn.Linear(3, 2)) is None  # an argument is missing
    assert bridge.refusal(ValueError("from nowhere")) is None
    assert _said(bridge.fcnet, (3,), "tanh", "float32", 0) is None
