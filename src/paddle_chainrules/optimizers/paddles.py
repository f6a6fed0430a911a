"""Conversion of Paddle's optimizers, schedulers and states to functions, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import paddle
from paddle import nn
from paddle.optimizer import lr

from ..paddle_side.dtypes import single
from ..transforms.containers.tree import Tree
from . import adaptive, first_order, formulas, parts, schedules
from .formulas import Formula
from .schedules import Rate
from .transformation import Optimizer, chain, step_number

_NONE: Mapping[str, str] = MappingProxyType({})


class OptimizerFacts(NamedTuple):
    """The facts of one of Paddle's optimizer classes.

    Attributes:
        make: creates such an optimizer of tensors.
        formula: the formula of its kernel; None if machine code does not take its
            steps.
        settings: the formula's settings, in its order: arguments of ``make``, and
            Paddle's attributes.
        trees: the values that the formula keeps, in its order: fields of the state, and
            Paddle's names.
        scalars: the same for values that are one number for each parameter. With a
            formula these are powers of the first settings.
        options: more arguments of ``make``, and attributes.
        optional: the attribute that says whether the last of ``trees`` is kept.
        decay: the attribute by which the kernel itself decays weights.
    """

    make: Callable[..., Optimizer]
    formula: Formula | None
    settings: Mapping[str, str] = _NONE
    trees: Mapping[str, str] = _NONE
    scalars: Mapping[str, str] = _NONE
    options: Mapping[str, str] = _NONE
    optional: str = ""
    decay: str = ""

    def settings_of(self, optimizer: Any) -> list[Any]:
        """Return the settings of an optimizer as its kernel takes them."""
        results = [getattr(optimizer, name) for name in self.settings.values()]
        return (
            results
            if self.formula is formulas.adam
            else [*map(_in_single_precision, results)]
        )

    def decay_of(self, optimizer: Any) -> list[Any]:
        """Return the number by which its kernel itself decays weights, if it does."""
        if not self.decay:
            return []
        is_off = getattr(optimizer, "_regularization_method", "l2_decay") != "l2_decay"
        return [] if is_off else [_in_single_precision(getattr(optimizer, self.decay))]


def _in_single_precision(setting: Any) -> Any:
    """Return a setting in float32, as most kernels take it in float64 too."""
    return single(setting) if type(setting) is float else setting


_BETAS = {"beta1": "_beta1", "beta2": "_beta2", "epsilon": "_epsilon"}
_POWERS = {"beta1_pow": "beta1_pow_acc", "beta2_pow": "beta2_pow_acc"}
_MOMENTS = {"first": "moment1", "second": "moment2"}
_ADAM = OptimizerFacts(
    *(adaptive.adam, formulas.adam, _BETAS),
    trees={**_MOMENTS, "largest": "moment2_max"},
    scalars=_POWERS,
    options={"amsgrad": "_amsgrad"},
    optional="_amsgrad",
)

OPTIMIZERS: dict[type, OptimizerFacts] = {
    paddle.optimizer.SGD: OptimizerFacts(first_order.sgd, formulas.sgd),
    paddle.optimizer.Momentum: OptimizerFacts(
        *(first_order.momentum, formulas.momentum, {"decay": "_momentum"}),
        trees={"velocity": "velocity"},
        options={"nesterov": "_use_nesterov"},
        decay="_regularization_coeff",
    ),
    paddle.optimizer.Adagrad: OptimizerFacts(
        *(first_order.adagrad, formulas.adagrad, {"epsilon": "_epsilon"}),
        trees={"squares": "moment"},
        options={"initial": "initial_accumulator_value"},
    ),
    paddle.optimizer.Adadelta: OptimizerFacts(
        *(first_order.adadelta, formulas.adadelta),
        settings={"rho": "_rho", "epsilon": "_epsilon"},
        trees={"squares": "_avg_squared_grad", "steps": "_avg_squared_update"},
    ),
    paddle.optimizer.RMSProp: OptimizerFacts(
        *(first_order.rmsprop, formulas.rmsprop),
        settings={"rho": "_rho", "epsilon": "_epsilon", "decay": "_momentum"},
        trees={"squares": "mean_square", "velocity": "momentum", "means": "mean_grad"},
        options={"centered": "_centered"},
        optional="_centered",
    ),
    paddle.optimizer.Adam: _ADAM,
    paddle.optimizer.AdamW: _ADAM._replace(make=adaptive.adamw, decay="_weight_decay"),
    paddle.optimizer.Adamax: OptimizerFacts(
        *(adaptive.adamax, formulas.adamax, _BETAS),
        trees={"first": "moment", "second": "inf_norm"},
        scalars={"beta1_pow": "beta1_pow_acc"},
    ),
    paddle.optimizer.Lamb: OptimizerFacts(
        *(adaptive.lamb, None, _BETAS, _MOMENTS, _POWERS),
        options={"always_adapt": "always_adapt"},
        decay="_lamb_weight_decay",
    ),
    paddle.optimizer.NAdam: OptimizerFacts(
        *(adaptive.nadam, None, {**_BETAS, "decay": "_momentum_decay"}, _MOMENTS),
        scalars={
            "decay_pow": "momentum_decay_pow",
            "beta2_pow": "beta2_pow",
            "product": "mu_product",
        },
    ),
}
"""Kinds by class. RAdam's number of steps is in what Paddle keeps to few digits
alone."""


MASKS = "_apply_decay_param_fun", "_lr_ratio", "_exclude_from_weight_decay_fn"
"""Attributes with functions of a parameter; optimizers here have masks instead."""


def _functional_optimizer(
    kind: OptimizerFacts, rate: Rate, optimizer: Any
) -> Optimizer:
    """Create the optimizer of tensors.

    Raises:
        NotImplementedError: it has a function of a parameter.
    """
    for name in MASKS:
        if getattr(optimizer, name, None) is not None:
            raise NotImplementedError(
                f"from_paddle takes no {type(optimizer).__name__} with {name[1:]}; "
                f"call optimizers.{kind.make.__name__} with a mask"
            )
    arguments = dict(zip(kind.settings, kind.settings_of(optimizer), strict=True))
    arguments |= {
        argument: getattr(optimizer, name) for argument, name in kind.options.items()
    }
    decay = kind.decay_of(optimizer) or [_penalty(optimizer)]
    return kind.make(rate, weight_decay=decay[0], **arguments)


def _penalty(optimizer: Any) -> float:
    """Return the coefficient of the penalty that is added to gradients.

    Raises:
        NotImplementedError: it is of the entries' sizes, and not of their squares.
    """
    result = optimizer.regularization
    if result is None:
        return 0.0
    if type(result) is not paddle.regularizer.L2Decay:
        raise NotImplementedError(
            f"from_paddle takes no {type(result).__name__}; add its gradient to those "
            "that update is given"
        )
    return float(result._coeff)


def from_paddle(optimizer: Any, layer: nn.Layer) -> tuple[Optimizer, Tree]:
    """Return an optimizer of Paddle as functions, and its present state.

    Args:
        optimizer: one of ``SGD``, ``Momentum``, ``Adagrad``, ``Adadelta``, ``RMSProp``,
            ``Adam``, ``AdamW``, ``Adamax``, ``Lamb`` and ``NAdam``, with clipping,
            decay and a scheduler of those that :func:`schedule_of` takes.
        layer: the layer whose parameters it moves; the state is nested as those of
            ``stateless(layer)``.

    Raises:
        NotImplementedError: it is of another kind, has groups of parameters, or has
            settings for one parameter.
        ValueError: it moves other parameters than the layer's.
    """
    kind, trained = _facts_and_params(optimizer, layer)
    if optimizer._accumulators_holder:  # a state that was loaded, before any step
        _create_accumulators(optimizer, trained)
    rate, step = optimizer._learning_rate, 0
    if isinstance(rate, lr.LRScheduler):
        step = rate.last_epoch
        rate = schedule_of(rate)
    functional = _functional_optimizer(kind, rate, optimizer)
    state = functional.init({name: p.detach() for name, p in trained.items()})
    fields: dict[str, Any] = {"step": step_number(step)}
    for field, paddle_name in kind.trees.items():
        accumulators = accumulators_of(optimizer, paddle_name)
        values = {name: accumulators.get(p.name) for name, p in trained.items()}
        initial = getattr(state, field)
        fields[field] = {
            name: initial[name]
            if x is None or initial[name] is None
            else x.detach().clone()
            for name, x in values.items()
        }
    for field, paddle_name in kind.scalars.items():
        for x in accumulators_of(optimizer, paddle_name).values():
            value = x.flatten()[0].detach().clone()
            fields[field] = value.astype(getattr(state, field).dtype)
    state = state._replace(**fields)
    clip = optimizer._grad_clip
    if clip is None:
        return functional, state
    return chain(_clipping(clip), functional), ((), state)


def to_paddle(state: Tree, optimizer: Any, layer: nn.Layer) -> None:
    """Have an optimizer of Paddle's go on from a state, as :func:`from_paddle` has it.

    The parameters are not part of it, which
    ``layer.set_state_dict(net.to_state_dict(params))`` moves. A scheduler goes on from
    the state's number of steps.

    Raises:
        NotImplementedError: as :func:`from_paddle`.
        ValueError: it moves other parameters than the layer's, or the state is of
            another optimizer.
    """
    kind, trained = _facts_and_params(optimizer, layer)
    if optimizer._grad_clip is not None:
        _, state = state
    missing = {"step", *kind.trees, *kind.scalars} - {*getattr(state, "_fields", ())}
    if missing:
        raise ValueError(
            f"a {type(state).__name__} has no {', '.join(sorted(missing))}, which "
            f"{type(optimizer).__name__} has; give the state of the same kind"
        )
    _create_accumulators(optimizer, trained)
    for field, paddle_name in kind.trees.items():
        accumulators = accumulators_of(optimizer, paddle_name)
        for name, value in getattr(state, field).items():
            if value is not None:
                paddle.assign(value, accumulators[trained[name].name])
    for field, paddle_name in kind.scalars.items():
        value, accumulators = (
            getattr(state, field),
            accumulators_of(optimizer, paddle_name),
        )
        for p in trained.values():
            target = accumulators[p.name]
            paddle.assign(value.astype(target.dtype).expand(target.shape), target)
    if isinstance(optimizer._learning_rate, lr.LRScheduler):
        optimizer._learning_rate.step(int(state.step))


def accumulators_of(optimizer: Any, name: str) -> dict[str, Any]:
    """Return an optimizer's accumulators of a name, by parameters' names."""
    own_name = optimizer._name
    full_name = name if own_name is None else f"{own_name}_{name}"
    results: dict[str, Any] = optimizer._accumulators.get(full_name, {})
    return results


def _create_accumulators(optimizer: Any, trained: dict[str, Any]) -> None:
    """Create its accumulators, those that were loaded with their numbers."""
    block = paddle.static.default_main_program().global_block()
    optimizer._create_accumulators(block, [*trained.values()])


def _facts_and_params(
    optimizer: Any, layer: nn.Layer
) -> tuple[OptimizerFacts, dict[str, Any]]:
    """Return the kind of an optimizer, and by name the parameters that it moves."""
    if not isinstance(optimizer, paddle.optimizer.Optimizer):
        raise TypeError(
            f"an optimizer of Paddle's is expected, got {type(optimizer).__name__}; "
            "make one, as paddle.optimizer.Adam(parameters=layer.parameters())"
        )
    if not isinstance(layer, nn.Layer):
        raise TypeError(
            f"the layer that the optimizer moves is expected, got "
            f"{type(layer).__name__}; give it, and not a net or parameters of it"
        )
    kind = OPTIMIZERS.get(type(optimizer))
    if kind is None:
        names = ", ".join(
            sorted(optimizer_class.__name__ for optimizer_class in OPTIMIZERS)
        )
        raise NotImplementedError(
            f"{type(optimizer).__name__} has no function here; use one of {names}"
        )
    parameter_list = optimizer._parameter_list
    trainable = {n: p for n, p in layer.named_parameters() if not p.stop_gradient}
    if any(isinstance(p, dict) for p in parameter_list):
        raise NotImplementedError(
            "from_paddle takes no groups of parameters; use masks, or an optimizer of "
            "each group"
        )
    if {id(p) for p in parameter_list if not p.stop_gradient} != {
        *map(id, trainable.values())
    }:
        raise ValueError(
            "the optimizer moves other parameters than the layer has; give the layer "
            "whose parameters it was made with, all of them"
        )
    for name, p in trainable.items():
        if (
            p.optimize_attr.get("learning_rate", 1.0) != 1.0
            or p.regularizer is not None
        ):
            raise NotImplementedError(
                f"the parameter {name} has a learning rate or a regularizer of its "
                "own; use masks instead"
            )
        if optimizer._grad_clip is not None and not getattr(p, "need_clip", True):
            raise NotImplementedError(
                f"the parameter {name} is not clipped, and others are; clip by a "
                "function of yours instead"
            )
    return kind, trainable


def _clipping(clip: Any) -> Optimizer:
    if type(clip) is nn.ClipGradByValue:
        return parts.clip_by_value(clip.max, clip.min)
    if type(clip) is nn.ClipGradByNorm:
        return parts.clip_by_norm(clip.clip_norm)
    if type(clip) is nn.ClipGradByGlobalNorm:
        return parts.clip_by_global_norm(clip.clip_norm)
    raise NotImplementedError(
        f"{type(clip).__name__} has no function here; use ClipGradByValue, "
        "ClipGradByNorm or ClipGradByGlobalNorm"
    )


_Attributes = Sequence[str]
_SCHEDULES: dict[type, tuple[Callable[..., schedules.Schedule], _Attributes]] = {
    lr.ExponentialDecay: (schedules.exponential_decay, ("base_lr", "gamma")),
    lr.NaturalExpDecay: (schedules.natural_exp_decay, ("base_lr", "gamma")),
    lr.InverseTimeDecay: (schedules.inverse_time_decay, ("base_lr", "gamma")),
    lr.PolynomialDecay: (
        schedules.polynomial_decay,
        ("base_lr", "decay_steps", "end_lr", "power", "cycle"),
    ),
    lr.PiecewiseDecay: (schedules.piecewise_decay, ("boundaries", "values")),
    lr.MultiStepDecay: (
        schedules.multi_step_decay,
        ("base_lr", "milestones", "gamma"),
    ),
    lr.StepDecay: (schedules.step_decay, ("base_lr", "step_size", "gamma")),
    lr.NoamDecay: (schedules.noam_decay, ("d_model", "warmup_steps", "base_lr")),
    lr.LinearLR: (
        schedules.linear,
        ("base_lr", "total_steps", "start_factor", "end_factor"),
    ),
    lr.CosineAnnealingDecay: (
        schedules.cosine_annealing,
        ("base_lr", "T_max", "eta_min"),
    ),
    lr.CosineAnnealingWarmRestarts: (
        schedules.cosine_warm_restarts,
        ("base_lr", "T_0", "T_mult", "eta_min"),
    ),
}
"""Functions by the class of a scheduler, and where their arguments are."""


def schedule_of(scheduler: lr.LRScheduler) -> schedules.Schedule:
    """Return a scheduler of Paddle as a schedule, from its first step on.

    Raises:
        NotImplementedError: it is a function of the user's, depends on losses, or is of
            a class that Paddle does not have.
    """
    if not isinstance(scheduler, lr.LRScheduler):
        raise TypeError(
            f"a scheduler of Paddle's is expected, got {type(scheduler).__name__}; "
            "make one, as paddle.optimizer.lr.StepDecay(0.1, step_size=100)"
        )
    untyped: Any = scheduler
    if type(untyped) in _SCHEDULES:
        make, names = _SCHEDULES[type(untyped)]
        return make(*(getattr(untyped, name) for name in names))
    if type(untyped) is lr.LinearWarmup:
        inner: Any = untyped.learning_rate
        then = schedule_of(inner) if isinstance(inner, lr.LRScheduler) else inner
        return schedules.linear_warmup(
            then, untyped.warmup_steps, untyped.start_lr, untyped.end_lr
        )
    if type(untyped) is lr.OneCycleLR:
        anneal = "cos" if untyped.anneal_func.__name__ == "_cos_annealing" else "linear"
        return schedules.in_phases(
            untyped._step_config[:-1], untyped._lr_config, anneal
        )
    if type(untyped) is lr.CyclicLR and untyped.scale_fn.__name__.startswith("_"):
        up = round(untyped.step_up_pct * untyped.cycle_size)
        sizes = up, round(untyped.cycle_size - up)
        return schedules.cyclic(
            untyped.base_lr, untyped.max_lr, *sizes, untyped.mode, untyped.gamma
        )
    raise NotImplementedError(
        f"{type(untyped).__name__} has no function here; write a function of the "
        "number of steps in tensor operations"
    )
