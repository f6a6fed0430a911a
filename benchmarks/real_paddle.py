"""Nets of Paddle: all families of paddle.vision.models, paddle.nn's, and small ones.

Inputs are as small as a net allows. Sources of the small ones: Ronneberger et al. 2015
(U-Net), Tolstikhin et al. 2021 (MLP-Mixer), Sitzmann et al. 2020 (SIREN), Tancik et al.
2020 (Fourier features), Radford et al. 2016 (DCGAN), Kingma and Welling 2014 (VAE).
"""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn
from paddle.vision import models

import nets
from real_comparison import Make


def images(model: Any, side: int, batch: int = 1, channels: int = 3, **kw: Any) -> Make:
    return lambda: (model(**kw), (paddle.randn([batch, channels, side, side]),))


def of(make: Any, *shapes: list[int]) -> Make:
    """A layer and inputs of these shapes."""
    return lambda: (make(), tuple(paddle.randn(shape) for shape in shapes))


VISION: dict[str, Make] = {
    "LeNet": images(models.LeNet, 28, 4, 1),
    "AlexNet": images(models.alexnet, 224, num_classes=10),
    "VGG11, convolutions": images(models.vgg11, 32, num_classes=0, with_pool=False),
    "VGG11, normalized": images(
        models.vgg11, 32, 2, num_classes=0, with_pool=False, batch_norm=True
    ),
    "ResNet18": images(models.resnet18, 32, 2, num_classes=10),
    "ResNet50": images(models.resnet50, 32, 2, num_classes=10),
    "ResNeXt50": images(models.resnext50_32x4d, 32, 2, num_classes=10),
    "wide ResNet50": images(models.wide_resnet50_2, 32, 2, num_classes=10),
    "MobileNetV1": images(models.mobilenet_v1, 32, 2, num_classes=10, scale=0.25),
    "MobileNetV2": images(models.mobilenet_v2, 32, 2, num_classes=10, scale=0.25),
    "MobileNetV3 small": images(models.mobilenet_v3_small, 32, 2, num_classes=10),
    "MobileNetV3 large": images(models.mobilenet_v3_large, 32, 2, num_classes=10),
    "DenseNet121": images(models.densenet121, 32, 2, num_classes=10),
    "SqueezeNet1.0": images(models.squeezenet1_0, 64, 2, num_classes=10),
    "SqueezeNet1.1": images(models.squeezenet1_1, 64, 2, num_classes=10),
    "GoogLeNet": images(models.googlenet, 224, num_classes=10),
    "InceptionV3": images(models.inception_v3, 96, 2, num_classes=10),
    "ShuffleNetV2 x0.25": images(models.shufflenet_v2_x0_25, 32, 2, num_classes=10),
    "ShuffleNetV2 swish": images(models.shufflenet_v2_swish, 32, 2, num_classes=10),
}


class MixerBlock(nn.Layer):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.LayerList([nn.LayerNorm(width) for _ in range(2)])
        self.across = nets.chain([tokens, 2 * tokens, tokens], nn.GELU)
        self.within = nets.chain([width, 2 * width, width], nn.GELU)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.across(self.norms[0](x).transpose([0, 2, 1]))
        x = x + mixed.transpose([0, 2, 1])
        return x + self.within(self.norms[1](x))


def mixer() -> nn.Layer:
    width = 32
    return nn.Sequential(
        *(nn.Conv2D(3, width, 4, 4), nn.Flatten(2), Transposed()),
        *(MixerBlock(16, width), MixerBlock(16, width), nn.LayerNorm(width)),
    )


class Transposed(nn.Layer):
    def forward(self, x: Tensor) -> Tensor:
        return paddle.transpose(x, [0, 2, 1])


def twice(n_in: int, n_out: int) -> nn.Layer:
    return nn.Sequential(
        *(nn.Conv2D(n_in, n_out, 3, padding=1), nn.BatchNorm2D(n_out), nn.ReLU()),
        *(nn.Conv2D(n_out, n_out, 3, padding=1), nn.BatchNorm2D(n_out), nn.ReLU()),
    )


