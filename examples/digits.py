"""Handwritten digits with a stateless net and a training loop written by hand.

The data are scikit-learn's 1797 real 8x8 scans. Run it: python examples/digits.py
"""

from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from paddle_chainrules import FCNet, value_and_grad

SIZES, ACTIVATION, SEED = (64, 64, 10), "relu", 0
EPOCHS, BATCH, RATE, MOMENTUM = 60, 64, 0.05, 0.9

net = FCNet(SIZES, ACTIVATION)


@dataclass(frozen=True)
class Digits:
    """Pixels in [0, 1], shape [n, 64], float32; labels 0 to 9, shape [n], int64."""

    x: np.ndarray
    labels: np.ndarray
    x_test: np.ndarray
    labels_test: np.ndarray
    batches: list[np.ndarray]
    """Positions in ``x`` of every batch of the training, in order."""


def load() -> Digits:
    """The same split and the same batches at every call."""
    data = load_digits()
    x, x_test, labels, labels_test = train_test_split(
        (data.data / 16).astype("float32"),
        data.target.astype("int64"),
        test_size=0.25,
        random_state=SEED,
        stratify=data.target,
    )
    rng = np.random.default_rng(SEED)
    full = len(x) // BATCH * BATCH
    batches = [
        part
        for _ in range(EPOCHS)
        for part in rng.permutation(len(x))[:full].reshape(-1, BATCH)
    ]
    return Digits(x, labels, x_test, labels_test, batches)


def loss(params, x, labels):
    """Mean cross entropy of the net's logits."""
    return F.cross_entropy(net.forward(params, x), labels)


def train(digits: Digits):
    """Stochastic gradient descent with momentum, from ``net.init(SEED)``.

    Returns:
        The trained parameters, and the loss of every batch before its step.
    """
    params = net.init(SEED)
    velocity = {name: paddle.zeros_like(value) for name, value in params.items()}
    gradient = value_and_grad(loss)
    losses = []
    for batch in tqdm(digits.batches, desc="Python", unit="batch", mininterval=0.5):
        x = paddle.to_tensor(digits.x[batch])
        labels = paddle.to_tensor(digits.labels[batch])
        value, grads = gradient(params, x, labels)
        for name, grad in grads.items():
            velocity[name] = MOMENTUM * velocity[name] + RATE * grad
            params[name] = params[name] - velocity[name]
        losses.append(float(value))
    return params, losses


def predict(params, x: np.ndarray) -> np.ndarray:
    """The most likely digit of each row."""
    return net.forward(params, paddle.to_tensor(x)).argmax(axis=-1).numpy()


if __name__ == "__main__":
    digits = load()
    params, losses = train(digits)
    accuracy = (predict(params, digits.x_test) == digits.labels_test).mean()
    print(f"first loss {losses[0]:.4f}, last {losses[-1]:.4f}")
    print(f"accuracy on {len(digits.x_test)} digits not seen: {accuracy:.1%}")
    assert accuracy > 0.95
