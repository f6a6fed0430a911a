"""Value and gradient of a loss over the shards of all ranks."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

import optree
from paddle import Tensor

from ..paddle_side.arguments import checked_flag, checked_function, checked_integer
from ..transforms.derivatives import value_and_grad as of_one
from ..transforms.derivatives.argnums import positions_of, select
from .averages import reduce_tree, unfit_weight
from .buffers import describe, named_leaves
from .losses import lines_of
from .shards import samples, slice_rows

Weight = float | Callable[..., float]


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    weight: Weight | None = None,
    micro_batches: int = 1,
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that gives a loss and its gradient over all ranks' shards.

    Each rank calls it with its own shard, and all get the same value and gradients.
    These equal those of one process with all samples if the loss is a mean, or a sum,
    over samples. Only the results are reduced, in one round a dtype. Derivatives within
    the loss, such as those of differential equations, are each rank's own. No gradient
    flows through the results: an enclosing transform takes them as constants.

    Ranks compare what they are about to do at each call: the code of the loss, the
    numbers and strings that it closes over or finds in its module, reduction and kind
    of weight, names, shapes and dtypes of arguments. A value that differs on purpose,
    such as a seed, must be an argument.

    Args:
        fn: the loss, as for :func:`paddle_chainrules.value_and_grad`; by ``jit`` too.
        argnums: the arguments to differentiate with respect to: parameters, the same on
            all ranks.
        has_aux: fn returns ``(loss, aux)``; aux stays each rank's own.
        reduction: "mean" of shards, weighted; "sum" adds losses and gradients up.
        weight: the weight of this rank's shard, a number, or a function of the loss's
            arguments. By default the number of its samples, which is the first
            dimension of all arrays in the positional arguments that are not
            differentiated.
        micro_batches: the number of parts of consecutive samples that the shard is
            worked on in, one after another, for less memory; one reduction in the end.
            Keyword arguments go to each part as they are.

    Returns:
        ``g(*args, **kwargs) -> (value, grads)`` as in a single process.

    Raises:
        ValueError: another reduction, fewer than one micro-batch, or aux of several;
            from the returned function, if samples don't tell the weight.
        TypeError: an argument is of another kind; from the returned function, as in a
            single process.
        RankError: from the returned function: ranks disagree, or one failed or is gone.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, distributed
        >>> net = FCNet((2, 8, 1))
        >>> loss = lambda params, x, y: ((net.forward(params, x) - y) ** 2).mean()
        >>> x, y = distributed.shard((paddle.ones([7, 2]), paddle.ones([7, 1])))
        >>> value, grads = distributed.value_and_grad(loss)(net.init(seed=0), x, y)
        >>> sorted(grads)[0]
        '0.bias'
    """
    checked_function("fn", fn)
    if not isinstance(reduction, str) or reduction not in ("mean", "sum"):
        raise ValueError(
            f'reduction must be "mean" or "sum", got {reduction!r}; use "sum" where '
            "the loss adds up over samples"
        )
    if checked_integer("micro_batches", micro_batches) < 1:
        raise ValueError(
            f"micro_batches must be an int of at least 1, got {micro_batches!r}; 1 "
            "takes the shard as a whole"
        )
    if checked_flag("has_aux", has_aux) and micro_batches > 1:
        raise ValueError(
            f"aux of {micro_batches} micro-batches can't be told apart; return the "
            "loss alone, or add up paddle_chainrules.value_and_grad and average once"
        )
    local = of_one.value_and_grad(fn, argnums, has_aux)
    requested = positions_of(argnums)

    def settings() -> Iterator[str]:
        """Yield what must match on all ranks, besides arguments."""
        yield f"reduction={reduction!r}"
        if weight is None:
            yield "weight=None"
        elif callable(weight):
            yield from lines_of(weight, "the weight")
        else:
            yield "weight=a number"
        yield from lines_of(fn)

    def other_args(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return select(fn, requested, args, kwargs).others

    def shard_weight(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        if weight is None:
            return (
                1.0 if reduction == "sum" else samples(other_args(args, kwargs), CALLER)
            )
        results = weight(*args, **kwargs) if callable(weight) else weight
        return (
            float(results)
            if isinstance(results, Tensor) and results.size == 1
            else results
        )

    def split_shard(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[Any, ...]]:
        if micro_batches == 1:
            yield args
            return
        count = samples(other_args(args, kwargs), CALLER)
        if count < micro_batches:
            raise ValueError(
                f"{micro_batches} micro-batches need as many samples, got {count}; ask "
                "for fewer"
            )
        differentiated = {position % len(args) for position in requested[1]}
        for micro_batch in range(micro_batches):
            yield tuple(
                a
                if i in differentiated
                else slice_rows(a, count, micro_batch, micro_batches)
                for i, a in enumerate(args)
            )

    def shard_value_and_grads(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any, float]:
        results: Any = None
        total_weight = 0.0
        for micro_batch in split_shard(args, kwargs):
            batch_weight = shard_weight(micro_batch, kwargs)
            if (failure := unfit_weight(batch_weight)) is not None:
                raise failure
            value_and_grads, weight_before, total_weight = (
                local(*micro_batch, **kwargs),
                total_weight,
                total_weight + batch_weight,
            )
            if results is None:
                results = value_and_grads
            elif reduction == "sum":
                results = _weighted_sum(results, 1.0, value_and_grads, 1.0)
            else:  # the mean of all until here
                results = _weighted_sum(
                    results,
                    weight_before / total_weight,
                    value_and_grads,
                    batch_weight / total_weight,
                )
        return *results, total_weight

    @functools.wraps(fn, updated=())
    def value_and_grad_fn(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value: Any = None
        grads: Any = None
        batch_weight, failure = 1.0, None
        try:
            value, grads, batch_weight = shard_value_and_grads(args, kwargs)
        except Exception as error:  # the others are told
            failure = error
        value, aux = value if has_aux and failure is None else (value, None)
        lines = chain(settings(), _argument_lines(args, kwargs))
        results, mean = reduce_tree(
            CALLER, (value, grads), lines, batch_weight, reduction, failure
        )
        return (results, aux) if has_aux else results, mean

    return value_and_grad_fn


CALLER = "value_and_grad"


def _weighted_sum(
    first: Any, first_weight: float, second: Any, second_weight: float
) -> Any:
    """Return the weighted sum of two trees, in which None is zero."""

    def add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
        terms = [
            t * k for t, k in ((a, first_weight), (b, second_weight)) if t is not None
        ]
        return functools.reduce(operator.add, terms) if terms else None

    return optree.tree_map(add, first, second, none_is_leaf=True)


def _argument_lines(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[str]:
    tree = {"arguments": args, "keywords": kwargs}
    return (describe(name, leaf, samples=True) for name, leaf in named_leaves(tree))