class UNet(nn.Layer):
    def __init__(self, upsample: str = "transposed") -> None:
        super().__init__()
        self.down = nn.LayerList([twice(3, 8), twice(8, 16)])
        self.bottom = twice(16, 32)
        self.up = nn.LayerList(
            [
                nn.Conv2DTranspose(n, n // 2, 2, stride=2)
                if upsample == "transposed"
                else nn.Sequential(
                    nn.Upsample(scale_factor=2, mode=upsample), nn.Conv2D(n, n // 2, 1)
                )
                for n in (32, 16)
            ]
        )
        self.after = nn.LayerList([twice(32, 16), twice(16, 8)])
        self.last = nn.Conv2D(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for block in self.down:
            skipped.append(block(x))
            x = F.max_pool2d(skipped[-1], 2)
        x = self.bottom(x)
        for up, block in zip(self.up, self.after, strict=True):
            x = block(paddle.concat([up(x), skipped.pop()], 1))
        return self.last(x)


class VAE(nn.Layer):
    """Draws its latent values in the forward pass, in any mode."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nets.chain([20, 32, 16])
        self.decoder = nets.chain([8, 32, 20])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = paddle.split(self.encoder(x), 2, axis=-1)
        drawn = mean + paddle.exp(0.5 * log_variance) * paddle.randn(mean.shape)
        return self.decoder(drawn), mean, log_variance


class Language(nn.Layer):
    """A causal language model of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(12, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, normalize_before=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32))
        self.last = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places(paddle.arange(length))
        mask = paddle.triu(paddle.full([length, length], -1e9), 1)
        return self.last(self.encoder(x, mask))


def transformer() -> nn.Layer:
    return nn.Transformer(32, 4, 1, 2, 64)


def encoder(**kw: Any) -> nn.Layer:
    layer = nn.TransformerEncoderLayer(32, 4, 64, **kw)
    return nn.TransformerEncoder(layer, 2)


def sampled() -> nn.Layer:
    """DCGAN's generator."""
    return nn.Sequential(
        *(nn.Conv2DTranspose(16, 32, 4), nn.BatchNorm2D(32), nn.ReLU()),
        *(nn.Conv2DTranspose(32, 16, 4, 2, 1), nn.BatchNorm2D(16), nn.ReLU()),
        *(nn.Conv2DTranspose(16, 3, 4, 2, 1), nn.Tanh()),
    )


def judged() -> nn.Layer:
    """DCGAN's discriminator, of spectrally normalized convolutions."""
    return nn.Sequential(
        *(nn.utils.spectral_norm(nn.Conv2D(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2)),
        *(nn.utils.spectral_norm(nn.Conv2D(8, 16, 4, 2, 1)), nn.LeakyReLU(0.2)),
        *(nn.Flatten(), nn.Linear(256, 1)),
    )


def normalized_convolutions(norm: Any) -> nn.Layer:
    return nn.Sequential(
        *(nn.Conv2D(3, 8, 3, padding=1), norm(8), nn.SiLU(), nn.AvgPool2D(2)),
        *(nn.Conv2D(8, 16, 3, padding=1), norm(16), nn.Hardswish()),
        *(nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(16, 10)),
    )


def tokens(make: Any) -> Make:
    return lambda: (make(), (paddle.randint(0, 50, [3, 12]),))


SEQUENCE, PICTURES = [3, 7, 16], [3, 3, 16, 16]

LAYERS: dict[str, Make] = {
    "MultiHeadAttention": of(lambda: nn.MultiHeadAttention(16, 4), *[SEQUENCE] * 3),
    "TransformerEncoder": of(encoder, [3, 7, 32]),
    "TransformerEncoder, GELU, norm first": of(
        lambda: encoder(activation="gelu", normalize_before=True), [3, 7, 32]
    ),
    "Transformer": of(transformer, [3, 7, 32], [3, 5, 32]),
    "language model": tokens(Language),
    "LSTM": of(lambda: nn.LSTM(16, 8), SEQUENCE),
    "LSTM, two layers, both ways": of(
        lambda: nn.LSTM(16, 8, 2, direction="bidirect", dropout=0.2), SEQUENCE
    ),
    "GRU, two layers": of(lambda: nn.GRU(16, 8, 2), SEQUENCE),
    "GRU, both ways": of(lambda: nn.GRU(16, 8, direction="bidirect"), SEQUENCE),
    "SimpleRNN, two layers, both ways": of(
        lambda: nn.SimpleRNN(16, 8, 2, direction="bidirect"), SEQUENCE
    ),
    "RNN of a cell": of(lambda: nn.RNN(nn.LSTMCell(16, 8)), SEQUENCE),
    "Bilinear": of(lambda: nn.Bilinear(5, 6, 7), [3, 5], [3, 6]),
}

SMALL: dict[str, Make] = {
    "U-Net": of(UNet, PICTURES),
    "U-Net, bilinear": of(lambda: UNet("bilinear"), PICTURES),
    "U-Net, nearest": of(lambda: UNet("nearest"), PICTURES),
    "MLP-Mixer": of(mixer, PICTURES),
    "convolutions, BatchNorm": of(
        lambda: normalized_convolutions(nn.BatchNorm2D), PICTURES
    ),
    "convolutions, InstanceNorm": of(
        lambda: normalized_convolutions(nn.InstanceNorm2D), PICTURES
    ),
    "convolutions, GroupNorm": of(
        lambda: normalized_convolutions(lambda n: nn.GroupNorm(4, n)), PICTURES
    ),
    "VAE": of(VAE, [5, 20]),
    "DCGAN, generator": of(sampled, [3, 16, 1, 1]),
    "DCGAN, discriminator": of(judged, PICTURES),
    **{name: of(make, [16, *shape]) for name, (make, shape) in nets.NETS.items()},
}

NETS: dict[str, Make] = {
    f"{kind}: {name}": make
    for kind, found in (("vision", VISION), ("nn", LAYERS), ("small", SMALL))
    for name, make in found.items()
}
"""By name a layer and its arguments."""
