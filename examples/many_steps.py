"""A classifier of handwritten digits, trained by one loop of machine code.

Its steps gather their batches from all digits by numbers, and take the gradient, clip
it and move the parameters by AdamW along one cycle of rates; ``scan`` has them follow
one another without Python. The accuracy on digits not seen is measured every epoch. The
data are scikit-learn's 1797 real scans. Run it: python examples/many_steps.py; the
picture goes to output/many_steps.png.
"""

import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import paddle
import paddle.nn.functional as F
from tqdm import tqdm

from digits import EPOCHS, load
from paddle_chainrules import optimizers, scan, stateless, value_and_grad

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
digits = load()
STEPS = len(digits.batches)
paddle.seed(0)
layer = paddle.nn.Sequential(
    *(paddle.nn.Linear(64, 64), paddle.nn.LayerNorm(64), paddle.nn.GELU()),
    paddle.nn.Linear(64, 10),
)
net, start, _ = stateless(layer)
x, labels, x_test = map(paddle.to_tensor, (digits.x, digits.labels, digits.x_test))
optimizer = optimizers.chain(
    optimizers.clip_by_global_norm(1.0),
    optimizers.adamw(optimizers.schedules.one_cycle(1e-2, STEPS)),
)


def step(carry, rows):
    """A batch of digits by the numbers of their rows."""
    params, state = carry
    batch, classes = paddle.gather(x, rows), paddle.gather(labels, rows)

    def loss(params):
        return F.cross_entropy(net(params, batch), classes)

    value, grads = value_and_grad(loss)(params)
    updates, state = optimizer.update(grads, state, params)
    return (optimizers.apply_updates(params, updates), state), value


def accuracy(params):
    """On digits that were not seen."""
    found = net(params, x_test).argmax(-1).numpy()
    return float((found == digits.labels_test).mean())


def train():
    """The trained parameters, all losses, and the accuracy after each epoch."""
    rows = paddle.to_tensor(np.stack(digits.batches))
    every = STEPS // EPOCHS
    seen = []
    with tqdm(total=STEPS, unit="step") as bar:

        def report(count, carry, _):
            seen.append((count, accuracy(carry[0])))
            bar.update(count - bar.n)

        carry = start, optimizer.init(start)
        (params, _), losses = scan(step, carry, rows, on_step=report, every=every)
    return params, losses.numpy(), seen


def draw(losses, seen):
    figure, left = plt.subplots(figsize=(8, 4))
    left.plot(np.arange(1, STEPS + 1), losses, linewidth=0.6, color="tab:blue")
    left.set(xlabel="step", ylabel="cross entropy of a batch", yscale="log")
    left.yaxis.label.set_color("tab:blue")
    right = left.twinx()
    right.plot(*zip(*seen, strict=True), color="tab:orange")
    right.set(ylabel="accuracy on digits not seen", ylim=(0.8, 1.0))
    right.yaxis.label.set_color("tab:orange")
    left.set_title(f"{STEPS:,} steps of AdamW by one scan")
    left.grid(alpha=0.3)
    figure.tight_layout()
    OUTPUT.mkdir(exist_ok=True)
    figure.savefig(OUTPUT / "many_steps.png", dpi=110)


if __name__ == "__main__":
    begun = time.perf_counter()
    params, losses, seen = train()
    seconds = time.perf_counter() - begun
    print(f"{STEPS:,} steps in {seconds:.2f} s, compiling and reports included")
    print(f"loss {losses[0]:.3f} to {losses[-20:].mean():.5f}")
    print(f"accuracy on {len(digits.x_test)} digits not seen: {seen[-1][1]:.1%}")
    draw(losses, seen)
    assert seen[-1][1] > 0.96
    assert losses[-20:].mean() < 0.01
