"""Nets as people who solve differential equations build them, and a few others.

Sources: Wang, Teng, Perdikaris 2021 (modified MLP), Wang et al. 2024 (PirateNets), Lu
et al. 2021 (DeepONet), Sitzmann et al. 2020 (SIREN), Tancik et al. 2020 (Fourier
features), Cho et al. 2023 (SPINN).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn

WIDTH = 64


def chain(sizes: list[int], act: type[nn.Layer] = nn.Tanh) -> nn.Sequential:
    layers: list[Any] = []
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), act()]
    return nn.Sequential(*layers[:-1])


class Named(nn.Layer):
    """A chain with its layers in a list, as most libraries have it."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        pairs = itertools.pairwise(sizes)
        self.linears = nn.LayerList([nn.Linear(a, b) for a, b in pairs])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        for linear in self.linears[:-1]:
            x = paddle.tanh(linear(x))
        return self.linears[-1](x)


class Siren(Named):
    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        for linear in self.linears[:-1]:
            x = paddle.sin(30.0 * linear(x))
        return self.linears[-1](x)


class Fourier(nn.Layer):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.register_buffer("kernel", paddle.randn([n_in, WIDTH // 2]))
        self.net = Named([WIDTH, WIDTH, WIDTH, n_out])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        phase = paddle.matmul(x, self.kernel)
        return self.net(paddle.concat([paddle.cos(phase), paddle.sin(phase)], -1))


class ModifiedMLP(nn.Layer):
    def __init__(self, n_in: int, n_out: int, depth: int = 3) -> None:
        super().__init__()
        self.u, self.v = nn.Linear(n_in, WIDTH), nn.Linear(n_in, WIDTH)
        sizes = [n_in, *[WIDTH] * depth]
        pairs = itertools.pairwise(sizes)
        self.linears = nn.LayerList([nn.Linear(a, b) for a, b in pairs])
        self.last = nn.Linear(WIDTH, n_out)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        u, v = paddle.tanh(self.u(x)), paddle.tanh(self.v(x))
        for linear in self.linears:
            x = paddle.tanh(linear(x))
            x = x * u + (1 - x) * v
        return self.last(x)


class PirateBlock(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.LayerList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.alpha = self.create_parameter([1])

    def forward(self, x: Any, u: Any, v: Any) -> paddle.Tensor:
        f = paddle.tanh(self.linears[0](x))
        z = f * u + (1 - f) * v
        g = paddle.tanh(self.linears[1](z))
        z = g * u + (1 - g) * v
        h = paddle.tanh(self.linears[2](z))
        return self.alpha * h + (1 - self.alpha) * x


class PirateNet(nn.Layer):
    def __init__(self, n_in: int, n_out: int, blocks: int = 2) -> None:
        super().__init__()
        self.register_buffer("kernel", paddle.randn([n_in, WIDTH // 2]))
        self.u, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.LayerList([PirateBlock() for _ in range(blocks)])
        self.last = nn.Linear(WIDTH, n_out)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        phase = paddle.matmul(x, self.kernel)
        x = paddle.concat([paddle.cos(phase), paddle.sin(phase)], -1)
        u, v = paddle.tanh(self.u(x)), paddle.tanh(self.v(x))
        for block in self.blocks:
            x = block(x, u, v)
        return self.last(x)


class DeepONet(nn.Layer):
    def __init__(self, sensors: int, n_in: int) -> None:
        super().__init__()
        self.branch = Named([sensors, WIDTH, WIDTH])
        self.trunk = Named([n_in, WIDTH, WIDTH])
        self.bias = self.create_parameter([1], is_bias=True)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        u, y = paddle.split(x, [x.shape[1] - 2, 2], axis=1)
        product = self.branch(u) * paddle.tanh(self.trunk(y))
        return paddle.sum(product, -1, keepdim=True) + self.bias


class Spinn(nn.Layer):
    def __init__(self, rank: int = 16) -> None:
        super().__init__()
        self.nets = nn.LayerList([Named([1, WIDTH, rank]) for _ in range(2)])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        a, b = (net(x[:, i : i + 1]) for i, net in enumerate(self.nets))
        return (a.unsqueeze(1) * b.unsqueeze(0)).sum(-1)


def convolutional() -> nn.Layer:
    return nn.Sequential(
        *(nn.Conv2D(3, 8, 3), nn.ReLU(), nn.MaxPool2D(2)),
        *(nn.Conv2D(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)),
    )


def normalized() -> nn.Layer:
    return nn.Sequential(
        *(nn.Linear(8, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh()),
        *(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4)),
    )


NETS: dict[str, tuple[Callable[[], nn.Layer], list[int]]] = {
    "chain 8-64-4 in a list": (lambda: Named([8, WIDTH, 4]), [8]),
    "MLP 3-64-64-64-1": (lambda: Named([3, WIDTH, WIDTH, WIDTH, 1]), [3]),
    "MLP with LayerNorm": (normalized, [8]),
    "SIREN": (lambda: Siren([3, WIDTH, WIDTH, WIDTH, 1]), [3]),
    "Fourier features": (lambda: Fourier(3, 1), [3]),
    "modified MLP": (lambda: ModifiedMLP(3, 1), [3]),
    "PirateNet, two blocks": (lambda: PirateNet(3, 1), [3]),
    "DeepONet": (lambda: DeepONet(20, 2), [22]),
    "SPINN, rank 16": (Spinn, [2]),
    "convolutional net": (convolutional, [3, 14, 14]),
    "Transformer encoder layer": (
        lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0),
        [10, 32],
    ),
}
"""By name a net, and the shape of one sample."""
