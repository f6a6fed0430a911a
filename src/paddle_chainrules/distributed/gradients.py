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
from .averages import reduced, unfit_weight
from .buffers import describe, named_leaves
from .losses import lines_of
from .shards import part_of, samples

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

    def others(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return select(fn, requested, args, kwargs).others

    def share(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        if weight is None:
            return 1.0 if reduction == "sum" else samples(others(args, kwargs), NAME)
        results = weight(*args, **kwargs) if callable(weight) else weight
        return (
            float(results)
            if isinstance(results, Tensor) and results.size == 1
            else results
        )

    def parts(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[Any, ...]]:
        if micro_batches == 1:
            yield args
            return
        count = samples(others(args, kwargs), NAME)
        if count < micro_batches:
            raise ValueError(
                f"{micro_batches} micro-batches need as many samples, got {count}; ask "
                "for fewer"
            )
        whole = {position % len(args) for position in requested[1]}
        for part in range(micro_batches):
            yield tuple(
                a if i in whole else part_of(a, count, part, micro_batches)
                for i, a in enumerate(args)
            )

    def of_shard(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Any, float]:
        results: Any = None
        done = 0.0
        for part in parts(args, kwargs):
            counted = share(part, kwargs)
            if (failure := unfit_weight(counted)) is not None:
                raise failure
            both, before, done = local(*part, **kwargs), done, done + counted
            if results is None:
                results = both
            elif reduction == "sum":
                results = _together(results, 1.0, both, 1.0)
            else:  # the mean of all until here
                results = _together(results, before / done, both, counted / done)
        return *results, done

    @functools.wraps(fn, updated=())
    def value_and_grad_fn(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value: Any = None
        grads: Any = None
        counted, failure = 1.0, None
        try:
            value, grads, counted = of_shard(args, kwargs)
        except Exception as error:  # the others are told
            failure = error
        value, aux = value if has_aux and failure is None else (value, None)
        lines = chain(settings(), _arguments(args, kwargs))
        results, mean = reduced(
            NAME, (value, grads), lines, counted, reduction, failure
        )
        return (results, aux) if has_aux else results, mean

    return value_and_grad_fn


NAME = "value_and_grad"


def _together(one: Any, times: float, other: Any, times_other: float) -> Any:
    """Return the weighted sum of two trees, in which None is zero."""

    def add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
        parts = [t * k for t, k in ((a, times), (b, times_other)) if t is not None]
        return functools.reduce(operator.add, parts) if parts else None

    return optree.tree_map(add, one, other, none_is_leaf=True)


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[str]:
    given = {"arguments": args, "keywords": kwargs}
    return (describe(name, leaf, samples=True) for name, leaf in named_leaves(given))
