"""An ensemble that knows where it knows nothing: 16 nets, trained as one.

Lakshminarayanan, Pritzel, Blundell, "Simple and scalable predictive uncertainty
estimation using deep ensembles", 2017.
"""

import paddle
from pictures import plt, save

from paddle_chainrules import (
    FCNet,
    jit,
    optimizers,
    scan,
    stack_params,
    value_and_grad,
    vmap,
)

paddle.seed(0)
net, adam = FCNet((1, 64, 64, 1), "relu"), optimizers.adam(5e-3)
x = paddle.concat([paddle.rand([40, 1]) - 2.0, paddle.rand([40, 1]) + 1.0])
y = paddle.sin(2.0 * x) + 0.1 * paddle.randn([80, 1])


def loss(params):
    return ((net(params, x) - y) ** 2).mean()


@jit
def step(carry, _):
    members, state = carry
    values, grads = vmap(value_and_grad(loss))(members)
    updates, state = adam.update(grads, state, members)
    return (optimizers.apply_updates(members, updates), state), values


members = stack_params([net.init(seed) for seed in range(16)])
(members, _), losses = scan(step, (members, adam.init(members)), None, 2_000)

at = paddle.linspace(-4.0, 4.0, 200).unsqueeze(-1)
line = at.flatten()
each = vmap(net, (0, None))(members, at).squeeze(-1)
mean, spread = each.mean(0), each.std(0)
plt.plot(at, each.T.numpy(), color="tab:blue", alpha=0.15)
low, high = (mean - 2.0 * spread).numpy(), (mean + 2.0 * spread).numpy()
plt.fill_between(line.numpy(), low, high, alpha=0.2, label="two deviations")
plt.plot(at, mean, label="mean of 16 nets")
plt.plot(at, paddle.sin(2.0 * at), "k:", label="truth")
plt.ylim(-3.0, 3.0)
save("ensemble", x, y)
inside, outside = (line.abs() > 1.1) & (line.abs() < 1.9), line.abs() > 3.0
assert spread[outside].mean() > 5.0 * spread[inside].mean()
