"""Steps of Paddle's optimizers within a context: one call for all parameters.

What comes before stays Paddle's own: which parameters have gradients, clipping, decay,
the schedule of the learning rate. So does the first step, which makes what an optimizer
keeps. Later ones write into the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import is_
from struct import pack
from typing import Any, NamedTuple

from paddle import Tensor
from paddle.optimizer.lr import LRScheduler

from ..paddle_side.dtypes import dtype_name
from ..programs.loops.machine import Code
from ..programs.loops.region import ADDRESS, SHAPE, WITHOUT_GAPS
from ..programs.loops.scalars import FLOATS
from ..programs.source import ON_CPU_ALONE
from ..programs.switch import loops_are_on
from .net_calls import NoProgram
from .step_code import FIRST, NATIVE, SETTINGS, Setting, code_of

Native = Callable[..., Any]

DENSE = Tensor.is_dense


class OptimizerSteps:
    """Takes the steps of optimizers that are exactly Paddle's own.

    Args:
        serves: whether this is a call to be taken.
        tell: is called with the reason where one runs as ever, and those after it will.

    Attributes:
        programs: how many steps ran as programs.
        natively: how many ran as ever.
    """

    def __init__(self, serves: Callable[[], bool], tell: Callable[[str], None]) -> None:
        self.programs = self.natively = 0
        self._serves, self._tell = serves, tell
        self._plans: dict[int, _Plan] = {}

    def taken(self, native: Native) -> Native:
        """What an optimizer does with gradients that are clipped and decayed."""

        def create(optimizer: Any, pairs: Any, param_group_idx: int = 0) -> Any:
            if not self._serves():
                return native(optimizer, pairs, param_group_idx)
            try:
                done = self._by_program(optimizer, pairs)
            except NoProgram as error:
                done = False
                name = type(optimizer).__name__
                self._tell(f"steps of {name} run as ever: {error}")
            if done:
                self.programs += 1
                return []
            self.natively += 1
            return native(optimizer, pairs, param_group_idx)

        return create

    def clear(self) -> None:
        """Forget all optimizers."""
        self._plans.clear()

    def _by_program(self, optimizer: Any, pairs: Any) -> bool:
        """Whether the step was taken, which is not before all is there.

        Raises:
            NoProgram: it can't be.
        """
        kind = type(optimizer)
        if (
            kind not in SETTINGS
            or vars(kind)["_append_optimize_op"] is not NATIVE[kind]
        ):
            raise NoProgram("there is no rule for it")
        if type(pairs) is not list:
            raise NoProgram("it has groups of parameters")
        pairs = [pair for pair in pairs if pair[1] is not None]
        if not pairs or optimizer._global_learning_rate() is None:
            return False
        if isinstance(optimizer._learning_rate, LRScheduler):
            optimizer._create_global_learning_rate()  # has it as it is now
        params, grads = zip(*pairs, strict=True)
        plan = self._plans.get(id(optimizer))
        if plan is None or not plan.is_for(optimizer, params):
            plan = _planned(optimizer, params)
            if plan is None:
                return False
            self._plans[id(optimizer)] = plan
        plan.run(grads)
        return True


class _Plan(NamedTuple):
    """Where everything is that a step reads and writes, but gradients.

    Attributes:
        attributes: the optimizer's own, of which none is another since.
        held: by name what it keeps for parameters.
        tensors: parameters, and in that order what is kept for each, last the rate.
        addresses: theirs.
        like: shapes and dtypes of gradients.
        last: of each parameter whether it has the last of the settings.
        head: the block up to the gradients.
    """

    optimizer: Any
    attributes: tuple[Any, ...]
    params: tuple[Tensor, ...]
    held: dict[str, list[Tensor]]
    tensors: list[Tensor]
    addresses: list[int]
    like: tuple[list[Any], list[Any]]
    setting: Setting
    last: list[bool]
    head: bytes
    code: Code

    def is_for(self, optimizer: Any, params: tuple[Tensor, ...]) -> bool:
        """Whether all is as it was."""
        kept = optimizer._accumulators
        return (
            _are(params, self.params)
            and _are(vars(optimizer).values(), self.attributes)
            and all(_are(kept[name].values(), x) for name, x in self.held.items())
            and optimizer._global_learning_rate() is self.tensors[-1]
            and [*map(ADDRESS, self.tensors)] == self.addresses
            and all(map(_is_plain, params))
            and not optimizer._auxiliary_vars
            and self.setting.marks(params) == self.last
        )

    def run(self, grads: Sequence[Tensor]) -> None:
        """Take the step.

        Raises:
            NoProgram: a gradient is of another kind than its parameter.
        """
        shapes, dtypes = self.like
        if (
            not all(map(DENSE, grads))
            or [*map(SHAPE, grads)] != shapes
            or [g.dtype for g in grads] != dtypes
            or not all(map(WITHOUT_GAPS, grads))
            or not all(places := [*map(ADDRESS, grads)])
            or not (ON_CPU_ALONE or all(map(_is_on_cpu, grads)))
        ):
            raise NoProgram("a gradient is sparse, has gaps, or another shape or dtype")
        self.code(self.head + pack(f"{len(places)}q", *places))


def _are(now: Collection[Any], then: Collection[Any]) -> bool:
    return len(now) == len(then) and all(map(is_, now, then))


def _is_plain(p: Any) -> bool:
    """Whether a parameter goes by the optimizer's rate, and has no decay of its own."""
    rate = (getattr(p, "optimize_attr", None) or {}).get("learning_rate", 1.0)
    own = type(rate) is not float or rate != 1.0 or p.stop_gradient
    return not own and getattr(p, "regularizer", None) is None


