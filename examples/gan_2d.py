"""Two nets against each other: a generator of points on a ring of eight blobs.

A GAN with a penalty on the critic's slope (Mescheder, Geiger and Nowozin, "Which
training methods for GANs do actually converge?", ICML 2018). Each step differentiates
its own net alone; the slope is carried through the critic, so that one reverse pass
follows. Run it: python examples/gan_2d.py; the picture goes to output/gan_2d.png.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import paddle
from paddle.nn.functional import softplus
from tqdm import tqdm

from paddle_chainrules import FCNet, derivatives, value_and_grad

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
STEPS, BATCH, PENALTY = 6000, 256, 0.02
SHOWN = (0, 300, 1000, STEPS)
BLOBS, SPREAD = 8, 0.08
generator = FCNet((4, 64, 64, 2), "leaky_relu")
critic = FCNet((2, 64, 64, 1), "leaky_relu")

angles = 2 * np.pi * np.arange(BLOBS) / BLOBS
CENTERS = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
rng = np.random.default_rng(0)


def real(n):
    """Points of the ring, [n, 2]."""
    points = CENTERS[rng.integers(BLOBS, size=n)]
    return (points + SPREAD * rng.standard_normal((n, 2))).astype("float32")


def noise(n):
    return paddle.to_tensor(rng.standard_normal((n, 4)).astype("float32"))


def critic_loss(params, true, fake):
    """How badly the critic tells them apart, and how steep it is at the true ones."""
    value, c_x, c_y = derivatives(critic, params, true, [(0, 0), (1, 0), (0, 1)])
    steep = (c_x**2 + c_y**2).mean()
    apart = softplus(-value).mean() + softplus(critic.forward(params, fake)).mean()
    return apart + PENALTY / 2 * steep


def generator_loss(params, critic_params, z):
    """How little the critic takes the generated points for true ones."""
    judged = critic.forward(critic_params, generator.forward(params, z))
    return softplus(-judged).mean()


def adam(params, rate):
    """A function that moves the parameters in place by Adam, given gradients."""
    leaves = {name: value.detach() for name, value in params.items()}
    for leaf in leaves.values():
        leaf.stop_gradient = False
    rule = paddle.optimizer.Adam(rate, 0.5, 0.9, parameters=list(leaves.values()))

    def move(grads):
        for name, leaf in leaves.items():
            leaf.grad = grads[name]
        rule.step()

    return move


def quality(points):
    """Share of points that lie on a blob, and how many blobs get enough.

    On a blob is within 2.5 spreads: 96 % of the true points, half of an even ring.
    """
    apart = np.linalg.norm(points[:, None] - CENTERS, axis=-1)
    close = apart.min(axis=1) < 2.5 * SPREAD
    hit = np.bincount(apart.argmin(axis=1)[close], minlength=BLOBS)
    return close.mean(), int((hit > len(points) / (5 * BLOBS)).sum())


def draw(path, samples, losses) -> None:
    """Samples over training, and both losses."""
    figure, panels = plt.subplots(
        1, len(samples) + 1, figsize=(15, 3.4), layout="constrained"
    )
    for axes, (step, points) in zip(panels, samples.items(), strict=False):
        axes.scatter(*real(1000).T, s=2, color="C7", label="true")
        axes.scatter(*points.T, s=2, color="C1", label="generated")
        axes.set(title=f"after {step} steps", xlim=(-1.6, 1.6), ylim=(-1.6, 2.1))
        axes.set_aspect("equal")
    panels[0].legend(loc="upper center", markerscale=4, ncols=2)
    for name, values in losses.items():
        panels[-1].plot(values, linewidth=0.6, label=name)
    panels[-1].set(title="losses", xlabel="step", ylim=(0, None))
    panels[-1].legend()
    panels[-1].grid(alpha=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    made, judged = generator.init(0), critic.init(1)
    move_generator, move_critic = adam(made, 1e-3), adam(judged, 1e-3)
    judge, make = value_and_grad(critic_loss), value_and_grad(generator_loss)
    fixed, samples = noise(1000), {}
    losses = {"critic": [], "generator": []}
    with tqdm(total=STEPS, desc="GAN", unit="step") as bar:
        for step in range(STEPS + 1):
            if step in SHOWN:
                samples[step] = generator.forward(made, fixed).numpy()
            true = paddle.to_tensor(real(BATCH))
            loss, grads = judge(judged, true, generator.forward(made, noise(BATCH)))
            move_critic(grads)
            losses["critic"].append(float(loss))
            loss, grads = make(made, judged, noise(BATCH))
            move_generator(grads)
            losses["generator"].append(float(loss))
            bar.update()
    share, blobs = quality(samples[STEPS])
    draw(OUTPUT / "gan_2d.png", samples, losses)
    print(f"{share:.0%} of the samples lie on the ring's blobs, on {blobs} of {BLOBS}")
    assert share > 0.75
    assert blobs == BLOBS
