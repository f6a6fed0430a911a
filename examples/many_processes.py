"""Real digits, trained by as many processes as one starts, with checkpoints.

Two processes on one machine:

    python -m paddle.distributed.launch --nproc_per_node 2 examples/many_processes.py

By itself it is one process. Started again it goes on from its last checkpoint.
"""

import sys
from pathlib import Path

import paddle
import paddle.nn.functional as F
from tqdm import tqdm

import digits
from paddle_chainrules import distributed, stateless

STEPS, EVERY, RATE, MOMENTUM, SEED = 300, 100, 0.1, 0.9, 0
CHECKPOINT = Path(sys.argv[1] if len(sys.argv) > 1 else "output/digits.safetensors")

distributed.start()
paddle.seed(SEED)
net, params, _ = stateless(
    paddle.nn.Sequential(
        paddle.nn.Linear(64, 64),
        paddle.nn.ReLU(),
        paddle.nn.Dropout(0.1),
        paddle.nn.Linear(64, 10),
    )
)


def loss(params, x, labels, seed):
    """Mean cross entropy, with the dropout of a seed."""
    return F.cross_entropy(net.forward(params, x, seed=seed), labels)


def count(params, x, labels, seed):
    """What a shard counts for."""
    return len(x)


def main():
    data = digits.load()
    zeros = {name: paddle.zeros_like(value) for name, value in params.items()}
    state = {"params": distributed.broadcast(params), "velocity": zeros, "step": 0}
    if CHECKPOINT.exists():
        state = distributed.load_checkpoint(CHECKPOINT)
    CHECKPOINT.parent.mkdir(exist_ok=True)
    first = distributed.rank() == 0
    gradient = distributed.value_and_grad(loss, weight=count)
    steps = range(state["step"], STEPS)
    for step in tqdm(steps, unit="step", mininterval=0.5, disable=not first):
        batch = data.batches[step % len(data.batches)]
        x, labels = distributed.shard((data.x[batch], data.labels[batch]))
        x, labels = paddle.to_tensor(x), paddle.to_tensor(labels)
        seed = distributed.seed(step)
        value, grads = gradient(state["params"], x, labels, seed)
        for name, grad in grads.items():
            velocity = MOMENTUM * state["velocity"][name] + RATE * grad
            state["velocity"][name] = velocity
            state["params"][name] = state["params"][name] - velocity
        state["step"] = step + 1
        if state["step"] % EVERY == 0:
            distributed.save_checkpoint(CHECKPOINT, state)
            if first:
                tqdm.write(f"step {state['step']}: loss {float(value):.4f}")
    guess = net.in_mode(False).forward(state["params"], paddle.to_tensor(data.x_test))
    accuracy = (guess.argmax(axis=-1).numpy() == data.labels_test).mean()
    if first:
        print(f"{distributed.size()} processes, {accuracy:.1%} of digits not seen")
    assert accuracy > 0.95


if __name__ == "__main__":
    main()
