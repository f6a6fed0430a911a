"""Nets as people build them, each with its arguments; the tests of both languages."""

import numpy as np
import paddle
from paddle import nn


def randn(*shape):
    """A standard normal tensor, the same each time."""
    value = np.random.default_rng(0).standard_normal(shape)
    return paddle.to_tensor(value.astype("float32"))


class PatchEncoder(nn.Layer):
    """A small vision transformer: patches, positions, encoder, mean, head."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2D(3, 16, 4, stride=4)
        self.positions = self.create_parameter([1, 4, 16])
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 5)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose([0, 2, 1])
        return self.head(self.encoder(tokens + self.positions).mean(1))


class Tagger(nn.Layer):
    """An LSTM over padded sequences of words, with their lengths."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, direction="bidirect")
        self.head = nn.Linear(10, 3)

    def forward(self, words, lengths):
        hidden, _ = self.lstm(self.words(words), sequence_length=lengths)
        return self.head(hidden)


class SkipNet(nn.Layer):
    """Down and up again, with a connection across, as a U-Net."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2D(2, 6, 3, padding=1), nn.BatchNorm2D(6), nn.ReLU()
        )
        self.bottom = nn.Sequential(
            nn.MaxPool2D(2), nn.Conv2D(6, 8, 3, padding=1), nn.GELU()
        )
        self.up = nn.Conv2DTranspose(8, 6, 2, stride=2)
        self.out = nn.Conv2D(12, 1, 1)

    def forward(self, x):
        across = self.down(x)
        up = self.up(self.bottom(across))
        return self.out(paddle.concat([across, up], axis=1))


NETS = {
    "ResNet-18, evaluation": lambda: (
        paddle.vision.models.resnet18(num_classes=5).eval(),
        (randn(2, 3, 32, 40),),
    ),
    "ResNet-18, training": lambda: (
        paddle.vision.models.resnet18(num_classes=5),
        (randn(3, 3, 64, 64),),
    ),
    "vision transformer": lambda: (PatchEncoder(), (randn(3, 3, 8, 8),)),
    "LSTM over padded sequences": lambda: (
        Tagger(),
        (
            paddle.to_tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0]]),
            paddle.to_tensor([4, 2, 3]),
        ),
    ),
    "U-Net": lambda: (SkipNet(), (randn(2, 2, 8, 6),)),
}
