"""Steps of Paddle's optimizers within a context: one call for all parameters.

All that comes before stays Paddle's: the choice of parameters with gradients, clipping,
decay, the schedule of the learning rate. So does the first step, which makes the
tensors that an optimizer keeps. Later steps write into these tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import is_
from struct import pack
from typing import Any, NamedTuple

from paddle import Tensor
from paddle.optimizer.lr import LRScheduler

from ..optimizers.paddles import accumulated
from ..paddle_side.devices import are_on_cpu
from ..paddle_side.dtypes import dtype_name
from ..programs.codegen.elements.scalars import FLOATS
from ..programs.codegen.fused_kernels.region import ADDRESS, SHAPE, WITHOUT_GAPS
from ..programs.codegen.jit_engine import Code
from ..programs.switch import loops_are_on
from .net_calls import NoProgram
from .step_code import FIRST, StepFormula, code_of, setting_of

Native = Callable[..., Any]
Params = tuple[Tensor, ...]

DENSE = Tensor.is_dense

MAX_PLANS = 64
"""Most sets of parameters with a plan; beyond that the first set is dropped."""


class OptimizerSteps:
    """A stepper of Paddle's optimizers, without subclasses.

    Args:
        serves: tells whether to take the present call.
        tell: called with the reason if a step runs natively.

    Attributes:
        programs: how many steps ran as programs.
        natively: how many steps ran natively.
    """

    def __init__(self, serves: Callable[[], bool], tell: Callable[[str], None]) -> None:
        self.programs = self.natively = 0
        self._serves, self._tell = serves, tell
        self._plans: dict[Any, _Plan | Params] = {}
        """Plans by optimizer and parameters; the parameters alone after their first
        step."""

    def taken(self, native: Native) -> Native:
        """Wrap the method that steps with clipped and decayed gradients."""

        def create(optimizer: Any, pairs: Any, param_group_idx: int = 0) -> Any:
            if not self._serves():
                return native(optimizer, pairs, param_group_idx)
            try:
                if self._by_program(optimizer, pairs):
                    self.programs += 1
                    return []
            except NoProgram as error:
                self._tell(f"steps of {type(optimizer).__name__} run natively: {error}")
            self.natively += 1
            return native(optimizer, pairs, param_group_idx)

        return create

    def clear(self) -> None:
        """Forget all optimizers."""
        self._plans.clear()

    def _by_program(self, optimizer: Any, pairs: Any) -> bool:
        """Tell whether a program took the step; none does before all its tensors exist.

        Raises:
            NoProgram: no program can take it.
        """
        setting = setting_of(optimizer)
        if isinstance(setting, str):
            raise NoProgram(setting)
        if type(pairs) is not list:
            raise NoProgram("it has groups of parameters; give it one list")
        pairs = [pair for pair in pairs if pair[1] is not None]
        if not pairs or not loops_are_on():
            return False
        params, grads = zip(*pairs, strict=True)
        key = id(optimizer), *map(id, params)
        plan = self._plans.get(key)
        if plan is None:
            self._plans[key] = optimizer, *params  # whose places are theirs from now on
            while len(self._plans) > MAX_PLANS:
                self._plans.pop(next(iter(self._plans)))
            return False
        if not all(map(_is_plain, params)):
            raise NoProgram(
                "a parameter has a rate or a decay of its own, or is frozen; give all "
                "of them the optimizer's"
            )
        if isinstance(optimizer._learning_rate, LRScheduler):
            optimizer._create_global_learning_rate()  # has it as it is now
        if not isinstance(plan, _Plan) or not plan.is_for(optimizer, setting):
            plan = _planned(optimizer, setting, params)
            if plan is None:
                return False
            self._plans[key] = plan
        plan.run(setting, grads)
        return True


def _is_plain(p: Any) -> bool:
    """Tell whether a parameter has the optimizer's rate, and no decay of its own."""
    rate = (getattr(p, "optimize_attr", None) or {}).get("learning_rate", 1.0)
    own = type(rate) is not float or rate != 1.0 or p.stop_gradient
    return not own and getattr(p, "regularizer", None) is None


