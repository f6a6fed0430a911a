"""Per-sample gradients of a convolutional net: which digits it learns most from.

One call gives the gradient of each image; the largest norms are of badly written ones.
"""

import paddle
import paddle.nn.functional as F
from pictures import plt, save
from sklearn.datasets import load_digits

from paddle_chainrules import grad, jit, optimizers, scan, stateless, vmap

paddle.seed(0)
layer = paddle.nn.Sequential(
    paddle.nn.Conv2D(1, 8, 3, padding=1),
    paddle.nn.ReLU(),
    paddle.nn.MaxPool2D(2),
    paddle.nn.Flatten(),
    paddle.nn.Linear(128, 10),
)
net, params, _ = stateless(layer)
digits = load_digits()
images = paddle.to_tensor(digits.images / 16.0, "float32").unsqueeze(1)
labels = paddle.to_tensor(digits.target)
adam = optimizers.adam(3e-3)


def loss(params, images, labels):
    return F.cross_entropy(net(params, images), labels)


@jit
def step(carry, rows):
    params, state = carry
    batch = paddle.gather(images, rows), paddle.gather(labels, rows)
    updates, state = adam.update(grad(loss)(params, *batch), state, params)
    return (optimizers.apply_updates(params, updates), state), None


rows = paddle.randint(0, len(labels), [600, 64])
(params, _), _ = scan(step, (params, adam.init(params)), rows)


def norm(params, image, label):
    grads = grad(loss)(params, image.unsqueeze(0), label.unsqueeze(0))
    return sum((g**2).sum() for g in grads.values()).sqrt()


norms = jit(vmap(norm, (None, 0, 0)))(params, images, labels)
order = norms.argsort(descending=True)
_, panels = plt.subplots(2, 8, figsize=(7.0, 2.2))
for panel, k in zip(panels.flat, [*order[:8], *order[-8:]], strict=True):
    panel.imshow(images[int(k), 0], cmap="gray_r")
    panel.set_title(f"{int(labels[int(k)])}: {float(norms[int(k)]):.1e}", size=8)
    panel.axis("off")
save("per_sample")
assert norms[order[0]] > 100.0 * norms.median()
