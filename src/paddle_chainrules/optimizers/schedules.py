"""Learning rates that change with the steps, as those of ``paddle.optimizer.lr``.

Each is a function of the number of steps so far, an integer or a tensor of one, which
gives a tensor in float64. Paddle's schedulers compute some rates from the rate before.
Here these are in closed form, so that a rate depends on nothing but the number of
steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from .arguments import checked

Schedule = Callable[[Any], Any]
"""Function from the number of steps so far to the learning rate."""

Rate = float | Tensor | Schedule
"""A learning rate: a number, a tensor of one, or a schedule."""


def rate_at(rate: Rate, count: Any) -> Any:
    """Return the learning rate after ``count`` steps: a number, or a tensor of one.

    Raises:
        ValueError: it is a tensor of several numbers.
    """
    if callable(rate) and not isinstance(rate, Tensor):
        rate = rate(count)
    if isinstance(rate, Tensor) and rate.ndim:
        if rate.size != 1:
            raise ValueError(
                f"a learning rate is one number, and this is {list(rate.shape)}; give "
                "one, and masks or chains for parameters that differ"
            )
        return rate.reshape([])
    return rate


def _step_count(count: Any) -> Tensor:
    if isinstance(count, Tensor):
        return count.astype("float64")
    return paddle.full([], float(count), "float64")


def _check_positive(name: str, **values: float) -> None:
    for key, value in values.items():
        if not value > 0:
            raise ValueError(
                f"{key} of {name} is {value}, and must be above zero; give a number of "
                "steps or a factor that is"
            )


@checked
def constant(rate: float) -> Schedule:
    """Return a schedule with the same rate at every step."""
    return lambda count: _step_count(count) * 0.0 + rate


@checked
def exponential_decay(rate: float, gamma: float) -> Schedule:
    """Return the schedule ``rate * gamma ** count``."""
    _check_positive("exponential_decay", gamma=gamma)
    log = math.log(gamma)
    return lambda count: rate * paddle.exp(_step_count(count) * log)


@checked
def natural_exp_decay(rate: float, gamma: float) -> Schedule:
    """Return the schedule ``rate * exp(-gamma * count)``."""
    return lambda count: rate * paddle.exp(_step_count(count) * -gamma)


@checked
def inverse_time_decay(rate: float, gamma: float) -> Schedule:
    """Return the schedule ``rate / (1 + gamma * count)``."""
    return lambda count: rate / (1.0 + gamma * _step_count(count))


@checked
def polynomial_decay(
    rate: float,
    decay_steps: int,
    end_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Schedule:
    """Go from ``rate`` to ``end_rate`` as a power of the remaining steps.

    Args:
        decay_steps: the number of steps that this takes.
        cycle: whether the rate goes up again after these steps, to fall in twice as
            many, and so on; otherwise it stays.
    """
    _check_positive("polynomial_decay", decay_steps=decay_steps)

    def schedule(count: Any) -> Tensor:
        t = _step_count(count)
        if cycle:
            cycle_end = decay_steps * paddle.ceil(t / decay_steps)
            fraction = t / paddle.where(
                cycle_end == 0.0, cycle_end + decay_steps, cycle_end
            )
        else:
            fraction = paddle.clip(t, max=float(decay_steps)) / decay_steps
        return (rate - end_rate) * (1.0 - fraction) ** power + end_rate

    return schedule


@checked
def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Schedule:
    """Take the next value from each boundary on, the first before the first boundary.

    Raises:
        ValueError: there is not one value more than there are boundaries.
    """
    if len(values) != len(boundaries) + 1:
        raise ValueError(
            f"piecewise_decay has {len(values)} values for {len(boundaries)} "
            "boundaries; give one value more than boundaries"
        )

    def schedule(count: Any) -> Tensor:
        t = _step_count(count)
        result = t * 0.0 + values[-1]
        for end, value in reversed([*zip(boundaries, values, strict=False)]):
            result = paddle.where(t < end, t * 0.0 + value, result)
        return result

    return schedule


@checked
def multi_step_decay(
    rate: float, milestones: Sequence[int], gamma: float = 0.1
) -> Schedule:
    """Multiply ``rate`` by ``gamma`` at each milestone."""
    powers = [rate * gamma**k for k in range(len(milestones) + 1)]
    return piecewise_decay(milestones, powers)


@checked
def step_decay(rate: float, step_size: int, gamma: float = 0.1) -> Schedule:
    """Multiply ``rate`` by ``gamma`` every ``step_size`` steps."""
    _check_positive("step_decay", step_size=step_size, gamma=gamma)
    log = math.log(gamma)
    return lambda count: (
        rate * paddle.exp(paddle.floor(_step_count(count) / step_size) * log)
    )


@checked
def noam_decay(width: int, warmup_steps: int, rate: float = 1.0) -> Schedule:
    """Go up for ``warmup_steps``, then down as the inverse square root.

    Source: Vaswani et al., 2017, "Attention is all you need", for a model of this
    width.
    """
    _check_positive("noam_decay", width=width, warmup_steps=warmup_steps)

    def schedule(count: Any) -> Tensor:
        t = _step_count(count)
        at_start = t == 0.0  # where Paddle has 1 for the root
        root = paddle.where(at_start, t + 1.0, t) ** -0.5
        return rate * width**-0.5 * paddle.minimum(root, t * warmup_steps**-1.5)

    return schedule


@checked
def linear_warmup(
    after: Rate, warmup_steps: int, start_rate: float, end_rate: float
) -> Schedule:
    """Go from one rate to another in ``warmup_steps``, then on with ``after``.

    Args:
        after: a rate or a schedule; a schedule gets the number of steps since then.
    """
    _check_positive("linear_warmup", warmup_steps=warmup_steps)

    def schedule(count: Any) -> Tensor:
        t = _step_count(count)
        warm = (end_rate - start_rate) * t / warmup_steps + start_rate
        later = rate_at(after, paddle.clip(t - warmup_steps, min=0.0))
        if not isinstance(later, Tensor):
            later = t * 0.0 + later
        return paddle.where(t < warmup_steps, warm, later.astype("float64"))

    return schedule


@checked
def linear(
    rate: float, total_steps: int, start_factor: float = 1 / 3, end_factor: float = 1.0
) -> Schedule:
    """Multiply ``rate`` by a factor that goes from one value to another."""
    _check_positive("linear", total_steps=total_steps)

    def schedule(count: Any) -> Tensor:
        fraction = paddle.clip(_step_count(count), max=float(total_steps)) / total_steps
        return rate * (start_factor + (end_factor - start_factor) * fraction)

    return schedule


@checked
def cosine_annealing(rate: float, steps: int, end_rate: float = 0.0) -> Schedule:
    """Go from ``rate`` to ``end_rate`` in ``steps`` and back, along a cosine."""
    _check_positive("cosine_annealing", steps=steps)
    return lambda count: (
        end_rate
        + (rate - end_rate)
        * (1.0 + paddle.cos(_step_count(count) * (math.pi / steps)))
        / 2.0
    )


@checked
def cosine_warm_restarts(
    rate: float, steps: int, factor: int = 1, end_rate: float = 0.0
) -> Schedule:
    """Go from ``rate`` to ``end_rate`` along a cosine, again and again from the start.

    Source: Loshchilov, Hutter, "SGDR: stochastic gradient descent with warm restarts",
    2017.

    Args:
        steps: the steps of the first time.
        factor: the factor by which each time is longer than the one before.
    """
    _check_positive("cosine_warm_restarts", steps=steps, factor=factor)

    def schedule(count: Any) -> Tensor:
        t = _step_count(count)
        if factor == 1:
            fraction = t / steps - paddle.floor(t / steps)
        else:
            geometric_sum = t * (factor - 1.0) / steps + 1.0
            # A whole number of times may come out just below.
            n = paddle.floor(paddle.log(geometric_sum) / math.log(factor) + 1e-12)
            length = paddle.exp(n * math.log(factor))
            cycle_start = steps * (length - 1.0) / (factor - 1.0)
            fraction = (t - cycle_start) / (steps * length)
        return (
            end_rate + (rate - end_rate) * (1.0 + paddle.cos(fraction * math.pi)) / 2.0
        )

    return schedule


@checked
def one_cycle(
    largest: float,
    total_steps: int,
    divide_factor: float = 25.0,
    end_rate: float = 0.0001,
    up_part: float = 0.3,
    anneal: str = "cos",
    three_phase: bool = False,
) -> Schedule:
    """Go up to the largest rate and down to the last.

    Source: Smith, Topin, "Super-convergence", 2018.

    Args:
        divide_factor: the factor by which the first rate is below the largest.
        up_part: the part of the steps in which the rate goes up.
        anneal: along a cosine, ``"cos"``, or a line, ``"linear"``.
        three_phase: whether it goes down as it went up, and then to the last rate.

    Raises:
        ValueError: ``anneal`` has another value.
    """
    numbers = {"total_steps": total_steps, "divide_factor": divide_factor}
    _check_positive("one_cycle", up_part=up_part, **numbers)
    first = largest / divide_factor
    up = float(up_part * total_steps) - 1.0
    if not 0.0 < up < total_steps - 1.0:
        raise ValueError(
            f"one_cycle goes up in {up_part} of {total_steps} steps less one, and down "
            "in the rest; give an up_part that leaves more than one step of each"
        )
    if three_phase:
        ends = [0.0, up, 2.0 * up, total_steps - 1.0]
        return in_phases(ends, [first, largest, first, end_rate], anneal)
    return in_phases([0.0, up, total_steps - 1.0], [first, largest, end_rate], anneal)


@checked
def in_phases(ends: Sequence[float], rates: Sequence[float], anneal: str) -> Schedule:
    """Go from one rate to the next between numbers of steps, and on after the last.

    Args:
        anneal: as for :func:`one_cycle`.
    """
    interpolate = _interpolated_rate(anneal)

    def schedule(count: Any) -> Tensor:
        t = _step_count(count)
        result = None
        for k in reversed(range(len(ends) - 1)):
            fraction = (t - ends[k]) / (ends[k + 1] - ends[k])
            rate = interpolate(rates[k], rates[k + 1], fraction)
            result = (
                rate if result is None else paddle.where(t <= ends[k + 1], rate, result)
            )
        assert result is not None
        return result

    return schedule


def _interpolated_rate(anneal: str) -> Callable[[float, float, Tensor], Tensor]:
    if anneal == "cos":
        return lambda a, b, fraction: (
            b + (a - b) / 2.0 * (1.0 + paddle.cos(fraction * math.pi))
        )
    if anneal == "linear":
        return lambda a, b, fraction: a + (b - a) * fraction
    raise ValueError(f"anneal is {anneal!r}, and must be 'cos' or 'linear'; choose one")


@checked
def cyclic(
    rate: float,
    largest: float,
    steps_up: int,
    steps_down: int | None = None,
    mode: str = "triangular",
    gamma: float = 1.0,
) -> Schedule:
    """Go up and down between two rates: Smith, "Cyclical learning rates", 2017.

    Args:
        steps_down: the same number as up if None.
        mode: how the height changes from cycle to cycle: it stays the same
            (``"triangular"``), is half of the one before (``"triangular2"``), or falls
            by ``gamma`` at each step (``"exp_range"``).

    Raises:
        ValueError: another mode.
    """
    down = steps_up if steps_down is None else steps_down
    _check_positive("cyclic", steps_up=steps_up, steps_down=down, gamma=gamma)
    if mode not in ("triangular", "triangular2", "exp_range"):
        raise ValueError(
            f"mode is {mode!r}, and must be 'triangular', 'triangular2' or "
            "'exp_range'; choose one"
        )
    size, up_part = float(steps_up + down), steps_up / (steps_up + down)

    def schedule(count: Any) -> Tensor:
        t = _step_count(count)
        cycle = paddle.floor(t / size)
        fraction = t / size - cycle
        rising = fraction <= up_part
        height = paddle.where(
            rising, fraction / up_part, (1.0 - fraction) / (1.0 - up_part)
        )
        if mode == "triangular2":
            height = height * paddle.exp(cycle * -math.log(2.0))
        elif mode == "exp_range":
            height = height * paddle.exp(t * math.log(gamma))
        return rate + (largest - rate) * height

    return schedule