def _is_on_cpu(x: Tensor) -> bool:
    return bool(x.place.is_cpu_place())


def _planned(optimizer: Any, params: tuple[Tensor, ...]) -> _Plan | None:
    """Where everything is by now; None where it is not there, or code is off.

    Raises:
        NoProgram: there is something that programs don't do.
    """
    if not loops_are_on():
        return None
    setting = SETTINGS[type(optimizer)](optimizer)
    if isinstance(setting, str):
        raise NoProgram(setting)
    if any(type(x) not in (int, float) for x in setting.numbers):
        raise NoProgram("a setting is no number of Python's")
    if optimizer._auxiliary_vars or optimizer._use_multi_tensor:
        raise NoProgram("it scales gradients, or has use_multi_tensor")
    if "_append_optimize_op" in vars(optimizer):
        raise NoProgram("there is no rule for it")
    if not all(map(_is_plain, params)):
        raise NoProgram("a parameter has a rate or a decay of its own, or is frozen")
    first = f"{optimizer._name}_" if optimizer._name is not None else ""
    names = [p.name for p in params]
    held, rows = {}, [[p] for p in params]
    for name in (*setting.moments, *setting.powers):
        kept = optimizer._accumulators.get(first + name, {})
        if any(name not in kept for name in names):
            return None
        held[first + name] = [*kept.values()]
        for row, own in zip(rows, names, strict=True):
            row.append(kept[own])
    rate, dtype = optimizer._global_learning_rate(), params[0].dtype
    tensors = [x for row in rows for x in row] + [rate]
    like = [p.shape for p in params], [dtype] * len(params)
    count = 1 + len(setting.moments)
    shapes = [
        shape for p in like[0] for shape in (*[p] * count, *[[1]] * len(setting.powers))
    ]
    addresses = [*map(ADDRESS, tensors)]
    if (
        dtype_name(dtype) not in FLOATS
        or [x.dtype for x in tensors] != [dtype] * len(tensors)
        or [*map(SHAPE, tensors[:-1])] != shapes
        or not all(map(DENSE, tensors))
        or not all(map(WITHOUT_GAPS, tensors))
        or not all(map(_is_on_cpu, tensors))
        or not all(addresses)
        or rate.size != 1
    ):
        raise NoProgram("its tensors are not all float32 or all float64, on the CPU")
    width = count + len(setting.powers)
    last = setting.marks(params)
    table: list[int] = []
    for i, p in enumerate(params):
        table += [p.size, not last or last[i], *addresses[i * width : (i + 1) * width]]
    start = FIRST + len(setting.numbers) + len(table)
    head = pack("3q", len(params), addresses[-1], start)
    head += pack(f"{len(setting.numbers)}d", *setting.numbers)
    head += pack(f"{len(table)}q", *table)
    code = code_of(setting, dtype_name(dtype))
    attributes = tuple(vars(optimizer).values())
    return _Plan(
        *(optimizer, attributes, params, held, tensors, addresses, like),
        *(setting, last, head, code),
    )
