"""Transforms called without ``jit``, as ever and once they are programs unasked.

``make bench-transforms``: an MLP 3-64-64-64-1 at 64 samples, float32, one thread, sides
in turn; each transform made anew at each call, as users write it. PyTorch's own where
it is installed. Prints Markdown, leaves JSON in output/.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import paddle

from batches import in_torch, ratios
from machine import save
from paddle_chainrules import (
    FCNet,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    value_and_grad,
    vmap,
)
from paddle_chainrules.testing.timings import interleave, timer

ROUNDS = 10 if "QUICK" in os.environ else 60
SLOW = 20
"""Rounds of the calls as ever."""
SIZES = (3, 64, 64, 64, 1)

Make = Callable[[], Callable[..., Any]]


def tasks() -> dict[str, tuple[Make, tuple[Any, ...]]]:
    """By name what makes the transformed function, and its arguments."""
    net = FCNet(SIZES, "tanh")
    params, x = net.init(0), paddle.rand([64, 3])
    y, tangent = x[:, :1].sin(), paddle.ones([64, 3])

    def loss(params: Any, x: Any, y: Any) -> Any:
        return ((net(params, x) - y) ** 2).mean()

    def one(params: Any, x: Any, y: Any) -> Any:
        return ((net(params, x) - y) ** 2).sum()

    def value(x: Any) -> Any:
        return net(params, x).sum()

    def many(x: Any) -> Any:
        return net(params, x)

    return {
        "value_and_grad": (lambda: value_and_grad(loss), (params, x, y)),
        "vmap(grad)": (lambda: vmap(grad(one), (None, 0, 0)), (params, x, y)),
        "vmap(jacrev)": (lambda: vmap(jacrev(many)), (x,)),
        "vmap(hessian)": (lambda: vmap(hessian(value)), (x,)),
        "hessian, 2 samples": (lambda: hessian(value), (x[:2],)),
        "jacfwd, 2 samples": (lambda: jacfwd(many), (x[:2],)),
        "jvp": (lambda: _along(value, tangent), (x,)),
    }


def _along(fn: Any, tangent: Any) -> Callable[..., Any]:
    return lambda x: jvp(fn, (x,), (tangent,))


def peers(torch: Any) -> dict[str, Callable[[], Any]]:
    """The same calls of torch.func's."""
    func = torch.func
    params = in_torch(torch, FCNet(SIZES, "tanh").init(0))
    x = torch.rand(64, 3)
    y, tangent = torch.sin(x[:, :1]), torch.ones(64, 3)

    def loss(params: Any, x: Any, y: Any) -> Any:
        return ((net(params, x) - y) ** 2).mean()

    def one(params: Any, x: Any, y: Any) -> Any:
        return ((net(params, x) - y) ** 2).sum()

    def net(params: Any, x: Any) -> Any:
        for i in range(4):
            x = x @ params[f"{i}.weight"] + params[f"{i}.bias"]
            x = torch.tanh(x) if i < 3 else x
        return x

    def value(x: Any) -> Any:
        return net(params, x).sum()

    def many(x: Any) -> Any:
        return net(params, x)

    return {
        "value_and_grad": lambda: func.grad_and_value(loss)(params, x, y),
        "vmap(grad)": lambda: func.vmap(func.grad(one), (None, 0, 0))(params, x, y),
        "vmap(jacrev)": lambda: func.vmap(func.jacrev(many))(x),
        "vmap(hessian)": lambda: func.vmap(func.hessian(value))(x),
        "hessian, 2 samples": lambda: func.hessian(value)(x[:2]),
        "jacfwd, 2 samples": lambda: func.jacfwd(many)(x[:2]),
        "jvp": lambda: func.jvp(value, (x,), (tangent,)),
    }


def table(rows: dict[str, Any]) -> str:
    lines = [
        "| without jit | in jit, us | after some calls | no program | PyTorch "
        "| first call in jit, ms |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        us = found["us"]
        cells = ratios(us, "jit", ("kept", "ever", "PyTorch"))
        first = f"{1e3 * found['first']:.0f}"
        row = [name, f"{us['jit']['min']:.0f}", *cells, first]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> None:
    theirs = {}
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        theirs = peers(torch)
    rows = {}
    for name, (make, args) in tasks().items():
        made = make()
        jitted, ever = jit(made), getattr(made, "__wrapped__", None)
        start = perf_counter()
        jitted(*args)
        first = perf_counter() - start
        sides: dict[str, Callable[[], Any]] = {
            "jit": lambda f=jitted, a=args: f(*a),
            "kept": lambda make=make, a=args: make()(*a),
        }
        if name in theirs:
            sides["PyTorch"] = theirs[name]
        for _ in range(40):  # machine code comes at the 33rd
            for call in sides.values():
                call()
        us = interleave({s: timer(c) for s, c in sides.items()}, ROUNDS, 1, name)
        if ever is not None:  # jvp has no function of its own
            us |= interleave({"ever": timer(lambda f=ever, a=args: f(*a))}, SLOW, 1)
        rows[name] = {"us": us, "first": first}
    print(table(rows))
    save("transforms", {"rows": rows})


if __name__ == "__main__":
    main()
