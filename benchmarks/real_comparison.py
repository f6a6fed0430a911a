"""One net beside its program: what each gives, whether the layer is as it was, times.

All of it in float32. Gradients are those of sum(output * cotangent), by every parameter
and every floating input.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.nn import Layer

from paddle_chainrules import explain, stateless
from paddle_chainrules.testing.timings import interleave, timer

SEED = 3
FORWARD_ULP, GRADIENT_ULP = 8, 64
"""What may lie between the two, in units of the last place of the largest entry."""

NOISE = 4
"""Beyond these, how many times what a change of the last place of all parameters and
inputs does to native Paddle's own result; more is wrong."""

ROUND_SECONDS = 0.01
LONG_SECONDS = 0.2
"""Seconds of a round, and of a call from which there are a quarter of the rounds."""

Make = Callable[[], tuple[Layer, tuple[Any, ...]]]
"""A layer and its arguments."""


def mapped(tree: Any, function: Callable[[Tensor], Any]) -> Any:
    """The same nest, with a function of its tensors, and None for anything else."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)([mapped(value, function) for value in tree])
    return None


def tensors(tree: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a nest by name, in an order that depends on names alone."""
    if isinstance(tree, Tensor):
        yield name, tree
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from tensors(tree[key], f"{name}[{key!r}]")
    if isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from tensors(value, f"{name}[{i}]")


