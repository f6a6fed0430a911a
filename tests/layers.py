"""Layers with arguments and results of every kind: for the tests of both languages."""

from __future__ import annotations

from typing import NamedTuple

import optree
import paddle
from paddle import nn
from paddle.autograd import PyLayer


class Square(PyLayer):
    """Its own backward, which nothing but the backward shows."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensor()
        return 2 * x * g


class Found(NamedTuple):
    score: paddle.Tensor
    best: paddle.Tensor
    label: str


class Tangled(nn.Layer):
    """Nested arguments and results, of every kind there is."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.decoder = nn.Linear(4, 2)

    def forward(self, pair, options, *, gain, shift=None, twice=False):
        (x, scales), (index,) = pair
        hidden = paddle.tanh(self.encoder(x) * scales["a"] + scales["b"])
        score = self.decoder(hidden[index]) * gain
        if shift is not None:
            score = score + shift["by"][0]
        score = 2 * score if twice else score
        found = Found(score, score.argmax(1), "found")
        return found, {"hidden": hidden, "count": len(options)}, [None, (hidden * 3,)]


class Masked(nn.Layer):
    """Integers and Booleans beside what is differentiated."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, x, index, mask):
        return paddle.where(mask.unsqueeze(-1), x * self.table(index), x)


class Two(nn.Layer):
    """Two inputs, one of them integers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.linear = nn.Linear(4, 2)

    def forward(self, x, index):
        return self.linear(paddle.tanh(x * self.table(index)))


class Views(nn.Layer):
    """Gives back its input, and views of it and of one another."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        h = self.linear(x)
        return x, x[:, :2], h, h.reshape([-1]), h.T, x + 0 * h, self.linear.weight


class Several(nn.Layer):
    """Nested results, of which some are not used and some have no derivative."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.b = nn.Linear(4, 2)

    def forward(self, x):
        h = paddle.tanh(self.a(x))
        return {
            "score": self.b(h),
            "unused": h * 2,
            "hidden": (h, h.argmax(1)),
            "word": "w",
        }


class Noisy(nn.Layer):
    """Everything random, with statistics."""

    def __init__(self, dropout=0.5):
        super().__init__()
        self.first = nn.Linear(3, 40)
        self.norm = nn.BatchNorm1D(40)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(40, 2)

    def forward(self, x):
        hidden = self.dropout(paddle.tanh(self.norm(self.first(x))))
        return self.last(hidden + 0.1 * paddle.randn(hidden.shape, hidden.dtype))


class Worded(nn.Layer):
    """Takes words, whole numbers and nothing beside tensors."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, word, number, *, flag):
        y = self.linear(x) if word is None else getattr(paddle, word)(self.linear(x))
        return y * number if flag else y


class Smooth(nn.Layer):
    """Differentiable twice, with statistics and a keyword argument."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2D(3)
        self.last = nn.Linear(3, 2)

    def forward(self, image, *, scale):
        hidden = paddle.tanh(self.norm(self.conv(image)))
        return self.last(hidden.mean([2, 3]) * scale)


class Mirror(nn.Layer):
    """Gives back what it takes, nested alike, every tensor mixed with all others."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, *args, **kwargs):
        leaves = optree.tree_leaves((args, kwargs))
        floating = [x for x in leaves if is_floating(x)]
        total = sum((paddle.sin(x).sum() for x in floating), paddle.zeros([]))
        mixed = self.linear(total.reshape([1, 1])).sum()
        return optree.tree_map(
            lambda x: x * mixed if is_floating(x) else x, (args, kwargs)
        )


class Columns(nn.Layer):
    """Concatenation, a norm with scale and shift, and a column taken out."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 4), nn.Linear(5, 1)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        h = paddle.tanh(self.norm(self.inner(x)))
        return self.outer(paddle.concat([paddle.sin(x[:, :1]), h], 1))


class Writer(nn.Layer):
    """Edits its input, or a parameter, in a way of one's choice."""

    def __init__(self, how):
        super().__init__()
        self.linear, self.how = nn.Linear(3, 3), how
        self.scale = self.create_parameter([3])
        self.frozen = self.create_parameter([3])

    def forward(self, x, n=None):
        getattr(self, self.how)(x, n)
        return self.linear(x) * self.scale + self.frozen

    def add(self, x, n):
        x.add_(paddle.ones([3]))

    def item(self, x, n):
        x[0] = 2.0

    def quietly(self, x, n):
        with paddle.no_grad():
            x.add_(paddle.ones([3]))

    def set_value(self, x, n):
        with paddle.no_grad():
            x.set_value(x * 2)

    def view(self, x, n):
        x.reshape([-1]).add_(paddle.ones([1]))

    def params(self, x, n):
        with paddle.no_grad():
            self.scale.clip_(0.0, 0.5)
            self.frozen.add_(paddle.ones([3]))

    def assigned(self, x, n):
        with paddle.no_grad():
            paddle.assign(self.scale * 0.5, output=self.scale)

    def integers(self, x, n):
        n.add_(paddle.ones([2], "int64"))


def is_floating(x):
    return isinstance(x, paddle.Tensor) and x.is_floating_point()
