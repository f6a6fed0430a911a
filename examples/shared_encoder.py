"""One encoder that two nets share: digits told apart, and drawn again from ten numbers.

A classifier and a decoder read the same code, so the gradient of the encoder is the sum
of what comes back from both; the first step compares that with Paddle's own gradients
of the three layers. Halfway the encoder is frozen and not differentiated any more. The
data are scikit-learn's 1797 real scans. Run it: python examples/shared_encoder.py; the
picture goes to output/shared_encoder.png. ``QUICK=1`` takes half of the epochs.
"""

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import paddle
import paddle.nn.functional as F
from tqdm import tqdm

from digits import load
from paddle_chainrules import FCNet, value_and_grad

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
CODE, BATCH, RATE = 10, 64, 2e-3
EPOCHS = 16 if "QUICK" in os.environ else 30
digits = load()
VARIANCE = float(digits.x.var())
nets = {
    "encoder": FCNet((64, 64, CODE), "tanh"),
    "classifier": FCNet((CODE, 32, 10), "tanh"),
    "decoder": FCNet((CODE, 64, 64), "tanh"),
}


def outputs(params, x):
    """Logits and redrawn digits."""
    code = nets["encoder"].forward(params["encoder"], x)
    return [nets[n].forward(params[n], code) for n in ("classifier", "decoder")]


def loss(params, x, labels):
    """Of both tasks; the pixels' part is in units of their variance."""
    logits, drawn = outputs(params, x)
    return F.cross_entropy(logits, labels) + ((drawn - x) ** 2).mean() / VARIANCE


def heads_loss(heads, encoder, x, labels):
    """The same as a function of the two heads alone."""
    return loss({**heads, "encoder": encoder}, x, labels)


def native_gradients(params, x, labels):
    """Paddle's own, of layers with the same parameters."""
    layers = {}
    for name, net in nets.items():
        inner, width, out = net.sizes
        layers[name] = paddle.nn.Sequential(
            paddle.nn.Linear(inner, width),
            paddle.nn.Tanh(),
            paddle.nn.Linear(width, out),
        )
        state = net.to_state_dict(params[name], like=layers[name])
        layers[name].set_state_dict(state)
    code = layers["encoder"](x)
    told, drawn = layers["classifier"](code), layers["decoder"](code)
    error = F.cross_entropy(told, labels) + ((drawn - x) ** 2).mean() / VARIANCE
    error.backward()
    return {
        name: [p.grad for p in layer.parameters()] for name, layer in layers.items()
    }


def adam(params):
    """A function that moves the parameters in place by Adam, given gradients."""
    leaves = {
        (name, key): value.detach()
        for name, part in params.items()
        for key, value in part.items()
    }
    for leaf in leaves.values():
        leaf.stop_gradient = False
    rule = paddle.optimizer.Adam(RATE, parameters=list(leaves.values()))

    def move(grads):
        for (name, key), leaf in leaves.items():
            leaf.grad = grads[name][key]
        rule.step()

    return move


def quality(params):
    """Accuracy, and the pixels' variance that is left, on digits not seen."""
    x = paddle.to_tensor(digits.x_test)
    logits, drawn = outputs(params, x)
    right = (logits.argmax(-1).numpy() == digits.labels_test).mean()
    return float(right), float(((drawn - x) ** 2).mean()) / VARIANCE


def draw(path, params, history) -> None:
    """Digits and what the decoder makes of their codes; both tasks over training."""
    figure = plt.figure(figsize=(11, 3.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.5, 1])
    first = [int(np.flatnonzero(digits.labels_test == label)[0]) for label in range(10)]
    x = digits.x_test[first]
    logits, drawn = outputs(params, paddle.to_tensor(x))
    cells = left.subplots(2, 10)
    for column, (given, made, guess) in enumerate(
        zip(x, drawn.numpy(), logits.argmax(-1).tolist(), strict=True)
    ):
        for row, image in enumerate((given, made)):
            cells[row, column].imshow(
                image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1
            )
            cells[row, column].set_axis_off()
        cells[1, column].set_title(str(guess), color="C0" if guess == column else "C3")
    left.suptitle(
        f"Not seen: given, and drawn from {CODE} numbers with what it is read as"
    )
    axes = right.subplots()
    epochs = range(1, len(history) + 1)
    axes.semilogy(epochs, [1 - right for right, _ in history], label="wrong")
    axes.semilogy(epochs, [rest for _, rest in history], label="variance left")
    axes.axvline(EPOCHS / 2 + 0.5, color="C7", linestyle=":", label="encoder frozen")
    axes.set(xlabel="epoch", ylabel="share", title="On digits not seen")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    params = {name: net.init(seed) for seed, (name, net) in enumerate(nets.items())}
    x, labels = (paddle.to_tensor(v[:BATCH]) for v in (digits.x, digits.labels))
    _, grads = value_and_grad(loss)(params, x, labels)
    for name, expected in native_gradients(params, x, labels).items():
        for grad, other in zip(grads[name].values(), expected, strict=True):
            np.testing.assert_allclose(
                grad.numpy(), other.numpy(), rtol=1e-4, atol=1e-6
            )

    rng, history = np.random.default_rng(0), []
    heads = {name: params[name] for name in ("classifier", "decoder")}
    move_all, move_heads = adam(params), adam(heads)
    of_all, of_heads = value_and_grad(loss), value_and_grad(heads_loss)
    for epoch in tqdm(range(EPOCHS), desc="Digits", unit="epoch"):
        if epoch == EPOCHS // 2:
            kept = {name: p.clone() for name, p in params["encoder"].items()}
        for batch in np.array_split(
            rng.permutation(len(digits.x)), len(digits.x) // BATCH
        ):
            x = paddle.to_tensor(digits.x[batch])
            labels = paddle.to_tensor(digits.labels[batch])
            if epoch < EPOCHS // 2:
                move_all(of_all(params, x, labels)[1])
            else:
                move_heads(of_heads(heads, params["encoder"], x, labels)[1])
        history.append(quality(params))
    draw(OUTPUT / "shared_encoder.png", params, history)
    right, rest = history[-1]
    print(
        f"{right:.1%} of {len(digits.x_test)} digits not seen are told apart, and drawn"
    )
    print(f"again from {CODE} numbers with {rest:.1%} of their variance left")
    assert all(bool((kept[n] == p).all()) for n, p in params["encoder"].items())
    assert right > 0.93
    assert rest < 0.35