class _Plan(NamedTuple):
    """The places of all that a step reads and writes, except gradients.

    Attributes:
        kind: the part of the settings that the code is compiled for.
        names: the names of the parameters.
        held: all that the optimizer keeps for parameters, by Paddle's names.
        tensors: the rate, then each parameter with the tensors kept for it.
        addresses: the addresses of these tensors.
        like: the shapes and dtypes of gradients.
        marks: for each parameter, whether it has the last of the settings.
        table: the block between settings and gradients.
    """

    optimizer: Any
    params: Params
    kind: Any
    names: list[str]
    held: dict[str, list[Tensor]]
    tensors: list[Tensor]
    addresses: list[int]
    like: tuple[list[Any], list[Any]]
    marks: list[bool]
    table: bytes
    code: Code

    def is_for(self, optimizer: Any, setting: StepFormula) -> bool:
        """Tell whether the plan still holds."""
        return (
            setting.kind == self.kind
            and [p.name for p in self.params] == self.names
            and all(
                _are(accumulated(optimizer, name).values(), x)
                for name, x in self.held.items()
            )
            and optimizer._global_learning_rate() is self.tensors[0]
            and [*map(ADDRESS, self.tensors)] == self.addresses
            and setting.marks(self.params) == self.marks
        )

    def run(self, setting: StepFormula, grads: Sequence[Tensor]) -> None:
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
            or not are_on_cpu(grads)
        ):
            raise NoProgram(
                "a gradient is sparse, has gaps, or another shape or dtype than its "
                "parameter; make it dense"
            )
        count = len(setting.numbers)
        start = FIRST + count + len(self.table) // 8
        head = len(places), self.addresses[0], start, *setting.numbers
        self.code(
            pack(f"3q{count}d", *head) + self.table + pack(f"{len(places)}q", *places)
        )


def _are(now: Collection[Any], then: Collection[Any]) -> bool:
    return len(now) == len(then) and all(map(is_, now, then))


def _planned(optimizer: Any, setting: StepFormula, params: Params) -> _Plan | None:
    """Return the plan of a step, or None if a tensor of it does not exist yet.

    Raises:
        NoProgram: programs do not support these tensors.
    """
    rate, dtype = optimizer._global_learning_rate(), params[0].dtype
    held, names = {}, [p.name for p in params]
    rows: list[list[Any]] = [[p] for p in params]
    for name in (*setting.moments, *setting.powers):
        kept = accumulated(optimizer, name)
        for row, own in zip(rows, names, strict=True):
            row.append(kept.get(own))
        held[name] = [*kept.values()]
    tensors = [rate, *(x for row in rows for x in row)]
    if any(x is None for x in tensors):
        return None
    like, addresses = [p.shape for p in params], [*map(ADDRESS, tensors)]
    width, ones = 1 + len(setting.moments), [[1]] * len(setting.powers)
    shapes = [shape for p in like for shape in (*[p] * width, *ones)]
    if (
        dtype_name(dtype) not in FLOATS
        or any(x.dtype != dtype for x in tensors)
        or [*map(SHAPE, tensors[1:])] != shapes
        or not all(map(DENSE, tensors))
        or not all(map(WITHOUT_GAPS, tensors))
        or not are_on_cpu(tensors)
        or not all(addresses)
        or rate.size != 1
    ):
        raise NoProgram(
            "its tensors are not all of float32 or of float64 on the CPU; keep them so"
        )
    marks = setting.marks(params)
    results = iter(addresses[1:])
    table: list[int] = []
    for k, row in enumerate(rows):
        table += [row[0].size, not marks or marks[k], *(next(results) for _ in row)]
    try:
        code = code_of(setting, dtype_name(dtype))
    except MemoryError as error:
        raise NoProgram(str(error)) from None
    return _Plan(
        *(optimizer, params, setting.kind, names, held, tensors, addresses),
        *((like, [dtype] * len(params)), marks, pack(f"{len(table)}q", *table)),
        code,
    )
