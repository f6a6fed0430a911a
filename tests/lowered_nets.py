"""Nets of many kinds, each with arguments, that Julia's tests lower."""

import paddle
from paddle import nn


class ModifiedMLP(nn.Layer):
    def __init__(self):
        super().__init__()
        self.u, self.v, self.first = (nn.Linear(3, 7) for _ in range(3))
        self.second, self.last = nn.Linear(7, 7), nn.Linear(7, 2)

    def forward(self, x):
        u, v = paddle.tanh(self.u(x)), paddle.tanh(self.v(x))
        for layer in (self.first, self.second):
            h = paddle.tanh(layer(x))
            x = h * u + (1 - h) * v
        return self.last(x)


class PirateNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("kernel", paddle.randn([3, 4]))
        self.u, self.v = nn.Linear(8, 8), nn.Linear(8, 8)
        self.linears = nn.LayerList([nn.Linear(8, 8) for _ in range(3)])
        self.alpha = self.create_parameter([1])
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        phase = paddle.matmul(x, self.kernel)
        x = paddle.concat([paddle.cos(phase), paddle.sin(phase)], -1)
        u, v = paddle.tanh(self.u(x)), paddle.tanh(self.v(x))
        f, g, h = self.linears
        z = paddle.tanh(f(x))
        z = z * u + (1 - z) * v
        z = paddle.tanh(g(z))
        z = z * u + (1 - z) * v
        return self.last(self.alpha * paddle.tanh(h(z)) + (1 - self.alpha) * x)


class Siren(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (
            nn.Linear(a, b) for a, b in ((3, 6), (6, 5), (5, 2))
        )

    def forward(self, x):
        return self.last(paddle.sin(3.3 * self.second(paddle.sin(3.3 * self.first(x)))))


class DeepONet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(5, 7), nn.Silu(), nn.Linear(7, 6))
        self.trunk = nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 6))
        self.bias = self.create_parameter([1], is_bias=True)

    def forward(self, u, x):
        product = self.branch(u) * self.trunk(x)
        return paddle.sum(product, -1, keepdim=True) + self.bias


class Spinn(nn.Layer):
    def __init__(self):
        super().__init__()
        self.nets = nn.LayerList(
            [nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 4)) for _ in "xy"]
        )

    def forward(self, x, y):
        a, b = self.nets[0](x), self.nets[1](y)
        return paddle.einsum("ir,jr->ij", a, b)


class FactorizedLinear(nn.Layer):
    """Random weight factorization: rows of the weight scaled by exp(s)."""

    def __init__(self):
        super().__init__()
        self.v = self.create_parameter([3, 6])
        self.s, self.b = (
            self.create_parameter([6], is_bias=True),
            self.create_parameter([6]),
        )
        self.last = nn.Linear(6, 2)

    def forward(self, x):
        h = paddle.matmul(x, paddle.exp(self.s) * self.v) + self.b
        return self.last(paddle.tanh(h))


class Fourier1D(nn.Layer):
    """One spectral block on [n, points, channels]."""

    def __init__(self):
        super().__init__()
        self.spectrum = self.create_parameter([4, 3, 3, 2])
        self.inner, self.first, self.last = (
            nn.Conv1D(3, 3, 1),
            nn.Linear(1, 3),
            nn.Linear(3, 2),
        )

    def forward(self, x):
        h = self.first(x).transpose([0, 2, 1])
        low = paddle.fft.rfft(h)[:, :, :4]
        mixed = paddle.einsum("bik,kio->bok", low, paddle.as_complex(self.spectrum))
        back = paddle.fft.irfft(mixed, n=x.shape[1])
        return self.last(nn.functional.gelu(back + self.inner(h)).transpose([0, 2, 1]))


class Words(nn.Layer):
    def __init__(self):
        super().__init__()
        self.table, self.encoder = (
            nn.Embedding(9, 8),
            nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0),
        )
        self.last = nn.Linear(8, 3)

    def forward(self, words):
        return nn.functional.softmax(self.last(self.encoder(self.table(words))).mean(1))


class Nested(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x, pair):
        h = self.linear(x)
        return {"b": h * pair[0], "a": (h.sum(0), pair[1] - 1)}


class Scaled(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, factor, shift=0.0):
        return self.linear(x) * factor + shift


def images():
    return nn.Sequential(
        *(nn.Conv2D(2, 6, 3, padding=1, stride=2), nn.GroupNorm(3, 6), nn.ReLU()),
        *(nn.Conv2D(6, 6, 3, groups=6), nn.InstanceNorm2D(6), nn.Silu()),
        *(nn.MaxPool2D(2), nn.BatchNorm2D(6), nn.AdaptiveAvgPool2D(1), nn.Flatten()),
        nn.Linear(6, 3),
    ).eval()


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, activation="gelu")
    return nn.TransformerEncoder(layer, 2).eval()


NETS = {
    "modified MLP": (ModifiedMLP, ((5, 3),)),
    "PirateNet": (PirateNet, ((5, 3),)),
    "SIREN": (Siren, ((5, 3),)),
    "DeepONet": (DeepONet, ((5, 5), (5, 3))),
    "SPINN": (Spinn, ((5, 1), (4, 1))),
    "random weight factorization": (FactorizedLinear, ((5, 3),)),
    "LayerNorm": (
        lambda: nn.Sequential(
            *(
                nn.Linear(3, 6),
                nn.LayerNorm(6),
                nn.GELU(),
                nn.Linear(6, 2),
                nn.Softplus(),
            )
        ),
        ((5, 3),),
    ),
    "attention": (lambda: nn.MultiHeadAttention(8, 2), ((3, 5, 8),)),
    "Transformer encoder": (encoder, ((3, 5, 8),)),
    "images": (images, ((3, 2, 13, 11),)),
    "words": (Words, ((3, 5),)),
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2), ((3, 5, 3),)),
    "GRU": (lambda: nn.GRU(3, 4, direction="bidirect"), ((3, 5, 3),)),
    "simple RNN": (lambda: nn.SimpleRNN(3, 4), ((3, 5, 3),)),
    "spectral block": (Fourier1D, ((3, 8, 1),)),
}
"""By name how it is made, and the shapes of its arguments."""


def make(name, dtype):
    """A net in double or single precision."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    paddle.seed(3)
    try:
        return NETS[name][0]()
    finally:
        paddle.set_default_dtype(before)
