"""The formula of each optimizer, once, in the order of Paddle's kernels.

A formula takes its numbers, the learning rate among them, then a gradient ``g`` and
what is kept for its parameter. Tensors and numbers of machine code (``Number`` in
``programs/codegen/elements/number.py``) both serve: a formula uses only what both have.
``maximum`` has Paddle's bits on each side: of tensors NaN of either one stays, and in
kernels, and so in machine code, NaN of the second does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Move = tuple[Any, ...]
"""The step down of a parameter, and the values kept from then on."""

Formula = Callable[..., Move]


def penalized(decay: Any, p: Any, g: Any) -> Any:
    """Return a gradient with that of a penalty, ``decay`` times half the square."""
    return g + decay * p


def sgd(rate: Any, g: Any) -> Move:
    """Go against the gradient."""
    return (rate * g,)


def momentum(rate: Any, decay: Any, g: Any, v: Any) -> Move:
    """Go along the velocity ``v``."""
    v = v * decay + g
    return rate * v, v


def nesterov(rate: Any, decay: Any, g: Any, v: Any) -> Move:
    """Go along the velocity that the next step would have."""
    v = v * decay + g
    return (g + v * decay) * rate, v


def adagrad(rate: Any, epsilon: Any, g: Any, s: Any) -> Move:
    """Divide by the root of the sum ``s`` of squares."""
    s = s + g * g
    return rate * g / (s.sqrt() + epsilon), s


def adadelta(rate: Any, rho: Any, epsilon: Any, g: Any, s: Any, d: Any) -> Move:
    """Scale by the mean squares of gradients, ``s``, and of steps, ``d``."""
    s = rho * s + (1 - rho) * (g * g)
    step = ((d + epsilon) / (s + epsilon)).sqrt() * g
    d = rho * d + (1 - rho) * (step * step)
    return rate * step, s, d


def rmsprop(rate: Any, rho: Any, epsilon: Any, decay: Any, g: Any, *state: Any) -> Move:
    """Divide by the root of the mean square, less the square of the mean if kept."""
    s, v, *means = state
    s = rho * s + (1 - rho) * (g * g)
    means = [rho * m + (1 - rho) * g for m in means]
    spread = s - means[0] * means[0] if means else s
    v = decay * v + rate * g / (spread + epsilon).sqrt()
    return v, s, v, *means


def averages(beta1: Any, beta2: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any]:
    """Return the means of gradients and of their squares, with one more gradient."""
    return beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g


def adam(rate: Any, beta1: Any, beta2: Any, epsilon: Any, g: Any, *state: Any) -> Move:
    """Divide the mean by the root of the mean square, or of its maximum if kept."""
    m, v, *largest = state
    m, v = averages(beta1, beta2, g, m, v)
    largest = [v.maximum(x) for x in largest]
    divisor = (largest[0] if largest else v).sqrt() + epsilon
    return rate * (m / divisor), m, v, *largest


def adamax(
    rate: Any, beta1: Any, beta2: Any, epsilon: Any, g: Any, *state: Any
) -> Move:
    """Divide the mean by the largest size, which decays."""
    m, v = state
    m = beta1 * m + (1 - beta1) * g
    v = abs(g).maximum(beta2 * v + epsilon)
    return rate * (m / v), m, v


def numbers_of(
    formula: Formula, rate: Any, powers: Sequence[Any], settings: Sequence[Any]
) -> Sequence[Any]:
    """Return the numbers that a formula takes, which are the same for all elements.

    Args:
        powers: the first settings to the power of the number of this step, from 1 on.
    """
    if formula is adam:
        beta1, beta2, epsilon = settings
        root = (1 - powers[1]).sqrt()
        return rate * (root / (1 - powers[0])), beta1, beta2, epsilon * root
    if formula is adamax:
        rate = rate / (1 - powers[0])
    return rate, *settings
