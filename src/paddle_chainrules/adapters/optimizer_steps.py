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

from ..optimizers.paddles import accumulators_of
from ..paddle_side.devices import are_on_cpu
from ..paddle_side.dtypes import FLOATS, dtype_name
from ..paddle_side.shared_memory import ADDRESS, SHAPE, WITHOUT_GAPS
from ..settings import loops_are_on
from .net_calls import NoProgram
from .step_code import FIRST_SETTING, StepFormula, compiled_step, step_formula_of

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
        self._plans: dict[Any, _StepPlan | Params] = {}
        """Plans by optimizer and parameters; the parameters alone after their first
        step."""

    def wrapped_step(self, native: Native) -> Native:
        """Wrap the method that steps with clipped and decayed gradients."""

        def step(optimizer: Any, pairs: Any, param_group_idx: int = 0) -> Any:
            if not self._serves():
                return native(optimizer, pairs, param_group_idx)
            try:
                if self._step_by_program(optimizer, pairs):
                    self.programs += 1
                    return []
            except NoProgram as error:
                self._tell(f"steps of {type(optimizer).__name__} run natively: {error}")
            self.natively += 1
            return native(optimizer, pairs, param_group_idx)

        return step

    def clear(self) -> None:
        """Forget all optimizers."""
        self._plans.clear()

    def _step_by_program(self, optimizer: Any, pairs: Any) -> bool:
        """Tell whether a program took the step; none does before all its tensors exist.

        Raises:
            NoProgram: no program can take it.
        """
        formula = step_formula_of(optimizer)
        if isinstance(formula, str):
            raise NoProgram(formula)
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
        if not all(map(_has_no_own_settings, params)):
            raise NoProgram(
                "a parameter has a rate or a decay of its own, or is frozen; give all "
                "of them the optimizer's"
            )
        if isinstance(optimizer._learning_rate, LRScheduler):
            optimizer._create_global_learning_rate()  # has it as it is now
        if not isinstance(plan, _StepPlan) or not plan.is_for(optimizer, formula):
            plan = _make_plan(optimizer, formula, params)
            if plan is None:
                return False
            self._plans[key] = plan
        plan.run(formula, grads)
        return True


def _has_no_own_settings(p: Any) -> bool:
    """Tell whether a parameter has the optimizer's rate, and no decay of its own."""
    rate = (getattr(p, "optimize_attr", None) or {}).get("learning_rate", 1.0)
    is_special = type(rate) is not float or rate != 1.0 or p.stop_gradient
    return not is_special and getattr(p, "regularizer", None) is None


class _StepPlan(NamedTuple):
    """The addresses of all that a step reads and writes, except gradients.

    Attributes:
        kind: the part of the settings that the code is compiled for.
        names: the names of the parameters.
        accumulators: all that the optimizer keeps for parameters, by Paddle's names.
        tensors: the rate, then each parameter with the tensors kept for it.
        addresses: the addresses of these tensors.
        grad_kinds: the shapes and dtypes of gradients.
        marks: for each parameter, whether it has the last of the settings.
        table: the block between settings and gradients.
    """

    optimizer: Any
    params: Params
    kind: Any
    names: list[str]
    accumulators: dict[str, list[Tensor]]
    tensors: list[Tensor]
    addresses: list[int]
    grad_kinds: tuple[list[Any], list[Any]]
    marks: list[bool]
    table: bytes
    code: Callable[[bytes], bool]

    def is_for(self, optimizer: Any, formula: StepFormula) -> bool:
        """Tell whether the plan still holds."""
        return (
            formula.kind == self.kind
            and [p.name for p in self.params] == self.names
            and all(
                _are_same_objects(accumulators_of(optimizer, name).values(), x)
                for name, x in self.accumulators.items()
            )
            and optimizer._global_learning_rate() is self.tensors[0]
            and [*map(ADDRESS, self.tensors)] == self.addresses
            and formula.marks(self.params) == self.marks
        )

    def run(self, formula: StepFormula, grads: Sequence[Tensor]) -> None:
        """Take the step.

        Raises:
            NoProgram: a gradient is of another kind than its parameter.
        """
        shapes, dtypes = self.grad_kinds
        if (
            not all(map(DENSE, grads))
            or [*map(SHAPE, grads)] != shapes
            or [g.dtype for g in grads] != dtypes
            or not all(map(WITHOUT_GAPS, grads))
            or not all(grad_addresses := [*map(ADDRESS, grads)])
            or not are_on_cpu(grads)
        ):
            raise NoProgram(
                "a gradient is sparse, has gaps, or another shape or dtype than its "
                "parameter; make it dense"
            )
        count = len(formula.numbers)
        start = FIRST_SETTING + count + len(self.table) // 8
        header = len(grad_addresses), self.addresses[0], start, *formula.numbers
        self.code(
            pack(f"3q{count}d", *header)
            + self.table
            + pack(f"{len(grad_addresses)}q", *grad_addresses)
        )


def _are_same_objects(current: Collection[Any], expected: Collection[Any]) -> bool:
    return len(current) == len(expected) and all(map(is_, current, expected))


def _make_plan(
    optimizer: Any, formula: StepFormula, params: Params
) -> _StepPlan | None:
    """Return the plan of a step, or None if a tensor of it does not exist yet.

    Raises:
        NoProgram: programs do not support these tensors.
    """
    rate, dtype = optimizer._global_learning_rate(), params[0].dtype
    accumulated_tensors, names = {}, [p.name for p in params]
    rows: list[list[Any]] = [[p] for p in params]
    for name in (*formula.moments, *formula.powers):
        accumulators = accumulators_of(optimizer, name)
        for row, param_name in zip(rows, names, strict=True):
            row.append(accumulators.get(param_name))
        accumulated_tensors[name] = [*accumulators.values()]
    tensors = [rate, *(x for row in rows for x in row)]
    if any(x is None for x in tensors):
        return None
    param_shapes, addresses = [p.shape for p in params], [*map(ADDRESS, tensors)]
    width, ones = 1 + len(formula.moments), [[1]] * len(formula.powers)
    shapes = [shape for p in param_shapes for shape in (*[p] * width, *ones)]
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
    marks = formula.marks(params)
    remaining_addresses = iter(addresses[1:])
    table: list[int] = []
    for k, row in enumerate(rows):
        table += [
            row[0].size,
            not marks or marks[k],
            *(next(remaining_addresses) for _ in row),
        ]
    try:
        code = compiled_step(formula, dtype_name(dtype))
    except MemoryError as error:
        raise NoProgram(str(error)) from None
    return _StepPlan(
        *(
            optimizer,
            params,
            formula.kind,
            names,
            accumulated_tensors,
            tensors,
            addresses,
        ),
        *((param_shapes, [dtype] * len(params)), marks, pack(f"{len(table)}q", *table)),
        code,
    )