def floats(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def cotangent_of(tensor: Tensor) -> Tensor | None:
    return paddle.randn(tensor.shape).astype(tensor.dtype) if floats(tensor) else None


def state_of(layer: Layer) -> dict[str, Any]:
    """All that a call may not change: numbers, flags and the names of attributes."""
    found: dict[str, Any] = {}
    for name, value in [*layer.named_parameters(), *layer.named_buffers()]:
        if value._is_initialized():
            flags = value.stop_gradient, value.grad is None
            found[name] = (id(value), value.numpy().tobytes(), *flags)
    for name, sub in layer.named_sublayers(include_self=True):
        found[f"layer {name}"] = sub.training, sorted(vars(sub))
    return found


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    names = dict.fromkeys([*before, *after])
    return [name for name in names if before.get(name) != after.get(name)]


def distance(found: Tensor | None, expected: Tensor | None) -> float:
    """In units of the last place of the largest entry; 0 where the bits are equal."""
    if found is None or expected is None:
        other = expected if found is None else found
        return 0.0 if other is None or not np.any(other.numpy()) else float("inf")
    a, b = found.numpy(), expected.numpy()
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if np.array_equal(a, b, equal_nan=floats(expected)):
        return 0.0
    far = np.abs(a - b).max()
    unit = np.spacing(np.abs(b).max()) if floats(expected) else 0
    return float(far / unit) if np.isfinite(far) and unit else float("inf")


class Subject:
    """A layer with its arguments, natively and as a net of programs, in one mode."""

    def __init__(self, make: Make, training: bool) -> None:
        paddle.seed(0)
        self.layer, self.args = make()
        self.layer.train() if training else self.layer.eval()
        named = [*self.layer.named_parameters(), *self.layer.named_buffers()]
        self._own = {n: v for n, v in named if v._is_initialized()}
        self._values = {name: value.clone() for name, value in self._own.items()}
        self.leaves = mapped(self.args, lambda t: t.detach())
        for _, leaf in tensors(self.leaves):
            leaf.stop_gradient = not floats(leaf)
        trained = [(n, p) for n, p in self._own.items() if not p.stop_gradient]
        given = tensors(self.leaves, "input")
        self.wanted = [*trained, *((n, t) for n, t in given if not t.stop_gradient)]
        self.net, self.params, self.buffers = stateless(self.layer, jit=True)
        self.cotangents: Any = None

    def restore(self, nudge: float = 0.0) -> None:
        """The numbers of the beginning, or in their neighbourhood."""
        rng = np.random.default_rng(0)

        def near(value: Tensor) -> Tensor:
            if not nudge or not value.is_floating_point():
                return value
            signs = rng.choice([-1.0, 1.0], value.shape).astype(value.numpy().dtype)
            return value * (1 + nudge * paddle.to_tensor(signs))

        with paddle.no_grad():
            for name, value in self._values.items():
                paddle.assign(near(value), self._own[name])
            arguments = dict(tensors(mapped(self.args, lambda t: t.detach())))
            for name, leaf in tensors(self.leaves):
                paddle.assign(near(arguments[name]), leaf)

    def native(self, seed: int | None = None) -> tuple[dict[str, Any], ...]:
        """Outputs and new buffers, and gradients, of the layer as Paddle runs it."""
        if seed is not None:
            paddle.seed(seed)
        output = self.layer(*self.leaves)
        outputs = dict(tensors(output, "output"))
        if self.cotangents is None:
            self.cotangents = mapped(output, cotangent_of)
        given = dict(tensors(self.cotangents, "output"))
        used = [n for n in given if not outputs[n].stop_gradient]
        leaves = [tensor for _, tensor in self.wanted]
        grads: list[Any] = [None] * len(leaves)
        if used:
            ends, seeds = [outputs[n] for n in used], [given[n] for n in used]
            grads = paddle.grad(ends, leaves, seeds, allow_unused=True)
        return outputs, {n: g for (n, _), g in zip(self.wanted, grads, strict=True)}

    def program(self, seed: int | None = None) -> tuple[dict[str, Any], ...]:
        """The same of the net."""
        more: dict[str, Any] = {} if seed is None else {"seed": seed}
        if self.layer.training and self.buffers:
            more["buffers"] = self.buffers
        output, pullback, *new = self.net.pullback(self.params, *self.args, **more)
        grads, by_args = pullback(self.cotangents)
        outputs = dict(tensors(output, "output"))
        if seed is not None and new:
            outputs |= new[0]
        return outputs, {**grads, **dict(tensors(by_args, "input"))}

    def expected(self, nudge: float = 0.0) -> tuple[dict[str, Any], ...]:
        """As :meth:`native` of the numbers of the beginning, with buffers after it."""
        self.restore(nudge)
        outputs, grads = self.native(SEED)
        after = {n: self._own[n].clone() for n in self.buffers if n in self._own}
        if self.layer.training:
            outputs |= after
        self.restore()
        return outputs, grads

    def changes_in_training(self) -> bool:
        """Whether a call in training gives, or leaves behind, something else."""
        found = []
        for training in (False, True):
            self.layer.train() if training else self.layer.eval()
            paddle.seed(SEED)
            with paddle.no_grad():
                outputs = dict(tensors(self.layer(*self.leaves)))
            left = {n: value.clone() for n, value in self._own.items()}
            found.append({**outputs, **left})
            self.restore()
        first, second = found
        both = first.keys() == second.keys()
        return not both or any(distance(first[n], second[n]) for n in first)


def furthest(found: Any, expected: Any) -> dict[str, float]:
    """By name how far apart they are, where they are."""
    far = {n: distance(found.get(n), expected.get(n)) for n in {**found, **expected}}
    return {name: ulp for name, ulp in far.items() if ulp}


def judged(
    far: dict[str, float], noise: Callable[[], Any], limit: float
) -> tuple[float, list[str], list[str]]:
    """How far off all is, what is wrong, and what is rounding and nothing else.

    Such as the gradient of a bias that a normalization takes off again: 0 in exact
    arithmetic. A change of the last place of all numbers changes all of it.
    """
    around = noise() if max(far.values(), default=0.0) > limit else {}
    own = {name: around.get(name, 0.0) for name in far}
    rounding = [n for n, ulp in far.items() if limit < ulp <= NOISE * own[n]]
    off = {name: ulp for name, ulp in far.items() if name not in rounding}
    faults = [
        f"{name} is {ulp:.3g} ulp off, a last place changes it by {own[name]:.3g}"
        for name, ulp in off.items()
        if ulp > limit
    ]
    return max(off.values(), default=0.0), faults, rounding


def first_line(error: object) -> str:
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return re.sub(r"/\S*/(?:site-packages|benchmarks|src)/", "", line)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def how_it_runs(subject: Subject) -> tuple[bool, str]:
    """Whether the net runs as a program, and if not why."""
    runs = str(subject.net.describe().runs)
    if runs.startswith("It runs as a program"):
        return True, ""
    if "kinds of calls: " in runs:
        return False, first_line(runs.partition("kinds of calls: ")[2])
    said = explain(subject.net.forward, subject.params, *subject.args)
    return False, f"no program is tried; explain: {first_line(said)}"


def compared(
    make: Make, training: bool, always: bool, rounds: int
) -> dict[str, Any] | None:
    """A row of the table; None for training that is nothing else than evaluation.

    Args:
        always: a row for it all the same.
    """
    try:
        subject = Subject(make, training)
    except (ImportError, FileNotFoundError) as error:
        return {"status": "skipped", "why": first_line(error)}
    except Exception as error:
        return {"status": "not built", "why": first_line(error)}
    layer = subject.layer
    row: dict[str, Any] = {"parameters": sum(p.size for p in subject.params.values())}
    try:
        if training and not always and not subject.changes_in_training():
            return None
        layer.train() if training else layer.eval()
        seconds, _ = timed(subject.native)
        subject.restore()
    except Exception as error:
        return {**row, "status": "not run by Paddle", "why": first_line(error)}
    before = state_of(layer)
    try:
        first = [timed(lambda: subject.program(SEED)) for _ in range(3)]
    except Exception as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        return {**row, "status": "raised", "why": why}
    row["first"] = {"native": seconds, "program": first[0][0] + first[1][0]}
    captured, why = how_it_runs(subject)
    touched = changes(before, state_of(layer))
    outputs, grads = subject.expected()
    far_out: dict[str, float] = {}
    far_grads: dict[str, float] = {}
    for _, (found_out, found_grads) in first:
        far_out |= furthest(found_out, outputs)
        far_grads |= furthest(found_grads, grads)

    def around(which: int) -> Callable[[], dict[str, float]]:
        nudged = (outputs, grads)[which]
        return lambda: furthest(subject.expected(2**-23)[which], nudged)

    by_forward, wrong, loose = judged(far_out, around(0), FORWARD_ULP)
    by_gradient, more_wrong, more_loose = judged(far_grads, around(1), GRADIENT_ULP)
    faults = wrong + more_wrong + [f"{name} is touched" for name in touched]
    status = "captured" if captured else "explained"
    row |= {"status": "wrong" if faults else status, "captured": captured, "why": why}
    row |= {"forward_ulp": by_forward, "gradient_ulp": by_gradient, "faults": faults}
    row["rounding"] = loose + more_loose
    again, _ = timed(subject.native)
    calls = max(1, int(ROUND_SECONDS / again))
    rounds = rounds if again < LONG_SECONDS else max(2, rounds // 4)
    both = {"native": timer(subject.native), "program": timer(subject.program)}
    row["us"] = interleave(both, rounds, calls)
    return row
