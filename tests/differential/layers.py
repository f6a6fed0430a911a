"""Paddle's layers and nets made of them, with inputs at which they are smooth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import paddle
from paddle import nn

from .inputs import Input, ints, mask, positive, real, spread, unit


class Case(NamedTuple):
    """How a layer is made, what it is given, and in which mode and how far trained."""

    make: Callable[[], nn.Layer]
    inputs: tuple[Input, ...]
    training: bool = True
    frozen: Callable[[str], bool] = lambda name: False
    seeded: bool = False
    constant_writes: bool = False
    """It writes under no_grad, which Paddle takes for constant, and so do we."""


TABLE: dict[str, Case] = {}


def add(
    name: str, make: Callable[[], nn.Layer], *inputs: Input, **options: Any
) -> None:
    assert name not in TABLE, name
    TABLE[name] = Case(make, inputs, **options)


def both(name: str, make: Callable[[], nn.Layer], *inputs: Input) -> None:
    """In training and in evaluation."""
    add(f"{name}, training", make, *inputs)
    add(f"{name}, evaluation", make, *inputs, training=False)


def thawed(
    name: str, make: Callable[[], nn.Layer], *inputs: Input, **options: Any
) -> None:
    """Whole, with its weights frozen, and with its biases frozen."""
    add(name, make, *inputs, **options)
    add(
        f"{name}, weights frozen",
        make,
        *inputs,
        frozen=lambda n: "weight" in n,
        **options,
    )
    add(
        f"{name}, biases frozen", make, *inputs, frozen=lambda n: "bias" in n, **options
    )


# Activations, behind a Linear layer.
for name in [
    "CELU",
    "ELU",
    "GELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "ReLU",
    "ReLU6",
    "SELU",
    "Sigmoid",
    "Silu",
    "Softmax",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Swish",
    "Tanh",
    "Tanhshrink",
    "ThresholdedReLU",
    "GLU",
]:
    add(
        name,
        lambda name=name: nn.Sequential(nn.Linear(3, 4), getattr(nn, name)()),
        real(2, 3),
    )
add("PReLU", lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4)), real(2, 3))
add(
    "PReLU, frozen",
    lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4)),
    real(2, 3),
    frozen=lambda n: n == "1._weight",
)
add("Maxout", lambda: nn.Maxout(2), spread(2, 4, 3, 1))
add("Softmax2D", nn.Softmax2D, real(2, 3, 2, 2))
both("RReLU", lambda: nn.Sequential(nn.Linear(3, 4), nn.RReLU(0.2, 0.2)), real(2, 3))
add("Identity", nn.Identity, real(2, 3))

# Linear maps and convolutions.
thawed("Linear", lambda: nn.Linear(3, 4), real(2, 3))
add("Linear, no bias", lambda: nn.Linear(3, 4, bias_attr=False), real(2, 3))
add("Linear, a vector", lambda: nn.Linear(3, 4), real(3))
thawed("Bilinear", lambda: nn.Bilinear(3, 2, 4), real(5, 3), real(5, 2))
for n, shape in (1, (2, 2, 6)), (2, (1, 2, 4, 5)), (3, (1, 2, 3, 3, 4)):
    conv, back = getattr(nn, f"Conv{n}D"), getattr(nn, f"Conv{n}DTranspose")
    thawed(f"Conv{n}D", lambda conv=conv: conv(2, 3, 2), real(*shape))
    thawed(f"Conv{n}DTranspose", lambda back=back: back(2, 3, 2), real(*shape))
    add(f"Conv{n}D, strided", lambda conv=conv: conv(2, 2, 2, 2, 1), real(*shape))
add("Conv2D, groups", lambda: nn.Conv2D(4, 6, 2, groups=2), real(1, 4, 3, 4))
add("Conv2D, depthwise", lambda: nn.Conv2D(3, 3, 2, groups=3), real(1, 3, 3, 4))
add("Conv2D, dilated", lambda: nn.Conv2D(2, 3, 2, dilation=2), real(1, 2, 4, 5))
add(
    "Conv2D, channels last",
    lambda: nn.Conv2D(2, 3, 2, data_format="NHWC"),
    real(1, 4, 5, 2),
)
for mode in ("reflect", "replicate", "circular"):
    add(
        f"Conv2D, {mode}",
        lambda mode=mode: nn.Conv2D(2, 3, 3, padding=1, padding_mode=mode),
        real(1, 2, 4, 5),
    )
add(
    "Conv2DTranspose, strided",
    lambda: nn.Conv2DTranspose(2, 3, 2, 2, output_padding=1),
    real(1, 2, 3, 3),
)
add("Unfold", lambda: nn.Unfold(2), real(1, 2, 3, 4))
add("Fold", lambda: nn.Fold([3, 4], 2), real(1, 8, 6))

# Norms.
NORMS = {
    "LayerNorm": (lambda **o: nn.LayerNorm(4, **o), (3, 4)),
    "LayerNorm, two axes": (lambda **o: nn.LayerNorm([2, 4], **o), (3, 2, 4)),
    "GroupNorm": (lambda **o: nn.GroupNorm(2, 4, **o), (2, 4, 3)),
    "BatchNorm1D": (lambda **o: nn.BatchNorm1D(4, **o), (5, 4)),
    "BatchNorm2D": (lambda **o: nn.BatchNorm2D(2, **o), (2, 2, 3, 2)),
    "BatchNorm3D": (lambda **o: nn.BatchNorm3D(2, **o), (2, 2, 2, 2, 2)),
    "InstanceNorm1D": (lambda **o: nn.InstanceNorm1D(2, **o), (2, 2, 4)),
    "InstanceNorm2D": (lambda **o: nn.InstanceNorm2D(2, **o), (2, 2, 3, 2)),
}
for name, (norm, shape) in NORMS.items():
    plain = {"weight_attr": False, "bias_attr": False}

    def shaken(norm=norm, **options: Any) -> nn.Layer:
        """With scales that are not ones."""
        layer = norm(**options)
        for i, p in enumerate(layer.parameters()):
            p.set_value(paddle.linspace(0.5, 1.5 + i, p.size).reshape(p.shape))
        return layer

    both(name, shaken, real(*shape))
    add(
        f"{name}, plain",
        lambda shaken=shaken, plain=plain: shaken(**plain),
        real(*shape),
    )
    if "Instance" in name:
        continue
    add(
        f"{name}, no scale",
        lambda shaken=shaken: shaken(weight_attr=False),
        real(*shape),
    )
    add(
        f"{name}, no shift", lambda shaken=shaken: shaken(bias_attr=False), real(*shape)
    )
    for part in ("scale", "weight"), ("bias", "bias"):
        add(
            f"{name}, {part[0]} frozen",
            shaken,
            real(*shape),
            frozen=lambda n, p=part: n in part_names(p),
        )
    add(f"{name}, frozen", shaken, real(*shape), frozen=lambda n: True)


def part_names(part: tuple[str, str]) -> tuple[str, ...]:
    return part


both(
    "BatchNorm1D, of the program",
    lambda: nn.BatchNorm1D(4, use_global_stats=True),
    real(5, 4),
)
add("LocalResponseNorm", lambda: nn.LocalResponseNorm(3), real(2, 4, 3))
for mode in True, False:
    add(
        f"spectral_norm of a Linear layer, training={mode}",
        lambda: nn.utils.spectral_norm(nn.Linear(3, 4)),
        real(2, 3),
        training=mode,
        constant_writes=mode,
    )
add(
    "weight_norm of a Linear layer",
    lambda: nn.utils.weight_norm(nn.Linear(3, 4)),
    real(2, 3),
)

# Pooling, padding, resizing.
for n, shape in (1, (2, 3, 8)), (2, (1, 2, 4, 6)), (3, (1, 2, 4, 4, 2)):
    for kind in "Avg", "Max":
        add(
            f"{kind}Pool{n}D",
            lambda name=f"{kind}Pool{n}D": getattr(nn, name)(2),
            spread(*shape),
        )
        add(
            f"Adaptive{kind}Pool{n}D",
            lambda name=f"Adaptive{kind}Pool{n}D": getattr(nn, name)(2),
            spread(*shape),
        )
    add(f"Pad{n}D", lambda name=f"Pad{n}D": getattr(nn, name)(1), real(*shape))
add(
    "MaxPool2D, with mask",
    lambda: nn.MaxPool2D(2, return_mask=True),
    spread(1, 2, 4, 4),
)
add("LPPool2D", lambda: nn.LPPool2D(3, 2), positive(1, 2, 4, 4))
add("ZeroPad2D", lambda: nn.ZeroPad2D(1), real(1, 2, 3, 4))
for mode in "nearest", "bilinear", "bicubic":
    add(
        f"Upsample, {mode}",
        lambda mode=mode: nn.Upsample([5, 7], mode=mode),
        real(1, 2, 3, 4),
    )
add("PixelShuffle", lambda: nn.PixelShuffle(2), real(1, 8, 2, 3))
add("PixelUnshuffle", lambda: nn.PixelUnshuffle(2), real(1, 2, 4, 6))
add("ChannelShuffle", lambda: nn.ChannelShuffle(2), real(1, 4, 2, 3))
add("Flatten", nn.Flatten, real(2, 3, 4))
add("Unflatten", lambda: nn.Unflatten(1, [2, 3]), real(2, 6))

# Recurrent layers and attention.
for name in "LSTM", "GRU", "SimpleRNN":
    rnn = getattr(nn, name)
    thawed(name, lambda rnn=rnn: rnn(3, 4), real(2, 5, 3))
    add(f"{name}, evaluation", lambda rnn=rnn: rnn(3, 4), real(2, 5, 3), training=False)
    add(
        f"{name}, frozen",
        lambda rnn=rnn: rnn(3, 4),
        real(2, 5, 3),
        frozen=lambda n: True,
    )
    add(
        f"{name}, two layers, both ways",
        lambda rnn=rnn: rnn(3, 2, num_layers=2, direction="bidirect"),
        real(2, 4, 3),
    )
    add(f"{name}Cell", lambda name=f"{name}Cell": getattr(nn, name)(3, 4), real(2, 3))
add(
    "LSTM, initial states",
    lambda: Stated(),
    real(2, 3, 3),
    real(1, 2, 4),
    real(1, 2, 4),
)
for name in "LSTM", "GRU":
    add(
        f"{name}, both ways, several lengths",
        lambda name=name: OfLengths(getattr(nn, name)(3, 2, direction="bidirect")),
        real(2, 4, 3),
        real(2, 2, 2),
    )
add("RNN of a cell", lambda: nn.RNN(nn.GRUCell(3, 4)), real(2, 3, 3))
add(
    "BiRNN",
    lambda: nn.BiRNN(nn.SimpleRNNCell(3, 2), nn.SimpleRNNCell(3, 2)),
    real(2, 3, 3),
)
thawed("MultiHeadAttention", lambda: nn.MultiHeadAttention(4, 2), real(2, 3, 4))
add(
    "MultiHeadAttention, key and value",
    lambda: nn.MultiHeadAttention(4, 2),
    real(2, 3, 4),
    real(2, 5, 4),
    real(2, 5, 4),
)
both(
    "TransformerEncoderLayer",
    lambda: nn.TransformerEncoderLayer(4, 2, 6, 0.0),
    real(2, 3, 4),
)
add(
    "TransformerEncoder",
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6, 0.0), 2),
    real(1, 3, 4),
)
add(
    "TransformerDecoderLayer",
    lambda: nn.TransformerDecoderLayer(4, 2, 6, 0.0),
    real(1, 3, 4),
    real(1, 2, 4),
)
add(
    "Transformer",
    lambda: nn.Transformer(4, 2, 1, 1, 6, 0.0),
    real(1, 3, 4),
    real(1, 2, 4),
)

# Embeddings, distances, losses.
thawed("Embedding", lambda: nn.Embedding(5, 3), ints(5, 2, 4))
add("Embedding, padding", lambda: nn.Embedding(5, 3, padding_idx=1), ints(5, 2, 4))
add("Embedding, sparse", lambda: nn.Embedding(5, 3, sparse=True), ints(5, 2, 4))
add(
    "Embedding, sparse, padding",
    lambda: nn.Embedding(5, 3, padding_idx=1, sparse=True),
    ints(5, 2, 4),
)
add("CosineSimilarity", lambda: nn.CosineSimilarity(1), real(3, 4), real(3, 4))
add("PairwiseDistance", lambda: nn.PairwiseDistance(), real(3, 4), real(3, 4))
for name in ["MSELoss", "L1Loss", "SmoothL1Loss"]:
    add(name, getattr(nn, name), real(3, 4), real(3, 4))
add("KLDivLoss", nn.KLDivLoss, real(3, 4), unit(3, 4))
add("BCELoss", nn.BCELoss, unit(3, 4), unit(3, 4))
add("BCEWithLogitsLoss", nn.BCEWithLogitsLoss, real(3, 4), unit(3, 4))
add("CrossEntropyLoss", nn.CrossEntropyLoss, real(5, 4), ints(4, 5))
add(
    "CrossEntropyLoss, soft",
    lambda: nn.CrossEntropyLoss(soft_label=True, use_softmax=True),
    real(5, 4),
    unit(5, 4),
)
add("NLLLoss", nn.NLLLoss, real(5, 4), ints(4, 5))
add("PoissonNLLLoss", nn.PoissonNLLLoss, real(3, 4), positive(3, 4))
add("GaussianNLLLoss", nn.GaussianNLLLoss, real(3, 4), real(3, 4), positive(3, 4))
add("TripletMarginLoss", nn.TripletMarginLoss, real(3, 4), real(3, 4), real(3, 4))
add("HSigmoidLoss", lambda: nn.HSigmoidLoss(5, 4), real(3, 5), ints(4, 3, 1))
add(
    "Dropout, evaluation",
    lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5)),
    real(2, 3),
    training=False,
)
for name, shape in (
    ("Dropout", (4, 6)),
    ("Dropout2D", (2, 4, 2, 2)),
    ("AlphaDropout", (4, 6)),
):
    add(
        f"{name}, seeded",
        lambda name=name: getattr(nn, name)(0.5),
        real(*shape),
        seeded=True,
    )


# Layers as they are in the wild.
class Stated(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        return self.lstm(x, (h, c))


class OfLengths(nn.Layer):
    """A recurrent layer on sequences of several lengths, from the given states on."""

    def __init__(self, layer: nn.Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any, h: Any) -> Any:
        states = (h, h * 0.5) if isinstance(self.layer, nn.LSTM) else h
        return self.layer(x, states, paddle.to_tensor([4, 2], "int32"))


class Wild(nn.Layer):
    """Something, done with a Linear layer's weight, a buffer and the input."""

    def __init__(self, formula: Callable[..., Any], *more: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", paddle.linspace(0.5, 1.5, 3))
        self.formula, self.count, self.cache = formula, 0, None
        self.more = more

    def forward(self, x: Any) -> Any:
        return self.formula(self, x)


def wild(
    name: str, formula: Callable[..., Any], *inputs: Input, **options: Any
) -> None:
    add(name, lambda: Wild(formula), *(inputs or (real(2, 3),)), **options)


def recomputed(self: Any, x: Any) -> Any:
    h = paddle.distributed.fleet.utils.recompute(self.linear, x)
    return paddle.tanh(h) * self.scale


def recomputed_function(self: Any, x: Any) -> Any:
    body = lambda x: paddle.tanh(self.linear(x))  # noqa: E731
    return paddle.distributed.fleet.utils.recompute(body, x, use_reentrant=False)


def set_value(self: Any, x: Any) -> Any:
    with paddle.no_grad():
        self.scale.set_value(self.scale * 0.9)
    return self.linear(x) * self.scale


def set_parameter(self: Any, x: Any) -> Any:
    with paddle.no_grad():
        self.linear.bias.set_value(self.linear.bias * 0.5)
    return self.linear(x)


def assign_parameter(self: Any, x: Any) -> Any:
    with paddle.no_grad():
        paddle.assign(self.linear.bias * 0.5, output=self.linear.bias)
    return self.linear(x)


def forget_buffer(self: Any, x: Any) -> Any:
    y = self.linear(x) * self.scale
    self.scale = None
    return y


def cached(self: Any, x: Any) -> Any:
    self.cache = self.linear(x)
    return self.cache * self.scale


def counted(self: Any, x: Any) -> Any:
    self.count += 1
    return self.linear(x)


def clipped(self: Any, x: Any) -> Any:
    with paddle.no_grad():
        self.linear.weight.clip_(-0.2, 0.2)
    return self.linear(x)


def edited_input(self: Any, x: Any) -> Any:
    x = x.scale_(2.0)
    return self.linear(x) * self.scale


def edited_buffer(self: Any, x: Any) -> Any:
    self.scale.add_(paddle.ones([3]))
    return self.linear(x) * self.scale


def inner_gradient(self: Any, x: Any) -> Any:
    if x.stop_gradient:
        x = x.detach()
        x.stop_gradient = False
    with paddle.enable_grad():
        u = paddle.tanh(self.linear(x))
        (slope,) = paddle.grad(u.sum(), x, create_graph=True)
    return u + slope


def own_input(self: Any, x: Any) -> Any:
    return x


def view_of_input(self: Any, x: Any) -> Any:
    return x[:, 1:], self.linear(x).reshape([-1])


def mixed_outputs(self: Any, x: Any) -> Any:
    h = self.linear(x)
    return {
        "h": h,
        "best": h.argmax(1),
        "name": "wild",
        "none": None,
        "more": [h.sum()],
    }


def indexed(self: Any, x: Any) -> Any:
    h = self.linear(x)
    h[:, 1] = x[:, 0] * 2
    return h * self.scale


def masked(self: Any, x: Any) -> Any:
    h = self.linear(x)
    return paddle.where(h > 0, h, 0.1 * h)


def solved(self: Any, x: Any) -> Any:
    return paddle.linalg.solve(self.linear.weight + 3 * paddle.eye(3), x.T)


def solved_by_buffer(self: Any, x: Any) -> Any:
    return paddle.linalg.solve(paddle.diag(self.scale), self.linear(x).T)


def crossed(self: Any, x: Any) -> Any:
    return paddle.cross(self.linear(x), self.scale.expand([2, 3]), 1)


def fourier(self: Any, x: Any) -> Any:
    spectrum = paddle.fft.rfft(self.linear(x))
    return paddle.fft.irfft(
        spectrum * paddle.complex(self.scale[:2], self.scale[1:]), 3
    )


def fourier_features(self: Any, x: Any) -> Any:
    h = self.linear(x)
    return paddle.concat([paddle.sin(h), paddle.cos(h)], -1)


def einsummed(self: Any, x: Any) -> Any:
    return paddle.einsum("bi,ij,j->bj", x, self.linear.weight, self.scale)


def lerped(self: Any, x: Any) -> Any:
    return paddle.lerp(x, self.linear(x), self.scale[:1])


def normed_by_buffer(self: Any, x: Any) -> Any:
    return nn.functional.layer_norm(self.linear(x), 3, self.scale, None)


def columns(self: Any, x: Any) -> Any:
    a, b, c = paddle.split(x, 3, 1)
    return self.linear(paddle.concat([a, b * c, c], 1))


def plain_python(self: Any, x: Any) -> Any:
    total = 0.0
    for i in range(x.shape[0]):
        total = total + self.linear(x[i]).max() * float(i + 1)
    return total


def stopped(self: Any, x: Any) -> Any:
    return self.linear(x) * x * 0 + self.linear(x)


for formula in (
    *(recomputed, recomputed_function, set_value, set_parameter, assign_parameter),
    *(forget_buffer, cached, counted, clipped, edited_input, edited_buffer),
    *(inner_gradient, own_input, view_of_input, mixed_outputs, indexed, masked, solved),
    *(solved_by_buffer, crossed, fourier, fourier_features, einsummed, lerped, columns),
    *(normed_by_buffer, plain_python, stopped),
):
    options = {"constant_writes": formula in (set_parameter, assign_parameter, clipped)}
    wild(formula.__name__.replace("_", " "), formula, **options)
    if formula not in (solved, own_input):
        wild(
            f"{formula.__name__.replace('_', ' ')}, weights frozen",
            formula,
            frozen=lambda n: "weight" in n,
            **options,
        )


class BufferInTuple(nn.Layer):
    """As LNO's, which keeps its frequencies in a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("grid", paddle.linspace(0.5, 1.5, 3))
        self.kept = (self.grid,)

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.kept[0]


add("a buffer in a tuple", BufferInTuple, real(2, 3))


class Tied(nn.Layer):
    """One weight at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        return self.b(paddle.tanh(self.a(x)))


add("tied weights", Tied, real(2, 3))
add("tied weights, frozen", Tied, real(2, 3), frozen=lambda n: n == "a.weight")


class Hooked(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.gate = nn.Linear(3, 4)
        self.linear.register_forward_post_hook(
            lambda layer, x, y: y * paddle.tanh(self.gate(x[0]))
        )

    def forward(self, x: Any) -> Any:
        return self.linear(x)


add("a hook with a layer", Hooked, real(2, 3))


class Masked(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)

    def forward(self, x: Any, index: Any, where: Any) -> Any:
        return paddle.where(where.unsqueeze(-1), x * self.table(index), x)


add("integers and masks", Masked, real(3, 4), ints(5, 3), mask(3))
add(
    "to_static",
    lambda: paddle.jit.to_static(nn.Sequential(nn.Linear(3, 4), nn.Tanh())),
    real(2, 3),
)
add("LayerList and ParameterList", lambda: Listed(), real(2, 3))


class Listed(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(3, 3) for _ in range(2)])
        self.gains = nn.ParameterList([self.create_parameter([3]) for _ in range(2)])
        self.named = nn.LayerDict({"a": nn.Linear(3, 3)})

    def forward(self, x: Any) -> Any:
        for layer, gain in zip(self.layers, self.gains, strict=True):
            x = paddle.tanh(layer(x)) * (gain + 1)
        return self.named["a"](x)


# Small nets of the usual kinds.
add(
    "perceptron",
    lambda: nn.Sequential(
        nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 2)
    ),
    real(2, 3),
)
both(
    "convolutional net",
    lambda: nn.Sequential(
        nn.Conv2D(1, 2, 2),
        nn.BatchNorm2D(2),
        nn.Softplus(),
        nn.AvgPool2D(2),
        nn.Flatten(),
        nn.Linear(8, 2),
    ),
    real(2, 1, 5, 5),
)
both(
    "norms in a row",
    lambda: nn.Sequential(
        nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.BatchNorm1D(4), nn.Linear(4, 2)
    ),
    real(5, 3),
)
add("residual block", lambda: Residual(), real(1, 2, 4, 3))


class Residual(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2D(2, 2, 3, padding=1),
            nn.GroupNorm(1, 2),
            nn.Silu(),
            nn.Conv2D(2, 2, 3, padding=1),
        )

    def forward(self, x: Any) -> Any:
        return x + self.body(x)
