"""A GAN: a generator of points on a ring, against a critic whose slope is penalized.

Mescheder et al., "Which training methods for GANs do actually converge?", 2018.
"""

import math

import paddle
from paddle.nn.functional import softplus
from pictures import plt, save

from paddle_chainrules import FCNet, derivatives, grad, jit, optimizers, scan
from paddle_chainrules.optimizers import apply_updates

generator, critic = (FCNet((n, 64, 64, m), "leaky_relu") for n, m in ((4, 2), (2, 1)))
adam = optimizers.adam(1e-3, 0.5, 0.9)
angles = paddle.arange(8, dtype="float32") * (math.pi / 4.0)
blobs = paddle.stack([angles.cos(), angles.sin()], -1)


def real(*sizes):
    return blobs[paddle.randint(0, 8, sizes)] + 0.08 * paddle.randn([*sizes, 2])


def critic_loss(params, true, fake):
    value, c_x, c_y = derivatives(critic, params, true, [(0, 0), (1, 0), (0, 1)])
    apart = softplus(-value).mean() + softplus(critic(params, fake)).mean()
    return apart + 0.01 * (c_x**2 + c_y**2).mean()


def generator_loss(params, judge, noise):
    return softplus(-critic(judge, generator(params, noise))).mean()


def moved(loss, params, state, *given):
    updates, state = adam.update(grad(loss)(params, *given), state, params)
    return apply_updates(params, updates), state


@jit
def step(carry, given):
    (made, *more), (judge, *state), (true, first, second) = *carry, given
    new_judge = moved(critic_loss, judge, *state, true, generator(made, first))
    return (moved(generator_loss, made, *more, new_judge[0], second), new_judge), None


paddle.seed(0)
carry = tuple((p, adam.init(p)) for p in (generator.init(0), critic.init(1)))
for _ in range(6):
    noises = (paddle.randn([1000, 256, 4]) for _ in range(2))
    carry, _ = scan(step, carry, (real(1000, 256), *noises))
found, true = generator(carry[0][0], paddle.randn([1000, 4])), real(1000)
plt.axis("equal")
for points, colour, name in ((true, "0.7", "true"), (found, "C0", "generated")):
    plt.plot(*points.T, ".", color=colour, markersize=2, label=name)
save("gan")
distances, blob = paddle.topk(paddle.cdist(found, blobs), 1, largest=False)
counts = blob[distances < 0.2].bincount()  # 96 % of the true points are so near
assert counts.sum() > 750
assert counts.min() > 25
