"""How high derivatives of each operator go, by two ways that share no rule.

``make orders``: along a direction, gradients of gradients of the programs on one side,
Taylor series on the other. They agree to 1e-7 of the largest number as far as is said.
Writes docs/orders.md; with arguments, only operators with one of these in their names,
and nothing is written.
"""

from __future__ import annotations

import math
import re
import signal
import sys
from collections import defaultdict
from pathlib import Path
from textwrap import fill

import numpy as np
import paddle
from tqdm import tqdm

from paddle_chainrules import CaptureError, grad
from paddle_chainrules.programs import capture
from paddle_chainrules.programs.operators.table import TABLE

from .sampled import ONCE, ROUGH, Sampled
from .test_transform_rules import has, real_rows, series_by_record

PAGE = Path(__file__).parents[2] / "docs" / "orders.md"
ORDER, SECONDS = 4, 60
CLOSE = 1e-7

HEAD = """# How high derivatives of each operator go

This page gives the highest order of derivatives for each operator. `make orders` makes
it with Paddle {paddle}, in float64, for {cases} samples of {count} operators.

It takes derivatives along a direction up to order {order} in two ways that share no
rule: by `grad(grad(...))`, and by Taylor series (`derivatives`, `taylor`, `laplacian`).
An order counts if both agree to {close} of the largest value. No rule ends at order
{order}.

To order {order} or more, both ways ({full}):

{names}

To a lower order:

| operator | order | why no higher |
| --- | --- | --- |
{less}
"""


class TooLongError(Exception):
    """An order that takes more than a minute to capture."""


def _too_long(*_):
    raise TooLongError(f"order takes more than {SECONDS} s to capture")


def along(fn, directions):
    """The derivative of a scalar function along directions, by its gradients."""
    argnums = tuple(range(len(directions)))

    def slope(*xs):
        grads = grad(fn, argnums)(*xs)
        pairs = zip(grads, directions, strict=True)
        return sum((g * v).sum() for g, v in pairs)

    return slope


def highest(name, k):
    """The order to which both ways agree for one sample, and what stopped it."""
    if name in ONCE:
        return 1, "its gradient has no rule for gradients, nor has it series"
    sample = Sampled(name, k)
    if not sample.has_gradients:
        return None
    places, rng = sample.places, np.random.default_rng(3)

    def function(*moving):
        return sample.moved(moving)

    point = [sample.tensors[i] for i in places]
    directions = [paddle.to_tensor(0.3 * rng.standard_normal(x.shape)) for x in point]
    weights = [paddle.to_tensor(rng.standard_normal(y.shape)) for y in function(*point)]

    def weighted(outputs):
        pairs = zip(outputs, weights, strict=True)
        total = sum((y * w).sum() for y, w in pairs if y is not None)
        is_complex = isinstance(total, paddle.Tensor) and total.is_complex()
        return total.real() + total.imag() if is_complex else total

    def scalar(*moving):
        return weighted(function(*moving))

    nested = scalar
    for order in range(1, ORDER + 1):
        signal.alarm(SECONDS)
        try:
            nested = along(nested, directions)
            (found,) = capture(
                lambda xs, f=nested: [f(*xs)], point, check=False
            ).program(*point)
            curves = [
                [x, v, *[None] * (order - 1)]
                for x, v in zip(point, directions, strict=True)
            ]
            series = series_by_record(lambda xs: function(*xs), curves)
            last = [part[order] for part in series]
            expected = float(weighted(last)) * math.factorial(order)
        except (CaptureError, NotImplementedError, TooLongError) as error:
            return order - 1, str(error)
        finally:
            signal.alarm(0)
        scale = sum(float(abs(w).sum()) for w in weights)
        close = CLOSE * max(abs(expected), scale)
        if not abs(float(found) - expected) <= (1e3 if name in ROUGH else 1) * close:
            return order - 1, f"gradients {float(found):.12g}, series {expected:.12g}"
    return ORDER, ""


def orders(parts):
    """Of each operator the least over its samples, and what stopped it there."""
    signal.signal(signal.SIGALRM, _too_long)
    names = [name for name, entry in TABLE.items() if has(entry, "jet")]
    names = [n for n in names if not parts or any(part in n for part in parts)]
    found = defaultdict(list)
    for name in tqdm(names, unit="operator"):
        for k in real_rows(name):
            seen = highest(name, k)
            if seen is not None:
                found[name].append(seen)
                if seen[0] < ORDER:
                    tqdm.write(f"{name} {k}: {seen[0]}: {seen[1]}")
    return found


def page(found):
    """The text of docs/orders.md."""
    least = {name: min(rows) for name, rows in sorted(found.items())}
    full = [f"`{name}`" for name, (order, _) in least.items() if order == ORDER]
    rows = []
    for name, (order, why) in least.items():
        if order < ORDER:
            said = re.sub(r"^\S+:\d+: ", "", " ".join(why.split())).partition("; ")[0]
            rows.append(f"| `{name}` | {order} | {said} |")
    return HEAD.format(
        paddle=paddle.__version__,
        cases=sum(map(len, found.values())),
        count=len(found),
        order=ORDER,
        close=CLOSE,
        full=len(full),
        names=fill(", ".join(full), 88, break_on_hyphens=False),
        less="\n".join(rows),
    )


def main(parts):
    found = orders(parts)
    if parts:
        print(*found.items(), sep="\n")
    else:
        PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
